"""Kernels as tables, as coefficients and as contrasts: what a kernel is decides how its advantages are found."""

from itertools import product

import numpy as np
import pytest
from enumeration import NAMED
from runs_by_hand import cubed, of_a_user, placed

import grpo_theory as gt
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.exact.multisets import UNREAD, advantage_table, can_be_tabulated, multiset_ranks
from grpo_theory.simulate.advantage.route import CALLED, IN_ORDER, TABLE, route_in_training
from grpo_theory.simulate.covector.contrasts import binary_weights


def advantages_of(advantage, rewards, fields=UNREAD):
    """Run a kernel as plain Python on groups (B, G)."""
    batch = gt.Batch(
        rewards, np.ones_like(rewards), np.ones(rewards.shape, dtype=np.int64), *map(np.array, fields), advantage.parameter_array
    )
    found = np.empty_like(rewards)
    advantage.function(batch, found)
    return found


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("group_size", [2, 5])
def test_coefficients_are_those_of_the_kernel(name, group_size):
    """On random rewards and fields; what is not affine has no coefficients."""
    advantage, rng = gt.estimators()[name].advantage, np.random.default_rng(4)
    found = affine_coefficients(advantage, group_size)
    assert (found is not None) == (name in {"reinforce", "oracle", "optimal", "rloo", "dr_grpo"})
    if found is not None:
        rewards, fields = rng.normal(size=(7, group_size)), rng.normal(size=(3, 7))
        expected = found[0] * rewards + (found[1] * rewards.sum(axis=1) + found[2:5] @ fields + found[5])[:, None]
        np.testing.assert_allclose(advantages_of(advantage, rewards, fields), expected, atol=1e-13)


@pytest.mark.parametrize(("kernel", "alike"), [(cubed, 1), (placed, 0)])
def test_what_a_kernel_does_decides_its_path(kernel, alike, registry):
    found, (plain, penalised) = of_a_user(kernel), (gt.gallery.problem(name) for name in ("linear", "kl-linear"))
    assert affine_coefficients(found.advantage, 4) is None
    chosen = route_in_training(penalised, found, 4)
    assert chosen.is_called
    assert chosen.kind == (CALLED if alike else IN_ORDER)
    assert (route_in_training(plain, found, 4).kind == TABLE) == alike


@pytest.mark.parametrize("name", ["reinforce", "rloo", "dr_grpo", "grpo"])
@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 0.5, 2.0]])
def test_a_table_has_a_place_for_each_multiset_and_holds_the_kernels_advantages(name, values):
    advantage, values, group_size = gt.estimators()[name].advantage, np.array(values), 4
    table, places = advantage_table(advantage, tuple(values), group_size, UNREAD), {}
    for rewards in product(range(values.size), repeat=group_size):
        reached = np.cumsum(np.bincount(rewards, minlength=values.size))[:-1]
        place = int(sum(table.ranks[level, s] for level, s in enumerate(reached)))
        places.setdefault(place, set()).add(tuple(sorted(rewards)))
        expected = advantages_of(advantage, values[list(rewards)][None])[0]
        np.testing.assert_allclose(table.advantages[0, place, list(rewards)], expected, atol=1e-14)
    assert sorted(places) == list(range(table.advantages.shape[1]))
    assert all(len(one) == 1 for one in places.values())
    np.testing.assert_array_equal(table.ranks, multiset_ranks(values.size, group_size))


def test_a_table_that_would_be_too_large_or_that_the_kernel_does_not_have_is_not_made():
    rloo, oracle = (gt.estimators()[name].advantage for name in ("rloo", "oracle"))
    assert can_be_tabulated(rloo, 2, 1000, 1)
    assert not can_be_tabulated(rloo, 6, 64, 1)
    assert advantage_table(rloo, tuple(range(6)), 64, UNREAD) is None
    one_prompt, five_prompts = (tuple((0.5,) * prompts for _ in range(3)) for prompts in (1, 5))
    assert advantage_table(oracle, (0.0, 1.0), 1000, one_prompt) is not None
    assert advantage_table(oracle, (0.0, 1.0), 1000, five_prompts) is None
    assert advantage_table(gt.estimators()["optimal_loo"].advantage, (0.0, 1.0), 4, UNREAD) is None


def test_with_binary_rewards_every_kernel_is_a_contrast_and_a_mean():
    """Any advantages at all, on all 6^5 groups: c = D h + A W; without the mean it is another estimate."""
    rng, size, pi = np.random.default_rng(1), 5, np.array([0.2, 0.5, 0.3])
    advantages, apart = rng.normal(size=(size + 1, 2)), 0.0
    difference, mean = binary_weights(advantages[None], np.array([0.0, 1.0]))[0].T
    for outcomes in product(range(6), repeat=size):
        responses, rewards = np.divmod(outcomes, 2)
        low, counts = int((rewards == 0).sum()), np.bincount(responses, minlength=3)
        expected = advantages[low, rewards] @ (np.eye(3)[responses] - pi) / size
        # h_k = G n_1k - n_1 n_k and W_k = n_k - G pi_k
        contrast = size * np.bincount(responses[rewards == 1], minlength=3) - (size - low) * counts
        np.testing.assert_allclose(difference[low] * contrast + mean[low] * (counts - size * pi), expected, rtol=0, atol=1e-15)
        apart = max(apart, np.abs(difference[low] * contrast - expected).max())
    assert apart > 0.1
