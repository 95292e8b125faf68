"""Reference results of the operations, computed slowly and from a whole recording at once. No code is shared with the
engine."""

import dataclasses
import math

import ml_dtypes
import numpy as np

MS = 1_000_000
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class Samples:
    """The finite samples of one stream, in time order. Of two samples with the same time, the later arrival counts."""

    def __init__(self, stamps, values, latency_ns: int = 0):
        by_time = {}
        for stamp, value in zip(stamps, values, strict=True):
            if np.isfinite(value).all():
                by_time[int(stamp) - latency_ns] = value
        self.times = sorted(by_time)
        self.values = [np.asarray(by_time[time], np.float32) for time in self.times]

    def around(self, t: int) -> tuple[int | None, int | None]:
        """Indices of the newest sample at or before `t`, and of the oldest sample after `t`; None for one that does not exist."""
        after = int(np.searchsorted(np.array(self.times, np.int64), t, side="right"))
        return (after - 1 if after > 0 else None), (after if after < len(self.times) else None)


def value_at(samples: Samples, t: int, rule: dict) -> np.ndarray | None:
    """The value at t by `interpolation`, `max_age_ms`, `max_gap_ms` and `extrapolate_ms`; `None` if it is invalid."""
    left, right = samples.around(t)
    if left is not None and samples.times[left] == t:
        return samples.values[left]
    limit = lambda key, absent: round(rule[key] * MS) if rule.get(key) is not None else absent  # noqa: E731
    max_age, max_gap = limit("max_age_ms", math.inf), limit("max_gap_ms", math.inf)
    before = math.inf if left is None else t - samples.times[left]
    ahead = math.inf if right is None else samples.times[right] - t
    match rule["interpolation"]:
        case "previous":
            return samples.values[left] if left is not None and before <= max_age else None
        case "nearest":
            if min(before, ahead) > max_age or (left is None and right is None):
                return None
            return samples.values[left if before <= ahead else right]
        case "linear":
            if left is None:
                return None
            if right is None:
                return samples.values[left] if before <= limit("extrapolate_ms", 0) else None
            if before + ahead > max_gap:
                return None
            weight = np.float32(np.float64(before) / np.float64(before + ahead))
            a, b = samples.values[left], samples.values[right]
            return a + weight * (b - a)
    raise ValueError(rule["interpolation"])


@dataclasses.dataclass
class Observation:
    stamp: int
    times: list[int]
    values: np.ndarray
    valid: list[int]
    age: list[int]


def rules(modality: dict) -> list[tuple[slice, dict]]:
    """The range of channels of each group of a modality, and its rule: the interpolation and the limits."""
    groups = modality.get("groups") or [{"channels": [0, modality["dim"]]}]
    keys = ("interpolation", "max_age_ms", "max_gap_ms", "extrapolate_ms")
    own = {key: modality[key] for key in keys if key in modality}
    return [(slice(*group["channels"]), own | {key: group[key] for key in keys if key in group}) for group in groups]


