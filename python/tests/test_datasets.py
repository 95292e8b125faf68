"""Tests of the items of a dataset: with attached streams, and as the input of a policy in place of an observation."""

import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest

import robocache as rc
from robocache.presets import act, dp3

MS = 1_000_000
CONFIG = {
    "rate_hz": 50,
    "window": 3,
    "modalities": [{"input": "arm", "dim": 2, "interpolation": "previous", "max_age_ms": 30}],
    "attach": [
        {"input": "camera", "output": "top", "max_age_ms": 100},
        {"input": "cloud", "output": "points", "wait": False},
        {"input": "voxels", "wait": False},
    ],
}
ARM = np.r_[0:400:20, 600:1000:20] * MS
CAMERA = np.arange(0, 1000, 33) * MS
# Observations do not wait for these streams: a message with the time of a target comes too late for it.
CLOUD, VOXELS = np.arange(5, 1000, 100) * MS, np.arange(7, 960, 120) * MS


def write(folder, name: str, stamps: np.ndarray, columns: dict, metadata: str = "") -> None:
    """Writes a stream of a recording as docs/formats.md describes it, without robocache."""
    schema = {"metadata": metadata} if metadata else {}
    table = pa.table({"timestamp_ns": pa.array(stamps), **columns}).replace_schema_metadata(schema)
    with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def lists(rows: list, kind=None) -> pa.Array:
    return pa.array([list(row) for row in rows], pa.list_(kind) if kind else None)


@pytest.fixture
def recording(tmp_path) -> rc.Recording:
    rng = np.random.default_rng(1)
    arm = np.arange(2 * len(ARM), dtype=np.float32).reshape(-1, 2)
    write(tmp_path, "arm", ARM, {"data": lists(arm, pa.float32())})
    images = [np.full((4, 5, 3), i, np.uint8) for i in range(len(CAMERA))]
    shape = lists([[4, 5, 3]] * len(images), pa.int64())
    write(tmp_path, "camera", CAMERA, {"data": lists([image.ravel() for image in images], pa.uint8()), "shape": shape})
    clouds = [rng.normal(size=(3, 3 + i)).astype(np.float32) for i in range(10)]
    axes = {axis: lists([cloud[k] for cloud in clouds], pa.float32()) for k, axis in enumerate("xyz")}
    write(tmp_path, "cloud", CLOUD, axes)
    bits = [np.array([1 << i, 0, 0], np.uint8) for i in range(8)]
    said = '{"grid_shape": [2, 3, 4], "origin_m": [0.0, 1.0, 2.0], "voxel_size_m": [0.5, 0.5, 1.0], "channels": ["occupancy"], "dtype": "uint8"}'
    columns = {"data": lists(bits, pa.uint8()), "shape": lists([[2, 3, 4]] * 8, pa.int64())}
    write(tmp_path, "voxels", VOXELS, columns, said)
    return rc.Recording(tmp_path)


def test_an_item_has_what_is_attached_as_an_observation_has_it(recording):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = rc.RecordingDataset(recording, CONFIG)
    assert len(dataset) > 40
    for i in range(len(dataset)):
        item = dataset[i]
        assert set(item["attached"]) == {"top", "points", "grids"}
        for name, stamps, most_ms in (("top", CAMERA, 100), ("points", CLOUD, None), ("grids", VOXELS, None)):
            stream = item["attached"][name]
            for row, target in enumerate(item["timestamps_ns"]):
                newest = int(np.searchsorted(stamps, target, "right")) - 1
                age = target - stamps[newest]
                if newest < 0 or (most_ms is not None and age > most_ms * MS):
                    assert stream.at(row) is None and stream.age_ns[row] == -1
                    continue
                assert stream.age_ns[row] == age and stream.timestamps_ns[stream.index[row]] == stamps[newest]
                match name:
                    case "top":
                        assert np.array_equal(stream.at(row), np.full((4, 5, 3), newest, np.uint8))
                    case "points":
                        assert isinstance(stream.at(row), rc.Cloud) and len(stream.at(row)) == 3 + newest
                        assert stream.at(row)["x"].tolist() == recording.messages("cloud")[newest].columns["x"].tolist()
                    case "grids":
                        grid = stream.at(row)
                        assert grid.grid_shape == (2, 3, 4) and grid.origin_m == (0.0, 1.0, 2.0)
                        assert np.flatnonzero(grid.dense().ravel()).tolist() == [newest]
    several = dataset[[3, 5]]
    assert several["fused"].shape == (2, 3, 2) and len(several["attached"]) == 2
    assert several["attached"][1]["top"].index.tolist() == dataset[5]["attached"]["top"].index.tolist()
    again = pickle.loads(pickle.dumps(dataset))[7]
    assert again["attached"]["top"].at(-1).tolist() == dataset[7]["attached"]["top"].at(-1).tolist()


