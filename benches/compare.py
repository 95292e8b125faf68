"""Joins rows of robocache-bench and of `peers.py gpu` into tables and a plot, and holds them against the targets.

    python benches/compare.py ROWS.jsonl ... [--machine NAME] [--write]

Prints the targets with both figures of each. With --write the tables go between the markers `<!-- gpu -->` (targets)
and `<!-- gpu-rows -->` (all) of docs/performance.md and README.md, and the plot to docs/performance-gpu.svg. Rows that
are held against each other must be of one run on one machine. A row that came more than once counts as its last.
"""

import argparse
import json
import pathlib
import sys

from run import PAGES, ROOT, replace_between, time_text

PLOT = ROOT / "docs" / "performance-gpu.svg"
COMPILED = "torch.compile + graph"
ROOM, ROOM_BYTES = "room, 131072 points, 256x256x256", 131072 * 12
FUSED = "32x256 of 128+32+16 from 150/1000/5000 bfloat16"
VOXEL_BATCHES = [
    ("8 x 4096 {}points, 64x64x64", 5, 4),
    ("32 x 16384 {}points, 128x128x128", 58, 12),
    ("64 x 65536 {}points, 256x256x256", 530, 150),
]
# What is fast enough that four devices count as four
SCALING = 3.8
# `auto` may be slower than the better of the two by this much.
AUTO = 1.1


class Missing(Exception):
    pass


class Figures:
    def __init__(self, rows: list[dict]):
        self.rows = {(row["op"], row["config"], row["backend"], row["scope"]): row for row in rows}

    def row(self, op: str, config: str, backend: str = "cuda", scope: str = "device") -> dict:
        try:
            return self.rows[op, config, backend, scope]
        except KeyError:
            raise Missing(f"{op}, {config}, {backend}, {scope}") from None

    def us(self, *key: str) -> float:
        return self.row(*key)["us_p50"]

    def ceiling(self, config: str) -> float:
        for backend in ("cuda", "torch", "triton"):
            if ("ceiling", config, backend, "device") in self.rows:
                return self.us("ceiling", config, backend)
        raise Missing(f"ceiling, {config}")

    def first(self, op: str, config: str, keys: list[tuple[str, str]]) -> dict | None:
        """The row of the first of those backends and scopes that has one."""
        return next((self.rows[op, config, *key] for key in keys if (op, config, *key) in self.rows), None)

    def configs(self, op: str) -> list[str]:
        """What was measured on one device."""
        return list(dict.fromkeys(config for of, config, by, _ in self.rows if of == op and not is_shared(by)))


def at_most(bound: float, came: float, why: str) -> tuple[str, str, bool]:
    return f"{time_text(bound)} ({why})" if why else time_text(bound), time_text(came), came <= bound


