"""Multisets of classes, and the sums over them, against ordered groups."""

from itertools import combinations_with_replacement, product
from math import comb, prod

import numpy as np
import pytest
from enumeration import case
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

import grpo_theory as gt
from grpo_theory.exact.multisets import (
    UNREAD,
    add_moments,
    advantage_table,
    classes,
    count_multisets,
    multiset_lines,
    multisets,
    outcome_table,
)


@given(n_classes=st.integers(1, 5), group_size=st.integers(1, 7))
def test_every_multiset_is_listed_once(n_classes, group_size):
    counts = multisets(n_classes, group_size)
    assert len(counts) == comb(group_size + n_classes - 1, group_size) == count_multisets(n_classes, group_size)
    expected = {
        tuple(group.count(r) for r in range(n_classes)) for group in combinations_with_replacement(range(n_classes), group_size)
    }
    assert {tuple(row) for row in counts.tolist()} == expected


LOOK = np.array([1, 0, 1])
"""Three prompts that have two looks."""


def run(function, counts, log_weights, log_p, features):
    shape = features.shape[2:]
    sums = np.zeros((3, *shape)), np.zeros((3, *shape, *shape)), np.zeros((3, *shape, shape[1]))
    function(counts, log_weights, log_p, LOOK, features, *sums)
    return sums


@pytest.mark.parametrize("n_features", [1, 3])
def test_sums_over_multisets_are_sums_over_ordered_groups(n_features):
    rng, counts = np.random.default_rng(3), multisets(3, 4)
    log_p, features = np.log(rng.dirichlet(np.ones(3), size=3)), rng.normal(size=(2, len(counts), 3, n_features))
    arguments = counts, gammaln(5.0) - gammaln(counts + 1.0).sum(axis=1), log_p, features
    place = {tuple(row): i for i, row in enumerate(counts.tolist())}
    total, (mean, products, squares) = np.zeros(3), (np.zeros_like(found) for found in run(add_moments, *arguments))
    for (m, look), group in product(enumerate(LOOK), product(range(3), repeat=4)):
        n = np.bincount(group, minlength=3)
        x = features[look, place[tuple(n.tolist())]]
        weight = prod(np.exp(log_p[m, list(group)]))
        total[m] += weight
        within = n[:, None] * x
        mean[m] += weight * within
        products[m] += weight * np.multiply.outer(within, within)
        squares[m] += weight * n[:, None, None] * x[:, :, None] * x[:, None, :]
    np.testing.assert_allclose(total, 1.0, atol=1e-14)
    for function in (add_moments, getattr(add_moments, "py_func", add_moments)):
        for value, expected in zip(run(function, *arguments), (mean, products, squares), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)


def test_classes_join_what_a_kernel_cannot_tell_apart():
    c = case("tabular", "binary")
    point = c.problem.at(c.theta)
    seen = outcome_table(point, gt.estimators()["rloo"].kl)
    by_reward = classes(point, seen, frozenset({"rewards"}))[0]
    assert by_reward.prompts[0] == 0
    rewards, *others = by_reward.fields[:, 0]
    assert rewards.tolist() == [0.0, 1.0]
    assert np.isnan(others).all()
    pi, success = point.probabilities[0], np.array([0.0, 0.3, 0.8])
    np.testing.assert_allclose(by_reward.probabilities[0], [pi @ (1 - success), pi @ success], rtol=1e-14)
    np.testing.assert_allclose(by_reward.responses[0, 1], pi * success / (pi @ success), rtol=1e-14)
    nothing = classes(point, seen, frozenset())[0]
    np.testing.assert_allclose(nothing.responses[0], [pi], rtol=1e-14)
    everything = next(one for one in classes(point, seen, frozenset(gt.Batch._fields)) if 0 in one.prompts)
    place = everything.prompts.tolist().index(0)
    assert everything.probabilities.shape[1] == 5  # three responses, two rewards, one of them impossible
    assert everything.probabilities[place].sum() == pytest.approx(1.0, abs=1e-15)
    assert everything.fields[2, place].tolist() == [1.0] * 5


def test_each_multiset_has_a_line_of_its_own():
    kernel = gt.estimators()["rloo"].advantage
    for n_values, group_size in ((2, 5), (3, 4), (5, 6)):
        counts = multisets(n_values, group_size)
        lines = multiset_lines(counts, advantage_table(kernel, tuple(map(float, range(n_values))), group_size, UNREAD).ranks)
        assert sorted(lines) == list(range(len(counts)))


def test_a_table_is_made_of_what_it_knows_where_it_is_small():
    values, one, many = (0.0, 1.0), ((0.5,),) * 3, ((0.5,) * 1009,) * 3
    oracle, left_out = (gt.estimators()[name].advantage for name in ("oracle", "optimal_loo"))
    assert advantage_table(oracle, values, 64, one).advantages.shape == (1, 65, 2)
    assert advantage_table(oracle, values, 64, many) is None  # 1,009 prompts, 65 groups, 64 responses are above 2^22
    assert advantage_table(left_out, values, 4, one) is None
