"""Emulated hosts on one Linux machine: real MPI, real TCP, shaped links."""

from .flows import Collision, Flow, Sighting
from .hosts import HostProcess
from .lab import Lab
from .network import WireCount
from .rights import missing as missing_rights
from .spec import HostSpec, LabSpec

__all__ = [
    "Collision",
    "Flow",
    "HostProcess",
    "HostSpec",
    "Lab",
    "LabSpec",
    "Sighting",
    "WireCount",
    "missing_rights",
]
