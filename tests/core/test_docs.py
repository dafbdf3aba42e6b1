"""The pages keep up with the program: commands, options and sentences in them exist, links lead somewhere."""

import re
from pathlib import Path

import pytest
import typer
from vsketchdlc import cli

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
# Indented or fenced lines, and `vsketchdlc ...` in running text.
COMMAND = re.compile(r"(?:^(?:    |\$ |    \$ )|`)(vsketchdlc [a-z][^`\n]*)", re.MULTILINE)
SOURCES = [
    file
    for part in ("tracer", "model", "fasthvd", "replay", "validation")
    for pattern in ("**/*.py", "**/*.c")
    for file in (REPOSITORY / part).glob(pattern)
]


PROGRAM = typer.main.get_command(cli.app)


def options_of(words):
    """The options of the command that `words` start, or None where there is no such command."""
    command = PROGRAM
    for word in words:
        if not hasattr(command, "commands"):
            break
        command = command.commands.get(word)
        if command is None:
            return None
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return names | {"-h", "--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_on_the_page_exist(page):
    for line in COMMAND.findall(page.read_text()):
        words = line.split(" -- ")[0].split("#")[0].split()[1:]
        options = options_of(words)
        assert options is not None, f"{page.name}: no such command: {line}"
        asked = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", word)}
        assert asked <= options, f"{page.name}: {line}: no option {sorted(asked - options)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_other_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: nothing at {target}"


def test_sentences_to_look_up_are_those_the_program_says():
    page = (REPOSITORY / "docs" / "limits.md").read_text()
    sentences = re.findall(r"^\| `([^`]+)` \|", page.partition("## What it says")[2], re.MULTILINE)
    assert len(sentences) > 8
    source = " ".join(" ".join(file.read_text().split()) for file in SOURCES)
    source = re.sub(r'" f?"', "", source)  # a sentence over several lines of source
    for sentence in sentences:
        for piece in sentence.split("..."):
            assert piece.strip(" '") in source, f"nothing says '{piece}' any more"
