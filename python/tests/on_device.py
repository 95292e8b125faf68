"""Tests with arrays on a GPU, of the kind in the environment variable GPU. test_devices.py runs them on the emulated drivers of
tests/emulator.

The class `Device` stands for an array of a GPU library: its memory is on the first device, and its library is this module.
"""

import os
import sys

import numpy as np
import pytest

import robocache as rc
from made import snake

N = 2000
GPU = os.environ["GPU"]
# DLPack's kind of the memory, number of the default stream, and a number that is not a stream.
DLPACK, DEFAULT_STREAM, NO_STREAM = {"cuda": (2, 1, 0), "hip": (10, 0, 1)}[GPU]


class Device:
    """An array on the first GPU, as another library would have it: it speaks DLPack, and records the CUDA streams
    that consumers pass."""

    streams: list = []

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, *, stream=None, max_version=None):
        Device.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, max_version=max_version)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __getitem__(self, index):
        return Device(rc.Tensor.from_dlpack(host(self)[host(index)]).to(f"{GPU}:0"))


def from_dlpack(tensor) -> Device:
    """Makes a `Device` array of a tensor. Because this module has the function, robocache takes it for a library of arrays."""
    return Device(tensor)


sys.modules[__name__.partition(".")[0]] = sys.modules[__name__]


def on_gpu(array) -> Device:
    return Device(rc.Tensor.from_dlpack(np.ascontiguousarray(array)).to(f"{GPU}:0"))


def host(array: Device) -> np.ndarray:
    assert isinstance(array, Device) and array.__dlpack_device__() == (DLPACK, 0)
    tensor = array.tensor.to("cpu")
    return np.from_dlpack(tensor.bits() if tensor.dtype == "bfloat16" else tensor)


def check(got: Device, wanted: np.ndarray) -> None:
    got = host(got)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def test_there_and_back():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    check(on_gpu(array), array)
    assert on_gpu(array).tensor.device == f"{GPU}:0"
    with pytest.raises(ValueError, match="from cpu to cuda:N or hip:N, and back"):
        on_gpu(array).tensor.to(f"{GPU}:1")
    with pytest.raises(ValueError, match=f"stream {NO_STREAM}"):
        on_gpu(array).tensor.__dlpack__(stream=NO_STREAM)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("mode", ["linear", "previous", "nearest", "cubic", "pchip"])
def test_resample(rng, dtype, shared, mode):
    times = np.cumsum(rng.integers(1, 20_000_000, (5, 40)), axis=1)
    values = rng.normal(size=(5, 40, 3)).astype(dtype)
    values[2, 7, 1] = np.nan
    targets = np.sort(rng.integers(-5_000_000, 500_000_000, 33 if shared else (5, 33)))
    limits = {"max_age_ms": 8} if mode in ("previous", "nearest") else {"max_gap_ms": 18, "extrapolate_ms": 4}
    wanted = rc.resample(times, values, targets, interpolation=mode, **limits)
    got = rc.resample(on_gpu(times), on_gpu(values), on_gpu(targets), interpolation=mode, **limits)
    check(got.values, wanted.values)
    check(got.valid, wanted.valid)
    assert 0 < wanted.valid.sum() < wanted.valid.size and got.counters["invalid"] is None
    one = rc.resample(on_gpu(times[0]), on_gpu(values[0, :, 0]), on_gpu(targets if shared else targets[0]), interpolation=mode)
    check(one.values, rc.resample(times[0], values[0, :, 0], targets if shared else targets[0], interpolation=mode).values)


@pytest.mark.parametrize("layout", ["dense", "bits", "coo"])
def test_voxelize(rng, layout):
    points = rng.uniform(-3, 3, (N, 4)).astype(np.float32)
    points[5, 1], points[6, 3] = np.inf, np.nan
    channels = ["occupancy"] if layout == "bits" else ["occupancy", "count", "mean_x", "max_i"]
    config = {"origin_m": [-2] * 3, "voxel_size_m": [0.25] * 3, "shape": [16] * 3, "channels": channels, "layout": layout}
    wanted = rc.voxelize(points, fields=["x", "y", "z", "i"], config=config)
    got = rc.voxelize(on_gpu(points), fields=["x", "y", "z", "i"], config=config)
    assert got.counters == wanted.counters and got.unusable == wanted.unusable
    for name in ("values", "coords", "features"):
        if getattr(wanted, name) is not None:
            check(getattr(got, name), getattr(wanted, name))
    with pytest.raises(ValueError, match="several clouds"):
        rc.voxelize([on_gpu(points), points], fields=["x", "y", "z", "i"], config=config, inputs=["a", "a"])
    with pytest.raises(ValueError, match="dict of fields on a device"):
        rc.voxelize({name: on_gpu(points[:, i]) for i, name in enumerate("xyzi")}, config=config)


