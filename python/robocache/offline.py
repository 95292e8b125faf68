"""The operations on whole arrays instead of messages, with the same bits as the nodes.

```python
    observations = rc.fuse(
        {"camera": (camera_ns, features), "wrench": (wrench_ns, forces)},
        config={
            "rate_hz": 50,
            "window": 16,
            "modalities": [
                {"input": "camera", "dim": 128, "interpolation": "previous", "max_age_ms": 100},
                {"input": "wrench", "dim": 6, "interpolation": "linear", "max_gap_ms": 20},
            ],
        },
    )
    observations.fused      # [N, T, D]
    observations.valid      # [N, T, M]
```

Arrays are of any library that speaks DLPack, on the host or on a CUDA device. Results have the library and the device of
the inputs. NumPy has no bfloat16, and gets the bits as uint16. Times are int64 nanoseconds.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from robocache import _native
from robocache._arrays import Array, Config, Taker, described, host_taker, source, taker
from robocache._memory import free_bytes

Streams = Mapping[str, tuple[Array, Array]]
"""Samples of each stream, by the input of its modality: pairs of `times_ns`, int64 `[S]`, and values `[S, dim]`. Values may be
`[S]` if `dim` is 1."""


@dataclasses.dataclass(frozen=True)
class Observations:
    """All observations of whole streams: N windows of T rows, D columns and M modalities."""

    fused: Array
    """Values of the windows, `[N, T, D]`, newest row last. Values that are not valid are NaN, or the number `invalid`."""
    valid: Array
    """True if a modality is valid in a row, bool `[N, T, M]`."""
    age_ns: Array
    """Target minus the time of the newest sample at or before the target, int64 `[N, T, M]`, ns; -1 without such a sample."""
    timestamps_ns: Array
    """Target of each row, int64 `[N, T]`, ns."""
    epoch: Array
    """Epoch of each observation, which goes up by one at each clock jump, int64 `[N]`."""
    offsets: list[int]
    """Bounds of the modalities, M + 1 numbers: modality m is columns `offsets[m]:offsets[m + 1]`."""
    modalities: list[str]
    """Names of the M modalities, in the order of the columns."""
    late_samples: int
    """Number of samples of all streams that came after their target was made, or closer than `min_period_ms` to another sample."""
    dropped: dict[str, dict[str, int]]
    """Numbers of samples that could not be used, by stream and reason: `nonfinite`, `no_rotation`, `stamp_out_of_range`,
    `wrong_length`, and `max_held_mb` for attached streams."""
    order: str = "stamp"
    """Order in which samples reached the aligner: by `"stamp"`, or by `"arrival"` at the recorder."""

    def __len__(self) -> int:
        return len(self.epoch)

    def of(self, modality: str) -> Array:
        """Returns the columns of a modality, `[N, T, dim]`. Raises KeyError if the modality does not exist."""
        if modality not in self.modalities:
            raise KeyError(f"no modality `{modality}` (there are: {', '.join(self.modalities)})")
        m = self.modalities.index(modality)
        return self.fused[:, :, self.offsets[m] : self.offsets[m + 1]]


def fuse(
    streams: Streams,
    config: Config,
    *,
    invalid: float | None = math.nan,
    arrivals_ns: Mapping[str, Array] | None = None,
    allow_offset: Sequence[str] = (),
    device: str | None = None,
    stream: int | None = None,
) -> Observations:
    """Puts streams on common timestamps, as one tensor with masks. The result has every observation that a node
    `robocache-fuse` makes if the streams are replayed in the order of their stamps.

    Streams are merged by stamp, smallest first. Of equal stamps, the sample of the stream whose name sorts first comes first.
    Samples of one stream keep their order: if stamps go back, `reorder_ms` and `reset_ms` apply, as in the node. At the end
    all streams close.

    The argument `config` is a dict of the keys of the nodes' section `fuse:`, or the path of a YAML file that has this
    section. Its `device:` is ignored. Observations are made at `rate_hz`, or at the samples of a stream (`trigger: {stream: ...}`);
    triggers by request or timer are refused. With `max_wait_ms`, a node that gets samples in another order than by stamp may
    mask other rows, since the samples of those rows come too late.

    Attached streams are left out, with a warning. Observations do not wait for attached streams, so the first observation may
    be earlier than in a node. (`RecordingDataset` has the attached streams of a recording.)

    If a modality is not valid, all of its columns are NaN, as in an `Observation`. Give another number as `invalid`, or None
    to keep the `fill_value` that the node writes.

    The dict `arrivals_ns` has times at which the samples of a stream arrived, int64 `[S]`, such as the log times of a bag. By
    these times, stamps that are 0.1 s or more off from the stamps of other streams cause a warning, and from 1 s on a
    `ValueError`. Streams that `allow_offset` names are not checked.

    Windows are made on `device`: `None` and `cpu`, `auto`, `cuda`, `cuda:N`, `hip` or `hip:N`. The CPU is quicker except for
    very wide windows. Samples on a GPU are copied to the host, since streams are processed sample by sample. Each row is
    copied back once, and windows are gathered on the GPU.

    The call waits for the work in the CUDA stream `stream`, as well as for the stream that the library reports for its
    arrays. 1 is the legacy default stream, 2 the thread's default stream, any other number a handle.

    Warns of a stream whose times are too close for nanoseconds, or mostly go back, and of two streams that have no time in
    common.

    Raises `ValueError` if the configuration or a shape is wrong, or times have another unit, and `TypeError` if a type is
    wrong. Raises `MemoryError`, before anything is computed, if the observations do not fit into the free memory. (If the
    clock of a stream was set, or a stream was silent for a year, each period in between may be a target.)
    """
    (observed,) = _observe("fuse", streams, config, invalid, device, stream, arrivals_ns, allow_offset)
    return gathered(observed, taker(next(iter(streams.values()))[1]))


def align(
    streams: Streams,
    config: Config,
    *,
    invalid: float | None = math.nan,
    device: str | None = None,
    stream: int | None = None,
) -> dict[str, Observations]:
    """Aligns each stream by itself, by the section `align:`. Returns the observations by stream, each with one modality: M is 1,
    and D is its `dim`. Arguments are as in `fuse`."""
    observed = _observe("align", streams, config, invalid, device, stream)
    return {each.modalities[0]: gathered(each, taker(streams[each.modalities[0]][1])) for each in observed}


def _observe(
    section: str,
    streams: Streams,
    config: Config,
    invalid: float | None,
    device: str | None,
    stream: int | None,
    arrivals_ns: Mapping[str, Array] | None = None,
    allow_offset: Sequence[str] = (),
) -> list[_native.Observed]:
    if not isinstance(streams, Mapping):
        raise TypeError(f"`streams` is {described(streams)} (allowed: a dict of pairs of times_ns and values)")
    triples = [(_name(name), *_pair(name, pair)) for name, pair in streams.items()]
    text = source(section, config)
    came = [(_name(name), times) for name, times in (arrivals_ns or {}).items()]
    allowed = names_of("allow_offset", allow_offset)
    try:
        observed = _native.observe(
            section, triples, text, free_bytes(), number_of(invalid), came, allowed, device, stream
        )
    except MemoryError as error:
        raise out_of_memory(error) from None
    return warned(observed, text)


def number_of(invalid: float | None) -> float | None:
    """Checks the argument `invalid`, the value that replaces invalid values. Returns it as a float, or None,
    which keeps `fill_value`."""
    if invalid is None or (hasattr(invalid, "__float__") and not isinstance(invalid, bool | np.bool_)):
        return None if invalid is None else float(invalid)
    raise TypeError(f"`invalid` is {described(invalid)} (allowed: a number, None for the `fill_value`)")


def names_of(key: str, names: Sequence[str]) -> list[str]:
    """Returns the names of the argument `key` as a list. Raises TypeError if the argument is not a list of text."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"`{key}` is {names!r} (allowed: a list of names)")
    return list(names)


