"""Leftovers of dead owners are removed; nothing else is."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.validation.lab import state


@pytest.fixture
def base(monkeypatch, tmp_path_factory):
    """A state folder of the test's own. It may not be below /tmp, where every host has its own."""
    folder = Path(tempfile.mkdtemp(prefix="vsk", dir="/var/tmp"))
    monkeypatch.setenv("VSKETCHDLC_LAB_STATE", str(folder / "state"))
    yield folder / "state"
    shutil.rmtree(folder)


def lab_of(base, **owner):
    made = state.StateFolder.make()
    record = json.loads((made.path / "owner.json").read_text())
    (made.path / "owner.json").write_text(json.dumps({**record, **owner}))
    (made.path / "h0" / "tmp").mkdir(parents=True)
    return made.path


def ended_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_a_living_owners_lab_stays(base):
    mine = lab_of(base)
    assert state.remove_leftovers() == []
    assert mine.is_dir()


def test_a_dead_owners_lab_goes(base):
    old = lab_of(base, pid=ended_process())
    assert state.remove_leftovers() == [old.name]
    assert not old.exists()


def test_another_process_with_the_owners_number_does_not_keep_it(base):
    old = lab_of(base, start_ticks=1)
    assert state.remove_leftovers() == [old.name]


def test_a_lab_from_before_the_reboot_goes(base):
    old = lab_of(base, boot_id="another")
    assert state.remove_leftovers() == [old.name]


def test_an_owner_in_another_container_cannot_be_judged_and_stays(base):
    old = lab_of(base, pid=ended_process(), pid_namespace=1)
    assert state.remove_leftovers() == []
    assert old.is_dir()


def test_what_is_no_lab_stays(base):
    lab_of(base)
    (base / "notes").mkdir()
    (base / "notes" / "owner.json").write_text('{"format_version": 99}')
    (base / "file").write_text("mine")
    assert state.remove_leftovers() == []
    assert (base / "notes").is_dir()
    assert (base / "file").read_text() == "mine"


def test_a_lab_whose_making_was_cut_short_goes(base):
    lab_of(base)
    (base / ".new-1-2-3").mkdir()
    state.remove_leftovers()
    assert not (base / ".new-1-2-3").exists()


def test_only_a_control_group_of_the_labs_own_name_is_removed(base, tmp_path):
    old = lab_of(base, pid=ended_process())
    foreign, own = tmp_path / "important", tmp_path / f"vsketchdlc-lab-{old.name}"
    foreign.mkdir()
    own.mkdir()
    (old / "groups").write_text(f"{foreign}\n{own}\n")
    state.remove_leftovers()
    assert foreign.is_dir()
    assert not own.exists()


@pytest.mark.parametrize(
    "place", ["relative", "/tmp/x", "/dev/shm/x", "/var/tmp/with space", "/var/tmp/" + "x" * 60]
)
def test_a_state_folder_that_cannot_work_is_refused(monkeypatch, place):
    monkeypatch.setenv("VSKETCHDLC_LAB_STATE", place)
    with pytest.raises(UserError, match="VSKETCHDLC_LAB_STATE"):
        state.base()


def test_a_state_folder_of_someone_else_is_refused(monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of someone else")
    folder = tempfile.mkdtemp(prefix="vsk", dir="/var/tmp")
    try:
        os.chown(folder, 12345, 12345)
        monkeypatch.setenv("VSKETCHDLC_LAB_STATE", folder)
        with pytest.raises(UserError, match="belongs to someone else"):
            state.base()
    finally:
        shutil.rmtree(folder)
