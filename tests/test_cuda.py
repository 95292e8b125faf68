"""The CUDA backend in dataflows, on the driver of tests/emulator, which runs the kernels on the CPU (`make emulator`).

With ROBOCACHE_TEST_GPU=1, tests that do not need the emulator run on the machine's own GPU, and the others are skipped.
"""

import os

import numpy as np
import pyarrow as pa
import pytest

from harness import ROOT, on_device, refusal, said, same_bits, send
from oracle import MS
from test_ring import check_rings

EMULATOR = ROOT / "target" / "emulator"
ON_GPU = os.environ.get("ROBOCACHE_TEST_GPU") == "1"
CLOUDS = 8


@pytest.fixture(autouse=True)
def emulator():
    if not ON_GPU and not (EMULATOR / "libcuda.so.1").exists():
        pytest.fail("the emulator is not built: make emulator")


def need_emulator() -> None:
    if ON_GPU:
        pytest.skip("only the emulator can play this machine")


def device(library: str = "emulator", **knobs) -> dict:
    """Environment in which a node finds a device; `knobs` are settings of the emulator, as in tests/emulator/README.md."""
    if library != "emulator" or knobs:
        need_emulator()
    if ON_GPU:
        return {}
    return {"LD_LIBRARY_PATH": ROOT / "target" / library, **{f"EMULATOR_{key.upper()}": value for key, value in knobs.items()}}


def clouds() -> list[tuple]:
    rng = np.random.default_rng(3)
    steps = []
    for i in range(1, CLOUDS + 1):
        fields = {axis: rng.normal(0, 3, 6000).astype(np.float32) for axis in "xyz"}
        fields["intensity"] = rng.uniform(0, 100, 6000).astype(np.float32)
        fields["x"][::71] = np.nan
        struct = pa.StructArray.from_arrays([pa.array(values) for values in fields.values()], list(fields))
        steps.append(send("lidar", struct, 100 * i * MS))
    return steps


def voxelize(layout: str = "coo") -> dict:
    channels = ["occupancy"] if layout == "bits" else ["count", "mean_x", "mean_z", "max_intensity"]
    shape = {"origin_m": [-6.4, -6.4, -3.2], "voxel_size_m": [0.2, 0.2, 0.2], "shape": [64, 64, 32]}
    return {"voxelize": {**shape, "channels": channels, "layout": layout, "inputs": [{"input": "lidar"}]}}


def samples() -> list[tuple]:
    rng = np.random.default_rng(4)
    times = np.sort(rng.choice(400, 150, replace=False))
    return [send("force", rng.normal(0, 1, 96).astype(np.float32), t * MS) for t in times]


def fuse() -> dict:
    rule = {"input": "force", "dim": 96, "interpolation": "linear", "max_gap_ms": 8}
    return {"fuse": {"rate_hz": 50, "window": 16, "fill_value": -1.0, "modalities": [rule]}}


def trajectories(rows: int = 24) -> list[tuple]:
    rng = np.random.default_rng(5)
    steps = []
    for _ in range(6):
        columns = {"timestamps_ns": [], "values": [], "targets_ns": []}
        for _ in range(rows):
            n = rng.integers(1, 200)
            times = np.sort(rng.choice(2000, n, replace=False)) * MS
            values = rng.normal(0, 1, n * 7).astype(np.float32)
            values[rng.random(len(values)) < 0.002] = np.nan
            columns["timestamps_ns"].append(times)
            columns["values"].append(values)
            columns["targets_ns"].append(np.sort(rng.integers(0, 2000, 100)) * MS)
        kinds = {"timestamps_ns": pa.int64(), "values": pa.float32(), "targets_ns": pa.int64()}
        struct = pa.StructArray.from_arrays([pa.array(rows, pa.list_(kinds[name])) for name, rows in columns.items()], list(columns))
        steps.append(send("trajectories", struct, 1, dim=7))
    return steps


