"""Global normalisation (REINFORCE++, arXiv 2501.03262): the bias of dividing by the batch's deviation falls with the batch.

In the broken case each group's own deviation divides, whose bias stays.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Evidence, log_log_slope, mean_of

TEXT = "the share of the mean update that is not along the gradient vanishes as one over the batch size"
NEAR = gt.Margin(0.25, "slope -1 is told from 0, no fall, and from -1/2")
VANISHES = gt.Statement("global normalisation/vanishes", "arXiv 2501.03262, global normalisation", TEXT, "rate", margin=NEAR)


@gt.check(VANISHES, cases=[{"kernel": "verl_reinforce_plus_plus_baseline"}], broken={"kernel": "verl_grpo"}, setting="G = 8")
def vanishes(kernel, rng, chunks=100):
    """An easy and a hard prompt: the slope over batch sizes of the part along where a group's deviation leads astray.

    The estimate of Dr. GRPO on the same draws has no such part on average, and is taken off for the noise that both share.
    """
    problem = gt.Problem(gt.Bandit([[0.9, 0.4, 0.4], [0.1, 0.0, 0.0]]), gt.TabularSoftmax(2, 3))
    up, local = gt.exact.gradient(problem), gt.gradient_mean(problem, problem.theta, "grpo", batch_size=1, group_size=8)
    how = {"group_size": 8, "directions": [up, local - (local @ up) / (up @ up) * up], "replications": 1000, "workers": 1}
    parts, pair = [], [kernel, "dr_grpo"]
    for size in (4, 8, 16, 32):
        runs = [gt.simulate_gradients(problem, None, pair, batch_size=size, **how, rng=rng).along for _ in range(chunks)]
        shares = np.array(runs)[:, :, 1] / np.mean(runs, axis=0)[:, 0]
        astray, error, _ = mean_of(shares[:, 0] - shares[:, 1])
        parts.append([size, abs(astray), error])
    slope, error = log_log_slope(*np.transpose(parts))
    return Evidence(slope, -1.0, error, replications=chunks)
