"""Tests of benches/compare.py, which compares figures of a GPU with targets."""

import json
import sys

from harness import ROOT

sys.path.insert(0, str(ROOT / "benches"))

import compare  # noqa: E402

BATCH, ROOM = "64x4096->1024x32 bfloat16", "room, 131072 points, 256x256x256, dense"
CAPTURED = "torch.compile + graph"


def row(config: str, backend: str, us: float, op: str = "resample", **more) -> dict:
    keys = {"op": op, "config": config, "backend": backend, "scope": "device"}
    figures = {"us_p50": us, "us_p99": us, "us_early_off": None, "us_alone": None, "sets": 8}
    return keys | figures | {"touched_bytes": 0, "gbps": 0.0, "of_copy": None} | more


def cells_of(lines: list[str]) -> dict[str, list[str]]:
    """The cells of each line of a table, by its first cell."""
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0]: cells[1:] for cells in split}


def target(rows: list[dict], what: str) -> list[str]:
    return cells_of(compare.target_table(compare.Figures(rows)))[what]


def test_a_target_is_a_share_of_a_captured_peer_and_says_whether_it_needs_early_start():
    peers = [row(BATCH, CAPTURED, 10.0, us_alone=20.0), row(BATCH, "torch.compile", 2.0), row(BATCH, "triton", 1.0)]

    def verdict(us: float, early_off: float) -> list[str]:
        ours = row(BATCH, "cuda", us, us_early_off=early_off, us_alone=9.0)
        return target([*peers, ours], f"resample {BATCH}")

    assert verdict(6.0, 6.4) == ["10 us", "", "6.4 us", "6 us", "6.5 us (0.65 x)", "met", "20 us", "9 us"]
    assert verdict(6.0, 7.0)[5] == "met with early start only"
    assert verdict(6.6, 7.0)[5] == "**missed**"


def test_the_fastest_way_to_write_a_peer_counts_and_is_named():
    ways = [row(ROOM, CAPTURED, 25.0, "voxelize"), row(ROOM, "torch.compile, kept + graph", 9.0, "voxelize")]
    ways += [row(ROOM, "torch.compile, kept", 5.0, "voxelize"), row(ROOM, "triton, kept + graph", 8.0, "voxelize")]
    cells = target([*ways, row(ROOM, "cuda", 7.0, "voxelize")], f"voxelize {ROOM}")
    assert cells[:2] == ["9 us (kept)", "8 us (kept)"]
    assert cells[4:6] == ["6.75 us (0.75 x)", "**missed**"]


def test_a_row_that_is_missing_is_named():
    assert target([row(BATCH, "cuda", 6.6)], f"resample {BATCH}")[0] == f"no row: resample, {BATCH}, {CAPTURED}"


def test_a_peer_that_is_not_installed_is_said_so():
    coo = "room, 131072 points, 256x256x256, coo"
    missing = {"op": "voxelize", "config": coo, "backend": "spconv", "missing": "not installed: No module named 'spconv'"}
    tables = compare.row_tables(compare.Figures([row(coo, "cupy", 2e3, "voxelize"), missing]))
    assert f"| voxelize {coo} |  |  |  |  | 2 ms | not installed |" in tables


def test_several_devices_and_auto_are_tables_of_their_own():
    rows = [row(BATCH, f"cuda x{count}", us) for count, us in [(1, 100.0), (2, 51.0), (4, 26.0)]]
    times = {"scope": "host", "compute_us_p50": 1.0}
    rows += [row("fuse", device, us, "dataflow", **times) for device, us in [("cpu", 10), ("cuda", 20), ("auto", 12)]]
    get = compare.Figures(rows)
    lines = cells_of(compare.more_tables(get))
    assert lines["dataflow fuse, `auto`, p50"] == ["at most 11 us (cpu 10 us, cuda 20 us)", "12 us", "**missed**"]
    assert lines[f"resample {BATCH}, inputs and outputs there"] == ["100 us", "51 us", "26 us"]
    assert lines[f"resample {BATCH}, 4 devices, inputs and outputs there"][1:] == ["3.85 x", "met"]
    assert not any("devices" in line for line in compare.row_tables(get))


def test_what_was_touched_stands_beside_the_number_of_sets():
    tables = compare.row_tables(compare.Figures([row(ROOM, "cuda", 7.0, "voxelize", touched_bytes=3_975_168, sets=68)]))
    assert cells_of(tables)[f"voxelize {ROOM}"][3] == "3.98 MB x 68"


def test_the_caption_says_whether_the_rows_are_of_one_run():
    def caption(*boots: str) -> str:
        keys = {"op": "machine", "config": "NVIDIA H200, torch 2", "date": "2026-11-22", "command": "make bench-gpu"}
        return compare.Figures([keys | {"boot": boot} for boot in boots]).caption()

    assert caption("a", "a") == "NVIDIA H200, torch 2; 2026-11-22, `make bench-gpu`; medians, all of one run."
    assert "of 2 starts of a machine, not of one run" in caption("a", "b")


def test_the_caption_says_how_far_the_sets_are_from_the_cache():
    machine = {"op": "machine", "config": "GPU", "date": "2026-11-22", "command": "make", "boot": "a", "l2_bytes": 60e6}
    rows = [row(ROOM, "cuda", 7.0, "voxelize", touched_bytes=4_000_000, sets=68)]
    # These two rows are not meant to exceed the cache, and do not count.
    rows += [row(f"{ROOM}, same grids", "cuda", 4.0, "voxelize", touched_bytes=4_000_000, sets=1)]
    rows += [row(BATCH, "torch eager", 300.0, touched_bytes=100_000, sets=256)]
    assert "touch at least 4.5 times the L2 cache" in compare.Figures([machine, *rows]).caption()


def test_rows_that_became_slower_are_named():
    before = compare.Figures([row(BATCH, "cuda", 10.0), row(ROOM, "cuda", 5.0, "voxelize"), row(BATCH, "triton", 1.0)])
    lines, is_as_fast = compare.changes(before, compare.Figures([row(BATCH, "cuda", 10.2)]))
    assert is_as_fast and lines[2:] == [f"| resample {BATCH} | 10 us | 10.2 us | +2.0 %  |"]
    lines, is_as_fast = compare.changes(before, compare.Figures([row(ROOM, "cuda", 5.2, "voxelize")]))
    assert not is_as_fast and lines[2:] == [f"| voxelize {ROOM} | 5 us | 5.2 us | +4.0 % **slower** |"]


def test_the_last_of_rows_with_the_same_keys_counts():
    assert compare.Figures([row(BATCH, "cuda", 9.0), row(BATCH, "cuda", 2.0)]).us("resample", BATCH) == 2.0


def test_the_rows_that_are_checked_in_have_all_that_targets_are_held_against():
    lines = (ROOT / "benches" / "h200.jsonl").read_text().splitlines()
    table = compare.target_table(compare.Figures([json.loads(line) for line in lines]))
    assert not [line for line in table if "no row" in line]
