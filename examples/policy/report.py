"""Collects figures of the observations and actions of a policy, and prints them: a table to read and a JSON line to test.

Percentiles are of the newest values, and counts of all values, so that memory stays bounded.
"""

import collections
import json
import pathlib
import sys

import numpy as np

# Largest latency that counts, ns. Beyond it a stamp can't be on the wall clock, as in a replay or a simulation.
WALL_CLOCK_NS = 60_000_000_000
# Number of newest values that are kept for percentiles: half an hour at 50 Hz.
KEPT = 90_000


def percentiles(values, scale: float = 1.0) -> dict | None:
    """Returns p50 and p99 of the finite `values`, divided by `scale`; None if there is no finite value."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return None
    p50, p99 = np.percentile(values, [50, 99]) / scale
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3)}


class Report:
    """Figures of observations and actions. Times are in ns: `received_ns` by the wall clock, `timestamp_ns` of the capture."""

    def __init__(self):
        self.modalities: tuple[str, ...] = ()
        self._observations = 0
        self._first_ns = self._last_ns = 0
        self._valid_counts: np.ndarray | int = 0
        self._ages, self._latencies_ns, self._voxel_ages_ns = (collections.deque(maxlen=KEPT) for _ in range(3))
        self._fuse_us, self._inference_us = (collections.deque(maxlen=KEPT) for _ in range(2))
        self._grid_ns = None
        self.refused = collections.Counter()
        self.malformed = collections.Counter()
        self.actions = self.grids = self.voxels_used = self.epoch = self.epoch_changes = self.late_samples = 0
        self.rows_missed = 0
        self.device = "-"

    def observation(self, observation, grid, received_ns: int) -> None:
        self.modalities = observation.modalities
        if self._observations == 0:
            self._first_ns = received_ns
        self._observations += 1
        self._last_ns = received_ns
        self._valid_counts = self._valid_counts + observation.valid[-1].astype(np.int64)
        self._ages.append(observation.age_ns[-1].copy())
        latency_ns = received_ns - observation.timestamp_ns
        if abs(latency_ns) < WALL_CLOCK_NS:
            self._latencies_ns.append(latency_ns)
        self._fuse_us.append(float(observation.metadata.get("compute_us", "nan")))
        self.device = observation.metadata.get("device", "unknown")
        if grid is not None and grid.timestamp_ns != self._grid_ns:
            self._grid_ns = grid.timestamp_ns
            self.grids += 1
        self.epoch = observation.epoch
        self.late_samples = observation.late_samples

    def action(self, inference_us: float, grid_age_ns: int | None) -> None:
        self.actions += 1
        self._inference_us.append(inference_us)
        if grid_age_ns is not None:
            self.voxels_used += 1
            self._voxel_ages_ns.append(grid_age_ns)

    def as_dict(self) -> dict:
        count, span_ns = self._observations, self._last_ns - self._first_ns
        modalities = {}
        for m, name in enumerate(self.modalities):
            ages = np.array([row[m] for row in self._ages])
            modalities[name] = {
                "valid_share": round(int(self._valid_counts[m]) / count, 4),
                "age_ms": percentiles(ages[ages >= 0], 1e6),
            }
        return {
            "observations": count,
            "rate_hz": round((count - 1) * 1e9 / span_ns, 2) if span_ns > 0 else None,
            "modalities": modalities,
            "latency_ms": percentiles(self._latencies_ns, 1e6),
            "actions": self.actions,
            "refused": dict(sorted(self.refused.items())),
            "malformed": dict(sorted(self.malformed.items())),
            "observations_missed": self.rows_missed,
            "epoch": self.epoch,
            "epoch_changes": self.epoch_changes,
            "late_samples": self.late_samples,
            "voxels": {
                "grids": self.grids,
                "actions_with_voxels": self.voxels_used,
                "age_ms": percentiles(self._voxel_ages_ns, 1e6),
            },
            "device": self.device,
            "compute_us": percentiles(self._fuse_us),
            "inference_us": percentiles(self._inference_us),
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), allow_nan=False)

    def as_table(self) -> str:
        return table(self.as_dict())


def table(report: dict) -> str:
    """Formats the report as lines of text, at most 80 columns wide."""

    def both(p: dict | None, unit: str) -> str:
        return "-" if p is None else f"p50 {p['p50']:.1f}  p99 {p['p99']:.1f} {unit}"

    def counts(c: dict) -> str:
        return f"{sum(c.values())}" + (f"  ({', '.join(f'{v} {k}' for k, v in c.items())})" if c else "")

    voxels = report["voxels"]
    rate = "-" if report["rate_hz"] is None else f"{report['rate_hz']:.1f} Hz"
    lines = [
        ("observations", f"{report['observations']}  ({rate}, {report['observations_missed']} missed)"),
        ("source to policy", both(report["latency_ms"], "ms")),
    ]
    for name, m in report["modalities"].items():
        lines.append((f"  {name}", f"valid {100 * m['valid_share']:5.1f} %   age {both(m['age_ms'], 'ms')}"))
    lines += [
        ("actions", f"{report['actions']}  ({voxels['actions_with_voxels']} with voxels)"),
        ("refused", counts(report["refused"])),
        ("epoch", f"{report['epoch']}  ({report['epoch_changes']} changes, {report['late_samples']} late samples)"),
        ("voxel grids", f"{voxels['grids']}  (age {both(voxels['age_ms'], 'ms')})"),
        ("fuse", f"{report['device']}  ({both(report['compute_us'], 'us')})"),
        ("inference", both(report["inference_us"], "us")),
    ]
    if report["malformed"]:
        lines.append(("malformed", counts(report["malformed"])))
    rule = "-" * 72
    return "\n".join([rule, "policy: observations and actions", rule, *(f"{k:<18}{v}" for k, v in lines), rule])


# Largest number of warnings of a run's log that are shown; the files have all of them.
SHOWN = 20


def warnings(folder: pathlib.Path) -> str:
    """Returns the warnings and errors of the newest run in a folder of dora's logs, in the order of time, one line each."""
    logs = sorted(folder.glob("*/log_*.jsonl"), key=lambda path: path.stat().st_mtime)
    if not logs:
        return f"no log of a run in {folder}"
    lines = []
    for path in logs[-1].parent.glob("log_*.jsonl"):
        lines += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = sorted((line for line in lines if line["level"] in ("warn", "error")), key=lambda line: line["ts"])
    if not found:
        return "no warnings"
    shown = [f"{line['level']:<6}{line['node']}: {line['msg']}" for line in found[:SHOWN]]
    more = [f"and {len(found) - SHOWN} more in {logs[-1].parent}"] if len(found) > SHOWN else []
    return "\n".join([f"{len(found)} warnings", *shown, *more])


if __name__ == "__main__":
    # `report.py out/report.json out` prints the report of a run that has ended, and the warnings of its log.
    with open(sys.argv[1], encoding="utf-8") as file:
        print(table(json.load(file)))
    if len(sys.argv) > 2:
        print(warnings(pathlib.Path(sys.argv[2])))
