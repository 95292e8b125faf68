"""Tests of the inputs of each policy: names, shapes, types, order, and the meaning of True in masks. Each test names the
policy's own code."""

import json
import subprocess
import pathlib

import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from made import MS
from robocache import Cloud, Observation, Voxels
from robocache.presets import (
    InvalidObservation,
    act,
    diffusion_policy,
    dp3,
    groot_n17,
    lerobot_diffusion,
    octo,
    openpi,
    peract,
    rotations,
    smolvla,
    umi,
)

ROOT = pathlib.Path(__file__).parents[2]
# Rows 100 ms apart. `arm` is three columns, `gripper` one; a value says its row and column.
OLDER, NEWEST = [10, 11, 12, 13], [20, 21, 22, 23]


def observe(
    values=(OLDER, NEWEST), invalid=(), unborn=(), images=None, modalities=(("arm", 3), ("gripper", 1))
) -> Observation:
    """Makes an observation. Each pair (row, modality) in `invalid` or `unborn` has no valid value; a pair in `unborn` has no sample
    before the row either. For each stream, `images` has the grey value of each row's image, or None for no image."""
    values, names = np.array(values, np.float32), [name for name, _ in modalities]
    rows, count = len(values), len(names)
    valid, age = np.ones((rows, count), int), np.full((rows, count), MS)
    for row, name in [*invalid, *unborn]:
        valid[row, names.index(name)], age[row, names.index(name)] = 0, 500 * MS
    for row, name in unborn:
        age[row, names.index(name)] = -1
    columns, said = {"fused": values.ravel()}, {"attached": list(images or {})}
    index = np.full((rows, len(images or {})), -1)
    for a, (stream, fills) in enumerate((images or {}).items()):
        there = [(row, fill) for row, fill in enumerate(fills) if fill is not None]
        for i, (row, _) in enumerate(there):
            index[row, a] = i
        columns[stream] = np.concatenate(
            [np.empty(0, np.uint8), *(np.full(2 * 4 * 3, fill, np.uint8) for _, fill in there)]
        )
        said |= {f"{stream}.shape": [len(there), 2, 4, 3], f"{stream}.timestamps_ns": [row for row, _ in there]}
    said |= {"grid_index": index.ravel().tolist(), "grid_age_ns": np.where(index < 0, -1, 0).ravel().tolist()}
    ends = np.cumsum([0, *(dim for _, dim in modalities)]).tolist()
    metadata = {
        "shape": list(values.shape),
        "modalities": names,
        "offsets": ends,
        "valid": valid.ravel().tolist(),
        "age_ns": age.ravel().tolist(),
    }
    metadata |= {"timestamps_ns": [row * 100 * MS for row in range(rows)], "epoch": 0, "late_samples": 0}
    return Observation.from_message(columns, metadata | said)


BOTH = {"top": [50, 100], "wrist": [51, 102]}
LEROBOT = "huggingface/lerobot@7427f31801f944f5ec9ce53cda02862ce7d1638b"


def test_act():
    """LEROBOT, src/lerobot/policies/act/modeling_act.py: `observation.state` [B, D], a list of `observation.images.*`
    [B, 3, H, W]; policies/utils.py, prepare_observation_for_inference: images from 0 to 1, channels first."""
    batch = act.inputs(
        observe(images=BOTH), state=["gripper", "arm"], images={"front": "top"}, environment_state=[("arm", 1, 3)]
    )
    assert list(batch) == ["observation.state", "observation.environment_state", "observation.images.front"]
    assert batch["observation.state"].tolist() == [[23, 20, 21, 22]] and batch["observation.state"].dtype == np.float32
    assert batch["observation.environment_state"].tolist() == [[21, 22]]
    image = batch["observation.images.front"]
    assert (
        image.shape == (1, 3, 2, 4) and image.dtype == np.float32 and np.all(image == np.float32(100) / np.float32(255))
    )


