"""The policies of examples/lerobot behind real dataflows, beside LeRobot itself: `make test-policies`.

Where PyTorch sees a GPU, the policies are there, and with ROBOCACHE_TEST_GPU=1 so are the rings that they take from.
"""

import importlib.util
import json
import math
import os
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from harness import NODES, ROOT, Flow

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not in this environment: make test-policies")
pytest.importorskip("lerobot", reason="LeRobot is not in this environment: make test-policies")

import robocache  # noqa: E402
from lerobot.configs.policies import PreTrainedConfig  # noqa: E402
from lerobot.policies.factory import get_policy_class, make_pre_post_processors  # noqa: E402
from robocache.presets import act, lerobot_diffusion  # noqa: E402

# One thread, as in the node: networks this small are slower on more, and other tests run at the same time.
torch.set_num_threads(1)

MS = 1_000_000
EXAMPLE = ROOT / "examples" / "lerobot"
MADE = ROOT / "out" / "lerobot"
PERIOD = round(1e9 / 30)
SECONDS = 6
COUNT = 30 * SECONDS
NAMES = ("camera", "force", "proprio")
INPUTS = {"state": ["proprio", "force"], "environment_state": ["camera"]}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RING = "cuda" if os.environ.get("ROBOCACHE_TEST_GPU") == "1" else "shared"
FIELDS = [*(f"joint_{i}" for i in range(1, 8)), "gripper"]


def load(kind: str):
    """Loads a policy by LeRobot's own means: its configuration, network and processors."""
    config = PreTrainedConfig.from_pretrained(MADE / kind)
    config.device = DEVICE
    network = get_policy_class(kind).from_pretrained(MADE / kind, config=config)
    on_device = {"device_processor": {"device": DEVICE}}
    return config, network, *make_pre_post_processors(config, str(MADE / kind), preprocessor_overrides=on_device)


@pytest.fixture(scope="module", params=[("act", "host"), ("act", RING), ("diffusion", "host"), ("diffusion", RING)], ids="-".join)
def ran(request, tmp_path_factory):
    """Runs a policy for six seconds of a robot that it was not trained on. The force sensor is silent from 2.0 s to 2.3 s.
    Observations are sent in messages, or in a ring of shared or GPU memory."""
    kind, residence = request.param
    config = yaml.safe_load((EXAMPLE / "config.yml").read_text())
    config["sim"] |= {"seed": 11, "real_time": False, "start_ns": 10**9, "duration_s": SECONDS}
    config["sim"]["streams"]["force"] = {"dropouts": [{"start_s": 2.0, "duration_s": 0.3}]}
    config["fuse"]["max_wait_ms"] = None
    # The robot does not run in real time, so back-pressure keeps observations from being overwritten.
    config["fuse"]["residence"] = {"fused": {"kind": residence, "backpressure": True} if residence != "host" else residence}
    if residence == "cuda":
        config["device"] = "cuda"
    flow = Flow(tmp_path_factory.mktemp(kind))
    flow.robocache("sim", config, outputs=NAMES)
    flow.robocache("fuse", config, {name: f"sim/{name}" for name in NAMES}, ["fused"])
    traced = f"{NODES / 'lerobot_traced.py'} {flow.folder / 'trace'}"
    arguments = f"{traced} --policy {MADE / kind} --require force=20 proprio=20"
    flow.node("policy", pathlib.Path(sys.executable), arguments, {"fused": "fuse/fused"}, ["action"])
    # The same observations again, for the test.
    flow.robocache("fuse", {**config, "fuse": {**config["fuse"], "residence": "host"}}, {name: f"sim/{name}" for name in NAMES}, ["fused"], name="again")
    flow.collector({"fused": "again/fused", "action": "policy/action"})
    run = flow.run(timeout=180)
    observations = [robocache.Observation.from_message(m.array, m.metadata) for m in run.received("sink", "fused")]
    trace = pickle.loads((flow.folder / "trace").read_bytes())
    return kind, run, observations, run.received("sink", "action"), trace


def usable(observation, rows: int) -> bool:
    """True if a policy that takes `rows` rows may act: the newest row is valid and not too old. An older row may lack only values
    from before the robot's start."""
    if not observation.valid[-1].all() or (observation.age_ns[-1, 1:] > 20 * MS).any():
        return False
    lacking = observation.age_ns[-2][~observation.valid[-2]]
    return rows == 1 or bool((lacking < 0).all())