def test_fuse(rng):
    config = {
        "rate_hz": 50,
        "window": 4,
        "dtype": "bfloat16",
        "modalities": [
            {"input": "a", "dim": 3, "interpolation": "linear", "max_gap_ms": 30},
            {"input": "b", "dim": 2, "interpolation": "previous"},
        ],
    }
    streams = {
        name: (np.cumsum(rng.integers(1, 40_000_000, 100)), rng.normal(size=(100, dim)).astype(np.float32))
        for name, dim in (("a", 3), ("b", 2))
    }
    wanted = rc.fuse(streams, config)
    for device in (None, GPU):
        # Stamps may be on the host.
        got = rc.fuse({name: (times, on_gpu(values)) for name, (times, values) in streams.items()}, config, device=device)
        for name in ("fused", "valid", "age_ns", "timestamps_ns", "epoch"):
            check(getattr(got, name), getattr(wanted, name))
        same = rc.fuse(streams, config, device=device)
        assert same.fused.tobytes() == wanted.fused.tobytes() and isinstance(same.fused, np.ndarray)
    aligned = rc.align({name: (on_gpu(times), on_gpu(values)) for name, (times, values) in streams.items()}, config)
    check(aligned["b"].fused, np.ascontiguousarray(wanted.of("b")))


def test_streams(rng):
    times, values = np.arange(10), rng.normal(size=10)
    Device.streams.clear()
    rc.resample(on_gpu(times), on_gpu(values), on_gpu(times), stream=DEFAULT_STREAM)
    # The library gets the handle of the stream that reads its arrays, the same one for all of them.
    asked = [stream for stream in Device.streams if stream is not None]
    assert len(asked) == 3 and len(set(asked)) == 1 and asked[0] > 2
    with pytest.raises(ValueError, match=f"stream {NO_STREAM} "):
        rc.resample(on_gpu(times), on_gpu(values), on_gpu(times), stream=NO_STREAM)


def test_what_is_refused(rng):
    times, values = np.arange(10), rng.normal(size=10)
    with pytest.raises(ValueError, match=f"`times_ns` is on cpu, `values` on {GPU}:0"):
        rc.resample(times, on_gpu(values), on_gpu(times))
    with pytest.raises(ValueError, match="row 0: timestamp 1 is 8, but the one before it is 9"):
        rc.resample(on_gpu(times[::-1]), on_gpu(values), on_gpu(times))
    with pytest.raises(ValueError, match=r"out of range \(allowed: \+-2\^61\)"):
        rc.resample(on_gpu(times + 2**62), on_gpu(values), on_gpu(times))
    with pytest.raises(ValueError, match="`device` is cpu"):
        rc.resample(on_gpu(times), on_gpu(values), on_gpu(times), device="cpu")
    with pytest.raises(RuntimeError, match=f"{GPU}:77"):
        rc.Tensor.from_dlpack(values).to(f"{GPU}:77")


def test_two_devices(rng):
    times, values = np.arange(10), rc.Tensor.from_dlpack(rng.normal(size=10))
    try:
        values = values.to(f"{GPU}:1")
    except RuntimeError as error:
        pytest.skip(str(error))
    with pytest.raises(ValueError, match=f"`values` is on {GPU}:1, another array on {GPU}:0"):
        rc.resample(on_gpu(times), values, on_gpu(times))


