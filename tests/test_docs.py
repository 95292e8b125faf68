"""The examples of the documentation work: nodes take its configurations, its programs run, its links lead somewhere."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import robocache as rc
import yaml

import convert
from dataflows import readme_problems
from harness import Flow, binary, dora_run_until

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("nodes/*/README.md")), *sorted(ROOT.glob("examples/**/README.md"))]
SECTIONS = {"align", "clock", "fuse", "group", "resample", "voxelize", "record", "replay", "sim"}
COMMAND = ROOT / "target" / "release" / "robocache"
OWN = {"force_mean": ROOT / "target" / "release" / "force-mean"}


def configurations() -> list:
    """Every YAML mapping of the documentation, and every configuration file, that is not a dataflow."""
    found = []
    for page in PAGES:
        for i, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)):
            found.append((f"{page.relative_to(ROOT)} {i}", block))
    for path in [ROOT / "robocache.yml", *sorted((ROOT / "examples").rglob("*.yml"))]:
        found.append((str(path.relative_to(ROOT)), path.read_text()))
    mappings = [(name, text) for name, text in found if isinstance(yaml.safe_load(text), dict)]
    # The plugin of docs/plugins.md is compiled by `cargo test --doc`; no binary has it.
    own = lambda config: any("contact" in plugin for plugin in config.get("plugins", []))
    return [pytest.param(text, id=name) for name, text in mappings if "nodes" not in (config := yaml.safe_load(text)) and not own(config)]


def nodes_of(config: dict) -> list[pathlib.Path]:
    """The binaries that take this configuration."""
    if "plugins" in config:
        names = {name for plugin in config["plugins"] for name in plugin}
        own = [path for name, path in OWN.items() if name in names]
        return own or [binary("node")]
    return [binary(name) for name in sorted(config.keys() & SECTIONS)]


def give_urdfs(config: dict, folder: pathlib.Path) -> None:
    """Copies the example's arm to where a configuration looks for its robot."""
    for chain in config.get("chains", {}).values():
        shutil.copy(ROOT / "examples" / "kinematics" / "arm.urdf", folder / chain["urdf"])


