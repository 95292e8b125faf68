"""Drawings of the viewer, read back from the files it writes: `make test-view`, in an environment that has Rerun."""

import datetime
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pyarrow as pa
import pytest
import yaml

rr = pytest.importorskip("rerun", reason="rerun-sdk is not installed here; `make test-view` has it")

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "nodes" / "view"), str(ROOT / "python" / "tests")]

import robocache as rc  # noqa: E402
from made import GRID, MS, event, fused, metadata, observation  # noqa: E402
from rerun.chunk import RrdReader  # noqa: E402
from robocache_view import sink  # noqa: E402
from robocache_view.canvas import Canvas  # noqa: E402
from robocache_view.inbox import copied  # noqa: E402
from robocache_view.layout import Layout  # noqa: E402

from harness import send, wait_for  # noqa: E402

rr.set_strict_mode(True)
VIEW = pathlib.Path(sys.executable).with_name("robocache-view")
WALL = 1_700_000_000_000_000_000


class Drawn:
    """Contents of a file of Rerun: the values of each entity and component, in the order of their times."""

    def __init__(self, path: pathlib.Path):
        self.rows: dict[tuple[str, str], list] = {}
        self.timelines: set = set()
        for chunk in RrdReader(path).stream():
            batch = chunk.to_record_batch()
            columns = {field.name: batch.column(i) for i, field in enumerate(batch.schema)}
            stamps = columns.pop("capture_time", None)
            if stamps is not None:
                self.timelines.add(stamps.type)
            for name, column in columns.items():
                if not pa.types.is_list(column.type):
                    continue  # `log_time`, and the rows' own ids
                rows = self.rows.setdefault((chunk.entity_path, name.split(":")[-1]), [])
                stamps_ns = [None] * len(column) if stamps is None else stamps.cast(pa.int64()).to_pylist()
                rows += [(stamp, row.as_py()) for stamp, row in zip(stamps_ns, column) if row.is_valid]
        for rows in self.rows.values():
            rows.sort(key=lambda row: row[0] or 0)

    def __call__(self, entity: str, component: str) -> list:
        """Returns a pair (stamp, value) for each time at which the component of an entity was drawn."""
        return self.rows.get((entity, component), [])

    def values(self, entity: str, component: str) -> list:
        return [value for _, value in self(entity, component)]


@pytest.fixture
def draw(tmp_path):
    """Draws events as the node does, and reads them back."""

    def drawn(*events: dict) -> Drawn:
        path = tmp_path / "drawn.rrd"
        recording = rr.RecordingStream("test")
        recording.save(path)
        canvas = Canvas(recording)
        for it in events:
            value, said, _ = copied(it)
            canvas.draw(it["id"], value, said)
        canvas.lay_out()
        recording.disconnect()
        return Drawn(path)

    return drawn


def test_the_newest_row_of_an_observation_with_gaps_where_it_is_invalid(draw):
    seen = draw(
        fused(t_ms=100),
        fused([9, 9, 9, 7, 8, 9], t_ms=120, valid=(1, 1, 0, 1), age_ms=(5, 1, -1, 2)),
        fused(t_ms=140),
    )
    rows = seen("/values/fused/camera", "scalars")
    assert [stamp for stamp, _ in rows] == [100 * MS, 120 * MS, 140 * MS]
    assert rows[0][1] == [4, 5] and np.isnan(rows[1][1]).all()
    assert seen.values("/values/fused/force", "scalars") == [[6], [9], [6]]
    ages = seen.values("/age_ms/fused", "scalars")
    assert ages[0] == [5, 1] and np.isnan(ages[1][0]) and ages[1][1] == 2
    assert seen.values("/age_ms/fused", "names") == [["camera", "force"]]
    (colours,) = seen.values("/age_ms/fused", "colors")
    assert len(set(colours)) == 2
    # States are drawn on change only.
    assert seen("/valid/fused/camera", "state") == [(100 * MS, ["valid"]), (120 * MS, ["invalid"]), (140 * MS, ["valid"])]
    assert seen("/valid/fused/force", "state") == [(100 * MS, ["valid"])]


