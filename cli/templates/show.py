"""Stand-in for your policy: prints once a second the number of observations, the age of the last, and the share that is valid."""

import time

from dora import Node


def main() -> None:
    began, observations, grids = time.monotonic(), [], []
    for event in Node():
        if event["type"] != "INPUT":
            continue
        (observations if event["id"] == "fused" else grids).append(event["metadata"])
        if time.monotonic() - began < 1.0:
            continue
        line = f"{len(observations)} observations"
        if observations:
            names = observations[0]["modalities"]
            age_ms = (time.time_ns() - observations[-1]["timestamp_ns"]) / 1e6
            # `valid` is [rows, modalities]; the newest row is the last.
            shares = [sum(metadata["valid"][m - len(names)] for metadata in observations) / len(observations) for m in range(len(names))]
            line += f", {age_ms:.0f} ms old, valid " + ", ".join(f"{n} {share:.0%}" for n, share in zip(names, shares))
        if grids:
            line += f"; {len(grids)} grids, of {grids[-1]['points_kept']} points"
        print(line, flush=True)
        began, observations, grids = time.monotonic(), [], []


if __name__ == "__main__":
    main()
