"""Tests of conversions of actions against NumPy and SciPy."""

import itertools
import math

import numpy as np
import pytest
from scipy.spatial.transform import RigidTransform, Rotation

import robocache as rc
from made import snake

VALUES = ["absolute", "relative", "delta", "velocity"]
POSES = ["pose", "relative_pose", "delta_pose"]
ROTATIONS = ["xyzw", "wxyz", "rot6d_rows", "rot6d_columns", "rotvec"]
STEP_NS = 20_000_000


@pytest.fixture
def rng():
    return np.random.default_rng(4)


@pytest.fixture(scope="module")
def chain():
    links = [f"link{i}" for i in range(7)]
    return rc.Chain(snake(links), "link0", "link6")


def velocity(*kinds) -> dict:
    return {"step_ns": STEP_NS} if "velocity" in kinds else {}


def test_values_of_two_joints():
    """Uses numbers that are exact in binary. The robot starts at the joints (1, 2), and steps are half a second apart."""
    all_kinds = {
        "absolute": [[1.5, 2], [1.25, 3], [1.25, 2]],
        "relative": [[0.5, 0], [0.25, 1], [0.25, 0]],
        "delta": [[0.5, 0], [-0.25, 1], [0, -1]],
        "velocity": [[1, 0], [-0.5, 2], [0, -2]],
    }
    for (kind, actions), (to, wanted) in itertools.product(all_kinds.items(), repeat=2):
        keys = {"step_ns": 500_000_000} if "velocity" in (kind, to) else {}
        for dtype in (np.float32, np.float64):
            got = rc.actions.convert(np.array(actions, dtype), kind=kind, to=to, reference=np.array([1, 2], dtype), **keys)
            assert got.dtype == dtype and got.tolist() == wanted, (kind, to)


def numbers(pose: RigidTransform, rotation: str) -> np.ndarray:
    turn = pose.rotation
    matrix = turn.as_matrix()
    of_form = {
        "xyzw": turn.as_quat(canonical=True),
        "wxyz": turn.as_quat(canonical=True, scalar_first=True),
        "rot6d_rows": matrix[:2].ravel(),
        "rot6d_columns": matrix[:, :2].T.ravel(),
        "rotvec": turn.as_rotvec(),
    }
    return np.concatenate([pose.translation, of_form[rotation]])


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_poses_agree_with_scipy(rng, rotation):
    reference, *steps = (RigidTransform.from_components(rng.normal(size=3), Rotation.random(rng=rng)) for _ in range(6))
    before = [reference, *steps[:-1]]
    inverse = [pose.inv() for pose in before]
    actions = {
        ("pose", "tool"): steps,
        ("relative_pose", "tool"): [reference.inv() * pose for pose in steps],
        ("delta_pose", "tool"): [back * pose for back, pose in zip(inverse, steps, strict=True)],
        ("delta_pose", "base"): [
            RigidTransform.from_components(pose.translation - old.translation, pose.rotation * old.rotation.inv())
            for old, pose in zip(before, steps, strict=True)
        ],
    }
    start = numbers(reference, "xyzw")
    poses = np.stack([numbers(pose, "xyzw") for pose in steps])
    for (kind, frame), transforms in actions.items():
        wanted = np.stack([numbers(pose, rotation) for pose in transforms])
        got = rc.actions.convert(poses, kind="pose", to=kind, reference=start, to_rotation=rotation, frame=frame)
        assert np.abs(got - wanted).max() < 1e-13, (kind, frame)
        back = rc.actions.convert(wanted, kind=kind, to="pose", reference=start, rotation=rotation, to_rotation="xyzw", frame=frame)
        assert np.abs(back - poses).max() < 1e-13, (kind, frame)


@pytest.mark.parametrize(("kind", "to"), list(itertools.product(VALUES + POSES, repeat=2)))
def test_there_and_back(rng, chain, kind, to):
    reference = rng.uniform(-1, 1, (3, 2, 6))
    walk = reference[:, :, None] + np.cumsum(rng.uniform(-0.05, 0.05, (3, 2, 15, 6)), axis=2)
    keys = {"chain": chain, "reference": reference}
    actions = rc.actions.convert(walk, kind="absolute", to=kind, to_rotation="rot6d_rows", **keys, **velocity(kind))
    there = rc.actions.convert(actions, kind=kind, to=to, rotation="rot6d_rows", to_rotation="rotvec", **keys, **velocity(kind, to))
    back = rc.actions.convert(there, kind=to, to=kind, rotation="rotvec", to_rotation="rot6d_rows", **keys, **velocity(kind, to))
    # Joints are found for poses to 1e-12 m and rad.
    scale = 1e9 / STEP_NS if kind == "velocity" else 1
    assert np.abs(back - actions).max() < 1e-7 * scale
    absolute = rc.actions.convert(there, kind=to, to="absolute", rotation="rotvec", **keys, **velocity(to))
    assert np.abs(absolute - walk).max() < 1e-7