def refusal(node: pathlib.Path, text: str, folder: pathlib.Path) -> str | None:
    """Returns the error of a node for a configuration; `None` if the node accepts it and looks for dora."""
    config = yaml.safe_load(text)
    work = folder / "dataflow"
    work.mkdir(exist_ok=True)
    (work / "config.yml").write_text(text)
    give_urdfs(config, work)
    if "replay" in config:
        convert.write(work / config["replay"]["path"], {"force": convert.Stream(np.array([1]), np.ones((1, 1)))})
    # A recorder reads its inputs from this variable; dora then fails, since the rest of it is missing.
    wiring = {"DORA_NODE_CONFIG": json.dumps({"run_config": {"inputs": {"lidar": "robot/lidar"}}})} if node == binary("record") else {}
    done = subprocess.run([node, "--config", "config.yml"], cwd=work, env=wiring, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
    words = done.stdout + done.stderr
    return None if done.returncode == 1 and "dora: " in words else words


@pytest.mark.parametrize("text", configurations())
def test_a_configuration_of_the_documentation_is_taken(text, tmp_path):
    config = yaml.safe_load(text)
    nodes = nodes_of(config)
    assert nodes, f"no section of a node: {[*config]}"
    for node in nodes:
        assert refusal(node, text, tmp_path) is None, node.name


@pytest.mark.parametrize("text", configurations())
def test_check_finds_nothing_wrong_with_a_configuration_of_the_documentation(text, tmp_path, request):
    (tmp_path / "config.yml").write_text(text)
    give_urdfs(yaml.safe_load(text), tmp_path)
    done = subprocess.run([COMMAND, "check", "config.yml", "--strict"], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    if "force_mean" in text:  # a plugin that the command does not have
        assert done.returncode == 2 and "`force_mean` is not a plugin" in done.stdout
    elif "semantics" in request.node.callspec.id:  # its examples have masks and late samples
        assert done.returncode != 2, done.stdout
    else:
        assert done.returncode == 0, done.stdout


def test_there_are_configurations_and_a_wrong_one_is_found(tmp_path):
    assert len(configurations()) > 12
    assert "windov" in refusal(binary("fuse"), (ROOT / "robocache.yml").read_text().replace("window:", "windov:"), tmp_path)


def test_the_consumer_of_the_readme_acts_and_holds(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 16
    (tmp_path / "my_policy.py").write_text(program)
    config = yaml.safe_load((ROOT / "robocache.yml").read_text())
    dropout = {"dropouts": [{"start_s": 1.5, "duration_s": 0.5}]}
    flow = Flow(tmp_path)
    flow.robocache("sim", {"sim": {"seed": 7, "duration_s": 3.0, "streams": {"force": dropout}}}, outputs=["camera", "force", "proprio", "lidar"])
    flow.robocache("voxelize", {"voxelize": config["voxelize"]}, {"lidar": "sim/lidar"}, ["voxels"])
    inputs = {name: f"sim/{name}" for name in ("camera", "force", "proprio")} | {"voxels": "voxelize/voxels"}
    flow.robocache("fuse", {"fuse": config["fuse"]}, inputs, ["observation"])
    flow.node("policy", pathlib.Path(sys.executable), "my_policy.py", {"observation": "fuse/observation"}, [])
    flow.collector({"observation": "fuse/observation"})
    done = flow.run()
    gate = rc.Gate({"camera": 50.0, "force": 20.0, "proprio": 20.0})
    refusals = [gate.refusal(rc.Observation.from_message(m.array, m.metadata)) for m in done.received("sink")]
    # For half a second of three, at 30 Hz, there is no force. The first few observations may lack a stream.
    assert refusals.count(None) > 50 and 8 <= len([why for why in refusals if why and why.startswith("force")]) <= 30, refusals
    # On a busy machine, dora may add lines of its own.
    said = [line for line in done.logs["policy"].splitlines() if line.startswith(("act", "hold"))]
    acts = [re.fullmatch(r"act on a force of \[.*\]", line) for line in said if line.startswith("act")]
    holds = [re.fullmatch(r"hold: force (invalid|too old): .* ms old \(max_age_ms: 20.0\)", line) for line in said if line.startswith("hold: force")]
    assert all([*acts, *holds]) and [line.startswith("act") for line in said] == [why is None for why in refusals], said


def sensors_page(folder: pathlib.Path) -> tuple[dict, list]:
    """The dataflow and the configuration of docs/sensors.md, by the names of their files, and the nodes of a policy that asks."""
    for name in (".venv", "target", "examples"):
        (folder / name).symlink_to(ROOT / name)
    page = (ROOT / "docs" / "sensors.md").read_text()
    blocks = re.findall(r"^```yaml\n# (in )?(my-\w+\.yml)(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [part + name for part, name, _ in blocks] == ["my-robot.yml", "my-config.yml", "in my-robot.yml"]
    return {name: f"#{block}" for part, name, block in blocks if not part}, yaml.safe_load(f"#{blocks[2][2]}")


def sensors_programs() -> list[str]:
    """The programs of docs/sensors.md: the smallest sender, and the policy that asks."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "sensors.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_dataflow_of_the_page_on_sensors_runs(tmp_path):
    for name, block in sensors_page(tmp_path)[0].items():
        (tmp_path / name).write_text(block)

    def is_fused(said: str) -> bool:
        """True if the output has a second with more than 40 observations, each stream valid in more than 90 %, and more than 7
        grids."""
        lines = re.findall(r"(\d+) observations, \d+ ms old, valid camera (\d+) %, wrench (\d+) %; (\d+) grids, \d+ cells of 20000 points", said)
        return any(int(count) > 40 and int(camera) > 90 and int(wrench) > 90 and int(grids) > 7 for count, camera, wrench, grids in lines)

    said = dora_run_until(is_fused, "my-robot.yml", tmp_path)
    assert is_fused(said), said


def test_the_policy_of_the_page_on_sensors_asks_and_holds(tmp_path):
    """The policy is refused once, and gives up waiting for an answer once."""
    files, asking = sensors_page(tmp_path)
    flow, config = (yaml.safe_load(files[name]) for name in ("my-robot.yml", "my-config.yml"))
    flow["nodes"] = [node for node in flow["nodes"] if node["id"] in ("camera", "wrench")] + asking
    config["fuse"]["trigger"] = {"request": "ask"}
    (tmp_path / "my-robot.yml").write_text(yaml.safe_dump(flow))
    (tmp_path / "my-config.yml").write_text(yaml.safe_dump(config))
    _, program = sensors_programs()
    times = "{10: {'timestamp_ns': 1}, 15: {'timestamp_ns': time.time_ns() + 1_500_000_000}}.get(number, {})"
    asked = program.replace('{"request_id": str(number)}', f'{{"request_id": str(number), **{times}}}')
    assert asked != program
    (tmp_path / "my_policy.py").write_text(asked)

    def is_over(said: str) -> bool:
        """True if the policy was refused once, later got no answer, and acted again after that."""
        lines = re.findall(r"act on a force of \[.*?\], \d+ ms old|hold: .*", said)
        acts = [i for i, line in enumerate(lines) if line.startswith("act")]
        refused = [i for i, line in enumerate(lines) if "it asks for 1 ns" in line]
        unanswered = [i for i, line in enumerate(lines) if line == "hold: no answer"]
        return len(refused) == 1 and len(acts) > 20 and any(refused[0] < i < acts[-1] for i in unanswered)

    said = dora_run_until(is_over, "my-robot.yml", tmp_path)
    assert is_over(said) and "Traceback" not in said, said


def test_the_page_on_training_runs_from_the_first_run_to_the_policy(tmp_path):
    for name in (".venv", "target", "robocache.yml"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = (ROOT / "docs" / "training.md").read_text()
    for name, block in re.findall(r"^```yaml\n# (\S+\.yml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(block)
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for name, program in zip(("train.py", "drive.py"), programs, strict=True):
        (tmp_path / name).write_text(program)
    said = dora_run_until(lambda _: False, "first-run.yml", tmp_path)
    run = lambda *words: subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    for words in (["info", "out/first-run"], ["try", "perception.yml", "out/first-run"]):
        done = run(COMMAND, *words)
        assert done.returncode == 0, said + done.stdout + done.stderr
    done = run(sys.executable, "train.py")
    found = re.fullmatch(r"(\d+) observations, as the robot had them; error (0\.\d+) rad\n", done.stdout)
    assert found and int(found[1]) > 200 and float(found[2]) < 0.05, done.stdout + done.stderr

    # The policy drives the robot, and its run is recorded to another folder.
    [policy] = re.findall(r"^```yaml\n# in first-run\.yml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "first-run.yml").write_text((tmp_path / "first-run.yml").read_text() + policy)
    config = tmp_path / "perception.yml"
    config.write_text(config.read_text().replace("out/first-run", "out/second-run"))
    said = dora_run_until(lambda said: said.count("the arm goes to") > 20, "first-run.yml", tmp_path)
    assert said.count("the arm goes to") > 20, said


DRIVER = """
import sys
import time


def read_torque(left=[100]):
    time.sleep(0.01 if left[0] else 0.5)
    left[0] -= 1
    return [0.5, 1.5] if left[0] >= 0 else sys.exit()

"""


def test_the_least_sender_is_fused(tmp_path):
    program, _ = sensors_programs()
    (tmp_path / "torque.py").write_text(DRIVER + program)
    flow = Flow(tmp_path)
    flow.node("torque", pathlib.Path(sys.executable), "torque.py", {}, ["torque"])
    modality = {"input": "torque", "dim": 2, "interpolation": "previous"}
    flow.robocache("fuse", {"fuse": {"rate_hz": 50, "modalities": [modality]}}, {"torque": "torque/torque"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    got = flow.run().received("sink")
    assert len(got) >= 40 and all(message.values.tolist() == [0.5, 1.5] for message in got)


def test_the_page_on_messages_has_the_types_and_keys_that_dora_is_told():
    page = (ROOT / "docs" / "messages.md").read_text()
    metadata = page.split("\n## Metadata\n")[1].split("\n## ")[0]
    keys = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", metadata, re.MULTILINE))
    types = yaml.safe_load((ROOT / "types" / "robocache" / "v1.yml").read_text())["types"]
    assert len(keys) > 25 and len(types) > 8
    for name, declared in types.items():
        assert f"`{name}`" in page
        for entry in declared.get("metadata", []):
            # A description begins with its types: `Integer or Float: ...`, `ListInt, M + 1: ...`
            allowed = re.split(r"[,:]", entry["description"])[0].split(" or ")
            assert keys.get(entry["key"]) in allowed, (name, entry["key"])


def test_the_program_of_the_page_on_messages_reads_a_recording(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "messages.md").read_text(), re.MULTILINE | re.DOTALL)
    convert.write(tmp_path, {"lidar": convert.Stream(np.array([1, 2]), np.ones((2, 3)))})
    variables = {}
    exec(program.replace("lidar.arrow", str(tmp_path / "lidar.arrow")), variables)
    assert variables["batch"].num_rows == 2 and variables["later"] == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_dora_takes_the_dataflows_of_the_documentation(page):
    # Every README of a node must show the node in a dataflow; a page need not.
    assert [problem for problem in readme_problems(page) if problem and "shows no node" not in problem] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        path, _, heading = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        if heading:
            lines = re.findall(r"^#+ (.*)", found.read_text(), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines], target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_are_there(page):
    named = re.findall(r"`((?:src|kernels|tests|nodes|docs|types|examples|benches|packaging)/[\w./*-]+)`", page.read_text())
    assert [path for path in named if not any([*ROOT.glob(path), *page.parent.glob(path)])] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "packaging" / "Dockerfile"], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_targets_and_files_that_are_there(page):
    rules = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    targets = {word for names in re.findall(r"^\.PHONY: (.*)|^([\w./-]+):", rules, re.MULTILINE) for word in " ".join(names).split()}
    text = page.read_text()
    commands = [*re.findall(r"`(make [^`]+)`", text), *re.findall(r"^(?:#   )?((?:make|cargo|docker|python3?|\.venv/bin/\w+) .*)", text, re.MULTILINE)]
    for command in commands:
        words = [word for word in command.partition(" #")[0].split()[1:] if "=" not in word]
        if command.startswith("make "):
            assert [word for word in words if word not in targets] == [], command
        # Other paths may be built or installed, and are not in the sources.
        named = [word for word in words if re.match(r"(packaging|python|examples|benches|kernels|nodes|tests)/", word)]
        assert [word for word in named if not (ROOT / word).exists()] == [], command
