"""Tests of kinematic chains on arrays: poses, Jacobians, inverse kinematics, and refusals."""

import concurrent.futures
import copy
import math
import os
import pickle
import warnings

import numpy as np
import pytest

import robocache as rc
from made import LIMIT, joint, robot, snake
from test_processes import in_a_fork

DEG = math.pi / 180

# Only the position in the plane of x and y counts.
IN_PLANE = dict(task="position", weights=[1, 1, 0, 0, 0, 0])


# Two links of 1 m and 0.5 m in the plane of x and y, which turn about z.
PLANAR = robot(
    ["base", "upper", "lower", "tip"],
    joint("shoulder", "revolute", "base", "upper", '<axis xyz="0 0 1"/>' + LIMIT)
    + joint("elbow", "revolute", "upper", "lower", '<origin xyz="1 0 0"/><axis xyz="0 0 1"/>' + LIMIT)
    + joint("hand", "fixed", "lower", "tip", '<origin xyz="0.5 0 0"/>'),
)


def snake_of(count) -> rc.Chain:
    links = [f"link{i}" for i in range(count + 1)]
    return rc.Chain(snake(links), links[0], links[-1])


ROBOTS = {
    "ur5.urdf": ("base_link", "tool0"),
    "panda.urdf": ("panda_link0", "panda_hand"),
    "kuka_iiwa.urdf": ("lbr_iiwa_link_0", "lbr_iiwa_link_7"),
    "so101_new_calib.urdf": ("base_link", "gripper_frame_link"),
    "prismatic_robot.urdf": ("link1", "link4"),
}


@pytest.fixture
def planar() -> rc.Chain:
    return rc.Chain(PLANAR, "base", "tip")


@pytest.fixture
def three() -> rc.Chain:
    """A chain of three links of 1 m in the plane of x and y, whose joints turn about z."""
    parts = [("1", "base", "a", 0), ("2", "a", "b", 1), ("3", "b", "c", 1)]
    inside = '<origin xyz="{} 0 0"/><axis xyz="0 0 1"/>' + LIMIT
    turns = [joint(name, "revolute", parent, child, inside.format(x)) for name, parent, child, x in parts]
    hand = joint("hand", "fixed", "c", "tip", '<origin xyz="1 0 0"/>')
    return rc.Chain(robot(["base", "a", "b", "c", "tip"], "".join([*turns, hand])), "base", "tip")


@pytest.fixture(params=ROBOTS)
def arm(request, data) -> rc.Chain:
    return rc.Chain.from_urdf(data / "urdf_fk" / request.param, *ROBOTS[request.param])


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def within_limits(rng, chain, *leading) -> np.ndarray:
    lower, upper = chain.limits.clip(-math.pi, math.pi).T
    return rng.uniform(lower, upper, (*leading, chain.size))


def test_two_links_in_a_plane(planar):
    assert planar.size == 2
    assert planar.joint_names == ("shoulder", "elbow")
    assert planar.link_names == ("base", "upper", "lower", "tip")
    assert planar.limits.tolist() == [[-3, 3], [-3, 3]]
    half = math.sqrt(0.5)
    q = np.array([[0, 0], [90 * DEG, 0], [90 * DEG, -90 * DEG]])
    wanted = [[1.5, 0, 0, 0, 0, 0, 1], [0, 1.5, 0, 0, 0, half, half], [0.5, 1, 0, 0, 0, 0, 1]]
    assert np.abs(planar.fk(q) - wanted).max() < 1e-15
    elbows = planar.fk(q, links=["lower", "base"])
    assert np.abs(elbows[:, 0, :3] - [[1, 0, 0], [0, 1, 0], [0, 1, 0]]).max() < 1e-15
    assert elbows[:, 1].tolist() == [[0, 0, 0, 0, 0, 0, 1]] * 3


