"""Every command helps with an example, and answers nonsense with one line and status 2."""

import sys

import pytest
import typer
from vsketchdlc import cli


def commands(group, path=()):
    """The words of every command of the program, those of groups such as ``lab run`` included."""
    for name, command in sorted(group.commands.items()):
        words = (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, words)
        else:
            yield words


COMMANDS = list(commands(typer.main.get_command(cli.app)))


@pytest.fixture
def vsketchdlc(monkeypatch, capsys, tmp_path):
    """Run the program in an empty folder; returns (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vsketchdlc", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        told = capsys.readouterr()
        return end.value.code, told.out, told.err

    return run


def test_all_commands_of_the_program_are_walked():
    first_words = {words[0] for words in COMMANDS}
    assert first_words >= {
        "trace", "collect", "report", "export", "import", "calibrate", "whatif", "replay", "tune", "run",
        "lab", "doctor", "demo", "validate",
    }  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_can_be_typed(vsketchdlc, words):
    status, out, err = vsketchdlc(*words, "--help")
    assert (status, err) == (0, "")
    flat = " ".join(out.split())
    assert f"Example: vsketchdlc {' '.join(words)}" in flat


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("nonsense", ["--nonsense", "nonsense"])
def test_nonsense_is_one_line_and_status_2(vsketchdlc, words, nonsense, tmp_path):
    status, out, err = vsketchdlc(*words, nonsense)
    assert status == 2, err
    assert out == ""
    assert len(err.splitlines()) == 1 and err.startswith("vsketchdlc: "), err
    assert "nonsense" in err or "--help" in err
    assert list(tmp_path.iterdir()) == []
