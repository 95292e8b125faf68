"""Recordings across programs: pyarrow writes one, robocache plays it and records it again, pyarrow reads what came."""

import numpy as np
import pyarrow as pa
import pytest

from harness import Flow


def write(path, columns: dict, metadata: dict, batch_rows: int) -> pa.Table:
    table = pa.table(columns).replace_schema_metadata(metadata)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=batch_rows)
    return table


def same(came: pa.Table, sent: pa.Table) -> None:
    for name in sent.column_names:
        assert came[name].to_pylist() == sent[name].to_pylist(), name
        assert came.schema.field(name).type == sent.schema.field(name).type, name
    for key, value in sent.schema.metadata.items():
        assert came.schema.metadata[key] == value, key


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_a_recording_of_another_program_is_played_and_recorded_again_without_loss(flow: Flow, batch_rows):
    source, copy = flow.folder / "source", flow.folder / "copy"
    source.mkdir()
    rng = np.random.default_rng(batch_rows)
    stamps = lambda n, step: pa.array([1_000_000_000 + i * step for i in range(n)], pa.int64())
    int64s = pa.list_(pa.int64())
    # The columns stand in another order than robocache writes them, and `shape` is optional.
    force = write(
        source / "force.arrow",
        {"data": pa.array(rng.random((500, 6), np.float32).tolist(), pa.list_(pa.float32())), "timestamp_ns": stamps(500, 1_000_000)},
        {"dtype": "float32", "fields": '["fx", "fy", "fz", "tx", "ty", "tz"]', "frame_id": "tool0"},
        batch_rows,
    )
    rows = [2 + i % 3 for i in range(100)]
    proprio = write(
        source / "proprio.arrow",
        {
            "timestamp_ns": stamps(100, 5_000_000),
            "timestamps_ns": pa.array([list(range(k)) for k in rows], int64s),
            "shape": pa.array([[k, 4] for k in rows], int64s),
            "data": pa.array([rng.integers(0, 2**16, 4 * k).tolist() for k in rows], pa.list_(pa.uint16())),
        },
        {"dtype": "bfloat16"},
        batch_rows,
    )
    points = [0, 300, 1, 0, 64]
    lidar = write(
        source / "lidar.arrow",
        {"timestamp_ns": stamps(5, 100_000_000)}
        | {axis: pa.array([rng.random(n, np.float32).tolist() for n in points], pa.list_(pa.float32())) for axis in "xyz"}
        | {"ring": pa.array([list(range(n)) for n in points], pa.list_(pa.uint16()))},
        {"frame_id": "lidar"},
        batch_rows,
    )
    names = ["force", "lidar", "proprio"]
    flow.robocache("replay", {"replay": {"path": str(source), "speed": "max"}}, outputs=names)
    flow.robocache("record", {"record": {"path": str(copy)}}, inputs={name: f"replay/{name}" for name in names})
    run = flow.run()
    assert run.code == 0, run.output
    for name, sent in [("force", force), ("lidar", lidar), ("proprio", proprio)]:
        with pa.ipc.open_file(copy / f"{name}.arrow") as file:
            same(file.read_all(), sent)
