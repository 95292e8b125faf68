"""Errors of interpolated values against the truth, and of robocache against SciPy: `make accuracy`.

    python tests/accuracy.py

Streams go through robocache-resample, in float32: sines, turns, and recordings whose samples are mostly left out and serve
as the truth. Prints the tables of docs/accuracy.md and writes them there. Exits with 1 if a promised bound does not hold: on
the distance from SciPy, on the ratio of two modes' errors, or on overshoot. The recordings are not part of the repository.
Without them, tables that need them are printed as far as they go, and not written.
"""

import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from scipy.interpolate import Akima1DInterpolator, CubicHermiteSpline, PchipInterpolator, make_interp_spline
from scipy.spatial.transform import Rotation, Slerp

import convert
from harness import Flow, send

TESTS = pathlib.Path(__file__).parent
sys.path += [str(TESTS / "modes"), str(TESTS.parent / "benches")]

from run import replace_between  # noqa: E402
from vectors import bessel, rotations  # noqa: E402

PAGE = TESTS.parent / "docs" / "accuracy.md"
S = 1_000_000_000
CURVES = ["previous", "linear", "cubic", "pchip"]
# The largest distance from SciPy that a mode may have, and its unit.
AGREEMENT = {
    "linear": (1e-5, "of the range"),
    "cubic": (1e-5, "of the range"),
    "pchip": (1e-5, "of the range"),
    "angle": (2e-6, "rad"),
    "slerp": (3e-7, "rad, between quaternions"),
    "rot6d": (1e-6, "of a channel"),
    "rot6d_columns": (1e-6, "of a channel"),
    "rotvec": (1e-6, "rad, between quaternions"),
}


@dataclasses.dataclass
class Stream:
    """Samples of a stream as they are published, and the true values at targets between the samples. Rotations are quaternions, x y
    z w."""

    times: np.ndarray
    values: np.ndarray
    targets: np.ndarray
    truth: np.ndarray

    def __post_init__(self):
        self.values = self.values.astype(np.float32)

    @classmethod
    def thinned(cls, times: np.ndarray, values: np.ndarray, rate_hz: float) -> "Stream":
        """Thins a stream out to a lower rate; the samples left out are the truth."""
        count = int((times[-1] - times[0]) * rate_hz / S)
        wanted = times[0] + np.arange(count) * S / rate_hz
        # The samples nearest to the wanted times.
        kept = np.unique(np.searchsorted(times, wanted - np.median(np.diff(times)) / 2))
        others = np.setdiff1d(np.arange(kept[0], kept[-1]), kept)
        return cls(times[kept], values[kept], times[others], values[others])

    def published(self, values: np.ndarray) -> "Stream":
        """Makes a copy of the stream whose samples have other values."""
        return dataclasses.replace(self, values=values)


