"""Converts published recordings of real sensors to the recording format that robocache-replay plays.

    python tests/convert.py comma2k19_drive_1min ../shared/data out/drive

Values stay as they are (rounded to float32); stamps become integer nanoseconds. The SOURCE.txt next to the source files
describes them.
"""

import argparse
import csv
import dataclasses
import json
import pathlib

import numpy as np
import pyarrow as pa

ROOT = pathlib.Path(__file__).parents[1]
# Recordings of real sensors are not part of the repository: they lie next to it, or next to the folder of a worktree.
PLACES = [ROOT.parent / "shared" / "data", ROOT.parent.parent / "shared" / "data"]
DATA = next((place for place in PLACES if place.is_dir()), None)


@dataclasses.dataclass
class Stream:
    """Samples of one sensor: stamps [N] in ns, values [N, D] in the order of recording."""

    stamps: np.ndarray
    values: np.ndarray
    # Number of samples in a message. A message with several carries `timestamps_ns`.
    batch: int = 1


@dataclasses.dataclass
class Clouds:
    """Sweeps of a lidar: the stamp of each in ns, and the fields of its points."""

    stamps: list[int]
    fields: list[dict[str, np.ndarray]]


def nanoseconds(values, unit_s: float) -> np.ndarray:
    """Converts stamps to int64 ns. Whole units are multiplied as integers: float64 does not resolve ns in the time since 1970."""
    values = np.asarray(values, np.float64)
    whole = np.floor(values)
    factor = round(1e9 * unit_s)
    return whole.astype(np.int64) * factor + np.rint((values - whole) * factor).astype(np.int64)


def lists(rows: list[np.ndarray], dtype=None) -> pa.Array:
    """A List column with one row for each array."""
    flat = np.concatenate(rows) if rows else np.empty(0)
    values = pa.array(flat if dtype is None else flat.astype(dtype))
    return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *map(len, rows)]), pa.int32()), values)


