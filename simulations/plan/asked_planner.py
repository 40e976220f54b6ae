"""The planner as those who name their estimator ask it, with a log and with one that says nothing."""

from dataclasses import replace

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Integers
from grpo_theory.plan import Limits, choose_group_size
from grpo_theory.plan.efficiency import choose_by_efficiency
from grpo_theory.plan.estimator_advice import EstimatorLaws

PLANNED, PERMUTED, CONTROL = "planned", "permuted", "control"
"""The planner with a log, with one whose rewards are permuted, and with its recommendation multiplied."""
LOGGED, LEVEL = 8, 0.95
"""The logged responses to a prompt, and the planner's level."""


def permuted(log: gt.RaggedRollouts, rng: np.random.Generator) -> gt.RaggedRollouts:
    """Return a log whose rewards are permuted over all its responses: its sketches say nothing of them."""
    return gt.RaggedRollouts(log.index, rng.permutation(log.rewards), log.known_scores)


def nearest(sizes: Integers, asked: int) -> int:
    """Return the one of some sizes that is nearest to a size, in octaves."""
    return int(sizes[np.abs(np.log2(sizes / asked)).argmin()])


def plan(log: gt.RaggedRollouts, estimator: str, limits: Limits) -> int:
    """Return the group size that the planner recommends to who names the estimator."""
    if estimator in ("rloo", "dr_grpo"):
        return choose_group_size(log, limits, LEVEL).group_size
    law = EstimatorLaws(log, limits, None).of(gt.estimators()[estimator])
    assert law is not None
    batches = replace(limits, max_group_size=LOGGED).batches()[1]
    return choose_by_efficiency(law, batches, LEVEL).group_size
