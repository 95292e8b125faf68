"""Writes arrays as a recording, which robocache-replay plays: a folder with one Arrow file for each stream."""

import pathlib

import numpy as np
import pyarrow as pa

# Number of samples in a message. Results do not depend on it, but a message for each sample takes ten times as long.
ROWS = 100


def write_samples(folder, name: str, stamps_ns: np.ndarray, values: np.ndarray) -> None:
    """Writes a stream of samples: stamps `[N]`, int64 ns, not decreasing, and values `[N, D]` of any float or integer type."""
    stamps_ns, values = np.asarray(stamps_ns), np.asarray(values)
    if stamps_ns.dtype != np.int64 or values.ndim != 2 or len(values) != len(stamps_ns):
        raise ValueError(f"{name}: stamps {stamps_ns.dtype} {stamps_ns.shape}, values {values.shape} (allowed: int64 [N], [N, D])")
    schema = pa.schema(
        {
            "timestamp_ns": pa.int64(),
            "timestamps_ns": pa.list_(pa.int64()),
            "shape": pa.list_(pa.int64()),
            "data": pa.list_(pa.from_numpy_dtype(values.dtype)),
        }
    )
    with writer(folder, name, schema) as file:
        for start in range(0, len(values), ROWS):
            stamps, rows = stamps_ns[start : start + ROWS], values[start : start + ROWS]
            file.write(pa.record_batch([stamps[-1:], one(stamps), one(np.array(rows.shape)), one(rows.ravel())], schema))


def write_clouds(folder, name: str, stamps_ns, clouds: list[dict[str, np.ndarray]]) -> None:
    """Writes a stream of point clouds: a stamp in ns for each, and its fields `[N]` by name (`x`, `y`, `z` and others)."""
    fields = {field: pa.list_(pa.from_numpy_dtype(values.dtype)) for field, values in clouds[0].items()}
    schema = pa.schema({"timestamp_ns": pa.int64(), **fields})
    with writer(folder, name, schema) as file:
        for stamp, cloud in zip(stamps_ns, clouds, strict=True):
            file.write(pa.record_batch([pa.array([int(stamp)]), *(one(cloud[field]) for field in fields)], schema))


def writer(folder, name: str, schema: pa.Schema) -> pa.ipc.RecordBatchFileWriter:
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return pa.ipc.new_file(str(folder / f"{name}.arrow"), schema)


def one(values: np.ndarray) -> pa.Array:
    """Makes a pyarrow List column with one row, the list of all `values`."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pa.array(values))
