"""A rank that speaks as Horovod does: `control_rank.py STEPS BYTES [LIBRARY]`.

Every step its ranks agree by bit vectors which of two tensors are ready (several cycles without any, as in Horovod), then
the gradients of BYTES bytes are reduced by MPI_Allreduce; with 0 bytes something else carries them. LIBRARY is loaded first.
"""

from __future__ import annotations

import ctypes
import os
import sys

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
os.environ["FASTHVD_HOST_ID"] = f"host{RANK}"

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

STATE_BITS = 0b001  # the others are inverted: nobody has anything uncached or invalid
steps, size = int(sys.argv[1]), int(sys.argv[2])
for name in sys.argv[3:]:
    ctypes.CDLL(name)


def agree(tensors: int) -> None:
    """One cycle: MPI_LONG_LONG, combined by AND, in place."""
    words = np.array([STATE_BITS | tensors << 3, 0], "q")
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, [words, MPI.LONG_LONG], op=MPI.BAND)


for step in range(steps):
    for _ in range(3):
        agree(0)
    if step > 0:  # in the first step the tensors have no bits yet
        agree(0b01)
        agree(0b10)
    if size:
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, np.ones(size // 4, "f4"))
    if RANK == 0:
        print(f"step {step + 1}", file=sys.stderr, flush=True)
