"""Whatever a trace holds, its pictures keep the viewers' rules: overlaps, gaps, doubles, nulls, extreme times."""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vsketchdlc.tracer.exports.archive import export_archive
from vsketchdlc.tracer.exports.chakra import export_chakra
from vsketchdlc.tracer.exports.chrome import export_chrome
from vsketchdlc.tracer.exports.perfetto import export_perfetto
from vsketchdlc.tracer.exports.workload_graph import WORK
from vsketchdlc.tracer.imports.reading import read_foreign
from vsketchdlc.tracer.schema import EVENTS, Kind
from vsketchdlc.tracer.trace import HostInfo, TraceMeta, write_trace

pytest.importorskip("perfetto", reason="the perfetto package is not installed: pip install perfetto")


def few(*values):
    return st.sampled_from([None, *values])


row = st.fixed_dictionaries(
    {
        "step": few(-1, 0, 1, 2),
        "rank": few(0, 1, 5, -3, 2**31 - 1),
        "host": few("h0", "h1", "höst"),
        "process": st.sampled_from([1, 2, (1 << 32) + 1]),
        "track": few("horovod", "tensors", "t\n"),
        "kind": st.sampled_from([*(kind.value for kind in Kind), "unknown"]),
        "tensor": few("w0", "w1", 'a"b'),
        "layer": few("conv0"),
        "bucket": few(0, 1),
        "bytes": few(0, 1, 2**40),
        "peer": few("rank 1"),
        "flow": few("a>b", "b>a"),
        "lane": few(0, 1),
        "offset": few(0, 1, 2, 3),
        "t_start_ns": st.integers(-5, 60) | st.sampled_from([2**45, 2**45 + 3]),
        "t_end_ns": st.integers(-5, 60) | st.sampled_from([2**45, 2**45 + 3]),
    }
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=st.lists(row, min_size=1, max_size=40), offset=st.integers(-4, 4))
def test_every_picture_keeps_the_rules(chrome_check, perfetto_check, rows, offset):
    with TemporaryDirectory() as name:
        folder = Path(name)
        table = pa.table(
            {item.name: pa.array([one[item.name] for one in rows], item.type) for item in EVENTS}
        )
        meta = TraceMeta(ranks=6, hosts=[HostInfo("h0"), HostInfo("h1", clock_offset_ns=offset)])
        trace = write_trace(folder / "t", meta, table)
        chrome = export_chrome(trace, folder / "c.json")
        found = chrome_check.check(folder / "c.json")
        assert len(found.slices) == chrome.count >= len(rows)
        perfetto = export_perfetto(trace, folder / "p.pftrace")
        again = perfetto_check.check((folder / "p.pftrace").read_bytes())
        assert len(again.slices) == perfetto.count == chrome.count
        assert sum(len(piece.ending_flows) for piece in again.slices) == len(found.arrows)
        later = table.set_column(13, "t_start_ns", pa.array([one["t_start_ns"] + 10 for one in rows]))
        trace = write_trace(folder / "t", meta, later)
        export_archive(trace, folder / "a.zip")
        with zipfile.ZipFile(folder / "a.zip") as archive:
            files = [perfetto_check.check(archive.read(one), alone=False) for one in archive.namelist()[1:]]
        assert sum(len(one.slices) for one in files) >= len(rows)
        if any(one["rank"] is not None and one["kind"] in WORK for one in rows):
            written = export_chakra(trace, folder / "run")
            assert len(read_foreign([one.path for one in written]).rows) == sum(one.count for one in written)
