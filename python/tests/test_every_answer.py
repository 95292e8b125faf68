"""Tests of inverse kinematics: all answers to a pose, answers with weights, and chains whose joints mimic other joints."""

import math

import numpy as np
import pytest

import robocache as rc
import ur5
from made import LIMIT, joint, robot, snake

DEG = math.pi / 180

FINE = dict(position_tolerance_m=1e-8, rotation_tolerance_rad=1e-8)

# Two links of 1 m and 0.5 m in the plane of x and y, which turn about z.
PLANAR = robot(
    ["base", "upper", "lower", "tip"],
    joint("shoulder", "revolute", "base", "upper", '<axis xyz="0 0 1"/>' + LIMIT)
    + joint("elbow", "revolute", "upper", "lower", '<origin xyz="1 0 0"/><axis xyz="0 0 1"/>' + LIMIT)
    + joint("hand", "fixed", "lower", "tip", '<origin xyz="0.5 0 0"/>'),
)


@pytest.fixture
def planar() -> rc.Chain:
    return rc.Chain(PLANAR, "base", "tip")


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def uniform(rng, chain, count) -> np.ndarray:
    return rng.uniform(*chain.limits.T, (count, chain.size))


def test_a_point_is_reached_with_the_elbow_on_either_side(planar):
    """The joints (0, 90 degrees) reach the point (1, 0.5). So does the mirror image of this posture about the line from the base to
    the point, which is at an angle of atan(0.5)."""
    aside = 2 * math.atan(0.5)
    points = np.array([[1, 0.5, 0, 0, 0, 0, 1], [1.5, 0, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0, 1]])
    answers = planar.ik(points, task="position", select="all", seeds=8, position_tolerance_m=1e-9)
    assert answers.joints.shape == (3, 8, 2) and answers.valid.shape == answers.seed.shape == (3, 8)
    # The stretched arm has one posture, and a point further out has none.
    assert answers.valid[0].tolist() == [True] * 2 + [False] * 6 and answers.valid[1, 0] and not answers.valid[2].any()
    found = answers.joints[0, :2]
    assert np.abs(found[found[:, 1].argsort()] - [[aside, -90 * DEG], [0, 90 * DEG]]).max() < 1e-8
    assert answers.seed[0, 0] < answers.seed[0, 1] and (answers.position_error_m[0, :2] <= 1e-9).all()
    none = ~answers.valid
    for of_none in (answers.joints, answers.position_error_m, answers.rotation_error_rad):
        assert np.isnan(of_none[none]).all()
    assert not answers.seed[none].any() and not answers.iterations[none].any()
    assert answers.valid.dtype == bool and answers.seed.dtype == answers.iterations.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_answers_begin_with_the_first_and_differ(dtype, rng):
    links = [f"link{i}" for i in range(7)]
    chain = rc.Chain(snake(links), links[0], links[-1])
    q = uniform(rng, chain, 3 * 5 * 20).reshape(3, 5, 20, 6).astype(dtype)
    q[1, 2, 3, 0] = np.nan
    poses = chain.fk(q)
    every = chain.ik(poses, seed=q, select="all", seeds=9)
    assert every.joints.shape == (3, 5, 20, 9, 6) and every.joints.dtype == dtype
    assert every.valid.sum(axis=-1).max() > 2 and np.argwhere(~every.valid.any(axis=-1)).tolist() == [[1, 2, 3]]
    for name, of_first in vars(chain.ik(poses, seed=q, seeds=9)).items():
        np.testing.assert_array_equal(getattr(every, name)[:, :, :, 0], of_first)
    # The valid answers come first, in the order of their starts.
    assert (np.diff(every.valid.astype(int), axis=-1) <= 0).all()
    assert (np.diff(every.seed)[every.valid[..., 1:]] > 0).all()
    for joints, valid in zip(every.joints.reshape(-1, 9, 6), every.valid.reshape(-1, 9), strict=True):
        differ = np.abs(joints[valid][:, None] - joints[valid][None]).max(axis=-1)
        assert (differ[~np.eye(len(differ), dtype=bool)] > 1e-3).all()
    alone = chain.ik(poses[0, 1, 2], seed=q[0, 1, 2], select="all", seeds=9)
    np.testing.assert_array_equal(alone.joints, every.joints[0, 1, 2])


