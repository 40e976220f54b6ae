"""Multisets of classes, and the sums over them, against ordered groups."""

from collections import Counter
from itertools import combinations_with_replacement, product
from math import comb, factorial, prod

import numpy as np
import pytest
from enumeration import case
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

import grpo_theory as gt
from grpo_theory.exact.classes import classes
from grpo_theory.exact.multisets import _compiled_sum_moments, _sum_moments, count_multisets, members, multisets
from grpo_theory.exact.outcomes import outcomes


@given(n_classes=st.integers(1, 5), group_size=st.integers(1, 7))
def test_every_multiset_is_listed_once(n_classes, group_size):
    counts = multisets(n_classes, group_size)
    assert len(counts) == comb(group_size + n_classes - 1, group_size) == count_multisets(n_classes, group_size)
    expected = {
        tuple(group.count(r) for r in range(n_classes)) for group in combinations_with_replacement(range(n_classes), group_size)
    }
    assert {tuple(row) for row in counts.tolist()} == expected


@given(n_classes=st.integers(1, 4), group_size=st.integers(1, 6))
def test_members_write_the_counts_out(n_classes, group_size):
    counts = multisets(n_classes, group_size)
    for row, group in zip(counts.tolist(), members(counts).tolist(), strict=True):
        assert group == sorted(group)
        assert Counter(group) == Counter({r: n for r, n in enumerate(row) if n})


def random_sums(n_classes, group_size):
    rng = np.random.default_rng(n_classes)
    p = rng.dirichlet(np.ones(n_classes))
    counts = multisets(n_classes, group_size)
    by_class = rng.normal(size=(len(counts), n_classes))
    advantages = np.take_along_axis(by_class, members(counts), axis=1)
    log_weights = gammaln(group_size + 1.0) - gammaln(counts + 1.0).sum(axis=1)
    return counts, log_weights, np.log(p), advantages, p, by_class


def run(function, counts, log_weights, log_p, advantages):
    n = counts.shape[1]
    out = np.zeros(n), np.zeros((n, n)), np.zeros(n)
    return function(counts, log_weights, log_p, advantages, *out), *out


def test_sums_over_multisets_are_sums_over_ordered_groups():
    counts, log_weights, log_p, advantages, p, by_class = random_sums(3, 4)
    place = {tuple(row): i for i, row in enumerate(counts.tolist())}
    mean, product_, squares, total = np.zeros(3), np.zeros((3, 3)), np.zeros(3), 0.0
    for group in product(range(3), repeat=4):
        n = np.bincount(group, minlength=3)
        a = by_class[place[tuple(n.tolist())]]
        weight = prod(p[list(group)])
        total += weight
        mean += weight * n * a
        product_ += weight * np.outer(n * a, n * a)
        squares += weight * n * a**2
    spread, *found = run(_compiled_sum_moments(), counts, log_weights, log_p, advantages)
    assert total == pytest.approx(1.0, abs=1e-14)
    assert spread == 0.0
    for value, expected in zip(found, (mean, product_, squares), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("n_classes", "group_size"), [(1, 5), (2, 6), (4, 3)])
def test_compiled_sums_agree_with_plain_python(n_classes, group_size):
    arguments = random_sums(n_classes, group_size)[:4]
    plain, compiled = run(_sum_moments, *arguments), run(_compiled_sum_moments(), *arguments)
    assert _compiled_sum_moments().py_func is _sum_moments
    for one, other in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("function", [_sum_moments, _compiled_sum_moments()])
def test_unequal_advantages_within_a_class_are_measured(function):
    counts = np.array([[2, 1]])
    advantages = np.array([[10.0, 15.0, 1.0]])
    spread, *_ = run(function, counts, np.array([np.log(3.0)]), np.log([0.5, 0.5]), advantages)
    assert spread == 0.5


def test_multinomial_weights():
    counts = multisets(3, 5)
    log_weights = random_sums(3, 5)[1]
    exact = [factorial(5) / prod(map(factorial, row)) for row in counts.tolist()]
    np.testing.assert_allclose(np.exp(log_weights), exact, rtol=1e-12)


def test_classes_join_what_a_kernel_cannot_tell_apart():
    c = case("tabular", "binary")
    table = outcomes(c.bandit, c.policy, c.theta)
    by_reward = classes(table, 0, frozenset({"rewards"}))
    assert by_reward.rewards.tolist() == [0.0, 1.0]
    assert np.isnan(by_reward.squared_score_norms).all()
    pi, success = table.policy_probabilities[0], np.array([0.0, 0.3, 0.8])
    np.testing.assert_allclose(by_reward.probabilities, [pi @ (1 - success), pi @ success], rtol=1e-14)
    np.testing.assert_allclose(by_reward.responses[1], pi * success / (pi @ success), rtol=1e-14)
    nothing = classes(table, 0, frozenset())
    np.testing.assert_allclose(nothing.responses, [pi], rtol=1e-14)
    everything = classes(table, 0, frozenset(gt.Batch._fields))
    assert everything.probabilities.size == 5  # three responses, two rewards, one of them impossible
    assert everything.probabilities.sum() == pytest.approx(1.0, abs=1e-15)
