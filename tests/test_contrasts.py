"""With binary rewards a kernel is two numbers: checked on every group of a size, and on the kernels of the package."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.compiler.lanes import WIDTH
from grpo_theory.exact.multisets import UNREAD, advantage_table
from grpo_theory.simulate.covector.combinations import combine
from grpo_theory.simulate.covector.contrasts import binary_weights, make_contrasts

BINARY = np.array([0.0, 1.0])
GROUP_SIZE = 5
PROBABILITIES = np.array([0.2, 0.5, 0.3])


def table_of(name, group_size, fields=UNREAD, values=(0.0, 1.0)):
    return advantage_table(gt.estimators()[name].advantage, values, group_size, fields).advantages


def owners_of(contrasts, columns):
    rows, weights = np.empty((1, 1, 1, WIDTH)), np.empty((1, 1, contrasts.n_columns, WIDTH))
    return combine(rows, weights, columns).owners


def covectors(advantages, difference, mean):
    """The covector of every group of GROUP_SIZE outcomes: as it is defined, and from the two numbers of n_0."""
    by_definition, from_parts = [], []
    for outcomes in product(range(6), repeat=GROUP_SIZE):
        responses, rewards = np.divmod(outcomes, 2)
        low = int((rewards == 0).sum())
        scores = np.eye(3)[responses] - PROBABILITIES
        by_definition.append(advantages[low, rewards] @ scores / GROUP_SIZE)
        counts = np.bincount(responses, minlength=3)
        right = np.bincount(responses[rewards == 1], minlength=3)
        contrast = GROUP_SIZE * right - (GROUP_SIZE - low) * counts
        from_parts.append(difference[low] * contrast + mean[low] * (counts - GROUP_SIZE * PROBABILITIES))
    return np.array(by_definition), np.array(from_parts)


def test_every_kernel_is_a_contrast_and_a_mean():
    """Any advantages at all, on all 6^5 groups; without the mean it is another estimate."""
    rng = np.random.default_rng(1)
    advantages = rng.normal(size=(GROUP_SIZE + 1, 2))
    difference, mean = binary_weights(advantages[None], BINARY)[0].T
    by_definition, from_parts = covectors(advantages, difference, mean)
    np.testing.assert_allclose(from_parts, by_definition, rtol=0, atol=1e-15)
    _, without = covectors(advantages, difference, 0.0 * mean)
    assert np.abs(without - by_definition).max() > 0.1


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 1.0), (0.1, 0.7), (0.0, 0.3), (1.0, 1.1)])
@pytest.mark.parametrize("name", ["rloo", "grpo", "dr_grpo"])
def test_a_kernel_whose_advantages_have_mean_0_is_its_difference_alone(name, values):
    """What rounding leaves of the mean is taken for 0, and a mean of 10^-9 is not."""
    for group_size in [*range(2, 130), 192, 384, 777, 2000]:
        table = table_of(name, group_size, values=values)
        weights = binary_weights(table, np.array(values))
        assert not weights[..., 1].any(), group_size
        assert weights[0, 1:-1, 0].all()
        assert (weights[0, [0, -1]] == 0.0).all()
        raised = binary_weights(table + 1e-9 * np.abs(table).max(), np.array(values))
        assert raised[0, :, 1].all()


def test_columns_that_estimators_share_are_one():
    """The baselines' kernels differ by their means, which depend on the prompt for an oracle's and not for REINFORCE."""
    fields = ((0.3, 0.6), (0.4, 0.5), (0.2, 0.1))
    tables = [table_of("rloo", 4), table_of("reinforce", 4), table_of("oracle", 4, fields), table_of("optimal", 4, fields)]
    weights = [binary_weights(table, BINARY) for table in tables]
    contrasts, columns = make_contrasts(weights)
    owners = owners_of(contrasts, columns)
    assert columns[0, 1] == -1
    assert len({tuple(columns[e, :1]) for e in (1, 2, 3)}) == 1
    assert len(np.unique(columns)) == 6, "two differences, three means, and none"
    shared = contrasts.shared.rows
    np.testing.assert_array_equal(shared[:, 0], [4.0, 3.0, 2.0, 1.0, 0.0])
    everything = np.concatenate([np.tile(shared, (2, 1)), contrasts.by_prompt], axis=1).reshape(2, 5, -1)
    for one, places in zip(weights, columns, strict=True):
        for part, place in enumerate(places):
            if place >= 0:
                assert owners[place] == part
                np.testing.assert_array_equal(everything[..., place], np.broadcast_to(one[..., part], (2, 5)))
            else:
                assert not one[..., part].any()


def test_columns_of_different_parts_are_two():
    """One kernel's difference is another's mean, number by number."""
    numbers = np.array([0.0, 0.5, 0.25, 0.0])
    weights = [np.stack([numbers, 0.0 * numbers], axis=-1)[None], np.stack([2.0 * numbers, numbers], axis=-1)[None]]
    contrasts, columns = make_contrasts(weights)
    owners = owners_of(contrasts, columns)
    assert columns[0, 0] != columns[1, 1]
    np.testing.assert_array_equal(contrasts.shared.rows[:, columns[0, 0]], contrasts.shared.rows[:, columns[1, 1]])
    assert owners[columns[0, 0]] == 0
    assert owners[columns[1, 1]] == 1
