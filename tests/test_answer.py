"""Files that commands write appear whole or not at all, and what is no file stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from vsketchdlc import answer
from vsketchdlc.errors import UserError


def test_an_older_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), answer.whole_file(path) as file:
        file.write(b"half")
        assert path.read_text() == "old"
        raise ZeroDivisionError
    assert path.read_text() == "old" and [one.name for one in tmp_path.iterdir()] == ["a.json"]
    answer.write_text_whole(path, "new")
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o666 & ~answer._umask()


def test_a_link_keeps_pointing_to_its_file(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    answer.write_text_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_a_device_stays_a_device(capfd):
    answer.write_json("/dev/null", {"a": 1})
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    answer.write_json("/dev/stdout", {"a": 1})
    assert capfd.readouterr().out == '{\n  "a": 1\n}\n'


def test_a_pipe_is_written_as_it_comes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    answer.write_text_whole(tmp_path / "pipe", "hello")
    assert os.read(reader, 100) == b"hello" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "message"), [("", "it is a folder"), ("missing/a", "No such file"), ("a" * 300, "too long")]
)
def test_places_that_will_not_do_are_named(tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        answer.write_text_whole(tmp_path / name, "x")


def test_a_pipe_whose_reader_has_left_ends_the_command_without_a_word():
    """vsketchdlc ... | head -1"""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "vsketchdlc", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (answer.READER_LEFT, b"")


def test_an_answer_on_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vsketchdlc", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "No space left" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_broken_pipe_elsewhere_is_not_taken_for_the_reader():
    with pytest.raises(BrokenPipeError), answer.guarded_output():
        raise BrokenPipeError


def test_names_in_the_next_command_can_be_typed():
    assert answer.typed(Path("trace")) == "trace"
    assert answer.typed(Path("my trace")) == "'my trace'"
