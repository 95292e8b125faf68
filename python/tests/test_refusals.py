"""Tests of wrong arguments: the error names the argument and what is allowed, and no memory leaks."""

import os
import pathlib
import resource

import convert
import numpy as np
import pytest

import robocache as rc

CALLS = int(os.environ.get("ROBOCACHE_PYTHON_CALLS", "3000"))
MODALITY = {"input": "a", "dim": 2, "interpolation": "linear"}
FUSE = {"rate_hz": 100, "modalities": [MODALITY]}
GRID = {"origin_m": [0] * 3, "voxel_size_m": [1] * 3, "shape": [4] * 3, "channels": ["count"], "layout": "dense"}
TIMES = np.arange(5) * 10_000_000
VALUES = np.ones((5, 2), np.float32)


def fuse(times=TIMES, values=VALUES, config=FUSE, **keys):
    return rc.fuse({"a": (times, values)}, config, **keys)


REFUSED = {
    # name: (call, exception, words in order)
    "a list": (lambda: fuse(times=[1, 2]), TypeError, "`a: times_ns` is a list (allowed: an array that speaks DLPack"),
    "float times": (lambda: fuse(times=TIMES / 1e9), TypeError, "`a: times_ns` is float64 (allowed: int64)"),
    "truth values": (lambda: fuse(values=VALUES > 0), TypeError, "`a: values` is bool (allowed: float32, "),
    "complex values": (lambda: fuse(values=VALUES + 1j), TypeError, "`a: values` has elements of DLPack's type 5"),
    "text": (lambda: fuse(values=VALUES.astype(str)), TypeError, "`a: values`, a numpy.ndarray: its dtype is <U32 (allowed: "),
    "other endianness": (
        lambda: fuse(values=VALUES.astype(">f4")),
        TypeError,
        "`a: values`, a numpy.ndarray: its dtype is >f4 (allowed: bool, integers and floats in the byte order of this machine)",
    ),
    "objects": (lambda: fuse(values=VALUES.astype(object)), TypeError, "`a: values`, a numpy.ndarray: its dtype is object"),
    "times of a calendar": (
        lambda: fuse(times=TIMES.astype("datetime64[ns]")),
        TypeError,
        "`a: times_ns`, a numpy.ndarray: its dtype is datetime64[ns] (allowed: int64 nanoseconds, `.astype(",
    ),
    "a mask": (
        lambda: fuse(values=np.ma.masked_array(VALUES, VALUES > 0)),
        TypeError,
        "`a: values` is a numpy.ma.MaskedArray, whose mask would be lost (allowed: ",
    ),
    "None for a stream": (lambda: rc.fuse({"a": None}, FUSE), TypeError, "stream `a` is None (allowed: a pair"),
    "text for a stream": (lambda: rc.align({"a": "ab"}, FUSE), TypeError, "stream `a` is a str (allowed: a pair"),
    "three arrays": (lambda: rc.fuse({"a": (TIMES, VALUES, 1)}, FUSE), TypeError, "stream `a` is a tuple of 3 (allowed: a pair"),
    "None for values": (lambda: fuse(values=None), TypeError, "`a: values` is None (allowed: an array"),
    "no streams": (lambda: rc.fuse(None, FUSE), TypeError, "`streams` is None (allowed: a dict of pairs"),
    "a stream's name": (lambda: rc.fuse({1: (TIMES, VALUES)}, FUSE), TypeError, "the name of a stream is 1 (allowed: text)"),
    "no trajectory": (lambda: rc.resample(TIMES, None, TIMES), TypeError, "`values` is None (allowed: an array"),
    "a list beside none": (lambda: rc.resample([TIMES], None, [TIMES]), TypeError, "`values` is None (allowed with a list"),
    "seconds of the seed": (
        lambda: rc.resample_trajectories(VALUES[None], "x", TIMES[None]),
        TypeError,
        "`source_times` is a str (allowed: an array of seconds)",
    ),
    "one name for columns": (
        lambda: rc.voxelize(VALUES, fields="xy", config=GRID),
        TypeError,
        "`fields` is a str (allowed: a list of names)",
    ),
    "lengths": (lambda: fuse(times=TIMES[:4]), ValueError, "`a: values` has shape [5, 2] (allowed with `dim` 2 and 4 times: [4, 2])"),
    "width": (lambda: fuse(values=VALUES[:, :1]), ValueError, "has shape [5, 1] (allowed with `dim` 2 and 5 times: [5, 2])"),
    "times of two axes": (lambda: fuse(times=VALUES.astype(int)), ValueError, "`a: times_ns` has shape [5, 2] (allowed: [S])"),
    "no pair": (lambda: rc.fuse({"a": VALUES}, FUSE), TypeError, "stream `a` is a ndarray (allowed: a pair"),
    "no stream": (lambda: rc.fuse({}, FUSE), ValueError, "modality `a` has no stream (there are: none)"),
    "another stream": (lambda: rc.fuse({"b": (TIMES, VALUES)}, FUSE), ValueError, "stream `b` is not an input of a modality (allowed: a)"),
    "a key": (
        lambda: fuse(config={**FUSE, "windw": 3}),
        ValueError,
        "config: fuse: windw: unknown key `windw`, did you mean `window`? (allowed: rate_hz, window",
    ),
    "a key deep down": (
        lambda: fuse(config={**FUSE, "modalities": [{**MODALITY, "max_gap": 3}]}),
        ValueError,
        "config: fuse: modalities[0].max_gap: unknown key `max_gap`, did you mean `max_gap_ms`? (allowed: input",
    ),
    "a residence": (
        lambda: fuse(config={**FUSE, "residence": {"fused": {"kind": "shared", "slot": 3}}}),
        ValueError,
        "config: fuse: residence.fused.slot: unknown key `slot`, did you mean `slots`? (allowed: kind, slots",
    ),
    "a value": (lambda: fuse(config={**FUSE, "rate_hz": -1}), ValueError, "config: fuse: rate_hz: "),
    "a number that the type lacks": (
        lambda: fuse(config={**FUSE, "fill_value": np.nan}),
        ValueError,
        "config: fuse: fill_value: NaN (allowed in float32: -3.4",
    ),
    "an infinite fill": (
        lambda: rc.resample(TIMES, VALUES, TIMES, fill_value=-np.inf),
        ValueError,
        "config: resample: fill_value: `-inf` (allowed: a finite float32 or .nan)",
    ),
    "a timer": (lambda: fuse(config={**FUSE, "trigger": {"timer": "x"}}), ValueError, "config: fuse: trigger: timer: not available offline"),
    "attach of align": (
        lambda: rc.align({"a": (TIMES, VALUES)}, {**FUSE, "attach": [{"input": "x"}]}),
        ValueError,
        "config: align: attach: align can't attach messages",
    ),
    "no config": (lambda: fuse(config=3), TypeError, "`config` is a int (allowed: a dict, the path of a YAML file)"),
    "a config of objects": (lambda: fuse(config={"rate_hz": object()}), TypeError, "`config` has a object (allowed: numbers"),
    "no file": (lambda: fuse(config="/nowhere.yml"), FileNotFoundError, "/nowhere.yml"),
    "a device": (lambda: fuse(device="gpu"), ValueError, '`device` is "gpu" (allowed: None, auto, cpu, cuda, cuda:N, hip, hip:N)'),
    "a device that is not there": (lambda: fuse(device="cuda:99"), ValueError, "`device`: `cuda:99` can't be used: "),
    "unsorted": (
        lambda: rc.resample(TIMES[::-1], VALUES, TIMES),
        ValueError,
        "`times_ns`: row 0: timestamp 1 is 30000000, but the one before it is 40000000 (allowed: ascending",
    ),
    "out of range": (lambda: rc.resample(TIMES + 2**62, VALUES, TIMES), ValueError, "out of range (allowed: +-2^61)"),
    "integers": (lambda: rc.resample(TIMES, VALUES.astype(int), TIMES), TypeError, "`values` is int64 (allowed: float32, float64, "),
    "a batch": (
        lambda: rc.resample(np.stack([TIMES] * 2), np.stack([VALUES] * 3), TIMES),
        ValueError,
        "`values` has shape [3, 5, 2] (allowed: with `times_ns` [2, 5]: [2, 5], or with an axis",
    ),
    "targets": (lambda: rc.resample(TIMES, VALUES, VALUES.astype(int)), ValueError, "`targets_ns` has shape [5, 2] (allowed: [T])"),
    "a row": (
        lambda: rc.resample([TIMES, TIMES], [VALUES, VALUES[:, :1]], [TIMES, TIMES]),
        ValueError,
        "`values[1]` is float32 [5, 1] (allowed: [S] or [S, D] in each row",
    ),
    "two configs": (lambda: rc.resample(TIMES, VALUES, TIMES, config={}, fill_value=1), TypeError, "`config` and `fill_value`"),
    "a mode": (
        lambda: rc.resample(TIMES, VALUES, TIMES, interpolation="euler"),
        ValueError,
        "config: resample: interpolation: `euler` is not an interpolation",
    ),
    "a rotation's width": (lambda: rc.resample(TIMES, VALUES, TIMES, interpolation="slerp"), ValueError, "slerp"),
    "names of columns": (
        lambda: rc.voxelize(VALUES, config=GRID),
        ValueError,
        "`points` has shape [5, 2], and `fields` 3 names (allowed: one for each column)",
    ),
    "a field": (
        lambda: rc.voxelize({"x": TIMES, "y": TIMES}, config=GRID),
        ValueError,
        "no field `z`: the cloud has x, y",
    ),
    "columns": (
        lambda: rc.voxelize({"x": TIMES, "y": TIMES, "z": TIMES[:3]}, config=GRID),
        ValueError,
        "`points: z` has shape [3] (allowed: [5], as its first field has)",
    ),
    "an input": (
        lambda: rc.voxelize([VALUES], inputs=["b"], fields=["x", "y"], config={**GRID, "inputs": [{"input": "a"}]}),
        ValueError,
        "`points` is of input `b` (allowed: a)",
    ),
    "a channel": (lambda: rc.voxelize({}, config=GRID), ValueError, "`points` is an empty dict"),
    "a huge grid": (
        lambda: rc.voxelize(np.ones((2, 3)), config={**GRID, "shape": [2000] * 3}),
        ValueError,
        "config: voxelize: shape: [2000, 2000, 2000] is ",
    ),
    "no folder": (lambda: rc.Recording("/nowhere"), FileNotFoundError, "/nowhere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_words(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_a_file_is_named(tmp_path):
    path = tmp_path / "robot.yml"
    path.write_text("device: cuda\nfuse:\n  rate_hz: 100\n  modalities:\n    - {input: a, dim: 2, interpolation: linear, latency: 3}\n")
    with pytest.raises(ValueError, match=r"robot\.yml: fuse: modalities\[0\]\.latency: unknown key `latency`"):
        fuse(config=path)
    path.write_text(path.read_text().replace("latency", "latency_ms"))
    # The `device:` of a file is for nodes, and ignored here.
    assert len(fuse(config=path)) == len(fuse(config=str(path))) == 4
    with pytest.raises(ValueError, match=r"robot\.yml: configuration: the section `align:` is missing"):
        rc.align({"a": (TIMES, VALUES)}, path)


def test_what_is_attached_is_left_out_with_a_warning():
    config = {**FUSE, "attach": [{"input": "voxels"}, {"input": "map", "output": "maps"}]}
    with pytest.warns(UserWarning, match="config: fuse: attach: `voxels`, `map` left out") as warned:
        fused = fuse(config=config)
    assert warned[0].filename == __file__
    assert fused.fused.tobytes() == fuse().fused.tobytes()
    with pytest.raises(ValueError, match=r"config: fuse: attach\[0\]\.outpt: unknown key"):
        fuse(config={**FUSE, "attach": [{"input": "voxels", "outpt": "a"}]})


SECOND = 1_000_000_000


@pytest.mark.parametrize(("unit", "divisor"), [("microseconds", 10**3), ("milliseconds", 10**6), ("seconds", 10**9)])
def test_a_stream_that_lasts_as_long_in_another_unit_is_doubted(unit, divisor):
    # Ten times a second is far enough apart, even in microseconds.
    slow, quick = np.arange(36000) * 10**8, np.arange(72000) * 5 * 10**7
    streams = {"a": (slow // divisor, np.zeros((36000, 1))), "b": (quick, np.zeros((72000, 1)))}
    modalities = [{"input": name, "dim": 1, "interpolation": "previous"} for name in streams]
    with pytest.warns(UserWarning, match=rf"stream `a` lasts \d+ ns, stream `b` \d+ ns: are those of `a` {unit}\?"):
        rc.fuse(streams, {"rate_hz": 1, "modalities": modalities})


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
def test_times_that_are_no_nanoseconds_are_doubted(unit):
    """Times of a minute at 50 Hz, in seconds, milliseconds or microseconds."""
    times = (np.arange(3_000) * unit) // 50
    with pytest.warns(UserWarning, match=r"stream `a`: 3000 samples from 0 to \d+ ns are \S+ ns apart: are its times nanos") as warned:
        fuse(times=times, values=np.zeros((3_000, 2)))
    assert warned[0].filename == __file__


@pytest.mark.parametrize("rate_hz", [6, 10, 30])
def test_microseconds_of_slow_streams_are_doubted(rate_hz):
    """Two streams of a robot, for a minute: no robot has streams that are both as fast as these seem to be."""
    config = {**FUSE, "modalities": [MODALITY, MODALITY | {"input": "b"}]}
    times = [np.arange(60 * rate) * 1_000_000 // rate for rate in (rate_hz, 500)]
    streams = {name: (t, np.zeros((len(t), 2))) for name, t in zip("ab", times, strict=True)}
    with pytest.warns(UserWarning, match=r"stream `a`: \d+ samples from 0 to \d+ ns are \S+ ns apart: are its times nanoseconds\?"):
        rc.fuse(streams, config)


def test_no_observation_is_told_with_the_times_of_the_streams():
    config = {**FUSE, "rate_hz": 1}
    words = r"there is no observation: none is due where the streams are \(`a` from 100000000 to 140000000 ns\)"
    with pytest.warns(UserWarning, match=words):
        observed = rc.fuse({"a": (TIMES + SECOND // 10, VALUES)}, config)
    assert len(observed.epoch) == 0


@pytest.mark.parametrize("run", [rc.fuse, rc.align])
def test_streams_without_a_time_in_common_are_doubted(run):
    """One clock counts from 1970, the other from the start of the machine."""
    config = {**FUSE, "max_wait_ms": 100, "modalities": [MODALITY, MODALITY | {"input": "b"}]}
    streams = {"a": (TIMES + 1_700_000_000 * SECOND, VALUES), "b": (TIMES, VALUES)}
    words = (
        r"stream `b` is from 0 to 40000000 ns, stream `a` from 1700000000000000000 to 1700000000040000000 ns: they have no time "
        r"in common\. Are both in nanoseconds, and of one clock\?"
    )
    with pytest.warns(UserWarning, match=words) as warned:
        run(streams, config)
    assert [each.filename for each in warned] == [__file__]


def test_a_recording_is_doubted_too(tmp_path):
    late = convert.Stream(TIMES + SECOND, VALUES)
    folder = convert.write(tmp_path / "r", {"a": convert.Stream(TIMES, VALUES), "b": late})
    config = {**FUSE, "modalities": [MODALITY, MODALITY | {"input": "b"}]}
    for read in (lambda: rc.Recording(folder).windows(config), lambda: rc.RecordingDataset(folder, config)):
        with pytest.warns(UserWarning, match=r"stream `a` is from 0 to 40000000 ns, stream `b` from 1000000000 to") as warned:
            read()
        assert [each.filename for each in warned] == [__file__]


def test_what_is_all_right_is_not_doubted(recwarn):
    """Checks that nothing warns of rates from 1 Hz to 48 kHz, spans that overlap a little, or a map that came once, long ago."""
    config = {
        "rate_hz": 10,
        "modalities": [{"input": name, "dim": 1, "interpolation": "previous"} for name in ("audio", "slow", "map")],
    }
    audio = np.arange(48_000) * 20_833
    slow = audio[-1] + np.arange(3) * SECOND
    rc.fuse({name: (t, np.zeros(len(t))) for name, t in (("audio", audio), ("slow", slow), ("map", audio[:1] - SECOND))}, config)
    # One sensor alone, at 8 kHz since 1970.
    alone = {"rate_hz": 100, "modalities": [{"input": "audio", "dim": 1, "interpolation": "previous"}]}
    rc.fuse({"audio": (1_700_000_000 * SECOND + np.arange(8000) * 125_000, np.zeros(8000))}, alone)
    assert not recwarn.list


def test_samples_in_disorder_are_told():
    times = np.random.default_rng(1).permutation(np.arange(90)) * 10_000_000
    with pytest.warns(UserWarning, match=r"\d+ of 90 samples came too late for their targets: are they in order\?"):
        rc.fuse({"a": (times, np.zeros((90, 2)))}, {**FUSE, "max_wait_ms": 20})


def test_a_file_that_lists_plugins(tmp_path):
    path = tmp_path / "robot.yml"
    fuse_keys = "rate_hz: 100, modalities: [{input: a, dim: 2, interpolation: linear}]"
    path.write_text(f"plugins:\n  - voxelize: {{}}\n  - mine: {{speed: 3}}\n  - fuse: {{name: wrist, {fuse_keys}}}\n")
    assert fuse(config=path).fused.tobytes() == fuse().fused.tobytes()
    whole = {"plugins": [{"fuse": FUSE}, {"align": FUSE}]}
    assert fuse(config=whole).fused.tobytes() == fuse().fused.tobytes()
    assert list(rc.align({"a": (TIMES, VALUES)}, whole)) == ["a"]
    with pytest.raises(ValueError, match=r"robot\.yml: configuration: the section `align:` is missing"):
        rc.align({"a": (TIMES, VALUES)}, path)
    path.write_text(path.read_text() + f"  - fuse: {{{fuse_keys}}}\n")
    words = r"robot\.yml: plugins: `fuse` is listed several times: \[2\] named `wrist`, \[3\] without a name \(allowed here: once\)"
    with pytest.raises(ValueError, match=words):
        fuse(config=path)


def test_a_whole_file_as_a_dict():
    whole = {"device": "auto", "fuse": FUSE, "voxelize": GRID}
    assert fuse(config=whole).fused.tobytes() == fuse().fused.tobytes()


def test_a_recording_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="no stream"):
        rc.Recording(tmp_path)
    (tmp_path / "a.arrow").write_bytes(b"none")
    with pytest.raises(ValueError, match=r"a\.arrow"):
        rc.Recording(tmp_path)["a"]


def test_a_damaged_recording_is_a_wrong_value(tmp_path):
    convert.write(tmp_path / "r", {"a": convert.Stream(TIMES, VALUES)})
    (file,) = (tmp_path / "r").iterdir()
    whole = file.read_bytes()
    at = whole.index(VALUES[:2].tobytes())
    broken = whole[: at - 64] + b"\xff" * 64 + whole[at:]
    file.write_bytes(broken)
    recording = rc.Recording(tmp_path / "r")
    for read in (
        lambda: recording["a"],
        lambda: list(recording.messages("a")),
        lambda: recording.windows(FUSE),
    ):
        with pytest.raises(ValueError, match=r"a\.arrow: damaged at byte"):
            read()
    file.write_bytes(whole)
    with pytest.raises(ValueError, match="r: stream `a`: a message of 5 values .*dim.* 3|r: stream `a`: .*3"):
        recording.windows({**FUSE, "modalities": [{**MODALITY, "dim": 3}]})


def test_arrays_that_numpy_does_not_hand_out_are_copied():
    packed = np.zeros(5, [("a", "f4", 2), ("flag", "u1")])
    packed["a"] = values = np.arange(10).reshape(5, 2)
    read_only = values.astype(np.float32)
    read_only.setflags(write=False)
    assert fuse(values=packed["a"]).fused.tobytes() == fuse(values=read_only).fused.tobytes() == fuse(values=values).fused.tobytes()


def test_what_can_not_be_used_is_counted():
    values = VALUES.copy()
    values[1, 0], values[3, 1] = np.nan, np.inf
    times = TIMES.copy()
    times[4] = 2**62
    fused = fuse(times=times, values=values)
    assert fused.dropped == {"a": {"nonfinite": 2, "stamp_out_of_range": 1}}
    # Dropped samples are left out; those at 0 and 20 ms remain.
    assert fused.valid[:, 0, 0].tolist() == [True, True, True]


def resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_refusals_leak_nothing():
    """The arrays are so large that one leaked array would show."""
    times, values = np.arange(5000), np.ones((5000, 3), np.float32)

    def refused():
        for call in (
            lambda: fuse(times=times, values=values),
            lambda: fuse(times=times[::2], values=values[::-1]),
            lambda: rc.resample(times[::-1], values, times),
            lambda: rc.resample([times, times[::-1]], [values, values], [times, times]),
            lambda: rc.voxelize(values[:, :2], config=GRID),
            lambda: rc.Tensor.from_dlpack(values).__dlpack__(stream=1),
        ):
            with pytest.raises((ValueError, BufferError)):
                call()

    for _ in range(50):
        refused()
    before = resident()
    for _ in range(CALLS // 6):
        refused()
    grown = resident() - before
    assert grown < 4 << 20, f"{grown} bytes more after {CALLS} calls"


def test_what_is_handed_out_comes_back():
    """The memory of capsules that nobody took, of arrays made from capsules, and of results is freed."""
    values = np.ones((1 << 18, 1), np.float32)
    times = np.arange(len(values)) * 10_000_000

    def use():
        for version in (None, (1, 0)):
            rc.Tensor.from_dlpack(values.copy()).__dlpack__(max_version=version)
        np.from_dlpack(rc.Tensor.from_dlpack(values.copy()))
        np.from_dlpack(rc.Tensor.from_dlpack(values), copy=True)
        rc.resample(times, values, times)

    for _ in range(5):
        use()
    before = resident()
    for _ in range(40):
        use()
    grown = resident() - before
    assert grown < 8 << 20, f"{grown} bytes more"