def test_poses_of_joints_are_those_of_the_chain(rng, chain):
    q = rng.uniform(-1, 1, (4, 10, 6))
    poses = rc.actions.convert(q, kind="absolute", to="pose", chain=chain)
    assert np.abs(poses - chain.fk(q)).max() < 1e-14
    single = rc.actions.convert(q.astype(np.float32), kind="absolute", to="pose", chain=chain)
    assert single.dtype == np.float32 and np.abs(single - poses).max() < 1e-6
    start = q[:, 0].astype(np.float32)
    walk = start[:, None] + rng.uniform(-0.01, 0.01, (4, 10, 6)).astype(np.float32)
    there = rc.actions.convert(walk, kind="absolute", to="relative_pose", reference=start, chain=chain)
    back = rc.actions.convert(there, kind="relative_pose", to="absolute", reference=start, chain=chain)
    assert back.dtype == np.float32 and np.abs(back - walk).max() < 1e-3


def test_a_batch_is_its_chunks_one_by_one(rng):
    actions, reference = rng.normal(size=(5, 40, 8, 9)), rng.normal(size=(5, 40, 7))
    reference[..., 3:] /= np.linalg.norm(reference[..., 3:], axis=-1, keepdims=True)
    keys = dict(kind="relative_pose", to="delta_pose", rotation="rot6d_rows", to_rotation="xyzw")
    batch = rc.actions.convert(actions, reference=reference, **keys)
    assert batch.shape == (5, 40, 8, 7)
    for index in np.ndindex(5, 40):
        assert rc.actions.convert(actions[index], reference=reference[index], **keys).tobytes() == batch[index].tobytes()
    one = rc.actions.convert(actions, reference=reference[0, 0], **keys)
    assert one[0, 0].tobytes() == batch[0, 0].tobytes()
    view = rc.actions.convert(actions[::2, ::-1], reference=reference[::2, ::-1], **keys)
    assert view.tobytes() == np.ascontiguousarray(batch[::2, ::-1]).tobytes()
    for shape in ((0, 8, 9), (3, 0, 9)):
        assert rc.actions.convert(np.zeros(shape), reference=np.array([0.0, 0, 0, 0, 0, 0, 1]), **keys).shape == (*shape[:-1], 7)


def test_the_name_of_the_seed(rng):
    actions, reference = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 2))
    got = rc.convert_action_space(actions, "delta", "absolute", reference)
    assert got.tobytes() == rc.actions.convert(actions, kind="delta", to="absolute", reference=reference).tobytes()
    assert np.abs(got - (reference[:, None] + np.cumsum(actions, axis=1))).max() < 1e-14
    # 0.5 rad/s for 0.02 s.
    got = rc.convert_action_space(np.array([[0.5], [0.5]]), "velocity", "delta", np.array([1.0]), step_ns=STEP_NS)
    assert got.ravel() == pytest.approx([0.01, 0.01], abs=1e-15)
    # A motion along x in the axes of a tool whose x axis is the base's y axis.
    half = math.sqrt(0.5)
    keys = dict(rotation="wxyz", to_rotation="rotvec", frame="tool")
    got = rc.convert_action_space(np.array([[2.0, 0, 0, 1, 0, 0, 0]]), "delta_pose", "pose", np.array([1, 0, 0, 0, 0, half, half]), **keys)
    assert got.ravel() == pytest.approx([1, 2, 0, 0, 0, math.pi / 2], abs=1e-15)


