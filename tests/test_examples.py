"""Runs the examples that users copy from, own sensors and arrays to windows, as they are but for their length and their
waits."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import yaml

import oracle
from harness import Flow, same_bits

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
sys.path[:0] = [str(EXAMPLES / "offline"), str(EXAMPLES / "sensors")]

import show  # noqa: E402
from recording import write_clouds, write_samples  # noqa: E402

S = 1_000_000_000
SECONDS = 5


def example(flow: Flow, name: str, change=lambda text: text) -> None:
    """Adds the nodes of an example to a dataflow, with paths into the folder of the examples."""
    for node in yaml.safe_load(change((EXAMPLES / name).read_text()))["nodes"]:
        node["path"] = str((EXAMPLES / node["path"]).absolute())
        # Arguments that name files count from the folder of the example's dataflow.
        words = [str(EXAMPLES / word) if (EXAMPLES / word).is_file() else word for word in node.get("args", "").split()]
        flow.nodes.append({**node, "args": " ".join(words)})


def sensors_example(flow: Flow, name: str, places: dict[str, str]) -> None:
    """Adds an example of sensors that send for SECONDS. Its nodes wait for 5 s, its senders wait for a consumer for 30 s, and its
    queues hold all messages. On a busy machine, nothing is late or dropped."""
    # sensors.py and transport.json5 lie beside each other, as docs/sensors.md has it.
    sensors = flow.folder / "sensors.py"
    sensors.write_text((EXAMPLES / "sensors" / "sensors.py").read_text())
    transport = (EXAMPLES / "sensors" / "transport.json5").read_text()
    assert "wait_before_drop: 100000 " in transport
    (flow.folder / "transport.json5").write_text(transport.replace("wait_before_drop: 100000 ", "wait_before_drop: 30000000 "))
    config = flow.folder / "config.yml"
    text = re.sub(r"max_wait_ms: \d+", "max_wait_ms: 5000", (EXAMPLES / name / "config.yml").read_text())
    config.write_text(f"status: {flow.folder / 'status'}\n{text}")
    places = {**places, f"{name}/config.yml": str(config), "sensors/sensors.py": str(sensors)}

    def change(text: str) -> str:
        text = re.sub(r"(sensors\.py \w+) 10", rf"\1 {SECONDS}", re.sub(r"queue_size: \d+", "queue_size: 2000", text))
        return re.sub("|".join(places), lambda found: places[found[0]], text)

    example(flow, f"{name}.yml", change)


def check_well(flow: Flow, logs: dict[str, str]) -> None:
    """Checks that no input of fuse or voxelize has a fault. On a busy machine the log may say that an input has sent nothing
    yet."""
    for node in ("fuse", "voxelize"):
        for row in flow.status(node)["inputs"].values():
            assert row["messages"] > 0 and row["faults"] == 0, row
        errors = [line for line in logs[node].splitlines() if "ERROR" in line]
        # The last of these is zenoh's, about a node that has ended.
        assert all(re.search("no (observation|grid) for|has sent nothing|Unknown subscriber", line) for line in errors), errors


def phase(time_ns: int) -> float:
    return time_ns % (2 * S) / S * math.pi


RATES = {"camera": 30, "joints": 100, "wrench": 100, "imu": 200, "front": 10, "rear": 10}


@pytest.fixture(scope="module", params=["as it is", "all in Rust that is there in Rust"])
def sensors(tmp_path_factory, request):
    """Runs examples/sensors.yml with a collector, and with a recorder of the senders' messages."""
    flow = Flow(tmp_path_factory.mktemp("sensors"))
    sensors_example(flow, "sensors", {"imu 2000": f"imu {200 * SECONDS}"})
    if request.param != "as it is":
        rust = next(node for node in flow.nodes if node["id"] == "imu")["path"]
        for node in flow.nodes:
            if node["id"] in ("wrench", "front", "rear"):
                rate = RATES[node["id"]]
                node |= {"path": rust, "args": f"{node['id']} {SECONDS * rate}", "inputs": {"tick": f"dora/timer/hz/{rate}"}}
    # No backpressure: messages would take another way through dora than the senders' own.
    live = lambda source: {"source": source, "queue_size": 20000}  # noqa: E731
    flow.robocache("record", {"record": {"path": "recording"}}, {name: live(f"{name}/{name}") for name in RATES})
    flow.collector({"fused": live("fuse/fused"), "voxels": live("voxelize/voxels")})
    with pytest.MonkeyPatch.context() as environment:
        if request.param != "as it is":
            # As docs/sensors.md says, for senders that can't set up their transport themselves.
            environment.setenv("DORA_ZENOH_CONFIG_OVERLAY", str(flow.folder / "transport.json5"))
        done = flow.run(timeout=180)
    check_well(flow, done.logs)
    return done


