"""Tests of gates, histories and action chunks, on timelines that a reader can check by hand."""

import math

import numpy as np
import pytest

from made import MS, fused, observation
from robocache import Chunks, Gate, History, Observation


def at(t_ms=100, **keywords) -> Observation:
    return Observation.from_event(fused(t_ms=t_ms, **keywords))


@pytest.mark.parametrize(
    ("valid", "age_ms", "refusal"),
    [
        ((1, 1, 1, 1), (5, 1, 5, 1), None),
        ((1, 0, 1, 1), (5, 1, 5, 1), None),  # an older row may be masked
        ((1, 1, 0, 1), (5, 1, 5, 1), None),  # the camera is not required
        ((1, 1, 1, 0), (5, 1, 5, 1), "force invalid: 1.0 ms old (max_age_ms: 20.0)"),
        ((1, 1, 1, 1), (5, 1, 5, 20), None),
        ((1, 1, 1, 1), (5, 1, 5, 21), "force too old: 21.0 ms old (max_age_ms: 20.0)"),
        ((1, 1, 1, 1), (5, 1, 5, 20.2), "force too old: 20.2 ms old (max_age_ms: 20.0)"),
        ((1, 1, 1, 1), (5, 1, 5, -1), "force too old: it has no sample yet (max_age_ms: 20.0)"),
    ],
)
def test_the_newest_row_decides_whether_the_robot_holds(valid, age_ms, refusal):
    assert Gate({"force": 20.0}).refusal(at(valid=valid, age_ms=age_ms)) == refusal


def test_an_observation_without_the_required_modality_is_refused():
    assert Gate({"tactile": 1.0}).refusal(at()) == "tactile absent"


def test_the_first_observation_of_an_epoch_is_refused():
    gate = Gate()
    assert [gate.refusal(at(epoch=epoch)) for epoch in (4, 4, 5, 5)] == [None, None, "epoch changed", None]


def test_the_first_observation_of_a_node_that_was_started_anew_is_refused():
    gate = Gate()
    senders = [({"sender": sender} if sender else {}) for sender in (7, 7, 8, 8, None, 9)]
    refusals = [gate.refusal(at(**sender)) for sender in senders]
    # A message without `sender` does not count as a change of the sender.
    assert refusals == [None, None, "sender changed", None, None, None]
    # Other software may use the key `sender` for something else.
    assert [gate.refusal(at(sender="camera")), gate.refusal(at(sender=1.5))] == [None, None]


def test_an_answer_without_an_observation_is_refused():
    assert Gate().refusal(Observation.from_message(np.empty(0, np.float32), {"error": "too early"})) == "too early"


@pytest.mark.parametrize(("grids_ms", "refusal"), [((90,), None), ((75,), "grids too old: 25.0 ms old (attached_max_age_ms: 20.0)"), ((), "grids absent")])
def test_an_attached_grid_may_be_required(grids_ms, refusal):
    got = Observation.from_event(
        observation({"grids": np.zeros(len(grids_ms))}, grids_ms=grids_ms, said={"shape": [len(grids_ms), 1]})
    )
    assert Gate(attached_max_age_ms={"grids": 20.0}).refusal(got) == refusal
    assert Gate(attached_max_age_ms={"clouds": 20.0}).refusal(got) == "clouds absent"


def test_a_front_end_that_repeats_itself_is_found():
    gate = Gate(max_delay_ms=50.0)
    assert gate.refusal(at(100), now_ns=150 * MS) is None
    assert gate.refusal(at(100), now_ns=151 * MS) == "observation too late: 51.0 ms old (max_delay_ms: 50.0)"


def row(t_ms: int, value: float, valid=(1, 1), age_ms=(0, 0), **more) -> Observation:
    """Makes an observation at `t_ms` whose newest row is `value` in every column."""
    return at(t_ms, values=[0, 0, 0, value, value, value], valid=(0, 0, *valid), age_ms=(0, 0, *age_ms), **more)