def test_what_was_not_recorded_is_left_out_with_a_warning(recording):
    config = CONFIG | {"attach": [*CONFIG["attach"], {"input": "depth", "output": "depth"}]}
    with pytest.warns(UserWarning, match="config: fuse: attach: `depth` left out: the stream is missing"):
        dataset = rc.RecordingDataset(recording, config)
    assert set(dataset[5]["attached"]) == {"top", "points", "grids"}
    renamed = CONFIG | {"attach": [{"input": "depth", "output": "depth"}]}
    dataset = rc.RecordingDataset(recording, renamed, streams={"depth": "camera"})
    assert dataset[5]["attached"]["depth"].at(-1).shape == (4, 5, 3)
    assert "attached" not in rc.RecordingDataset(recording, CONFIG | {"attach": []})[5]


def live(item) -> rc.Observation:
    """Makes the observation that fuse would publish live for an item of a dataset, with the `fill_value` 0."""
    top = item["attached"]["top"]
    fused = np.nan_to_num(item["fused"], nan=0.0)
    columns = {"fused": fused.ravel(), "top": top.columns[""]}
    metadata = {
        "shape": list(fused.shape),
        "modalities": ["arm"],
        "offsets": [0, 2],
        "valid": item["valid"].astype(int).ravel().tolist(),
        "age_ns": item["age_ns"].ravel().tolist(),
        "timestamps_ns": item["timestamps_ns"].tolist(),
        "epoch": item["epoch"],
        "late_samples": 0,
        "attached": ["top"],
        "grid_index": top.index.tolist(),
        "grid_age_ns": top.age_ns.tolist(),
        "top.timestamps_ns": top.timestamps_ns.tolist(),
        "top.shape": [len(top.timestamps_ns), 4, 5, 3],
    }
    return rc.Observation.from_message(columns, metadata)


def test_a_preset_gets_the_same_of_an_item_as_of_an_observation(recording):
    dataset, refused = rc.RecordingDataset(recording, CONFIG), 0
    for i in range(len(dataset)):
        item = dataset[i]
        for rule in ({}, {"on_invalid": "hold"}, {"on_invalid": "fill", "fill": -1.0}):
            given = []
            for observation in (item, live(item)):
                try:
                    made = act.inputs(observation, state=["arm"], images={"top": "top"}, **rule)
                    given.append({key: values.tobytes() for key, values in made.items()})
                except rc.presets.InvalidObservation as error:
                    given.append(str(error))
                    refused += 1
            assert given[0] == given[1]
    assert 0 < refused < 3 * len(dataset)
    assert np.isnan(item["fused"]).sum() == 0 and np.isnan(dataset[25]["fused"]).any()
    with pytest.raises(ValueError, match="there are 2 observations"):
        act.inputs(dataset[[1, 2]], state=["arm"])
    points = dp3.inputs(dataset[4], agent_pos=["arm"], cloud="points", points=3)
    assert points["point_cloud"].shape == (1, 2, 3, 3)


def test_an_item_without_attached_streams_is_collated(recording):
    torch = pytest.importorskip("torch")
    dataset = rc.RecordingDataset(recording, CONFIG | {"attach": []})
    batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
    assert batch["fused"].shape == (4, 3, 2) and batch["epoch"].shape == (4,)