def test_a_clock_jump_is_said_and_begins_the_lanes_anew(draw):
    seen = draw(fused(t_ms=5000), fused(t_ms=100, epoch=1))
    assert seen("/log/fused", "text") == [(100 * MS, ["epoch 1: a clock jumped"])]
    assert seen.values("/valid/fused/epoch", "state") == [["1"], ["0"]]
    assert [stamp for stamp, _ in seen("/valid/fused/force", "state")] == [100 * MS, 5000 * MS]


def test_states_are_right_at_every_time_although_a_clock_went_back(draw):
    seen = draw(
        *(fused(t_ms=t_ms, valid=(1, 1, 1, valid)) for t_ms, valid in [(100, 1), (120, 0), (140, 0)]),
        *(fused(t_ms=t_ms, valid=(1, 1, 1, 1)) for t_ms in (110, 130, 150)),
    )
    # 130 ends the `invalid` of 120, which was drawn before; 150 changes nothing.
    wanted = [(100, "valid"), (110, "valid"), (120, "invalid"), (130, "valid")]
    assert seen("/valid/fused/force", "state") == [(t_ms * MS, [state]) for t_ms, state in wanted]


def test_an_answer_without_an_observation_is_said(draw):
    refused = event(pa.array(np.empty(0, np.float32)), {"error": "too far ahead", "shape": [0, 3], "timestamp_ns": 7})
    assert draw(refused).values("/log/input", "text") == [["no observation: too far ahead"]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(draw, dtype):
    values = np.arange(1, 7, dtype=np.float32)
    array = values.astype(np.float16) if dtype == "float16" else (values.view(np.uint32) >> 16).astype(np.uint16)
    it = event(pa.array(array), metadata(dtype=dtype), "input")
    assert draw(it).values("/values/input/camera", "scalars") == [[4, 5]]


def test_a_wide_modality_is_bars_not_lines(draw):
    it = event(pa.array(np.ones(1000, np.float32)), {"timestamp_ns": 1})
    said = metadata(t_ms=200, offsets=[0, 999, 1000], shape=[1, 1000], timestamps_ns=[200 * MS], valid=[0, 1], age_ns=[-1, 1])
    seen = draw(it, event(pa.array(np.ones(1000, np.float32)), said, "fused"))
    assert seen("/values/input", "scalars") == [] and len(seen("/values/input", "values")) == 1
    assert seen("/values/fused/camera", "is_recursive") == [(200 * MS, [False])]


CELLS = np.array([[0, 1, 2], [1, 0, 3], [1, 2, 0]])


def grids() -> dict[str, dict]:
    """Grids with the same occupied cells in every layout."""
    heights = np.array([0.5, 1.5, 2.5], np.float32)
    dense = np.zeros((2, 2, 3, 4), np.float32)
    dense[0, *CELLS.T], dense[1, *CELLS.T] = 1, heights
    bits = np.packbits(dense[0].ravel() != 0, bitorder="little")
    coo = pa.StructArray.from_arrays(
        [
            pa.FixedSizeListArray.from_arrays(pa.array(CELLS.ravel().astype(np.int32)), 3),
            pa.FixedSizeListArray.from_arrays(pa.array(np.stack([np.ones(3), heights], 1).ravel().astype(np.float32)), 2),
        ],
        names=["coords", "features"],
    )
    said = GRID | {"channels": ["occupancy", "mean_z"], "timestamp_ns": WALL, "shape": [2, 2, 3, 4]}
    return {
        "dense": event(pa.array(dense.ravel()), said),
        "coo": event(coo, {key: value for key, value in said.items() if key != "shape"}),
        "bits": event(pa.array(bits), said | {"channels": ["occupancy"], "shape": [2, 3, 4]}),
        "dense without occupancy": event(pa.array(dense[1].ravel()), said | {"channels": ["mean_z"], "shape": [1, 2, 3, 4]}),
    }


@pytest.mark.parametrize("layout", grids())
def test_voxels_of_every_layout(draw, layout):
    seen = draw(grids()[layout])
    entity = "/space/no\\ frame/input"
    assert seen(entity, "voxel_indices") == [(WALL, CELLS.tolist())]
    assert seen.values(entity, "translation") == [[GRID["origin_m"]]] and seen.values(entity, "voxel_size") == [[GRID["voxel_size_m"]]]
    (colours,) = seen.values(entity, "colors")
    assert len(set(colours)) == 3


@pytest.mark.parametrize("product", ["occupancy_percent", "esdf", "tsdf"])
def test_of_a_map_the_obstacles_are_drawn(draw, product):
    occupied = np.zeros((2, 3, 4), bool)
    occupied[tuple(CELLS.T)] = True
    # Cells that are free and not known; distances to obstacles; those that no frame has seen.
    values = {
        "occupancy_percent": np.where(occupied, 70, np.where(np.indices((2, 3, 4))[2] == 0, 40, -1)).astype(np.int8),
        "esdf": np.where(occupied, 0, 1.5).astype(np.float32),
        "tsdf": np.where(occupied, -0.01, 4.0).astype(np.float32),
    }[product]
    said = GRID | {"channels": [product], "timestamp_ns": WALL, "shape": [1, 2, 3, 4]}
    seen = draw(event(pa.array(values.ravel()), said))
    assert seen("/space/no\\ frame/input", "voxel_indices") == [(WALL, CELLS.tolist())]


def test_what_is_attached_is_drawn_once_at_its_own_time(draw):
    said = {"channels": ["occupancy"], "shape": [2, 1, 2, 3, 4], **GRID}
    columns = {"grids": np.repeat(np.float32([0, 1]), 24)}
    seen = draw(*(observation(columns, t_ms=t_ms, grids_ms=(60, 90), said=said) for t_ms in (100, 120)))
    assert [stamp for stamp, _ in seen("/space/no\\ frame/observation/grids", "voxel_indices")] == [90 * MS]
    assert seen.values("/valid/observation/grids", "state") == [["valid"]]
    assert [row[2] for row in seen.values("/age_ms/observation", "scalars")] == [10, 30]


def test_an_attached_output_by_itself(draw):
    said = metadata(attached=["grids"], grid_index=[-1, 0], grid_age_ns=[-1, 5], grid_offsets=[0, 2], timestamps_ns=[50], fields=["x", "y", "z"], shape=[2, 3])
    said = {key: value for key, value in said.items() if key not in ("modalities", "offsets", "valid", "age_ns")}
    seen = draw(event(pa.array(np.arange(6, dtype=np.float32)), said, "clouds"))
    assert seen("/space/no\\ frame/clouds", "positions") == [(50, [[0, 1, 2], [3, 4, 5]])]


def test_clouds_of_both_forms_without_what_is_not_finite(draw):
    points = np.float32([[1, 2, 3], [np.nan, 0, 0], [4, 5, 6]])
    columns = pa.StructArray.from_arrays([pa.array(column) for column in points.T] + [pa.array(np.uint16([0, 9, 100]))], names=["x", "y", "z", "intensity"])
    said = {"timestamp_ns": WALL, "frame_id": "lidar"}
    flat = event(pa.array(points.ravel()), said | {"shape": [3, 3], "fields": ["x", "y", "z"]}, "flat")
    plain = event(pa.array(points.ravel()), said | {"shape": [3, 3]}, "plain")
    seen = draw(event(columns, said, "struct"), flat, plain, event(columns.slice(0, 0), said, "empty"))
    for name in ("struct", "flat", "plain"):
        assert seen(f"/space/lidar/{name}", "positions") == [(WALL, [[1, 2, 3], [4, 5, 6]])]
    low, high = seen.values("/space/lidar/struct", "colors")[0]
    assert (low, high) == (0x440154FF, 0xFDE725FF)
    assert seen("/space/lidar/empty", "positions") == [(WALL, [])]


def test_flat_clouds_as_voxelize_takes_them(draw):
    """The bits of bfloat16 are widened to float32. Without a `shape`, a message with as many values as `fields` is a sample, and a
    longer message is a cloud."""
    points = np.float32([[1, 2, 3], [4, 5, 6]])
    said = {"timestamp_ns": WALL, "fields": ["x", "y", "z"]}
    bits = pa.array((points.ravel().view(np.uint32) >> 16).astype(np.uint16))
    seen = draw(
        event(bits, said | {"shape": [2, 3], "dtype": "bfloat16"}, "narrow"),
        event(pa.array(points.ravel()), said, "shapeless"),
        event(pa.array(points[0]), said, "sample"),
    )
    for name in ("narrow", "shapeless"):
        assert seen.values(f"/space/no\\ frame/{name}", "positions") == [points.tolist()], name
    assert seen.values("/values/sample", "scalars") == [[1, 2, 3]]


def test_images_as_other_software_sends_them(draw):
    rgb = np.arange(24, dtype=np.uint8)
    said = {"timestamp_ns": WALL, "width": 4, "height": 2}
    struct = pa.array(
        [{"width": 4, "height": 2, "encoding": "bgr8", "data": rgb.tobytes()}],
        pa.struct([("width", pa.uint32()), ("height", pa.uint32()), ("encoding", pa.string()), ("data", pa.large_binary())]),
    )
    seen = draw(
        event(pa.array(rgb), said | {"encoding": "rgb8"}, "flat"),
        event(pa.array(rgb), {"timestamp_ns": WALL, "shape": [2, 4, 3]}, "tensor"),
        event(struct, {"timestamp_ns": WALL}, "struct"),
        event(pa.array(np.arange(8, dtype=np.uint16)), said | {"encoding": "mono16"}, "depth"),
        event(pa.array(np.frombuffer(b"\xff\xd8\xff", np.uint8)), said | {"encoding": "jpeg"}, "jpeg"),
    )
    for name in ("flat", "tensor", "struct"):
        assert seen.values(f"/image/{name}", "buffer") == [[rgb.tobytes()]] or seen.values(f"/image/{name}", "buffer") == [[rgb.tolist()]], name
    assert len(seen("/image/depth", "meter")) == 1 and seen.values("/image/jpeg", "media_type") == [["image/jpeg"]]


def test_samples_at_their_own_times_and_of_a_plan_the_first_step(draw):
    batch = {"timestamp_ns": 30, "timestamps_ns": [10, 20, 30], "shape": [3, 2], "valid": [1, 0, 1], "fields": ["fx", "fy"]}
    plan = {"timestamp_ns": 10, "timestamps_ns": [20, 30, 40], "shape": [3, 2]}
    values = pa.array(np.arange(6, dtype=np.float64))
    one = {"timestamp_ns": 10, "fields": ["fx", "fy", "fz", "tx", "ty", "tz"]}
    seen = draw(event(values, batch, "force"), event(values, plan, "action"), event(values, one, "wrench"))
    assert seen.values("/values/wrench", "scalars") == [[0, 1, 2, 3, 4, 5]]
    assert seen.values("/values/wrench", "names") == [one["fields"]]
    rows = seen("/values/force", "scalars")
    assert [stamp for stamp, _ in rows] == [10, 20, 30] and np.isnan(rows[1][1]).all() and rows[2][1] == [4, 5]
    assert seen.values("/values/force", "names") == [["fx", "fy"]]
    assert seen("/values/action", "scalars") == [(20, [0, 1])]


def test_diagnostics_are_states_and_lines_of_text(draw):
    def row(levels, words, t):
        columns = [pa.array(["camera", "force"]), pa.array(np.uint8(levels)), pa.array(words)]
        return event(pa.StructArray.from_arrays(columns, names=["input", "level", "message"]), {"node": "fuse", "timestamp_ns": t})

    seen = draw(row([0, 0], ["", ""], 1), row([0, 3], ["", "silent"], 2), row([0, 3], ["", "silent"], 3), row([0, 0], ["", ""], 4))
    assert seen("/diagnostics/fuse/force", "state") == [(1, ["OK"]), (2, ["STALE"]), (4, ["OK"])]
    assert seen.values("/diagnostics/fuse/camera", "state") == [["OK"]]
    assert seen("/log/fuse", "text") == [(2, ["force: STALE: silent"]), (4, ["force: OK"])]


def test_what_this_machine_stamps_is_drawn_at_the_capture_time_of_a_replay(draw):
    """Diagnostics are stamped when they are made, and messages without a stamp when they are published."""
    words = pa.StructArray.from_arrays([pa.array(["force"]), pa.array(np.uint8([2])), pa.array([""])], names=["input", "level", "message"])
    unstamped = {"timestamp": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}
    seen = draw(fused(t_ms=100), event(words, {"timestamp_ns": WALL}, "diagnostics"), event(pa.array([1.0]), unstamped, "action"))
    assert seen("/diagnostics/diagnostics/force", "state") == [(100 * MS, ["ERROR"])]
    assert seen("/values/action", "scalars") == [(100 * MS, [1])]


def test_samples_of_nodes_of_the_hub(draw):
    """Joints have a stamp in seconds, and an encoding that is not an image's."""
    seen = draw(event(pa.array([1.0, 2.0]), {"timestamp": 0.002, "encoding": "jointstate"}, "joints"))
    assert seen("/values/joints", "scalars") == [(2 * MS, [1, 2])]


def test_stamps_of_a_wall_clock_are_dates_and_others_durations(draw):
    assert draw(fused(t_ms=100)).timelines == {pa.duration("ns")}
    assert draw(event(pa.array([1.0]), {"timestamp_ns": WALL})).timelines == {pa.timestamp("ns")}


def test_of_thousands_of_inputs_all_are_drawn_and_some_have_a_view(draw):
    """Each new input makes the viewer send its layout again. With a view for every input, the layouts would be larger than the
    data."""
    names = [f"input {k}" for k in range(1000)]
    seen = draw(*(event(pa.array([1.0]), {"timestamp_ns": 1}, name) for name in names))
    assert all(seen.values(f"/values/{name.replace(' ', chr(92) + ' ')}", "scalars") == [[1]] for name in names)
    made = Layout()
    for name in names:
        made.add(("values", name), name, 1)
    (column,) = made.blueprint("capture_time").root_container.contents
    (grid,) = column.contents
    assert len(grid.contents) == 100


def test_a_file_that_can_not_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(IsADirectoryError):
        sink.File(tmp_path)


BAD = {
    "a struct of nobody's": event(pa.array([{"a": 1}]), {"timestamp_ns": 1}),
    "no stamp": event(pa.array([1.0]), {}),
    "text for a stamp": event(pa.array([1.0]), {"timestamp_ns": "soon"}),
    "text": event(pa.array(["a"]), {"timestamp_ns": 1}),
    "nothing": event(pa.array([], pa.float32()), {"timestamp_ns": 1}),
    "nulls": event(pa.nulls(0), {"timestamp_ns": 1}),
    "a shape of other length": event(pa.array([1.0]), {"timestamp_ns": 1, "shape": [7]}),
    "stamps of other length": event(pa.array([1.0]), {"timestamp_ns": 1, "timestamps_ns": [1, 2]}),
    "no stamps": event(pa.array([1.0]), {"timestamp_ns": 1, "timestamps_ns": []}),
    "a stamp past int64": event(pa.array([1.0]), {"timestamp_ns": 2**70}),
    "an image of other size": event(pa.array(np.zeros(5, np.uint8)), {"timestamp_ns": 1, "encoding": "rgb8", "width": 4, "height": 2}),
    "an unknown encoding": event(pa.array(np.zeros(5, np.uint8)), {"timestamp_ns": 1, "encoding": "yuyv", "width": 4, "height": 2}),
    "a grid that is none": event(pa.array([1.0]), {"timestamp_ns": 1, "grid_shape": [2, 2]}),
    "an observation that is none": event(pa.array([1.0]), {"timestamp_ns": 1, "modalities": ["camera"]}),
    "a ring of nobody's": event(pa.array([1.0]), {"timestamp_ns": 1, "ring": "gone", "slot": 0, "generation": 1, "nbytes": 4}),
    "diagnostics without levels": event(
        pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["input", "level", "message"]), {"timestamp_ns": 1}
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_an_error_that_ends_nothing(draw, name):
    with pytest.raises(Exception):
        draw(BAD[name])
    assert draw(fused()).values("/values/fused/force", "scalars") == [[6]]


def run_view(flow, mode: str, inputs: dict, **keys) -> None:
    flow.node("view", VIEW, mode, inputs, [], **keys)


def test_the_demo_is_drawn_in_a_dataflow(flow):
    config = yaml.safe_load((ROOT / "robocache.yml").read_text())
    config["sim"].update(duration_s=3.0, streams={"force": {"dropouts": [{"start_s": 1.5, "duration_s": 0.5}]}})
    flow.robocache("sim", {"sim": config["sim"]}, outputs=["camera", "force", "proprio", "lidar"])
    flow.robocache("voxelize", {"voxelize": config["voxelize"]}, {"lidar": "sim/lidar"}, ["voxels"])
    inputs = {name: f"sim/{name}" for name in ("camera", "force", "proprio")} | {"voxels": "voxelize/voxels"}
    flow.robocache("fuse", {"fuse": config["fuse"]}, inputs, ["observation"])
    drawn_inputs = {"observation": "fuse/observation", "lidar": "sim/lidar", "voxels": "voxelize/voxels"}
    run_view(flow, "save out/demo.rrd", drawn_inputs)
    flow.collector({"observation": "fuse/observation"})
    done = flow.run()
    assert "WARN" not in done.logs["view"], done.logs["view"]
    seen = Drawn(flow.folder / "out" / "demo.rrd")
    stamps = [message.stamp for message in done.received("sink", "observation")]
    for modality in ("camera", "force", "proprio"):
        assert [stamp for stamp, _ in seen(f"/values/observation/{modality}", "scalars")] == stamps
    assert ["invalid"] in seen.values("/valid/observation/force", "state")
    for entity in ("lidar/lidar", "lidar/voxels", "lidar/observation/grids"):
        kinds = len(seen(f"/space/{entity}", "positions")), len(seen(f"/space/{entity}", "voxel_indices"))
        assert max(kinds) > 20, (entity, kinds)
    verified = subprocess.run([sys.executable, "-m", "rerun", "rrd", "verify", flow.folder / "out/demo.rrd"], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stderr


def test_what_lies_in_a_ring_is_drawn(flow):
    values = [send("force", np.full(2, k, np.float32), WALL + k * 10 * MS) for k in range(50)]
    flow.sender([step for one in values for step in (one, ("sleep", 0.01))])
    modality = {"input": "force", "dim": 2, "interpolation": "previous"}
    fuse = {"rate_hz": 100, "window": 2, "modalities": [modality], "residence": {"fused": {"kind": "shared", "backpressure": True}}}
    flow.robocache("fuse", {"fuse": fuse}, {"force": "sender/force"}, ["fused"])
    run_view(flow, "save drawn.rrd", {"fused": "fuse/fused"})
    assert "WARN" not in flow.run().logs["view"]
    assert Drawn(flow.folder / "drawn.rrd").values("/values/fused/force", "scalars") == [[k, k] for k in range(50)]


def steps(count: int, values: int, pause_s: float) -> list:
    made = []
    for k in range(count):
        made += [send("force", np.full(values, k, np.float32), WALL + k * MS), ("sleep", pause_s)]
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_bad_messages_in_a_dataflow_are_counted(flow):
    good = send("good", np.ones(3, np.float32), WALL)
    flow.sender([send("bad", np.ones(3, np.float32), WALL, shape=[7]) for _ in range(50)] + [good])
    run_view(flow, "save drawn.rrd", {"bad": "sender/bad", "good": "sender/good"})
    log = flow.run().logs["view"]
    assert "INFO bad: 50 messages that can't be drawn" in log and log.count("WARN bad: MessageError") == 1
    assert Drawn(flow.folder / "drawn.rrd").values("/values/good", "scalars") == [[1, 1, 1]]


def test_an_interrupt_ends_the_file_in_order(flow):
    stop = flow.folder / "stop"
    file = flow.folder / "drawn.rrd"
    flow.sender([("until", str(stop), steps(1, 10_000, 0.02))])
    run_view(flow, "save drawn.rrd", {"force": "sender/force"})
    with flow.start() as wait:
        wait_for(lambda: file.exists() and file.stat().st_size > 100_000, what="what is drawn")
        (pid,) = flow.pids("view")
        os.kill(pid, signal.SIGINT)
        wait_for(lambda: not flow.pids("view"), what="the end of the viewer")
        stop.touch()
        done = wait()
    assert done.code == 0 and "Traceback" not in done.logs["view"], done.output
    assert Drawn(file).values("/values/force", "values")


def test_a_disk_that_is_full_leaves_what_was_written(flow):
    """A limit on the size of files stands for the full disk."""
    random = np.random.default_rng(1)
    beats = [send("force", random.random(10_000, np.float32), WALL + k * MS) for k in range(200)]
    flow.sender([step for beat in beats for step in (beat, ("sleep", 0.03))])
    inputs = {"force": {"source": "sender/force", "queue_size": 1000}}
    flow.node("view", pathlib.Path("/usr/bin/prlimit"), f"--fsize=2000000 {VIEW} save drawn.rrd", inputs, [])
    log = flow.run().logs["view"]
    assert "drawn.rrd can't be written any more" in log and "nothing more is drawn" in log, log
    assert (flow.folder / "drawn.rrd").stat().st_size > 1_900_000


@pytest.mark.parametrize("listens", [False, True])
def test_a_viewer_that_takes_nothing_holds_nobody_back(flow, listens):
    """Draws 400 MB without a viewer, or with a viewer that accepts connections and reads nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        flow.sender(steps(400, 250_000, 0.01))
        newest = {"source": "sender/force", "queue_size": 100}
        run_view(flow, f"connect rerun+http://127.0.0.1:{server.getsockname()[1]}/proxy", {"force": newest})
        flow.collector({"force": "sender/force"})
        start = time.monotonic()
        done = flow.run(timeout=180)
    assert len(done.received("sink", "force")) == 400
    log = done.logs["view"]
    assert "messages dropped" in log and "not drawn" in log, log
    assert time.monotonic() - start < 60


def test_a_viewer_that_comes_late_and_comes_back_is_drawn_to(flow, tmp_path):
    port, stop = free_port(), tmp_path / "stop"
    # The viewer writes what it would show.
    command = [sink.program(), "--bind", "127.0.0.1", "--port", str(port), "--save"]
    flow.sender([("until", str(stop), [send("force", np.zeros(10_000, np.float32), "now"), ("sleep", 0.02)])])
    run_view(flow, f"connect rerun+http://127.0.0.1:{port}/proxy", {"force": "sender/force"})
    flow.collector({"force": {"source": "sender/force", "queue_size": 1}})
    files = [tmp_path / name for name in ("first.rrd", "second.rrd")]
    with flow.start(timeout=180) as wait:
        wait_for((tmp_path / "sink.started").exists, what="the first message")
        wait_for(lambda: "nobody listens" in flow.logs()["view"], what="a line that says so")
        time.sleep(1.0)
        begun = time.time_ns()
        for file in files:
            viewer = subprocess.Popen([*command, file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(lambda file=file: file.exists() and file.stat().st_size > 1_000_000, what="what is drawn")
            viewer.terminate()
            viewer.wait(10)
        wait_for(lambda: "the viewer is gone" in flow.logs()["view"], what="a line that says so")
        stop.touch()
        wait()
    first, second = ([stamp for stamp, _ in Drawn(file)("/values/force", "values")] for file in files)
    # Messages that came before the viewer waited for it.
    assert first[0] < begun < first[-1] < second[0]


def read_page(port: int) -> str | None:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5).read().decode()
    except OSError:
        return None


def address(line: str) -> tuple[str, int]:
    """The local address and port in a line of /proc/net/tcp."""
    host, port = line.split()[1].split(":")
    return socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)


def test_a_page_is_served_to_this_machine_alone_and_ends_with_the_dataflow(flow):
    port, web_port, stop = free_port(), free_port(), flow.folder / "stop"
    flow.sender([("until", str(stop), steps(1, 3, 0.1))])
    run_view(flow, f"serve-web {web_port} --port {port}", {"force": "sender/force"})
    with flow.start() as wait:
        page = wait_for(lambda: read_page(web_port), what="the page")
        hosts = {address(line) for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]}
        stop.touch()
        log = wait().logs["view"]
    assert {host for host, at in hosts if at in (port, web_port)} == {"127.0.0.1"}
    assert "Rerun" in page and f"open http://127.0.0.1:{web_port}?url=rerun%2Bhttp%3A%2F%2F127.0.0.1%3A{port}%2Fproxy" in log
    assert read_page(web_port) is None


def test_a_port_that_is_taken_is_refused(flow):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        flow.sender(steps(3, 3, 0.1))
        run_view(flow, f"serve-web {free_port()} --port {port}", {"force": "sender/force"})
        assert f"serve-web: port {port} is taken" in flow.run(code=None).logs["view"]


def has_vulkan() -> bool:
    return any(list(pathlib.Path(folder).glob("vulkan/icd.d/*.json")) for folder in ("/usr/share", "/etc"))


needs_vulkan = pytest.mark.skipif(not has_vulkan(), reason="no Vulkan driver is installed, such as mesa-vulkan-drivers")


@needs_vulkan
def test_a_viewer_shows_every_view_and_finds_no_fault(tmp_path, draw, monkeypatch):
    from rerun.experimental import ViewerClient

    image = event(pa.array(np.zeros(48, np.uint8)), {"timestamp_ns": 100 * MS, "shape": [4, 4, 3]}, "image")
    cloud = event(pa.array(np.eye(3, dtype=np.float32).ravel()), {"timestamp_ns": 100 * MS, "shape": [3, 3]}, "cloud")
    draw(fused(), image, cloud, fused(t_ms=200, epoch=1, valid=(1, 1, 0, 1)))
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin")
    with ViewerClient.spawn(headless=True, port=free_port()) as viewer:
        viewer.open(str(tmp_path / "drawn.rrd"))
        deadline = time.monotonic() + 120
        while len(views := viewer.get_state().views) < 7 and time.monotonic() < deadline:
            time.sleep(0.5)
        picture = viewer.take_screenshot()
    assert {(view.view_class, view.name) for view in views} == {
        ("TimeSeries", "fused camera"),
        ("TimeSeries", "fused force"),
        ("TimeSeries", "age, ms"),
        ("StateTimeline", "valid"),
        ("3D", "no frame"),
        ("2D", "image"),
        ("TextLog", "log"),
    }
    assert all(view.visible and not view.reports for view in views), views
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


@needs_vulkan
def test_a_window_that_is_open_is_used(flow, monkeypatch):
    from rerun.experimental import ViewerClient

    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin")
    port = free_port()
    flow.sender(steps(30, 3, 0.05))
    run_view(flow, f"spawn --port {port}", {"force": "sender/force"})
    with ViewerClient.spawn(headless=True, port=port) as viewer:
        flow.run()
        wait_for(lambda: [view.name for view in viewer.get_state().views] == ["force"], what="the view")


def test_without_a_display_a_window_is_refused_with_what_needs_none(flow, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    flow.sender(steps(3, 3, 0.1))
    run_view(flow, f"spawn --port {free_port()}", {"force": "sender/force"})
    flow.collector({"force": "sender/force"})
    done = flow.run(code=None)
    assert "ERROR spawn: there is no display" in done.logs["view"] and "save FILE.rrd" in done.logs["view"]
    assert done.code != 0 and len(done.received("sink", "force")) == 3