def column(steps) -> list:
    return [None if math.isnan(x) else x for x in steps.values[:, 2]]


def test_a_history_starts_with_the_oldest_step_and_never_with_zeros():
    history = History(3)
    steps = history.push(row(20, 1.0))
    assert (column(steps), steps.padded.tolist(), steps.values.shape) == ([1, 1, 1], [True, True, False], (3, 3))
    assert steps.valid.all() and steps.timestamps_ns.tolist() == [20 * MS] * 3
    steps = history.push(row(40, 2.0))
    assert (column(steps), steps.padded.tolist()) == ([1, 1, 2], [True, False, False])
    assert column(history.push(row(60, 3.0))) == [1, 2, 3]
    assert column(history.push(row(80, 4.0))) == [2, 3, 4] and len(history) == 3


def test_steps_before_a_sensor_spoke_repeat_the_oldest_valid_one():
    history = History(3)
    first = history.push(row(20, 1.0, valid=(1, 0), age_ms=(0, -1)))
    assert column(first) == [None] * 3 and first.padded.all() and not first.valid[:, 1].any()
    assert column(history.push(row(40, 2.0))) == [2, 2, 2]
    steps = history.push(row(60, 3.0))
    assert (column(steps), steps.padded.tolist()) == ([2, 2, 3], [True, False, False])


def test_a_drop_out_is_not_painted_over():
    history = History(3)
    history.push(row(20, 1.0))
    history.push(row(40, 2.0, valid=(1, 0), age_ms=(0, 30)))
    steps = history.push(row(60, 3.0))
    assert (
        column(steps) == [1, None, 3] and steps.valid[:, 1].tolist() == [True, False, True] and not steps.padded.any()
    )
    assert column(history.push(row(80, 4.0))) == [None, 3, 4]


def test_a_history_forgets_the_old_clock():
    history = History(2)
    history.push(row(100, 1.0))
    assert column(history.push(row(20, 2.0, epoch=1))) == [2, 2]


def test_a_history_forgets_what_was_before_a_restart():
    history = History(2)
    history.push(row(100, 1.0, sender=7))
    assert column(history.push(row(120, 2.0, sender=7))) == [1, 2]
    # The stamps of the new node go on, and its epoch is 0 again.
    assert column(history.push(row(140, 3.0, sender=8))) == [3, 3]
    assert column(history.push(row(160, 4.0, sender=8))) == [3, 4]


def test_a_history_of_some_modalities():
    steps = History(2, ["force"]).push(row(20, 1.0, valid=(0, 1), age_ms=(-1, 0)))
    assert steps.values.tolist() == [[1], [1]] and steps.valid.all()
    with pytest.raises(KeyError, match="gripper"):
        History(2, ["gripper"]).push(row(20, 1.0))
    with pytest.raises(ValueError, match="steps is 0"):
        History(0)


def test_chunks_average_what_was_said_about_the_same_step():
    chunks = Chunks(period_ns=20, decay=0.5)
    assert chunks.add(0, np.array([[1.0], [2.0], [3.0]], np.float32)).tolist() == [[1.0], [2.0], [3.0]]
    # One step later the first chunk predicts 2, 3 with half the weight, and does not reach the last step.
    assert np.allclose(chunks.add(20, np.array([[5.0], [6.0], [7.0]], np.float32)), [[4.0], [5.0], [7.0]])
    # Four steps later no earlier chunk reaches the steps.
    assert chunks.add(100, np.array([[9.0], [9.0], [9.0]], np.float32)).tolist() == [[9.0], [9.0], [9.0]]
    assert len(chunks) == 1


def test_chunks_of_different_lengths():
    chunks = Chunks(period_ns=20, decay=1.0)
    chunks.add(0, np.array([[0.0], [2.0], [4.0]]))
    assert chunks.add(20, np.array([[4.0]])).tolist() == [[3.0]]
    assert chunks.add(40, np.array([[6.0], [8.0]])).tolist() == [[5.0], [8.0]]


