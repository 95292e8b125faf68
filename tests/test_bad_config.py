"""Configurations that can't work: before it joins the dataflow, a node exits with 2 and names the wrong key."""

import os
import subprocess

import numpy as np
import pytest

from harness import binary, cpu_below, refusal, send

FUSE = """
fuse:
  rate_hz: 50
  window: 2
  max_wait_ms: 40
  modalities:
    - { input: force, dim: 6, interpolation: linear }
    - input: proprio
      dim: 4
      groups:
        - { channels: [0, 2], interpolation: linear }
        - { channels: [2, 4], interpolation: previous }
"""
VOXELIZE = """
voxelize:
  origin_m: [-10, -10, -2]
  voxel_size_m: [0.5, 0.5, 0.5]
  shape: [40, 40, 8]
  channels: [occupancy, mean_z]
  layout: coo
  inputs:
    - { input: lidar }
"""
RESAMPLE = """
resample: { interpolation: linear, max_gap_ms: 50 }
"""
NODE = """
plugins:
  - voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [4, 4, 4], channels: [count], layout: coo, inputs: [{ input: lidar }] }
"""
RECORD = """
record: { path: recording }
"""
REPLAY = """
replay: { path: recording, speed: max }
"""
GROUP = """
group:
  policy: approximate
  queue_size: 5
  inputs: [{ input: camera, min_period_ms: 28 }, { input: lidar }]
"""