def test_every_posture_of_a_ur5_is_found(data, rng):
    """A pose has 2, 4, 6 or 8 postures. At a tolerance of 1e-8 the answers are these postures, once each."""
    file = data / "urdf_fk/ur5.urdf"
    chain = rc.Chain.from_urdf(file, "base_link", "tool0")
    arm = ur5.Arm(file, chain.fk(np.zeros(6)))
    q = uniform(rng, chain, 400)
    poses = chain.fk(q)
    answers = chain.ik(poses, select="all", seeds=128, **FINE)
    counts = set()
    for made_of, pose, joints, valid in zip(q, poses, answers.joints, answers.valid, strict=True):
        postures = arm.postures(pose)
        # The oracle is right: all postures have the pose, and the joints that made the pose are among them.
        assert np.abs(chain.fk(postures)[:, :3] - pose[:3]).max() < 1e-8
        assert np.abs(postures - made_of).max(axis=1).min() < 1e-6
        apart = np.abs(postures[:, None] - joints[valid]).max(axis=-1)
        assert (apart.min(axis=1) < 1e-4).all() and (apart.min(axis=0) < 1e-4).all()
        assert len(postures) == valid.sum()
        counts.add(len(postures))
    assert counts == {2, 4, 6, 8}


def test_no_pose_has_no_answers(planar):
    answers = planar.ik(np.zeros((0, 3, 7)), select="all", seeds=5)
    assert answers.joints.shape == (0, 3, 5, 2) and answers.valid.shape == (0, 3, 5)


def test_tensors_of_torch(planar):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    poses = planar.fk(np.array([[0.3, 1.0], [0.4, -1.0]], np.float32))
    of_torch = planar.ik(torch.from_numpy(poses), select="all", seeds=3)
    assert isinstance(of_torch.joints, torch.Tensor) and of_torch.valid.dtype == torch.bool
    np.testing.assert_array_equal(of_torch.joints.numpy(), planar.ik(poses, select="all", seeds=3).joints)


def test_trajectories_take_one_answer(planar):
    poses = np.zeros((3, 7))
    with pytest.raises(ValueError, match=r'^`select` is "all" \(allowed: first, nearest\)$'):
        planar.ik_path(poses, select="all")
    with pytest.raises(ValueError, match=r'^`select` is "every" \(allowed: first, nearest, all\)$'):
        planar.ik(poses, select="every")
    with pytest.raises(ValueError, match=r"^`seeds` is 5000 \(allowed: 1 to 4096\)$"):
        planar.ik(poses, select="all", seeds=5000)