def test_velocities_of_two_links_in_a_plane(planar):
    """The tip is at (1, 0.5), the elbow at (1, 0)."""
    q = np.array([0, 90 * DEG])
    zero, one = [0, 0], [1, 1]
    assert np.abs(planar.jacobian(q) - [[-0.5, -0.5], [1, 0], zero, zero, zero, one]).max() < 1e-15
    assert np.abs(planar.jacobian(q, frame="tool") - [[1, 0], [0.5, 0.5], zero, zero, zero, one]).max() < 1e-15
    assert np.abs(planar.jacobian(q, "spatial") - [zero, [0, -1], zero, zero, zero, one]).max() < 1e-15
    dq = np.array([2.0, -1.0])
    assert np.abs(planar.velocity(q, dq) - [-0.5, 2, 0, 0, 0, 1]).max() < 1e-15
    assert np.abs(planar.velocity(q, dq, frame="tool") - [2, 0.5, 0, 0, 0, 1]).max() < 1e-15
    # sqrt(det J^T J) with J^T J = [[2.25, 1.25], [1.25, 1.25]].
    assert abs(planar.manipulability(q) - math.sqrt(1.25)) < 1e-14


def test_joints_of_two_links_in_a_plane(planar):
    poses = np.array([[0.5, 1.0, 0, 0, 0, 0, 1], [3, 0, 0, 0, 0, 0, 1], [np.nan, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0]])
    answers = planar.ik(poses, seed=np.array([1.0, -1.0]))
    assert answers.valid.tolist() == [True, False, False, False] and answers.valid.dtype == bool
    assert np.abs(answers.joints[0] - [90 * DEG, -90 * DEG]).max() < 1e-3
    assert answers.position_error_m[0] < 1e-4 and answers.rotation_error_rad[0] < 1e-3
    # The arm is stretched towards a pose that is 1.5 m too far away.
    assert abs(answers.position_error_m[1] - 1.5) < 1e-2 and np.isfinite(answers.joints[1]).all()
    for bad in (2, 3):
        assert np.isnan([*answers.joints[bad], answers.position_error_m[bad], answers.rotation_error_rad[bad]]).all()
    assert answers.seed[[0, 2, 3]].tolist() == [0, 0, 0] and answers.iterations[0] > 0
    assert answers.seed.dtype == answers.iterations.dtype == np.int64


def test_a_start_that_is_an_answer_is_kept(planar):
    q = np.array([0.3, 1.1])
    answer = planar.ik(planar.fk(q), seed=q)
    assert answer.joints.tolist() == q.tolist() and answer.valid.item() and answer.iterations.item() == 0


def test_elbows_by_their_seed(planar):
    """Two postures reach a point, and the seed chooses. The seed is a row for each pose, or one row for all poses."""
    up, down = np.array([0.2, 1.0]), np.array([1.0, -1.0])
    point = np.stack([planar.fk(up)] * 2)
    keys = dict(task="position", select="nearest")
    each = planar.ik(point, seed=np.stack([up, down]), **keys)
    assert each.valid.all() and each.joints[0, 1] > 0 > each.joints[1, 1]
    assert (planar.ik(point, seed=down, **keys).joints[:, 1] < 0).all()


def test_a_seed_that_is_not_finite_makes_its_row_invalid(planar):
    q = np.array([[0.2, 1.0]] * 3)
    seeds = q.copy()
    seeds[1, 0] = np.nan
    answers = planar.ik(planar.fk(q), seed=seeds)
    assert answers.valid.tolist() == [True, False, True] and np.isnan(answers.joints[1]).all()
    # A seed beyond the limits is brought inside.
    far = planar.ik(planar.fk(q), seed=np.array([9.0, 1.0]))
    assert far.valid.all() and (np.abs(far.joints) <= 3).all()


def test_paths_go_on_from_the_last_answer(planar):
    q = np.stack([np.linspace(0.1, 1.5, 40), np.linspace(1.5, 0.2, 40)], axis=-1)
    poses = planar.fk(np.stack([q, q + 0.1]))
    poses[1, 20:, 0] += 10
    paths = planar.ik_path(poses, seed=q[0])
    assert isinstance(paths, rc.JointPaths) and isinstance(paths, rc.JointAnswers)
    assert paths.joints.shape == (2, 40, 2) and paths.branch.shape == (2, 40)
    assert paths.valid[0].all() and np.abs(paths.joints[0] - q).max() < 1e-3 and not paths.branch.any()
    assert paths.valid[1].tolist() == [True] * 20 + [False] * 20
    alone = planar.ik_path(poses[1], seed=q[0])
    assert_same(alone.joints, paths.joints[1])
    # A jump from one end of the range of an arm to the other.
    jump = planar.ik_path(planar.fk(np.array([[-2.5, 0.5], [-2.45, 0.5], [2.0, 0.5], [2.05, 0.5]])))
    assert jump.valid.all() and jump.branch.tolist() == [0, 0, 1, 1]
    assert jump.branch.dtype == np.int64
    assert planar.ik_path(planar.fk(np.array([[0.1, 0.5], [0.4, 0.5]])), max_joint_step=0.1).branch.tolist() == [0, 1]


