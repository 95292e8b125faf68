"""A running dataflow: parameters that change, and an orderly stop."""

import json
import time

import numpy as np
import pyarrow as pa

from harness import Flow, Run, dora, send, wait_for
from oracle import MS
from test_record import killed_table


def fused(flow: Flow):
    return flow.folder / "sink.pickle"


def test_parameters_change_while_the_dataflow_runs(flow, daemon, tmp_path):
    """Changes the camera's `latency_ms`. After the camera is gone, changes `max_wait_ms` from null to 40."""
    camera_ends, all_ends = tmp_path / "camera_ends", tmp_path / "all_ends"
    camera = send("camera", np.array([1, 2], np.float32), "now")
    force = send("force", np.array([3], np.float32), "now")
    beat = [camera] + [force, ("sleep", 0.01)] * 3
    flow.sender([("until", str(camera_ends), beat), ("until", str(all_ends), [force, ("sleep", 0.01)])])
    modalities = [
        {"input": "camera", "dim": 2, "interpolation": "previous", "max_age_ms": 400},
        {"input": "force", "dim": 1, "interpolation": "linear"},
    ]
    config = {"rate_hz": 50, "max_wait_ms": None, "modalities": modalities}
    status = {"status": str(tmp_path / "status")}
    sources = {name: {"source": f"sender/{name}", "queue_size": 1000} for name in ("camera", "force")}
    flow.robocache("fuse", {**status, "fuse": config}, sources, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    flow.collector(sources, name="sensors")
    dora("start", str(flow.write()), "--name", "live", "--detach", env=daemon, cwd=flow.folder)

    def set_parameter(key: str, value) -> None:
        dora("param", "set", "fuse", key, json.dumps(value), "-d", "live", env=daemon)

    def said(words: str):
        wait_for(lambda: words in flow.logs()["fuse"], what=words)
        return time.time_ns()

    def more(count: int, of=lambda status: status["observations"]) -> None:
        """Waits until the number that `of` takes from the status of fuse has grown by `count`: by default the number of
        observations. The status is written each second."""
        now = time.time_ns()
        wait_for(lambda: flow.status("fuse")["timestamp_ns"] > now, what="a status of after now")
        before = of(flow.status("fuse"))
        wait_for(lambda: of(flow.status("fuse")) >= before + count, what=f"{count} more")

    force_came = lambda status: status["inputs"]["force"]["messages"]  # noqa: E731
    wait_for((tmp_path / "sink.started").exists, what="the first observation")
    wait_for((tmp_path / "status" / "fuse.json").exists, what="the status")
    more(25)
    before_latency = time.time_ns()
    set_parameter("camera.latency_ms", 100)
    after_latency = said("`camera.latency_ms` is now 100")
    more(35)
    camera_ends.touch()
    more(70, force_came)
    before_wait = time.time_ns()
    set_parameter("max_wait_ms", 40)
    after_wait = said("`max_wait_ms` is now 40")
    set_parameter("max_wait_ms", "soon")
    set_parameter("camera.latncy_ms", 5)
    more(35)
    ended = time.time_ns()
    dora("stop", "live", env=daemon, timeout=180)
    wait_for(fused(flow).exists, what="the end of the collector")
    wait_for((tmp_path / "sensors.pickle").exists, what="the end of the collector of the sensors")

    run = Run(0, "", {}, tmp_path)
    got = run.received("sink")
    camera, force = (np.array([m.stamp for m in run.received("sensors", name)]) for name in ("camera", "force"))
    stamps = np.array([m.stamp for m in got])
    published = np.array([m.metadata["timestamp"].timestamp() * 1e9 for m in got])
    age = np.array([m.metadata["age_ns"][0] for m in got])
    valid = np.array([m.metadata["valid"][0] for m in got])
    assert (np.diff(stamps) == 20 * MS).all(), "no target is left out"

    # However busy the machine is, a target waits for a sample of each stream at or after it, so ages follow from stamps.
    for when, latency in [(published < before_latency, 0), (published > after_latency, 100 * MS)]:
        targets, samples = stamps[when], camera - latency
        newest = samples[np.searchsorted(samples, targets, "right") - 1]
        assert len(targets) > 10 and (age[when] == targets - newest).all()
        assert (valid[when] == (age[when] <= 400 * MS)).all()
    quiet = (published > after_latency) & (published < before_wait)
    assert quiet.sum() > 5 and (stamps[quiet] <= camera[-1] - 100 * MS).all(), "the camera's watermark holds up every target"
    # With `max_wait_ms` 40, observations go on 40 ms behind the force, without the camera.
    resumed = (published > after_wait) & (published < ended)
    assert resumed.sum() > 10 and (stamps[resumed] <= force[-1] - 40 * MS).all()
    assert stamps.max() > camera[-1] + 450 * MS and not valid[stamps > camera[-1] + 300 * MS].any()

    log = flow.logs()["fuse"]
    assert "`camera.latency_ms` is now 100" in log and "`max_wait_ms` is now 40" in log
    assert "`max_wait_ms`" in log and "refused" in log and "latncy" in log
    check_stopped(flow, daemon, ["sender", "fuse", "sink"])


def is_recorded(folder, rows: int) -> bool:
    """True if a recording that is being written has at least `rows` messages."""
    try:
        return killed_table(folder).num_rows >= rows
    except (OSError, pa.ArrowInvalid):
        return False


def check_stopped(flow: Flow, env: dict, nodes: list[str]) -> None:
    listed = dora("list", env=env)
    assert "Running" not in listed and "Failed" not in listed, listed
    for node in nodes:
        assert not flow.pids(node), f"{node} is still there"


def test_every_node_ends_with_0_when_the_dataflow_is_stopped(flow, daemon, tmp_path):
    """Stops a node of each kind in the middle of its work."""
    modalities = [{"input": "force", "dim": 6, "interpolation": "linear"}]
    observe = {"rate_hz": 50, "modalities": modalities}
    grid = {"origin_m": [-10, -10, -3], "voxel_size_m": [0.5] * 3, "shape": [40, 40, 12]}
    voxelize = grid | {"channels": ["count"], "layout": "coo", "inputs": [{"input": "lidar"}]}
    live = lambda source: {"source": source, "queue_size": 100}  # noqa: E731
    flow.robocache("sim", {"sim": {"real_time": True, "duration_s": None, "start_ns": None}}, outputs=["force", "lidar"])
    flow.robocache("fuse", {"fuse": observe}, {"force": live("sim/force")}, ["fused"])
    flow.robocache("align", {"align": observe}, {"force": live("sim/force")}, ["force"])
    flow.robocache("voxelize", {"voxelize": voxelize}, {"lidar": live("sim/lidar")}, ["voxels"])
    plugins = [{"voxelize": voxelize}, {"fuse": observe}]
    flow.robocache("node", {"plugins": plugins}, {"lidar": live("sim/lidar"), "force": live("sim/force")}, ["fused", "voxels"])
    recorded = {"fused": live("fuse/fused"), "lidar": live("sim/lidar")}
    flow.robocache("record", {"record": {"path": str(tmp_path / "recorded")}}, recorded)
    outputs = {"fused": "fuse/fused", "voxels": "voxelize/voxels", "both": "node/fused", "force": "align/force"}
    flow.collector({name: live(source) for name, source in outputs.items()})
    dora("start", str(flow.write()), "--name", "live", "--detach", env=daemon, cwd=flow.folder)
    wait_for((tmp_path / "sink.started").exists, what="the first observation")
    wait_for(lambda: is_recorded(tmp_path / "recorded" / "fused.arrow", 40) and is_recorded(tmp_path / "recorded" / "lidar.arrow", 8), what="a second of observations")
    begun = time.monotonic()
    dora("stop", "live", "--grace-duration", "120s", env=daemon, timeout=180)
    assert time.monotonic() - begun < 100.0, "a node that does not listen to Stop is killed by dora after its grace time"
    wait_for(fused(flow).exists, what="the end of the collector")
    check_stopped(flow, daemon, [node["id"] for node in flow.nodes])

    for name in ("fused", "lidar"):
        with pa.OSFile(str(tmp_path / "recorded" / f"{name}.arrow")) as file:
            assert pa.ipc.open_file(file).read_all().num_rows > 5
