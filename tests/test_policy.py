"""The policy's rules on timelines that a reader can check by hand, and the network that make_model.py writes."""

import json

import numpy as np
import onnx
import pytest
from robocache import Gate, MessageError

import make_model
import policy as policy_node
from report import Report, percentiles, table

MS = 1_000_000
CONFIG = {
    "fuse": {
        "rate_hz": 50,
        "window": 2,
        "modalities": [{"input": "camera", "dim": 2}, {"input": "force", "dim": 1}],
    },
    "voxelize": {"channels": ["occupancy"], "shape": [8, 8, 4], "layout": "dense"},
}


def message(t_ms=100, valid=(1, 1, 1, 1), age_ms=(5, 1, 5, 1), epoch=0, values=(1, 2, 3, 4, 5, 6), grids_ms=(), shape=(1, 8, 8, 4)):
    """An observation whose older row has the first grid of `grids_ms`, and whose newest row has the last grid."""
    grids = len(grids_ms)
    metadata = {
        "shape": [2, 3],
        "timestamp_ns": t_ms * MS,
        "timestamps_ns": [(t_ms - 20) * MS, t_ms * MS],
        "modalities": ["camera", "force"],
        "offsets": [0, 2, 3],
        "valid": list(valid),
        "age_ns": [a * MS if a >= 0 else -1 for a in age_ms],
        "epoch": epoch,
        "late_samples": 3,
        "device": "cpu",
        "compute_us": 12,
        "attached": ["grids"],
        "grid_index": [0, grids - 1] if grids else [-1, -1],
        "grid_age_ns": [(t_ms - 20 - grids_ms[0]) * MS, (t_ms - grids_ms[-1]) * MS] if grids else [-1, -1],
        "grids.shape": [grids, *shape],
        "grids.channels": ["occupancy"],
        "grids.grid_shape": list(shape[1:]),
        "grids.origin_m": [0.0] * 3,
        "grids.voxel_size_m": [0.4] * 3,
        "grids.timestamps_ns": [ms * MS for ms in grids_ms],
    }
    stacked = [np.full(shape, ms / 100, np.float32).reshape(-1) for ms in grids_ms]
    return {"fused": np.array(values, np.float32), "grids": np.concatenate([np.empty(0, np.float32), *stacked])}, metadata


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "policy.onnx"
    onnx.save(make_model.build(CONFIG), path)
    return path


@pytest.fixture
def policy(model):
    return policy_node.Policy(model, Gate({"force": 20.0}))


def observe(policy, t_ms=100, **kwargs):
    columns, metadata = message(t_ms, **kwargs)
    return policy.observe(columns, metadata, t_ms * MS + 4 * MS)[1]


def test_the_policy_acts_refuses_and_counts(policy):
    assert observe(policy, 100).shape == (8, 8)
    assert observe(policy, 120, valid=(1, 1, 1, 0)) is None
    assert observe(policy, 200).shape == (8, 8)
    report = policy.report.as_dict()
    assert (report["observations"], report["actions"]) == (3, 2)
    assert report["refused"] == {"force invalid": 1}
    assert report["observations_missed"] == 3
    assert report["modalities"]["force"]["valid_share"] == pytest.approx(2 / 3, abs=1e-4)
    assert report["latency_ms"]["p50"] == pytest.approx(4.0)
    assert report["late_samples"] == 3


def test_a_new_epoch_forgets_the_old_clock(policy):
    observe(policy, 100)
    assert len(policy.chunks) == 1
    assert observe(policy, 5000, epoch=1) is None
    assert len(policy.chunks) == 0
    assert observe(policy, 5020, epoch=1) is not None
    report = policy.report.as_dict()
    assert (report["epoch"], report["epoch_changes"], report["refused"]) == (1, 1, {"epoch changed": 1})
    assert report["observations_missed"] == 0


