import dataclasses

import pyarrow.parquet as pq
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.axes import settings_of
from vsketchdlc.model.calibration import Calibration
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.sweep import read_sweep, run_sweep
from vsketchdlc.model.whatif import Grid


@pytest.fixture
def grid():
    axes = {
        "hosts": [2],
        "ranks_per_host": [1],
        "cores": [8.0],
        "core_speed": [1.0],
        "nic_bits_per_s": [n * 1e9 for n in range(5, 45)],
        "flow_cap_bits_per_s": [5e9],
        "rtt_s": [1e-4],
        "oversubscription": [1.0],
        "batch": [256],
        "fusion_bytes": [128 << 20],
        "cycle_s": [1e-3],
    }
    return Grid(
        catalogue_workload("alexnet"), Calibration.prior(), [0, 2, 4], settings_of(axes), intervals=False
    )


def test_a_sweep_writes_every_scenario_once(grid, tmp_path):
    counted = []
    rows = read_sweep(run_sweep(grid, tmp_path / "s", done=counted.append))
    assert len(rows) == sum(counted) == grid.size == 120
    assert not rows.duplicated(["nic_bits_per_s", "aux"]).any()
    assert rows.groupby("nic_bits_per_s")["chosen"].sum().eq(1).all()


def test_a_stopped_sweep_resumes_with_what_is_missing(grid, tmp_path):
    folder = tmp_path / "s"

    class Stopped(Exception):
        pass

    def stop(_):
        raise Stopped

    with pytest.raises(Stopped):
        run_sweep(grid, folder, done=stop)
    first = (folder / "part-00000.parquet").stat().st_mtime_ns
    assert len(list(folder.glob("part-*.parquet"))) == 1
    run_sweep(grid, folder)
    assert (folder / "part-00000.parquet").stat().st_mtime_ns == first
    assert len(read_sweep(folder)) == grid.size


def test_a_half_written_part_is_done_again(grid, tmp_path):
    folder = run_sweep(grid, tmp_path / "s")
    (folder / "part-00001.parquet").unlink()
    (folder / ".part-00001.parquet.77").write_bytes(b"PAR1 half of a file")
    run_sweep(grid, folder)
    assert len(read_sweep(folder)) == grid.size
    assert pq.read_table(folder / "part-00001.parquet").num_rows == 48


def test_another_question_in_the_same_folder_is_refused(grid, tmp_path):
    run_sweep(grid, tmp_path / "s")
    with pytest.raises(UserError, match="another sweep"):
        run_sweep(dataclasses.replace(grid, aux=[0, 3]), tmp_path / "s")


def test_a_folder_with_other_things_is_left_alone(grid, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="is no sweep"):
        run_sweep(grid, tmp_path)


@pytest.mark.slow
def test_dask_gives_the_same_rows(grid, tmp_path):
    pytest.importorskip("distributed")
    here = read_sweep(run_sweep(grid, tmp_path / "here"))
    there = read_sweep(run_sweep(grid, tmp_path / "there", dask="local"))
    assert here.equals(there)
