"""`gt.advantages`: ragged groups, several rewards, and what it refuses."""

from functools import partial

import numpy as np
import pytest
from test_trainers import ADVANTAGES, transcriptions

import grpo_theory as gt

COUPLED = [name for name in ADVANTAGES if gt.estimators()[name].couples_groups]
SIZES = (3, 8, 2, 5, 8)


def ragged(seed=0):
    """Return groups of graded rewards, and lengths of the responses."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=n) for n in SIZES], [rng.integers(1, 9, n) for n in SIZES]


@pytest.mark.parametrize("name", [name for name in ADVANTAGES if name not in COUPLED])
def test_groups_of_any_sizes_get_what_the_sources_say(name):
    rewards, lengths = ragged()
    found = gt.advantages(rewards, name, lengths=lengths)
    assert [a.size for a in found] == list(SIZES)
    for z, n, a in zip(rewards, lengths, found, strict=True):
        np.testing.assert_allclose(a, transcriptions(np.stack([z, z]), np.stack([n, n]))[name][0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", COUPLED)
def test_a_convention_of_the_whole_batch_sees_it_whole(name):
    rng = np.random.default_rng(1)
    z, n = rng.integers(0, 3, (4, 3)).astype(float), rng.integers(1, 9, (4, 3))
    expected = transcriptions(z, n)[name]
    np.testing.assert_allclose(gt.advantages(list(z), name, lengths=list(n)), expected, rtol=1e-9, atol=1e-12)
    one = gt.advantages(list(z[:1]), name, lengths=list(n[:1]))
    assert np.abs(one[0] - expected[0]).max() > 1e-3, "the control: a group by itself gets something else"


def test_rows_of_a_group_need_not_be_neighbours():
    rewards, _ = ragged()
    ids = np.repeat(["a", "b", "c", "d", "e"], SIZES)
    flat = np.concatenate(rewards)
    order = np.random.default_rng(2).permutation(flat.size)
    found = gt.advantages(flat[order], "trl_grpo", groups=ids[order])
    expected = np.concatenate(gt.advantages(rewards, "trl_grpo"))[order]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)  # sums in another order
    wrong = gt.advantages(flat[order], "trl_grpo", groups=ids)
    assert np.abs(wrong - found).max() > 0.1, "the control: ids in another order than the rewards"


def test_what_cannot_be_computed_is_refused_in_words(check_refused):
    given, uneven, pair = partial(partial, gt.advantages), [[1.0], [0.0, 1.0]], [[1.0, 0.0]]
    check_refused(
        (given([1.0, 0.0], "rloo"), "groups must have one id per reward"),
        (given(uneven, "rloo"), "at least 2 responses for estimator 'rloo', and 1 group of 2 have fewer"),
        (given(uneven, "trl_grpo_batch"), "must have one size for estimator 'trl_grpo_batch'.*got sizes 1 to 2"),
        (given(pair, "oracle"), "the kernel of 'oracle' reads values of the policy too"),
        (given(pair, "verl_opo"), "lengths must be given for estimator 'verl_opo'"),
        (given([[1e200, -1e200, 0.0]], "trl_grpo"), r"rewards\[0\] must lie in"),
        (given(pair, "rlo"), "must be one of rloo, "),
        (given(pair, "rloo", weights={"a": 1.0}), "weights must be left out"),
        (given({"a": pair}, "rloo", weights={"b": 1.0}), "weights must be one of a, got 'b'"),
        (given({"a": [[1.0, None]], "b": [[0.0, None]]}, "rloo"), "none has one for response 1"),
    )
