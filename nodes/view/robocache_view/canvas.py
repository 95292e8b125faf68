"""Draws messages into a recording of Rerun.

The first part of an entity's path is what it shows: `values`, `age_ms`, `valid`, `space`, `image`, `diagnostics`,
`log`; the next parts are the input and the modality.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import rerun as rr
import robocache as rc
from robocache import messages

from robocache_view import layout

TIMELINE = "capture_time"
# Stamps from here on (1973) count from 1970, smaller stamps from a start.
_WALL_CLOCK_NS = 10**17
# Times that are further apart are of different clocks: of a replay or a simulation, and of this machine.
_SAME_CLOCK_NS = 3600 * 10**9
_LEVELS = {0: "OK", 1: "WARN", 2: "ERROR", 3: "STALE"}
_COLOURS = {
    "valid": 0x2E9E5BFF,
    "invalid": 0xC0392BFF,
    "OK": 0x2E9E5BFF,
    "WARN": 0xE0A030FF,
    "ERROR": 0xC0392BFF,
    "STALE": 0x7F8C8DFF,
}
_COLOUR_MODELS = {"rgb8": "RGB", "bgr8": "BGR", "rgba8": "RGBA", "bgra8": "BGRA", "mono8": "L"}
_MEDIA_TYPES = {"jpeg": "image/jpeg", "jpg": "image/jpeg", "png": "image/png"}
# Colours of lines, as many as a legend has: Okabe and Ito's, which everybody tells apart, with white for black.
_LINES = [0xE69F00FF, 0x56B4E9FF, 0x009E73FF, 0xF0E442FF, 0xCC79A7FF, 0xD55E00FF, 0x0072B2FF, 0xFFFFFFFF]
# Points of the colour map viridis, from low to high, between which colours are interpolated.
_VIRIDIS = [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)]
_PALETTE = np.stack(
    [np.interp(np.linspace(0, 4, 256), range(5), channel) for channel in zip(*_VIRIDIS, strict=True)], axis=1
).astype(np.uint32) @ np.array([1 << 24, 1 << 16, 1 << 8], np.uint32) + np.uint32(255)


class Canvas:
    """Draws the messages of the node into one Rerun recording. An entity whose state has not changed is not drawn again."""

    def __init__(self, recording: rr.RecordingStream):
        self._recording = recording
        self._is_wall_clock: bool | None = None
        self._time_ns: int | None = None
        self._states: dict[str, tuple[str, int]] = {}
        self._said: dict[tuple[str, str], tuple[int, str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._epochs: dict[str, int] = {}
        self._stamps: dict[tuple[str, ...], int] = {}
        self._layout = layout.Layout()

    def draw(self, name: str, value: Any, metadata: Mapping[str, Any]) -> None:
        """Draws a message of the input `name`. The payload is an array or a dict of columns. Metadata and columns tell whether
        it is an observation, a grid, a cloud, an image or another kind.

        Raises MessageError if the message can't be drawn, or contradicts itself.
        """
        columns = value.keys() if isinstance(value, Mapping) else ()
        if metadata.get("error") is not None or "modalities" in metadata:
            self._observation(name, rc.Observation.from_message(value, metadata, invalid=None, copy=False))
        elif "grid_index" in metadata:
            self._attached_output(name, value, metadata)
        elif "grid_shape" in metadata:
            self._voxels((name,), rc.Voxels.from_message(value, self._stamped(metadata), copy=False))
        elif {"input", "level", "message"} <= set(columns):
            self._diagnostics(name, value, metadata)
        elif {"width", "height", "encoding", "data"} <= set(columns):
            self._image_struct(name, value, metadata)
        elif _is_image(metadata):
            self._image((name,), value, metadata, self._stamp(metadata))
        elif {"x", "y", "z"} <= set(columns) or _is_flat_cloud(value, metadata):
            event = {"type": "INPUT", "value": value, "metadata": self._stamped(metadata)}
            self._cloud((name,), rc.Cloud.from_event(event, copy=False))
        elif columns:
            raise rc.MessageError(f"columns are {list(columns)}, expected those of a message that can be drawn")
        else:
            self._samples(name, value, metadata)

    def lay_out(self) -> None:
        """Sends the layout of the views to the viewer, if there are new views."""
        if (blueprint := self._layout.blueprint(TIMELINE)) is not None:
            self._recording.send_blueprint(blueprint)

    def _observation(self, name: str, observation: rc.Observation) -> None:
        if observation.error is not None:
            self._at(self._stamp(observation.metadata))
            self._text(name, f"no observation: {observation.error}", rr.TextLogLevel.WARN)
            return
        self._at(observation.timestamp_ns)
        last = self._epochs.get(name)
        self._epochs[name] = observation.epoch
        self._state(("valid", name, "epoch"), str(observation.epoch))
        if last not in (None, observation.epoch):
            self._text(name, f"epoch {observation.epoch}: a clock jumped", rr.TextLogLevel.WARN)
        row = observation.fused[-1].astype(np.float64)
        ages, names = list(observation.age_ns[-1]), list(observation.modalities)
        for m, modality in enumerate(observation.modalities):
            is_valid = bool(observation.valid[-1, m])
            values = row[observation.offsets[m] : observation.offsets[m + 1]]
            self._lines(("values", name, modality), values if is_valid else np.full_like(values, np.nan))
            self._state(("valid", name, modality), "valid" if is_valid else "invalid")
        for key, stream in observation.attached.items():
            ages.append(stream.age_ns[-1])
            names.append(key)
            self._state(("valid", name, key), "valid" if stream.valid[-1] else "invalid")
        self._lines(("age_ms", name), np.array([age / 1e6 if age >= 0 else np.nan for age in ages]), names)
        for key, stream in observation.attached.items():
            if stream.columns is not None:
                self._newest_of(stream, (name, key))

    def _attached_output(self, name: str, value: Any, metadata: Mapping[str, Any]) -> None:
        known = messages.strings(metadata, "attached")
        key = name if name in known or len(known) != 1 else known[0]
        event = {"type": "INPUT", "value": value, "metadata": metadata}
        self._newest_of(rc.Attached.from_event(event, key, copy=False), (name,))

    def _newest_of(self, stream: rc.Attached, path: tuple[str, ...]) -> None:
        """Draws the message of an attached stream that belongs to the newest row. A message that several rows share
        is drawn once."""
        if (index := int(stream.index[-1])) < 0 or stream.timestamps_ns is None:
            return
        stamp = int(stream.timestamps_ns[index])
        if self._stamps.get(path) == stamp:
            return
        match stream.message(index):
            case rc.Voxels() as grid:
                self._voxels(path, grid)
            case rc.Cloud() as cloud:
                self._cloud(path, cloud)
            case array:
                self._array(path, array, stamp)
        self._stamps[path] = stamp

    def _voxels(self, path: tuple[str, ...], grid: rc.Voxels) -> None:
        cells, values = _occupied(grid)
        self._at(grid.timestamp_ns)
        self._log(
            ("space", _frame(grid), *path),
            rr.VoxelGridMap(
                cells.astype(np.int32),
                voxel_size=grid.voxel_size_m,
                translation=grid.origin_m,
                colors=_shaded(values),
                opacity=0.5,
            ),
        )

    def _cloud(self, path: tuple[str, ...], cloud: rc.Cloud) -> None:
        points = cloud.points_m
        finite = np.isfinite(points).all(axis=1)
        shade = cloud.columns.get("intensity", points[:, 2])
        if not finite.all():
            points, shade = points[finite], shade[finite]
        self._at(cloud.timestamp_ns)
        self._log(
            ("space", _frame(cloud), *path),
            rr.Points3D(points, colors=_shaded(shade), radii=rr.Radius.ui_points(1.5)),
        )

    def _array(self, path: tuple[str, ...], array: np.ndarray, stamp: int, fields: Sequence[str] = ()) -> None:
        """Draws an image, or one sample of any shape."""
        self._at(stamp)
        if array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] in (1, 3, 4):
            self._log(("image", *path), rr.Image(array))
        else:
            self._lines(("values", *path), array.reshape(-1).astype(np.float64), fields)

    def _image_struct(self, name: str, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
        # The data are a list of uint8, or one binary value.
        data = columns["data"]
        data = data if data.dtype == np.uint8 else np.frombuffer(data[0], np.uint8)
        said = {"encoding": columns["encoding"][0], **{key: int(columns[key][0]) for key in ("width", "height")}}
        self._image((name,), data, said, self._stamp(metadata))

    def _image(self, path: tuple[str, ...], data: np.ndarray, said: Mapping[str, Any], stamp: int) -> None:
        encoding = str(said["encoding"]).lower()
        self._at(stamp)
        if encoding in _MEDIA_TYPES:
            self._log(("image", *path), rr.EncodedImage(contents=data.tobytes(), media_type=_MEDIA_TYPES[encoding]))
            return
        height, width = messages.integer(said, "height"), messages.integer(said, "width")
        if encoding in ("mono16", "16uc1"):
            depth = data.view(np.uint16)
            _check_size(depth, height, width, 1)
            self._log(("image", *path), rr.DepthImage(depth.reshape(height, width), meter=1000.0))
            return
        model = _COLOUR_MODELS.get(encoding)
        if model is None:
            allowed = [*_COLOUR_MODELS, "mono16", *_MEDIA_TYPES]
            raise rc.MessageError(f"encoding is {said['encoding']!r}, expected one of {allowed}")
        channels = len(model)
        _check_size(data, height, width, channels)
        image = data.reshape(height, width, channels) if channels > 1 else data.reshape(height, width)
        self._log(("image", *path), rr.Image(image, color_model=model))

    def _samples(self, name: str, value: np.ndarray, metadata: Mapping[str, Any]) -> None:
        tensor = rc.open_tensor({"type": "INPUT", "value": value, "metadata": metadata}, copy=False).numpy()
        if tensor.size == 0 or tensor.dtype.kind not in "iufb":
            raise rc.MessageError(f"the payload is {tensor.size} values of {tensor.dtype}, expected one number or more")
        stamp = self._stamp(metadata)
        fields = messages.strings(metadata, "fields") if "fields" in metadata else ()
        if "timestamps_ns" not in metadata:
            self._array((name,), tensor, stamp, fields)
            return
        stamps = messages.integers(metadata, "timestamps_ns")
        if tensor.size % len(stamps):
            raise rc.MessageError(f"timestamps_ns has {len(stamps)} entries for {tensor.size} values")
        rows = tensor.reshape(len(stamps), -1).astype(np.float64)
        if "valid" in metadata:
            rows[messages.integers(metadata, "valid", len(stamps)) == 0] = np.nan
        # Rows after the message's own time are a plan, such as a policy's chunk: of a plan alone, the first is drawn.
        count = max(int(np.count_nonzero(stamps <= stamp)), 1)
        for at, row in zip(stamps[:count].tolist(), rows[:count], strict=True):
            self._at(at)
            self._lines(("values", name), row, fields)

    def _diagnostics(self, name: str, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
        self._at(self._of_host(self._stamp(metadata)))
        node = str(metadata.get("node", name))
        operations = columns.get("operation", [""] * len(columns["input"]))
        for operation, of, level, words in zip(
            operations, columns["input"], columns["level"], columns["message"], strict=True
        ):
            row = ".".join(str(part) for part in (operation, of) if part)
            level = int(level)
            word = _LEVELS.get(level, f"level {level}")
            self._state(("diagnostics", node, row), word)
            last = self._said.get((node, row), (0, ""))
            self._said[node, row] = (level, str(words))
            if last != (level, str(words)) and (level or last[0]):
                weight = (
                    rr.TextLogLevel.ERROR if level >= 2 else rr.TextLogLevel.WARN if level else rr.TextLogLevel.INFO
                )
                self._text(node, f"{row}: {word}: {words}" if words else f"{row}: {word}", weight)

    def _lines(self, path: tuple[str, ...], values: np.ndarray, names: Sequence[str] = ()) -> None:
        """Draws values as lines of one plot, or as bars if there are many. All are one Rerun entity, since an entity for each
        value makes the viewer slow."""
        if len(values) > layout.MAX_LINES:
            # Bars have no gaps: invalid values become 0, and a chart with nothing valid is cleared.
            bars = rr.Clear(recursive=False) if np.isnan(values).all() else rr.BarChart(np.nan_to_num(values))
            self._log(path, bars, len(values))
            return
        names = tuple(names) if len(names) == len(values) else tuple(f"[{i}]" for i in range(len(values)))
        entity = rr.new_entity_path(list(path))
        if self._names.get(entity) != names:
            self._names[entity] = names
            colours = np.array(_LINES[: len(names)], np.uint32) if len(names) <= layout.MAX_LEGEND else None
            self._recording.log(entity, rr.SeriesLines(names=names, colors=colours), static=True)
        self._log(path, rr.Scalars(values), len(values))

    def _state(self, path: tuple[str, ...], state: str) -> None:
        entity = rr.new_entity_path(list(path))
        last, newest_ns = self._states.get(entity, (None, self._time_ns))
        # Drawn on change only. After a clock went back it is always drawn, as older states stand at these times.
        if self._time_ns >= newest_ns:
            if last == state:
                return
            self._states[entity] = state, self._time_ns
        if last is None and state in _COLOURS:
            known = ("valid", "invalid") if path[0] == "valid" else tuple(_LEVELS.values())
            looks = rr.StateConfiguration(values=known, colors=np.array([_COLOURS[word] for word in known], np.uint32))
            self._recording.log(entity, looks, static=True)
        self._log(path, rr.StateChange(state=state))

    def _text(self, name: str, words: str, level: rr.TextLogLevel) -> None:
        self._log(("log", name), rr.TextLog(words, level=level))

    def _log(self, path: tuple[str, ...], archetype: Any, lines: int = 0) -> None:
        entity = rr.new_entity_path(list(path))
        self._layout.add(path, entity, lines)
        self._recording.log(entity, archetype)

    def _at(self, stamp_ns: int) -> None:
        if self._is_wall_clock is None:
            self._is_wall_clock = stamp_ns >= _WALL_CLOCK_NS
        if self._is_wall_clock:
            self._recording.set_time(TIMELINE, timestamp=np.datetime64(stamp_ns, "ns"))
        else:
            self._recording.set_time(TIMELINE, duration=np.timedelta64(stamp_ns, "ns"))
        self._time_ns = stamp_ns

    def _stamp(self, metadata: Mapping[str, Any]) -> int:
        """Returns the capture time of a message, or if it has none, the time at which dora says it was published."""
        if "timestamp_ns" in metadata:
            return messages.integer(metadata, "timestamp_ns")
        match metadata.get("timestamp"):
            case datetime.datetime() as published:
                # Whole seconds and microseconds: a float has no room for nanoseconds since 1970.
                return self._of_host(int(published.timestamp() // 1) * 10**9 + published.microsecond * 1000)
            case float(seconds) if math.isfinite(seconds):
                # Nodes of the hub send seconds as a float.
                return math.floor(seconds) * 10**9 + round(seconds % 1 * 10**9)
        return messages.integer(metadata, "timestamp" if "timestamp" in metadata else "timestamp_ns")

    def _stamped(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {**metadata, "timestamp_ns": self._stamp(metadata)}

    def _of_host(self, stamp_ns: int) -> int:
        """Returns the publication time `stamp_ns`, or the capture time drawn last if captures have another clock
        than this machine."""
        is_same = self._time_ns is None or abs(stamp_ns - self._time_ns) < _SAME_CLOCK_NS
        return stamp_ns if is_same else self._time_ns


def _is_image(metadata: Mapping[str, Any]) -> bool:
    """True if a message is an image. Nodes of the hub give samples an encoding, too, such as `jointstate`."""
    encoding = metadata.get("encoding")
    return encoding is not None and ("width" in metadata or str(encoding).lower() in _MEDIA_TYPES)


def _is_flat_cloud(value: np.ndarray, metadata: Mapping[str, Any]) -> bool:
    """True if the node voxelize would read the array as a cloud: it has fields x, y and z, or three values per row, and no
    stamps of its rows."""
    if "timestamps_ns" in metadata:
        return False
    fields = messages.strings(metadata, "fields") if "fields" in metadata else None
    if fields is not None and not {"x", "y", "z"} <= set(fields):
        return False
    if "shape" not in metadata:
        # An array with one value for each field is one sample.
        return fields is not None and value.size != len(fields)
    shape = messages.integers(metadata, "shape")
    return len(shape) == 2 and (fields is not None or shape[1] == 3)


def _frame(of: rc.Voxels | rc.Cloud) -> str:
    return str(of.frame_id or "no frame")


def _occupied(grid: rc.Voxels) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cells to draw, [V, 3], and a value for the colour of each: its first channel other than occupancy,
    else its height."""
    more = [c for c, channel in enumerate(grid.channels) if channel != "occupancy"]
    if (of_map := _obstacles(grid)) is not None:
        cells = np.argwhere(of_map)
    elif grid.layout == "dense" and not {"occupancy", "count"} & set(grid.channels):
        cells = np.argwhere((grid.dense() != 0).any(axis=0))
    else:
        cells = grid.occupied()
    if not more or grid.layout == "bits":
        return cells, cells[:, 2]
    if grid.layout == "coo":
        return cells, grid.features[:, more[0]]
    return cells, grid.values[more[0]][tuple(cells.T)]


def _obstacles(grid: rc.Voxels) -> np.ndarray | None:
    """Returns the cells of a map's product that are obstacles, as a mask [X, Y, Z]; None for a grid that is not
    a map's product."""
    if grid.layout != "dense":
        return None
    match grid.channels:
        case ("occupancy_percent",):
            return grid.dense()[0] > 50
        case ("esdf" | "esdf_slice",):
            return grid.dense()[0] == 0
        case ("tsdf",):
            # Cells that no frame has seen have the greatest distance.
            distances = grid.dense()[0]
            return np.abs(distances) < min(max(grid.voxel_size_m), distances.max(initial=0.0))
    return None


def _shaded(values: np.ndarray) -> np.ndarray:
    """Returns a colour for each value, on a scale from the least to the greatest value."""
    values = np.nan_to_num(np.asarray(values, np.float32), posinf=0.0, neginf=0.0)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    scale = 255.0 / (high - low) if high > low else 0.0
    return _PALETTE[((values - low) * scale).astype(np.uint8)]


def _check_size(data: np.ndarray, height: int, width: int, channels: int) -> None:
    if min(height, width) < 1 or data.size != height * width * channels:
        raise rc.MessageError(f"an image of {height} x {width} x {channels} has {data.size} values")