def test_lerobot_diffusion():
    """LEROBOT, src/lerobot/policies/diffusion/modeling_diffusion.py, generate_actions: `observation.state` [B,
    n_obs_steps, D], images [B, n_obs_steps, cameras, C, H, W] stacked on dimension -4 from the images of each
    camera."""
    batch = lerobot_diffusion.inputs(observe(images=BOTH), state=["arm", "gripper"], images={"a": "top", "b": "wrist"})
    assert batch["observation.state"].tolist() == [[OLDER, NEWEST]]
    stacked = np.stack([batch["observation.images.a"], batch["observation.images.b"]], axis=-4)
    assert stacked.shape == (1, 2, 2, 3, 2, 4)
    assert np.rint(stacked[0, :, :, 0, 0, 0] * 255).tolist() == [[50, 51], [100, 102]]


def test_the_start_repeats_the_oldest_valid_row():
    """LEROBOT, src/lerobot/policies/utils.py, populate_queues; real-stanford/diffusion_policy@5ba07ac6,
    gym_util/multistep_wrapper.py, stack_last_n_obs: the first observation fills the rows before it."""
    got = observe(
        values=[[0] * 4, [5] * 4, OLDER, NEWEST], unborn=[(0, "arm"), (1, "arm")], images={"top": [None, None, 50, 100]}
    )
    batch = lerobot_diffusion.inputs(got, state=["arm", "gripper"], images={"a": "top"}, steps=4)
    assert batch["observation.state"][0].tolist() == [OLDER, OLDER, OLDER, NEWEST]
    assert np.rint(batch["observation.images.a"][0, :, 0, 0, 0] * 255).tolist() == [50, 50, 50, 100]


def test_a_drop_out_is_not_the_start():
    with pytest.raises(
        InvalidObservation,
        match=r"'arm' is not valid in row -2 of the window, at 0 ns: its newest sample is 500 ms old",
    ):
        lerobot_diffusion.inputs(observe(invalid=[(0, "arm")]), state=["arm"])
    with pytest.raises(InvalidObservation, match="'top' has no message in row -2"):
        lerobot_diffusion.inputs(observe(images={"top": [None, 100]}), state=["arm"], images={"a": "top"})


def test_diffusion_policy():
    """real-stanford/diffusion_policy@5ba07ac6661db573af695b419a7947ecb704690f, real_world/real_inference_util.py,
    get_real_obs_dict: a key each of shape_meta, [T, ...]; images THWC to TCHW, from 0 to 1; eval_real_robot.py adds
    the batch."""
    batch = diffusion_policy.inputs(
        observe(images=BOTH), low_dim={"robot_eef_pose": [("arm", 0, 2)]}, images={"camera_1": "top"}
    )
    assert list(batch) == ["robot_eef_pose", "camera_1"]
    assert batch["robot_eef_pose"].tolist() == [[[10, 11], [20, 21]]]
    assert batch["camera_1"].shape == (1, 2, 3, 2, 4) and batch["camera_1"].max() == np.float32(100) / np.float32(255)


def test_umi():
    """real-stanford/universal_manipulation_interface@d095ba9590df789df5189eea5ee7e431689038a6:
    umi/real_world/real_inference_util.py, get_real_umi_obs_dict; diffusion_policy/common/pose_repr_util.py,
    `relative`: inv(base) @ pose, base the newest; umi/common/pose_util.py, mat_to_rot6d: the first two rows."""
    rng = np.random.default_rng(5)
    turns, places = Rotation.random(3, random_state=4), rng.normal(size=(3, 3)).astype(np.float32)
    rows = [
        [*place, *turn.as_quat(), 0.05 + i / 100] for i, (place, turn) in enumerate(zip(places, turns, strict=True))
    ]
    got = observe(
        values=rows[:2], modalities=(("robot0_pose", 7), ("robot0_gripper", 1)), images={"camera0": [50, 100]}
    )
    batch = umi.inputs(got, start_pose=np.array(rows[2][:7]), images={"camera0": "camera0"})
    shapes = {key: values.shape for key, values in batch.items()}
    assert shapes == {
        "robot0_eef_pos": (1, 2, 3),
        "robot0_eef_rot_axis_angle": (1, 2, 6),
        "robot0_eef_rot_axis_angle_wrt_start": (1, 2, 6),
        "robot0_gripper_width": (1, 2, 1),
        "camera0_rgb": (1, 2, 3, 2, 4),
    }
    assert {values.dtype for values in batch.values()} == {np.dtype(np.float32)}
    base = turns[1].inv()
    assert np.allclose(batch["robot0_eef_pos"][0], [base.apply(places[0] - places[1]), [0, 0, 0]], atol=1e-6)
    relative = [(base * turns[0]).as_matrix()[:2].ravel(), np.eye(3)[:2].ravel()]
    assert np.allclose(batch["robot0_eef_rot_axis_angle"][0], relative, atol=1e-6)
    since = [(turns[2].inv() * turns[i]).as_matrix()[:2].ravel() for i in (0, 1)]
    assert np.allclose(batch["robot0_eef_rot_axis_angle_wrt_start"][0], since, atol=1e-6)
    assert np.allclose(batch["robot0_gripper_width"][0, :, 0], [0.05, 0.06])
    with pytest.raises(ValueError, match="a number is not a pose"):
        umi.inputs(got, start_pose=np.array(rows[2][:7]), on_invalid="fill")


