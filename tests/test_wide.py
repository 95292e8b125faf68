"""Structs of many columns that can be sent can be recorded, replayed and handed on within a process."""

import numpy as np
import pyarrow as pa

from harness import Flow, same_bits, send
from oracle import MS

VOXELIZE = {
    "origin_m": [0, 0, 0],
    "voxel_size_m": [1, 1, 1],
    "shape": [4, 4, 4],
    "channels": ["count"],
    "layout": "dense",
    "inputs": [{"input": "wide"}],
}


def wide(columns: int, rows: int) -> pa.StructArray:
    rng = np.random.default_rng(columns)
    kinds = [np.float32, np.uint8, np.float64, np.int16]
    values = [rng.uniform(0, 4, rows).astype(kinds[i % 4]) for i in range(columns)]
    values[:3] = rng.uniform(0, 4, (3, rows)).astype(np.float32)
    names = ["x", "y", "z", *(f"f{i}" for i in range(3, columns))]
    return pa.StructArray.from_arrays([pa.array(column) for column in values], names)


def test_a_struct_of_more_columns_than_any_sensor_has_goes_everywhere(tmp_path):
    sent = [wide(columns, 50 + columns) for columns in (33, 33, 33)] + [wide(400, 20)] * 2
    recorded = Flow(tmp_path / "record")
    steps = [send("wide", array, i * MS) for i, array in enumerate(sent[:3])]
    steps += [send("wider", array, i * MS) for i, array in enumerate(sent[3:])]
    recorded.sender(steps)
    folder = recorded.folder / "recorded"
    recorded.robocache("record", {"record": {"path": str(folder)}}, {name: f"sender/{name}" for name in ("wide", "wider")})
    recorded.collector({name: f"sender/{name}" for name in ("wide", "wider")})
    done = recorded.run()
    assert [len(done.received("sink", name)) for name in ("wide", "wider")] == [3, 2]

    # The replay goes to another process, and to an operation of the same one.
    replayed = Flow(tmp_path / "replay")
    plugins = [{"replay": {"path": str(folder), "speed": "max"}}, {"voxelize": VOXELIZE}]
    replayed.robocache("node", {"plugins": plugins}, outputs=["wide", "wider", "voxels"], name="both")
    replayed.collector({name: f"both/{name}" for name in ("wide", "wider", "voxels")})
    again = replayed.run()
    for name in ("wide", "wider"):
        for one, other in zip(done.received("sink", name), again.received("sink", name), strict=True):
            assert one.array.type.num_fields == other.array.type.num_fields in (33, 400)
            assert same_bits(one.values, other.values)
    grids = again.received("sink", "voxels")
    assert [grid.metadata["points_kept"] for grid in grids] == [83, 83, 83]
