"""PyTorch profiler (Kineto) files, one a rank, as a Trace.

1. The rank is in ``distributedInfo``; a file that does not say it gets the next free one, which is told.
2. ``ProfilerStep#N`` cuts time into steps; the lowest N of all files is step 0. What starts within belongs to it.
3. A collective lasts as long as the GPU kernel (``ncclKernel_*``, ``ncclDevKernel_*``) that its call launched: the
   annotation ``nccl:all_reduce`` (or ``record_param_comms``) holds the launch, whose ``correlation`` names the kernel.
   Where the file has no NCCL kernels (Gloo), the call itself is taken. Bytes are elements x size of dtype.
4. ``## forward ##`` (or DDP's forward), ``## backward ##`` (or autograd's operations, first to last) and
   ``Optimizer.step#...`` → forward, backward, update.
5. Every other operation, kernel and call → ``operator`` on its thread or stream.

Times: ``baseTimeNanoseconds`` + ``ts`` microseconds (absolute in older files). Ranks' clocks are taken as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ...errors import UserError
from ..trace import HostInfo, TraceMeta
from .damaged_json import Document
from .event_lists import BAD_TIMES, arguments_of, key_of, names_of
from .event_rows import LARGEST_TIME_NS, EventRows, Imported, given_ranks, text, time_ns, whole
from .kineto_rank import Calls, RankFile, Work, add_rank
from .source_file import SourceFile

_MOST_RANKS = 1 << 16
_CATEGORIES = {
    "cpu_op",
    "user_annotation",
    "gpu_user_annotation",
    "cuda_runtime",
    "cuda_driver",
    "kernel",
    "gpu_memcpy",
    "ac2g",
}
_HEADER = {"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName"}
_STEP = re.compile(r"^ProfilerStep#(\d{1,9})$")
_FILE_NAME = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.(\d+\.)?pt\.trace\.json(\.gz)?$")


def looks_like_kineto(document: Document) -> bool:
    """Whether the document is a PyTorch profiler's."""
    if _HEADER & document.top.keys():
        return True
    return any(event.get("cat") in _CATEGORIES for event in document.objects if event.get("ph") == "X")


def import_kineto(files: Sequence[tuple[SourceFile, Document]]) -> Imported:
    """One Trace of all `files`; see the module for what becomes of them.

    Raises UserError when two files of one rank overlap in time.
    """
    rows = EventRows()
    read = [_read(source, document, rows) for source, document in files]
    notes = _give_ranks(read)
    _refuse_overlap(read)
    first_step = min((step for one in read for _, _, step in one.steps), default=0)
    if any(one.steps for one in read):
        notes.append(f"ProfilerStep#{first_step} is step 0")
    hosts: dict[str, HostInfo] = {}
    calls = Calls()
    for one in read:
        if one.host is not None:
            info = hosts.setdefault(one.host, HostInfo(one.host))
            info.ranks = sorted({*info.ranks, one.rank})
            one.process |= list(hosts).index(one.host) << 32
        add_rank(one, rows, first_step, calls)
    if calls.on_cpu:
        notes.append(
            f"assumed: {calls.on_cpu:,} collectives last as long as their call, as the file has no NCCL kernels"
        )
    if calls.without_kernel:
        notes.append(
            f"{calls.without_kernel:,} calls of collectives have no kernel in the file: counted as operators"
        )
    ranks = max(*(one.world for one in read), *(one.rank + 1 for one in read), 1)
    present = {one.rank for one in read}
    if len(present) > 1:
        notes.append("assumed: the clocks of the ranks agree, as the files say nothing about them")
    meta = TraceMeta(
        source="imported:kineto",
        ranks=ranks,
        hosts=list(hosts.values()),
        missing_ranks=[rank for rank in range(ranks) if rank not in present],
        notes=notes,
    )
    return Imported(rows, meta)


def _read(source: SourceFile, document: Document, rows: EventRows) -> RankFile:
    """The complete events of one file, with times in ns."""
    info = document.top.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    base_ns = whole(document.top.get("baseTimeNanoseconds"), LARGEST_TIME_NS) or 0
    found = RankFile(
        source, whole(info.get("rank"), _MOST_RANKS), whole(info.get("world_size"), _MOST_RANKS) or 0
    )
    name = _FILE_NAME.match(source.path.name)
    if name is not None:
        found.host, found.process = text(name["host"]), whole(name["pid"]) or 0
    found.threads = names_of(document.objects, "thread_name")
    for event in document.objects:
        if event.get("ph") != "X":
            continue
        start_ns, length_ns = time_ns(event.get("ts")), time_ns(event.get("dur", 0))
        title = text(event.get("name"))
        if start_ns is None or length_ns is None or abs(start_ns + base_ns) > LARGEST_TIME_NS // 2:
            rows.dropped[BAD_TIMES] += 1
            continue
        start_ns += base_ns
        if title is None or event.get("cat") == "Trace":
            continue
        step = _STEP.match(title)
        row = (key_of(event.get("pid")), key_of(event.get("tid")))
        end_ns = start_ns + max(0, length_ns)
        if step is not None:
            found.steps.append((start_ns, end_ns, int(step[1])))
        found.work.append(
            Work(title, text(event.get("cat")) or "", row, start_ns, end_ns, arguments_of(event))
        )
    found.steps.sort()
    pids = Counter(
        one.row[0] for one in found.work if one.category == "cpu_op" and isinstance(one.row[0], int)
    )
    if pids and not found.process:
        found.process = whole(pids.most_common(1)[0][0]) or 0
    return found


def _give_ranks(files: list[RankFile]) -> list[str]:
    """Give every file its rank; returns what was assumed."""
    ranks, notes = given_ranks([one.rank_in_file for one in files], [one.source.path.name for one in files])
    for one, rank in zip(files, ranks, strict=True):
        one.rank = rank
    return notes


def _refuse_overlap(files: list[RankFile]) -> None:
    """A rank may have several files, one after the other; two at once are two ranks that claim one number."""
    until: dict[int, tuple[int, RankFile]] = {}
    for one in sorted(
        (one for one in files if one.work), key=lambda one: min(work.start_ns for work in one.work)
    ):
        start_ns = min(work.start_ns for work in one.work)
        last = until.get(one.rank)
        if last is not None and start_ns < last[0]:
            raise UserError(
                f"{last[1].source.path.name} and {one.source.path.name} both say they are rank {one.rank}; "
                "import only one of them"
            )
        until[one.rank] = (max(work.end_ns for work in one.work), one)