OPENPI = "Physical-Intelligence/openpi@15a9616a00943ada6c20a0f158e3adb39df2ccac"


@pytest.mark.parametrize("model", ["pi0", "pi05"])
def test_pi0(model):
    """OPENPI, src/openpi/policies/libero_policy.py, LiberoInputs: three cameras, black and False if there is none;
    models/model.py: uint8 images are mapped to -1..1 there; transforms.py pads the state after normalising."""
    got = observe(images={"top": [50, 100], "wrist": [51, None]})
    made = openpi.inputs(
        got,
        state=["arm", "gripper"],
        images={"base_0_rgb": "top", "left_wrist_0_rgb": "wrist"},
        prompt="fold",
        model=model,
    )
    assert list(made["image"]) == list(made["image_mask"]) == ["base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"]
    assert made["state"].tolist() == NEWEST and made["prompt"] == "fold"
    assert [bool(mask) for mask in made["image_mask"].values()] == [True, False, False]
    assert all(np.asarray(mask).dtype == bool for mask in made["image_mask"].values())
    assert [image.max() for image in made["image"].values()] == [100, 0, 0]
    assert all(image.shape == (2, 4, 3) and image.dtype == np.uint8 for image in made["image"].values())


def test_pi0_fast_does_not_mask_images():
    """OPENPI, src/openpi/policies/droid_policy.py, DroidInputs: pi0-FAST has cameras of other names,
    and a mask that is True for each of them."""
    got = observe(images={"top": [50, 100], "wrist": [51, None]})
    made = openpi.inputs(got, state=["arm"], images={"base_0_rgb": "top"}, prompt="fold", model="pi0_fast")
    assert {name: bool(mask) for name, mask in made["image_mask"].items()} == {
        "base_0_rgb": True,
        "base_1_rgb": True,
        "wrist_0_rgb": True,
    }
    with pytest.raises(InvalidObservation, match="'wrist' has no message"):
        openpi.inputs(
            got, state=["arm"], images={"base_0_rgb": "top", "wrist_0_rgb": "wrist"}, prompt="fold", model="pi0_fast"
        )
    with pytest.raises(ValueError, match="names .'left_wrist_0_rgb'., the cameras of pi0_fast"):
        openpi.inputs(got, state=["arm"], images={"left_wrist_0_rgb": "wrist"}, prompt="fold", model="pi0_fast")
    with pytest.raises(InvalidObservation, match="none of the cameras"):
        openpi.inputs(got, state=["arm"], images={"left_wrist_0_rgb": "wrist"}, prompt="fold")


def test_droid():
    """OPENPI, src/openpi/policies/droid_policy.py, make_droid_example: the keys of a request."""
    values = [[*range(8)], [*range(10, 18)]]
    got = observe(values=values, modalities=(("arm", 7), ("gripper", 1)), images=BOTH)
    made = openpi.droid(got, joints=["arm"], gripper=["gripper"], exterior="top", wrist="wrist", prompt="fold")
    assert made["observation/joint_position"].tolist() == [*range(10, 17)] and made[
        "observation/gripper_position"
    ].tolist() == [17]
    assert (
        made["observation/exterior_image_1_left"].max(),
        made["observation/wrist_image_left"].max(),
        made["prompt"],
    ) == (100, 102, "fold")