def targets(get: Figures):
    """Each target of the comparison: what, and a function that gives at most, came, met."""
    lines = []

    def add(what, held):
        lines.append((what, held))

    def of_peer(op, config, share, peer=COMPILED, scope="device"):
        def held():
            other = get.us(op, config, peer)
            return at_most(share * other, get.us(op, config), f"{share} x {peer}, {time_text(other)}")

        return held

    def fixed(op, config, bound):
        return lambda: at_most(bound, get.us(op, config), "")

    def of_copy(config):
        def held():
            share = get.row("resample", config)["of_copy"]
            return "at least 75 % of the copy rate", f"{share:.0%}", share >= 0.75

        return held

    add("resample 32x50->32x16 bfloat16", fixed("resample", "32x50->32x16 bfloat16", 2.2))
    for config, share in [("64x4096->1024x32 bfloat16", 0.65), ("16x4096->1024x32 bfloat16", 0.6)]:
        add(f"resample {config}", of_peer("resample", config, share))
    for shape in ("256x512->256x256", "1024x512->512x128"):
        for dtype in ("bfloat16", "float32"):
            add(f"resample {shape} {dtype}", of_peer("resample", f"{shape} {dtype}", 1.0))
            add("", of_copy(f"{shape} {dtype}"))
    add(f"fuse {FUSED}", of_peer("fuse", FUSED, 0.33))

    def dense_against_memset():
        memset = get.ceiling("memset 256x256x256 float32")
        return at_most(0.6 * memset, get.us("voxelize", f"{ROOM}, dense"), f"0.6 x memset, {time_text(memset)}")

    add(f"voxelize {ROOM}, dense", dense_against_memset)
    add("", of_peer("voxelize", f"{ROOM}, dense", 0.2, "torch.compile"))
    add(f"voxelize {ROOM}, bits", fixed("voxelize", f"{ROOM}, bits", 8))
    add(f"voxelize {ROOM}, coo with count and mean", fixed("voxelize", f"{ROOM}, coo", 25))
    for config, dense, bits in [(c.format(of), *us) for of in ("", "uniform ") for c, *us in VOXEL_BATCHES]:
        add(f"voxelize {config}, dense", fixed("voxelize", f"{config}, dense", dense))
        add(f"voxelize {config}, bits", fixed("voxelize", f"{config}, bits", bits))

    def to_coo():
        row = get.row("voxelize", f"{ROOM}, coo", "cuda", "host")
        up, down = (get.ceiling(f"pinned copy {way}, {ROOM_BYTES} bytes") for way in WAYS)
        copies = up + down * (row["bytes"] - ROOM_BYTES) / ROOM_BYTES
        return at_most(copies + 60, row["us_p50"], f"pinned copies {time_text(copies)} + 60 us")

    def against_cpu():
        cpu = get.us("voxelize", f"{ROOM}, coo", "cpu", "host")
        return at_most(cpu, get.us("voxelize", f"{ROOM}, coo", "cuda", "host"), "the CPU backend")

    add(f"voxelize {ROOM}, coo, host to host", to_coo)
    add("", against_cpu)
    for config in get.configs("dataflow"):
        for percentile in ("us_p50", "us_p99"):

            def auto(config=config, percentile=percentile):
                cpu, cuda, came = (
                    get.row("dataflow", config, backend, "host")[percentile] for backend in ("cpu", "cuda", "auto")
                )
                return at_most(AUTO * min(cpu, cuda), came, f"cpu {time_text(cpu)}, cuda {time_text(cuda)}")

            add(f"dataflow {config}, `auto`, {percentile.removeprefix('us_')}", auto)
    for op, config, scope in shared(get):
        if op == "ceiling":
            continue

        def scaling(op=op, config=config, scope=scope):
            one, four = (get.us(op, config, f"cuda x{count}", scope) for count in (1, 4))
            bound = f"{SCALING} x one device"
            if scope == "host":
                copies = [get.us("ceiling", SHARED_COPIES, f"cuda x{count}", scope) for count in (1, 4)]
                bound += f"; copies alone: {copies[0] / copies[1]:.2f} x"
            return bound, f"{one / four:.2f} x", one / four >= SCALING

        add(f"{op} {config}, 4 devices, {SCOPES[scope]}", scaling)
    return lines


def shared(get: Figures) -> list[tuple[str, str, str]]:
    """What was measured on several devices, ceilings last."""
    rows = [(op, config, scope) for op, config, backend, scope in get.rows if backend == "cuda x1"]
    return sorted(rows, key=lambda row: row[0] == "ceiling")


def is_shared(backend: str) -> bool:
    return backend.startswith("cuda x")


SCOPES = {"device": "inputs and outputs there", "host": "host to host"}
WAYS = ("host to device", "device to host")
SHARED_COPIES = "pinned copies in both directions at once, 134217728 bytes each"


def target_table(get: Figures) -> list[str]:
    lines = ["| what | at most | robocache | |", "|---|---|---|---|"]
    for what, held in targets(get):
        try:
            bound, came, met = held()
            lines.append(f"| {what} | {bound} | {came} | {'met' if met else '**missed**'} |")
        except Missing as missing:
            lines.append(f"| {what} | no row: {missing} | | |")
    return lines


# Columns of the table of all rows: title, backends of which the first that has a row counts, scope
COLUMNS = [
    ("robocache", ["cuda"], "device"),
    ("of copy", ["cuda"], "device"),
    ("torch.compile + graph", ["torch.compile + graph", "torch.compile, sort + graph"], "device"),
    ("torch.compile", ["torch.compile", "torch.compile, sort"], "device"),
    ("eager + graph", ["torch eager + graph", "torch eager, sort + graph"], "device"),
    ("eager", ["torch eager", "torch eager, sort"], "device"),
    ("Triton + graph", ["triton + graph"], "device"),
    ("CuPy", ["cupy"], "device"),
    ("host to host, cuda", ["cuda"], "host"),
    ("host to host, cpu", ["cpu"], "host"),
]


