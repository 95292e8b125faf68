"""Measures every figure that the documentation quotes, and writes the figures there: `make bench`.

    python benches/run.py [--only PART ...] [--runs N] [--write] [--voxels | --modes]

PART is resample, fuse, voxelize, modes, dataflows or peers; figures of the other parts are kept from the last run. Writes
out/bench.jsonl (every row), docs/performance.svg, and the tables between the markers `<!-- bench -->` (targets),
`<!-- bench-modes -->` and `<!-- bench-rows -->` (all) of docs/performance.md, and `<!-- whole-path -->` of README.md. It takes
about seven minutes on two cores, without the build; nothing else should run meanwhile.

With --voxels only clouds are measured, by robocache and the peers, and their targets are printed: two minutes, and nothing
is written. With --modes only the modes of interpolation are measured: a minute, and their table is written.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).parents[1]
OUT = ROOT / "out" / "bench"
ROWS = ROOT / "out" / "bench.jsonl"
PLOT = ROOT / "docs" / "performance.svg"
PERFORMANCE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
PEERS = ROOT / "out" / "peers"
PARTS = ["resample", "fuse", "voxelize", "modes", "peers", "dataflows"]
BENCHES = ["resample", "fuse", "voxelize"]

# For each path: the sink's input, the source's output that causes it, and the size of its messages if the input has two sizes
OBSERVATION_BYTES, WRENCH_BYTES = 16 * 149 * 4, 6 * 4
DATAFLOWS = {
    "fuse": {
        "fused": ("fused", "force", OBSERVATION_BYTES),
        "relay of as many bytes": ("relayed", "probe", OBSERVATION_BYTES),
        "relay of the wrench": ("relayed", "probe", WRENCH_BYTES),
    },
    "voxelize": {"voxels": ("voxels", "cloud", None), "relay of the cloud": ("relayed", "probe", None)},
    "dense": {"in place": ("voxels", "cloud", None), "dense 256^3, send_output": ("copied", "probe", None)},
}
WARM_UP_SHARE = 0.08


def build() -> dict[str, str]:
    """Builds the nodes and the benchmarks. Returns the executable of each benchmark by name."""
    # One command builds everything, so that dora is built once; see the note in the Makefile.
    command = ["cargo", "build", "--release", "--workspace", "--bins", "--examples", "--locked"]
    command += [argument for bench in BENCHES for argument in ("--bench", bench)]
    command += ["--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {
        message["target"]["name"]: message["executable"]
        for message in messages
        if message.get("reason") == "compiler-artifact" and message["target"]["kind"] == ["bench"]
    }


def peers_python() -> pathlib.Path:
    """Makes an environment for the peers only, since spconv does not work with a recent NumPy. Returns its Python."""
    requirements = ROOT / "benches" / "requirements-peers.txt"
    stamp = PEERS / "requirements-peers.txt"
    python = PEERS / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        venv.create(PEERS, with_pip=True, clear=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements]
        subprocess.run([python, *install], check=True)
        stamp.write_text(requirements.read_text())
    return python


def rows_of(part: str, *command: str | pathlib.Path) -> list[dict]:
    print(f"{part}: {pathlib.Path(command[0]).name} {' '.join(map(str, command[1:]))}", file=sys.stderr)
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [{"part": part, **json.loads(line)} for line in done.stdout.splitlines() if line.startswith("{")]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


def read_csv(name: str) -> list[dict]:
    with (OUT / name).open(newline="") as file:
        return list(csv.DictReader(file))


def run_dataflow(name: str, file: str | None = None) -> dict[str, dict]:
    """Runs the dataflow `name`.yml, or its variant `file`. Returns the times from the source to the sink, for each path that
    messages take."""
    for log in ("source.csv", "sink.csv"):
        (OUT / log).unlink(missing_ok=True)
    dora = shutil.which("dora", path=f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = ROOT / "benches" / "dataflow"
    done = subprocess.run(
        [dora or "dora", "run", file or f"{name}.yml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    if done.returncode != 0 or not (OUT / "sink.csv").exists():
        sys.exit(f"dora run {file or name}: exit code {done.returncode}\n{done.stdout[-6000:]}")
    sent = {(row["output"], row["stamp_ns"]): int(row["sent_ns"]) for row in read_csv("source.csv")}
    arrived = read_csv("sink.csv")
    result = {}
    for path, (sink_input, cause, size) in DATAFLOWS[name].items():
        rows = [row for row in arrived if row["input"] == sink_input and size in (None, int(row["bytes"]))]
        rows = rows[int(len(rows) * WARM_UP_SHARE) :]
        took = [(int(row["arrived_ns"]) - sent[cause, row["stamp_ns"]]) / 1e3 for row in rows]
        compute = [float(row["compute_us"]) for row in rows]
        apart = [a - b for a, b in zip(took, compute, strict=True)]
        result[path] = {
            "messages": len(rows),
            "bytes": int(rows[0]["bytes"]),
            **{f"us_{key}": percentile(took, share) for key, share in (("p50", 0.5), ("p99", 0.99))},
            "compute_us_p50": percentile(compute, 0.5),
            "compute_us_p99": percentile(compute, 0.99),
            "transport_us_p50": percentile(apart, 0.5),
            "transport_us_p99": percentile(apart, 0.99),
        }
    return result


def dataflow_rows(runs: int) -> list[dict]:
    rows = []
    for name, paths in DATAFLOWS.items():
        results = []
        for run in range(runs):
            print(f"dataflows: {name}, run {run + 1} of {runs}", file=sys.stderr)
            results.append(run_dataflow(name))
        for path in paths:
            values = {
                key: round(statistics.median(result[path][key] for result in results), 1) for key in results[0][path]
            }
            rows.append({"part": "dataflows", "op": name, "config": path, "runs": runs, **values})
    return rows


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    return f"{model[1].strip() if model else 'unknown CPU'}, {cores} cores"


def write_clouds(benches: dict[str, str]) -> None:
    (OUT / "clouds").mkdir(parents=True, exist_ok=True)
    subprocess.run([benches["voxelize"], "--write-clouds", OUT / "clouds"], check=True)


def peer_voxels() -> list[dict]:
    return rows_of("peers", peers_python(), "benches/peers.py", "voxelize", OUT / "clouds")


def voxel_rows() -> list[dict]:
    """Measures sparse voxels of the room's clouds, by robocache and the peers."""
    benches = build()
    peers_python()
    write_clouds(benches)
    return rows_of("voxelize", benches["voxelize"], "room, ") + peer_voxels()


