"""Tests of the attention example against attention written out in NumPy."""

import pathlib
import sys

import numpy as np
import pytest

from made import MS, fused, metadata
from robocache import Observation

torch = pytest.importorskip("torch", reason="torch is not installed: the attention example is not tried")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "attention"))

from attention import TimeAttention, TimeEncoding, Tokens  # noqa: E402


def observe(**keywords) -> Observation:
    return Observation.from_event(fused(**keywords))


@pytest.fixture
def network():
    torch.manual_seed(1)
    return TimeAttention([2, 1], width=16, heads=2).eval()


QUERIES = torch.tensor([[0.0, 0.05, 0.3]])


def see(network, *observations) -> np.ndarray:
    with torch.inference_mode():
        return network(Tokens.of(list(observations)), QUERIES.expand(len(observations), -1)).numpy()


def test_the_times_are_those_of_the_capture():
    """Capture times of the samples are the times of the rows less the ages. The rows are at 80 and 100 ms; the ages are 5 and 1 ms,
    then 30 and 0 ms."""
    tokens = Tokens.of([observe(age_ms=(5, 1, 30, 0))])
    assert np.allclose(tokens.times_s[0], [[-0.025, -0.021], [-0.030, 0]], atol=1e-9)


def test_a_start_in_this_century_costs_no_precision():
    days_ms = 20_000 * 24 * 3600 * 1000
    assert torch.equal(Tokens.of([observe(t_ms=100)]).times_s, Tokens.of([observe(t_ms=100 + days_ms)]).times_s)


def test_the_output_is_that_of_attention_written_out(network):
    """Computes softmax of q k / sqrt(width) over the valid keys and the key that belongs to no sensor, in NumPy."""
    got = observe(valid=(1, 0, 1, 1), age_ms=(5, 1, 30, 0))
    weights = {name: value.detach().double().numpy() for name, value in network.state_dict().items()}
    linear = lambda x, name: x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)  # noqa: E731

    def encode(times):
        angles = np.asarray(times)[..., None] * weights["time.rates"]
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)

    keys = [weights["nothing"][0, 0]]
    for row, time_ms, valid in ((0, (-25, -21), (1, 0)), (1, (-30, 0), (1, 1))):
        for m, name in enumerate(("camera", "force")):
            if valid[m]:
                token = linear(got[name][row].astype(float), f"embed.{m}") + weights["modality"][m]
                keys.append(token + linear(encode(time_ms[m] / 1000), "key_time"))
    key, value = np.split(linear(np.array(keys), "key_value"), 2, axis=1)
    query = linear(encode(QUERIES[0].double().numpy()), "query")
    heads = []
    for head in (slice(0, 8), slice(8, 16)):
        scores = np.exp(query[:, head] @ key[:, head].T / np.sqrt(8))
        heads.append(scores / scores.sum(axis=1, keepdims=True) @ value[:, head])
    assert np.allclose(see(network, got)[0], linear(np.concatenate(heads, axis=1), "out"), atol=1e-5)


def test_what_is_not_valid_is_not_seen(network):
    one = observe(values=(1, 2, 3, 4, 5, 6), valid=(1, 0, 1, 1))
    other = observe(values=(1, 2, 99, 4, 5, 6), valid=(1, 0, 1, 1), age_ms=(5, 70, 5, 1))
    assert np.array_equal(see(network, one), see(network, other))
    assert not np.array_equal(see(network, one), see(network, observe(values=(1, 2, 3, 4, 5, 7), valid=(1, 0, 1, 1))))


def test_an_observation_of_nothing_is_a_number_and_says_the_same(network):
    nothing = see(network, observe(valid=(0,) * 4, age_ms=(-1,) * 4), observe(values=(9,) * 6, valid=(0,) * 4))
    assert np.isfinite(nothing).all() and np.allclose(nothing[0], nothing[1])


def test_a_window_that_is_whole_needs_no_mask(network):
    got = Tokens.of([observe()])
    assert got.whole and not Tokens.of([observe(valid=(1, 0, 1, 1))]).whole
    with torch.inference_mode():
        masked = network(Tokens(got.values, got.times_s, got.valid), QUERIES)
    assert np.allclose(see(network, observe()), masked, atol=1e-6)


def test_irregular_stamps_count(network):
    assert not np.allclose(
        see(network, observe(age_ms=(5, 1, 5, 1))), see(network, observe(age_ms=(5, 1, 25, 1))), atol=1e-4
    )


def test_a_batch_is_its_observations(network):
    one, other = observe(), observe(values=(9, 8, 7, 6, 5, 4), valid=(0, 1, 1, 1))
    assert np.allclose(see(network, one, other), np.concatenate([see(network, one), see(network, other)]), atol=1e-6)


def test_each_sample_once():
    """The same camera sample, of 75 ms, is in the rows at 80 and 100 ms."""
    sent = metadata(age_ms=(5, 1, 25, 1))
    got = Observation.from_message(np.arange(6, dtype=np.float32), sent)
    assert Tokens.of([got]).valid.all()
    assert Tokens.of([got], each_sample_once=True).valid.tolist() == [[[True, True], [False, True]]]


def test_bfloat16_windows():
    sent = fused([0x3F80] * 6, np.uint16)
    sent["metadata"]["dtype"] = "bfloat16"
    assert [part.unique().tolist() for part in Tokens.of([Observation.from_event(sent)]).values] == [[1.0], [1.0]]


def test_the_time_encoding():
    encode = TimeEncoding(bands=2, shortest_s=1.0, longest_s=4.0)
    assert np.allclose(encode(torch.tensor(0.25)), [1, np.sin(np.pi / 8), 0, np.cos(np.pi / 8)], atol=1e-6)
    assert encode.width == 4 and MS == 1_000_000