def write(folder: pathlib.Path, streams: dict[str, Stream | Clouds]) -> pathlib.Path:
    """Writes `<name>.arrow` for each stream."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, stream in streams.items():
        table = cloud_table(stream) if isinstance(stream, Clouds) else tensor_table(stream)
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table, max_chunksize=256)
    return folder


def tensor_table(stream: Stream) -> pa.Table:
    groups = [slice(i, i + stream.batch) for i in range(0, len(stream.stamps), stream.batch)]
    shape = lambda group: stream.values[group].shape if stream.batch > 1 else stream.values.shape[1:]  # noqa: E731
    columns = {
        "timestamp_ns": pa.array([int(stream.stamps[group].max()) for group in groups], pa.int64()),
        "data": lists([stream.values[group].ravel() for group in groups]),
        "shape": lists([np.array(shape(group)) for group in groups], np.int64),
    }
    if stream.batch > 1:
        columns["timestamps_ns"] = lists([stream.stamps[group] for group in groups])
    return pa.table(columns).replace_schema_metadata({"dtype": str(stream.values.dtype)})


def cloud_table(clouds: Clouds) -> pa.Table:
    columns = {"timestamp_ns": pa.array(clouds.stamps, pa.int64())}
    for field in clouds.fields[0]:
        columns[field] = lists([fields[field] for fields in clouds.fields])
    return pa.table(columns)


def arm_wrench_vision_screwdriving(folder: pathlib.Path) -> dict[str, Stream]:
    """An arm drives a screw: its wrench, irregular and with a stall, and a camera tracker that starts 659 ms earlier."""
    arm = np.loadtxt(folder / "sensor_data.csv", delimiter=",", skiprows=1)
    tracker = np.loadtxt(folder / "observation_data.csv", delimiter=",", skiprows=1)
    return {
        "wrench": Stream(nanoseconds(arm[:, 0], 1e-3), arm[:, 7:13].astype(np.float32)),
        "pose": Stream(nanoseconds(arm[:, 0], 1e-3), arm[:, 1:7].astype(np.float32)),
        "tracker": Stream(nanoseconds(tracker[:, 0], 1e-3), tracker[:, 1:].astype(np.float32)),
    }


def comma2k19_drive_1min(folder: pathlib.Path) -> dict[str, Stream]:
    """A car on a highway: IMU at 104 Hz, speed from the CAN bus with real jitter, pose at 20 Hz."""

    def stream(time: str, *values: str, batch: int = 1) -> Stream:
        columns = [np.load(folder / f"{name}.npy") for name in values]
        return Stream(nanoseconds(np.load(folder / f"{time}.npy"), 1.0), np.hstack(columns).astype(np.float32), batch)

    return {
        "imu": stream("IMU_gyro_t", "IMU_gyro_value", "IMU_accelerometer_value"),
        "speed": stream("CAN_speed_t", "CAN_speed_value"),
        "pose": stream("global_pose_frame_times", "global_pose_frame_velocities", "global_pose_frame_orientations"),
    }


def broad_imu_mocap_40s(folder: pathlib.Path) -> dict[str, Stream]:
    """A hand-held IMU at 285.7 Hz, sent ten samples a message, and its motion capture."""
    table = np.loadtxt(folder / "broad_07_fast_rotation_B_40s.csv", delimiter=",", skiprows=1)
    stamps = nanoseconds(table[:, 0], 1.0)
    return {
        "imu": Stream(stamps, table[:, 1:10].astype(np.float32), batch=10),
        "mocap": Stream(stamps, table[:, 10:17].astype(np.float32)),
    }


def ouster_os1_128_3scans(folder: pathlib.Path) -> dict[str, Stream | Clouds]:
    """Three sweeps of a lidar with 128 beams on a car, and the IMU in it, on one clock."""
    layout = [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("t_ns", "<u4"), ("col", "<u2"), ("ring", "u1"), ("intensity", "u1")]
    stamps, fields = [], []
    for scan in json.loads((folder / "scans.json").read_text())["scans"]:
        points = np.fromfile(folder / scan["file"], np.dtype(layout))
        stamps.append(scan["t0_ns"])
        fields.append({name: np.ascontiguousarray(points[name]) for name in ("x", "y", "z", "intensity", "ring", "t_ns")})
    with (folder / "imu.csv").open() as file:
        rows = [[*map(float, row)] for row in list(csv.reader(file))[1:]]
    # A stamp of 1e12 ns is exact in float64.
    imu = np.array(rows)
    return {
        "lidar": Clouds(stamps, fields),
        "imu": Stream(imu[:, 0].astype(np.int64), imu[:, 3:9].astype(np.float32)),
    }


def velodyne_vlp16_4scans(folder: pathlib.Path) -> dict[str, Clouds]:
    """Four indoor sweeps of a lidar with 16 beams. A stamp is the time of the first point by the host's clock: the stamp of the
    last packet plus the first point's offset from it."""
    floats = [(name, "<f4") for name in ("x", "y", "z", "intensity", "t_s")]
    layout = [*floats, ("col", "<u2"), ("ring", "u1"), ("return", "u1")]
    with (folder / "packets.csv").open() as file:
        last_packet = {int(row["scan"]): int(row["host_stamp_ns"]) for row in csv.DictReader(file)}
    stamps, fields = [], []
    for scan, last in sorted(last_packet.items()):
        points = np.fromfile(folder / f"scan_{scan}.bin", np.dtype(layout))
        offsets = nanoseconds(points["t_s"], 1.0)
        stamps.append(last + int(offsets.min()))
        cloud = {name: np.ascontiguousarray(points[name]) for name in ("x", "y", "z", "intensity")}
        fields.append({**cloud, "ring": points["ring"].astype(np.uint16), "t_ns": (offsets - offsets.min()).astype(np.uint32)})
    return {"lidar": Clouds(stamps, fields)}


SOURCES = {
    function.__name__: function
    for function in (arm_wrench_vision_screwdriving, comma2k19_drive_1min, broad_imu_mocap_40s, ouster_os1_128_3scans, velodyne_vlp16_4scans)
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Converts a published recording into the recording format.")
    parser.add_argument("name", choices=SOURCES)
    parser.add_argument("data", type=pathlib.Path, help="the folder that has a folder of this name")
    parser.add_argument("out", type=pathlib.Path, help="the recording's folder")
    arguments = parser.parse_args()
    streams = SOURCES[arguments.name](arguments.data / arguments.name)
    write(arguments.out, streams)
    for name, stream in streams.items():
        print(f"{arguments.out / name}.arrow: {len(stream.stamps)} {'sweeps' if isinstance(stream, Clouds) else 'samples'}")


if __name__ == "__main__":
    main()
