"""Control groups of both versions, on folders that look like them."""

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.validation.lab.cgroups import Hierarchy, period_and_quota_us, remove_tree


def proc(tmp_path, mountinfo, groups):
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "mountinfo").write_text(mountinfo)
    (folder / "cgroup").write_text(groups)
    return folder


def version_1(tmp_path, root="/", group="/"):
    line = f"30 20 0:26 {root} {tmp_path}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    other = f"31 20 0:27 / {tmp_path}/unified rw,relatime - cgroup2 cgroup2 rw\n"
    return proc(tmp_path, other + line, f"0::/\n4:cpu,cpuacct:{group}\n")


def version_2(tmp_path, controllers="cpuset cpu io memory pids", handed_down="cpu memory pids"):
    top = tmp_path / "cgroup"
    top.mkdir()
    (top / "cgroup.controllers").write_text(controllers)
    (top / "cgroup.subtree_control").write_text(handed_down)
    return proc(tmp_path, f"30 20 0:26 / {top} rw,relatime - cgroup2 cgroup2 rw\n", "0::/user.slice\n")


def test_version_1_is_found_below_the_process_own_group(tmp_path):
    found = Hierarchy.find("cpu", version_1(tmp_path, group="/build/7"))
    assert (found.version, found.folder) == (1, tmp_path / "cpu" / "build" / "7")


def test_version_1_in_a_container_sees_its_group_as_the_mounts_top(tmp_path):
    found = Hierarchy.find("cpu", version_1(tmp_path, root="/docker/abc", group="/docker/abc/job"))
    assert found.folder == tmp_path / "cpu" / "job"


def test_version_2_is_found_at_the_top_of_its_mount(tmp_path):
    found = Hierarchy.find("cpu", version_2(tmp_path))
    assert (found.version, found.folder) == (2, tmp_path / "cgroup")


def test_version_2_hands_the_controller_down_when_it_is_not_yet(tmp_path):
    Hierarchy.find("cpuset", version_2(tmp_path))
    assert (tmp_path / "cgroup" / "cgroup.subtree_control").read_text() == "+cpuset"


def test_a_missing_controller_is_named(tmp_path):
    with pytest.raises(UserError, match="the cpu controller is needed"):
        Hierarchy.find("cpu", version_2(tmp_path, controllers="memory pids"))
    empty = tmp_path / "nothing"
    empty.mkdir()
    with pytest.raises(UserError, match="none are mounted"):
        Hierarchy.find("cpu", proc(empty, "", "0::/\n"))


def test_a_quota_in_version_1_and_2(tmp_path):
    for version, files in (
        (1, {"cpu.cfs_period_us": "5000", "cpu.cfs_quota_us": "2500"}),
        (2, {"cpu.max": "2500 5000"}),
    ):
        hierarchy = Hierarchy(version, tmp_path / str(version))
        hierarchy.folder.mkdir()
        group = hierarchy.group("lab")
        hierarchy.make(group, 0.5)
        assert {name: (group / name).read_text() for name in files} == files


def test_one_slow_core_for_one_thread(tmp_path):
    first = Hierarchy(1, tmp_path / "1")
    (tmp_path / "1").mkdir()
    first.make_core(first.group("core-7"), 0.5)
    first.move_thread(7, first.group("core-7"))
    assert (tmp_path / "1" / "core-7" / "tasks").read_text() == "7"
    second = Hierarchy(2, tmp_path / "2")
    (tmp_path / "2").mkdir()
    second.make_core(second.group("core-7"), 0.5)
    second.move_thread(7, second.group("core-7"))
    assert (tmp_path / "2" / "core-7" / "cgroup.type").read_text() == "threaded"
    assert (tmp_path / "2" / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "2" / "core-7" / "cgroup.threads").read_text() == "7"


def test_the_period_grows_when_the_quota_would_fall_below_a_millisecond():
    assert period_and_quota_us(1) == (5000, 5000)
    assert period_and_quota_us(0.2) == (5000, 1000)
    assert period_and_quota_us(0.05) == (20000, 1000)
    assert period_and_quota_us(4) == (5000, 20000)


def test_removing_a_tree_goes_from_the_leaves_up_and_gives_up_in_the_end(tmp_path):
    (tmp_path / "lab" / "h0" / "core-7").mkdir(parents=True)
    assert remove_tree(tmp_path / "lab")
    assert not (tmp_path / "lab").exists()
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "process").touch()
    assert not remove_tree(tmp_path / "busy", patience_s=0.05)
