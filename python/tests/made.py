"""Makes small messages by hand, in the form in which the nodes publish them, and URDFs."""

import numpy as np
import pyarrow as pa

MS = 1_000_000


def metadata(t_ms=100, valid=(1, 1, 1, 1), age_ms=(5, 1, 5, 1), epoch=0, **more) -> dict:
    """Makes the metadata of a window with two rows, 20 ms apart. Its modalities are `camera`, two columns, and
    `force`, one column."""
    return {
        "shape": [2, 3],
        "timestamp_ns": t_ms * MS,
        "timestamps_ns": [(t_ms - 20) * MS, t_ms * MS],
        "modalities": ["camera", "force"],
        "offsets": [0, 2, 3],
        "valid": list(valid),
        "age_ns": [round(a * MS) if a >= 0 else -1 for a in age_ms],
        "epoch": epoch,
        "late_samples": 3,
        "trigger": "grid",
        "wait_ns": 7,
        "device": "cpu",
        "compute_us": 12.0,
        **more,
    }


def fused(values=(1, 2, 3, 4, 5, 6), dtype=np.float32, **keywords) -> dict:
    """Makes an event of `fused` with `values`, and with the metadata that `metadata(**keywords)` makes."""
    return event(pa.array(np.array(values, dtype)), metadata(**keywords), "fused")


def event(value, metadata: dict, name: str = "input") -> dict:
    return {"type": "INPUT", "id": name, "value": value, "metadata": metadata}


GRID = {"origin_m": [0.0, 1.0, 2.0], "voxel_size_m": [0.5, 0.5, 1.0], "grid_shape": [2, 3, 4]}


def observation(columns: dict, t_ms=100, grids_ms=(), **more) -> dict:
    """Makes an event of `observation`. The attached grids have the times `grids_ms`: the older row has the first grid, the
    newest row the last."""
    count = len(grids_ms)
    said = {
        "attached": ["grids"],
        "grid_index": [0, count - 1] if count else [-1, -1],
        "grid_age_ns": [(t_ms - 20 - grids_ms[0]) * MS, (t_ms - grids_ms[-1]) * MS] if count else [-1, -1],
        "grids.timestamps_ns": [ms * MS for ms in grids_ms],
        **{f"grids.{key}": value for key, value in more.pop("said", {}).items()},
    }
    columns = {"fused": np.arange(1, 7, dtype=np.float32), **columns}
    lists = {name: pa.ListArray.from_arrays([0, len(column)], pa.array(column)) for name, column in columns.items()}
    row = pa.StructArray.from_arrays(list(lists.values()), names=list(lists))
    return event(row, metadata(t_ms, **said, **more), "observation")


LIMIT = '<limit lower="-3" upper="3"/>'


def robot(links, joints: str) -> str:
    """Makes the text of a URDF with the links `links`, and `joints`, the XML of its joints."""
    return "<robot name='test'>\n" + "".join(f"<link name='{link}'/>\n" for link in links) + joints + "</robot>"


def joint(name: str, kind: str, parent: str, child: str, inside: str) -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>\n'


def snake(links) -> str:
    """Makes the text of a URDF whose links are a chain, each 0.1 m after the last. The joints turn about x, y, z, x
    and so on."""
    axes = ["1 0 0", "0 1 0", "0 0 1"]
    inside = [f'<origin xyz="0.1 0.02 0"/><axis xyz="{axes[i % 3]}"/>{LIMIT}' for i in range(len(links) - 1)]
    pairs = zip(links, links[1:], strict=False)
    return robot(links, "".join(joint(f"joint{i}", "revolute", *pair, inside[i]) for i, pair in enumerate(pairs)))
