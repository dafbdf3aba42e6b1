"""Jobs whose gradients never come through MPI are recognised, and told what helps."""

from __future__ import annotations

import pytest
from vsketchdlc.fasthvd.job_kind import at_the_end, before_the_start
from vsketchdlc.tracer.launcher import LauncherKind

MPIRUN = ["mpirun", "-np", "2", "python", "train.py"]


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (MPIRUN, {"HOROVOD_CPU_OPERATIONS": "gloo"}, "without HOROVOD_CPU_OPERATIONS=gloo"),
        (MPIRUN, {"HOROVOD_CONTROLLER": "GLOO"}, "Gloo (HOROVOD_CONTROLLER=GLOO)"),
        (MPIRUN, {"HOROVOD_CPU_OPERATIONS": "CCL"}, "oneCCL"),
        (MPIRUN, {"DMLC_PS_ROOT_URI": "10.0.0.1"}, "parameter servers"),
        (["mpirun", "-x", "HOROVOD_CPU_OPERATIONS=gloo", "python", "t.py"], {}, "Gloo"),
        (["mpiexec", "-genv", "HOROVOD_CONTROLLER", "gloo", "python", "t.py"], {}, "Gloo"),
        (["mpirun", "env", "HOROVOD_CONTROLLER=gloo", "python", "t.py"], {}, "Gloo"),
        (["sh", "-c", "HOROVOD_CONTROLLER=gloo mpirun python t.py"], {}, "Gloo"),
    ],
)  # fmt: skip
def test_what_the_command_tells_before_it_starts(words, environment, said):
    line = before_the_start(LauncherKind.OPEN_MPI, words, environment)
    assert line is not None and said in line and "\n" not in line


@pytest.mark.parametrize(
    "environment", [{}, {"HOROVOD_CPU_OPERATIONS": "MPI"}, {"HOROVOD_CONTROLLER": "mpi"}]
)
def test_jobs_over_mpi_are_not_warned(environment):
    words = ["mpirun", "-x", "HOROVOD_CONTROLLER=mpi", "-x", "MY_HOROVOD_NOTE=gloo", "python", "gloo.py"]
    assert before_the_start(LauncherKind.OPEN_MPI, words, environment) is None


def test_horovodrun_over_gloo():
    line = before_the_start(LauncherKind.HOROVODRUN_GLOO, ["horovodrun", "--gloo"], {})
    assert line is not None and "without '--gloo'" in line


@pytest.mark.parametrize(
    ("kind", "ranks", "said"),
    [
        (LauncherKind.DIRECT, [], "put the whole launch command behind '--'"),
        (LauncherKind.HOROVODRUN_MPI, [], "horovodrun --check-build"),
        (LauncherKind.OPEN_MPI, [], "horovodrun --check-build"),
        (LauncherKind.OPEN_MPI, [1, 1, 1], "3 jobs of one rank each"),
        (LauncherKind.DIRECT, [1], "one rank"),
    ],
)
def test_what_the_ranks_have_told_at_the_end(kind, ranks, said):
    line = at_the_end(kind, ["/usr/bin/launch"], ranks)
    assert line is not None and said in line and "'launch'" in line


def test_a_job_of_several_ranks_needs_no_word():
    assert at_the_end(LauncherKind.OPEN_MPI, ["mpirun"], [4]) is None
    assert at_the_end(LauncherKind.DIRECT, ["train.sh"], [1, 8]) is None