# A node, its configuration, a change to it (old, new), and words that the message must have.
CASES = [
    ("fuse", FUSE, ("window: 2", "windov: 2"), ["fuse", "windov", "window"]),
    ("fuse", FUSE, ("fuse:", "fuze:"), ["fuze", "fuse"]),
    ("fuse", FUSE, ("dim: 6,", "dim: 6, latency: 3,"), ["modalities[0].latency", "latency_ms"]),
    ("fuse", FUSE, ("rate_hz: 50", "rate_hz: fast"), ["fuse", "rate_hz", "fast"]),
    ("fuse", FUSE, ("rate_hz: 50", "rate_hz: 0"), ["fuse", "rate_hz", "allowed"]),
    ("fuse", FUSE, ("window: 2", "window: -1"), ["fuse", "window"]),
    ("fuse", FUSE, ("window: 2", "window: 0"), ["fuse", "window", "allowed"]),
    ("fuse", FUSE, ("max_wait_ms: 40", "max_wait_ms: -1"), ["fuse", "max_wait_ms", "-1"]),
    ("fuse", FUSE, ("dim: 6", "dim: six"), ["modalities[0].dim", "six"]),
    ("fuse", FUSE, ("dim: 6", "dim: 0"), ["modalities[0].dim", "0"]),
    ("fuse", FUSE, ("6, interpolation: linear", "6, interpolation: spline"), ["modalities[0].interpolation", "spline", "previous"]),
    ("fuse", FUSE, ("input: proprio", "input: force"), ["modalities[1].input", "force", "modalities[0]"]),
    ("fuse", FUSE, ("[2, 4]", "[1, 4]"), ["modalities[1].groups[1].channels", "overlaps"]),
    ("fuse", FUSE, ("[2, 4]", "[3, 4]"), ["modalities[1].groups[1].channels", "hole"]),
    ("fuse", FUSE, ("[2, 4]", "[2, 3]"), ["modalities[1].groups", "3"]),
    ("fuse", FUSE, ("[2, 4]", "[2, 5]"), ["modalities[1].groups[1].channels", "dim = 4"]),
    ("fuse", FUSE, ("window: 2", "dtype: float64"), ["fuse", "dtype", "float64"]),
    ("fuse", FUSE, ("fuse:", "device: tpu\nfuse:"), ["device", "tpu", "auto"]),
    ("fuse", FUSE, (FUSE, "fuse: [1, 2"), ["config.yml"]),
    ("fuse", FUSE, (FUSE, ""), ["fuse", "missing"]),
    ("align", FUSE.replace("fuse:", "align:"), ("input: proprio", "input: force"), ["align", "modalities[1].input"]),
    ("align", FUSE.replace("fuse:", "align:"), ("window: 2", "windov: 2"), ["align", "windov"]),
    ("voxelize", VOXELIZE, ("layout: coo", "layuot: coo"), ["voxelize", "layuot", "layout"]),
    ("voxelize", VOXELIZE, ("[0.5, 0.5, 0.5]", "[0.5, 0, 0.5]"), ["voxelize", "voxel_size_m", "0"]),
    ("voxelize", VOXELIZE, ("[0.5, 0.5, 0.5]", "[0.5, 0.5]"), ["voxelize", "voxel_size_m"]),
    ("voxelize", VOXELIZE, ("[0.5, 0.5, 0.5]", "[0.5, .nan, 0.5]"), ["voxelize", "voxel_size_m"]),
    # 2^14 * 2^13 * 2^13 = 2^40
    ("voxelize", VOXELIZE, ("[40, 40, 8]", "[16384, 8192, 8192]"), ["voxelize", "shape", "1099511627776", "2^32"]),
    ("voxelize", VOXELIZE, ("[40, 40, 8]", "[40, 40, 0]"), ["voxelize", "shape", "0"]),
    ("voxelize", VOXELIZE, ("[40, 40, 8]", "[40, 40, 8.5]"), ["voxelize", "shape"]),
    ("voxelize", VOXELIZE, ("mean_z", "median_z"), ["voxelize", "channels", "median_z"]),
    ("voxelize", VOXELIZE, ("mean_z", "occupancy"), ["voxelize", "channels[1]", "twice"]),
    ("voxelize", VOXELIZE, ("layout: coo", "layout: sparse"), ["voxelize", "layout", "sparse", "coo"]),
    ("voxelize", VOXELIZE, ("layout: coo", "layout: bits"), ["voxelize", "channels", "bits"]),
    ("voxelize", VOXELIZE, ("layout: coo", "layout: coo\n  max_voxels: 0"), ["voxelize", "max_voxels", "0"]),
    ("voxelize", VOXELIZE, ("- { input: lidar }", "- { input: lidar }\n    - { input: lidar }"), ["inputs[1].input", "lidar", "twice"]),
    ("voxelize", VOXELIZE, ("input: lidar", "input: lidar, extrinsic: { rotation_xyzw: [0, 0, 0, 0] }"), ["inputs[0].extrinsic.rotation_xyzw"]),
    ("resample", RESAMPLE, ("max_gap_ms", "max_gap"), ["resample", "max_gap", "max_gap_ms"]),
    ("resample", RESAMPLE, ("max_gap_ms: 50", "max_gap_ms: -50"), ["resample", "max_gap_ms", "-50"]),
    ("resample", RESAMPLE, ("linear", "spline"), ["resample", "interpolation", "spline"]),
    ("group", GROUP, ("queue_size: 5", "queue_sise: 5"), ["group", "queue_sise", "queue_size"]),
    ("group", GROUP, ("queue_size: 5", "queue_size: 0"), ["group", "queue_size", "0", "1 to 10000"]),
    ("group", GROUP, ("queue_size: 5", "max_held_mb: -1"), ["group", "max_held_mb", "-1", "above 0"]),
    ("group", GROUP, ("policy: approximate", "policy: nearest"), ["group", "policy", "nearest", "approximate", "exact", "epsilon"]),
    ("group", GROUP, ("policy: approximate", "policy: exact"), ["inputs[0].min_period_ms", "exact", "approximate"]),
    ("group", GROUP, ("policy: approximate", "policy: exact\n  age_penalty: 0.5"), ["age_penalty", "exact", "approximate"]),
    ("group", GROUP, ("policy: approximate", "policy: approximate\n  age_penalty: -0.5"), ["age_penalty", "-0.5", "0 to 1000"]),
    ("group", GROUP, ("policy: approximate", "policy: epsilon"), ["max_span_ms", "epsilon", "missing"]),
    ("group", GROUP, ("input: lidar", "input: camera"), ["inputs[1].input", "camera", "inputs[0]"]),
    ("group", GROUP, (", { input: lidar }", ""), ["inputs", "inputs is 1", "2 or more"]),
    ("group", GROUP, ("min_period_ms: 28", "min_period_ms: -28"), ["inputs[0].min_period_ms", "-28"]),
    ("node", "plugins: [GROUP, GROUP]".replace("GROUP", "{ group: { inputs: [{ input: a }, { input: b }] } }"), ("plugins", "# twice\nplugins"), ["publish `a`", "name:"]),
    ("node", NODE, ("- voxelize", "- voxelise"), ["plugins", "voxelise", "voxelize"]),
    ("node", NODE, ("[1, 1, 1]", "[1, 1, 0]"), ["voxelize", "voxel_size_m"]),
    ("node", NODE, (NODE, "plugins: []"), ["plugins", "empty"]),
    ("node", NODE, (NODE, "voxelize: {}"), ["`plugins:` is missing", "plugins: [", "voxelize"]),
    ("fuse", FUSE, ("fuse:", "fuse: {}\nfuse:"), ["`fuse` is given twice", "line 3 column 1"]),
    ("fuse", FUSE, ("window: 2", "window: 2\n  window: 3"), ["`window` is given twice", "line 5 column 3"]),
    ("fuse", FUSE, ("6, interpolation: linear", "6, interpolation: linear, max_age_ms: 5"), ["modalities[0].max_age_ms", "linear", "max_gap_ms"]),
    ("fuse", FUSE, ("[2, 4], interpolation: previous", "[2, 4], interpolation: previous, extrapolate_ms: 5"), ["groups[1].extrapolate_ms", "previous"]),
    ("align", FUSE.replace("fuse:", "align:"), ("6, interpolation: linear", "6, interpolation: nearest, max_gap_ms: 5"), ["modalities[0].max_gap_ms"]),
    ("resample", RESAMPLE, ("max_gap_ms", "max_age_ms"), ["resample", "max_age_ms", "linear", "max_gap_ms"]),
    ("record", RECORD, ("path", "pth"), ["record", "pth", "path"]),
    ("record", RECORD, ("recording", "[1]"), ["record", "path"]),
    ("replay", REPLAY, ("speed", "sped"), ["replay", "sped", "speed"]),
    ("replay", REPLAY, ("max", "-1.0"), ["replay", "speed", "-1"]),
    ("replay", REPLAY, ("max", "fast"), ["replay", "speed", "fast", "max"]),
    ("replay", REPLAY, (": recording", ": not_there"), ["replay", "not_there"]),
]