RESAMPLE = {"resample": {"interpolation": "linear", "max_gap_ms": 40}}
WORK = {
    "coo": ("voxelize", voxelize("coo"), clouds, "lidar", "voxels"),
    "dense": ("voxelize", voxelize("dense"), clouds, "lidar", "voxels"),
    "bits": ("voxelize", voxelize("bits"), clouds, "lidar", "voxels"),
    "fuse": ("fuse", fuse(), samples, "force", "fused"),
    "resample": ("resample", RESAMPLE, trajectories, "trajectories", "resampled"),
}


def add(flow, name: str, work: str, keys: dict, environment: dict | None = None) -> None:
    """Adds a node with the operation `work`, with `keys` beside its section, and a sink for its output."""
    kind, section, _, source, output = WORK[work]
    flow.robocache(kind, {**keys, **section}, {source: f"{work}_sender/{source}"}, [output], name=name)
    if environment:
        on_device(flow.nodes[-1], environment)
    flow.collector({output: f"{name}/{output}"}, name=f"{name}_sink")


def add_everywhere(flow, plugins: list, inputs: list[str], outputs: list[str], environment: dict) -> None:
    """Adds nodes `cpu`, `cuda` and `auto` that run the same plugins on these devices, and a sink for the outputs of each."""
    for name in ("cpu", "cuda", "auto"):
        wiring = {source: f"sender/{source}" for source in inputs}
        flow.robocache("node", {"device": name, "plugins": plugins}, wiring, outputs, name=name)
        if environment and name != "cpu":
            on_device(flow.nodes[-1], environment)
        flow.collector({output: f"{name}/{output}" for output in outputs}, name=f"{name}_sink")


def check_same_but_device(a: list, b: list) -> None:
    """Checks that two lists hold the same messages bit for bit, but for the device in their metadata."""
    assert len(a) == len(b) > 0
    for one, other in zip(a, b, strict=True):
        one_said, other_said = ({k: v for k, v in said(m.metadata).items() if not k.startswith("device")} for m in (one, other))
        assert one_said == other_said
        assert same_bits(one.values, other.values), one.metadata.get("timestamp_ns")


def devices(messages: list) -> list[str]:
    return [message.metadata["device"] for message in messages]


def test_every_operation_has_the_bits_of_the_cpu(flow):
    for work, (_, _, steps, _, _) in WORK.items():
        flow.sender(steps(), name=f"{work}_sender")
        add(flow, f"{work}_cpu", work, {"device": "cpu"})
        add(flow, f"{work}_cuda", work, {"device": "cuda:0"}, device())
    done = flow.run(timeout=180)
    for work in WORK:
        on_cpu, on_cuda = done.received(f"{work}_cpu_sink"), done.received(f"{work}_cuda_sink")
        check_same_but_device(on_cpu, on_cuda)
        assert {*devices(on_cpu)} == {"cpu"}
        assert {*devices(on_cuda)} == {"cuda:0"}
        assert all("device_bytes" not in m.metadata for m in on_cpu)
        assert all(m.metadata["device_bytes"] > 0 for m in on_cuda)
        assert "device cuda:0" in done.logs[f"{work}_cuda"] and "(asked for)" in done.logs[f"{work}_cuda"]


def test_auto_tries_both_and_leaves_small_work_to_the_cpu(flow):
    for work in ("coo", "fuse"):
        flow.sender(WORK[work][2](), name=f"{work}_sender")
        add(flow, f"{work}_cpu", work, {"device": "cpu"})
        add(flow, f"{work}_auto", work, {}, device())
    done = flow.run()
    for work in ("coo", "fuse"):
        check_same_but_device(done.received(f"{work}_cpu_sink"), done.received(f"{work}_auto_sink"))
    assert devices(done.received("coo_auto_sink"))[:4] == ["cuda:0"] * 4
    assert {*devices(done.received("fuse_auto_sink"))} == {"cpu"}
    assert "from now on" in done.logs["coo_auto"]