def mode_rows() -> list[dict]:
    """Measures every mode of interpolation on the CPU, by robocache and the peers."""
    tf2_like = OUT / "tf2_like"
    OUT.mkdir(parents=True, exist_ok=True)
    options = ["-std=c++17", "-O3", "-DNDEBUG", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *options, "-o", tf2_like, "benches/tf2_like.cpp"], cwd=ROOT, check=True)
    ours = rows_of("modes", ROOT / "target" / "release" / "robocache-bench", "modes")
    peers = rows_of("modes", sys.executable, "benches/peers.py", "modes", tf2_like)
    return [row for row in ours if row["backend"] == "cpu"] + peers


def measure(part: str, benches: dict[str, str], runs: int) -> list[dict]:
    match part:
        case "dataflows":
            return dataflow_rows(runs)
        case "peers":
            rows = rows_of(part, sys.executable, "benches/peers.py", "resample")
            return rows + peer_voxels()
        case "modes":
            return mode_rows()
    return rows_of(part, benches[part])


class Figures:
    def __init__(self, rows: list[dict]):
        self.rows = rows

    def __call__(self, part: str, op: str, config: str = "", peer: str = "") -> dict:
        """Returns the first row whose `config` and `peer` start with these texts."""
        for row in self.rows:
            if (row["part"], row["op"]) == (part, op) and row["config"].startswith(config):
                if row.get("peer", "").startswith(peer):
                    return row
        sys.exit(f"out/bench.jsonl has no row of {part}, {op}, {config!r}, {peer!r}: run without --only")

    def peers(self, op: str) -> list[dict]:
        return [row for row in self.rows if row["part"] == "peers" and row["op"] == op]


def time_text(us: float) -> str:
    if us >= 1000:
        return f"{us / 1000:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"
    return f"{us:.3g} us" if us < 100 else f"{us:.0f} us"


