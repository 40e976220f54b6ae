"""Gains of tokens on policy, where nothing is compiled, against those of any pair of policies."""

import numpy as np
import pytest
from dense import token_case

import grpo_theory as gt
from grpo_theory.estimation import Clip
from grpo_theory.estimation.parts import AGGREGATIONS, CLIPS, RATIOS
from grpo_theory.exact.weights import gains_of, gains_on_policy


def upper_half(ratios, length, positive, widths, weights):
    """Write what is kept alone: nothing for advantages that are not positive."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            if positive and ratios[t, i] <= 1.0 + widths[1]:
                weights[t, i] = ratios[t, i]


@pytest.mark.parametrize("clip", [*CLIPS.values(), Clip("upper half", upper_half)], ids=lambda clip: clip.name)
@pytest.mark.parametrize("ratio", RATIOS)
def test_gains_on_policy_are_those_of_a_policy_and_itself(ratio, clip, registry):
    paths = token_case("tree").policy.paths
    assert len(set(paths.lengths.tolist())) > 1
    for aggregation in AGGREGATIONS:
        found = gt.compose("composed_for_one_test", advantage="rloo", ratio=ratio, clip=clip, aggregation=aggregation)
        registry.pop("composed_for_one_test")
        expected = gains_of(found, paths, np.zeros((paths.n_logits, 3)))
        np.testing.assert_array_equal(gains_on_policy(found, paths, 3), expected)