@pytest.mark.parametrize("work", ["coo", "dense", "resample"])
def test_where_a_device_fails_auto_goes_on_on_the_cpu_and_loses_nothing(flow, work):
    flow.sender(WORK[work][2](), name=f"{work}_sender")
    add(flow, "cpu", work, {"device": "cpu"})
    add(flow, "auto", work, {"device": "auto"}, device(fail_launch=6))
    done = flow.run()
    got = done.received("auto_sink")
    check_same_but_device(done.received("cpu_sink"), got)
    assert devices(got)[0] == "cuda:0" and devices(got)[-1] == "cpu"
    assert "continues on the CPU until a restart: cuda:0: " in done.logs["auto"]


@pytest.mark.parametrize("work", ["coo", "fuse", "resample"])
def test_where_a_device_that_was_asked_for_fails_the_node_ends_and_says_so(flow, work):
    flow.sender(WORK[work][2](), name=f"{work}_sender")
    add(flow, "lost", work, {"device": "cuda"}, device(fail_launch=6))
    done = flow.run(code=None)
    assert done.code != 0
    operation = WORK[work][0]
    assert f"ERROR {operation}: cuda:0: " in done.logs["lost"], done.logs["lost"]
    assert "CUDA_ERROR_" in done.logs["lost"]


def chain() -> dict:
    """Plugins that fuse grids, as one modality, with force, which is aligned first. Payloads between them stay in the process."""
    grid = voxelize("dense")["voxelize"] | {"shape": [16, 16, 8], "voxel_size_m": [0.8, 0.8, 0.8], "channels": ["count", "mean_z"]}
    force = {"input": "force", "dim": 96, "interpolation": "linear", "max_gap_ms": 8}
    aligned = {"rate_hz": 100, "fill_value": 0.5, "modalities": [force]}
    voxels = {"input": "voxels", "dim": 2 * 16 * 16 * 8, "interpolation": "previous", "max_age_ms": 150}
    smoothed = {**force, "max_gap_ms": 30}
    fused = {"rate_hz": 40, "window": 3, "modalities": [smoothed, voxels]}
    return {"plugins": [{"voxelize": grid}, {"align": aligned}, {"fuse": fused}]}


@pytest.mark.parametrize("published", [["fused"], ["fused", "force", "voxels"]])
def test_operations_of_one_process_hand_tensors_on_where_they_lie(flow, published):
    steps = sorted(clouds() + [step for step in samples() if step[3]["timestamp_ns"] > 0], key=lambda step: step[3]["timestamp_ns"])
    flow.sender(steps)
    add_everywhere(flow, chain()["plugins"], ["lidar", "force"], published, device())
    done = flow.run()
    for output in published:
        on_cpu = done.received("cpu_sink", output)
        for name in ("cuda", "auto"):
            check_same_but_device(on_cpu, done.received(f"{name}_sink", output))
        assert {*devices(done.received("cuda_sink", output))} == {"cuda:0"}


def rig() -> list[tuple]:
    """Clouds, an arm with angles, a quaternion and two curves at odd times, a camera, and a request for each frame."""
    rng = np.random.default_rng(6)
    steps = clouds()
    for i in range(600):
        turns, bend = rng.normal(0, 3, 4), rng.normal(0, 1, 8)
        steps.append(send("arm", np.concatenate([turns, rng.normal(0, 1, 4), bend]).astype(np.float32), i * 1_400_001 + 17))
    for i in range(20):
        frame = i * 33 * MS + int(rng.integers(0, 5 * MS))
        steps.append(send("camera", rng.normal(0, 1, 128).astype(np.float32), frame))
        steps.append(send("ask", np.array([i], np.int32), frame + i % 2, request_id=str(i)))
    return sorted(steps, key=lambda step: step[3]["timestamp_ns"])


