"""An observation: the window of a fused or aligned stream, its validity masks, and the messages attached to it.

By default a value that is not valid is NaN, whatever the node wrote, so that it never looks like a measurement.
"""

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

# Integers that the metadata of an error answer to a request may have.
_NUMBERS = ("epoch", "late_samples", "timestamp_ns")


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """A message of `fused`, of `observation`, or of an aligned stream. It has T rows, D columns and M modalities.

    >>> observation = Observation.from_event(event)
    >>> observation["force"]            # [T, 6], a view of its columns, the newest row last
    >>> observation.valid[-1]           # [M], True for modalities that can be trusted

    Values that are not valid are NaN, so that nobody takes them for measurements. Another `invalid` of `from_event` changes
    that.
    """

    tensor: MessageTensor
    """Values of the window, [T, D], newest row last, for any library that speaks DLPack: `observation.tensor.torch()`."""
    valid: np.ndarray
    """True for modalities that are valid in a row, [T, M] bool."""
    age_ns: np.ndarray
    """Target minus the time of the newest sample at or before the target, [T, M] int64, ns; -1 without such a sample."""
    timestamps_ns: np.ndarray
    """Target of each row, [T] int64, ns, newest last."""
    modalities: tuple[str, ...]
    """Names of the M modalities, in the order of the columns."""
    offsets: tuple[int, ...]
    """Bounds of the modalities, M + 1 numbers: modality m is columns offsets[m] to offsets[m + 1]."""
    epoch: int
    """Number that goes up by one at each clock jump."""
    late_samples: int
    """Number of samples since the start of the node that came too late."""
    wait_ns: int | None
    """Newest capture time of the streams minus the target, when the target fell due, ns; None if the message does not say."""
    trigger: str | None
    """Event that set the target: `grid`, `stream`, `request` or `timer`; None if the message does not say."""
    error: str | None
    """Reason why a request got no observation; None for an observation. With an error there are no rows and no modalities."""
    attached: Mapping[str, Attached]
    """Attached streams, whose messages are tied to the rows, by the name of their output."""
    metadata: Mapping[str, Any]
    """All metadata of the message as received: `frame_id`, `request_id`, `device`, `compute_us` and so on."""
    invalid: float | None = None
    """Number in values that are not valid; None for the `fill_value` that the node wrote."""
    sender: int | None = None
    """Process that published the message; another number shows that the node was restarted. None if it is not known."""

    @functools.cached_property
    def fused(self) -> np.ndarray:
        """Values of the window, [T, D], as a NumPy array. It is a copy if the tensor is on a device, or is bfloat16, which is
        widened to float32."""
        return self.tensor.numpy()

    @property
    def timestamp_ns(self) -> int:
        """Target of the newest row, ns. If the message has an `error` in place of rows, the stamp of the message, or 0 if
        it has none."""
        return int(self.timestamps_ns[-1]) if len(self.timestamps_ns) else int(self.metadata.get("timestamp_ns", 0))

    def __len__(self) -> int:
        return len(self.timestamps_ns)

    def __getitem__(self, modality: str) -> np.ndarray:
        m = self.index_of(modality)
        return self.fused[:, self.offsets[m] : self.offsets[m + 1]]

    def index_of(self, modality: str) -> int:
        """Returns the column of a modality in `valid` and `age_ns`. Raises a KeyError that lists the modalities otherwise."""
        if modality not in self.modalities:
            why = f": {self.error}" if self.error else ""
            raise KeyError(f"no modality {modality!r}: modalities are {list(self.modalities)}{why}")
        return self.modalities.index(modality)

    @classmethod
    def from_event(
        cls, event: Mapping[str, Any], *, invalid: float | None = math.nan, copy: bool = True
    ) -> Observation:
        """Reads an event of dora.

        Values that are not valid become `invalid`: NaN, or a number for a network whose input includes the mask. With None they
        keep the `fill_value` that the node wrote. Values on a device are overwritten on the device.

        By default the values are copied, because an array that is held keeps the sender from reusing its memory. With `copy=False`
        the arrays are the received memory, read-only, and `invalid` must be None.

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
    """Returns the process that published a message; None if `sender` is not an integer, since other software may use the key."""
    sender = metadata.get("sender")
    return sender if isinstance(sender, int) and not isinstance(sender, bool) else None


def _fill_on_device(tensor: Tensor, valid: np.ndarray, offsets: np.ndarray, number: float) -> None:
    """Writes a number to the values that are not valid, on the device of the tensor and without a copy to the host."""
    dim = int(offsets[-1])
    spans = [(int(row * dim + offsets[m]), int(row * dim + offsets[m + 1])) for row, m in np.argwhere(~valid)]
    try:
        tensor.fill(spans, number)
    except ValueError as error:
        raise MessageError(str(error)) from None


def _fill(values: np.ndarray, where: np.ndarray, number: float, dtype: str | None) -> None:
    """Writes a number to the values selected by the mask `where`. If `dtype` is bfloat16 the values are its bits, and the number is
    rounded to the nearest, as the nodes do."""
    if dtype == "bfloat16":
        bits = int(np.float32(number).view(np.uint32))
        values[where] = 0x7FC0 if math.isnan(number) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    elif np.issubdtype(values.dtype, np.floating):
        values[where] = number
    else:
        raise MessageError(f"the values are {values.dtype}, expected float32, float16 or bfloat16 (its bits)")
