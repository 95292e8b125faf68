"""Times from source to sink in a dataflow on the CPU, on the GPU, and with `auto`: rows for compare.py on standard output.

    python benches/dataflow_devices.py [--runs N] [--seconds N] [--devices cpu cuda auto]

Runs the dataflows `fuse` and `voxelize` of benches/dataflow with each `device:` in turn, N times, and gives the median
of the runs. The nodes and the example `bench_node` must have been built, and the clouds written (`make bench` does).
"""

import argparse
import json
import re
import statistics
import sys

from run import ROOT, run_dataflow

FOLDER = ROOT / "benches" / "dataflow"
# For each dataflow: the path to report, the pattern and the replacement of the source's number of messages, and its messages a
# second
PATHS = {"fuse": ("fused", r"streams \d+", "streams {}", 50), "voxelize": ("voxels", r"clouds \d+", "clouds {}", 40)}


def run_on(name: str, device: str, seconds: int) -> dict:
    path, length, replaced, rate = PATHS[name]
    config, flow = FOLDER / f"{name}-{device}-config.yml", FOLDER / f"{name}-{device}.yml"
    try:
        text = (FOLDER / f"{name}-config.yml").read_text()
        config.write_text(re.sub(r"^device: .*$", f"device: {device}", text, flags=re.MULTILINE))
        text = (FOLDER / f"{name}.yml").read_text().replace(f"{name}-config.yml", config.name)
        flow.write_text(re.sub(length, replaced.format(seconds * rate), text))
        return run_dataflow(name, flow.name)[path]
    finally:
        config.unlink(missing_ok=True)
        flow.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="length of a run")
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda", "auto"])
    arguments = parser.parse_args()
    for name in PATHS:
        # Devices take turns, so that other load on the machine affects all of them alike
        results = {device: [] for device in arguments.devices}
        for run in range(arguments.runs):
            for device, taken in results.items():
                print(f"{name} on {device}, run {run + 1} of {arguments.runs}", file=sys.stderr)
                taken.append(run_on(name, device, arguments.seconds))
        for device, taken in results.items():
            row = {"op": "dataflow", "config": f"{name}, source to sink", "backend": device, "scope": "host"}
            for key in ("us_p50", "us_p99", "compute_us_p50", "compute_us_p99"):
                row[key] = round(statistics.median(result[key] for result in taken), 1)
            row |= {"bytes": taken[0]["bytes"], "messages": taken[0]["messages"], "gbps": None, "of_copy": None}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
