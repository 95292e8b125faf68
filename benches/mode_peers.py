"""Measures modes of interpolation by NumPy, by SciPy and as in tf2, on the shapes of `robocache-bench modes`: see peers.py.

Times of a peer are float64 and count from the first sample, which is exact. Quaternions have length 1. No peer computes
validity or ages.
"""

import importlib.metadata
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator, make_interp_spline
from scipy.spatial.transform import Rotation

TURN = np.float32(2 * np.pi)

# The batch: number of trajectories, samples and targets of each, values of a sample
ROWS, SAMPLES, TARGETS, DIM = 64, 4096, 1024, 32
BATCH = f"{ROWS}x{SAMPLES}->{TARGETS}x{DIM} float32"
SPAN_NS = 5_000_000_000
# The streams of a robot: period in ns and number of values of its camera, its arm and its force sensor
STREAMS = [(33_333_333, 128), (2_000_000, 15), (1_000_000, 6)]
COLUMNS = sum(dim for _, dim in STREAMS)
WINDOW, STEP_NS, DURATION_NS = 16, 20_000_000, 10_000_000_000
# Shift of all stamps, so that no target is at a sample.
BETWEEN_NS = 700_000
# Part of a stream that a user would keep, ns: the window and the wait
KEPT_NS = WINDOW * STEP_NS + 80_000_000
LIVE = f"live, T = {WINDOW}, 128+15+6 columns, float32, one observation"
# Columns of the arm's stream: seven joint angles, a quaternion, and other values
ANGLES, QUATERNION, REST = slice(0, 7), slice(7, 11), slice(11, 15)


