"""Draws messages into a recording of Rerun.

The first part of an entity's path is what it shows: `values`, `age_ms`, `valid`, `space`, `image`, `diagnostics`,
`log`; the next ones are the input and the modality.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import rerun as rr
import robocache as rc
from robocache import messages

from robocache_view import layout

TIMELINE = "capture_time"
# Stamps from here on (1973) are times since 1970, smaller ones times since a start.
_WALL_CLOCK_NS = 10**17
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
# Low to high: points of viridis, with steps between them.
_VIRIDIS = [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)]
_PALETTE = np.stack(
    [np.interp(np.linspace(0, 4, 256), range(5), channel) for channel in zip(*_VIRIDIS, strict=True)], axis=1
).astype(np.uint32) @ np.array([1 << 24, 1 << 16, 1 << 8], np.uint32) + np.uint32(255)


class Canvas:
    """What is drawn, and what of it must be remembered: what has not changed is not drawn again."""

    def __init__(self, recording: rr.RecordingStream):
        self._recording = recording
        self._is_wall_clock: bool | None = None
        self._states: dict[str, str] = {}
        self._said: dict[str, tuple[int, str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._epochs: dict[str, int] = {}
        self._stamps: dict[str, int] = {}
        self._layout = layout.Layout()

    def draw(self, name: str, value: Any, metadata: Mapping[str, Any]) -> None:
        """Draws a message of the input `name`: an array or a dict of columns. What it is follows from its metadata.

        Raises MessageError where it is nothing that can be drawn, or contradicts itself.
        """
        columns = value.keys() if isinstance(value, Mapping) else ()
        if metadata.get("error") is not None or "modalities" in metadata:
            self._observation(name, rc.Observation.from_message(value, metadata, invalid=None, copy=False))
        elif "grid_index" in metadata:
            self._attached_output(name, value, metadata)
        elif "grid_shape" in metadata:
            self._voxels((name,), rc.Voxels.from_message(value, _stamped(metadata), copy=False))
        elif {"input", "level", "message"} <= set(columns):
            self._diagnostics(name, value, metadata)
        elif {"width", "height", "encoding", "data"} <= set(columns):
            self._image_struct(name, value, metadata)
        elif "encoding" in metadata:
            self._image((name,), value, metadata, _stamp(metadata))
        elif {"x", "y", "z"} <= set(columns) or _is_flat_cloud(value, metadata):
            event = {"type": "INPUT", "value": value, "metadata": _stamped(metadata)}
            self._cloud((name,), rc.Cloud.from_event(event, copy=False))
        elif columns:
            raise rc.MessageError(f"columns are {list(columns)}, expected those of a message that can be drawn")
        else:
            self._samples(name, value, metadata)

    def lay_out(self) -> None:
        """Sends the views of what was drawn, where there are new ones."""
        if (blueprint := self._layout.blueprint(TIMELINE)) is not None:
            self._recording.send_blueprint(blueprint)

    def _observation(self, name: str, observation: rc.Observation) -> None:
        if observation.error is not None:
            self._at(_stamp(observation.metadata))
            self._text(name, f"no observation: {observation.error}", rr.TextLogLevel.WARN)
            return
        self._at(observation.timestamp_ns)
        last = self._epochs.get(name)
        self._epochs[name] = observation.epoch
        if last != observation.epoch:
            self._forget(name)
            self._state(("valid", name, "epoch"), str(observation.epoch))
            if last is not None:
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
        """Draws what the newest row has of an attached stream, once: many rows may have the same message."""
        if (index := int(stream.index[-1])) < 0 or stream.timestamps_ns is None:
            return
        stamp, key = int(stream.timestamps_ns[index]), "/".join(path)
        if self._stamps.get(key) == stamp:
            return
        match stream.message(index):
            case rc.Voxels() as grid:
                self._voxels(path, grid)
            case rc.Cloud() as cloud:
                self._cloud(path, cloud)
            case array:
                self._array(path, array, stamp)
        self._stamps[key] = stamp

    def _voxels(self, path: tuple[str, ...], grid: rc.Voxels) -> None:
        cells, values = _occupied(grid)
        self._at(grid.timestamp_ns)
        self._log(
            ("space", grid.frame_id or "no frame", *path),
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
            ("space", cloud.frame_id or "no frame", *path),
            rr.Points3D(points, colors=_shaded(shade), radii=rr.Radius.ui_points(1.5)),
        )

    def _array(self, path: tuple[str, ...], array: np.ndarray, stamp: int, fields: Sequence[str] = ()) -> None:
        """An image, or one sample of any shape."""
        self._at(stamp)
        if array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] in (1, 3, 4):
            self._log(("image", *path), rr.Image(array))
        else:
            self._lines(("values", *path), array.reshape(-1).astype(np.float64), fields)

    def _image_struct(self, name: str, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
        # A list of uint8, or one value that is binary.
        data = columns["data"]
        data = data if data.dtype == np.uint8 else np.frombuffer(data[0], np.uint8)
        said = {"encoding": columns["encoding"][0], **{key: int(columns[key][0]) for key in ("width", "height")}}
        self._image((name,), data, said, _stamp(metadata))

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
        stamp = _stamp(metadata)
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
        # Rows after the message's own time are a plan, such as the chunk of a policy: its first step is drawn.
        count = max(int(np.count_nonzero(stamps <= stamp)), 1)
        for at, row in zip(stamps[:count].tolist(), rows[:count], strict=True):
            self._at(at)
            self._lines(("values", name), row, fields)

    def _diagnostics(self, name: str, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
        self._at(_stamp(metadata))
        node = str(metadata.get("node", name))
        operations = columns.get("operation", [""] * len(columns["input"]))
        for operation, of, level, words in zip(
            operations, columns["input"], columns["level"], columns["message"], strict=True
        ):
            row = ".".join(str(part) for part in (operation, of) if part)
            level = int(level)
            word = _LEVELS.get(level, f"level {level}")
            self._state(("diagnostics", node, row), word)
            key = f"{node}/{row}"
            last = self._said.get(key, (0, ""))
            self._said[key] = (level, str(words))
            if last != (level, str(words)) and (level or last[0]):
                weight = (
                    rr.TextLogLevel.ERROR if level >= 2 else rr.TextLogLevel.WARN if level else rr.TextLogLevel.INFO
                )
                self._text(node, f"{row}: {word}: {words}" if words else f"{row}: {word}", weight)

    def _lines(self, path: tuple[str, ...], values: np.ndarray, names: Sequence[str] = ()) -> None:
        """One batch for all lines: an entity for each would make the viewer slow."""
        if len(values) > layout.MAX_LINES:
            # Bars have no gaps: what is invalid goes.
            bars = rr.Clear(recursive=False) if np.isnan(values).all() else rr.BarChart(np.nan_to_num(values))
            self._log(path, bars, len(values))
            return
        names = tuple(names) if len(names) == len(values) else tuple(f"[{i}]" for i in range(len(values)))
        entity = rr.new_entity_path(list(path))
        if self._names.get(entity) != names:
            self._names[entity] = names
            self._recording.log(entity, rr.SeriesLines(names=names), static=True)
        self._log(path, rr.Scalars(values), len(values))

    def _state(self, path: tuple[str, ...], state: str) -> None:
        entity = rr.new_entity_path(list(path))
        last = self._states.get(entity)
        if last == state:
            return
        self._states[entity] = state
        if last is None and state in _COLOURS:
            known = ("valid", "invalid") if path[0] == "valid" else tuple(_LEVELS.values())
            looks = rr.StateConfiguration(values=known, colors=np.array([_COLOURS[word] for word in known], np.uint32))
            self._recording.log(entity, looks, static=True)
        self._log(path, rr.StateChange(state=state))

    def _text(self, name: str, words: str, level: rr.TextLogLevel) -> None:
        self._log(("log", name), rr.TextLog(words, level=level))

    def _forget(self, name: str) -> None:
        """Has the states of an input drawn again: its time may begin anew."""
        start = rr.new_entity_path(["valid", name])
        for entity in [entity for entity in self._states if entity.startswith(f"{start}/")]:
            del self._states[entity]

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


def _stamp(metadata: Mapping[str, Any]) -> int:
    """The capture time of a message; of one that does not say it, when dora says that it was published."""
    if "timestamp_ns" in metadata:
        return messages.integer(metadata, "timestamp_ns")
    published = metadata.get("timestamp")
    if isinstance(published, datetime.datetime):
        # Whole seconds and microseconds: a float has no room for nanoseconds since 1970.
        return int(published.timestamp() // 1) * 10**9 + published.microsecond * 1000
    return messages.integer(metadata, "timestamp" if "timestamp" in metadata else "timestamp_ns")


def _stamped(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {**metadata, "timestamp_ns": _stamp(metadata)}


def _is_flat_cloud(value: np.ndarray, metadata: Mapping[str, Any]) -> bool:
    """As voxelize takes clouds: rows that are no samples, of fields x, y, z among others, or of these three alone."""
    if "timestamps_ns" in metadata or "shape" not in metadata or len(metadata["shape"]) != 2:
        return False
    return {"x", "y", "z"} <= set(metadata["fields"]) if "fields" in metadata else metadata["shape"][1] == 3


def _occupied(grid: rc.Voxels) -> tuple[np.ndarray, np.ndarray]:
    """The cells that have points, [V, 3]; of each the first channel that says more than that, else its height, [V]."""
    more = [c for c, channel in enumerate(grid.channels) if channel != "occupancy"]
    if grid.layout == "dense" and not {"occupancy", "count"} & set(grid.channels):
        cells = np.argwhere((grid.dense() != 0).any(axis=0))
    else:
        cells = grid.occupied()
    if not more or grid.layout == "bits":
        return cells, cells[:, 2]
    if grid.layout == "coo":
        return cells, grid.features[:, more[0]]
    return cells, grid.values[more[0]][tuple(cells.T)]


def _shaded(values: np.ndarray) -> np.ndarray:
    """A colour for each value, from the least to the greatest of them."""
    values = np.nan_to_num(np.asarray(values, np.float32), posinf=0.0, neginf=0.0)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    scale = 255.0 / (high - low) if high > low else 0.0
    return _PALETTE[((values - low) * scale).astype(np.uint8)]


def _check_size(data: np.ndarray, height: int, width: int, channels: int) -> None:
    if min(height, width) < 1 or data.size != height * width * channels:
        raise rc.MessageError(f"an image of {height} x {width} x {channels} has {data.size} values")
