"""The Python package reads every form of message that the nodes send, and the nodes read its messages."""

import pathlib
import sys

import numpy as np
import pytest
import robocache as rc

from harness import Flow

MS = 1_000_000
GRID = {"origin_m": [0.0, 0.0, 0.0], "voxel_size_m": [1.0, 1.0, 1.0], "shape": [3, 4, 5], "inputs": [{"input": "cloud"}]}
LAYOUTS = {"dense": ["count", "mean_z"], "bits": ["occupancy"], "coo": ["count", "mean_z"]}

# A node that sends by the package, in a process of its own.
SENDER = """
import numpy as np, time
import robocache as rc
rc.wait_for_consumers()
from dora import Node
node = Node()
MS = 1_000_000
for k in range(10):
    stamps = [(20 * k + 10 * i) * MS for i in range(2)]
    rc.send(node, "arm", np.array([[stamp / MS, -1.0] for stamp in stamps], np.float32), timestamps_ns=stamps)
    if k < 6:
        rc.send(node, "force", np.array([k, k + 0.5, 0], np.float64), timestamp_ns=np.int64(20 * k * MS))
    if k % 2 == 0:
        points = np.array([[k / 2, 1.5, 2.5, 7], [k / 2, 1.25, 2.75, 8], [0.5, 0.5, 0.5, 9]], np.float32)
        rc.send_cloud(node, "cloud", points, timestamp_ns=20 * k * MS, fields=["x", "y", "z", "intensity"])
        rc.send(node, "image", np.full((2, 4, 3), k, np.uint8), timestamp_ns=20 * k * MS)
rc.drain(0.5)
"""


def fuse(dtype: str) -> dict:
    modalities = [
        {"input": "arm", "dim": 2, "interpolation": "linear"},
        {"input": "force", "dim": 3, "interpolation": "previous", "max_age_ms": 30, "wait": False},
    ]
    return {"rate_hz": 100, "window": 3, "dtype": dtype, "fill_value": 0.25, "modalities": modalities}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    flow = Flow(tmp_path_factory.mktemp("python"))
    (flow.folder / "send.py").write_text(SENDER)
    outputs = ["arm", "force", "cloud", "image"]
    flow.node("sender", pathlib.Path(sys.executable), str(flow.folder / "send.py"), {}, outputs, shared_memory_pool_size="16MB")
    streams = {name: f"sender/{name}" for name in ("arm", "force")}
    attach = [{"input": name, "output": name} for name in ("cloud", "image", *LAYOUTS)]
    for layout, channels in LAYOUTS.items():
        flow.robocache("voxelize", {"voxelize": {**GRID, "layout": layout, "channels": channels}}, {"cloud": "sender/cloud"}, ["voxels"], layout)
    attached = {name: f"sender/{name}" for name in ("cloud", "image")} | {name: f"{name}/voxels" for name in LAYOUTS}
    whole = {"fuse": fuse("float32") | {"attach": attach}}
    flow.robocache("fuse", whole, streams | attached, ["fused", "observation", *attached], "whole")
    flow.robocache("fuse", {"fuse": fuse("bfloat16")}, streams, ["fused"], "small")
    flow.robocache("align", {"align": fuse("float16")}, streams, ["arm", "force"], "align")
    got = {f"whole_{name}": f"whole/{name}" for name in ("fused", "observation", *attached)}
    got |= {"small": "small/fused", "arm": "align/arm", "force": "align/force"} | {f"voxels_{name}": f"{name}/voxels" for name in LAYOUTS}
    flow.collector(got)
    return flow.run()


def events(run, name: str) -> list[dict]:
    return [{"type": "INPUT", "id": name, "value": m.array, "metadata": m.metadata} for m in run.received("sink", name)]


