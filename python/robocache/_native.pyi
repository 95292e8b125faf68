from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, final

__version__: str

class Source(TypedDict):
    """The YAML text of a configuration, and the name of its file for errors."""

    text: str
    file: str

@final
class Tensor:
    """An array, row-major without gaps, that any library takes by DLPack without a copy.

    Its elements are ready: no stream has to be waited for.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the tensor, outermost first."""

    @property
    def dtype(self) -> str:
        """Type of the tensor's elements, such as `float32`, `bfloat16` or `bool`."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda:N` or `hip:N`."""

    @property
    def nbytes(self) -> int:
        """Size of all elements, bytes."""

    @staticmethod
    def from_dlpack(array: Any) -> Tensor:
        """Makes a tensor of an array of another library. The elements are copied only if they are on the host and have gaps."""

    def to(self, device: str) -> Tensor:
        """Copies the tensor to `device`: from `cpu` to `cuda:N` or `hip:N`, or back. A tensor that is on `device` already is
        returned itself."""

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """Returns a tensor of the same memory with other dimensions, which must give the same number of elements."""

    def fill(self, spans: Sequence[tuple[int, int]], number: float) -> None:
        """Writes `number` to the elements of each span `[begin, end)` of a tensor on a device. The caller must be the only user
        of the tensor."""

    def bits(self) -> Tensor:
        """Returns a tensor of the same memory whose 16-bit elements have the type uint16, since NumPy does not know bfloat16."""

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
        """Values of the U distinct rows, `[U, D]`."""

    @property
    def valid(self) -> Tensor:
        """Validity masks of the distinct rows, bool `[U, M]`."""

    @property
    def age_ns(self) -> Tensor:
        """Time from the newest sample at or before a row's target to the target, ns, int64 `[U, M]`; -1 without such a sample."""

    @property
    def timestamps_ns(self) -> Tensor:
        """Targets of the distinct rows, ns, int64 `[U]`."""

    @property
    def index(self) -> Tensor:
        """Indices of the distinct rows that make each window, oldest first, int64 `[N, T]`."""

    @property
    def epoch(self) -> Tensor:
        """Epoch of each observation, which goes up by one at each clock jump, int64 `[N]`."""

    @property
    def late_samples(self) -> int: ...
    @property
    def dropped(self) -> list[tuple[str, str, int]]: ...
    @property
    def left_out(self) -> list[str]:
        """Inputs of `attach:` that have no stream, and that the run left out."""

    @property
    def attached(self) -> list[tuple[str, str, Tensor, Tensor]]:
        """Attached streams: the output, the stream, the index of each row's message in the stream, and the message's age at the
        row's target, ns. Index and age are int64 `[N, T]`, -1 for a row without a message."""

    @property
    def spans(self) -> list[tuple[str, int, int, int, int]]:
        """Name, smallest stamp, largest stamp, number of stamps, and number of stamps below their predecessor, for each stream
        that has stamps. The last number is 0 unless the last stamp is below the first. A message of several samples has one
        stamp."""

    @property
    def off(self) -> list[str]:
        """Warnings about streams whose stamps are off from the stamps of other streams, one line each."""

    @property
    def by_arrival(self) -> bool:
        """True if messages reached the aligner in the order of their arrival, False if in the order of their stamps."""

@final
class Grid:
    """A voxel grid made of one or more clouds. The layout says which of `values`, or `coords` and `features`, it has."""

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
    """The messages of the recorded stream in the file `path`. A message is read only when it is asked for."""

    def __new__(cls, path: str, uses_broken: bool = False) -> Messages: ...
    def __len__(self) -> int: ...
    @property
    def timestamps_ns(self) -> Tensor:
        """Stamps of all messages, ns, int64 `[N]`, in the order of the recording."""

    @property
    def arrivals_ns(self) -> Tensor | None:
        """Times at which the messages arrived at the recorder, ns, int64 `[N]`; None if the recording does not have them."""

    def message(self, index: int) -> tuple[int, dict[str, Any], dict[str, Tensor | list[str]]]:
        """Reads the message `index`, and returns `(timestamp_ns, metadata, columns)`. A column of text is a list."""

@final
class Chain:
    """A kinematic chain of a robot, with models that compute in float32 and in float64."""

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
        """Lower and upper limit of each joint, rad or m, float64 `[n, 2]`."""

    @property
    def link_names(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...
    def fk(self, q: Any, links: Sequence[str] | None = None) -> Tensor:
        """Returns poses of the tip, `[..., 7]`; with `links`, poses of these links, `[..., L, 7]`."""

    def jacobian(self, q: Any, frame: str) -> Tensor:
        """Returns Jacobians of the tip, `[..., 6, n]`."""

    def velocity(self, q: Any, dq: Any, frame: str) -> Tensor:
        """Returns velocities of the tip for joint velocities `dq`, `[..., 6]`: linear (m/s), then angular (rad/s)."""

    def manipulability(self, q: Any) -> Tensor:
        """Returns Yoshikawa's manipulability at the joints `q`, `[...]`."""

@final
class InverseConfig:
    """Options of inverse kinematics. Only `ik_path` uses `max_joint_step`, and `ik_all` ignores `select`."""

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
    """Converts chunks of actions, `[..., T, d]`, from `kind` to `to`."""

def ik(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Finds joints for poses `[..., 7]`. Returns `joints`, `valid`, `position_error_m`, `rotation_error_rad`, `seed`,
    `iterations`."""

def ik_all(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Finds joints for poses `[..., 7]` from every start. Returns the tensors of `ik` with an axis of starts."""

def ik_path(
    chain: Chain, poses: Any, seed: Any | None, config: InverseConfig
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Finds joints along trajectories of poses `[..., T, 7]`. Returns the tensors of `ik`, and `branch`."""

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
    """A payload that was taken from a ring, and its columns: a copy, or the memory of the slot."""

    @property
    def columns(self) -> dict[str, Tensor]:
        """Tensors of the columns by name: `[rows]`, `[rows, n]`, or concatenated rows if rows differ in length. A flat array
        has the name ""."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda:N` or `hip:N`."""

    def offsets(self, column: str) -> Tensor | None:
        """Offsets of a column's rows in its elements, int32 `[rows + 1]`; None if the rows have equal lengths or the column
        does not exist."""

    @property
    def is_intact(self) -> bool:
        """True if the producer has not overwritten the payload since it was taken. Always True for a copy."""

def take(ring: str, slot: int, generation: int, nbytes: int, *, copy: bool = True) -> SlotPayload:
    """Takes the payload of `generation` from a slot of a ring: a copy, or the memory of the slot if `copy` is False."""

def ring_counters() -> dict[str, int]:
    """Numbers of payloads that this process took (`taken`), copied (`copied`), and found overwritten before (`stale`) or
    during (`torn`) reading."""