def seconds(stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Sample times and targets, s since the first sample."""
    return (stream.times - stream.times[0]) / S, (stream.targets - stream.times[0]) / S


def resample(folder: pathlib.Path, asked: list[tuple[Stream, str]]) -> list[np.ndarray]:
    """Resamples each pair of a stream and a mode in `asked`, at its targets, with robocache-resample."""
    flow, modes = Flow(folder), sorted({mode for _, mode in asked})
    steps = []
    for stream, mode in asked:
        columns = [convert.lists([part]) for part in (stream.times, stream.values.ravel(), stream.targets)]
        struct = pa.StructArray.from_arrays(columns, ["timestamps_ns", "values", "targets_ns"])
        steps.append(send(mode, struct, None, dim=stream.values.shape[1]))
    flow.sender(steps)
    for mode in modes:
        flow.robocache("resample", {"resample": {"interpolation": mode}}, {"trajectories": f"sender/{mode}"}, ["resampled"], name=mode)
    flow.collector({mode: f"{mode}/resampled" for mode in modes})
    run = flow.run()
    answers = {mode: iter(run.received("sink", mode)) for mode in modes}
    made = []
    for stream, mode in asked:
        answer = next(answers[mode]).values
        assert answer["valid"][0].all(), mode
        made.append(answer["values"][0].reshape(len(stream.targets), -1).astype(np.float64))
    return made


def by_scipy(stream: Stream, mode: str) -> np.ndarray:
    """Resamples a stream with SciPy, in float64, from the same float32 samples."""
    (t, at), p = seconds(stream), stream.values.astype(np.float64)
    match mode:
        case "linear":
            return make_interp_spline(t, p, k=1)(at)
        case "angle":
            return (make_interp_spline(t, np.unwrap(p, axis=0), k=1)(at) + np.pi) % (2 * np.pi) - np.pi
        case "cubic":
            return CubicHermiteSpline(t, p, bessel(t, p))(at)
        case "pchip":
            return PchipInterpolator(t, p)(at)
    rotation = Slerp(t, rotations(mode, p))(at)
    match mode:
        case "slerp":
            return rotation.as_quat()
        case "rotvec":
            return rotation.as_rotvec()
        case "rot6d":
            return rotation.as_matrix()[:, :2].reshape(-1, 6)
    return rotation.as_matrix()[:, :, :2].transpose(0, 2, 1).reshape(-1, 6)


def between_quaternions(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The angle between the quaternions of each row, whatever their signs: half the angle of the rotation from one to the other."""
    chord = np.minimum(*(np.linalg.norm(a + sign * b, axis=1) for sign in (1, -1)))
    return 2 * np.arcsin(np.clip(chord / 2, 0, 1))


def from_scipy(mode: str, stream: Stream, made: np.ndarray) -> float:
    """The largest distance of the values `made` from SciPy's, in the unit that AGREEMENT names for the mode."""
    expected = by_scipy(stream, mode)
    off = np.abs(made - expected)
    match mode:
        case "slerp":
            return between_quaternions(made, expected).max()
        case "rotvec":
            return between_quaternions(*(Rotation.from_rotvec(values).as_quat() for values in (made, expected))).max()
        case "angle":
            return np.minimum(off, 2 * np.pi - off).max()
        case "rot6d" | "rot6d_columns":
            return off.max()
    width = np.ptp(stream.values, axis=0)
    return (off / np.where(width > 0, width, 1)).max()


def nlerp(stream: Stream) -> np.ndarray:
    """Interpolates on the chord, in the hemisphere of the earlier sample; the caller normalises the result."""
    (t, at), q = seconds(stream), stream.values.astype(np.float64)
    before = np.searchsorted(t, at, side="right") - 1
    a, b, w = q[before], q[before + 1], ((at - t[before]) / (t[before + 1] - t[before]))[:, None]
    return (1 - w) * a + w * np.where((a * b).sum(1, keepdims=True) < 0, -b, b)


def catmull_rom(stream: Stream) -> np.ndarray:
    """A Hermite curve with the tangents of evenly spaced samples."""
    (t, at), p = seconds(stream), stream.values.astype(np.float64)
    ends = np.diff(p, axis=0)[[0, -1]] / np.diff(t)[[0, -1], None]
    inner = (p[2:] - p[:-2]) / (t[2:] - t[:-2])[:, None]
    return CubicHermiteSpline(t, p, np.concatenate([ends[:1], inner, ends[1:]]))(at)


def akima(stream: Stream) -> np.ndarray:
    t, at = seconds(stream)
    return Akima1DInterpolator(t, stream.values.astype(np.float64))(at)


def distances(stream: Stream, values: np.ndarray) -> np.ndarray:
    return np.linalg.norm(values - stream.truth, axis=1)


def degrees(stream: Stream, values: np.ndarray) -> np.ndarray:
    """Error of each rotation in degrees, after normalisation."""
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    return np.degrees(2 * between_quaternions(unit, stream.truth))


def jittered(rate_hz: float, length_s: float, random: np.random.Generator) -> np.ndarray:
    """Makes stamps at `rate_hz`, each at random up to 30 % of a period early or late."""
    count = round(rate_hz * length_s)
    return np.rint((np.arange(count) + random.uniform(-0.3, 0.3, count)) / rate_hz * S).astype(np.int64) + S


def sines() -> dict[str, Stream]:
    random, streams = np.random.default_rng(1), {}
    for frequency, noise in [(1, 0), (2, 0), (5, 0), (2, 0.01)]:
        times = jittered(30, 60, random)
        # At least two samples from the ends, so that a curve has all the neighbours that it uses.
        targets = np.sort(random.integers(times[2], times[-3], 20_000))
        samples, truth = (np.sin(2 * np.pi * frequency * at / S)[:, None] for at in (times, targets))
        what = f"{frequency} Hz" + (f", noise {noise}" if noise else "")
        streams[what] = Stream(times, samples + random.normal(0, noise or 0, samples.shape), targets, truth)
    return streams


def turn(degrees_s: float, wobble: float) -> Stream:
    """A rotation sampled at 30 Hz, about a fixed axis or, if `wobble` is not 0, about an axis that moves."""
    random = np.random.default_rng(2)
    times = jittered(30, 20, random)
    targets = np.sort(random.integers(times[0], times[-1], 5000))

    def orientation(at: np.ndarray) -> np.ndarray:
        about = Rotation.from_rotvec(np.outer(np.sin(7 * at / S), [0, wobble, 0]))
        turned = Rotation.from_rotvec(np.outer(np.radians(degrees_s) * at / S, [0.6, 0, 0.8]))
        return in_one_hemisphere((about * turned).as_quat())

    return Stream(times, orientation(times), targets, orientation(targets))


def in_one_hemisphere(q: np.ndarray) -> np.ndarray:
    """Changes signs so that each quaternion is in the hemisphere of the one before."""
    signs = np.where((q[1:] * q[:-1]).sum(1) < 0, -1, 1)
    return q * np.cumprod(np.concatenate([[1], signs]))[:, None]


def canonical(q: np.ndarray) -> np.ndarray:
    return np.where(q[:, 3:] < 0, -q, q)


def recorded_turns(data: pathlib.Path) -> dict[str, Stream]:
    """Orientations of a hand in motion capture and of a car, as quaternions x y z w."""
    hand, car = broad(data), comma(data)
    turns = {}
    for rate in (30, 10):
        turns[f"hand, 285 to {rate} Hz"] = Stream.thinned(hand.times, hand.rotations, rate)
    for rate in (10, 5):
        turns[f"car, 20 to {rate} Hz"] = Stream.thinned(car.times, car.rotations, rate)
    return turns


def recorded_curves(data: pathlib.Path) -> dict[str, Stream]:
    hand, car = broad(data), comma(data)
    curves = {"position of the hand, 285 to 30 Hz, mm": Stream.thinned(hand.times, hand.positions * 1e3, 30)}
    for rate in (10, 5):
        curves[f"position of the car, 20 to {rate} Hz, mm"] = Stream.thinned(car.times, car.positions * 1e3, rate)
    return curves | {"acceleration of the hand, 285 to 95 Hz, m/s2": Stream.thinned(hand.times, hand.accelerations, 95)}


def recorded_bursts(data: pathlib.Path) -> dict[str, Stream]:
    """Messages of a car's CAN bus, stamped at the time of reading, with targets midway between samples. The true values are not
    known."""
    bursts = {}
    for what, name in [("steering angle, degrees", "steering_angle"), ("speed, m/s", "speed")]:
        times, values = (np.load(data / "comma2k19_drive_1min" / f"CAN_{name}_{part}.npy") for part in ("t", "value"))
        stamps = convert.nanoseconds(times, 1.0)
        middles = stamps[:-1] + np.diff(stamps) // 2
        bursts[what] = Stream(stamps, values.reshape(-1, 1), middles, np.full((len(middles), 1), np.nan))
    return bursts


def beyond(stream: Stream, values: np.ndarray) -> np.ndarray:
    """Distance of each value from the range of the two samples around it."""
    before = np.searchsorted(stream.times, stream.targets, side="right") - 1
    pair = np.stack([stream.values[before], stream.values[before + 1]])
    return np.maximum(np.maximum(pair.min(axis=0) - values, values - pair.max(axis=0)), 0).max(axis=1)


@dataclasses.dataclass
class Poses:
    times: np.ndarray
    rotations: np.ndarray
    positions: np.ndarray
    accelerations: np.ndarray | None = None


def unit(q: np.ndarray) -> np.ndarray:
    """Reorders quaternions from w x y z to x y z w, normalises them, and removes changes of sign."""
    q = q[:, [1, 2, 3, 0]]
    return in_one_hemisphere(q / np.linalg.norm(q, axis=1, keepdims=True))


def broad(data: pathlib.Path) -> Poses:
    (file,) = (data / "broad_imu_mocap_40s").glob("*.csv")
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    return Poses(convert.nanoseconds(table[:, 0], 1.0), unit(table[:, 10:14]), table[:, 14:17], table[:, 4:7])


def comma(data: pathlib.Path) -> Poses:
    """Poses of a car, whose positions count from the first: so far from the centre of the earth, float32 does not resolve
    centimetres."""
    times, q, p = (np.load(data / "comma2k19_drive_1min" / f"global_pose_frame_{name}.npy") for name in ("times", "orientations", "positions"))
    return Poses(convert.nanoseconds(times, 1.0), unit(q), p - p[0])


@dataclasses.dataclass
class Table:
    marker: str
    lines: list[str]
    # False if rows are missing because the recordings are not there.
    is_whole: bool = True


@dataclasses.dataclass
class Bound:
    what: str
    came: str
    bound: str
    holds: bool


def rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def digits(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def cell(errors: np.ndarray) -> str:
    return f"{digits(rms(errors))} / {digits(errors.max())}"


def table(marker: str, head: list[str], rows: dict[str, dict[str, np.ndarray]], is_whole: bool = True) -> Table:
    lines = [f"| | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    lines += [f"| {what} | {' | '.join(map(cell, errors.values()))} |" for what, errors in rows.items()]
    return Table(marker, lines, is_whole)


def measure(folder: pathlib.Path, data: pathlib.Path | None) -> tuple[list[Table], list[Bound]]:
    waves = sines()
    steady = turn(1344, 0)
    turns = {
        "steady turn, 45 degrees a sample": steady,
        "the same, published with w >= 0": steady.published(canonical(steady.values)),
        "turn about an axis that moves": turn(500, 1.0),
    }
    curves, bursts = {}, {}
    if data:
        turns |= recorded_turns(data)
        curves, bursts = recorded_curves(data), recorded_bursts(data)
    tumbling = turns["turn about an axis that moves"]
    matrices = Rotation.from_quat(tumbling.values).as_matrix()
    forms = {
        "rotvec": Rotation.from_quat(tumbling.values).as_rotvec(),
        "rot6d": matrices[:, :2].reshape(-1, 6),
        "rot6d_columns": matrices[:, :, :2].transpose(0, 2, 1).reshape(-1, 6),
        "angle": Rotation.from_quat(tumbling.values).as_euler("xyz"),
    }

    asked = [(stream, mode) for stream in (*waves.values(), *curves.values(), *bursts.values()) for mode in CURVES]
    asked += [(stream, mode) for stream in turns.values() for mode in ("previous", "linear", "slerp", "cubic")]
    asked += [(tumbling.published(values), mode) for mode, values in forms.items()]
    made = dict(zip(((id(stream), mode) for stream, mode in asked), resample(folder, asked), strict=True))

    def of(stream: Stream, mode: str) -> np.ndarray:
        return made[id(stream), mode]

    wave_errors = {}
    for what, stream in waves.items():
        errors = {mode: distances(stream, of(stream, mode)) for mode in CURVES}
        others = {"Catmull-Rom": catmull_rom(stream), "Akima": akima(stream)}
        wave_errors[what] = errors | {name: distances(stream, values) for name, values in others.items()}
    turn_errors = {}
    for what, stream in turns.items():
        values = {mode: of(stream, mode) for mode in ("previous", "linear")} | {"nlerp": nlerp(stream)}
        values |= {mode: of(stream, mode) for mode in ("slerp", "cubic")}
        turn_errors[what] = {mode: degrees(stream, value) for mode, value in values.items()}
    curve_errors = {what: {mode: distances(stream, of(stream, mode)) for mode in CURVES} for what, stream in curves.items()}
    burst_errors = {what: {mode: beyond(stream, of(stream, mode)) for mode in CURVES[1:]} for what, stream in bursts.items()}
    tables = [
        table("accuracy-sines", [*CURVES, "*Catmull-Rom*", "*Akima*"], wave_errors),
        table("accuracy-turns", ["previous", "linear", "*nlerp*", "slerp", "cubic"], turn_errors, bool(data)),
        table("accuracy-curves", CURVES, curve_errors, bool(data)),
        table("accuracy-bursts", CURVES[1:], burst_errors, bool(data)),
    ]
    bounds = [*agreement(asked, of), *factors(wave_errors, turn_errors, curve_errors)]
    for what, stream in bursts.items():
        off = burst_errors[what]["pchip"].max() / np.ptp(stream.values)
        bounds.append(Bound(f"{what}: `pchip` beyond its samples", f"{off:.1e} of the range", "at most 1e-07", off <= 1e-7))
    lines = ["| | came | bound |", "|---|---|---|"]
    lines += [f"| {bound.what} | {bound.came} | {bound.bound} |" for bound in bounds]
    return [*tables, Table("accuracy-bounds", lines, bool(data))], bounds


def agreement(asked: list[tuple[Stream, str]], of) -> list[Bound]:
    bounds = []
    for mode, (most, unit_of) in AGREEMENT.items():
        streams = [stream for stream, asked_mode in asked if asked_mode == mode]
        off = max(from_scipy(mode, stream, of(stream, mode)) for stream in streams)
        count = sum(stream.targets.size for stream in streams)
        bounds.append(Bound(f"`{mode}`, from SciPy, {count:,} targets", f"{off:.1e} {unit_of}", f"at most {most:g}", off <= most))
    return bounds


def factors(*errors: dict[str, dict[str, np.ndarray]]) -> list[Bound]:
    """Bounds on the ratios between the rms errors of two modes."""
    of = {what: by_mode for group in errors for what, by_mode in group.items()}

    def compared(table: list[tuple[str, str, str, float]]) -> Iterator[tuple[str, float, float]]:
        """Ratios of the errors of two modes, and the limit of each."""
        for what, mode, other, limit in table:
            if what in of:
                yield f"{what}: `{other}` against `{mode}`", rms(of[what][other]) / rms(of[what][mode]), limit

    bounds = [Bound(what, f"{factor:.3g} x", f"at least {least:g} x", factor >= least) for what, factor, least in compared(FACTORS)]
    bounds += [
        Bound(what, f"{factor:.4g} x", f"1 x, to {share:.1%}", abs(factor - 1) <= share) for what, factor, share in compared(EQUALS)
    ]
    return bounds


FACTORS = [
    ("1 Hz", "linear", "previous", 20),
    ("1 Hz", "cubic", "linear", 25),
    ("2 Hz", "cubic", "linear", 12),
    ("5 Hz", "cubic", "linear", 4),
    ("1 Hz", "pchip", "linear", 2),
    ("2 Hz", "cubic", "Catmull-Rom", 5),
    ("steady turn, 45 degrees a sample", "slerp", "nlerp", 1000),
    ("steady turn, 45 degrees a sample", "slerp", "previous", 100_000),
    ("the same, published with w >= 0", "slerp", "linear", 100_000),
    ("hand, 285 to 30 Hz", "slerp", "previous", 9),
    ("hand, 285 to 30 Hz", "cubic", "slerp", 3),
    ("car, 20 to 10 Hz", "slerp", "previous", 3),
    ("car, 20 to 5 Hz", "slerp", "previous", 2),
]
# A stream, two modes whose errors are equal on it, and the share by which they may differ.
EQUALS = [
    ("hand, 285 to 30 Hz", "slerp", "nlerp", 0.002),
    ("car, 20 to 10 Hz", "slerp", "nlerp", 0.002),
]


def main() -> None:
    if convert.DATA is None:
        print(f"NO RECORDINGS: {convert.PLACES[0]} is not there. Made-up streams alone are measured.", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        tables, bounds = measure(pathlib.Path(folder), convert.DATA)
    for table in tables:
        print("\n".join([*table.lines, ""]))
        if table.is_whole:
            replace_between(PAGE, table.marker, table.lines)
        else:
            print(f"{PAGE}: the table {table.marker} stays as it is", file=sys.stderr)
    broken = [f"{bound.what}: {bound.came} ({bound.bound})" for bound in bounds if not bound.holds]
    sys.exit("\n".join(["further than is promised:", *broken]) if broken else 0)


if __name__ == "__main__":
    main()