def row_table(get: Figures) -> list[str]:
    lines = [
        f"| | {' | '.join(title for title, *_ in COLUMNS)} |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for op in ("resample", "fuse", "voxelize"):
        for config in get.configs(op):
            cells = []
            for title, backends, scope in COLUMNS:
                row = get.first(op, config, [(backend, scope) for backend in backends])
                if row is None:
                    cells.append("")
                elif title == "of copy":
                    cells.append(f"{row['of_copy']:.0%}" if row["of_copy"] else "")
                else:
                    cells.append(time_text(row["us_p50"]))
            lines.append(f"| {op} {config} | {' | '.join(cells)} |")
    if shared(get):
        lines += ["", "| shared among devices | 1 | 2 | 4 |", "|---|---|---|---|"]
    for op, config, scope in shared(get):
        counts = [get.rows.get((op, config, f"cuda x{count}", scope)) for count in (1, 2, 4)]
        times = [time_text(row["us_p50"]) if row else "" for row in counts]
        lines.append(f"| {op} {config}, {SCOPES[scope]} | {' | '.join(times)} |")
    dataflows = [key for key in get.rows if key[0] == "dataflow"]
    if dataflows:
        lines += ["", "| dataflow | `device:` | p50 | p99 | of which compute, p50 |", "|---|---|---|---|---|"]
    for key in dataflows:
        row = get.rows[key]
        times = [time_text(row[name]) for name in ("us_p50", "us_p99", "compute_us_p50")]
        lines.append(f"| {key[1]} | {key[2]} | {' | '.join(times)} |")
    lines += ["", "| ceiling | p50 | p99 | GB/s |", "|---|---|---|---|"]
    for (op, config, backend, _), row in get.rows.items():
        is_measured_twice = backend != "cuda" and ("ceiling", config, "cuda", "device") in get.rows
        if op == "ceiling" and not is_measured_twice and not is_shared(backend):
            rate = f"{row['gbps']:.0f}" if row["bytes"] else ""
            lines.append(f"| {config} | {time_text(row['us_p50'])} | {time_text(row['us_p99'])} | {rate} |")
    return lines


def plot(get: Figures, caption: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    # The same figures give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "robocache", "font.size": 9, "font.family": "DejaVu Sans"})
    import matplotlib.pyplot as plt

    series = [
        ("robocache", [("cuda", "device")], "#1f6f8b"),
        ("torch.compile, CUDA graph", [(COMPILED, "device"), ("torch.compile, sort + graph", "device")], "#e07b39"),
        ("torch.compile", [("torch.compile", "device"), ("torch.compile, sort", "device")], "#8a94a0"),
        ("PyTorch eager", [("torch eager", "device"), ("torch eager, sort", "device")], "#c9ced4"),
    ]
    shown = [
        (op, config)
        for op in ("resample", "fuse", "voxelize")
        for config in get.configs(op)
        if not config.endswith("in L2") and all(get.first(op, config, keys) for _, keys, _ in series[:2])
    ]
    if not shown:
        sys.exit("no row of robocache on a device has a peer's beside it: nothing to plot")
    # Points, not bars: a logarithmic axis has no zero for a bar to begin at.
    figure, axis = plt.subplots(figsize=(8.2, 1.4 + 0.27 * len(shown)), layout="constrained")
    for name, keys, colour in reversed(series):
        rows = [get.first(op, config, keys) for op, config in shown]
        places = [(row["us_p50"], at) for at, row in enumerate(rows) if row]
        axis.scatter(*zip(*places), s=42, color=colour, label=name, zorder=3)
        if name == "robocache":
            for us, at in places:
                text = f"{us:.3g}" if us < 1000 else f"{us:,.0f}"
                axis.annotate(text, (us, at), (-6, 0), textcoords="offset points", va="center", ha="right", fontsize=8)
    axis.set_yticks(range(len(shown)), [f"{op} {config}" for op, config in shown])
    axis.invert_yaxis()
    axis.margins(y=0.03)
    axis.set_xscale("log")
    axis.set_xlim(left=axis.get_xlim()[0] / 2)
    axis.grid(color="#e6e6e6", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.xaxis.set_major_formatter(lambda us, _: f"{us:,g} us")
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=4, frameon=False)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axis.tick_params(length=0)
    axis.tick_params(which="minor", length=0)
    figure.supxlabel(caption, fontsize=8, color="#555555")
    figure.savefig(PLOT, facecolor="white", metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=pathlib.Path, metavar="ROWS.jsonl")
    parser.add_argument("--machine", default="", help="what the caption calls it")
    parser.add_argument("--note", default="", help="what else stands under the tables: which rows are of which run")
    parser.add_argument("--write", action="store_true", help="write the tables and the plot")
    arguments = parser.parse_args()
    lines = [line for file in arguments.rows for line in file.read_text().splitlines() if line.startswith("{")]
    get = Figures([json.loads(line) for line in lines])
    table = target_table(get)
    print("\n".join(table))
    if arguments.write:
        caption = f"{arguments.machine}, medians."
        note = f"{caption} {arguments.note}".strip()
        for page in PAGES:
            replace_between(page, "gpu", [*table, "", note])
            replace_between(page, "gpu-rows", [*row_table(get), "", note])
        plot(get, caption)
    else:
        print("\n".join(["", *row_table(get)]))


if __name__ == "__main__":
    main()
