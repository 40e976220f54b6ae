"""Hidden biases (arXiv 2601.05002, property (ii)): with Adam, training is insensitive to the scale of rewards.

Runs with rewards a hundred times as large see the same draws. In the broken case plain ascent trains.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of
from grpo_theory.harness import run

SAME = gt.Statement(
    "hidden biases/Adam",
    "arXiv 2601.05002, property (ii)",
    "with Adam, rewards a hundred times as large end within a thousandth of the same success (rloo, 60 updates)",
    "upper bound",
)
OPTIMISERS = {"adam": (gt.Adam(), 0.05), "sgd": (gt.SGD(), 0.5)}


@run(runs=256)
def trained(optimiser, runs, rng):
    """Train with both scales on the same draws; return success at the end."""
    tabular, seed, ends = gt.gallery.problem("tabular"), int(rng.integers(2**62)), {}
    chosen, step = OPTIMISERS[optimiser]
    for scale in (1.0, 100.0):
        bandit = gt.Bandit.from_law(tabular.bandit.values * scale, tabular.bandit.probabilities)
        problem = gt.Problem(bandit, tabular.policy, theta=tabular.theta)
        sizes = {"batch_size": 8, "group_size": 4, "steps": 60, "replications": runs}
        found = gt.simulate_training(
            problem, problem.theta, "rloo", gt.Constant(step), **sizes, rng=seed, workers=1, optimiser=chosen, checkpoints=[60]
        )
        ends[f"{scale:g}"] = found.objectives[:, -1] / scale
    return ends


@gt.check(SAME, of=trained, cases=[{"optimiser": "adam", "runs": 1024}], broken={"optimiser": "sgd"}, setting="tabular")
def same(found):
    """The mean distance over pairs of runs, with its error."""
    return mean_of(np.abs(found["1"] - found["100"])), 1e-3