# The peers' fastest ways to occupancy and count, by their names in benches/peers.py
SPARSE_PEERS = [
    "PointToVoxel: points, count",
    "PointToVoxel: points, count, then mean",
    "voxel_down_sample: mean",
    "unique, bincount: count, mean",
]

# Names of the peers in benches/mode_peers.py, and the shapes that they take
MODE_PEERS = ["NumPy", "SciPy", "C++ as in tf2"]
MODE_SHAPES = {
    "fuse": ("live, T = 16, 128+15+6 columns, float32, one observation, {}, between samples", "one observation, {}"),
    "resample": ("64x4096->1024x32 float32, {}", "64 trajectories, {}"),
}
MIXED = "angle + slerp + linear"
MODES = {"fuse": ["linear", MIXED, "cubic", "pchip"], "resample": ["linear", "angle", "slerp", "cubic", "pchip"]}

CLOUD = "room, 131072 points, 256x256x256"
BATCH = "64x4096->1024x32 float32"


def p50_p99(row: dict) -> tuple[str, str]:
    return time_text(row["us_p50"]), time_text(row["us_p99"])


def voxel_targets(get: Figures) -> list[tuple[str, str, str, str, str, bool]]:
    """Returns the part of `targets` that is for sparse voxels."""
    cloud = get("voxelize", "voxelize", f"{CLOUD}, coo")
    peers = {row["peer"].partition(" ")[2].partition(" ")[2]: row for row in get.peers("voxelize")}
    what = "131,072 points to sparse voxels: occupancy, count, mean"
    lines = [(what, *p50_p99(cloud), "", "target: at most 1.2 ms", cloud["us_p50"] <= 1200)]
    for name in SPARSE_PEERS:
        row = peers[name]
        factor = row["us_p50"] / cloud["us_p50"]
        other = f"{time_text(row['us_p50'])} ({row['peer']})"
        lines.append(("", "", "", other, f"{factor:.1f} times faster; target 3", factor >= 3))
    return lines


def targets(get: Figures) -> list[tuple[str, str, str, str, str, bool]]:
    """Returns a row for each target: its name, robocache's p50 and p99, the peer, the factor, and True if the target is met."""
    batch, interp = get("resample", "resample", BATCH), get("peers", "resample", peer="NumPy", config=BATCH)
    observation = get("fuse", "fuse", "T = 16, 128 + 15 + 6 columns, float32, one")
    in_place, copied = get("dataflows", "dense", "in place"), get("dataflows", "dense", "dense 256")
    fuse, fuse_relay = get("dataflows", "fuse", "fused"), get("dataflows", "fuse", "relay of as many")
    voxels, voxels_relay = get("dataflows", "voxelize", "voxels"), get("dataflows", "voxelize", "relay")

    lines = []
    factor = interp["us_p50"] / batch["us_p50"]
    name = interp["peer"]
    lines.append(
        ("64 trajectories, 4,096 samples to 1,024 targets, 32 columns", *p50_p99(batch))
        + (f"{time_text(interp['us_p50'])} ({name})", f"{factor:.0f} times faster; target 20", factor >= 20)
    )
    in_dataflow = f"{time_text(fuse['compute_us_p50'])}, p99 {time_text(fuse['compute_us_p99'])} (itself in a dataflow)"
    lines.append(
        ("One fused observation, 16 x 149", *p50_p99(observation))
        + (in_dataflow, "target: under 20 us", max(observation["us_p50"], fuse["compute_us_p50"]) < 20)
    )
    lines += voxel_targets(get)
    factor = copied["us_p50"] / in_place["us_p50"]
    lines.append(
        ("Dense 256^3 grid (64 MiB), cloud sent to grid received", *p50_p99(in_place))
        + (f"{time_text(copied['us_p50'])} (`send_output`)", f"{factor:.1f} times faster", factor > 1)
    )
    added = fuse["us_p50"] - fuse_relay["us_p50"]
    added_p99 = fuse["us_p99"] - fuse_relay["us_p99"]
    lines.append(
        ("Fuse in a dataflow, source to sink", *p50_p99(fuse))
        + (f"{time_text(fuse_relay['us_p50'])}, p99 {time_text(fuse_relay['us_p99'])} (relay)",)
        + (f"{added:+.0f} us at p50, {added_p99:+.0f} us at p99; target +100 us at p50", added <= 100)
    )
    added = voxels["transport_us_p50"] - voxels_relay["us_p50"]
    added_p99 = voxels["transport_us_p99"] - voxels_relay["us_p99"]
    compute = f"compute {time_text(voxels['compute_us_p50'])}"
    lines.append(
        ("Voxelize in a dataflow, 131,072 points, source to sink", *p50_p99(voxels))
        + (f"{time_text(voxels_relay['us_p50'])}, p99 {time_text(voxels_relay['us_p99'])} (relay)",)
        + (f"{compute} {added:+.0f} us at p50, {added_p99:+.0f} us at p99; target +300 us at p50", added <= 300)
    )
    return lines


