"""Lidar to voxelize to fuse, as separate nodes or in one: the same observations, each with the grids of its rows."""

import numpy as np
import pyarrow as pa

from harness import check_same, send
from oracle import MS

VOXELIZE = {
    "origin_m": [-4, -4, -4],
    "voxel_size_m": [0.5, 0.5, 0.5],
    "shape": [16, 16, 16],
    "channels": ["count", "mean_x"],
    "layout": "coo",
    "inputs": [{"input": "lidar"}],
}
FUSE = {
    "rate_hz": 100,
    "window": 4,
    "modalities": [{"input": "arm", "dim": 2, "interpolation": "linear"}],
    "attach": [
        {"input": "voxels", "max_age_ms": 40, "min_period_ms": 30},
        {"input": "image", "output": "images", "rows": 1},
    ],
}
OUTPUTS = ["grids", "images", "fused", "observation"]
IMAGE = {"shape": [2, 3]}


def steps() -> list[tuple]:
    rng = np.random.default_rng(5)
    sent = [send("image", np.full(6, 0, np.uint8), 0, **IMAGE)]
    # Another shape, another type and a struct do not fit the first image of the stream.
    sent.append(send("image", np.zeros(4, np.uint8), 1 * MS, shape=[2, 2]))
    sent.append(send("image", np.zeros(6, np.float32), 2 * MS, **IMAGE))
    sent.append(send("image", pa.array([{"x": 1.0}]), 3 * MS))
    for ms in range(0, 1000, 5):
        if ms % 35 == 0 and ms != 700:
            n = int(rng.integers(0, 300))
            points = [pa.array(rng.normal(0, 2, n).astype(np.float32)) for _ in "xyz"]
            sent.append(send("lidar", pa.StructArray.from_arrays(points, list("xyz")), ms * MS))
        if ms % 100 == 50:
            sent.append(send("image", np.full(6, ms // 10, np.uint8), ms * MS, **IMAGE))
        sent.append(send("arm", np.array([ms, -ms], np.float32), ms * MS))
    return sent


def test_separate_nodes_and_a_chain_in_one_give_each_row_its_grid(flow):
    flow.sender(steps())
    inputs = {"arm": "sender/arm", "image": "sender/image"}
    flow.robocache("voxelize", {"voxelize": VOXELIZE}, {"lidar": "sender/lidar"}, ["voxels"])
    flow.robocache("fuse", {"fuse": FUSE}, {**inputs, "voxels": "voxelize/voxels"}, OUTPUTS)
    chain = {"plugins": [{"voxelize": VOXELIZE}, {"fuse": FUSE}]}
    flow.robocache("node", chain, {**inputs, "lidar": "sender/lidar"}, OUTPUTS)
    flow.collector({"voxels": "voxelize/voxels", **{name: f"fuse/{name}" for name in OUTPUTS}}, "apart")
    flow.collector({name: f"node/{name}" for name in OUTPUTS}, "together")
    done = flow.run()
    apart = {name: done.received("apart", name) for name in [*OUTPUTS, "voxels"]}
    for name in OUTPUTS:
        check_same(apart[name], done.received("together", name))

    stamps = [m.stamp for m in apart["voxels"]]
    grids = {m.stamp: m.values for m in apart["voxels"]}
    assert len(stamps) == 28
    for observation in apart["observation"]:
        metadata, row = observation.metadata, observation.values
        window = np.reshape(metadata["grid_index"], (4, 2)), np.reshape(metadata["grid_age_ns"], (4, 2))
        index, age = window[0][:, 0], window[1][:, 0]
        offsets, members = metadata["grids.grid_offsets"], metadata["grids.timestamps_ns"]
        assert sorted(set(index[index >= 0])) == list(range(len(members)))
        for target, i, a in zip(metadata["timestamps_ns"], index, age, strict=True):
            newest = max((s for s in stamps if target - 40 * MS <= s <= target), default=None)
            assert (members[i] if i >= 0 else None) == newest
            assert a == (-1 if newest is None else target - newest)
            if newest is not None:
                coords = np.reshape(row["grids.coords"][0], (-1, 3))[offsets[i] : offsets[i + 1]]
                features = np.reshape(row["grids.features"][0], (-1, 2))[offsets[i] : offsets[i + 1]]
                assert np.array_equal(coords, grids[newest]["coords"]) and np.array_equal(features, grids[newest]["features"])
        if metadata["valid"][-1]:
            assert row["fused"][0].reshape(metadata["shape"])[-1].tolist() == [observation.stamp / MS, -observation.stamp / MS]
        image = max(ms for ms in [0, *range(50, 1000, 100)] if ms * MS <= observation.stamp)
        assert (metadata["images.timestamps_ns"], metadata["images.shape"]) == ([image * MS], [1, 2, 3])
        assert row["images"][0].tolist() == [image // 10] * 6
    # The cloud of 700 ms was left out, so the row of 710 ms has no grid that is young enough.
    assert any(-1 in np.reshape(m.metadata["grid_index"], (4, 2))[:, 0] for m in apart["fused"][10:])
    for node in ("fuse", "node"):
        assert "input `image`" in done.logs[node] and "as of the first message" in done.logs[node]