def stamps_of(sensors, name: str) -> np.ndarray:
    """Stamps of a sender's messages, as recorded. On a busy machine a sender starts seconds after another."""
    with pa.memory_map(str(sensors.folder / "recording" / f"{name}.arrow")) as source:
        return pa.ipc.open_file(source).read_all()["timestamp_ns"].to_numpy()


def was_sent(stamps: np.ndarray, target: int, max_gap_ns: int) -> bool:
    """True if a sender sent on both sides of a target, not further apart than `max_gap_ns`."""
    after = np.searchsorted(stamps, target)
    return bool(0 < after < len(stamps) and stamps[after] - stamps[after - 1] <= max_gap_ns)


def test_what_the_senders_send_arrives_whole(sensors, request):
    for name, rate in RATES.items():
        stamps = stamps_of(sensors, name)
        # The sender in Rust does not set up its transport: messages that are not taken within 1 ms may be lost, more on a busy
        # machine. If its user sets the transport up, as the page says, no message is lost.
        is_set_up = name != "imu" or request.node.callspec.params["sensors"] != "as it is"
        assert len(stamps) == SECONDS * rate or (not is_set_up and 0.8 * SECONDS * rate < len(stamps) < SECONDS * rate), name
    assert "metadata" not in sensors.logs["fuse"] + sensors.logs["voxelize"]


