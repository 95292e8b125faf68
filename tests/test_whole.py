"""Whole dataflows, as a user runs them: the demo, recording and replay, and the demo on a daemon that already runs.

Needs the release binaries, the Python package and out/policy.onnx: `make build python out/policy.onnx`.
"""

import json
import pathlib

import pyarrow as pa
import yaml

from harness import checkout, dora, wait_for

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "robocache.yml").read_text())
DURATION_S = CONFIG["sim"]["duration_s"]
RATE_HZ = CONFIG["fuse"]["rate_hz"]
# Frames that the camera loses in its drop-outs.
LOST_FRAMES = RATE_HZ * sum(dropout["duration_s"] for dropout in CONFIG["sim"]["streams"]["camera"]["dropouts"])
FRAMES = DURATION_S * RATE_HZ - LOST_FRAMES


def run_with_report(dataflow: str, tmp_path: pathlib.Path) -> tuple[dict, str]:
    path, status = tmp_path / "report.json", tmp_path / "status"
    log = dora("run", dataflow, env={"ROBOCACHE_POLICY_REPORT": str(path), "ROBOCACHE_STATUS": str(status)}, timeout=DURATION_S * 3 + 180, cwd=tmp_path)
    report, fuse = json.loads(path.read_text()), json.loads((status / "fuse.json").read_text())
    # On a busy machine queues drop frames before fuse, and observations behind it.
    (frames,) = (row["messages"] for row in fuse["inputs"] if row["input"] == "camera")
    return report | {"dropped": max(0, FRAMES - frames) + fuse["observations"] - report["observations"]}, log


def check(report: dict) -> None:
    """Checks the properties of any run of the demo's robot, live or replayed."""
    assert report["malformed"] == {} and report["dropped"] >= 0
    assert report["observations"] >= 0.5 * FRAMES and report["observations"] + report["dropped"] >= 0.9 * FRAMES
    assert LOST_FRAMES <= report["observations_missed"] <= LOST_FRAMES + 0.05 * DURATION_S * RATE_HZ + report["dropped"]
    # Every observation is at a frame.
    camera = report["modalities"]["camera"]
    assert (camera["valid_share"], camera["age_ms"]) == (1.0, {"p50": 0.0, "p99": 0.0})
    assert [*report["modalities"]] == [m["input"] for m in CONFIG["fuse"]["modalities"]]
    for name, modality in report["modalities"].items():
        assert 0.5 < modality["valid_share"] <= 1.0, name
        assert modality["age_ms"]["p50"] < 120.0, name
    assert report["actions"] + sum(report["refused"].values()) == report["observations"]
    assert report["actions"] >= 0.5 * report["observations"]
    voxels = report["voxels"]
    assert voxels["grids"] >= 0.8 * 10 * DURATION_S
    assert voxels["actions_with_voxels"] >= 0.5 * report["actions"]
    # A grid has the time of its sweep's last point, 100 ms after its stamp. A grid in time is not further away than the next.
    assert voxels["age_ms"]["p50"] < 150.0


def test_the_demo_ends_by_itself_and_the_policy_reports(tmp_path):
    report, log = run_with_report("dataflow.yml", checkout(tmp_path))
    check(report)
    assert 0.85 * RATE_HZ < report["rate_hz"] < RATE_HZ
    # Not a performance test: it catches a stall of whole seconds, or a stamp that is not the capture's. With ten processes for
    # each core, the latency was 0.7 s.
    assert 0.0 < report["latency_ms"]["p50"] < 2000.0
    # Drop-outs of robocache.yml: without a frame there is no observation, and an observation without force is refused.
    assert report["refused"].keys() & {"force invalid", "force too old"}
    assert "policy: observations and actions" in log
    assert "source to policy" in log


def test_a_recording_replays_through_the_same_nodes(tmp_path):
    recording = checkout(tmp_path) / "out" / "recording"
    dora("run", "examples/record.yml", timeout=DURATION_S * 3 + 180, cwd=tmp_path)
    files = {path.stem: path for path in recording.glob("*.arrow")}
    assert files.keys() == {"camera", "force", "proprio", "lidar"}
    for name, path in files.items():
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        assert table.num_rows > 0, name
        assert "timestamp_ns" in table.column_names, name
        if name != "lidar":
            assert "data" in table.column_names, name
    report, _ = run_with_report("examples/replay.yml", tmp_path)
    check(report)


def test_up_start_stop(daemon, tmp_path):
    path, status = tmp_path / "report.json", tmp_path / "status"
    settings = [word for setting in (f"ROBOCACHE_POLICY_REPORT={path}", f"ROBOCACHE_STATUS={status}") for word in ("--env", setting)]
    dora("start", "dataflow.yml", "--name", "demo", "--detach", *settings, env=daemon, cwd=checkout(tmp_path))
    fuse = status / "fuse.json"
    wait_for(lambda: fuse.exists() and json.loads(fuse.read_text())["observations"] > 2 * RATE_HZ, timeout=180.0, what="the observations")
    listed = dora("list", env=daemon)
    assert "demo" in listed and "Running" in listed
    dora("stop", "demo", env=daemon)
    wait_for(lambda: path.exists() and path.read_text(), what="the report")
    report = json.loads(path.read_text())
    assert report["observations"] > RATE_HZ
    assert report["malformed"] == {}
    assert "Running" not in dora("list", env=daemon)