def test_an_action_comes_of_each_observation_that_is_whole(ran):
    kind, run, observations, actions, _ = ran
    assert COUNT - 5 <= len(observations) <= COUNT
    wanted = [o.timestamp_ns for o in observations if usable(o, 1 if kind == "act" else 2)]
    assert [action.stamp for action in actions] == wanted
    # Force is missing for 300 ms, but a few rows at the edges hold the last value. The robot moves the rest of the time.
    assert 6 <= len(observations) - len(actions) <= 12
    report = json.loads(re.search(r"^\{.*\}$", run.logs["policy"], re.MULTILINE)[0])
    assert report["observations"] == len(observations) and report["actions"] == len(actions)
    assert report["refused: force invalid"] >= 6
    assert sum(n for key, n in report.items() if key.startswith("refused")) == len(observations) - len(actions)


def test_actions_are_chunks_with_the_times_of_their_steps(ran):
    kind, _, _, actions, _ = ran
    horizon = 16 if kind == "act" else 8
    for action in actions:
        metadata = action.metadata
        assert metadata["shape"] == [horizon, 8] and metadata["fields"] == FIELDS and metadata["epoch"] == 0
        assert action.values.dtype == np.float32 and action.values.shape == (horizon * 8,)
        assert metadata["timestamps_ns"] == [action.stamp + (step + 1) * PERIOD for step in range(horizon)]
        assert np.isfinite(action.values).all()


def test_what_reaches_the_network_is_the_preset_of_the_observation(ran):
    kind, _, observations, actions, trace = ran
    _, _, before, _ = load(kind)
    stats = json.loads((MADE / "dataset" / "meta" / "stats.json").read_text())
    acted = {action.stamp for action in actions}
    observations = [o for o in observations if o.timestamp_ns in acted]
    assert len(trace) == len(observations)
    for observation, reached in zip(observations, trace, strict=True):
        preset = (act if kind == "act" else lerobot_diffusion).inputs(observation, **INPUTS)
        wanted = before({key: torch.from_numpy(values) for key, values in preset.items()})
        for key, raw in preset.items():
            assert reached[key].dtype == np.float32, key
            assert reached[key].tobytes() == wanted[key].cpu().numpy().tobytes(), key
            of = {name: np.array(values) for name, values in stats[key].items()}
            if kind == "act":
                normal = (raw - of["mean"]) / (of["std"] + 1e-8)
            else:
                normal = 2 * (raw - of["min"]) / np.maximum(of["max"] - of["min"], 1e-8) - 1
            assert np.allclose(reached[key], normal, rtol=1e-4, atol=1e-4), key
        # Columns of the newest row, by hand: in a window, force and proprio follow the camera, in this order.
        row = observation.fused[-1]
        newest = [array.reshape(-1, array.shape[-1])[-1] for array in preset.values()]
        assert newest[0].tobytes() == np.concatenate([row[134:149], row[128:134]]).tobytes()
        assert newest[1].tobytes() == row[:128].tobytes()


def test_actions_are_what_lerobot_says_of_these_inputs(ran):
    kind, _, _, actions, trace = ran
    config, network, _, after = load(kind)
    chunks = []
    for call, (action, reached) in enumerate(zip(actions, trace, strict=True), 1):
        batch = {key: torch.from_numpy(values).to(DEVICE) for key, values in reached.items()}
        torch.manual_seed(call)
        with torch.inference_mode():
            if kind == "act":
                chunk = after(network.predict_action_chunk(batch))[0].cpu().numpy()
            else:
                chunk = after(network.diffusion.generate_actions(batch))[0].cpu().numpy()
        chunks.append((action.stamp, chunk))
        got = action.values.reshape(chunk.shape)
        if kind == "act":
            # ACT's ensembling: the mean of all predictions of a step, with weights exp(-0.01 i), i = 0 the oldest.
            wanted = np.empty_like(chunk)
            for step in range(len(chunk)):
                since = [round((action.stamp - stamp) / PERIOD) for stamp, _ in chunks]
                said = [(n, c[n + step]) for n, (_, c) in zip(since, chunks, strict=True) if n + step < len(c)]
                weights = np.exp(-config.temporal_ensemble_coeff * (said[0][0] - np.array([n for n, _ in said])))
                wanted[step] = np.average([values for _, values in said], axis=0, weights=weights)
            chunk = wanted
        assert np.allclose(got, chunk, rtol=1e-4, atol=1e-5), call
    assert np.ptp([a.values for a in actions], axis=0).max() > 0.1


