"""An observation: the window of a fused or aligned stream, its validity masks, and the messages attached to it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robocache import attached, messages
from robocache.attached import Attached
from robocache._native import Tensor
from robocache.messages import MessageError
from robocache.tensors import MessageTensor, owned

# Numbers that an answer without an observation may have.
_NUMBERS = ("epoch", "late_samples", "timestamp_ns")


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """A message of `fused`, of `observation`, or of an aligned stream.

    >>> observation = Observation.from_event(event)
    >>> observation["force"]            # [T, 6], a view of its columns, the newest row last
    >>> observation.valid[-1]           # [M], what of the newest row can be trusted

    Entries that are not valid are NaN, so that nobody takes them for measurements, unless another `invalid` was asked for.
    """

    tensor: MessageTensor
    """[T, D], for PyTorch and other libraries that speak DLPack: `observation.tensor.torch()`."""
    valid: np.ndarray
    """Validity masks, [T, M] bool."""
    age_ns: np.ndarray
    """[T, M] int64: the target minus the newest sample at or before it, -1 if there is none."""
    timestamps_ns: np.ndarray
    """Targets, [T] int64, newest last."""
    modalities: tuple[str, ...]
    """M names, in the order of the columns."""
    offsets: tuple[int, ...]
    """M + 1: modality m is columns offsets[m] to offsets[m + 1]."""
    epoch: int
    """Goes up by one at each clock jump."""
    late_samples: int
    """Running count of samples that came too late."""
    wait_ns: int | None
    """Time from the target to the newest sample when the target fell due, ns."""
    trigger: str | None
    """`grid`, `stream`, `request` or `timer`."""
    error: str | None
    """The reason why a request got no observation. Rows and modalities are then empty."""
    attached: Mapping[str, Attached]
    """Messages that are tied to the rows, by the name of their output."""
    metadata: Mapping[str, Any]
    """All metadata as received: `frame_id`, `request_id`, `device`, `compute_us` and so on."""
    invalid: float | None = None
    """Number in entries that are not valid; None for the `fill_value` that the node wrote."""
    sender: int | None = None
    """The process that published the message: another number shows that the node was started anew. None if it is not known."""

    @functools.cached_property
    def fused(self) -> np.ndarray:
        """[T, D] as a NumPy array, which is a copy if the tensor is on a device. bfloat16 is widened to float32."""
        return self.tensor.numpy()

    @property
    def timestamp_ns(self) -> int:
        """The newest target; for an answer without an observation, the stamp of the message."""
        return int(self.timestamps_ns[-1]) if len(self.timestamps_ns) else int(self.metadata.get("timestamp_ns", 0))

    def __len__(self) -> int:
        return len(self.timestamps_ns)

    def __getitem__(self, modality: str) -> np.ndarray:
        m = self.index_of(modality)
        return self.fused[:, self.offsets[m] : self.offsets[m + 1]]

    def index_of(self, modality: str) -> int:
        """The column of a modality in `valid` and `age_ns`. Raises KeyError, which lists the modalities."""
        if modality not in self.modalities:
            why = f": {self.error}" if self.error else ""
            raise KeyError(f"no modality {modality!r}: modalities are {list(self.modalities)}{why}")
        return self.modalities.index(modality)

    @classmethod
    def from_event(
        cls, event: Mapping[str, Any], *, invalid: float | None = math.nan, copy: bool = True
    ) -> Observation:
        """Reads an event of dora.

        Entries that are not valid become `invalid`: NaN, or a number for a network that is fed the mask, too. With None they
        keep the `fill_value` that the node wrote. Values on a device are changed there.

        The values are copied, because an array that is held keeps the sender from using its memory again. With `copy=False`
        they are the received ones, read-only, which needs `invalid=None`.

        Raises MessageError if the message is not an observation or contradicts itself.
        """
        return cls.from_message(*messages.parts(event), invalid=invalid, copy=copy)

    @classmethod
    def from_message(
        cls, value: Any, metadata: Mapping[str, Any], *, invalid: float | None = math.nan, copy: bool = True
    ) -> Observation:
        """Reads a payload and its metadata, as `from_event` does: an Arrow array, a NumPy array, or a dict of columns."""
        if not copy and invalid is not None:
            raise ValueError(f"copy=False with invalid={invalid}: received memory can't be written, pass invalid=None")
        if metadata.get("error") is not None:
            return cls._of_error(metadata)
        modalities = messages.strings(metadata, "modalities")
        offsets = messages.integers(metadata, "offsets", len(modalities) + 1)
        shape = messages.integers(metadata, "shape")
        if len(shape) != 2 or shape[0] < 1:
            raise MessageError(f"shape is {shape.tolist()}, expected [T, D]")
        window, dim = shape.tolist()
        if offsets[0] != 0 or offsets[-1] != dim or np.any(np.diff(offsets) < 0):
            raise MessageError(f"offsets are {offsets.tolist()}, expected 0 rising to {dim}")
        valid = messages.integers(metadata, "valid", window, len(modalities)) != 0
        columns = None
        resident = messages.take(metadata, copy) if messages.is_resident(metadata) else None
        held = None if copy else resident
        if resident is not None and resident.device != "cpu":
            found = resident.columns
            tensor = messages.get(found, "" if "" in found else "fused", "the payload").reshape([window, dim])
            if invalid is not None and not valid.all():
                _fill_on_device(tensor, valid, offsets, invalid)
            columns = {name: messages.host_array(c) for name, c in found.items() if name not in ("", "fused")} or None
            tensor = MessageTensor(tensor, resident=held)
        else:
            if resident is not None:
                value, copy = messages.host_arrays(resident), False
            if messages.is_columns(value):
                columns = messages.columns(value)
                values = messages.get(columns, "fused", "the payload")
            else:
                values = messages.flat(value)
            if values.size != window * dim:
                raise MessageError(f"shape is {[window, dim]} for {values.size} values, expected [T, D]")
            values = values.reshape(window, dim)
            if copy:
                values = owned(values)
                columns = columns and {name: c if name == "fused" else owned(c) for name, c in columns.items()}
            if invalid is not None:
                _fill(values, np.repeat(~valid, np.diff(offsets), axis=1), invalid, messages.text(metadata, "dtype"))
            tensor = MessageTensor(values, messages.text(metadata, "dtype"), held)
        return cls(
            tensor=tensor,
            valid=valid,
            age_ns=messages.integers(metadata, "age_ns", window, len(modalities)),
            timestamps_ns=messages.integers(metadata, "timestamps_ns", window),
            modalities=modalities,
            offsets=tuple(offsets.tolist()),
            epoch=messages.integer(metadata, "epoch"),
            late_samples=messages.integer(metadata, "late_samples"),
            wait_ns=messages.integer(metadata, "wait_ns") if "wait_ns" in metadata else None,
            trigger=messages.text(metadata, "trigger"),
            error=None,
            attached=attached.of_observation(metadata, columns, window),
            metadata=dict(metadata),
            invalid=invalid,
            sender=_sender(metadata),
        )

    @classmethod
    def _of_error(cls, metadata: Mapping[str, Any]) -> Observation:
        shape = messages.integers(metadata, "shape").tolist() if "shape" in metadata else [0, 0]
        if len(shape) != 2 or not 0 <= shape[1] < 2**31:
            raise MessageError(f"shape is {shape}, expected [0, D]")
        numbers = {key: messages.integer(metadata, key) for key in _NUMBERS if key in metadata}
        return cls(
            tensor=MessageTensor(np.empty((0, shape[1]), np.float32)),
            valid=np.empty((0, 0), bool),
            age_ns=np.empty((0, 0), np.int64),
            timestamps_ns=np.empty(0, np.int64),
            modalities=(),
            offsets=(0,),
            epoch=numbers.get("epoch", 0),
            late_samples=numbers.get("late_samples", 0),
            wait_ns=None,
            trigger=messages.text(metadata, "trigger"),
            error=str(metadata["error"]),
            attached={},
            metadata=dict(metadata),
            sender=_sender(metadata),
        )


def _sender(metadata: Mapping[str, Any]) -> int | None:
    """The process that published a message; None if `sender` is not an integer, since other software may use that key."""
    sender = metadata.get("sender")
    return sender if isinstance(sender, int) and not isinstance(sender, bool) else None


def _fill_on_device(tensor: Tensor, valid: np.ndarray, offsets: np.ndarray, number: float) -> None:
    """Writes a number into entries that are not valid, on a device and without a copy to the host."""
    dim = int(offsets[-1])
    spans = [(int(row * dim + offsets[m]), int(row * dim + offsets[m + 1])) for row, m in np.argwhere(~valid)]
    try:
        tensor.fill(spans, number)
    except ValueError as error:
        raise MessageError(str(error)) from None


def _fill(values: np.ndarray, where: np.ndarray, number: float, dtype: str | None) -> None:
    """Writes a number into entries; for bfloat16 its bits, rounded to the nearest as the nodes do."""
    if dtype == "bfloat16":
        bits = int(np.float32(number).view(np.uint32))
        values[where] = 0x7FC0 if math.isnan(number) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    elif np.issubdtype(values.dtype, np.floating):
        values[where] = number
    else:
        raise MessageError(f"the values are {values.dtype}, expected float32, float16 or bfloat16 (its bits)")
