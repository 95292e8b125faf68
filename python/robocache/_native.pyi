from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, final

__version__: str

class Source(TypedDict):
    """The text of a configuration, and the name that errors give its file."""

    text: str
    file: str

@final
class Tensor:
    """An array that any library takes by DLPack, without a copy.

    Its elements are ready: no stream has to be waited for.
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
        """Takes an array of another library. It is copied only if it is on the host and has gaps."""

    def to(self, device: str) -> Tensor:
        """Copies the tensor to a device: from `cpu` to `cuda:N` or `hip:N`, or back. Returns the tensor itself if it is there
        already."""

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """The same memory with other dimensions for the same number of elements."""

    def fill(self, spans: Sequence[tuple[int, int]], number: float) -> None:
        """Writes a number to the elements of each span `[begin, end)` of a tensor that is on a device. Nobody else may use
        the tensor yet."""

    def bits(self) -> Tensor:
        """The same memory with its elements seen as uint16, since NumPy does not know bfloat16."""

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
    """The observations of whole streams, row by row: a row that several windows show is stored once."""

    @property
    def modalities(self) -> list[str]: ...
    @property
    def offsets(self) -> list[int]: ...
    @property
    def values(self) -> Tensor:
        """The rows, `[U, D]`."""

    @property
    def valid(self) -> Tensor:
        """Validity masks of the rows, bool `[U, M]`."""

    @property
    def age_ns(self) -> Tensor:
        """Ages of the samples, ns, int64 `[U, M]`."""

    @property
    def timestamps_ns(self) -> Tensor:
        """Targets of the rows, ns, int64 `[U]`."""

    @property
    def index(self) -> Tensor:
        """Indices of the rows of each window, int64 `[N, T]`."""

    @property
    def epoch(self) -> Tensor:
        """Epochs of the observations, int64 `[N]`."""

    @property
    def late_samples(self) -> int: ...
    @property
    def dropped(self) -> list[tuple[str, str, int]]: ...
    @property
    def left_out(self) -> list[str]:
        """Inputs that the configuration attaches and the run left out."""

    @property
    def attached(self) -> list[tuple[str, str, Tensor, Tensor]]:
        """Attached streams: output and stream, then the number of each row's message and the time from the message to the
        row's target, ns, both int64 `[N, T]`. A row without a message has -1."""

    @property
    def spans(self) -> list[tuple[str, int, int, int, int]]:
        """Name, least stamp, greatest stamp, and number of stamps of each stream that has stamps, then the number of stamps
        that are less than the stamp before. The last number is 0 unless the last stamp is less than the first. A message
        of several samples has one stamp."""

    @property
    def off(self) -> list[str]:
        """Warnings about streams whose stamps are off from the stamps of other streams."""

    @property
    def by_arrival(self) -> bool:
        """True if messages went in by their arrival, False if by their stamps."""

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
    """The messages of the recorded stream in the file `path`, read in any order."""

    def __new__(cls, path: str, uses_broken: bool = False) -> Messages: ...
    def __len__(self) -> int: ...
    @property
    def timestamps_ns(self) -> Tensor:
        """The stamps of all messages, int64 `[N]`."""

    @property
    def arrivals_ns(self) -> Tensor | None:
        """Arrival of each message, int64 `[N]`; `None` if the recording does not have it."""

    def message(self, index: int) -> tuple[int, dict[str, Any], dict[str, Tensor | list[str]]]:
        """Reads `(timestamp_ns, metadata, columns)` of a message. A column of text is a list."""

@final
class Chain:
    """A kinematic chain of a robot, with a model for float32 and one for float64."""

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
        """Lower and upper limit of each joint, float64 `[n, 2]`."""

    @property
    def link_names(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...
    def fk(self, q: Any, links: Sequence[str] | None = None) -> Tensor:
        """Poses `[..., 7]`; with `links` `[..., L, 7]`."""

    def jacobian(self, q: Any, frame: str) -> Tensor:
        """Jacobians `[..., 6, n]`."""

    def velocity(self, q: Any, dq: Any, frame: str) -> Tensor:
        """Twists `[..., 6]`."""

    def manipulability(self, q: Any) -> Tensor:
        """Manipulabilities `[...]`."""

@final
class InverseConfig:
    """Options of inverse kinematics."""

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
    """Converts chunks of actions, `[..., T, d]`."""

def ik(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Finds joints: `joints`, `valid`, `position_error_m`, `rotation_error_rad`, `seed`, `iterations`."""

def ik_all(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Finds all answers: the tensors of `ik` with an axis of starts."""

def ik_path(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Finds joints along trajectories: the tensors of `ik`, and `branch`."""

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
    """The columns of a payload that was taken from a ring."""

    @property
    def columns(self) -> dict[str, Tensor]:
        """The elements of each column by its name: `[rows]`, `[rows, n]`, or concatenated if rows differ in length. The
        name of a flat array is empty."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda:N` or `hip:N`."""

    def offsets(self, column: str) -> Tensor | None:
        """The offsets of the rows of a column; None unless rows differ in length."""

    @property
    def is_intact(self) -> bool:
        """True if the payload still is as it was published. A copy always is."""

def take(ring: str, slot: int, generation: int, nbytes: int, *, copy: bool = True) -> SlotPayload:
    """Takes a payload from a ring: a copy, or the memory of its slot if `copy` is False."""

def ring_counters() -> dict[str, int]:
    """Numbers of payloads in this process: `taken`, `stale`, `torn` and `copied`."""
