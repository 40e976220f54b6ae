"""Hidden biases (arXiv 2601.05002, property (ii)): with Adam, training is insensitive to the scale of rewards.

Runs with rewards a hundred times as large see the same draws. In the broken case plain ascent trains.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import mean_of

TEXT = "with Adam, rewards a hundred times as large end within a thousandth of the same success (rloo, 60 updates)"
SAME = gt.Statement("hidden biases/Adam", "arXiv 2601.05002, property (ii)", TEXT, "upper bound")
HOW = {"batch_size": 8, "group_size": 4, "steps": 60, "replications": 1024, "workers": 1}


@gt.check(SAME, cases=[{"optimiser": "Adam", "step": 0.05}], broken={"optimiser": "SGD", "step": 0.5}, setting="tabular")
def same(optimiser, step, rng):
    """The mean distance over pairs of runs, with its error."""
    tabular, bandit, ends = gt.gallery.problem("tabular"), gt.gallery.problem("tabular").bandit, []
    how = HOW | {"rng": int(rng.integers(2**62)), "optimiser": getattr(gt, optimiser)()}
    for scale in (1.0, 100.0):
        problem = gt.Problem(gt.Bandit.from_law(scale * bandit.values, bandit.probabilities), tabular.policy, theta=tabular.theta)
        ends.append(gt.simulate_training(problem, None, "rloo", gt.Constant(step), **how).objectives[:, -1] / scale)
    return mean_of(np.abs(ends[0] - ends[1])), 1e-3