def summary_table(lines_of_targets: list[tuple[str, str, str, str, str, bool]]) -> list[str]:
    lines = ["| | robocache p50 | p99 | against, p50 | | |", "|---|---|---|---|---|---|"]
    for what, p50, p99, other, verdict, met in lines_of_targets:
        lines.append(f"| {what} | {p50} | {p99} | {other} | {verdict} | {'met' if met else '**missed**'} |")
    return lines


def full_table(get: Figures) -> list[str]:
    lines = ["| operation | configuration | p50 | p99 |", "|---|---|---|---|"]
    for row in get.rows:
        config = row["config"]
        if "peer" in row:
            config = f"*{row['peer']}*; {config}"
        if row["part"] == "dataflows":
            messages = f"{row['messages']:.0f} messages, median of {row['runs']} runs"
            config = f"dataflow `{row['op']}.yml`, {config}, {row['bytes']:,} bytes, {messages}"
        lines.append(f"| {row['op']} | {config} | {time_text(row['us_p50'])} | {time_text(row['us_p99'])} |")
    return lines


def mode_table(rows: list[dict]) -> list[str]:
    """Makes the table of modes: the time of each mode, and the factor by which the peers are slower."""
    lines = [f"| | robocache p50 | p99 | {' | '.join(MODE_PEERS)} |", f"|---|---|---|{'---|' * len(MODE_PEERS)}"]
    for op, modes in MODES.items():
        for mode in modes:
            config, what = (text.format(mode) for text in MODE_SHAPES[op])
            of_mode = [row for row in rows if (row["op"], row["config"]) == (op, config)]
            (ours,) = (row for row in of_mode if "peer" not in row)
            cells = [*p50_p99(ours)]
            for peer in MODE_PEERS:
                us = [row["us_p50"] for row in of_mode if row.get("peer", "").startswith(peer)]
                cells.append(f"{time_text(us[0])}, {us[0] / ours['us_p50']:.3g} x" if us else "")
            lines.append(f"| {what} | {' | '.join(cells)} |")
    return lines


def replace_between(page: pathlib.Path, marker: str, lines: list[str]) -> None:
    """Replaces the lines of a page between `<!-- marker -->` and `<!-- /marker -->`, if the page has these marks."""
    text = page.read_text()
    pattern = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    body = "\n".join(lines)
    page.write_text(pattern.sub(lambda match: f"{match[1]}\n{body}\n\n{match[2]}", text))


def write_pages(get: Figures, when: str) -> None:
    caption = f"{machine()}, {when}, `make bench`."
    lines = targets(get)
    whole_path = [line for line in lines if line[0].endswith("source to sink")]
    replace_between(README, "whole-path", [*summary_table(whole_path), "", caption])
    replace_between(PERFORMANCE, "bench", [*summary_table(lines), "", caption])
    replace_between(PERFORMANCE, "bench-rows", [*full_table(get), "", caption])
    write_modes([row for row in get.rows if row["part"] == "modes"], when)


def write_modes(rows: list[dict], when: str) -> None:
    caption = f"{machine()}, {when}, `make bench-modes`."
    replace_between(PERFORMANCE, "bench-modes", [*mode_table(rows), "", caption])


