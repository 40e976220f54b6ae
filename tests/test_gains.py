"""Gains of tokens on policy, where nothing is compiled, against those of any pair of policies."""

import numpy as np
import pytest
from dense import token_case

import grpo_theory as gt
from grpo_theory.estimation import Clip
from grpo_theory.estimation.aggregation import AGGREGATIONS
from grpo_theory.estimation.ratio import CLIPS, RATIOS
from grpo_theory.exact.score_moments import gains_of, gains_on_policy


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


def test_a_clip_that_writes_only_what_it_keeps_is_the_same_by_either_way(registry):
    problem = gt.gallery.problem("linear")
    found = gt.compose("composed_for_one_test", advantage="rloo", ratio="token", clip=Clip("upper half", upper_half))
    sizes = {"batch_size": 2, "group_size": 4}
    one = gt.gradient_mse(problem, problem.theta, found, **sizes)
    other = gt.gradient_mse(problem, problem.theta, found, behaviour=problem.theta.copy(), **sizes)
    assert one == pytest.approx(other, rel=1e-12)
    assert one != pytest.approx(gt.gradient_mse(problem, problem.theta, "rloo", **sizes), rel=0.1)