def refusals():
    joints, pose = np.zeros((3, 5, 2)), np.array([0.0, 0, 0, 0, 0, 0, 1])
    poses = np.tile(pose, (3, 5, 1))
    bad = joints.copy()
    bad[2, 4, 1] = np.inf
    flat = poses.copy()
    flat[1, 3, 3:] = 0
    delta = dict(kind="absolute", to="delta")
    yield ValueError, r"`kind` is \"joint\" \(allowed: absolute, relative, delta, velocity, pose, ", joints, dict(kind="joint", to="delta")
    yield ValueError, "`to` is \"poses\"", joints, dict(kind="absolute", to="poses")
    yield ValueError, r"`reference` is None \(needed from `absolute` to `delta`: \[2\] or \[\.\.\., 2\]\)", joints, delta
    yield ValueError, r"`reference` has shape \[3\] \(allowed: \[\.\.\., 2\], the values\)", joints, dict(reference=np.zeros(3), **delta)
    yield ValueError, r"`reference` has shape \[5, 2\] \(allowed: \[2\] for all chunks, \[3, 2\] for each\)", joints, dict(reference=np.zeros((5, 2)), **delta)
    yield ValueError, r"`reference` has shape \[1, 2\] \(allowed: \[2\]\)", joints[0], dict(reference=np.zeros((1, 2)), **delta)
    yield TypeError, "`reference` is float32, `actions` float64", joints, dict(reference=np.zeros(2, "f4"), **delta)
    yield TypeError, r"`actions` is int64 \(allowed: float32, float64\)", joints.astype(int), dict(reference=np.zeros(2), **delta)
    yield ValueError, r"`actions` has shape \[2\] \(allowed: \[\.\.\., T, d\]\)", joints[0, 0], dict(reference=np.zeros(2), **delta)
    yield ValueError, r"`actions` has 0 numbers a step", joints[..., :0], dict(reference=np.zeros(2), **delta)
    yield ValueError, r"`actions\[2, 4\]`: inf \(allowed: finite numbers\)", bad, dict(reference=np.zeros(2), **delta)
    yield ValueError, r"`reference\[1\]`: NaN", joints, dict(reference=np.array([[0, 0], [0, math.nan], [0, 0]]), **delta)
    yield ValueError, r"`reference`: NaN", joints, dict(reference=np.array([0, math.nan]), **delta)
    yield ValueError, r"`actions\[1, 3\]`: .* is not a rotation of the form `xyzw`", flat, dict(kind="pose", to="pose")
    for norm in (0.98, 1.02):
        words = rf"`actions\[1, 3\]`: \[0.0, 0.0, {norm}, 0.0\] is not a rotation of the form `xyzw` \(allowed: of norm 1, to within 1 %\)"
        off = poses.copy()
        off[1, 3, 3:] = [0, 0, norm, 0]
        yield ValueError, words, off, dict(kind="pose", to="pose")
        words = rf"`reference`: \[0.0, 0.0, 0.0, {norm}\] is not a quaternion \(allowed: of norm 1, to within 1 %\)"
        yield ValueError, words, poses, dict(kind="pose", to="relative_pose", reference=norm * pose)
    yield ValueError, r"`reference`: .* is not a quaternion", poses, dict(kind="pose", to="relative_pose", reference=np.zeros(7))
    yield ValueError, r"`actions` has 7 numbers a step \(allowed: 9, x y z", poses, dict(kind="pose", to="pose", rotation="rot6d_rows")
    yield ValueError, r"`rotation` is \"rot6d\" \(allowed: xyzw, wxyz, rot6d_rows, rot6d_columns, rotvec\)", poses, dict(kind="pose", to="pose", rotation="rot6d")
    yield ValueError, "`to_rotation` is \"euler\"", poses, dict(kind="pose", to="pose", to_rotation="euler")
    yield ValueError, r"`frame` is \"world\" \(allowed: tool, base\)", poses, dict(kind="pose", to="delta_pose", reference=pose, frame="world")
    yield ValueError, r"`step_ns` is absent \(needed for `velocity`", joints, dict(kind="velocity", to="delta", reference=np.zeros(2))
    yield ValueError, r"`step_ns` is -5 \(allowed: above 0\)", joints, dict(kind="velocity", to="delta", reference=np.zeros(2), step_ns=-5)
    yield ValueError, r"`chain` is absent \(needed from `absolute` to `pose`\)", joints, dict(kind="absolute", to="pose")
    yield TypeError, r"`chain` is a str \(allowed: a Chain, None\)", joints, dict(kind="absolute", to="pose", chain="arm.urdf")


@pytest.mark.parametrize(("error", "words", "actions", "keys"), list(refusals()))
def test_arguments_that_are_refused(error, words, actions, keys):
    with pytest.raises(error, match=words):
        rc.actions.convert(actions, **keys)


def test_what_a_chain_does_not_reach(chain):
    reference = np.zeros(6)
    near = chain.fk(np.full((1, 4, 6), 0.1) * np.arange(4)[:, None])
    near[0, 2, 0] += 9
    with pytest.raises(ValueError, match=r"`actions\[0, 2\]`: the chain does not reach the pose: it comes to within 8\..* m and"):
        rc.actions.convert(near, kind="pose", to="delta", reference=reference, chain=chain)
    with pytest.raises(ValueError, match=r"`actions\[0, 1\]`: a joint of magnitude 9000"):
        rc.actions.convert(np.array([[[0.0] * 6, [9000.0] * 6]]), kind="absolute", to="pose", chain=chain)
    with pytest.raises(ValueError, match=r"`actions` has 5 numbers a step \(allowed: 6, a value for each joint of the chain\)"):
        rc.actions.convert(np.zeros((4, 5)), kind="absolute", to="pose", chain=chain)
    with pytest.raises(ValueError, match=r"`reference` has shape \[7\] \(allowed: \[\.\.\., 6\], the joints\)"):
        rc.actions.convert(near, kind="pose", to="delta", reference=np.zeros(7), chain=chain)


def test_float32_that_overflows():
    actions = np.full((1, 2, 1), 3e38, np.float32)
    with pytest.raises(ValueError, match=r"`actions\[0, 1\]`: the result 6.*e38 is too large"):
        rc.actions.convert(actions, kind="delta", to="absolute", reference=np.zeros(1, np.float32))


def test_tensors_of_torch(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    actions, reference = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 2))
    keys = dict(kind="delta", to="relative")
    got = rc.actions.convert(torch.from_numpy(actions), reference=torch.from_numpy(reference), **keys)
    assert isinstance(got, torch.Tensor)
    assert got.numpy().tobytes() == rc.actions.convert(actions, reference=reference, **keys).tobytes()