def test_observations_of_every_form_say_the_same(run):
    whole, fused, small = ([rc.Observation.from_event(e) for e in events(run, name)] for name in ("whole_observation", "whole_fused", "small"))
    aligned = {name: [rc.Observation.from_event(e) for e in events(run, name)] for name in ("arm", "force")}
    assert len(whole) == len(fused) > 10 and whole[-1].timestamp_ns == 190 * MS
    by_time = {got.timestamp_ns: got for got in small}
    for one, other in zip(whole, fused, strict=True):
        assert one.timestamps_ns.tolist() == other.timestamps_ns.tolist()
        assert np.array_equal(one.fused, other.fused, equal_nan=True) and np.array_equal(one.valid, other.valid)
        # The value of the arm is its own time in ms; bfloat16 keeps eight bits of it.
        arm = one["arm"][one.valid[:, 0]]
        assert arm[:, 0].tolist() == (one.timestamps_ns[one.valid[:, 0]] / MS).tolist() and np.all(arm[:, 1] == -1)
        assert np.isnan(one["force"][~one.valid[:, 1]]).all()
        assert (one.trigger, one.error, set(one.attached)) == ("grid", None, {"cloud", "image", *LAYOUTS})
        near = by_time[one.timestamp_ns]
        assert near.tensor.dtype == "bfloat16" and np.allclose(near["arm"][near.valid[:, 0]], arm, rtol=2**-8)
    for name, observations in aligned.items():
        assert observations and all(got.modalities == (name,) and got.fused.dtype == np.float16 for got in observations)
    # The force ended at 100 ms, and is valid for 30 ms more.
    assert not whole[-1].valid[-1, 1] and whole[-1].age_ns[-1, 1] == 90 * MS
    kept = rc.Observation.from_event(events(run, "whole_fused")[-1], invalid=None)
    assert np.all(kept["force"][-1] == 0.25)


def test_grids_are_the_same_attached_and_alone(run):
    alone = {layout: {e["metadata"]["timestamp_ns"]: rc.Voxels.from_event(e) for e in events(run, f"voxels_{layout}")} for layout in LAYOUTS}
    cells = {k: sorted({(0, 0, 0), (k // 2, 1, 2)}) if k < 6 else [(0, 0, 0)] for k in range(0, 10, 2)}
    for layout, grids in alone.items():
        assert sorted(grids) == [20 * k * MS for k in cells]
        for k, wanted in cells.items():
            grid = grids[20 * k * MS]
            assert grid.layout == layout and [tuple(cell) for cell in grid.occupied().tolist()] == wanted
            assert (grid.counters["points_in"], grid.counters["dropped_outside"]) == (3, 0 if k < 6 else 2)
            assert np.array_equal(grid.dense()[0] > 0, alone["dense"][20 * k * MS].dense()[0] > 0)
    seen = 0
    for event in events(run, "whole_observation"):
        observation = rc.Observation.from_event(event)
        for layout in LAYOUTS:
            for row in range(3):
                grid = observation.attached[layout].at(row)
                if grid is not None:
                    own = alone[layout][grid.timestamp_ns]
                    assert grid.layout == layout and np.array_equal(grid.dense(), own.dense()) and grid.channels == own.channels
                    assert observation.attached[layout].age_ns[row] == observation.timestamps_ns[row] - grid.timestamp_ns
                    seen += 1
    assert seen > 30
    for event in events(run, "whole_coo"):
        stream = rc.Attached.from_event(event, "coo")
        assert all(np.array_equal(stream.message(i).dense(), alone["coo"][stamp].dense()) for i, stamp in enumerate(stream.timestamps_ns.tolist()))


def test_clouds_and_images_are_those_that_were_sent(run):
    observation = rc.Observation.from_event(events(run, "whole_observation")[-1])
    k = observation.attached["image"].timestamps_ns[-1] // (20 * MS)
    image, cloud = (observation.attached[name].at() for name in ("image", "cloud"))
    assert image.shape == (2, 4, 3) and np.all(image == k)
    assert cloud.points_m[0].tolist() == [k / 2, 1.5, 2.5] and cloud["intensity"].tolist() == [7, 8, 9]
    tensor = rc.open_tensor(events(run, "whole_observation")[-1], "image")
    assert tensor.shape[1:] == (2, 4, 3) and tensor.dtype == "uint8"