def test_mask_and_voxels_reach_the_network(policy):
    with_grid_absent = observe(policy, 100)
    policy.chunks.clear()
    with_grid = observe(policy, 100, grids_ms=(90,))
    policy.chunks.clear()
    again_absent = observe(policy, 120)
    policy.chunks.clear()
    masked = observe(policy, 120, valid=(0, 1, 1, 1))
    assert not np.array_equal(with_grid, with_grid_absent)
    assert np.array_equal(again_absent, with_grid_absent)
    assert not np.array_equal(masked, again_absent)
    assert policy.report.as_dict()["voxels"]["actions_with_voxels"] == 1
    assert np.all(np.abs(with_grid) <= 1.0)


def test_an_action_that_is_no_number_is_not_sent(policy, monkeypatch):
    horizon = policy.observe(*message(grids_ms=(100,)), received_ns=101 * MS)[1].shape
    for poison in (np.nan, np.inf):
        answer = np.zeros((1, *horizon), np.float32)
        answer[0, 1, 2] = poison
        with monkeypatch.context() as patch:
            patch.setattr(policy, "session", type("Network", (), {"run": lambda *_: (answer,)})())
            assert policy.observe(*message(t_ms=120, grids_ms=(100,)), received_ns=121 * MS)[1] is None
    assert policy.report.refused == {"action not finite": 2}
    # The next actions are finite.
    assert np.isfinite(policy.observe(*message(t_ms=140, grids_ms=(100,)), received_ns=141 * MS)[1]).all()


def test_what_the_model_was_not_made_for_is_said(policy):
    with pytest.raises(MessageError, match=r"voxels is \[1, 8, 8, 8\].*\[1, 8, 8, 4\]"):
        observe(policy, grids_ms=(90,), shape=(1, 8, 8, 8))
    columns, metadata = message()
    metadata["modalities"] = ["force", "camera"]
    with pytest.raises(MessageError, match="modalities"):
        policy.observe(columns, metadata, 0)
    columns, metadata = message()
    metadata = {key.replace("grids.", "clouds."): value for key, value in metadata.items()} | {"attached": ["clouds"]}
    with pytest.raises(MessageError, match="expected 'grids' in it"):
        policy.observe(columns, metadata, 0)


def test_an_answer_without_an_observation_is_refused(policy):
    assert policy.observe({}, {"error": "it asks for 1 ns", "timestamp_ns": 1}, 0)[1] is None
    report = policy.report.as_dict()
    assert (report["observations"], report["refused"]) == (0, {"it asks for 1 ns": 1})


def test_a_requirement_that_the_model_does_not_know_stops_the_start(model):
    with pytest.raises(ValueError, match="tactile"):
        policy_node.Policy(model, Gate({"tactile": 1.0}))


def test_the_model_is_the_same_bytes_for_the_same_seed():
    first, again, other = (make_model.build(CONFIG, seed).SerializeToString() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_model_wants_a_dense_grid():
    config = {**CONFIG, "voxelize": {**CONFIG["voxelize"], "layout": "coo"}}
    with pytest.raises(ValueError, match="dense"):
        make_model.build(config)


def test_report_of_nothing_is_still_a_report():
    report = Report()
    assert json.loads(report.as_json())["observations"] == 0
    assert "observations" in report.as_table()


def test_report_figures(policy):
    for t_ms, grids_ms in ((100, (90,)), (120, (90,)), (140, (90, 130))):
        observe(policy, t_ms, grids_ms=grids_ms)
    report = json.loads(policy.report.as_json())
    assert report["rate_hz"] == 50.0
    assert (report["voxels"]["grids"], report["voxels"]["actions_with_voxels"]) == (2, 3)
    assert report["voxels"]["age_ms"]["p50"] == 10.0
    assert report["compute_us"] == {"p50": 12.0, "p99": 12.0}
    assert "3  (3 with voxels)" in table(report)


def test_percentiles_skip_what_is_not_a_number():
    assert percentiles([float("nan"), 2.0, 2.0]) == {"p50": 2.0, "p99": 2.0}
    assert percentiles([float("nan")]) is None
