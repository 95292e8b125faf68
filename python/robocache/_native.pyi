from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, final

__version__: str

class Source(TypedDict):
    """The text of a configuration, and what errors call it."""

    text: str
    file: str

@final
class Tensor:
    """An array without a library: any takes it by DLPack, without a copy.

    What is in it is there: nothing has to be waited for.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""

    @property
    def dtype(self) -> str:
        """The type of the elements, such as `float32`, `bfloat16` or `bool`."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda:N` or `hip:N`."""

    @property
    def nbytes(self) -> int:
        """The size of the elements, bytes."""

    @staticmethod
    def from_dlpack(array: Any) -> Tensor:
        """The array of another library. It is not copied, but where it lies on the host with gaps."""

    def to(self, device: str) -> Tensor:
        """A copy on another device: from `cpu` to `cuda:N` or `hip:N`, or back. The tensor itself, if it is there already."""

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """The same memory with other dimensions, of as many elements."""

    def fill(self, spans: Sequence[tuple[int, int]], number: float) -> None:
        """Writes a number to the elements of each span `[begin, end)` of a tensor of a device, where it lies. Nobody else
        may use the tensor yet."""

    def bits(self) -> Tensor:
        """The same memory with its elements seen as uint16: NumPy does not know bfloat16."""

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Observed:
    """The observations of whole streams, row by row: a row that several windows show is there once."""

    @property
    def modalities(self) -> list[str]: ...
    @property
    def offsets(self) -> list[int]: ...
    @property
    def values(self) -> Tensor:
        """`[U, D]`."""

    @property
    def valid(self) -> Tensor:
        """bool `[U, M]`."""

    @property
    def age_ns(self) -> Tensor:
        """int64 `[U, M]`."""

    @property
    def timestamps_ns(self) -> Tensor:
        """int64 `[U]`."""

    @property
    def index(self) -> Tensor:
        """int64 `[N, T]`: the rows of each window."""

    @property
    def epoch(self) -> Tensor:
        """int64 `[N]`."""

    @property
    def late_samples(self) -> int: ...
    @property
    def dropped(self) -> list[tuple[str, str, int]]: ...
    @property
    def left_out(self) -> list[str]:
        """The inputs that the configuration attaches, which are left out."""

    @property
    def attached(self) -> list[tuple[str, str, Tensor, Tensor]]:
        """Attached streams: the output and the stream of each, and, both int64 `[N, T]`, the number of the message that
        a row has and the time from that to the row's target, ns; -1 where a row has none."""

    @property
    def spans(self) -> list[tuple[str, int, int, int, int]]:
        """For each stream with a stamp: its name, its least and greatest stamp, their number, and, if the last is
        before the first, the number of stamps that are before their predecessor. Messages of several samples have one
        stamp."""

    @property
    def off(self) -> list[str]:
        """Streams whose stamps are off from those of the others, in words."""

    @property
    def by_arrival(self) -> bool:
        """True if messages went in in the order in which they came, False if in that of their stamps."""

@final
class Grid:
    """A voxel grid."""

    @property
    def values(self) -> Tensor | None: ...
    @property
    def coords(self) -> Tensor | None: ...
    @property
    def features(self) -> Tensor | None: ...
    @property
    def counters(self) -> list[tuple[str, int]]: ...
    @property
    def unusable(self) -> list[tuple[str, int]]: ...
    @property
    def channels(self) -> list[str]: ...
    @property
    def layout(self) -> str: ...
    @property
    def origin_m(self) -> Sequence[float]: ...
    @property
    def voxel_size_m(self) -> Sequence[float]: ...
    @property
    def shape(self) -> Sequence[int]: ...

@final
class Messages:
    """The messages of a recorded stream, the file `path`, in any order."""

    def __new__(cls, path: str, uses_broken: bool = False) -> Messages: ...
    def __len__(self) -> int: ...
    @property
    def timestamps_ns(self) -> Tensor:
        """The stamps of all messages, int64 `[N]`."""

    @property
    def arrivals_ns(self) -> Tensor | None:
        """Arrival of each message, int64 `[N]`; `None` if the recording does not have it."""

    def message(self, index: int) -> tuple[int, dict[str, Any], dict[str, Tensor | list[str]]]:
        """`(timestamp_ns, metadata, columns)` of a message. A column of text is a list."""