def percentiles(us: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(us, [50, 99], method="nearest")
    return {"us_p50": round(float(p50), 1), "us_p99": round(float(p99), 1)}


def row(op: str, peer: str, config: str, us: dict[str, float]) -> None:
    print(json.dumps({"op": op, "peer": peer, "config": config, **us}), flush=True)


def name(package: str) -> str:
    return f"{package} {importlib.metadata.version(package.lower())}"


# NumPy, all columns at once


def around(times: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the indices of the samples before and after each target, and the weight of the later sample, [T, 1]."""
    after = np.searchsorted(times, targets, side="right").clip(1, len(times) - 1)
    before = after - 1
    start = times[before]
    return before, after, ((targets - start) / (times[after] - start)).astype(np.float32)[:, None]


def linear(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return a + weight * (b - a)


def angle(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    d = b - a
    d -= TURN * np.rint(d / TURN)
    value = a + weight * d
    value -= TURN * np.rint(value / TURN)
    return value


def slerp(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Interpolates quaternions on the last axis; close quaternions linearly, with an error below that of float32."""
    dot = np.einsum("...i,...i->...", a, b)[..., None]
    sign, dot = np.copysign(np.float32(1), dot), np.minimum(np.abs(dot), 1)
    half, is_close = np.arccos(dot), dot > 0.9995
    scale = 1 / np.where(is_close, 1, np.sin(half))
    value = np.where(is_close, 1 - weight, np.sin((1 - weight) * half) * scale) * a
    value += np.where(is_close, weight, np.sin(weight * half) * scale) * sign * b
    return value / np.sqrt(np.einsum("...i,...i->...", value, value))[..., None]


def curve(times: np.ndarray, samples: np.ndarray, targets: np.ndarray, tangent) -> np.ndarray:
    """Interpolates by a cubic Hermite curve through the four samples around each target. The function `tangent` returns the slope
    at a sample, multiplied by the distance h of the two inner samples."""
    before, after, weight = around(times, targets)
    last = len(times) - 1
    left, right = np.maximum(before - 1, 0), np.minimum(after + 1, last)
    h, h_left, h_right = times[after] - times[before], times[before] - times[left], times[right] - times[after]
    a, b = samples[before], samples[after]
    d, d_left, d_right = b - a, a - samples[left], samples[right] - b
    hm = tangent(h, h_left, h_right, d, d_left, d_right)
    hn = tangent(h, h_right, h_left, d, d_right, d_left)
    return a + weight * (hm + weight * ((3 * d - 2 * hm - hn) + weight * (hm + hn - 2 * d)))


def bessel(h, outer, _other, d, d_outer, _d_other):
    has = outer > 0
    outer = np.where(has, outer, 1)
    inside = np.where(has, outer / (h + outer), 1).astype(np.float32)[:, None]
    outside = np.where(has, h / outer * (h / (h + outer)), 0).astype(np.float32)[:, None]
    return inside * d + outside * d_outer


def monotone(h, outer, other, d, d_outer, d_other):
    """Returns the slope of PCHIP, a monotone cubic, at a sample, multiplied by the distance h to the sample at the other end of the
    interval."""
    whole = 3 * (h + outer)
    has = outer > 0
    inside = ((h + 2 * outer) / whole).astype(np.float32)[:, None]
    outside = ((2 * h + outer) / whole * (outer / h)).astype(np.float32)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(d * d_outer > 0, d / (inside + outside * (d / d_outer)), 0)
    if has.all():
        return inner
    near = ((2 * h + other) / (h + other)).astype(np.float32)[:, None]
    far = np.where(has, 0, h / (h + other) * (h / np.where(other > 0, other, 1))).astype(np.float32)[:, None]
    end = near * d - far * d_other
    end = np.where(end * d <= 0, 0, np.where((d * d_other <= 0) & (np.abs(end) > 3 * np.abs(d)), 3 * d, end))
    return np.where(has[:, None], inner, end)


# SciPy


def bessel_slopes(times: np.ndarray, samples: np.ndarray) -> np.ndarray:
    h = np.diff(times)[:, None]
    d = np.diff(samples, axis=0) / h
    return np.concatenate([d[:1], (h[1:] * d[:-1] + h[:-1] * d[1:]) / (h[:-1] + h[1:]), d[-1:]])


def scipy_cubic(times: np.ndarray, samples: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return CubicHermiteSpline(times, samples, bessel_slopes(times, samples))(targets)


def scipy_pchip(times: np.ndarray, samples: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return PchipInterpolator(times, samples)(targets)


def scipy_linear(times: np.ndarray, samples: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return make_interp_spline(times, samples, k=1)(targets)


def scipy_slerp(times: np.ndarray, samples: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Interpolates as SciPy's `Slerp` does, but all quaternions at once, and only between the samples that a target needs."""
    before, after, weight = around(times, targets)
    count = samples.shape[1] // 4
    a, b = (Rotation.from_quat(samples[at].reshape(-1, 4)) for at in (before, after))
    turned = a * Rotation.from_rotvec(np.repeat(weight, count, axis=0) * (a.inv() * b).as_rotvec())
    return turned.as_quat().reshape(len(targets), -1)


# A batch of trajectories


def numpy_row(mode: str, times: np.ndarray, samples: np.ndarray, targets: np.ndarray) -> np.ndarray:
    if mode in ("cubic", "pchip"):
        return curve(times, samples, targets, bessel if mode == "cubic" else monotone)
    before, after, weight = around(times, targets)
    a, b = samples[before], samples[after]
    if mode == "slerp":
        shape = (len(targets), -1, 4)
        return slerp(a.reshape(shape), b.reshape(shape), weight[:, None]).reshape(len(targets), -1)
    return (angle if mode == "angle" else linear)(a, b, weight)


SCIPY = {
    "linear": ("make_interp_spline", scipy_linear),
    "slerp": ("Rotation", scipy_slerp),
    "cubic": ("CubicHermiteSpline", scipy_cubic),
    "pchip": ("PchipInterpolator", scipy_pchip),
}
MODES = ["linear", "angle", "slerp", "cubic", "pchip"]


def check(mode: str, values: np.ndarray, expected: np.ndarray, what: str) -> None:
    if mode == "slerp":
        parts = [array.reshape(-1, 4) for array in (values, expected)]
        off = np.minimum(*(np.abs(parts[0] + sign * parts[1]).max(axis=1) for sign in (1, -1))).max()
    else:
        off = np.abs(values - expected).max()
    if not off < 2e-5:
        raise SystemExit(f"{what}: off by {off} from SciPy")


def batch() -> None:
    random = np.random.default_rng(0)
    period = SPAN_NS // SAMPLES
    times = np.arange(SAMPLES) * period + random.integers(0, period // 2, (ROWS, SAMPLES))
    times = (times - times[:, :1]).astype(np.float64)
    targets = np.sort(random.uniform(0, times[:, -1:], (ROWS, TARGETS)), axis=1)
    out = np.empty((ROWS, TARGETS, DIM), np.float32)

    def measure(mode: str, peer: str, work, batches: list, rounds: int) -> None:
        taken = []
        for turn in range(1 + rounds):
            for samples in batches:
                start = time.perf_counter_ns()
                for i in range(ROWS):
                    out[i] = work(times[i], samples[i], targets[i])
                if turn:
                    taken.append((time.perf_counter_ns() - start) / 1e3)
        row("resample", peer, f"{BATCH}, {mode}", percentiles(taken))

    plain = [random.uniform(-1, 1, (ROWS, SAMPLES, DIM)).astype(np.float32) for _ in range(4)]
    for mode in MODES:
        batches = plain
        if mode == "slerp":
            parts = [samples.reshape(ROWS, SAMPLES, -1, 4) for samples in plain]
            batches = [(p / np.linalg.norm(p, axis=-1, keepdims=True)).reshape(ROWS, SAMPLES, DIM) for p in parts]
        if mode in SCIPY:
            first = (times[0], batches[0][0], targets[0])
            check(mode, numpy_row(mode, *first), SCIPY[mode][1](*first), f"resample, {mode}, NumPy")
        measure(mode, f"{name('NumPy')}, all columns", lambda t, p, at, m=mode: numpy_row(m, t, p, at), batches, 2)
        if mode in SCIPY:
            what, work = SCIPY[mode]
            measure(mode, f"{name('SciPy')} {what}", work, batches[:2] if mode == "slerp" else batches, 1)


# One observation of a robot


class Robot:
    """Ten seconds of a robot's streams, and the targets of its observations."""

    def __init__(self):
        self.times, self.samples = [], []
        for period, dim in STREAMS:
            count = DURATION_NS // period
            self.times.append((np.arange(count) * period + BETWEEN_NS).astype(np.float64))
            samples = np.sin(np.arange(97 * dim) * 0.37).reshape(97, dim)[np.arange(count) % 97]
            self.samples.append(samples.astype(np.float32))
        turn = self.samples[1][:, QUATERNION]
        turn /= np.linalg.norm(turn, axis=1, keepdims=True)
        # Two samples of each stream must follow the last target, since `cubic` needs both.
        end = min(times[-2] for times in self.times)
        self.targets = np.arange(2_000_000_000, end, STEP_NS)

    def observations(self, observe) -> tuple[list[float], np.ndarray]:
        """Makes all observations by `observe`, which gets only the samples around each target, as a user would keep them. Returns
        the time of each observation, us, and the values."""
        taken, made = [], []
        for target in self.targets:
            kept = []
            for times, samples in zip(self.times, self.samples, strict=True):
                part = slice(*np.searchsorted(times, [target - KEPT_NS, target]))
                part = slice(part.start, part.stop + 2)
                kept.append((times[part], samples[part]))
            out = np.empty((WINDOW, COLUMNS), np.float32)
            start = time.perf_counter_ns()
            observe(kept, target + np.arange(1 - WINDOW, 1) * float(STEP_NS), out)
            taken.append((time.perf_counter_ns() - start) / 1e3)
            made.append(out)
        return taken, np.stack(made)

    def write(self, path: pathlib.Path) -> None:
        """Writes streams and targets to a file, as tf2_like.cpp reads them."""
        with path.open("wb") as file:
            for times, samples in zip(self.times, self.samples, strict=True):
                file.write(np.int64(len(times)).tobytes() + times.astype(np.int64).tobytes() + samples.tobytes())
            file.write(np.int64(len(self.targets)).tobytes() + self.targets.astype(np.int64).tobytes())


def observer(arm):
    """Makes a function that computes an observation: the camera's newest frame, the arm's joints and pose by the function `arm`,
    and the force by linear interpolation."""

    def observe(kept, targets, out):
        (times, frames), (arm_times, arm_samples), (force_times, force) = kept
        out[:, :128] = frames[np.searchsorted(times, targets, side="right") - 1]
        arm(arm_times, arm_samples, targets, out[:, 128:143])
        before, after, weight = around(force_times, targets)
        out[:, 143:] = linear(force[before], force[after], weight)

    return observe


def arm_linear(times, samples, targets, out):
    before, after, weight = around(times, targets)
    out[:] = linear(samples[before], samples[after], weight)


def arm_mixed(times, samples, targets, out):
    before, after, weight = around(times, targets)
    a, b = samples[before], samples[after]
    out[:, ANGLES] = angle(a[:, ANGLES], b[:, ANGLES], weight)
    out[:, QUATERNION] = slerp(a[:, QUATERNION], b[:, QUATERNION], weight)
    out[:, REST] = linear(a[:, REST], b[:, REST], weight)


def arm_mixed_scipy(times, samples, targets, out):
    before, after, weight = around(times, targets)
    a, b = samples[before], samples[after]
    out[:, ANGLES] = angle(a[:, ANGLES], b[:, ANGLES], weight)
    out[:, QUATERNION] = scipy_slerp(times, samples[:, QUATERNION], targets)
    out[:, REST] = linear(a[:, REST], b[:, REST], weight)


def arm_of(work):
    def arm(times, samples, targets, out):
        out[:] = work(times, samples, targets)

    return arm


def live(tf2_like: pathlib.Path) -> None:
    robot = Robot()
    numpy, scipy = name("NumPy"), name("SciPy")
    mixed = "angle + slerp + linear"
    expected = {}
    for mode, peer, arm in [
        ("linear", f"{numpy}, all columns", arm_linear),
        (mixed, f"{numpy}, all columns", arm_mixed),
        (mixed, f"{scipy} Rotation, the rest NumPy", arm_mixed_scipy),
        ("cubic", f"{numpy}, all columns", arm_of(lambda *of: curve(*of, bessel))),
        ("cubic", f"{scipy} CubicHermiteSpline", arm_of(scipy_cubic)),
        ("pchip", f"{numpy}, all columns", arm_of(lambda *of: curve(*of, monotone))),
        ("pchip", f"{scipy} PchipInterpolator", arm_of(scipy_pchip)),
    ]:
        taken, made = robot.observations(observer(arm))
        check_observation(made, expected.setdefault(mode, made), f"{mode}, {peer}")
        row("fuse", peer, f"{LIVE}, {mode}, between samples", percentiles(taken))
    with tempfile.TemporaryDirectory() as folder:
        streams, out = pathlib.Path(folder) / "streams", pathlib.Path(folder) / "out"
        robot.write(streams)
        for mode in ("linear", mixed):
            command = [tf2_like, streams, out, "mixed" if mode == mixed else "linear"]
            us = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            made = np.fromfile(out, np.float32).reshape(-1, WINDOW, COLUMNS)
            check_observation(made, expected[mode], f"{mode}, tf2")
            row("fuse", "C++ as in tf2", f"{LIVE}, {mode}, between samples", percentiles([float(one) for one in us]))


def check_observation(made: np.ndarray, expected: np.ndarray, what: str) -> None:
    arm = slice(128, 143)
    of = np.r_[0:128, 143:149, 128:135, 139:143]
    check("linear", made[..., of], expected[..., of], what)
    turn = (made[..., arm][..., QUATERNION], expected[..., arm][..., QUATERNION])
    check("slerp" if "slerp" in what else "linear", *turn, what)


def main(tf2_like: str) -> None:
    batch()
    live(pathlib.Path(tf2_like))