def test_smolvla():
    """LEROBOT, src/lerobot/policies/smolvla/modeling_smolvla.py, prepare_images: `<key>_padding_mask` True is an
    image, as is a key without a mask; a missing image is -1 after `* 2 - 1`, so black; prepare_state pads the state."""
    got = observe(images={"top": [50, 100], "wrist": [51, None]})
    batch = smolvla.inputs(got, state=["arm", "gripper"], images={"top": "top", "wrist": "wrist"}, task="fold")
    assert batch["observation.state"].tolist() == [NEWEST] and batch["task"] == ["fold"]
    masks = {key: batch[f"observation.images.{key}_padding_mask"] for key in ("top", "wrist")}
    assert {key: (mask.tolist(), mask.dtype) for key, mask in masks.items()} == {
        "top": ([True], bool),
        "wrist": ([False], bool),
    }
    assert batch["observation.images.wrist"].shape == (1, 3, 2, 4) and batch["observation.images.wrist"].max() == 0


def test_groot_n17(tmp_path):
    """NVIDIA/Isaac-GR00T@3c65a296, getting_started/policy.md: nested dicts, [B, T, D] float32, [B, T, H, W, 3] uint8,
    [[text]]; @26f4404f, getting_started/data_preparation.md: modality.json."""
    got = observe(images=BOTH)
    made = groot_n17.inputs(got, state=["arm", "gripper"], video={"ego_view": "top"}, task="fold", video_steps=2)
    assert made["state"]["arm"].tolist() == [[NEWEST[:3]]] and made["state"]["gripper"].tolist() == [[NEWEST[3:]]]
    assert made["state"]["arm"].dtype == np.float32
    assert made["video"]["ego_view"].shape == (1, 2, 2, 4, 3) and made["video"]["ego_view"].dtype == np.uint8
    assert made["language"] == {"task": [["fold"]]}
    written = groot_n17.modality_json(
        got,
        action={"arm": 3, "gripper": 1},
        video={"ego_view": "observation.images.top"},
        path=tmp_path / "modality.json",
    )
    spans = {"arm": {"start": 0, "end": 3}, "gripper": {"start": 3, "end": 4}}
    assert written == {
        "state": spans,
        "action": spans,
        "video": {"ego_view": {"original_key": "observation.images.top"}},
    }
    assert json.loads((tmp_path / "modality.json").read_text()) == written


def test_octo():
    """octo-models/octo@241fb3514b7c40957a86d869fecb7c7fc353f540: octo/data/traj_transforms.py, chunk_act_obs:
    timestep_pad_mask is True from the first step of the trajectory on; data/obs_transforms.py: masked entries are
    zeros; model/components/tokenizers.py, generate_proper_pad_mask: without every key in pad_mask_dict nothing is
    masked."""
    got = observe(images={"top": [50, 100], "wrist": [51, None]})
    made = octo.inputs(got, proprio=["arm", "gripper"], images={"primary": "top", "wrist": "wrist"})
    assert made["proprio"].tolist() == [[OLDER, NEWEST]]
    assert made["image_primary"].shape == (1, 2, 2, 4, 3) and made["image_primary"].dtype == np.uint8
    assert made["timestep_pad_mask"].tolist() == [[True, True]]
    masks = {key: mask.tolist() for key, mask in made["pad_mask_dict"].items()}
    assert masks == {"proprio": [[True, True]], "image_primary": [[True, True]], "image_wrist": [[True, False]]}
    assert made["image_wrist"][0, :, 0, 0, 0].tolist() == [51, 0]
    start = octo.inputs(
        observe(unborn=[(0, "arm")], images={"top": [None, 100]}), proprio=["arm"], images={"primary": "top"}
    )
    assert start["timestep_pad_mask"].tolist() == [[False, True]] and start["pad_mask_dict"][
        "image_primary"
    ].tolist() == [[True, True]]
    assert start["proprio"][0].tolist() == [NEWEST[:3]] * 2 and start["image_primary"][0, :, 0, 0, 0].tolist() == [
        100,
        100,
    ]
    filled = octo.inputs(
        observe(invalid=[(1, "arm")], images=BOTH), proprio=["arm"], images={"primary": "top"}, on_invalid="fill"
    )
    assert filled["pad_mask_dict"]["proprio"].tolist() == [[True, False]] and filled["proprio"][0, 1].tolist() == [
        0,
        0,
        0,
    ]