@pytest.mark.parametrize("trigger", [{"stream": "camera", "rows": "samples"}, {"request": "ask"}])
def test_observations_on_demand_with_every_mode_and_a_grid_have_the_bits_of_the_cpu(flow, trigger):
    flow.sender(rig())
    modes = [("angle", {}), ("slerp", {"canonical": True}), ("cubic", {}), ("pchip", {})]
    groups = [{"channels": [4 * i, 4 * i + 4], "interpolation": mode, **keys} for i, (mode, keys) in enumerate(modes)]
    modalities = [
        {"input": "camera", "dim": 128, "interpolation": "nearest", "max_age_ms": 50, "wait": "stream" in trigger},
        {"input": "arm", "dim": 16, "interpolation": "linear", "groups": groups},
    ]
    attach = [{"input": "voxels", "max_age_ms": 150}]
    fuse = {"rate_hz": 60, "window": 4, "trigger": trigger, "modalities": modalities, "attach": attach}
    plugins = [voxelize("coo"), {"fuse": fuse}]
    outputs = ["fused", "grids", "observation"]
    inputs = ["lidar", "arm", "camera", *(["ask"] if "request" in trigger else [])]
    add_everywhere(flow, plugins, inputs, outputs, device())
    done = flow.run()
    for output in outputs:
        on_cpu = done.received("cpu_sink", output)
        assert len(on_cpu) >= 15
        for name in ("cuda", "auto"):
            check_same_but_device(on_cpu, done.received(f"{name}_sink", output))


@pytest.mark.parametrize("download", [2, 3, 6])
def test_a_tensor_that_can_not_be_fetched_from_the_device_is_not_sent_twice(flow, download):
    flow.sender(clouds())
    voxelizes = {"plugins": [plugin for plugin in chain()["plugins"] if "voxelize" in plugin]}
    grid = {"input": "voxels", "dim": 2 * 16 * 16 * 8, "interpolation": "previous", "max_age_ms": 150}
    voxelizes["plugins"].append({"fuse": {"rate_hz": 40, "modalities": [grid]}})
    for name, environment in {"cpu": {}, "auto": device(fail_download=download)}.items():
        flow.robocache("node", {"device": name, **voxelizes}, {"lidar": "sender/lidar"}, ["voxels"], name=name)
        if environment:
            on_device(flow.nodes[-1], environment)
        flow.collector({"voxels": f"{name}/voxels"}, name=f"{name}_sink")
    done = flow.run()
    got = done.received("auto_sink")
    check_same_but_device(done.received("cpu_sink"), got)
    assert devices(got)[-1] == "cpu"
    assert "continues on the CPU until a restart: cuda:0: " in done.logs["auto"]


def test_work_that_does_not_fit_the_memory_is_left_to_the_cpu(flow):
    flow.sender(trajectories(240), name="resample_sender")
    flow.sender(clouds(), name="coo_sender")
    add(flow, "resample_cpu", "resample", {"device": "cpu"})
    add(flow, "limited", "resample", {"device": "cuda", "max_device_mb": 0.2}, device())
    add(flow, "small", "resample", {"device": "cuda"}, device(memory_mb=1))
    add(flow, "nothing", "resample", {"device": "cuda"}, device(memory_mb=0))
    add(flow, "coo_cpu", "coo", {"device": "cpu"})
    add(flow, "no_room", "coo", {"device": "cuda", "max_device_mb": 0.01}, device())
    done = flow.run()
    for name, of in {"limited": "resample", "small": "resample", "nothing": "resample", "no_room": "coo"}.items():
        check_same_but_device(done.received(f"{of}_cpu_sink"), done.received(f"{name}_sink"))
        assert {*devices(done.received(f"{name}_sink"))} == {"cpu"}, done.logs[name]
        assert "goes to the CPU for 10 s" in done.logs[name]