@pytest.mark.parametrize(("node", "config", "change", "said"), CASES, ids=[f"{node}: {change[1][:40]!r}" for node, _, change, _ in CASES])
def test_a_bad_configuration_ends_the_node_with_code_2_and_names_the_place(tmp_path, node, config, change, said):
    old, new = change
    assert config.count(old) == 1, "the case must change one place"
    code, words = refusal(node, config.replace(old, new), tmp_path)
    assert code == 2, words
    assert "config.yml" in words
    for word in said:
        assert word in words, f"{word!r} is not in: {words}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fuse: " + "[" * 100_000, "deep"),
        ("fuse: " + "{a: " * 100_000 + "}" * 100_000, "deep"),
        ("fuse:\n  " + "- " * 100_000, "recursion"),
        ("fuse: " + "a" * 5_000_000, "longer than"),
        ("fuse: [" + "1, " * 2_000_000 + "]", "longer than"),
    ],
    ids=["brackets", "maps", "lists", "long", "wide"],
)
def test_a_text_that_would_take_the_parser_long_is_refused_at_once(tmp_path, text, said):
    with cpu_below(5):
        code, words = refusal("fuse", text, tmp_path)
    assert code == 2 and "config.yml" in words and said in words, words[:500]
    assert len(words) < 1000


