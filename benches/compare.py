"""Joins rows of robocache-bench and of `peers.py gpu` into tables and a plot, and compares them with the targets.

    python benches/compare.py ROWS.jsonl ... [--note TEXT] [--write]
    python benches/compare.py --before ROWS.jsonl ROWS.jsonl ...

Prints the tables. With --write they go between the markers of docs/performance.md, and the plot to
docs/performance-gpu.svg. The markers are `<!-- gpu -->` (targets), `<!-- gpu-bounds -->` (figures compared with the machine
itself), `<!-- gpu-rows -->` (all rows) and `<!-- gpu-more -->` (several devices, dataflows). A table without rows stays as it
is. Rows that are compared with each other must be from one run on one machine; the note under the tables says whether they
are. If a row occurs more than once, the last one counts.

With --before it prints robocache's rows beside the rows of an earlier state, and exits with 1 if a row became slower by more
than 3 %.
"""

import argparse
import json
import pathlib
import sys

from run import PERFORMANCE, ROOT, replace_between, save, subplots, time_text

PLOT = ROOT / "docs" / "performance-gpu.svg"
ROOM, ROOM_BYTES = "room, 131072 points, 256x256x256", 131072 * 12
FUSED = "32x256 of 128+32+16 from 150/1000/5000 bfloat16"
# Targets: the operation and configuration of a row, and the largest share of captured torch.compile's time that it may take.
TARGETS = [
    ("resample", "32x50->32x16 bfloat16", 0.5),
    ("resample", "64x4096->1024x32 bfloat16", 0.65),
    ("resample", "16x4096->1024x32 bfloat16", 0.6),
    ("resample", "256x512->256x256 bfloat16", 1.0),
    ("resample", "1024x512->512x128 bfloat16", 1.0),
    ("fuse", FUSED, 0.33),
    ("voxelize", f"{ROOM}, dense", 0.75),
    ("voxelize", f"{ROOM}, bits", 0.5),
    ("voxelize", f"{ROOM}, coo", 0.33),
    ("voxelize", "64 x 65536 points, 256x256x256, dense", 0.75),
    ("voxelize", "64 x 65536 points, 256x256x256, bits", 0.5),
    ("resample", "256x512->256x256 float32", 1.0),
    ("resample", "1024x512->512x128 float32", 1.0),
    ("voxelize", "8 x 4096 points, 64x64x64, dense", 0.75),
    ("voxelize", "8 x 4096 points, 64x64x64, bits", 0.5),
    ("voxelize", "32 x 16384 points, 128x128x128, dense", 0.75),
    ("voxelize", "32 x 16384 points, 128x128x128, bits", 0.5),
    ("voxelize", "8 x 4096 uniform points, 64x64x64, dense", 0.75),
    ("voxelize", "8 x 4096 uniform points, 64x64x64, bits", 0.5),
    ("voxelize", "32 x 16384 uniform points, 128x128x128, dense", 0.75),
    ("voxelize", "32 x 16384 uniform points, 128x128x128, bits", 0.5),
    ("voxelize", "64 x 65536 uniform points, 256x256x256, dense", 0.75),
    ("voxelize", "64 x 65536 uniform points, 256x256x256, bits", 0.5),
]
# Shapes so large that the memory's rate limits them, and the smallest share of the copy rate that they must reach
COPY_SHAPES, COPY_SHARE = ("256x512->256x256", "1024x512->512x128"), 0.75
# Largest allowed ratio of a row's time to its earlier time, since a smaller change may be noise
SLOWER = 1.03
# Smallest allowed speed of four devices, relative to one device
SCALING = 3.8
# Largest allowed ratio of the time with `device: auto` to the better time of the CPU and the GPU
AUTO = 1.1
SCOPES = {"device": "inputs and outputs there", "host": "host to host"}
WAYS = ("host to device", "device to host")
SHARED_COPIES = "pinned copies in both directions at once, 134217728 bytes each"


class Missing(Exception):
    pass