@final
class Chain:
    """A chain of a robot, in both types that it computes in."""

    def __new__(
        cls,
        text: str,
        file: str,
        base: str,
        tip: str,
        joints: Sequence[str] | None,
        tool: Sequence[float] | None,
        limits: Mapping[str, Sequence[float]],
    ) -> Chain: ...
    @property
    def joint_names(self) -> list[str]: ...
    @property
    def limits(self) -> Tensor:
        """float64 `[n, 2]`."""

    @property
    def link_names(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...
    def fk(self, q: Any, links: Sequence[str] | None = None) -> Tensor:
        """`[..., 7]`; of links `[..., L, 7]`."""

    def jacobian(self, q: Any, frame: str) -> Tensor:
        """`[..., 6, n]`."""

    def velocity(self, q: Any, dq: Any, frame: str) -> Tensor:
        """`[..., 6]`."""

    def manipulability(self, q: Any) -> Tensor:
        """`[...]`."""

@final
class InverseConfig:
    """Choice of how joints are found."""

    def __new__(
        cls,
        task: str,
        position_tolerance_m: float,
        rotation_tolerance_rad: float,
        weights: Sequence[float],
        seeds: int,
        max_iterations: int | None,
        select: str,
        max_joint_step: float | None,
        posture: float | None,
        rest: Sequence[float] | None,
    ) -> InverseConfig: ...

def convert_actions(
    actions: Any,
    kind: str,
    to: str,
    reference: Any | None,
    chain: Chain | None,
    rotation: str,
    to_rotation: str,
    frame: str,
    step_ns: int | None,
) -> Tensor:
    """`[..., T, d]`."""

def ik(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`joints`, `valid`, `position_error_m`, `rotation_error_rad`, `seed`, `iterations`."""

def ik_all(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The same of all answers, with an axis of the starts."""

def ik_path(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The same, and `branch`."""

def read_urdf(path: str) -> str: ...
def observe(
    section: str,
    streams: Sequence[tuple[str, Any, Any]],
    config: Source,
    most_bytes: int,
    invalid: float | None,
    arrivals: Sequence[tuple[str, Any]],
    allowed: Sequence[str],
    device: str | None = None,
    stream: int | None = None,
) -> list[Observed]: ...
def observe_recording(
    path: str,
    recorded: Sequence[str],
    config: Source,
    streams: Mapping[str, str],
    most_bytes: int,
    is_gathered: bool,
    invalid: float | None,
    allowed: Sequence[str],
    device: str | None = None,
    uses_broken: bool = False,
    order: str | None = None,
) -> list[Observed]: ...
def read_samples(path: str, uses_broken: bool = False) -> tuple[Tensor, Tensor]: ...
def recorded_streams(path: str) -> list[str]: ...
def recording_problems(path: str) -> list[str]: ...
def resample(
    times: Any,
    values: Any,
    targets: Any,
    config: Source,
    invalid: float | None,
    device: str | None = None,
    stream: int | None = None,
) -> tuple[Tensor, Tensor, list[tuple[str, int | None]]]: ...
def resample_ragged(
    rows: Sequence[tuple[Any, Any, Any]], config: Source, invalid: float | None, device: str | None = None
) -> tuple[Tensor, Tensor, list[tuple[str, int | None]]]: ...
def voxelize(
    clouds: Sequence[tuple[str | None, Sequence[str], Sequence[Any]]],
    config: Source,
    device: str | None = None,
    stream: int | None = None,
) -> Grid: ...

class RingError(RuntimeError):
    """A payload can't be taken from a ring."""

class StaleError(RingError):
    """The payload was overwritten before it was taken."""

class TornError(RingError):
    """The payload was overwritten while it was read."""

class ProducerGone(RingError):
    """The process that published the payload is gone."""

@final
class SlotPayload:
    """A payload that was taken from a ring: its columns."""

    @property
    def columns(self) -> dict[str, Tensor]:
        """The elements of each column by its name: `[rows]`, `[rows, n]`, or all of them if rows differ in length.
        The name of a flat array is empty."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda:N` or `hip:N`."""

    def offsets(self, column: str) -> Tensor | None:
        """The offsets of the rows of a column whose rows differ in length."""

    @property
    def is_intact(self) -> bool:
        """True if the payload still is as it was published. A copy always is."""

def take(ring: str, slot: int, generation: int, nbytes: int, *, copy: bool = True) -> SlotPayload:
    """Takes a payload: a copy of it, or where it lies."""

def ring_counters() -> dict[str, int]:
    """Counts of this process: payloads `taken`, those that were `stale` or `torn`, and those `copied`."""