def command(name: str, *arguments, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([binary(name), *arguments], capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL, env=env)


NAMES = ["align", "fuse", "group", "node", "record", "replay", "resample", "sim", "voxelize"]


@pytest.mark.parametrize("name", NAMES)
def test_a_node_says_what_it_is_without_a_dataflow(name):
    for flag in ("--help", "-h"):
        done = command(name, flag)
        assert done.returncode == 0 and not done.stderr
        words = [f"robocache-{name}", "--config", "--check", "--version", "ROBOCACHE_CONFIG", "RUST_LOG", "Exit codes", f"  {name if name != 'node' else 'fuse'} "]
        assert all(word in done.stdout for word in words), done.stdout
    for flag in ("--version", "-V"):
        done = command(name, flag)
        assert done.returncode == 0 and done.stdout.startswith(f"robocache-{name} (robocache 0."), done.stdout


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("fuse", FUSE, "fuse: takes force, proprio; publishes fused"),
        ("fuse", "device: cuda:77\n" + FUSE, "publishes fused"),
        ("align", FUSE.replace("fuse:", "align:"), "publishes force, proprio"),
        ("voxelize", VOXELIZE, "voxelize: takes lidar; publishes voxels"),
        ("group", GROUP, "group: takes camera, lidar; publishes camera, lidar"),
        ("resample", RESAMPLE, "takes trajectories; publishes resampled"),
        ("node", NODE, "takes lidar; publishes voxels"),
        ("record", RECORD, "can be used"),
        ("sim", "sim: { seed: 1 }", "publishes camera, force, proprio, lidar"),
    ],
    ids=["fuse", "no device", "align", "voxelize", "group", "resample", "node", "record", "sim"],
)
def test_a_configuration_can_be_checked_without_a_dataflow(tmp_path, name, config, said):
    path = tmp_path / "config.yml"
    path.write_text(config)
    without_dora = {key: value for key, value in os.environ.items() if not key.startswith("DORA_")}
    for arguments in (["--check", path], ["--config", path, "--check"]):
        done = command(name, *arguments, env=without_dora)
        assert done.returncode == 0 and "can be used" in done.stdout and said in done.stdout, done.stdout + done.stderr
    done = command(name, "--check", env={**without_dora, "ROBOCACHE_CONFIG": str(path)})
    assert done.returncode == 0, done.stderr
    path.write_text(config + "\nfuze: 1")
    done = command(name, "--check", path, env=without_dora)
    assert done.returncode == 2 and "fuze" in done.stderr and not done.stdout, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["config.yml"], "checking leaves nothing behind"


def test_outputs_that_nobody_publishes_are_named(flow):
    flow.sender([send("force", np.zeros(6, np.float32), 0)])
    modalities = [{"input": "force", "dim": 6, "interpolation": "linear"}]
    flow.robocache("fuse", {"fuse": {"rate_hz": 50, "modalities": modalities}}, {"force": "sender/force"}, ["fused", "fuzed"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    (line,) = [line for line in done.logs["fuse"].splitlines() if "fuzed" in line]
    assert line.startswith("WARN output `fuzed`") and "published: fused" in line
    assert len(done.received("sink")) == 1


@pytest.mark.parametrize("arguments", [[], ["--config"], ["--config", "nowhere.yml"], ["--confg", "x.yml"]])
def test_a_command_line_that_names_no_file(tmp_path, arguments):
    done = subprocess.run([binary("fuse"), *arguments], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "config" in done.stdout + done.stderr


def test_in_a_dataflow_the_refusal_stops_it_before_it_starts(flow):
    flow.sender([], name="sensors")
    config = {"fuse": {"rate_hz": 50, "windov": 2, "modalities": []}}
    flow.robocache("fuse", config, {"force": "sensors/force"}, ["fused"])
    flow.nodes[0]["outputs"] = ["force"]
    flow.collector({"fused": "fuse/fused"})
    done = flow.run(code=None)
    assert done.code != 0
    assert "windov" in done.logs["fuse"]
    assert "fuse" in done.output and "2" in done.output
    assert not (flow.folder / "sink.pickle").exists() or done.received("sink") == []


def test_an_input_that_the_yaml_does_not_wire(flow):
    flow.sender([], name="sensors")
    modalities = [{"input": name, "dim": 6, "interpolation": "linear"} for name in ("force", "torque")]
    flow.robocache("fuse", {"fuse": {"rate_hz": 50, "modalities": modalities}}, {"force": "sensors/force"}, ["fused"])
    flow.nodes[0]["outputs"] = ["force"]
    done = flow.run(code=None)
    assert done.code != 0
    assert "torque" in done.logs["fuse"] and "force" in done.logs["fuse"], done.logs["fuse"]
    assert "exited with code 2" in done.output or "code: 2" in done.output or "exit code 2" in done.output, done.output
