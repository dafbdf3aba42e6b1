"""Builds the native parts: a C compiler is enough, no MPI, no MXNet, no Horovod.

``VSKETCHDLC_NATIVE=0`` leaves them out (what-if and offline replay need none); anywhere but on Linux they
are left out anyway. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
C_FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]


@dataclass(frozen=True)
class NativePart:
    """One artefact: its place in the package and the folders its C files are in."""

    artefact: str
    source_folders: tuple[str, ...]
    link_flags: tuple[str, ...]

    def sources(self) -> list[Path]:
        return sorted(path for folder in self.source_folders for path in (ROOT / folder).glob("*.c"))


PRELOAD_FLAGS = ("-shared", "-ldl", "-pthread")
PARTS = [
    NativePart("tracer/libvsketch.so", ("tracer/native",), PRELOAD_FLAGS),
    NativePart("fasthvd/libfasthvd.so", ("fasthvd/native/common", "fasthvd/native/rank"), PRELOAD_FLAGS),
    NativePart("fasthvd/fasthvd-lane", ("fasthvd/native/common", "fasthvd/native/lane"), ("-pthread",)),
]


def native_wanted() -> bool:
    return sys.platform == "linux" and os.environ.get("VSKETCHDLC_NATIVE", "1") != "0"


def compile_part(part: NativePart, target: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit(
            "vsketchdlc: no C compiler found; install one (Debian: apt-get install gcc) "
            "or set VSKETCHDLC_NATIVE=0 for what-if and offline replay alone"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    # -march is not raised: the artefact must run on every x86-64 or arm64 host of the job.
    # Written beside and renamed: a running job keeps its old file.
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    extra = os.environ.get("VSKETCHDLC_CFLAGS", "").split()
    command = [
        *compiler.split(),
        *C_FLAGS,
        *extra,
        *map(str, part.sources()),
        *part.link_flags,
        "-o",
        str(fresh),
    ]
    try:
        subprocess.run(command, check=True, cwd=ROOT)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


class BuildWithNative(build_py):
    """Compiles the native parts into the build folder, or beside their sources for an editable install."""

    def run(self) -> None:
        super().run()
        if not native_wanted():
            return
        for part in PARTS:
            if part.sources():
                place = ROOT if self.editable_mode else Path(self.build_lib) / "vsketchdlc"
                compile_part(part, place / part.artefact)

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """The package root is the repository root: take its named modules only, not setup.py."""
        modules = super().find_package_modules(package, package_dir)
        return [found for found in modules if (package, found[1]) != ("vsketchdlc", "setup")]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        if native_wanted() and not self.editable_mode:
            outputs += [
                str(Path(self.build_lib) / "vsketchdlc" / part.artefact) for part in PARTS if part.sources()
            ]
        return outputs


class CleanBuild(build):
    """A plain build that never picks up files of an older one."""

    def run(self) -> None:
        shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
        super().run()


class NativeDistribution(Distribution):
    """Tells the wheel that it holds machine code."""

    def has_ext_modules(self) -> bool:
        return native_wanted()


def wheel_commands() -> dict[str, type]:
    """A wheel for every Python 3 of this platform: the native parts do not use Python's C API."""
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        from setuptools.command.bdist_wheel import bdist_wheel

    class AnyPythonWheel(bdist_wheel):
        def get_tag(self) -> tuple[str, str, str]:
            _, _, platform = super().get_tag()
            return "py3", "none", platform

    return {"bdist_wheel": AnyPythonWheel}


if len(sys.argv) == 2 and sys.argv[1] == "native":
    for native_part in PARTS:
        if native_part.sources():
            compile_part(native_part, ROOT / native_part.artefact)
else:
    setup(
        cmdclass={"build_py": BuildWithNative, "build": CleanBuild, **wheel_commands()},
        distclass=NativeDistribution,
    )