def test_the_dataset_is_what_the_robot_did():
    with np.load(MADE / "windows.npz") as file:
        rows, whole = file["values"][:, -1], file["valid"][:, -1].all(axis=1)
    assert not whole.all()
    [path] = (MADE / "dataset" / "data").rglob("*.parquet")
    table = pa.parquet.read_table(path)
    keys = ("observation.state", "observation.environment_state", "action")
    state, camera, action = (np.array(table[key].to_pylist(), np.float32) for key in keys)
    at = [i for i in range(len(rows) - 1) if whole[i] and whole[i + 1]]
    assert len(table) == len(at)
    assert state.tobytes() == np.concatenate([rows[at, 134:149], rows[at, 128:134]], axis=1).tobytes()
    assert camera.tobytes() == rows[at, :128].tobytes()
    following = rows[np.array(at) + 1]
    assert action.tobytes() == following[:, [*range(134, 141), 145]].tobytes()
    # An episode ends at the gap, so no window of LeRobot spans it.
    gaps = np.flatnonzero(np.diff(at) > 1)
    assert len(gaps) == 1 and np.flatnonzero(np.diff(table["episode_index"])).tolist() == gaps.tolist()


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("lerobot_policy", EXAMPLE / "policy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def event(values, valid=1, age_ns=0, epoch=0, start=0, names=NAMES, dims=(128, 6, 15), period=PERIOD) -> dict:
    """An observation as dora hands it over; `valid` and `age_ns` are one value for all, or [T, M]."""
    window, count = len(values), len(names)
    metadata = {
        "shape": list(values.shape),
        "modalities": list(names),
        "offsets": np.cumsum([0, *dims]).tolist(),
        "valid": np.broadcast_to(valid, (window, count)).ravel().tolist(),
        "age_ns": np.broadcast_to(age_ns, (window, count)).ravel().tolist(),
        "timestamps_ns": [start + i * period for i in range(window)],
        "timestamp_ns": start + (window - 1) * period,
        "epoch": epoch,
        "late_samples": 0,
    }
    return {"type": "INPUT", "id": "fused", "value": pa.array(values.ravel()), "metadata": metadata}


VALUES = np.random.default_rng(0).normal(0, 1, (2, 149)).astype(np.float32)


@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_an_epoch_makes_the_policy_forget(example, kind, monkeypatch):
    policy = example.Policy(MADE / kind, {}, "cpu")
    resets = []
    monkeypatch.setattr(policy.network, "reset", lambda: resets.append(True))
    assert policy.observe(event(VALUES))[1] is not None and not resets
    assert policy.observe(event(VALUES, epoch=1, start=7))[1] is None and resets == [True]
    assert policy.chunks is None or len(policy.chunks) == 0
    assert policy.observe(event(VALUES, epoch=1, start=7 + PERIOD))[1] is not None and resets == [True]
    assert policy.report()["refused: epoch changed"] == 1


def test_rows_before_the_start_repeat_the_first_and_drop_outs_hold(example):
    policy = example.Policy(MADE / "diffusion", {}, "cpu")
    start = event(VALUES, valid=[[1, 0, 1], [1, 1, 1]], age_ns=[[0, -1, 0], [0, 0, 0]])
    observation = robocache.Observation.from_event(start)
    batch = policy.batch(observation)
    # Force began after the first row; the camera was there from the first row on.
    assert (batch["observation.state"][0, 0] == batch["observation.state"][0, 1]).all()
    assert (batch["observation.environment_state"][0].numpy() == VALUES[:, :128]).all()
    wanted = lerobot_diffusion.inputs(observation, **INPUTS)
    assert all(batch[key].numpy().tobytes() == values.tobytes() for key, values in wanted.items())
    assert policy.observe(event(VALUES, valid=[[1, 0, 1], [1, 1, 1]], age_ns=90 * MS))[1] is None
    assert policy.report()["refused: input invalid"] == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"names": ("camera", "torque", "proprio")}, "no modality 'force'"),
        ({"dims": (127, 7, 15)}, "observation.state is 22 values of .*, the policy takes 21"),
        ({"period": PERIOD + 1}, f"rows are {PERIOD + 1} ns apart, the policy was trained on {PERIOD}"),
        ({"values": VALUES[:1]}, "the window has 1 rows, the policy takes 2"),
    ],
)
def test_an_observation_of_another_kind_is_refused_by_name(example, changed, words):
    policy = example.Policy(MADE / "diffusion", {}, "cpu")
    with pytest.raises((robocache.MessageError, KeyError), match=words):
        policy.observe(event(**{"values": VALUES, **changed}))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([".", "--require", "force"], "is not NAME=MAX_AGE_MS"),
        (["."], "robocache.json"),
        ([str(MADE / "act"), "--require", "lidar=5"], "names .'lidar'"),
    ],
)
def test_a_policy_that_can_t_be_loaded_ends_the_node(arguments, words, tmp_path):
    command = [sys.executable, EXAMPLE / "policy.py", "--policy", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 2 and re.search(words, done.stderr), done.stderr


def test_what_decays_is_what_act_says():
    """The weights of rc.Chunks with decay exp(c) are those of ACT's ensembling with coefficient c."""
    chunks = robocache.Chunks(PERIOD, math.exp(0.5))
    chunks.add(0, np.zeros((2, 1), np.float32))
    assert chunks.add(PERIOD, np.ones((2, 1), np.float32))[0, 0] == pytest.approx(math.exp(-0.5) / (1 + math.exp(-0.5)))