def test_a_posture_turns_joints_that_the_tool_does_not_need(three):
    """The links along x, y and -x are three sides of a parallelogram: if the joints turn by (1, -1, 1), the tip stays."""
    q = np.array([0, 90 * DEG, 90 * DEG])
    pose = three.fk(q)
    answers = three.ik(pose, seed=q, **IN_PLANE, posture=0.1, rest=q + [0.3, 0, 0])
    assert np.abs(answers.joints - q - 0.01 * np.array([1, -1, 1])).max() < 1e-9
    assert answers.valid and answers.seed == answers.iterations == 0
    assert_same(three.ik(pose, seed=q, **IN_PLANE).joints, q)
    # With the tip held, the arm comes as near to rest as the tip allows.
    held = three.ik_path(np.tile(pose, (300, 1)), seed=q, **IN_PLANE, posture=0.1, rest=np.array([0.3, 90 * DEG, 90 * DEG]))
    assert held.valid.all() and not held.branch.any()
    assert np.abs(held.joints[-1] - q - 0.1 * np.array([1, -1, 1])).max() < 1e-3
    assert (np.diff(np.linalg.norm(held.joints - q - [0.3, 0, 0], axis=-1)) <= 1e-12).all()
    # The default of `rest` is the middle of the limits, 0 for each joint.
    middle = three.ik(pose, seed=q, **IN_PLANE, posture=0.1)
    assert_same(middle.joints, three.ik(pose, seed=q, **IN_PLANE, posture=0.1, rest=[0, 0, 0]).joints)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_path_with_a_posture_is_its_rows_in_any_batch(dtype, rng):
    chain = snake_of(7)
    ends = within_limits(rng, chain, 8)
    q = (ends[:4, None] + np.linspace(0, 0.3, 60)[:, None] * (ends[4:] - ends[:4])[:, None]).astype(dtype)
    poses, home = chain.fk(q), within_limits(rng, chain)
    paths = chain.ik_path(poses, seed=q[:, 0], posture=0.1, rest=home)
    assert paths.joints.dtype == dtype and paths.valid.mean() > 0.9
    for i in range(4):
        assert_same(chain.ik_path(poses[i], seed=q[i, 0], posture=0.1, rest=home).joints, paths.joints[i])
    off = np.linalg.norm(chain.fk(paths.joints) - poses, axis=-1)[paths.valid]
    assert off.max() < 2e-3
    plain = chain.ik_path(poses, seed=q[:, 0])
    distance = [np.linalg.norm(of.joints[:, -1] - home, axis=-1) for of in (paths, plain)]
    assert (distance[0] < distance[1]).all()


@pytest.mark.parametrize(
    ("error", "words", "keys"),
    [
        (ValueError, r"`posture` is 0 \(allowed: above 0, up to 1\)", dict(posture=0)),
        (ValueError, "`posture` is 1.5 ", dict(posture=1.5)),
        (ValueError, "`posture` is NaN ", dict(posture=math.nan)),
        (TypeError, "posture", dict(posture="much")),
        (ValueError, r"`posture` is 0.1 with 3 joints and 3 rows that `task` and `weights` judge", dict(posture=0.1, weights=[1] * 6)),
        (ValueError, r"`rest` is \[0.0, 0.0\] \(allowed: 3 finite numbers, one for each joint\)", dict(posture=0.1, rest=[0, 0])),
        (ValueError, r"`rest` is \[0.0, NaN, 0.0\] \(allowed", dict(posture=0.1, rest=[0, math.nan, 0])),
        (TypeError, r"`rest` is 3 \(allowed: numbers, one for each joint\)", dict(posture=0.1, rest=3)),
        (ValueError, r"`rest` is \[0.0, 0.0, 0.0\] without `posture` \(needed: both, or neither\)", dict(rest=[0, 0, 0])),
    ],
)
def test_postures_that_are_refused(three, error, words, keys):
    poses = three.fk(np.zeros((2, 3)))
    for function in (three.ik, three.ik_path):
        with pytest.raises(error, match=words):
            function(poses, **{**IN_PLANE, **keys})