def out_of_memory(error: MemoryError) -> Exception:
    """Makes the error to raise if observations do not fit into memory. It is a ValueError if the times of a stream look wrong,
    such as in another unit, else a MemoryError."""
    words, *spans = error.args or ("",)
    doubts = list(_doubtful_times(spans[0])) if spans else []
    return ValueError(f"{'; '.join(doubts)} ({words})") if doubts else MemoryError(words)


# Reasons for dropped samples that cause a warning, and the text of the warning.
_DROPPED = {
    "wrong_length": "they do not have the length that the configuration says (`dim`)",
    "stamp_out_of_range": "their stamps are not times",
    "no_rotation": "they are quaternions without a direction",
    "max_held_mb": "they are larger than `max_held_mb` allows",
}


def warned(observed: list[_native.Observed], text: _native.Source) -> list[_native.Observed]:
    """Warns of dropped samples, of inputs that were left out, and of doubtful streams; returns `observed` unchanged."""
    dropped = {each for output in observed for each in output.dropped if each[1] in _DROPPED}
    for name, reason, count in sorted(dropped):
        words = f"`{name}`: {count} samples are dropped: {_DROPPED[reason]}"
        warnings.warn(f"{text['file']}: fuse: {words}", stacklevel=4)
    if observed and observed[0].left_out:
        names = ", ".join(f"`{name}`" for name in observed[0].left_out)
        left = "the stream is missing, and observations do not wait for it"
        warnings.warn(f"{text['file']}: fuse: attach: {names} left out: {left}", stacklevel=4)
    for off in observed[0].off if observed else []:
        warnings.warn(off, stacklevel=4)
    if not observed:
        return observed
    for doubt in _doubtful_times(observed[0].spans, observed[0].index.shape[0]):
        warnings.warn(doubt, stacklevel=4)
    late, samples = observed[0].late_samples, sum(span[3] for span in observed[0].spans)
    if 2 * late > samples:
        words = f"{late} of {samples} samples came too late for their targets: are they in order?"
        warnings.warn(f"{text['file']}: fuse: {words}", stacklevel=4)
    return observed


