"""Global normalisation (REINFORCE++, arXiv 2501.03262): the bias of dividing by the batch's deviation falls with the batch.

In the broken case each group's own deviation divides, whose bias stays.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Evidence, log_log_slope
from grpo_theory.harness import run

VANISHES = gt.Statement(
    "global normalisation/vanishes",
    "arXiv 2501.03262, global normalisation",
    "the share of the mean update that is not along the gradient vanishes as one over the batch size",
    "rate",
    margin=gt.Margin(0.25, "slope -1 is told from 0, no fall, and from -1/2"),
)
SIZES = (4, 8, 16, 32)


@run(replications=200_000)
def updates(estimator, batch_size, replications, rng):
    """Simulate the mean update along the gradient, and along where dividing by a group's deviation leads astray."""
    problem = gt.Problem(gt.Bandit([[0.9, 0.4, 0.4], [0.1, 0.0, 0.0]]), gt.TabularSoftmax(2, 3))  # an easy and a hard prompt
    up = gt.exact.gradient(problem, problem.theta)
    local = gt.gradient_mean(problem, problem.theta, "grpo", batch_size=1, group_size=8)
    aside = local - (local @ up) / (up @ up) * up
    directions = np.stack([up / np.linalg.norm(up), aside / np.linalg.norm(aside)])
    sizes = {"batch_size": batch_size, "group_size": 8, "replications": replications}
    found = gt.simulate_gradients(problem, problem.theta, estimator, **sizes, rng=rng, workers=1, directions=directions)
    return {"along": found.along, "error": found.along_standard_error, "draws": [replications]}


@gt.check(
    VANISHES,
    of=updates,
    cases=lambda quick: [{"estimator": "verl_reinforce_plus_plus_baseline", "replications": 100_000 if quick else 800_000}],
    each={"batch_size": SIZES},
    broken={"estimator": "verl_grpo"},
    setting="an easy and a hard prompt, groups of 8",
)
def vanishes(found):
    """The slope over batch sizes of the part that is astray, relative to the part along the gradient."""
    along = np.array([found[size]["along"].mean(axis=0) for size in SIZES])
    errors = np.array([np.sqrt((found[size]["error"] ** 2).mean(axis=0) / len(found[size]["error"])) for size in SIZES])
    slope, error = log_log_slope(SIZES, np.abs(along[:, 1]) / along[:, 0], errors[:, 1] / along[:, 0])
    return Evidence(slope, -1.0, error, replications=int(found[SIZES[0]]["draws"].sum()))