def test_dp3(monkeypatch):
    """YanjieZe/3D-Diffusion-Policy@47385d9d6f5bde3f2ebdf2400ecb8261cc9e6b97, diffusion_policy_3d/dataset/realdex_dataset.py:
    `point_cloud` [T, N, ...], `agent_pos` [T, D]; config/task/realdex_pour.yaml: 1,024 points of 3 coordinates."""
    assert dp3.inputs(observe(), agent_pos=["arm", "gripper"])["agent_pos"].tolist() == [[OLDER, NEWEST]]
    got = observe(images={"cloud": [1, 2]})
    clouds = [Cloud({axis: np.full(1024, k + 10 * row) for k, axis in enumerate("xyz")}, 0) for row in (0, 1)]
    monkeypatch.setattr(type(got.attached["cloud"]), "at", lambda self, row: clouds[row])
    batch = dp3.inputs(got, agent_pos=["arm"], cloud="cloud")
    assert batch["point_cloud"].shape == (1, 2, 1024, 3) and batch["point_cloud"].dtype == np.float32
    assert batch["point_cloud"][0, :, 5].tolist() == [[0, 1, 2], [10, 11, 12]]
    with pytest.raises(ValueError, match="has 1024 points in row -1, expected 512"):
        dp3.inputs(got, agent_pos=["arm"], cloud="cloud", points=512)


def test_peract(monkeypatch):
    """peract/peract@02fb87681c5a47be9dbf20141bedb836ee2d3ef9: voxel/voxel_grid.py, VoxelGrid, whose output for the
    same points was compared (no cell differs, colours by 6e-8); helpers/preprocess_agent.py: colours / 255 * 2 - 1;
    helpers/utils.py: low_dim_state."""
    coords = np.array([[0, 0, 1], [1, 1, 0]], np.int32)
    features = np.array([[1, 2, 3, 255, 0, 51, 1], [4, 5, 6, 0, 255, 204, 1]], np.float32)
    grid = Voxels("coo", peract.CHANNELS, (2, 2, 2), (0.0,) * 3, (1.0,) * 3, 0, coords=coords, features=features)
    got = observe(values=[[1, 0.02, 0.08]], modalities=(("gripper", 3),), images={"grids": [7]})
    monkeypatch.setattr(type(got.attached["grids"]), "at", lambda self, row: grid)
    made = peract.inputs(got, gripper=["gripper"], step=0, episode_length=25)
    voxels = made["voxel_grid"]
    assert voxels.shape == (1, 10, 2, 2, 2) and voxels.dtype == np.float32
    assert np.allclose(voxels[0, :, 0, 0, 1], [1, 2, 3, 1, -1, -0.6, 0, 0, 0.5, 1])
    assert np.allclose(voxels[0, :, 1, 1, 0], [4, 5, 6, -1, 1, 0.6, 0.5, 0.5, 0, 1])
    # An empty cell has its index, and nothing else.
    assert voxels[0, :, 1, 1, 1].tolist() == [0, 0, 0, 0, 0, 0, 0.5, 0.5, 0.5, 0]
    assert np.allclose(made["low_dim_state"], [[1, 0.02, 0.04, 1]])
    assert peract.inputs(got, gripper=["gripper"], step=24, episode_length=25)["low_dim_state"][0, 3] == -1
    with pytest.raises(ValueError, match=r"no channels .'mean_r', 'mean_g', 'mean_b'."):
        peract.voxel_grid(
            Voxels(
                "coo",
                ("mean_x", "mean_y", "mean_z", "occupancy"),
                (2, 2, 2),
                (0.0,) * 3,
                (1.0,) * 3,
                0,
                coords=coords,
                features=features[:, :4],
            )
        )