def fuse(config: dict, streams: dict[str, tuple]) -> list[Observation]:
    """Every observation of `fuse:` (without `max_wait_ms`) over whole streams: `{input: (stamps, values)}`."""
    modalities = config["modalities"]
    samples = [Samples(*streams[m["input"]], round(m.get("latency_ms", 0) * MS)) for m in modalities]
    waits = [s for s, m in zip(samples, modalities, strict=True) if m.get("wait", True)]
    period = round(1e9 / config["rate_hz"])
    first = -(-max(s.times[0] for s in waits) // period)
    last = max(s.times[-1] for s in samples) // period
    window, stride = config.get("window", 1), config.get("stride", 1)
    fill = config.get("fill_value", 0.0)
    dtype = DTYPES[config.get("dtype", "float32")]
    known: dict[int, tuple] = {}

    def row(t: int) -> tuple[np.ndarray, list[int], list[int]]:
        if t not in known:
            values, valid, age = [], [], []
            for m, s in zip(modalities, samples, strict=True):
                out = np.full(m["dim"], fill, np.float32)
                found = [(channels, value_at(s, t, rule)) for channels, rule in rules(m)]
                for channels, value in found:
                    if value is not None:
                        out[channels] = value[channels]
                values.append(out)
                valid.append(int(all(value is not None for _, value in found)))
                left, _ = s.around(t)
                age.append(-1 if left is None else t - s.times[left])
            known[t] = np.concatenate(values).astype(dtype), valid, age
        return known[t]

    observations = []
    for index in range(first, last + 1, config.get("emit_every", 1)):
        times = [(index - back * stride) * period for back in reversed(range(window))]
        values, valid, age = zip(*map(row, times), strict=True)
        observations.append(Observation(times[-1], times, np.stack(values), sum(valid, []), sum(age, [])))
    return observations


@dataclasses.dataclass
class Voxels:
    """Occupied cells in cell order, and the values of each channel. The dict `means` has the float64 mean of a channel, and how far
    the engine's mean may be from it."""

    cells: np.ndarray
    channels: dict[str, np.ndarray]
    means: dict[str, tuple[np.ndarray, float]]
    counters: dict[str, int]


def rotation(xyzw) -> np.ndarray:
    x, y, z, w = np.asarray(xyzw, np.float64) / np.linalg.norm(xyzw)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def move(xyz: list[np.ndarray], extrinsic: dict | None) -> list[np.ndarray]:
    """Transforms points to the grid's frame, in float32."""
    x, y, z = (np.asarray(axis).astype(np.float32) for axis in xyz)
    if extrinsic is None:
        return [x, y, z]
    matrix = rotation(extrinsic.get("rotation_xyzw", [0, 0, 0, 1])).astype(np.float32)
    shift = np.asarray(extrinsic.get("translation_m", [0, 0, 0]), np.float64).astype(np.float32)
    return [((r[0] * x + r[1] * y) + r[2] * z) + t for r, t in zip(matrix, shift, strict=True)]


def bits_of_sum(config: dict, name: str, dtype: np.dtype) -> int:
    """Exponent s of the fixed-point sums of a mean: the engine adds the integers nearest to value * 2^s, as its documentation
    says."""
    if name in "xyz":
        axis = "xyz".index(name)
        low = np.float64(np.float32(config["origin_m"][axis]))
        high = low + config["shape"][axis] * np.float64(np.float32(config["voxel_size_m"][axis]))
        return 38 - math.ceil(math.log2(max(abs(low), abs(high))))
    return 0 if dtype.kind in "iu" and dtype.itemsize >= 4 else 22


def is_usable(config: dict, name: str, values: np.ndarray) -> np.ndarray:
    """True for each value of a field that its channels accept: not too large for a mean, otherwise finite in float32."""
    with np.errstate(invalid="ignore", over="ignore"):
        if f"mean_{name}" in config["channels"]:
            return np.abs(values.astype(np.float64)) <= 2.0 ** (62 - bits_of_sum(config, name, values.dtype))
        return np.isfinite(values.astype(np.float32))


def voxelize(config: dict, clouds: dict[str, dict[str, np.ndarray]]) -> Voxels:
    """Makes the voxel grid of the clouds `clouds`, at most one for each input, in the order of `inputs:`."""
    parts = []
    for spec in config["inputs"]:
        if (cloud := clouds.get(spec["input"])) is not None:
            moved = move([cloud[axis] for axis in "xyz"], spec.get("extrinsic"))
            parts.append({**cloud, **dict(zip("xyz", moved, strict=True))})
    names = parts[0].keys()
    fields = {name: np.concatenate([part[name] for part in parts]) for name in names}
    points_in = len(fields["x"])

    finite = np.logical_and.reduce([np.isfinite(fields[name].astype(np.float32)) for name in {"x", "y", "z"}])
    origin, size = (np.asarray(config[key], np.float64).astype(np.float32) for key in ("origin_m", "voxel_size_m"))
    inverse = np.float32(1) / size
    shape = np.array(config["shape"])
    with np.errstate(invalid="ignore", over="ignore"):
        index = [np.floor((fields[axis] - origin[i]) * inverse[i]) for i, axis in enumerate("xyz")]
        inside = np.logical_and.reduce([(index[i] >= 0) & (index[i] < shape[i]) for i in range(3)])
    keep = finite & inside
    counters = {
        "points_in": points_in,
        "dropped_nonfinite": int((~finite).sum()),
        "dropped_outside": int((finite & ~inside).sum()),
    }
    i, j, k = (axis[keep].astype(np.int64) for axis in index)
    cell = (i * shape[1] + j) * shape[2] + k
    cells, place, count = np.unique(cell, return_inverse=True, return_counts=True)
    limit = config.get("max_voxels") or len(cells)
    counters["dropped_overflow"] = int(count[limit:].sum())
    counters["points_kept"] = int(count[:limit].sum())
    used = dict.fromkeys(channel.split("_", 1)[1] for channel in config["channels"] if "_" in channel)
    usable = {name: is_usable(config, name, fields[name][keep]) for name in used}
    counters["unusable"] = [int((~usable[name] & (place < limit)).sum()) for name in used if name not in "xyz"]

    channels, means = {}, {}
    for channel in config["channels"]:
        if channel == "occupancy":
            values = np.ones(len(cells), np.float32)
        elif channel == "count":
            values = count.astype(np.float32)
        else:
            how, name = channel.split("_", 1)
            of, at = fields[name][keep][usable[name]], place[usable[name]]
            n = np.bincount(at, minlength=len(cells))
            if how == "mean":
                bits = bits_of_sum(config, name, of.dtype)
                integers = np.rint(of.astype(np.float64) * 2.0**bits).astype(np.int64)
                high, low = np.zeros((2, len(cells)), np.int64)
                np.add.at(high, at, integers >> 32)
                np.add.at(low, at, integers & 0xFFFFFFFF)
                sums = np.array([float(int(h) * 2**32 + int(l)) for h, l in zip(high, low, strict=True)])
                values = (sums / np.maximum(n, 1) * 2.0**-bits).astype(np.float32)
                means[channel] = (np.bincount(at, of.astype(np.float64), len(cells)) / np.maximum(n, 1))[:limit], 2.0 ** -(bits + 1)
            else:
                extreme = np.maximum if how == "max" else np.minimum
                values = np.full(len(cells), -np.inf if how == "max" else np.inf, np.float32)
                extreme.at(values, at, of.astype(np.float32))
                values[n == 0] = 0
        channels[channel] = values[:limit]
    return Voxels(cells[:limit], channels, means, counters)
