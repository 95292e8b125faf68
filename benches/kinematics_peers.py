"""Measures inverse kinematics by robocache, OptIK and TRAC-IK, one target after the other, on one core, in one run.

pip install numpy optik-py==0.5.0 pytracik==0.0.3
python benches/kinematics_peers.py URDF BASE TIP [COUNT]

Targets are those of `cargo bench -p robocache-kinematics`, which runs first: poses of uniform joints within their limits, to be met
within 1e-5 m and rad. The peers get 5 ms a target, and begin in the middle of the limits. An answer counts if it is within the
limits and, by the poses of OptIK, within 1e-5. TRAC-IK's tolerance is for each component, so a row also counts answers within
1.8e-5.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import optik
import pytracik

SECONDS = 0.005
TOLERANCE = 1e-5
CARGO = ["cargo", "bench", "--profile", "release", "--locked", "--quiet", "-p", "robocache-kinematics", "--bench", "kinematics", "--"]


def matrix(pose: np.ndarray) -> np.ndarray:
    x, y, z, w = pose[3:]
    result = np.eye(4)
    result[:3, 3] = pose[:3]
    result[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return result


def error(reached: np.ndarray, wanted: np.ndarray) -> float:
    """Returns the error of a reached pose: the larger of the distance, m, and the angle, rad."""
    turn = wanted[:3, :3] @ reached[:3, :3].T
    sine = 0.5 * np.linalg.norm([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    return max(np.linalg.norm(wanted[:3, 3] - reached[:3, 3]), np.arctan2(sine, 0.5 * (np.trace(turn) - 1)))


def main() -> None:
    urdf, base, tip, *count = sys.argv[1:]
    # Cargo runs the benchmark in the folder of the package.
    urdf = str(pathlib.Path(urdf).resolve())
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "targets"
        print(subprocess.run([*CARGO, urdf, base, tip, file], check=True, capture_output=True, text=True).stdout)
        poses = np.fromfile(file).reshape(-1, 7)[: int(count[0]) if count else None]

    robot = optik.Robot.from_urdf_file(urdf, base, tip)
    robot.set_parallelism(1)
    lower, upper = map(np.array, robot.joint_limits())
    middle = 0.5 * (lower + upper)
    targets = [matrix(pose) for pose in poses]

    def report(name: str, solve: Callable) -> None:
        took, found = [], []
        for pose, target in zip(poses, targets, strict=True):
            begin = time.perf_counter()
            joints = solve(pose, target)
            took.append((time.perf_counter() - begin) * 1e6)
            is_within = joints is not None and (joints >= lower - 1e-9).all() and (joints <= upper + 1e-9).all()
            found.append(error(np.array(robot.fk(joints)), target) if is_within else np.inf)
        within = [100 * np.mean(np.array(found) <= factor * TOLERANCE) for factor in (1.01, 1.8)]
        p50, p90, p99 = np.percentile(took, [50, 90, 99])
        print(f"{name}: us p50 {p50:.0f} p90 {p90:.0f} p99 {p99:.0f}; within 1e-5 {within[0]:.2f} %, 1.8e-5 {within[1]:.2f} %")

    config = optik.SolverConfig("speed", SECONDS, tol_f=1e-11)

    def by_optik(_: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        answer = robot.ik(config, target, middle)
        return np.array(answer[0]) if answer else None

    # pytracik 0.0.3 takes limits of 0 from a <safety_controller>.
    text = re.sub("<safety_controller[^>]*/>", "", pathlib.Path(urdf).read_text())
    trac = pytracik.TRAC_IK(base, tip, text, SECONDS, TOLERANCE, pytracik.SolveType.Speed)

    def by_trac(pose: np.ndarray, _: np.ndarray) -> np.ndarray | None:
        answer = pytracik.ik(trac, middle, *pose)
        return np.array(answer[1:]) if answer[0] >= 0 else None

    report("OptIK 0.5.0, one thread", by_optik)
    report("TRAC-IK, pytracik 0.0.3", by_trac)


if __name__ == "__main__":
    main()