def subplots(*args, **kwargs) -> tuple:
    """Makes a figure and its axes, set up so that equal figures give equal files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "robocache", "font.size": 9, "font.family": "DejaVu Sans"})
    from matplotlib import pyplot

    return pyplot.subplots(*args, layout="constrained", **kwargs)


def save(figure, path: pathlib.Path, caption: str) -> None:
    figure.supxlabel(caption, fontsize=8, color="#555555")
    figure.savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})


def plot(get: Figures, when: str) -> None:
    ours, others = "#1f6f8b", "#b9bec4"

    def colour(row: dict) -> str:
        return ours if row["config"] in PATH_NAMES else others

    batch, cloud = get("resample", "resample", BATCH), get("voxelize", "voxelize", f"{CLOUD}, coo")
    paths = [row for row in get.rows if row["part"] == "dataflows"]
    panels = [
        (
            "64 trajectories of 32 columns, 4,096 samples to 1,024 targets",
            [("robocache", batch, ours)] + [(short(row["peer"]), row, others) for row in get.peers("resample")],
        ),
        (
            "131,072 points to sparse voxels",
            [("robocache: occupancy, count, mean", cloud, ours)]
            + [(short(row["peer"]), row, others) for row in get.peers("voxelize")],
        ),
        (
            "Fuse in a dataflow, source to sink",
            [(PATH_NAMES.get(row["config"], row["config"]), row, colour(row)) for row in paths if row["op"] == "fuse"],
        ),
        (
            "131,072 points in a dataflow, source to sink",
            [(PATH_NAMES.get(row["config"], row["config"]), row, colour(row)) for row in paths if row["op"] != "fuse"],
        ),
    ]
    heights = [len(bars) + 1 for _, bars in panels]
    figure, axes = subplots(len(panels), 1, figsize=(8.2, 8.2), height_ratios=heights)
    for axis, (title, bars) in zip(axes, panels, strict=True):
        p50 = [row["us_p50"] / 1e3 for _, row, _ in bars]
        p99 = [row["us_p99"] / 1e3 for _, row, _ in bars]
        axis.barh([name for name, _, _ in bars], p50, color=[colour for _, _, colour in bars], height=0.66)
        axis.hlines(range(len(bars)), p50, p99, color="#555555", linewidth=1)
        for place, (value, end) in enumerate(zip(p50, p99, strict=True)):
            axis.annotate(f"{value:.3g}", (max(value, end), place), (4, 0), textcoords="offset points", va="center")
        axis.invert_yaxis()
        axis.set_title(f"{title}, ms", loc="left", fontsize=10)
        axis.set_xlim(0, max(p99) * 1.1)
        axis.grid(axis="x", color="#e6e6e6", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    save(figure, PLOT, f"Bar and number: p50; line: up to p99. {machine()}, {when}, `make bench`")


# Paths of the plot that go through robocache
PATH_NAMES = {
    "fused": "robocache: 16 x 149 observation",
    "voxels": "robocache: sparse voxels",
    "in place": "robocache: dense 256^3, in place",
}


def short(peer: str) -> str:
    return peer.replace("PointToVoxel: ", "").replace("voxel_down_sample: ", "")


def warn_of_load() -> None:
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"this machine's load is {load:.1f}: something else may run, and figures suffer", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--runs", type=int, default=3, help="runs of each dataflow, of which the median is taken")
    parser.add_argument("--write", action="store_true", help="measure nothing, write tables and plot of the last run")
    parser.add_argument("--voxels", action="store_true", help="measure clouds alone, print their targets, write nothing")
    parser.add_argument("--modes", action="store_true", help="measure the modes of interpolation alone, write their table")
    arguments = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    if arguments.voxels:
        print("\n".join(summary_table(voxel_targets(Figures(voxel_rows())))))
        return
    if arguments.modes:
        warn_of_load()
        build()
        rows = mode_rows()
        write_modes(rows, today)
        print("\n".join(mode_table(rows)))
        return
    kept = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    if arguments.write:
        rows = kept
    else:
        warn_of_load()
        benches = build()
        if "peers" in arguments.only:
            peers_python()
        write_clouds(benches)
        rows = [row for row in kept if row["part"] not in arguments.only]
        for part in arguments.only:
            rows += [{**row, "date": today, "machine": machine()} for row in measure(part, benches, arguments.runs)]
        rows.sort(key=lambda row: PARTS.index(row["part"]))
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    get = Figures(rows)
    when = max(row["date"] for row in rows)
    write_pages(get, when)
    plot(get, when)
    print("\n".join(summary_table(targets(get))))


if __name__ == "__main__":
    main()
