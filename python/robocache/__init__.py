"""Perception front-end of a robot policy: align, fuse and voxelize sensor streams.

Observations, grids and clouds of a dataflow, the same operations offline on arrays and recordings, and the inputs of policies.
Every public name is imported here; modules and names that begin with `_` may change.
"""

from robocache import actions, presets
from robocache._native import (
    ProducerGone,
    RingError,
    StaleError,
    Tensor,
    TornError,
    __version__,
    ring_counters,
)
from robocache.acting import Chunks, Gate, History, Steps
from robocache.attached import Attached
from robocache.kinematics import Chain, JointAnswers, JointPaths
from robocache.messages import MessageError
from robocache.observation import Observation
from robocache.offline import Grid, Observations, Resampled, align, fuse, resample, voxelize
from robocache.recording import RecordedMessage, RecordedMessages, Recording, RecordingDataset
from robocache.seed import (
    batch_jacobian,
    convert_action_space,
    forward_kinematics,
    fuse_multimodal,
    inverse_kinematics,
    resample_trajectories,
    voxelize_pointcloud,
)
from robocache.sending import drain, send, send_cloud, wait_for_consumers
from robocache.tensors import MessageTensor, open_tensor
from robocache.voxels import Cloud, Voxels

__all__ = [
    "Attached",
    "Chain",
    "Chunks",
    "Cloud",
    "Gate",
    "Grid",
    "History",
    "JointAnswers",
    "JointPaths",
    "MessageError",
    "MessageTensor",
    "Observation",
    "Observations",
    "ProducerGone",
    "RecordedMessage",
    "RecordedMessages",
    "Recording",
    "RecordingDataset",
    "Resampled",
    "RingError",
    "StaleError",
    "Steps",
    "Tensor",
    "TornError",
    "Voxels",
    "__version__",
    "actions",
    "align",
    "batch_jacobian",
    "convert_action_space",
    "drain",
    "forward_kinematics",
    "fuse",
    "fuse_multimodal",
    "inverse_kinematics",
    "open_tensor",
    "presets",
    "resample",
    "resample_trajectories",
    "ring_counters",
    "send",
    "send_cloud",
    "voxelize",
    "voxelize_pointcloud",
    "wait_for_consumers",
]
