"""The ``vsketchdlc`` command: joins the parts' commands and turns a user's mistake into one line."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from . import __version__, answer
from .errors import BadNews, UserError
from .fasthvd import commands as fasthvd_commands
from .fasthvd.tune_command import set_live_trial
from .model import commands as model_commands
from .replay import commands as replay_commands
from .tracer import commands as tracer_commands
from .validation import commands as validation_commands

# typer brings its own copy of click in newer versions, uses the installed one in older: ask it which.
ClickException: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="vsketchdlc",
    help="Where does the step time of a Horovod job over TCP go, and how many lanes should it run?",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        answer.stdout.print(f"vsketchdlc {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


for part in (tracer_commands, model_commands, fasthvd_commands, replay_commands, validation_commands):
    part.register(app)
# Arrows point down: `tune` stands below replay, so what its --live-replay needs is handed in here.
set_live_trial(replay_commands.live_trial)


def main() -> None:
    """Run the command line; exit 0 good, 1 bad news, 2 wrong usage or unusable input."""
    try:
        with answer.guarded_output():
            status = app(standalone_mode=False)
    except UserError as error:
        _say(str(error))
        sys.exit(2)
    except BadNews as error:
        _say(str(error))
        sys.exit(1)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ClickException as error:
        _say(_wrong_usage(error))
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


def _wrong_usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" (see: {context.command_path} --help)"
    return f"{error.format_message()}{hint}"


def _say(line: str) -> None:
    print(f"vsketchdlc: {' '.join(line.split())}", file=sys.stderr)
