"""Makes the table of Nsight Compute's figures in docs/performance.md: `ncu.py [--write] CSV ...`.

The CSVs come from `make profile-gpu`, by `ncu --csv --page raw` of `robocache-bench profile`. A kernel that was launched with
several grids has a row for each grid, with the median of its launches. If a row is in several files, the last file counts.

The floor of a row is the time in which the busiest unit would do the work of the kernel at its peak rate. The floor is at least
the time of a launch, taken from the shortest kernel of the table, which moves next to nothing.
"""

import argparse
import csv
import statistics

from run import PERFORMANCE, replace_between

# Columns by name, and the metric of Nsight Compute; percentages are of the peak rate while the kernel runs.
COLUMNS = {
    "us": "gpu__time_duration.sum",
    "DRAM %": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 %": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1 %": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "SM %": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy %": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}
# Columns of the units that can bound a kernel: the busiest unit does.
BOUNDS = ["DRAM %", "L2 %", "L1 %", "SM %"]
# Units of time, and how many are a microsecond.
UNITS = {"ns": 1e3, "us": 1.0, "ms": 1e-3}


def read(path: str) -> dict[tuple[str, str], list[list[float]]]:
    """Reads a CSV. Returns the figures of each launch, by kernel and grid, in the order of COLUMNS."""
    with open(path, newline="") as file:
        # Lines that ncu and the program print are between the lines of the table.
        names, units, *launches = csv.reader(line for line in file if line.startswith('"'))
    places = [names.index(metric) for metric in COLUMNS.values()]
    per_us = UNITS[units[places[0]]]
    taken: dict[tuple[str, str], list[list[float]]] = {}
    for launch in launches:
        figures = [float(launch[place].replace(",", "")) for place in places]
        figures[0] /= per_us
        grid = launch[names.index("Grid Size")].strip("()").replace(", ", " x ").removesuffix(" x 1").removesuffix(" x 1")
        block = launch[names.index("Block Size")].strip("()").split(",")[0]
        taken.setdefault((launch[names.index("Kernel Name")], f"{grid} of {block}"), []).append(figures)
    return taken


def table(taken: dict[tuple[str, str], list[list[float]]]) -> list[str]:
    first, *others = COLUMNS
    lines = [f"| kernel | blocks | {first} | floor, us | {' | '.join(others)} |", "|---" * (3 + len(COLUMNS)) + "|"]
    medians = {key: [statistics.median(figures) for figures in zip(*launches)] for key, launches in taken.items()}
    launch_us = min(us for us, *_ in medians.values())
    for (kernel, blocks), (us, *rest) in sorted(medians.items()):
        percent = dict(zip(others, rest))
        busiest = max(BOUNDS, key=percent.__getitem__)
        floor_us, by = max((us * percent[busiest] / 100, busiest.removesuffix(" %")), (launch_us, "launch"))
        figures = " | ".join(f"{figure:.0f}" for figure in rest)
        lines.append(f"| `{kernel}` | {blocks} | {us:.1f} | {floor_us:.1f} {by} | {figures} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--write", action="store_true", help="put the table between the markers `<!-- ncu -->`")
    arguments = parser.parse_args()
    taken: dict[tuple[str, str], list[list[float]]] = {}
    for path in arguments.csv:
        taken.update(read(path))
    lines = table(taken)
    print("\n".join(lines))
    if arguments.write:
        replace_between(PERFORMANCE, "ncu", lines)


if __name__ == "__main__":
    main()
