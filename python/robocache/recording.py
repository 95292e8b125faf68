"""Reads recordings: samples, messages, and the observations that the nodes made of them, as windows for training.

    recording = rc.Recording("out/recording")
    dataset = rc.RecordingDataset(recording, "robocache.yml")
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import os
import pathlib
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from robocache import _native
from robocache._arrays import Config, source, taker
from robocache._memory import free_bytes
from robocache.attached import Attached
from robocache.observation import Observation
from robocache.offline import Observations, about, gathered, names_of, number_of, out_of_memory, warned
from robocache.tensors import MessageTensor
from robocache.voxels import Voxels

Broken = Literal["refuse", "use"]
"""Treatment of a stream that can't be read to its end: an error, or a warning and the readable part."""
Order = Literal["arrival", "stamp"]
"""The order in which the messages of a recording reach the aligner."""


@dataclasses.dataclass(frozen=True)
class RecordedMessage:
    """One message of a recorded stream: stamp, payload and metadata."""

    timestamp_ns: int
    """Capture time of the message, ns."""
    columns: dict[str, np.ndarray]
    """Columns of the payload by name: those of a struct, such as a cloud, or the single column ``""`` of a tensor."""
    metadata: dict[str, Any]
    """All metadata of the message by key, as in an event of dora."""

    @property
    def fields(self) -> list[str]:
        """Names along the last axis of a tensor, such as x, y, z; empty if the message does not name them."""
        return list(self.metadata.get("fields", []))

    def observation(self, *, invalid: float | None = math.nan) -> Observation:
        """Reads a message of `fused`, of `observation`, or of an aligned stream, as `Observation.from_event` reads it for a policy.

        Raises MessageError if the message is not an observation.
        """
        return Observation.from_message(self._payload(), self.metadata, invalid=invalid)

    def voxels(self) -> Voxels:
        """Reads a voxel grid, as `Voxels.from_event` does. Raises MessageError if the message is not a grid."""
        return Voxels.from_message(self._payload(), self.metadata)

    def _payload(self) -> np.ndarray | dict[str, np.ndarray]:
        return self.columns[""] if list(self.columns) == [""] else self.columns


