"""Emulated hosts on one Linux machine: real MPI, real TCP, shaped links."""

from .lab import HostProcess, Lab
from .network import WireCount
from .rights import missing as missing_rights
from .spec import HostSpec, LabSpec

__all__ = ["HostProcess", "HostSpec", "Lab", "LabSpec", "WireCount", "missing_rights"]