def test_all_answers_have_no_posture(three):
    with pytest.raises(ValueError, match=r'^`posture` is 0.1 with `select` "all" \(allowed: with first, nearest\)'):
        three.ik(three.fk(np.zeros(3)), **IN_PLANE, posture=0.1, select="all")


def assert_same(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


FUNCTIONS = {
    "fk": lambda chain, q: [chain.fk(q)],
    "links": lambda chain, q: [chain.fk(q, links=chain.link_names[::-1])],
    "jacobian": lambda chain, q: [chain.jacobian(q, frame) for frame in ("base", "tool", "spatial")],
    "velocity": lambda chain, q: [chain.velocity(q, q)],
    "manipulability": lambda chain, q: [chain.manipulability(q)],
    "ik": lambda chain, q: list(vars(chain.ik(chain.fk(q), seed=q, seeds=3)).values()),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_batch_is_its_rows_one_by_one(function, dtype, rng):
    chain = snake_of(6)
    q = within_limits(rng, chain, 3, 5, 171).astype(dtype)
    q[0, 1, 7] = np.nan
    q[1, 2, 3, 0], q[1, 3, 5, 5] = np.inf, 8193
    batch = function(chain, q)
    rows = [function(chain, row) for row in q.reshape(-1, 6)]
    for of_batch, of_rows in zip(batch, zip(*rows, strict=True), strict=True):
        assert of_batch.shape[:3] == q.shape[:3]
        assert of_batch.dtype in (dtype, np.int64, bool)
        assert of_batch.tobytes() == b"".join(map(np.ndarray.tobytes, of_rows))
    bad = np.isnan(batch[0].reshape(*q.shape[:3], -1)).all(axis=-1)
    assert np.argwhere(bad).tolist() == [[0, 1, 7], [1, 2, 3], [1, 3, 5]]


def test_velocities_that_are_not_finite_are_invalid(planar):
    q, dq = np.zeros((3, 2)), np.array([[1, 2], [np.inf, 0], [0, np.nan]])
    assert np.isnan(planar.velocity(q, dq)).all(axis=1).tolist() == [False, True, True]


def test_arrays_as_they_lie(rng, planar):
    q = within_limits(rng, planar, 40, 30)
    for view in (q[::2, ::-3], q.transpose(1, 0, 2), np.broadcast_to(q[0], (7, 30, 2)), np.asfortranarray(q), q[..., ::-1]):
        for array in (view, view.astype(np.float32)):
            for function in FUNCTIONS.values():
                for got, wanted in zip(function(planar, array), function(planar, np.ascontiguousarray(array)), strict=True):
                    assert_same(got, wanted)
    kept = q.copy()
    kept.flags.writeable = False
    assert_same(planar.fk(kept), planar.fk(q))
    assert kept.tobytes() == q.tobytes()
    # A tensor of the package has no library, so the result is a NumPy array.
    assert_same(planar.fk(rc.Tensor.from_dlpack(q)), planar.fk(q))


@pytest.mark.parametrize("count", [1, 16])
def test_one_joint_and_sixteen(count, rng):
    chain = snake_of(count)
    q = within_limits(rng, chain, 20)
    assert chain.jacobian(q).shape == (20, 6, count)
    answers = chain.ik(chain.fk(q))
    assert answers.valid.all() and answers.joints.shape == (20, count)
    lower, upper = chain.limits.T
    assert ((lower <= answers.joints) & (answers.joints <= upper)).all()


def test_batches_of_nothing(planar):
    none = np.zeros((0, 4, 2), np.float32)
    assert planar.fk(none).shape == (0, 4, 7) and planar.fk(none).dtype == np.float32
    assert planar.fk(none, links=["tip", "base"]).shape == (0, 4, 2, 7)
    assert planar.jacobian(none).shape == (0, 4, 6, 2)
    assert planar.velocity(none, none).shape == (0, 4, 6)
    assert planar.manipulability(none).shape == (0, 4)
    assert planar.ik(planar.fk(none), seed=none).joints.shape == (0, 4, 2)
    for shape in ((0, 4, 7), (4, 0, 7), (0, 0, 7), (0, 7)):
        paths = planar.ik_path(np.zeros(shape), seed=np.zeros(2))
        assert paths.joints.shape == (*shape[:-1], 2) and paths.branch.shape == shape[:-1]


def test_arms_reach_their_poses(arm, rng):
    q = within_limits(rng, arm, 400)
    poses = arm.fk(q)
    answers = arm.ik(poses, seeds=64, position_tolerance_m=1e-6, rotation_tolerance_rad=1e-6)
    assert answers.valid.all()
    lower, upper = arm.limits.T
    assert ((lower <= answers.joints) & (answers.joints <= upper)).all()
    back = arm.fk(answers.joints)
    assert np.abs(back[:, :3] - poses[:, :3]).max() <= 1e-6
    assert np.linalg.norm(back[:, :3] - poses[:, :3], axis=1) == pytest.approx(answers.position_error_m, abs=1e-14)
    assert np.abs(np.abs((back[:, 3:] * poses[:, 3:]).sum(axis=1)) - 1).max() < 1e-11
    single = arm.fk(q.astype(np.float32))
    assert single.dtype == np.float32 and np.abs(single[:, :3] - poses[:, :3]).max() < 2e-6
    assert_same(arm.fk(q, links=[arm.link_names[-1]])[:, 0], poses)


def test_arms_agree_with_pinocchio(arm, rng, data):
    pin = pytest.importorskip("pinocchio", reason="Pinocchio is not installed: poses are not compared with its")
    _, file, _, tip, *_ = arm._arguments
    model = pin.buildModelFromUrdf(file)
    state = model.createData()
    base, tip = (model.getFrameId(name) for name in (arm._arguments[2], tip))
    frames = {"base": pin.LOCAL_WORLD_ALIGNED, "tool": pin.LOCAL, "spatial": pin.WORLD}
    ids = [model.getJointId(name) for name in arm.joint_names]
    assert all(model.joints[i].nq == 1 for i in ids)
    for q in within_limits(rng, arm, 50):
        whole = pin.neutral(model)
        whole[[model.joints[i].idx_q for i in ids]] = q
        columns = [model.joints[i].idx_v for i in ids]
        pin.computeJointJacobians(model, state, whole)
        pin.updateFramePlacements(model, state)
        assert state.oMf[base].isIdentity(1e-14)
        pose, wanted = arm.fk(q), pin.SE3ToXYZQUAT(state.oMf[tip])
        assert np.abs(pose[:3] - wanted[:3]).max() < 1e-13
        assert np.abs(pose[3:] - wanted[3:] * np.sign(wanted[6] or 1)).max() < 1e-13
        for name, frame in frames.items():
            wanted = pin.getFrameJacobian(model, state, tip, frame)[:, columns]
            assert np.abs(arm.jacobian(q, name) - wanted).max() < 1e-13, name


def test_tools_limits_and_orders():
    half = math.sqrt(0.5)
    chain = rc.Chain(PLANAR, "base", "tip", joints=["elbow", "shoulder"], tool=[0, 0, 0.2, 0, 0, -half, half], limits={"elbow": (0, 1)})
    assert chain.joint_names == ("elbow", "shoulder") and chain.limits.tolist() == [[0, 1], [-3, 3]]
    assert np.abs(chain.fk(np.array([0, 90 * DEG])) - [0, 1.5, 0.2, 0, 0, 0, 1]).max() < 1e-15
    # Poses of links are without the tool.
    assert np.abs(chain.fk(np.array([0, 90 * DEG]), links=["tip"]) - [0, 1.5, 0, 0, 0, half, half]).max() < 1e-15


def test_peculiarities_are_told_once(tmp_path):
    file = tmp_path / "robot.urdf"
    file.write_text(PLANAR.replace("0 0 1", "0 0 2", 1))
    with pytest.warns(UserWarning, match="robot.urdf:6: joint `shoulder`: its axis has length 2") as told:
        chain = rc.Chain.from_urdf(file, "base", "tip")
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="length 2") as told:
        rc.Chain(file.read_text(), "base", "tip")
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy.deepcopy(chain)


def test_copies_and_pickles(tmp_path):
    file = tmp_path / "robot.urdf"
    file.write_text(PLANAR)
    chain = rc.Chain.from_urdf(str(file), "base", "tip", joints=["elbow", "shoulder"], tool=[0, 0, 0.2, 0, 0, 0, 1], limits={"elbow": [0, 1]})
    q = np.array([0.2, 0.3])
    file.unlink()
    for other in (copy.copy(chain), copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        assert_same(other.fk(q), chain.fk(q))
        assert repr(other) == repr(chain) == f"Chain({str(file)!r}, 'base', 'tip', joints=['elbow', 'shoulder'])"


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_forks_and_threads(rng):
    chain = snake_of(6)
    q = within_limits(rng, chain, 5000)

    def work() -> bytes:
        answers = chain.ik_path(chain.fk(q).reshape(50, 100, 7), seeds=2)
        return chain.jacobian(q).tobytes() + answers.joints.tobytes()

    wanted = work()
    assert in_a_fork(lambda: work() == wanted)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(got == wanted for got in pool.map(lambda _: work(), range(8)))


def test_other_threads_go_on_meanwhile(rng):
    """The GIL is released while a chain computes, so that another thread runs meanwhile."""
    chain = snake_of(16)
    poses = chain.fk(within_limits(rng, chain, 3000))
    poses[:, 0] += 100
    turns = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        working = pool.submit(chain.ik, poses)
        while not working.done():
            turns.append(None)
    assert len(turns) > 1000


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_of_torch(dtype, rng):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    chain = snake_of(6)
    q = within_limits(rng, chain, 4, 30).astype(dtype)
    tensor = torch.from_numpy(q)
    for function in FUNCTIONS.values():
        for array, of_numpy in ((tensor, q), (tensor.transpose(0, 1), q.transpose(1, 0, 2)), (tensor[..., ::2, :], q[..., ::2, :])):
            for got, wanted in zip(function(chain, array), function(chain, of_numpy), strict=True):
                assert isinstance(got, torch.Tensor)
                assert_same(got.numpy(), wanted)
    with pytest.raises(ValueError, match="`q`.*requires? grad"):
        chain.fk(tensor.clone().requires_grad_())
    with pytest.raises(TypeError, match="`q` is float16"):
        chain.fk(tensor.half())
    if torch.cuda.is_available():
        there = chain.fk(tensor.cuda())
        assert there.is_cuda and torch.equal(there.cpu(), chain.fk(tensor))


def refusals():
    q, poses = np.zeros((3, 2)), np.zeros((3, 7))
    yield ValueError, r"`q` has shape \[3, 3\] \(allowed: \[\.\.\., 2\], a value for each of shoulder, elbow\)", lambda c: c.fk(np.zeros((3, 3)))
    yield ValueError, r"`q` has shape \[\]", lambda c: c.fk(np.array(1.0))
    yield ValueError, r"`q` has shape \[2, 0\]", lambda c: c.jacobian(np.zeros((2, 0)))
    yield TypeError, r"`q` is int64 \(allowed: float32, float64\)", lambda c: c.fk(np.zeros(2, int))
    yield TypeError, "`q` is float16", lambda c: c.manipulability(np.zeros(2, np.float16))
    yield TypeError, "`q` is bool", lambda c: c.fk(np.zeros(2, bool))
    yield TypeError, "`q`.*dtype is >f8", lambda c: c.fk(np.zeros(2, ">f8"))
    yield TypeError, "`q` is a list", lambda c: c.fk([0.0, 0.0])
    yield TypeError, "`q` is None", lambda c: c.fk(None)
    yield TypeError, "`q` is a numpy.ma.*mask", lambda c: c.fk(np.ma.zeros(2))
    yield TypeError, r"`links` is 'tip' \(allowed: a list of names\)", lambda c: c.fk(q, links="tip")
    yield ValueError, r"`links` has \"hand\" \(allowed: base, upper, lower, tip\)", lambda c: c.fk(q, links=["tip", "hand"])
    yield ValueError, "`links` is empty", lambda c: c.fk(q, links=[])
    yield ValueError, r"`frame` is \"world\" \(allowed: base, tool, spatial\)", lambda c: c.jacobian(q, frame="world")
    yield ValueError, r"`dq` has shape \[2\] \(allowed: \[3, 2\], the shape of `q`\)", lambda c: c.velocity(q, q[0])
    yield TypeError, r"`dq` is float32, `q` float64 \(allowed: the same type\)", lambda c: c.velocity(q, q.astype("f4"))
    yield ValueError, r"`poses` has shape \[3, 6\] \(allowed: \[\.\.\., 7\], x y z qx qy qz qw\)", lambda c: c.ik(poses[:, 1:])
    yield ValueError, r"`poses` has shape \[7\] \(allowed: \[\.\.\., T, 7\]", lambda c: c.ik_path(poses[0])
    yield ValueError, r"`seed` has shape \[2, 2\] \(allowed: \[2\] for all poses, \[3, 2\] for each\)", lambda c: c.ik(poses, q[:2])
    yield ValueError, r"`seed` has shape \[3, 2\] \(allowed: \[2\].*\[1, 2\]", lambda c: c.ik_path(poses[None], q)
    yield TypeError, "`seed` is float32, `poses` float64", lambda c: c.ik(poses, np.zeros(2, "f4"))
    yield ValueError, r"`task` is \"axis\" \(allowed: pose, position, position_axis\)", lambda c: c.ik(poses, task="axis")
    yield ValueError, r"`seeds` is 0 \(allowed: 1 to 4096\)", lambda c: c.ik(poses, seeds=0)
    yield ValueError, "`seeds` is -1", lambda c: c.ik(poses, seeds=-1)
    yield TypeError, "seeds", lambda c: c.ik(poses, seeds=1.5)
    yield ValueError, "`max_iterations` is 0", lambda c: c.ik(poses, max_iterations=0)
    yield ValueError, "`max_iterations` is 8589934592", lambda c: c.ik(poses, max_iterations=2**33)
    yield ValueError, "`position_tolerance_m` is NaN", lambda c: c.ik(poses, position_tolerance_m=math.nan)
    yield ValueError, "`rotation_tolerance_rad` is 0.000001 .*float32", lambda c: c.ik(poses.astype("f4"), rotation_tolerance_rad=1e-6)
    yield ValueError, r"`weights` has 3 numbers \(allowed: 6, linear and then angular\)", lambda c: c.ik(poses, weights=[1, 1, 1])
    yield TypeError, "`weights` is 1", lambda c: c.ik(poses, weights=1)
    yield ValueError, "`weights` is .*allowed: 0, or 1e-6 to 1000", lambda c: c.ik(poses, weights=[0] * 6)
    yield ValueError, "`max_joint_step` is 0", lambda c: c.ik_path(poses, max_joint_step=0)
    yield ValueError, r"`max_joint_step` is inf \(allowed: above 0, finite\)", lambda c: c.ik_path(poses, max_joint_step=math.inf)
    yield ValueError, r"`seed` has shape \[1, 2\] \(allowed: \[2\]\)", lambda c: c.ik(poses[0], q[:1])


@pytest.mark.parametrize(("error", "words", "call"), list(refusals()))
def test_arguments_that_are_refused(planar, error, words, call):
    with pytest.raises(error, match=words):
        call(planar)


def test_files_that_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no/such.urdf: "):
        rc.Chain.from_urdf("no/such.urdf", "base", "tip")
    with pytest.raises(IsADirectoryError, match="a folder"):
        rc.Chain.from_urdf(tmp_path, "base", "tip")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe: a pipe, a socket or a device \(allowed: a file, or a link to one\)"):
        rc.Chain.from_urdf(tmp_path / "pipe", "base", "tip")
    file = tmp_path / "robot.urdf"
    file.write_bytes(PLANAR.encode() + b"\xff")
    with pytest.raises(ValueError, match=r"robot.urdf:9: the byte 0xff is not UTF-8"):
        rc.Chain.from_urdf(file, "base", "tip")
    file.write_text(PLANAR.replace(LIMIT, "", 1))
    with pytest.raises(ValueError, match="robot.urdf:6: joint `shoulder`: no limits"):
        rc.Chain.from_urdf(file, "base", "tip")
    assert rc.Chain.from_urdf(os.fsencode(file), "base", "tip", limits={"shoulder": [-1, 1]}).size == 2
    assert rc.Chain.from_urdf(file, "base", "tip", limits={"shoulder": [-1, 1]}).limits.tolist() == [[-1, 1], [-3, 3]]


def test_a_path_is_no_text_and_a_text_no_path(tmp_path):
    hint = r"\(allowed: the text of a URDF; `Chain.from_urdf` reads a file\)$"
    for text, came in [("panda.urdf", "'panda.urdf'"), ("", "''"), ("a" * 100, "'a{60}'...")]:
        with pytest.raises(ValueError, match=f"^`text` is {came} {hint}"):
            rc.Chain(text, "base", "tip")
    for value, came in [(tmp_path / "panda.urdf", "PosixPath"), (PLANAR.encode(), "bytes")]:
        with pytest.raises(TypeError, match=f"^`text` is a {came} {hint}"):
            rc.Chain(value, "base", "tip")
    for text in (PLANAR, "\ufeff\n" + PLANAR, PLANAR.encode()):
        with pytest.raises(ValueError, match=r"^`path` is .*robot .* \(allowed: the path of a URDF; `Chain` reads its text\)$") as told:
            rc.Chain.from_urdf(text, "base", "tip")
        assert len(str(told.value)) < 160
    with pytest.raises(FileNotFoundError):
        rc.Chain.from_urdf("models/<robot>.urdf", "base", "tip")


@pytest.mark.parametrize(
    ("error", "words", "keys"),
    [
        (ValueError, "link `nose`", dict(tip="nose")),
        (TypeError, "base", dict(base=3)),
        (ValueError, "`joints` names `wrist`, which does not move the tip", dict(joints=["shoulder", "wrist"])),
        (ValueError, "`joints` lacks `elbow`", dict(joints=["shoulder"])),
        (TypeError, "`joints` is 'shoulder'", dict(joints="shoulder")),
        (ValueError, r"`tool` has 3 numbers \(allowed: 7, x y z qx qy qz qw\)", dict(tool=[0, 0, 1])),
        (TypeError, "`tool` is 'abcdefg'", dict(tool="abcdefg")),
        (ValueError, r"`tool` is \[0.0, .* \(allowed: x y z qx qy qz qw", dict(tool=[0] * 7)),
        (ValueError, r"`tool` is .* with a quaternion of norm 1, to within 1 %", dict(tool=[0, 0, 0.1, 0, 0, 0, 0.98])),
        (ValueError, "`tool` is .*NaN", dict(tool=[math.nan, 0, 0, 0, 0, 0, 1])),
        (ValueError, "`limits` names `wrist`", dict(limits={"wrist": [0, 1]})),
        (ValueError, "joint `elbow`: limits 1 and 0", dict(limits={"elbow": [1, 0]})),
        (ValueError, r"`limits\['elbow'\]` has 1 number \(allowed: 2, lower and upper\)", dict(limits={"elbow": [1]})),
        (TypeError, "`limits` is a list", dict(limits=[[0, 1]])),
    ],
)
def test_choices_that_are_refused(error, words, keys):
    with pytest.raises(error, match=words):
        rc.Chain(PLANAR, **{"base": "base", "tip": "tip", **keys})


def test_the_names_of_the_seed(planar, rng):
    q = within_limits(rng, planar, 10)
    poses = planar.fk(q)
    assert_same(rc.forward_kinematics(q, planar), poses)
    assert_same(rc.batch_jacobian(q, planar), planar.jacobian(q))
    assert_same(rc.inverse_kinematics(poses, planar, q).joints, planar.ik(poses, q).joints)
    assert_same(rc.forward_kinematics(q, planar, links=["lower"]), planar.fk(q, ["lower"]))
    assert_same(rc.batch_jacobian(q, planar, frame="tool"), planar.jacobian(q, "tool"))
    nearest = rc.inverse_kinematics(poses, planar, task="position", select="nearest")
    assert_same(nearest.joints, planar.ik(poses, task="position", select="nearest").joints)


def test_limits_are_read(planar):
    with pytest.raises(ValueError, match="read-only"):
        planar.limits[0] = (-1, 1)
    assert planar.limits.tolist() == [[-3, 3], [-3, 3]]
    # Infinite limits become the largest ones, and do not look like degrees.
    with pytest.warns(UserWarning) as told:
        chain = rc.Chain(PLANAR, "base", "tip", limits={"elbow": (-math.inf, math.inf)})
    assert [str(each.message).partition("`elbow`: ")[2] for each in told] == [
        "limits -inf and inf are brought to -8192 and 8192, as poses are computed for"
    ]
    assert chain.limits.tolist() == [[-3, 3], [-8192, 8192]]