class RecordedMessages(Sequence[RecordedMessage]):
    """The messages of a recorded stream, in the order of the recording. Each message is loaded when it is indexed.

        clouds = recording.messages("lidar")
        cloud = clouds[np.searchsorted(clouds.timestamps_ns, stamp_ns)]

    The sequence can be pickled, and passed to workers that are forked or spawned, where the file is opened again. If the file
    was cut off or changed meanwhile, unpickling or loading a message raises `ValueError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, broken: Broken = "refuse") -> None:
        self._path = os.fspath(path)
        self._native = _native.Messages(self._path, _uses(broken))

    def __reduce__(self) -> tuple[Callable[[str, int, int], RecordedMessages], tuple[str, int, int]]:
        return _reopened, (self._path, len(self), _sum_of(self.timestamps_ns))

    @functools.cached_property
    def timestamps_ns(self) -> np.ndarray:
        """Capture time of each message, int64 `[N]`, ns."""
        return np.from_dlpack(self._native.timestamps_ns)

    @functools.cached_property
    def arrivals_ns(self) -> np.ndarray | None:
        """Time at which each message arrived at the recorder, int64 `[N]`, ns; None if the recording does not have arrivals."""
        arrivals = self._native.arrivals_ns
        return None if arrivals is None else np.from_dlpack(arrivals)

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: int) -> RecordedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordedMessage]: ...
    def __getitem__(self, index: int | slice) -> RecordedMessage | list[RecordedMessage]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = operator.index(index)
        if not -len(self) <= at < len(self):
            raise IndexError(f"{self._path}: message {at} of {len(self)}")
        timestamp_ns, metadata, arrays = self._read(at % len(self))
        # The `shape` of a grid of bits counts its cells, eight in a byte.
        if (shape := metadata.get("shape")) and "" in arrays and arrays[""].size == math.prod(shape):
            arrays[""] = arrays[""].reshape(shape)
        return RecordedMessage(timestamp_ns, arrays, metadata)

    def _read(self, index: int) -> tuple[int, dict[str, Any], dict[str, np.ndarray]]:
        """Loads the stamp, the metadata and the columns of a message. A tensor is a flat array here: its `shape` is not applied."""
        timestamp_ns, metadata, columns = self._native.message(index)
        take = taker(_HOST)
        arrays = {
            name: np.array(column, dtype=np.str_) if isinstance(column, list) else take(column)
            for name, column in columns.items()
        }
        return timestamp_ns, metadata, arrays

    def attached(self, name: str, numbers: np.ndarray, age_ns: np.ndarray) -> Attached:
        """Loads the messages attached to a window, as in an observation. The array `numbers` has the index of each row's message in
        this sequence, or -1."""
        distinct = [int(number) for number in dict.fromkeys(numbers.tolist()) if number >= 0]
        place = {number: i for i, number in enumerate(distinct)}
        index = np.array([place.get(number, -1) for number in numbers.tolist()], np.int64)
        if not distinct:
            return Attached(name, index, age_ns, np.empty(0, np.int64), {"": np.empty(0, np.float32)}, {})
        read = [self._read(number) for number in distinct]
        _, metadata, first = read[0]
        said = {key: metadata[key] for key in _OWN_METADATA if key in metadata}
        origins = [list(of.get("origin_m", ())) for _, of, _ in read]
        if any(origin != origins[0] for origin in origins):
            said["origin_m"] = [metres for origin in origins for metres in origin]
        columns = {key: np.concatenate([arrays[key] for *_, arrays in read]) for key in first}
        fields: list[str] = metadata.get("fields", [])
        if "" not in first or fields:
            rows = [_rows_of(arrays, of.get("shape", []), len(fields)) for _, of, arrays in read]
            said["grid_offsets"] = np.cumsum([0, *rows]).tolist()
        elif "grid_shape" not in said:
            said["shape"] = [len(read), *(metadata.get("shape") or first[""].shape)]
        stamps = np.array([stamp for stamp, *_ in read], np.int64)
        return Attached(name, index, age_ns, stamps, columns, said)


def _rows_of(arrays: dict[str, np.ndarray], shape: list[int], width: int) -> int:
    """Returns the number of rows of one attached message: of a struct with columns, or of a flat array with `width`
    elements per row."""
    if "" not in arrays:
        return len(next(iter(arrays.values())))
    return shape[0] if len(shape) > 1 else arrays[""].size // max(width, 1)


def _reopened(path: str, count: int, checksum: int) -> RecordedMessages:
    # Broken parts were warned of when the original was opened.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messages = RecordedMessages(path, broken="use")
    if (len(messages), _sum_of(messages.timestamps_ns)) != (count, checksum):
        raise ValueError(f"{path}: it has {len(messages)} messages, and other stamps than the {count} when it was pickled")
    return messages


def _sum_of(stamps: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(stamps).tobytes())


def _uses(broken: Broken) -> bool:
    if broken not in ("refuse", "use"):
        raise ValueError(f"`broken` is {broken!r} (allowed: 'refuse', 'use')")
    return broken == "use"


class Recording:
    """A recording: a folder with a file for each stream, which `robocache-record` or another program wrote.

    ```python
        recording = rc.Recording("out/recording")
        recording.streams                           # ["camera", "force", "lidar"]
        times_ns, values = recording["force"]       # [S], [S, D]
        cloud = recording.messages("lidar")[7]      # cloud.columns["x"]
        observations = recording.windows("robocache.yml")
    ```

    Samples and messages are loaded only when they are asked for.

    A stream that can't be read to its end, as after a crash or on a bad disk, raises `ValueError` when it is asked for. With
    `broken="use"` its readable part is used, and a `UserWarning` names the unreadable parts. The method `problems()` lists the
    unreadable parts of all streams.

    Raises `FileNotFoundError` if the folder does not exist, and `ValueError` if it has no stream.
    """

    def __init__(self, path: str | os.PathLike[str], *, broken: Broken = "refuse") -> None:
        self.path = pathlib.Path(path)
        self._uses_broken = _uses(broken)
        self.streams = _native.recorded_streams(os.fspath(self.path))
        if not self.streams:
            raise ValueError(f"{self.path}: no stream (needed: files NAME.arrow)")

    def __getitem__(self, stream: str) -> tuple[np.ndarray, np.ndarray]:
        """Reads all samples of a stream: stamps, int64 `[S]`, ns, and values `[S, D]`, in the order of the recording. Rows that a
        node masked are left out. bfloat16 becomes uint16, its bits."""
        times, values = _native.read_samples(self._file(stream), self._uses_broken)
        take = taker(_HOST)
        return take(times), take(values)

    def messages(self, stream: str) -> RecordedMessages:
        """Returns the messages of a stream, such as clouds, as a sequence that loads each message when it is indexed."""
        return RecordedMessages(self._file(stream), broken="use" if self._uses_broken else "refuse")

    def problems(self) -> list[str]:
        """Returns an error text for each part that can't be read, as `robocache info` prints it; empty if everything can be read.
        Reads every file to its end."""
        return _native.recording_problems(os.fspath(self.path))

    def _file(self, stream: str) -> str:
        if stream not in self.streams:
            raise ValueError(
                f"{self.path}: stream `{stream}` was not recorded (there are: {', '.join(self.streams)})"
            )
        return os.fspath(self.path / f"{stream}.arrow")

    def windows(
        self,
        config: Config,
        *,
        streams: Mapping[str, str] | None = None,
        invalid: float | None = math.nan,
        allow_offset: Sequence[str] = (),
        device: str | None = None,
        order: Order | None = None,
    ) -> Observations:
        """Makes every observation that `robocache-fuse` made on the robot, with the result type of `robocache.fuse`.

        By default the aligner gets messages in the order of their arrival at the recorder, as with `order: arrival` of
        `robocache-replay` and in `robocache try`. So a message that was late on the robot is late again, and a row has the
        attached message that it had on the robot.

        The order is by stamp if a stream has no arrivals, if all arrivals are the same time, or if arrivals go back. To choose,
        give `order="stamp"` or `order="arrival"`. The field `order` of the result has the order that was used.

        The arguments `config`, `invalid` and `device` are as in `robocache.fuse`. The dict `streams` has the recorded name of an
        input that was recorded by another name: `{"proprio": "arm_state"}`.

        If arrivals were recorded, stamps that are 0.1 s or more off from the stamps of other streams cause a warning, and from 1 s
        on a `ValueError`. Streams that `allow_offset` names are not checked.

        Observations wait for attached streams that were recorded. Their messages are in a `RecordingDataset`.
        """
        options = (streams, invalid, allow_offset, device, order)
        return gathered(self._observe(config, *options, is_gathered=True), taker(_HOST))

    def _observe(
        self,
        config: Config,
        streams: Mapping[str, str] | None,
        invalid: float | None,
        allow_offset: Sequence[str],
        device: str | None,
        order: Order | None,
        *,
        is_gathered: bool,
    ) -> _native.Observed:
        path, text = os.fspath(self.path), source("fuse", config)
        number, allowed = number_of(invalid), names_of("allow_offset", allow_offset)
        try:
            observed = _native.observe_recording(
                path,
                self.streams,
                text,
                dict(streams or {}),
                free_bytes(),
                is_gathered,
                number,
                allowed,
                device,
                self._uses_broken,
                order,
            )
        except MemoryError as error:
            raise out_of_memory(error) from None
        return warned(observed, text)[0]


class Item(dict[str, Any]):
    """One observation of a `RecordingDataset`, or several: a dict of arrays, which also knows the modalities of the columns."""

    modalities: tuple[str, ...]
    """M names, in the order of the columns."""
    offsets: tuple[int, ...]
    """M + 1: modality m is columns offsets[m] to offsets[m + 1]."""
    invalid: float | None
    """Number in entries that are not valid; None for the `fill_value` that the node writes."""

    def observation(self) -> Observation:
        """Converts the item to an `Observation`, as a policy gets it. Raises ValueError if the item
        has several observations."""
        fused = self["fused"]
        if fused.ndim != 2:
            raise ValueError(f"there are {len(fused)} observations (allowed: one, such as dataset[7])")
        dtype = "bfloat16" if fused.dtype == np.uint16 else None
        return Observation(
            tensor=MessageTensor(fused, dtype),
            valid=self["valid"],
            age_ns=self["age_ns"],
            timestamps_ns=self["timestamps_ns"],
            modalities=self.modalities,
            offsets=self.offsets,
            epoch=self["epoch"],
            late_samples=0,
            wait_ns=None,
            trigger=None,
            error=None,
            attached=self.get("attached", {}),
            metadata={},
            invalid=self.invalid,
        )


class RecordingDataset:
    """The observations of a recording, by index: a map-style dataset for PyTorch's `DataLoader`.

        dataset = rc.RecordingDataset("out/recording", "robocache.yml")
        dataset[7]["fused"]             # [T, D]
        dataset[[7, 3, 12]]["fused"]    # [3, T, D]

    An item is a dict with `fused` `[T, D]`, `valid` bool `[T, M]`, `age_ns` int64 `[T, M]`, `timestamps_ns` int64 `[T]` and
    `epoch`, as in `Recording.windows` and from the node. Values in `fused` that are not valid are NaN, or the number `invalid`.
    The method `item.observation()` gives the `Observation`.

    If the configuration attaches streams that were recorded, an item has `attached`, as an `Observation` does:
    `dataset[7]["attached"]["grids"].at(-1)`. The messages are loaded with the item. For several items at once, `attached` is a
    list. PyTorch's `default_collate` does not know these objects: give a `collate_fn`.

    The function `inputs` of a preset takes an item like an observation, so that a policy is trained on the inputs that it gets
    on the robot.

    The argument `order` is as in `Recording.windows`. If the recording is given as a path, `broken` is as in `Recording`.

    All observations are computed once, when the dataset is made. A row that several windows show is stored once. An item is
    a copy of its rows, which the caller may change. The dataset can be pickled, and passed to workers that are forked or
    spawned.
    """

    def __init__(
        self,
        recording: Recording | str | os.PathLike[str],
        config: Config,
        *,
        streams: Mapping[str, str] | None = None,
        invalid: float | None = math.nan,
        allow_offset: Sequence[str] = (),
        device: str | None = None,
        broken: Broken = "refuse",
        order: Order | None = None,
    ) -> None:
        recording = recording if isinstance(recording, Recording) else Recording(recording, broken=broken)
        options = (streams, invalid, allow_offset, device, order)
        observed = recording._observe(config, *options, is_gathered=False)
        said = about(observed)
        self._invalid = number_of(invalid)
        self.modalities: list[str] = said["modalities"]
        self.offsets: list[int] = said["offsets"]
        self.late_samples: int = said["late_samples"]
        self.dropped: dict[str, dict[str, int]] = said["dropped"]
        self.order: str = said["order"]
        take = taker(_HOST)
        self._rows = {name: take(getattr(observed, name)) for name in _ROWS}
        self._rows["fused"] = take(observed.values)
        self._index = take(observed.index)
        self._epoch = take(observed.epoch)
        self._first = self._runs()
        self._attached = {
            output: (recording.messages(stream), take(numbers), take(ages))
            for output, stream, numbers, ages in observed.attached
        }

    def _runs(self) -> list[int]:
        """Returns for each window the index of its first row in the array of distinct rows. It is -1 if the window's rows are
        not consecutive there, so that it can't be a slice."""
        rows = self._index.shape[1]
        is_run = (self._index == self._index[:, :1] + np.arange(rows)).all(axis=1)
        return np.where(is_run, self._index[:, 0], -1).tolist()

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, item: int | slice | Sequence[int] | np.ndarray) -> Item:
        """Returns the observation at an index as an item. A slice or a list of indices gives several, with arrays that have one
        more axis in front."""
        if isinstance(item, tuple):
            item = list(item)
        try:
            first = self._first[item]  # type: ignore[index]
        except IndexError:
            raise IndexError(f"observation {item} of {len(self)}") from None
        except TypeError:
            first = -1
        if isinstance(first, list) or first < 0:
            rows = self._index[item]
            observation = Item((name, values.take(rows, axis=0)) for name, values in self._rows.items())
        else:
            span = slice(first, first + self._index.shape[1])
            observation = Item((name, values[span].copy()) for name, values in self._rows.items())
        epoch = self._epoch[item]
        observation["epoch"] = epoch if isinstance(epoch, np.ndarray) else int(epoch)
        observation.modalities, observation.offsets = tuple(self.modalities), tuple(self.offsets)
        observation.invalid = self._invalid
        if self._attached:
            several = np.arange(len(self))[item]
            found = [self._attached_of(int(i)) for i in np.atleast_1d(several)]
            observation["attached"] = found if isinstance(epoch, np.ndarray) else found[0]
        return observation

    def _attached_of(self, item: int) -> dict[str, Attached]:
        return {
            name: messages.attached(name, numbers[item], ages[item].copy())
            for name, (messages, numbers, ages) in self._attached.items()
        }


_HOST = np.empty(0)
# Metadata of a recorded message that describe an attached grid, cloud or tensor.
_OWN_METADATA = ("channels", "fields", "origin_m", "voxel_size_m", "grid_shape", "frame_id", "dtype")
_ROWS = ("valid", "age_ns", "timestamps_ns")
