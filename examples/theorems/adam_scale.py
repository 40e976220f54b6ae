"""Hidden biases (arXiv 2601.05002, property (ii)): with Adam, training is insensitive to the scale of rewards.

Runs with rewards a hundred times as large see the same draws. In the broken case plain ascent trains.
"""

import grpo_theory as gt

TEXT = "with Adam, rewards a hundred times as large end within a thousandth of the same success (rloo, 60 updates)"
SAME = gt.Statement("hidden biases/Adam", "arXiv 2601.05002, property (ii)", TEXT, "upper bound")
HOW = {"batch_size": 8, "group_size": 4, "steps": 60, "replications": 1024, "workers": 1}


@gt.check(SAME, cases=[{"optimiser": "Adam", "step": 0.05}], broken={"optimiser": "SGD", "step": 0.5}, setting="tabular")
def same(optimiser, step, rng):
    """The mean distance over pairs of runs, with its error."""
    own, how = gt.gallery.problem("tabular"), HOW | {"rng": int(rng.integers(2**62)), "optimiser": getattr(gt, optimiser)()}
    both = [gt.Problem(gt.Bandit.from_law([0.0, s], own.bandit.probabilities), own.policy, theta=own.theta) for s in (1.0, 100.0)]
    ends = [gt.simulate_training(one, None, "rloo", gt.Constant(step), **how).objectives[:, -1] for one in both]
    return gt.evidence.mean_of(abs(ends[0] - ends[1] / 100.0)), 1e-3