@pytest.mark.parametrize(
    ("call", "first", "count"),
    [("allocation", 9, 0), ("copy", 12, 2), ("launch", 25, 0)],
)
def test_where_memory_runs_out_a_chain_publishes_what_the_cpu_does_and_goes_on(flow, call, first, count):
    steps = sorted(clouds() + [step for step in samples() if step[3]["timestamp_ns"] > 0], key=lambda step: step[3]["timestamp_ns"])
    flow.sender(steps)
    refused = device(**{f"refuse_{call}": first, "refuse_count": count})
    outputs = ["fused", "force", "voxels"]
    add_everywhere(flow, chain()["plugins"], ["lidar", "force"], outputs, refused)
    done = flow.run()
    for output in outputs:
        for name in ("cuda", "auto"):
            check_same_but_device(done.received("cpu_sink", output), done.received(f"{name}_sink", output))
    for name in ("cuda", "auto"):
        assert "out of device memory" in done.logs[name] or "CUDA_ERROR_OUT_OF_MEMORY" in done.logs[name], done.logs[name]
        assert "are lost" not in done.logs[name]


def test_several_devices_share_batches(flow):
    flow.sender(trajectories(), name="resample_sender")
    add(flow, "cpu", "resample", {"device": "cpu"})
    add(flow, "two", "resample", {"devices": [1, 0], "device": "cuda"}, device(devices=2))
    done = flow.run()
    check_same_but_device(done.received("cpu_sink"), done.received("two_sink"))
    assert "device cuda:1" in done.logs["two"] and ", cuda:0" in done.logs["two"]


@pytest.mark.parametrize(
    ("keys", "library", "expected"),
    [
        ("device: cuda", "nowhere", ["device: `cuda` can't be used", "no CUDA driver was found", "allowed on any machine: auto, cpu"]),
        ("device: cuda:1", "emulator", ["`cuda:1` can't be used", "there is no device cuda:1 (allowed: cuda:0 to cuda:0)"]),
        ("device: cuda", "emulator-no-device", ["`cuda` can't be used", "the CUDA driver"]),
        ("device: cuda", "emulator-no-symbol", ["the CUDA driver has no function cuStreamBeginCapture_v2"]),
        ("devices: [0, 7]", "emulator", ["devices: `devices: [0, 7]` can't be used", "there is no device cuda:7"]),
        ("device: cpu\ndevices: [0]", "emulator", ["[0] does not go with `device: cpu`"]),
        ("max_device_mb: -1", "emulator", ["max_device_mb: `-1` is not allowed"]),
    ],
)
def test_devices_that_can_not_be_had_are_refused_before_the_dataflow_is_joined(tmp_path, monkeypatch, keys, library, expected):
    need_emulator()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(ROOT / "target" / library))
    code, words = refusal("resample", f"{keys}\nresample: {{}}\n", tmp_path)
    assert code == 2
    for part in expected:
        assert part in words, words


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("nowhere", "no CUDA driver was found"),
        ("emulator-no-device", "the CUDA driver"),
        ("emulator-no-symbol", "the CUDA driver has no function"),
    ],
)
def test_auto_takes_the_cpu_where_there_is_no_device_and_says_why(flow, library, reason):
    flow.sender(clouds(), name="coo_sender")
    add(flow, "auto", "coo", {}, device(library))
    done = flow.run()
    assert {*devices(done.received("auto_sink"))} == {"cpu"}
    lines = [line for line in done.logs["auto"].splitlines() if "device cpu (auto: " in line]
    assert len(lines) == 1 and reason in lines[0]
    assert "panicked" not in done.logs["auto"]


@pytest.mark.parametrize("view", [False, True], ids=["copies", "where-they-lie"])
def test_what_comes_by_a_ring_on_the_device_is_what_comes_in_the_message(flow, view):
    log = check_rings(flow, "cuda", {"device": "cuda"}, device(), *["view"] * view)
    assert "payloads in 1 rings, 0 overwritten while in use, 0 not waited for" in log, log


def test_a_grid_of_a_device_comes_to_shared_memory_that_is_page_locked(flow):
    log = check_rings(flow, "shared", {"device": "cuda"}, device())
    assert "not page-locked" not in log, log