def test_what_is_not_valid_is_refused_held_or_filled():
    got = observe(invalid=[(1, "arm")])
    with pytest.raises(InvalidObservation, match=r"'arm' is not valid in row -1 of the window, at 100000000 ns"):
        act.inputs(got, state=["arm", "gripper"])
    assert act.inputs(got, state=["gripper"])["observation.state"].tolist() == [[23]]
    assert act.inputs(got, state=["arm", "gripper"], on_invalid="hold")["observation.state"].tolist() == [
        [10, 11, 12, 23]
    ]
    assert act.inputs(got, state=["arm", "gripper"], on_invalid="fill", fill=-1.0)["observation.state"].tolist() == [
        [-1, -1, -1, 23]
    ]
    with pytest.raises(InvalidObservation, match="and no older row of the window has it"):
        act.inputs(observe(invalid=[(0, "arm"), (1, "arm")]), state=["arm"], on_invalid="hold")
    with pytest.raises(ValueError, match="on_invalid is 'ignore'"):
        act.inputs(got, state=["gripper"], on_invalid="ignore")


def test_what_is_held_is_older():
    """The first row is from before the start of the episode, so it repeats the newest row. That copy must not fill the drop-out in
    the second row, since only older values are held."""
    got = observe(values=[[0] * 4, [0] * 4, NEWEST], unborn=[(0, "arm")], invalid=[(1, "arm")])
    with pytest.raises(InvalidObservation, match="row -2"):
        lerobot_diffusion.inputs(got, state=["arm"], on_invalid="hold")


def test_the_fill_value_of_a_node_is_never_taken():
    got = observe(invalid=[(1, "arm")])
    kept = Observation.from_message(got.tensor.numpy().copy(), dict(got.metadata), invalid=None)
    with pytest.raises(InvalidObservation):
        act.inputs(kept, state=["arm"])


def test_images_are_refused_held_or_black():
    got = observe(images={"top": [50, None]})
    with pytest.raises(InvalidObservation, match="'top' has no message in row -1"):
        act.inputs(got, state=["arm"], images={"a": "top"})
    held = act.inputs(got, state=["arm"], images={"a": "top"}, on_invalid="hold")["observation.images.a"]
    assert np.all(held == np.float32(50) / np.float32(255))
    batch = lerobot_diffusion.inputs(got, state=["arm"], images={"a": "top"}, on_invalid="fill")
    assert np.rint(batch["observation.images.a"][0, :, 0, 0, 0] * 255).tolist() == [50, 0]


@pytest.mark.parametrize(
    ("ask", "error", "named"),
    [
        (lambda o: act.inputs(o, state=["leg"]), KeyError, "no modality 'leg'"),
        (lambda o: act.inputs(o, state=[("arm", 2, 5)]), ValueError, "columns 2 to 5 of 'arm', which has 3"),
        (lambda o: act.inputs(o, state=[]), ValueError, "no columns"),
        (
            lambda o: lerobot_diffusion.inputs(o, state=["arm"], steps=3),
            ValueError,
            "window has 2 rows, the policy takes 3: set `window`",
        ),
        (lambda o: act.inputs(o, state=["arm"], images={"a": "rear"}), KeyError, "there is no attached stream 'rear'"),
        (lambda o: peract.inputs(o, gripper=["arm"], step=5, episode_length=5), ValueError, "step is 5 of 5"),
        (lambda o: lerobot_diffusion.config({"arm": 3}, rate_hz=25, fps=10), ValueError, "multiple of fps"),
    ],
)
def test_what_an_observation_does_not_have_is_named(ask, error, named):
    with pytest.raises(error, match=named):
        ask(observe(images=BOTH))


def test_an_answer_without_an_observation_is_refused():
    with pytest.raises(InvalidObservation, match="too early"):
        act.inputs(Observation.from_message(np.empty(0, np.float32), {"error": "too early"}), state=["arm"])


def test_rotations():
    """The two conventions of six numbers are transposes; scipy has quaternions x y z w, too."""
    turns = Rotation.random(20, random_state=3)
    matrices = rotations.matrix(turns.as_quat())
    assert np.allclose(matrices, turns.as_matrix())
    assert np.allclose(rotations.rot6d_rows(matrices), matrices[:, :2].reshape(20, 6))
    assert np.allclose(rotations.rot6d_columns(matrices), np.swapaxes(matrices, 1, 2)[:, :2].reshape(20, 6))
    assert np.allclose(rotations.wxyz(turns.as_quat()), turns.as_quat(scalar_first=True))
    assert np.allclose(rotations.canonical(turns.as_quat()), turns.as_quat(canonical=True))
    with pytest.raises(ValueError, match="length 0"):
        rotations.matrix(np.zeros(4))


