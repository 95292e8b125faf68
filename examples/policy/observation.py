"""What a policy does with an `observation` before and after its network. Knows neither dora nor ONNX."""

import collections
import dataclasses

import numpy as np

NS_PER_MS = 1_000_000


class MessageError(ValueError):
    """A message that breaks the contract: names the key, what came and what was expected."""


def _get(entries: dict, key: str, where: str = "metadata"):
    if key not in entries:
        raise MessageError(f"{where} has no {key!r}")
    return entries[key]


def _ints(metadata: dict, key: str, length: int) -> np.ndarray:
    values = np.asarray(_get(metadata, key), np.int64).reshape(-1)
    if len(values) != length:
        raise MessageError(f"{key} has {len(values)} entries, expected {length}")
    return values


@dataclasses.dataclass(frozen=True)
class Observation:
    """One `observation`: the window, its invalid entries zeroed, and the grid of its newest row."""

    fused: np.ndarray  # [T, D] float32
    valid: np.ndarray  # [T, M] bool
    age_ns: np.ndarray  # [T, M] int64, -1 where there is no sample
    timestamps_ns: np.ndarray  # [T] int64, newest last
    modalities: tuple[str, ...]
    epoch: int
    late_samples: int
    grid: "Grid | None"  # None where there is none that is young enough
    device: str
    compute_us: float

    @property
    def timestamp_ns(self) -> int:
        return int(self.timestamps_ns[-1])

    @classmethod
    def from_message(cls, columns: dict[str, np.ndarray], metadata: dict) -> "Observation":
        """Takes the columns of the message, `fused` and `grids`, each a flat array."""
        values = _get(columns, "fused", "the payload")
        shape = [int(n) for n in _get(metadata, "shape")]
        if len(shape) != 2 or shape[0] < 1 or shape[0] * shape[1] != len(values):
            raise MessageError(f"shape is {shape} for {len(values)} values, expected [T, D]")
        window, dim = shape
        modalities = tuple(_get(metadata, "modalities"))
        count = len(modalities)
        offsets = _ints(metadata, "offsets", count + 1)
        if offsets[0] != 0 or offsets[-1] != dim or np.any(np.diff(offsets) < 0):
            raise MessageError(f"offsets are {offsets.tolist()}, expected 0 rising to {dim}")
        valid = _ints(metadata, "valid", window * count).reshape(window, count) != 0
        # A copy: the received array belongs to the sender's shared memory, and zeroing must not write there.
        fused = np.array(values, np.float32).reshape(window, dim)
        fused[~np.repeat(valid, np.diff(offsets), axis=1)] = 0.0
        return cls(
            fused=fused,
            valid=valid,
            age_ns=_ints(metadata, "age_ns", window * count).reshape(window, count),
            timestamps_ns=_ints(metadata, "timestamps_ns", window),
            modalities=modalities,
            epoch=int(_get(metadata, "epoch")),
            late_samples=int(_get(metadata, "late_samples")),
            grid=Grid.of_newest_row(columns, metadata, window),
            device=str(metadata.get("device", "unknown")),
            compute_us=float(metadata.get("compute_us", float("nan"))),
        )


@dataclasses.dataclass(frozen=True)
class Grid:
    """A dense voxel grid that is attached to an observation."""

    voxels: np.ndarray  # [C, X, Y, Z] float32
    timestamp_ns: int
    age_ns: int  # the newest row minus the time of the grid

    @classmethod
    def of_newest_row(cls, columns: dict[str, np.ndarray], metadata: dict, window: int) -> "Grid | None":
        attached = list(_get(metadata, "attached"))
        if "grids" not in attached:
            raise MessageError(f"attached is {attached}, expected 'grids' in it")
        at, count = attached.index("grids"), len(attached)
        index = int(_ints(metadata, "grid_index", window * count).reshape(window, count)[-1, at])
        if index < 0:
            return None
        values, shape = _get(columns, "grids", "the payload"), [int(n) for n in _get(metadata, "grids.shape")]
        if len(shape) != 5 or int(np.prod(shape)) != len(values):
            raise MessageError(f"grids.shape is {shape} for {len(values)} values, expected dense grids [U, C, X, Y, Z]")
        return cls(
            voxels=np.array(values.reshape(shape)[index], np.float32),
            timestamp_ns=int(_ints(metadata, "grids.timestamps_ns", shape[0])[index]),
            age_ns=int(_ints(metadata, "grid_age_ns", window * count).reshape(window, count)[-1, at]),
        )


@dataclasses.dataclass(frozen=True)
class Gate:
    """When an observation is too poor to act on: the robot then holds its position."""

    max_age_ms: dict[str, float]  # required modalities and how old their newest sample may be

    def refusal(self, observation: Observation) -> str | None:
        """Reason to refuse the newest row, None where it may be acted on."""
        for name, limit_ms in self.max_age_ms.items():
            if name not in observation.modalities:
                return f"{name} absent"
            m = observation.modalities.index(name)
            if not observation.valid[-1, m]:
                return f"{name} invalid"
            age_ns = int(observation.age_ns[-1, m])
            if age_ns < 0 or age_ns > limit_ms * NS_PER_MS:
                return f"{name} too old"
        return None


class Chunks:
    """Temporal ensembling (ACT): what earlier chunks said about a step is averaged in, the older the less."""

    def __init__(self, period_ns: int, decay: float = 0.5):
        self.period_ns = period_ns
        self.decay = decay
        self._history: collections.deque[tuple[int, np.ndarray]] = collections.deque()

    def __len__(self) -> int:
        return len(self._history)

    def clear(self) -> None:
        self._history.clear()

    def add(self, timestamp_ns: int, chunk: np.ndarray) -> np.ndarray:
        """Takes the chunk [horizon, A] made for `timestamp_ns`, returns the ensembled one of the same shape."""
        horizon = len(chunk)
        total = chunk.astype(np.float64)
        weights = np.ones((horizon, 1))
        kept = collections.deque()
        for made_ns, earlier in self._history:
            step = round((timestamp_ns - made_ns) / self.period_ns)
            if 0 < step < horizon:
                weight = self.decay**step
                total[: horizon - step] += weight * earlier[step:]
                weights[: horizon - step] += weight
                kept.append((made_ns, earlier))
        kept.append((timestamp_ns, chunk))
        self._history = kept
        return (total / weights).astype(np.float32)