class Figures:
    def __init__(self, rows: list[dict]):
        measured = [row for row in rows if "us_p50" in row]
        self.rows = {(row["op"], row["config"], row["backend"], row["scope"]): row for row in measured}
        self.machines = [row for row in rows if row["op"] == "machine"]
        self.missing = {(row["op"], row["config"], row["backend"]): row["missing"] for row in rows if "missing" in row}

    def row(self, op: str, config: str, backend: str = "cuda", scope: str = "device") -> dict:
        try:
            return self.rows[op, config, backend, scope]
        except KeyError:
            raise Missing(f"{op}, {config}, {backend}, {scope}") from None

    def us(self, *key: str) -> float:
        return self.row(*key)["us_p50"]

    def peer(self, op: str, config: str, name: str, captured: bool) -> dict:
        """Returns the fastest row of a peer. A peer may have several variants, `NAME, WAY`; the backend of captured rows ends in
        `+ graph`. Raises Missing if there is no row."""
        end = " + graph" if captured else ""

        def is_of(backend):
            way = backend.removesuffix(end).removeprefix(name)
            return backend.startswith(name) and backend.endswith(end) and "+" not in way and way[:1] in ("", ",")

        ways = [row for key, row in self.rows.items() if key[:2] == (op, config) and is_of(key[2])]
        if not ways:
            raise Missing(f"{op}, {config}, {name}{end}")
        return min(ways, key=lambda row: row["us_p50"])

    def ceiling(self, config: str) -> float:
        for backend in ("cuda", "torch", "triton"):
            if ("ceiling", config, backend, "device") in self.rows:
                return self.us("ceiling", config, backend)
        raise Missing(f"ceiling, {config}")

    def configs(self, op: str) -> list[str]:
        """Returns the configurations of an operation that were measured on one device, in the order of the rows."""
        return list(dict.fromkeys(config for of, config, by, _ in self.rows if of == op and not is_shared(by)))

    def caption(self) -> str:
        """Makes the note under the tables: machine, date and commands, a warning if the rows are of several runs, and the ratio of
        touched bytes to the L2 cache. Empty without a row of a machine."""
        if not self.machines:
            return ""

        def all_of(key):
            return list(dict.fromkeys(row[key] for row in self.machines))

        commands = ", ".join(f"`{command}`" for command in all_of("command"))
        text = f"{'; '.join(all_of('config'))}; {', '.join(all_of('date'))}, {commands}; medians"
        boots = {row.get("boot") for row in self.machines}
        if len(boots) > 1:
            text += f", **of {len(boots)} starts of a machine, not of one run**"
        elif None not in boots:
            text += ", all of one run"
        cache = max(row.get("l2_bytes") or 0 for row in self.machines)
        touched = [row["touched_bytes"] * row["sets"] for key, row in self.rows.items() if is_rotated(*key)]
        if cache and touched:
            text += f". Captured calls touch at least {min(touched) / cache:.1f} times the L2 cache before a set comes again"
        return f"{text}."


def is_rotated(op: str, config: str, backend: str, scope: str) -> bool:
    """True if captured calls of such a row use so large a number of sets of inputs in turn that none stays in the cache."""
    is_captured = scope == "device" and (backend == "cuda" or backend.endswith("+ graph"))
    return is_captured and op != "ceiling" and not config.endswith(("in L2", "same grids"))


def way_of(row: dict) -> str:
    """Returns the variant in the backend of a peer's row, in brackets; empty if the peer has one variant only."""
    _, _, way = row["backend"].removesuffix(" + graph").partition(", ")
    return f" ({way})" if way else ""


def us_text(us: float | None) -> str:
    return "" if us is None else time_text(us)