def test_a_tensor_without_a_library_stays_one(rng):
    values = rc.Tensor.from_dlpack(rng.normal(size=10)).to(f"{GPU}:0")
    times = rc.Tensor.from_dlpack(np.arange(10)).to(f"{GPU}:0")
    assert isinstance(rc.resample(times, values, times).values, rc.Tensor)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_is_not_valid_is_marked_where_it_lies(monkeypatch, dtype):
    """Marks invalid values in place in an observation that came by a ring on the device."""
    import types

    values = np.arange(1, 7, dtype=np.float32)
    # NumPy has no bfloat16, so the values come from fuse.
    config = {"rate_hz": 50, "dtype": "bfloat16", "modalities": [{"input": "a", "dim": 1, "interpolation": "previous"}]}
    streams = {"a": (np.arange(6) * 20_000_000, values)}
    bfloat16_values = rc.offline._observe("fuse", streams, config, None, None, None)[0].values.reshape([6])
    metadata = {
        "shape": [2, 3], "timestamps_ns": [0, 20], "modalities": ["camera", "force"], "offsets": [0, 2, 3], "valid": [1, 0, 0, 1],
        "age_ns": [0, 0, 0, 0], "epoch": 0, "late_samples": 0, "dtype": dtype, "residence": "cuda",
    }  # fmt: skip

    def observed(**keywords) -> rc.Observation:
        tensor = bfloat16_values if dtype == "bfloat16" else rc.Tensor.from_dlpack(values.astype(dtype))
        tensor = tensor.to(f"{GPU}:0")
        resident = types.SimpleNamespace(device=f"{GPU}:0", columns={"": tensor})
        monkeypatch.setattr("robocache.messages.take", lambda metadata, copy: resident)
        return rc.Observation.from_message(None, metadata, **keywords)

    for invalid, wanted in ((np.nan, np.nan), (9.0, 9.0), (None, None)):
        got = observed(invalid=invalid)
        assert got.tensor.device == f"{GPU}:0"
        plain = values.reshape(2, 3).copy()
        if wanted is not None:
            plain[0, 2] = plain[1, :2] = wanted
        assert np.array_equal(got.fused.astype(np.float32), plain, equal_nan=True)
    whole = rc.Tensor.from_dlpack(np.zeros(4, np.int32)).to(f"{GPU}:0")
    with pytest.raises(ValueError, match="the values are int32, expected float32, float16 or bfloat16"):
        whole.fill([(0, 1)], 1.0)
    with pytest.raises(ValueError, match="the tensor is on the host"):
        rc.Tensor.from_dlpack(np.zeros(4, np.float32)).fill([(0, 1)], 1.0)
    with pytest.raises(ValueError, match=r"\[\(3, 5\)\] of 4 elements can't be written"):
        rc.Tensor.from_dlpack(np.zeros(4, np.float32)).to(f"{GPU}:0").fill([(3, 5)], 1.0)


# A chain whose number of joints has kernels, and a chain without.
@pytest.mark.parametrize("joints", [7, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_kinematics(rng, joints, dtype):
    links = [f"link{i}" for i in range(joints + 1)]
    chain = rc.Chain(snake(links), links[0], links[-1])
    q = rng.uniform(-2, 2, (3, 50, joints)).astype(dtype)
    dq = rng.normal(size=q.shape).astype(dtype)
    q[0, 3, 1] = np.nan
    there = on_gpu(q)
    if GPU != "cuda":
        with pytest.raises(ValueError, match=rf"^`q` is on {GPU}:0, where kinematics does not compute yet \(allowed: the host, CUDA\)"):
            chain.fk(there)
        return
    check(chain.fk(there), chain.fk(q))
    check(chain.fk(there, links=[links[-1], links[1]]), chain.fk(q, links=[links[-1], links[1]]))
    for frame in ("base", "tool", "spatial"):
        check(chain.jacobian(there, frame), chain.jacobian(q, frame))
        check(chain.velocity(there, on_gpu(dq), frame), chain.velocity(q, dq, frame))
    check(chain.manipulability(there), chain.manipulability(q))

    poses = chain.fk(q)
    task = "pose" if joints == 7 else "position"
    seeds = np.clip(q, -1, 1)
    for seed in (None, np.full(joints, 0.1, dtype), seeds):
        for select in ("first", "nearest"):
            keywords = dict(task=task, select=select)
            here = chain.ik(poses, seed, **keywords)
            got = chain.ik(on_gpu(poses), None if seed is None else on_gpu(seed), **keywords)
            for name, wanted in vars(here).items():
                check(getattr(got, name), wanted)
    here, got = chain.ik_path(poses, seeds[:, 0], task=task), chain.ik_path(on_gpu(poses), on_gpu(seeds[:, 0]), task=task)
    for name, wanted in vars(here).items():
        check(getattr(got, name), wanted)
    check(chain.ik(on_gpu(poses[:0])).joints, chain.ik(poses[:0]).joints)
    check(chain.ik_path(on_gpu(poses[:, :0])).branch, chain.ik_path(poses[:, :0]).branch)

    with pytest.raises(ValueError, match=r"^`dq` is on cpu, `q` on cuda:0 \(allowed: all on one device\)"):
        chain.velocity(there, dq)
    with pytest.raises(ValueError, match=r"^`seed` is on cuda:0, `poses` on cpu"):
        chain.ik(poses, on_gpu(seeds))
    with pytest.raises(ValueError, match=r"^`poses` is on cuda:0, where `select` \"all\" does not compute yet .*`poses\.cpu\(\)`"):
        chain.ik(on_gpu(poses), select="all")
    with pytest.raises(ValueError, match=r"^`actions` is on cuda:0, where actions are not converted .*`actions\.cpu\(\)`"):
        rc.actions.convert(there, kind="joint", to="delta_joint", reference=on_gpu(q[:, 0]))
