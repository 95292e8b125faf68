"""How figures of a GPU are held against targets: benches/compare.py."""

import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "benches"))

import compare  # noqa: E402

SMALL, BATCH = "32x50->32x16 bfloat16", "64x4096->1024x32 bfloat16"


def row(config: str, backend: str, us: float, op: str = "resample", **more) -> dict:
    keys = {"op": op, "config": config, "backend": backend, "scope": "device"}
    return keys | {"us_p50": us, "us_p99": us, "bytes": 0, "gbps": 0.0, "of_copy": None} | more


def lines_of(rows: list[dict]) -> dict[str, str]:
    lines = compare.target_table(compare.Figures(rows))[2:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


def test_a_target_in_us_and_one_in_shares_of_a_peer():
    rows = [row(SMALL, "cuda", 2.2), row(BATCH, "cuda", 6.6), row(BATCH, "torch.compile + graph", 10.0)]
    lines = lines_of(rows)
    assert lines[f"resample {SMALL}"].endswith("| 2.2 us | 2.2 us | met |")
    assert lines[f"resample {BATCH}"].endswith("(0.65 x torch.compile + graph, 10 us) | 6.6 us | **missed** |")


def test_a_row_that_is_missing_is_named():
    line = lines_of([row(BATCH, "cuda", 6.6)])[f"resample {BATCH}"]
    assert "no row: resample, 64x4096->1024x32 bfloat16, torch.compile + graph, device" in line


def test_several_devices_and_auto_count_where_they_were_measured():
    rows = [row(BATCH, f"cuda x{count}", us) for count, us in [(1, 100.0), (2, 51.0), (4, 26.0)]]
    times = {"scope": "host", "compute_us_p50": 1.0}
    rows += [row("fuse", device, us, "dataflow", **times) for device, us in [("cpu", 10), ("cuda", 20), ("auto", 12)]]
    lines = lines_of(rows)
    assert lines[f"resample {BATCH}, 4 devices, inputs and outputs there"].endswith("| 3.85 x | met |")
    assert lines["dataflow fuse, `auto`, p50"].endswith("(cpu 10 us, cuda 20 us) | 12 us | **missed** |")
    assert any("| 100 us | 51 us | 26 us |" in line for line in compare.row_table(compare.Figures(rows)))


def test_on_one_device_nothing_is_said_of_several():
    header, rule, *rows = compare.row_table(compare.Figures([row(SMALL, "cuda", 2.0)]))
    assert rows[: rows.index("")] == [f"| resample {SMALL} | 2 us |{'  |' * (len(compare.COLUMNS) - 1)}"]


def test_the_last_of_rows_with_the_same_keys_counts():
    assert compare.Figures([row(SMALL, "cuda", 9.0), row(SMALL, "cuda", 2.0)]).us("resample", SMALL) == 2.0
