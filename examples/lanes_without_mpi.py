"""Four processes sum an array over lanes, without MPI: two play one host, two another."""

import multiprocessing
import tempfile

import numpy as np
from vsketchdlc.fasthvd.lanes import FileRendezvous, Lanes

SIZE = 4


def main(rank: int, folder: str) -> None:
    meeting = FileRendezvous(folder, rank, SIZE)
    with Lanes(rank, SIZE, meeting, aux=2, host_id=f"host{rank // 2}") as lanes:
        array = np.arange(1_000_000, dtype="float32") + rank
        lanes.allreduce(array)
        if rank == 0:
            print(f"{SIZE} ranks on {lanes.hosts} hosts, {lanes.count} lanes each: {array[:4]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks = [multiprocessing.Process(target=main, args=(rank, folder)) for rank in range(SIZE)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