# Smallest credible step of a stream: sound at 48 kHz has a sample every 20.8 us. Times in microseconds that are taken for
# nanoseconds are closer from 50 Hz on.
_LEAST_STEP_NS = 20_001
# Smallest credible step of the slowest stream, since at least one stream of a robot is slower than 5 kHz. Times in microseconds
# that are taken for nanoseconds are closer from 5 Hz on.
_LEAST_STEP_OF_ALL_NS = 200_001
# A time from here on counts nanoseconds since 1970, since any other unit would be far in the future.
_SINCE_1970_NS = 10**17


# Name of a stream, its smallest and largest time, number of samples, and number of samples whose time is below the time before.
Span = tuple[str, int, int, int, int]


def _doubtful_times(spans: Sequence[Span], observations: int | None = None) -> Iterator[str]:
    """Yields a warning for each sign that times are not in nanoseconds, not of one clock, or out of order. If there is no such
    sign and no observation either, yields a warning with the times of the streams."""
    is_doubted = False
    # A stream of a single sample, such as a map that does not change, may have any time.
    several = [span for span in spans if span[3] > 1]
    steps = [(last - first) / (samples - 1) for _, first, last, samples, _ in several]
    for (name, first, last, samples, back), step_ns in zip(several, steps, strict=True):
        if 2 * back > samples:
            yield (
                f"stream `{name}`: {back} of {samples} times are earlier than the previous one: are they in reverse? They are "
                f"to ascend"
            )
        if last < _SINCE_1970_NS and (step_ns < _LEAST_STEP_NS or max(steps) < _LEAST_STEP_OF_ALL_NS):
            is_doubted = True
            yield (
                f"stream `{name}`: {samples} samples from {first} to {last} ns are {step_ns:.3g} ns apart: are its times "
                f"nanoseconds?"
            )
    if several:
        longest = max(several, key=_duration_ns)
        for span in several:
            unit = _unit_of(_duration_ns(span), _duration_ns(longest)) if span[2] < _SINCE_1970_NS else None
            if unit and span[3] > 2:
                is_doubted = True
                yield (
                    f"stream `{span[0]}` lasts {_duration_ns(span)} ns, stream `{longest[0]}` {_duration_ns(longest)} ns: are "
                    f"those of `{span[0]}` {unit}? They are to be nanoseconds"
                )
        early, late = min(several, key=lambda span: span[2]), max(several, key=lambda span: span[1])
        if early[2] < late[1]:
            is_doubted = True
            yield (
                f"stream `{early[0]}` is from {early[1]} to {early[2]} ns, stream `{late[0]}` from {late[1]} to {late[2]} ns: "
                f"they have no time in common. Are both in nanoseconds, and of one clock?{_unit(early, late)}"
            )
    if observations == 0 and spans and not is_doubted:
        times = ", ".join(f"`{name}` from {first} to {last} ns" for name, first, last, *_ in spans)
        yield f"there is no observation: none is due where the streams are ({times})"