STATE = {"arm": 6, "gripper": {"dim": 1, "interpolation": "previous", "max_age_ms": 100.0}}
CONFIGS = {
    "act": act.config(STATE, images=["top"]),
    "lerobot_diffusion": lerobot_diffusion.config(STATE, images=["top", "wrist"]),
    "diffusion_policy": diffusion_policy.config(STATE),
    "umi": umi.config(),
    "openpi": openpi.config(STATE, images=["top"]),
    "smolvla": smolvla.config(STATE),
    "groot_n17": groot_n17.config(STATE, window=2, stride=5),
    "octo": octo.config(STATE, images=["top"]),
    "dp3": dp3.config(STATE, cloud="cloud"),
    "peract": peract.config(clouds=["front", "wrist"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_nodes_take_the_configuration(name, tmp_path):
    config = CONFIGS[name]
    assert yaml.safe_load(str(config)) == config
    (tmp_path / "config.yml").write_text(str(config))
    for section in config:
        node = ROOT / "target" / "release" / f"robocache-{section}"
        done = subprocess.run(
            [node, "--check", "--config", tmp_path / "config.yml"], capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stdout + done.stderr


ALL = {
    "act": lambda o, **k: act.inputs(o, state=["arm"], **k),
    "lerobot_diffusion": lambda o, **k: lerobot_diffusion.inputs(o, state=["arm"], **k),
    "diffusion_policy": lambda o, **k: diffusion_policy.inputs(o, low_dim={"state": ["arm"]}, **k),
    "dp3": lambda o, **k: dp3.inputs(o, agent_pos=["arm"], **k),
    "octo": lambda o, **k: octo.inputs(o, proprio=["arm"], images={}, **k),
    "smolvla": lambda o, **k: smolvla.inputs(o, state=["arm"], images={"a": "top"}, task="", **k),
    "openpi": lambda o, **k: openpi.inputs(o, state=["arm"], images={"base_0_rgb": "top"}, prompt="", **k),
    "groot_n17": lambda o, **k: groot_n17.inputs(o, state=["arm"], video={"a": "top"}, task="", **k),
}


def state_of(made: dict) -> np.ndarray:
    """Returns the newest row of the state in a policy's input, whatever its key is."""
    for key in ("observation.state", "state", "agent_pos", "proprio"):
        if key in made:
            found = made[key]["arm"] if isinstance(made[key], dict) else made[key]
            return found.reshape(-1, 3)[-1]
    raise AssertionError(list(made))


@pytest.mark.parametrize("name", ALL)
def test_whatever_is_not_valid_is_refused_held_or_filled(name):
    """Uses three rows: two for policies that take two, and one to look back on."""
    rows, images = [OLDER, NEWEST, [30, 31, 32, 33]], {"top": [1, 2, 3]}
    masked = observe(rows, invalid=[(2, "arm")], images=images)
    with pytest.raises(InvalidObservation, match="'arm' is not valid in row -1 of the window.*500 ms old"):
        ALL[name](masked)
    assert state_of(ALL[name](masked, on_invalid="hold")).tolist() == NEWEST[:3]
    assert state_of(ALL[name](masked, on_invalid="fill", fill=-7)).tolist() == [-7] * 3
    nothing = observe(rows, unborn=[(row, "arm") for row in range(3)], images=images)
    for on_invalid in ("refuse", "hold"):
        with pytest.raises(InvalidObservation, match="'arm' is not valid in row .*: it has no sample yet"):
            ALL[name](nothing, on_invalid=on_invalid)
    assert state_of(ALL[name](nothing, on_invalid="fill", fill=-7)).tolist() == [-7] * 3
    for keys, words in (
        ({"on_invalid": "ignore"}, "on_invalid is 'ignore'"),
        ({"on_invalid": "fill", "fill": float("nan")}, "fill is nan, expected a finite number"),
    ):
        with pytest.raises(ValueError, match=words):
            ALL[name](masked, **keys)
    with pytest.raises(TypeError, match=r"the observation is a dict, expected Observation.from_event\(event\)"):
        ALL[name]({"type": "INPUT"})


def test_octo_acts_on_its_newest_step_whatever_is_filled():
    made = octo.inputs(
        observe(unborn=[(0, "arm"), (1, "arm")]), proprio=["arm"], images={}, on_invalid="fill", fill=0.0
    )
    assert made["timestep_pad_mask"].tolist() == [[False, True]]
    assert made["pad_mask_dict"]["proprio"].tolist() == [[False, False]]


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda o: act.inputs(o, state="arm"), ValueError, "the columns are 'arm', expected a list of modalities"),
        (lambda o: act.inputs(o, state=["arm", "arm"]), ValueError, "columns 0 to 3 of 'arm' are asked for twice"),
        (
            lambda o: act.inputs(o, state=[("arm", 0, 2), "gripper", ("arm", 1, 3)]),
            ValueError,
            "columns 1 to 2 of 'arm' are asked for twice",
        ),
        (lambda o: act.inputs(o, state=[("arm", 0)]), ValueError, "a column is ('arm', 0), expected a modality, or"),
        (lambda o: act.inputs(o, state=[None]), ValueError, "a column is None, expected a modality"),
        (lambda o: act.inputs(o, state=[("arm", 0, 1.5)]), TypeError, "a column of 'arm' is 1.5, expected a whole number"),
        (lambda o: lerobot_diffusion.inputs(o, state=["arm"], steps=0), ValueError, "steps is 0, expected 1 or more"),
        (lambda o: diffusion_policy.inputs(o, low_dim={"a": ["arm"]}, steps=-1), ValueError, "steps is -1"),
        (lambda o: act.inputs(o, state=["arm"], images=["top"]), TypeError, "images is ['top'], expected an attached stream"),
        (lambda o: groot_n17.inputs(o, state="arm", video={}, task=""), ValueError, "state is 'arm', expected a list"),
        (lambda o: act.config({"arm": 2.5}), TypeError, "dim of 'arm' is 2.5, expected a whole number"),
        (lambda o: act.config({"arm": 2}, images="top"), ValueError, "images is 'top', expected a list of names"),
        (lambda o: lerobot_diffusion.config({"arm": 3}, fps=0), ValueError, "expected a multiple of fps, 0"),
        (lambda o: o.attached["top"].message(-3), IndexError, "message -3 of 2 of 'top'"),
    ],
)
def test_what_makes_no_sense_is_refused(ask, error, words):
    with pytest.raises(error) as caught:
        ask(observe(images=BOTH))
    assert words in str(caught.value)


def test_keys_of_groot_may_share_columns():
    made = groot_n17.inputs(observe(images=BOTH), state={"all": ["arm"], "xy": [("arm", 0, 2)]}, video={"a": "top"}, task="")
    assert made["state"]["all"].tolist() == [[NEWEST[:3]]] and made["state"]["xy"].tolist() == [[NEWEST[:2]]]


@pytest.mark.parametrize("copy", [False, True])
def test_whatever_the_memory_of_the_message_is_like(copy):
    """The memory is bfloat16, read-only, or not contiguous. The policy gets a copy."""
    wanted = act.inputs(observe(), state=["arm", "gripper"])["observation.state"]
    plain = observe()
    bits = (np.array([OLDER, NEWEST], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for values, dtype in (
        (bits, "bfloat16"),
        (np.asfortranarray(np.array([OLDER, NEWEST], np.float32)), None),
        (np.array([OLDER, NEWEST], np.float16), None),
    ):
        values.setflags(write=False)
        metadata = {key: value for key, value in plain.metadata.items() if key != "attached"}
        metadata |= {"dtype": dtype} if dtype else {}
        got = Observation.from_message(values, metadata, invalid=None, copy=copy)
        made = act.inputs(got, state=["arm", "gripper"])["observation.state"]
        assert made.tolist() == wanted.tolist() and made.dtype == np.float32
        made[:] = 0
        assert got["arm"][-1].tolist() == NEWEST[:3]