def test_the_samples_of_every_sender_are_fused(sensors):
    got = sensors.received("sink", "fused")
    names = ("camera", "joints", "wrench", "imu")
    sent = [stamps_of(sensors, name) for name in names]
    ends = np.array([stamps[[0, -1]] for stamps in sent])
    assert 0.9 * SECONDS * 50 <= len(got) <= 1.1 * np.ptp(ends) / S * 50
    seen, due = np.zeros(4, int), np.zeros(4, int)
    for message in got:
        metadata = message.metadata
        assert metadata["modalities"] == ["camera", "joints", "wrench", "imu"]
        assert metadata["offsets"] == [0, 16, 23, 29, 35]
        camera, joints, wrench, imu = np.split(message.values.reshape(16, 35), metadata["offsets"][1:-1], axis=1)
        valid, age_ns = np.reshape(metadata["valid"], (16, 4)), np.reshape(metadata["age_ns"], (16, 4))
        target = metadata["timestamp_ns"]
        # Holes in the sender's own stamps do not count as losses: the machine was busy, or dora's timer skipped a tick.
        is_due = np.array([was_sent(stamps, target, 2 * S // RATES[name]) for name, stamps in zip(names, sent, strict=True)])
        seen += valid[-1] & is_due
        due += is_due
        if valid[-1, 0]:
            # The value is that of the sample with this age, to the bit.
            sampled = np.cos(phase(target - int(age_ns[-1, 0])) + np.arange(16)).astype(np.float32)
            assert camera[-1].tobytes() == sampled.tobytes()
        # Values lie on a line between samples of a 0.5 Hz sine, at most max_gap_ms apart, or are the last sample, held.
        for values, m, scale, gap_s in ((joints, 1, 1, 0.05), (wrench, 2, 10, 0.02)):
            tolerance = scale * math.pi**2 / 8 * gap_s**2 + 1e-5
            if valid[-1, m]:
                truth = [scale * np.sin(phase(time) + np.arange(values.shape[1])) for time in (target, target - int(age_ns[-1, m]))]
                assert any(np.abs(values[-1] - wanted).max() < tolerance for wanted in truth)
        if valid[-1, 3]:
            assert imu[-1, 5] == np.float32(9.81)
    assert (seen >= 0.8 * due).all() and (due >= 25 * SECONDS).all(), (seen, due)


def test_both_clouds_are_in_the_grids(sensors):
    both, taken = 0, {"front": 0, "rear": 0}
    for message in sensors.received("sink", "voxels"):
        metadata = message.metadata
        assert metadata["points_in"] == 20000 * sum(metadata["inputs_valid"])
        dropped = sum(metadata[f"dropped_{why}"] for why in ("nonfinite", "outside", "overflow"))
        assert metadata["points_kept"] == metadata["points_in"] - dropped > 0.99 * metadata["points_in"]
        x = message.values["coords"][:, 0] * 0.1 - 6.4
        # Walls are 4 m ahead of each lidar; the lidars are 0.3 m in front of and behind the middle.
        walls = {side for side, there in (("front", (abs(x - 4.3) < 0.3).any()), ("rear", (abs(x + 4.3) < 0.3).any())) if there}
        assert walls == {name for name, there in zip(metadata["inputs"], metadata["inputs_valid"], strict=True) if there}
        assert message.values["features"].tolist() == [[1.0, 80.0]] * len(x)
        both += len(walls) == 2
        for name in walls:
            taken[name] += 1
    # While the other lidar is silent or held up, clouds supersede each other. Each cloud that is left out is counted once.
    status = json.loads((sensors.folder / "status" / "voxelize.json").read_text())
    for row in status["inputs"]:
        assert row["late"] == row["dropped_stamp"] == 0 and row["messages"] == SECONDS * 10, row
        assert taken[row["input"]] + row["dropped_overflow"] == SECONDS * 10, (taken, row)
    assert 0 < both >= 0.9 * min(taken.values())


def test_the_consumer_prints_a_line_a_second(sensors):
    line = re.compile(r"(\d+) observations, (\d+) ms old, valid camera (\d+) %.*; (\d+) grids, (\d+) cells")
    lines = line.findall(sensors.logs["show"])
    # Observations that are due at the start come all at once, when the last sender has begun.
    assert len(lines) >= SECONDS - 3 and any(int(valid) == 100 for _, _, valid, *_ in lines), sensors.logs["show"]
    # A line counts the messages since the line before.
    second, fused, voxels = show.Second(), sensors.received("sink", "fused"), sensors.received("sink", "voxels")
    for message in fused:
        second.fused(message.metadata)
    for message in voxels:
        second.voxels(len(message.array), message.metadata)
    count, _, valid, grids, cells = line.search(second.line()).groups()
    assert (int(count), int(grids), int(cells)) == (len(fused), len(voxels), len(voxels[-1].array)), second.line()
    assert int(valid) == round(100 * np.mean([message.metadata["valid"][-4] for message in fused]))
    assert all(0 < int(count) <= len(fused) for count, *_ in lines), lines


@pytest.mark.parametrize(("given", "expected"), [({}, "transport.json5"), ({"DORA_ZENOH_CONFIG_OVERLAY": "mine"}, "mine"), ({"ZENOH_CONFIG": "x"}, "")])
def test_a_sender_sets_the_transport_up_unless_its_user_did(given, expected):
    environment = {key: value for key, value in os.environ.items() if "ZENOH" not in key}
    program = "import sensors, os; sensors.wait_for_consumers(); print(os.environ.get('DORA_ZENOH_CONFIG_OVERLAY', ''))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**environment, **given, "PYTHONPATH": str(EXAMPLES / "sensors")}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert pathlib.Path(done.stdout.strip()).name == expected
    if expected == "transport.json5":
        assert pathlib.Path(done.stdout.strip()).is_file()


def test_arrays_become_windows(tmp_path):
    command = [sys.executable, EXAMPLES / "offline" / "arrays.py", tmp_path / "arrays", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (tmp_path / "config.yml").write_text((EXAMPLES / "offline" / "config.yml").read_text().replace("../out/offline", str(tmp_path / "arrays")))
    flow = Flow(tmp_path / "flow")
    places = {"offline/config.yml": tmp_path / "config.yml", "../out/windows.npz": tmp_path / "windows.npz"}
    example(flow, "offline.yml", lambda text: re.sub("|".join(places), lambda found: str(places[found[0]]), text))
    said = flow.run().logs["collect"]
    assert "63 observations of [16, 29]" in said and "lost" not in said, said
    windows = np.load(tmp_path / "windows.npz")
    config = yaml.safe_load((EXAMPLES / "offline" / "config.yml").read_text())["fuse"]
    streams = {}
    for modality in config["modalities"]:
        with pa.memory_map(str(tmp_path / "arrays" / f"{modality['input']}.arrow")) as source:
            table = pa.ipc.open_file(source).read_all()
        stamps = table["timestamps_ns"].combine_chunks().values.to_numpy()
        streams[modality["input"]] = (stamps, table["data"].combine_chunks().values.to_numpy().reshape(len(stamps), -1))
    assert list(windows["modalities"]) == list(streams) and windows["offsets"].tolist() == [0, 16, 23, 29]
    wanted = oracle.fuse(config, streams)
    assert windows["timestamps_ns"][:, -1].tolist() == [o.stamp for o in wanted]
    assert windows["valid"].reshape(len(wanted), -1).tolist() == [o.valid for o in wanted]
    assert windows["values"].tobytes() == b"".join(o.values.tobytes() for o in wanted)
    assert 0 < windows["valid"].mean() < 1 and {*windows["epoch"]} == {0}


def test_what_is_written_is_what_is_replayed(tmp_path):
    rng = np.random.default_rng(3)
    stamps = np.cumsum(rng.integers(1, 10**7, 250))
    samples = {kind: rng.uniform(-100, 100, (250, 3)).astype(kind) for kind in ("float64", "float16", "int32")}
    clouds = [{"x": rng.random(n), "y": rng.random(n), "z": rng.random(n), "ring": rng.integers(0, 64, n).astype(np.uint16)} for n in (5, 0, 70)]
    for kind, values in samples.items():
        write_samples(tmp_path / "arrays", kind, stamps, values)
    write_clouds(tmp_path / "arrays", "lidar", stamps[:3], clouds)
    flow = Flow(tmp_path / "flow")
    flow.robocache("replay", {"replay": {"path": str(tmp_path / "arrays"), "speed": "max"}}, outputs=[*samples, "lidar"])
    flow.collector({name: f"replay/{name}" for name in [*samples, "lidar"]})
    done = flow.run()
    for kind, values in samples.items():
        got = done.received("sink", kind)
        assert [len(message.metadata["timestamps_ns"]) for message in got] == [100, 100, 50]
        assert sum((message.metadata["timestamps_ns"] for message in got), []) == stamps.tolist()
        assert np.concatenate([message.values.reshape(message.metadata["shape"]) for message in got]).tobytes() == values.tobytes()
    got = done.received("sink", "lidar")
    assert [message.stamp for message in got] == stamps[:3].tolist()
    assert all(same_bits(message.values, cloud) for message, cloud in zip(got, clouds, strict=True))


@pytest.mark.parametrize(("stamps", "values"), [([0.1, 0.2], [[1.0], [2.0]]), ([1, 2], [1.0, 2.0]), ([1, 2, 3], [[1.0], [2.0]])])
def test_arrays_that_are_no_stream_are_refused(tmp_path, stamps, values):
    with pytest.raises(ValueError, match=r"force: .* \(allowed: int64 \[N\], \[N, D\]\)"):
        write_samples(tmp_path, "force", np.array(stamps), np.array(values))


def test_messages_of_other_software_are_fused_and_voxelized(flow, monkeypatch):
    """Runs examples/hub.yml: an image through an encoder, and structs of ROS, from senders that do not use robocache."""
    model = flow.folder / "encoder.onnx"
    subprocess.run([sys.executable, EXAMPLES / "hub" / "make_encoder.py", "--out", model], check=True, timeout=180)
    sensors_example(flow, "hub", {"../out/encoder.onnx": str(model)})
    live = lambda source: {"source": source, "queue_size": 20000}  # noqa: E731
    flow.collector({"fused": live("fuse/fused"), "voxels": live("voxelize/voxels")})
    # As docs/sensors.md says, for senders that can't set up their transport themselves.
    monkeypatch.setenv("DORA_ZENOH_CONFIG_OVERLAY", str(EXAMPLES / "sensors" / "transport.json5"))
    done = flow.run(timeout=180)
    got = done.received("sink", "fused")
    assert len(got) >= 0.6 * SECONDS * 50
    seen = []
    for message in got:
        valid, age_ns = (np.reshape(message.metadata[key], (16, 4))[-1] for key in ("valid", "age_ns"))
        features, depth, joints, pose = np.split(message.values.reshape(16, 237)[-1], [32, 224, 230])
        turned = phase(message.stamp)
        seen.append(valid != 0)
        if valid[0]:
            assert np.isfinite(features).all() and features.any()
        if valid[1]:
            wall_mm = int(2000 + 1000 * math.sin(phase(message.stamp - int(age_ns[1]))))
            assert depth[0] == 0 and (depth[1:] == wall_mm).all()
        if valid[2]:
            # Positions and speeds of shoulder, elbow and wrist, held for 10 ms at most.
            angles = turned + np.arange(3)
            assert np.abs(joints[:3] - np.sin(angles)).max() < 0.05
            assert np.abs(joints[3:] - math.pi * np.cos(angles)).max() < 0.15
        if valid[3]:
            assert np.abs(pose[:2] - 0.4 * np.array([math.cos(turned), math.sin(turned)])).max() < 0.03
            assert abs(pose[3:] @ pose[3:] - 1) < 1e-5
    # A sender may start seconds after another one.
    for name, was_seen in zip(("features", "depth", "joint_states", "pose"), np.transpose(seen), strict=True):
        first, last = np.flatnonzero(was_seen)[[0, -1]]
        assert last - first >= 25 * SECONDS and was_seen[first : last + 1].mean() >= 0.8, (name, was_seen)
    grids = done.received("sink", "voxels")
    assert len(grids) >= 0.6 * SECONDS * 10
    for grid in grids:
        assert grid.metadata["points_in"] == 20000 and grid.metadata["dropped_nonfinite"] == 20
        assert (grid.values["features"][:, 1] == 80).all() and grid.values["features"][:, 2].max() > 9e7
    check_well(flow, done.logs)
    log = done.logs["fuse"] + done.logs["voxelize"]
    assert "input `pose` is read as geometry_msgs/PoseStamped" in log and "input `points` is read as sensor_msgs/PointCloud2" in log, log
    assert "no `timestamp_ns`" not in log, log