def _duration_ns(span: Span) -> int:
    return span[2] - span[1]


_UNITS = {"microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}


def _unit(early: Span, late: Span) -> str:
    """Compares the times of two streams that do not overlap. Returns a sentence that names the unit in which the earlier
    stream's times seem to be; empty if no unit fits."""
    unit = _unit_of(early[1], late[1])
    return f" Those of `{early[0]}` seem to be {unit}: they are to be times {_UNITS[unit]}." if unit else ""


def _unit_of(time: int, time_ns: int) -> str | None:
    """Returns the unit, such as `seconds`, in which the number `time` is within 10 % of `time_ns`; None if no unit fits."""
    return next((unit for unit, ns in _UNITS.items() if time > 0 and abs(time * ns / time_ns - 1) < 0.1), None)


def _pair(name: str, pair: tuple[Array, Array]) -> tuple[Array, Array]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        many = f" of {len(pair)}" if isinstance(pair, tuple | list) else ""
        raise TypeError(f"stream `{name}` is {described(pair)}{many} (allowed: a pair of times_ns and values)")
    return pair[0], pair[1]


def _name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a stream is {name!r} (allowed: text)")
    return name


def gathered(observed: _native.Observed, take: Taker) -> Observations:
    """Makes the windows of all observations. The native result has each distinct row once; a window gets copies of its rows."""
    index = take(observed.index)
    return Observations(
        fused=take(observed.values)[index],
        valid=take(observed.valid)[index],
        age_ns=take(observed.age_ns)[index],
        timestamps_ns=take(observed.timestamps_ns)[index],
        epoch=take(observed.epoch),
        **about(observed),
    )


def about(observed: _native.Observed) -> dict[str, Any]:
    """Returns the fields of `Observations` that are not arrays, such as the names of modalities and the counters, as a dict."""
    dropped: dict[str, dict[str, int]] = {}
    for name, reason, count in observed.dropped:
        dropped.setdefault(name, {})[reason] = count
    return {
        "offsets": observed.offsets,
        "modalities": observed.modalities,
        "late_samples": observed.late_samples,
        "dropped": dropped,
        "order": "arrival" if observed.by_arrival else "stamp",
    }


@dataclasses.dataclass(frozen=True)
class Resampled:
    """Result of `resample`, which can be unpacked: `values, valid = rc.resample(...)`."""

    values: Array
    """Values at the targets, in the type of the input. Values that are not valid are NaN, or the number `invalid`."""
    valid: Array
    """True for targets that have a value, bool `[T]` or `[B, T]`; a list of arrays for lists."""
    counters: dict[str, int | None]
    """Numbers of samples with a NaN or an infinity (`dropped_nonfinite`), of targets whose value the type can't hold
    (`dropped_overflow`), and of all targets that are not valid (`invalid`). None on a device, where nothing is counted."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.values, self.valid))


def resample(
    times_ns: Array | Sequence[Array],
    values: Array | Sequence[Array],
    targets_ns: Array | Sequence[Array],
    *,
    config: Config | None = None,
    invalid: float | None = math.nan,
    device: str | None = None,
    stream: int | None = None,
    **keys: Any,
) -> Resampled:
    """Resamples trajectories at their targets, as a node `robocache-resample` does.

        values, valid = rc.resample(times_ns, joints, targets_ns, interpolation="linear", max_gap_ms=100)

    One trajectory has `times_ns` `[S]`, `values` `[S]` or `[S, D]`, and `targets_ns` `[T]`; the result is `[T]` or `[T, D]`.
    A batch has `[B, S]`, `[B, S]` or `[B, S, D]`, and `[B, T]`, or `[T]` for all rows; the result is `[B, T]` or `[B, T, D]`.
    Lists of arrays are trajectories of different lengths, and the results are lists.

    Values that are not valid are NaN. Give another number as `invalid`, or None to keep the `fill_value` that the node
    writes. With `groups`, a group of channels that has a value keeps it, even if another group has none.

    Times are int64, ns, and ascend; values are float32, float64, float16 or bfloat16. The keys of the section `resample:`
    are keyword arguments, or in `config`, a dict or the path of a YAML file.

    Arrays on a GPU are resampled on that GPU. Host arrays may be resampled on `device`, and their results are on the host. The
    results of lists are always on the host. The argument `stream` is as in `fuse`.

    Raises `ValueError` if times do not ascend, or a shape or the configuration is wrong, and `TypeError` if a type is wrong.
    """
    if config is not None and keys:
        raise TypeError(f"`config` and {', '.join(f'`{key}`' for key in keys)} (allowed: one or the other)")
    text = source("resample", keys if config is None else config)
    if not isinstance(times_ns, list | tuple):
        got, valid, counted = _native.resample(
            times_ns, values, targets_ns, text, number_of(invalid), device, stream
        )
        take = taker(values)
        return Resampled(take(got), take(valid), dict(counted))
    for name, given in (("values", values), ("targets_ns", targets_ns)):
        if not isinstance(given, Sequence) and not hasattr(given, "__dlpack__"):
            raise TypeError(f"`{name}` is {described(given)} (allowed with a list of `times_ns`: a list, too)")
    if not len(times_ns) == len(values) == len(targets_ns):
        lengths = f"{len(times_ns)} `times_ns`, {len(values)} `values` and {len(targets_ns)} `targets_ns`"
        raise ValueError(f"lists of {lengths} (allowed: lists of equal length)")
    rows = list(zip(times_ns, values, targets_ns, strict=True))
    got, valid, counted = _native.resample_ragged(rows, text, number_of(invalid), device)
    if not rows:
        return Resampled([], [], dict(counted))
    take = host_taker(values[0])
    ends = np.cumsum([0, *(len(targets) for targets in targets_ns)]).tolist()
    cut = lambda array: [array[a:b] for a, b in zip(ends, ends[1:])]  # noqa: E731
    return Resampled(cut(take(got)), cut(take(valid)), dict(counted))


@dataclasses.dataclass(frozen=True)
class Grid:
    """Result of `voxelize`: a grid of X x Y x Z cells with C channels."""

    values: Array | None
    """Values of all cells. Layout `dense`: `[C, X, Y, Z]`. Layout `bits`: uint8 `[ceil(X * Y * Z / 8)]`, where cell
    `i = (x * Y + y) * Z + z` is bit `i % 8`, least significant first, of byte `i // 8`. Layout `coo`: None."""
    coords: Array | None
    """Indices x y z of the V occupied cells in the layout `coo`, int32 `[V, 3]`, sorted by cell; otherwise None."""
    features: Array | None
    """Values of the V occupied cells in the layout `coo`, float32 `[V, C]`; otherwise None."""
    counters: dict[str, int]
    """Numbers of points: `points_in` is the sum of `points_kept`, `dropped_nonfinite`, `dropped_outside` and `dropped_overflow`.
    The counter `saturated` is the number of values of a dense grid that its type can't hold."""
    unusable: dict[str, int]
    """Number of values that channels leave out because they are NaN, infinite or out of bounds, for each field beside x, y, z."""
    channels: list[str]
    """Names of the C channels, in the order of the values."""
    layout: str
    """Layout of the grid: `dense`, `bits` or `coo`."""
    origin_m: tuple[float, float, float]
    """Corner of the grid with the smallest coordinates, x y z, metres."""
    voxel_size_m: tuple[float, float, float]
    """Lengths of a cell's edges along x y z, metres."""
    shape: tuple[int, int, int]
    """Numbers of cells X, Y, Z."""


Cloud = Array | Mapping[str, Array]
"""A point cloud of N points: an array `[N, C]`, or a dict of an array `[N]` for each field."""


def voxelize(
    points: Cloud | Sequence[Cloud],
    *,
    config: Config,
    fields: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    device: str | None = None,
    stream: int | None = None,
) -> Grid:
    """Makes the voxel grid of one or more clouds, as a node `robocache-voxelize` does.

    ```python
        grid = rc.voxelize(
            points,                                     # [N, 4]
            fields=["x", "y", "z", "intensity"],
            config={
                "origin_m": [-10, -10, -2], "voxel_size_m": [0.1] * 3, "shape": [200, 200, 40],
                "channels": ["occupancy", "mean_intensity"], "layout": "dense",
            },
        )
        grid.values                                     # [2, 200, 200, 40]
    ```

    The C columns have the names `fields`, by default `x y z`. A list of clouds makes one grid. For a list, `inputs` names the
    input of each cloud, whose `extrinsic` is applied to the cloud. If `config` is a dict and all clouds are in the frame of the
    grid, its key `inputs` may be left out.

    A cloud `[N, C]` on a GPU is voxelized on that GPU. The arguments `device` and `stream` are as in `resample`.

    Raises `ValueError` if a field is missing or the configuration is wrong, and `TypeError` if a type is wrong.
    """
    clouds = list(points) if isinstance(points, list | tuple) else [points]
    if not clouds:
        raise ValueError("`points` is an empty list (allowed: a cloud, or a list of one or more)")
    for key, names in (("fields", fields), ("inputs", inputs)):
        if names is not None and (isinstance(names, str) or not isinstance(names, Sequence)):
            raise TypeError(f"`{key}` is {described(names)} (allowed: a list of names)")
    if inputs is not None and len(inputs) != len(clouds):
        raise ValueError(f"{len(inputs)} `inputs` of {len(clouds)} clouds (allowed: one for each)")
    if isinstance(config, Mapping) and "inputs" not in config and "voxelize" not in config:
        config = {**config, "inputs": [{"input": name} for name in (dict.fromkeys(inputs) if inputs else ["points"])]}
    given = [
        (None if inputs is None else inputs[i], *_columns(cloud, fields)) for i, cloud in enumerate(clouds)
    ]
    grid = _native.voxelize(given, source("voxelize", config), device, stream)
    take = taker(given[0][2][0])
    of = lambda tensor: None if tensor is None else take(tensor)  # noqa: E731
    return Grid(
        values=of(grid.values),
        coords=of(grid.coords),
        features=of(grid.features),
        counters=dict(grid.counters),
        unusable=dict(grid.unusable),
        channels=grid.channels,
        layout=grid.layout,
        origin_m=tuple(grid.origin_m),
        voxel_size_m=tuple(grid.voxel_size_m),
        shape=tuple(grid.shape),
    )


def _columns(cloud: Cloud, fields: Sequence[str] | None) -> tuple[list[str], list[Array]]:
    if isinstance(cloud, Mapping):
        if not cloud:
            raise ValueError("`points` is an empty dict (allowed: at least the fields x, y and z)")
        return list(cloud), list(cloud.values())
    return list(fields) if fields is not None else ["x", "y", "z"], [cloud]