def target_table(get: Figures) -> list[str]:
    """Makes the table of targets: times of robocache and its peers, captured and alone (waited for one by one), with verdicts."""
    lines = [
        "| | torch.compile, captured | Triton, captured | robocache, early start off | robocache | at most | | "
        "alone: torch.compile | alone: robocache |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for op, config, share in TARGETS:
        try:
            ours, other = get.row(op, config), get.peer(op, config, "torch.compile", captured=True)
        except Missing as missing:
            lines.append(f"| {op} {config} | no row: {missing} | | | | | | | |")
            continue
        try:
            triton = get.peer(op, config, "triton", captured=True)
            triton_text = time_text(triton["us_p50"]) + way_of(triton)
        except Missing:
            triton_text = ""
        bound, late = share * other["us_p50"], ours.get("us_early_off")
        if ours["us_p50"] > bound:
            verdict = "**missed**"
        else:
            verdict = "met" if late is None or late <= bound else "met with early start only"
        cells = [
            f"{op} {config}",
            time_text(other["us_p50"]) + way_of(other),
            triton_text,
            us_text(late),
            time_text(ours["us_p50"]),
            f"{time_text(bound)} ({share:g} x)",
            verdict,
            us_text(other.get("us_alone")),
            us_text(ours.get("us_alone")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def at_most(bound: float, actual: float, why: str) -> tuple[str, str, bool]:
    return f"at most {time_text(bound)} ({why})", time_text(actual), actual <= bound


def bounds(get: Figures):
    """Returns the figures that are compared with the machine itself. A figure is its name, and a function that returns the text
    of the bound, the text of the measured value, and True if the bound is met."""
    lines = []
    for shape in COPY_SHAPES:
        for dtype in ("bfloat16", "float32"):

            def of_copy(config=f"{shape} {dtype}"):
                share = get.row("resample", config)["of_copy"]
                return f"at least {COPY_SHARE:.0%} of the copy rate", f"{share:.0%}", share >= COPY_SHARE

            lines.append((f"resample {shape} {dtype}", of_copy))

    def to_coo():
        row = get.row("voxelize", f"{ROOM}, coo", "cuda", "host")
        up, down = (get.ceiling(f"pinned copy {way}, {ROOM_BYTES} bytes") for way in WAYS)
        copies = up + down * (row["touched_bytes"] - ROOM_BYTES) / ROOM_BYTES
        return at_most(copies + 60, row["us_p50"], f"pinned copies {time_text(copies)} + 60 us")

    def against_cpu():
        cpu = get.us("voxelize", f"{ROOM}, coo", "cpu", "host")
        return at_most(cpu, get.us("voxelize", f"{ROOM}, coo", "cuda", "host"), "the CPU backend")

    lines += [(f"voxelize {ROOM}, coo, host to host", to_coo), ("", against_cpu)]
    return lines


def more_bounds(get: Figures):
    """Returns the figures of several devices and of dataflows, as `bounds` does."""
    lines = []
    for config in get.configs("dataflow"):
        for percentile in ("us_p50", "us_p99"):

            def auto(config=config, percentile=percentile):
                cpu, cuda, actual = (
                    get.row("dataflow", config, backend, "host")[percentile] for backend in ("cpu", "cuda", "auto")
                )
                return at_most(AUTO * min(cpu, cuda), actual, f"cpu {time_text(cpu)}, cuda {time_text(cuda)}")

            lines.append((f"dataflow {config}, `auto`, {percentile.removeprefix('us_')}", auto))
    for op, config, scope in shared(get):
        if op == "ceiling":
            continue

        def scaling(op=op, config=config, scope=scope):
            one, four = (get.us(op, config, f"cuda x{count}", scope) for count in (1, 4))
            bound = f"at least {SCALING} x one device"
            if scope == "host":
                copies = [get.us("ceiling", SHARED_COPIES, f"cuda x{count}", scope) for count in (1, 4)]
                bound += f"; copies alone: {copies[0] / copies[1]:.2f} x"
            return bound, f"{one / four:.2f} x", one / four >= SCALING

        lines.append((f"{op} {config}, 4 devices, {SCOPES[scope]}", scaling))
    return lines


def bound_table(lines) -> list[str]:
    table = ["| | bound | robocache | |", "|---|---|---|---|"]
    for what, held in lines:
        try:
            bound, actual, met = held()
            table.append(f"| {what} | {bound} | {actual} | {'met' if met else '**missed**'} |")
        except Missing as missing:
            table.append(f"| {what} | no row: {missing} | | |")
    return table


def shared(get: Figures) -> list[tuple[str, str, str]]:
    """Returns the operation, configuration and scope of each row whose work several devices shared; rows of ceilings come last."""
    rows = [(op, config, scope) for op, config, backend, scope in get.rows if backend == "cuda x1"]
    return sorted(rows, key=lambda row: row[0] == "ceiling")


def is_shared(backend: str) -> bool:
    return backend.startswith("cuda x")


def touched_text(row: dict) -> str:
    return f"{row['touched_bytes'] / 1e6:.3g} MB x {row['sets']}" if row.get("sets") else ""


def of_copy_text(row: dict) -> str:
    return f"{row['of_copy']:.0%}" if row.get("of_copy") else ""


# Columns of the tables of all rows: the title, the key of a row, and a function that makes its text. The key is a backend and a
# scope, or a peer, whose fastest row is shown, and True for captured calls.
CAPTURED = [
    ("robocache", ("cuda", "device"), lambda row: time_text(row["us_p50"])),
    ("early start off", ("cuda", "device"), lambda row: us_text(row.get("us_early_off"))),
    ("alone", ("cuda", "device"), lambda row: us_text(row.get("us_alone"))),
    ("touched, sets", ("cuda", "device"), touched_text),
    ("of copy", ("cuda", "device"), of_copy_text),
    ("torch.compile", ("torch.compile", True), lambda row: time_text(row["us_p50"]) + way_of(row)),
    ("alone", ("torch.compile", True), lambda row: us_text(row.get("us_alone"))),
    ("eager", ("torch eager", True), lambda row: time_text(row["us_p50"]) + way_of(row)),
    ("Triton", ("triton", True), lambda row: time_text(row["us_p50"]) + way_of(row)),
    ("alone", ("triton", True), lambda row: us_text(row.get("us_alone"))),
]
ISSUED = [
    ("robocache, host to host", ("cuda", "host"), lambda row: time_text(row["us_p50"])),
    ("on the CPU", ("cpu", "host"), lambda row: time_text(row["us_p50"])),
    ("torch.compile", ("torch.compile", False), lambda row: time_text(row["us_p50"]) + way_of(row)),
    ("eager", ("torch eager", False), lambda row: time_text(row["us_p50"]) + way_of(row)),
    ("CuPy", ("cupy", False), lambda row: time_text(row["us_p50"])),
    ("spconv", ("spconv", False), lambda row: time_text(row["us_p50"]) + way_of(row)),
]


def table_of(get: Figures, columns) -> list[str]:
    lines = [f"| | {' | '.join(title for title, *_ in columns)} |", "|---|" + "---|" * len(columns)]
    for op in ("resample", "fuse", "voxelize"):
        for config in get.configs(op):
            cells = []
            for _, (backend, of), text in columns:
                try:
                    row = get.row(op, config, backend, of) if isinstance(of, str) else get.peer(op, config, backend, of)
                    cells.append(text(row))
                except Missing:
                    why = get.missing.get((op, config, backend), "")
                    cells.append("not installed" if why.startswith("not installed") else "")
            if any(cells):
                lines.append(f"| {op} {config} | {' | '.join(cells)} |")
    return lines


def row_tables(get: Figures) -> list[str]:
    lines = ["In a CUDA graph of many calls, or, in columns that say *alone*, of one that is waited for:", ""]
    lines += table_of(get, CAPTURED)
    lines += ["", "Issued call by call, which for the peers is the time of Python, and from messages to messages:", ""]
    lines += table_of(get, ISSUED)
    lines += ["", "| ceiling | p50 | p99 | GB/s |", "|---|---|---|---|"]
    for (op, config, backend, scope), row in get.rows.items():
        is_measured_twice = backend != "cuda" and ("ceiling", config, "cuda", scope) in get.rows
        if op == "ceiling" and not is_measured_twice and not is_shared(backend):
            rate = f"{row['gbps']:.0f}" if row["touched_bytes"] else ""
            lines.append(f"| {config} | {time_text(row['us_p50'])} | {time_text(row['us_p99'])} | {rate} |")
    return lines


def changes(before: Figures, after: Figures) -> tuple[list[str], bool]:
    """Makes the table of robocache's rows on the device before and after a change. Returns the table, and True if no row became
    slower than allowed."""
    lines, is_slower = ["| | before | after | |", "|---|---|---|---|"], False
    for key, was in before.rows.items():
        if key[2:] != ("cuda", "device") or key[0] == "ceiling" or key not in after.rows:
            continue
        now = after.rows[key]
        share = now["us_p50"] / was["us_p50"]
        is_slower |= share > SLOWER
        times = f"{time_text(was['us_p50'])} | {time_text(now['us_p50'])}"
        verdict = "**slower**" if share > SLOWER else ""
        lines.append(f"| {key[0]} {key[1]} | {times} | {(share - 1) * 100:+.1f} % {verdict} |")
    return lines, not is_slower


def more_tables(get: Figures) -> list[str]:
    """Makes the tables of several devices and of dataflows."""
    lines = bound_table(more_bounds(get))
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
    return lines


def plot(get: Figures, caption: str) -> None:
    series = [
        ("robocache", "cuda", "#1f6f8b"),
        ("torch.compile, captured", "torch.compile", "#e07b39"),
        ("Triton, captured", "triton", "#8a94a0"),
        ("PyTorch eager, captured", "torch eager", "#c9ced4"),
    ]

    def row_of(op, config, backend):
        try:
            return get.row(op, config) if backend == "cuda" else get.peer(op, config, backend, captured=True)
        except Missing:
            return None

    shown = [(op, config) for op, config, _ in TARGETS if all(row_of(op, config, by) for _, by, _ in series[:2])]
    shown.sort(key=lambda row: ["resample", "fuse", "voxelize"].index(row[0]))
    if not shown:
        sys.exit("no row of robocache on a device has a peer's beside it: nothing to plot")
    # Points, not bars: a logarithmic axis has no zero for a bar to begin at.
    figure, axis = subplots(figsize=(8.2, 1.4 + 0.27 * len(shown)))
    for name, backend, colour in reversed(series):
        rows = [row_of(op, config, backend) for op, config in shown]
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
    save(figure, PLOT, caption)


def read(files: list[pathlib.Path]) -> Figures:
    lines = [line for file in files for line in file.read_text().splitlines() if line.startswith("{")]
    return Figures([json.loads(line) for line in lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=pathlib.Path, metavar="ROWS.jsonl")
    parser.add_argument("--before", type=pathlib.Path, metavar="ROWS.jsonl", help="rows of an earlier state")
    parser.add_argument("--note", default="", help="text to add under the tables")
    parser.add_argument("--write", action="store_true", help="write the tables and the plot")
    arguments = parser.parse_args()
    get = read(arguments.rows)
    if arguments.before:
        lines, is_as_fast = changes(read([arguments.before]), get)
        print("\n".join(lines))
        sys.exit(0 if is_as_fast else 1)
    caption = get.caption()
    note = ["", f"{caption} {arguments.note}".strip()]
    has_rows = any(key[2:] == ("cuda", "device") for key in get.rows)
    has_more = bool(shared(get)) or bool(get.configs("dataflow"))
    if has_rows:
        print("\n".join([*target_table(get), "", *bound_table(bounds(get)), "", *row_tables(get), *note]))
    if has_more:
        print("\n".join(["", *more_tables(get), *note]))
    if arguments.write and has_rows:
        replace_between(PERFORMANCE, "gpu", [*target_table(get), *note])
        replace_between(PERFORMANCE, "gpu-bounds", [*bound_table(bounds(get)), *note])
        replace_between(PERFORMANCE, "gpu-rows", [*row_tables(get), *note])
        plot(get, caption)
    if arguments.write and has_more:
        replace_between(PERFORMANCE, "gpu-more", [*more_tables(get), *note])


if __name__ == "__main__":
    main()