def test_answers_that_memory_has_no_room_for(planar):
    poses = np.broadcast_to(np.zeros(7, np.float32), (2**40 // 28, 7))[: 2**24]
    with pytest.raises(MemoryError, match="no memory for the results of 16777216 rows"):
        planar.ik(poses, select="all", seeds=4096)


def apart(a, b):
    """Returns the distances between two arrays of poses: of the positions, m, and of the rotations, twice the distance
    of their quaternions."""
    turned = np.linalg.norm(a[..., 3:] - np.sign((a[..., 3:] * b[..., 3:]).sum(axis=-1, keepdims=True)) * b[..., 3:], axis=-1)
    return np.linalg.norm(a[..., :3] - b[..., :3], axis=-1), 2 * turned


@pytest.mark.parametrize("weights", [[5, 1, 1, 0.2, 0.2, 0.2], [0.1, 0.1, 0.1, 1, 1, 1]])
def test_weights_change_the_way_and_not_what_is_an_answer(weights, rng):
    links = [f"link{i}" for i in range(7)]
    chain = rc.Chain(snake(links), links[0], links[-1])
    poses = chain.fk(uniform(rng, chain, 300))
    keys = dict(seeds=64, position_tolerance_m=1e-6, rotation_tolerance_rad=1e-6)
    plain, weighted = chain.ik(poses, **keys), chain.ik(poses, weights=weights, **keys)
    for answers in (plain, weighted):
        assert answers.valid.mean() > 0.99
        metres, chord = apart(chain.fk(answers.joints[answers.valid]), poses[answers.valid])
        assert metres.max() <= 1.001e-6 and chord.max() <= 1.001e-6
    assert (plain.iterations != weighted.iterations).any()


def test_rows_of_weight_0_are_free(rng):
    """The task of the arm of six joints is x, y and the direction about x and y. Its tip may slide and turn along z."""
    links = [f"link{i}" for i in range(7)]
    chain = rc.Chain(snake(links), links[0], links[-1])
    poses = chain.fk(uniform(rng, chain, 200))
    shifted = poses + [0, 0, 5, 0, 0, 0, 0]
    answers = chain.ik(shifted, weights=[1, 1, 0, 0, 0, 0], position_tolerance_m=1e-8)
    assert answers.valid.all() and not answers.rotation_error_rad.any()
    reached = chain.fk(answers.joints)
    assert np.linalg.norm((reached - shifted)[:, :2], axis=1) == pytest.approx(answers.position_error_m, abs=1e-14)
    assert not chain.ik(shifted, seeds=64).valid.any()


# Joint b mimics a, and c mimics b: b = -0.5 a + 0.1 and c = 2 b + 0.2 = -a + 0.4.
def arm_of(mimics: bool) -> rc.Chain:
    follows = ['<mimic joint="a" multiplier="-0.5" offset="0.1"/>', '<mimic joint="b" multiplier="2" offset="0.2"/>']
    follows = follows if mimics else [LIMIT, LIMIT]
    axis = '<axis xyz="{}"/>'.format
    return rc.Chain(
        robot(
            ["base", "k", "l", "m", "n", "o", "tip"],
            joint("a", "revolute", "base", "k", axis("0 0 1") + LIMIT)
            + joint("b", "revolute", "k", "l", '<origin xyz="0.4 0 0"/>' + axis("0 1 0") + follows[0])
            + joint("d", "revolute", "l", "m", '<origin xyz="0.3 0.1 0"/>' + axis("0 1 0") + LIMIT)
            + joint("c", "revolute", "m", "n", '<origin xyz="0.3 0 0"/>' + axis("1 0 0") + follows[1])
            + joint("e", "prismatic", "n", "o", axis("0 0 1") + '<limit lower="-0.2" upper="0.3"/>')
            + joint("f", "fixed", "o", "tip", '<origin xyz="0.2 0 0.1"/>'),
        ),
        "base",
        "tip",
    )


def test_joints_that_follow_followers(rng):
    """The chain with mimic joints has the poses of the free chain whose joints get the mimicked values."""
    chain, free = arm_of(mimics=True), arm_of(mimics=False)
    assert chain.joint_names == ("a", "d", "e") and free.joint_names == ("a", "b", "d", "c", "e")

    def driven(joints):
        a, d, e = np.moveaxis(joints, -1, 0)
        return np.stack([a, -0.5 * a + 0.1, d, -a + 0.4, e], axis=-1)

    q = uniform(rng, chain, 400)
    poses = chain.fk(q)
    assert np.abs(poses - free.fk(driven(q))).max() < 1e-14
    # The position has three coordinates, and the chain three joints.
    answers = chain.ik(poses, task="position", seeds=64, position_tolerance_m=1e-9, rotation_tolerance_rad=1e-9)
    assert answers.valid.all()
    assert apart(free.fk(driven(answers.joints)), poses)[0].max() <= 1.001e-9
    lower, upper = chain.limits.T
    assert ((lower <= answers.joints) & (answers.joints <= upper)).all()
    # The whole pose is found from near joints, and the joints of the pose are among all answers.
    near = chain.ik(poses, seed=q + 0.01)
    assert near.valid.all() and max(map(np.max, apart(free.fk(driven(near.joints)), poses))) < 1e-3
    every = chain.ik(poses, task="position", select="all", seeds=64, position_tolerance_m=1e-9)
    closest = np.nanmin(np.abs(every.joints - q[:, None]).max(axis=-1), axis=1)
    assert (closest < 1e-5).mean() > 0.99
