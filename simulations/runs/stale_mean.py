"""P7: what a stale rollout does to the mean update, exactly.

Let responses have one token and advantages add up to 0 in each group. An update without ratio is then that of the policy that
sampled: stale rollouts only delay the gradient. With the ratio of the whole response the leave-one-out mean is unbiased however
old the rollout. Each is checked on the gallery's problems, at 24 random moves of the policy. The table has the largest
difference. In the controls no mean is subtracted, or the response's own reward is in the mean.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.sequence.parts import composed
from simulations.statements import stated

ONE_TOKEN, SEQUENCES = ("tabular", "linear", "mixed", "conflict"), ("sequence-tabular", "sequence-shared")
CENTRED = ("rloo", "dr_grpo", "grpo")
GROUP_SIZE, APART = 4, 0.7
"""The standard deviation by which a parameter has moved since the rollout was sampled: ratios of 1/2 and 2 are usual."""
MOVES, SEED = 24, 7


def apart(problem, updates, wanted):
    """Return the largest difference from what is wanted at each of some moves of the policy, in lengths of the gradient."""
    problem, rng = gt.gallery.problem(problem), np.random.default_rng(SEED)
    moves = problem.theta + APART * rng.standard_normal((MOVES, problem.theta.size))
    gradients = np.array([gt.moments(problem, now).gradient for now in moves])

    def mean(at):
        how = {"batch_size": 1, "group_size": GROUP_SIZE, "behaviour": problem.theta}
        return gt.gradient_mean(problem, at, updates, **how)

    target = gradients if wanted == "gradient" else mean(problem.theta)
    return np.abs([mean(now) for now in moves] - target).max(axis=1) / np.linalg.norm(gradients, axis=1)


@check(
    stated("P7/delay"),
    cases=[{"problem": name, "estimator": estimator} for name in ONE_TOKEN for estimator in CENTRED],
    broken={"estimator": "reinforce"},
    setting="{problem} ({estimator})",
)
def delayed(problem, estimator):
    """Without ratio the update is that of the policy that sampled; broken: no mean is subtracted."""
    return apart(problem, estimator, "own"), 0.0


@check(
    stated("P7/whole ratio"),
    cases=[{"problem": name} for name in (*ONE_TOKEN, *SEQUENCES)],
    broken={"advantage": "dr_grpo"},
    setting="{problem}",
)
def unbiased(problem, advantage="rloo"):
    """With the whole ratio the update is the gradient; broken: the response's own reward is in the mean."""
    return apart(problem, composed(advantage, "trajectory"), "gradient"), 0.0