def test_the_weights_of_act():
    """Checks the weights of ACT's ACTTemporalEnsembler: exp(-0.01 i), with i counted from the oldest chunk
    on (huggingface/lerobot@7427f318, modeling_act.py)."""
    chunks, said = Chunks(period_ns=20, decay=math.exp(0.01)), [1.0, 5.0, 9.0]
    for i, value in enumerate(said):
        got = chunks.add(20 * i, np.full((4, 1), value))
    weights = np.exp(-0.01 * np.arange(3))
    assert got[0, 0] == pytest.approx(np.dot(weights, said) / weights.sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Gate({"force": -1.0}), ValueError, "max_age_ms of 'force' is -1.0, expected 0 ms or more"),
        (lambda: Gate({"force": math.nan}), ValueError, "max_age_ms of 'force' is nan"),
        (lambda: Gate({"force": "20"}), TypeError, "max_age_ms of 'force' is '20', expected a number"),
        (lambda: Gate(["force"]), TypeError, "max_age_ms is ['force'], expected a limit in ms for each name"),
        (lambda: Gate(attached_max_age_ms={"grids": None}), TypeError, "attached_max_age_ms of 'grids' is None"),
        (lambda: Gate(max_delay_ms=math.nan), ValueError, "max_delay_ms is nan"),
        (lambda: History(-1), ValueError, "steps is -1, expected 1 or more"),
        (lambda: History(2.5), TypeError, "steps is 2.5, expected a whole number"),
        (lambda: History(True), TypeError, "steps is True"),
        (lambda: History(2, "force"), ValueError, "modalities is 'force', expected a list of one or more names"),
        (lambda: History(2, []), ValueError, "modalities is [], expected a list"),
        (lambda: Chunks(0), ValueError, "period_ns is 0, expected 1 or more"),
        (lambda: Chunks(2e7), TypeError, "period_ns is 20000000.0, expected a whole number"),
        (lambda: Chunks(20, math.nan), ValueError, "decay is nan, expected a number above 0"),
        (lambda: Chunks(20, -0.5), ValueError, "decay is -0.5"),
        (lambda: Chunks(20).add(1.5, [[1.0]]), TypeError, "timestamp_ns is 1.5"),
        (lambda: Chunks(20).add(0, [1.0, 2.0]), ValueError, "the chunk is [2], expected [horizon, A]"),
        (lambda: Chunks(20).add(0, np.zeros((0, 3))), ValueError, "the chunk is [0, 3], expected [horizon, A]"),
        (lambda: Chunks(20).add(0, [[1.0, 2.0], [3.0, math.nan]]), ValueError, "[3.0, nan] in step 1, expected finite numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    assert Gate({"force": np.float32(20)}, max_delay_ms=np.int64(3)).refusal(at(), now_ns=100 * MS) is None
    assert Gate({"force": math.inf}).refusal(at()) is None
    assert len(History(np.int64(2)).push(at()).values) == 2
    assert Chunks(np.int64(20), np.float32(0.5)).add(np.uint64(3), [[1]]).tolist() == [[1]]


def test_chunks_of_another_width_are_refused():
    chunks = Chunks(20)
    chunks.add(0, np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"the chunk is \[3, 2\], expected \[horizon, 1\]"):
        chunks.add(20, np.zeros((3, 2)))
    chunks.clear()
    assert chunks.add(20, np.zeros((3, 2))).shape == (3, 2)


def test_a_chunk_may_be_overwritten_by_the_next():
    chunks, buffer = Chunks(period_ns=20, decay=1.0), np.array([[0.0], [2.0]])
    chunks.add(0, buffer)
    buffer[:] = 4
    assert chunks.add(20, buffer).tolist() == [[3.0], [4.0]]


def test_a_history_says_that_columns_changed():
    history = History(2, ["force"])
    history.push(at())
    wider = Observation.from_event(fused(t_ms=120, offsets=[0, 1, 3]))
    with pytest.raises(ValueError, match=r"\['force'\] are 2 columns now and were 1: clear\(\) before another layout"):
        history.push(wider)
