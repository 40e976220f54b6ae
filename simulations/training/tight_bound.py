"""U8: the bound where it is nearly tight, with the printed schedule.

There is one direction, curvature and noise change little over the ball, and epsilon is small. In the control the noise of the
bound is half of what it should be.
"""

from functools import cache, partial
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import evidence, summary
from grpo_theory.exact import largest_error, longest_estimate, region
from grpo_theory.harness import check, run
from grpo_theory.theory import harmonic_step_bound
from grpo_theory.theory.suboptimality import first_index
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.grid import doubling

PROBLEM = "one direction"
ESTIMATOR = "rloo"
SIZES: dict[str, Any] = {"batch_size": 1, "group_size": 4}
WRONG_SIZES = {"batch_size": 2, "group_size": 4}
"""The control's M is that of batches twice as large: half of what it should be."""
RADIUS, START = 0.1, 0.9
EPSILON = 0.1
FACTOR = 2.0
"""beta mu: the mean gap has forgotten its start after some hundred steps."""
STEPS, OFFSETS = 1024, (0, 16)
CONSTANTS = ("L", "mu", "M", "M of the control", "steepest ray")
"""Over the ball, as the facts of a claim call them."""
RUNS = 8192


def cases(quick):
    """The schedule as printed, beta/i, and with an offset."""
    settings = {"epsilon": EPSILON, "factor": FACTOR, "steps": STEPS, "runs": RUNS}
    return [settings | {"offset": offset} for offset in OFFSETS]


def label(offset, **_):
    """Return the problem and the schedule."""
    return f"{PROBLEM} ({ESTIMATOR}), beta/{f'(i + {offset})' if offset else 'i'}"


noise_of = partial(largest_error, estimator=ESTIMATOR, radius=RADIUS)
"""M over a ball."""


@cache
def one_direction():
    """Return a prompt with two responses and a strong penalty, its maximiser and the maximum."""
    kl = gt.KL(0.5, np.full((1, 2), 0.5))
    problem = gt.Problem(gt.Bandit([[0.6, 0.5]]), gt.TabularSoftmax(1, 2), kl=kl, theta=np.zeros(2), name=PROBLEM)
    best = gt.find_optimum(problem, problem.theta)
    return problem, best, float(gt.objective(problem, best))


@cache
def surroundings(factor, epsilon, offset):
    """Return the constants over the ball, enlarged by the longest step that the induction uses, and beta.

    Up to the index n_0 the bound is at least the highest gap of the ball, whatever the steps. So L need not reach further than
    the step at n_0 does. As n_0 grows with L, it is taken from the L of the ball alone, the least it can be.
    """
    problem, best, _ = one_direction()
    ball = region(problem, best, radius=RADIUS, reach=1e-6)
    beta = factor / ball.pl
    first = max(first_index(2.0 * ball.pl * beta, ball.smoothness * ball.pl * beta**2, epsilon), 1 + offset)
    reach = beta / first * longest_estimate(problem, best, radius=RADIUS)
    return region(problem, best, radius=RADIUS, reach=reach), beta


@run()
def trained(epsilon, factor, offset, steps, runs, rng):
    """Train from near the edge of the ball, projected onto it; return the gaps and the bounds.

    The second of these has a noise that is too small.
    """
    problem, best, highest = one_direction()
    ball, beta = surroundings(factor, epsilon, offset)
    start = best + START * RADIUS * gt.exact.check_optimum(problem, best)[1][:, 0]
    sizes = SIZES | {"steps": steps, "replications": runs, "checkpoints": doubling(steps), "workers": 1}
    where = problem, start, ESTIMATOR, gt.Harmonic(beta, offset)
    training = gt.simulate_training(*where, **sizes, rng=seed_of(rng), ball=gt.Ball(best, RADIUS))
    n, noises = np.array(doubling(steps)), [noise_of(problem, best, **one) for one in (SIZES, WRONG_SIZES)]
    return {
        "gap": highest - training.objectives,
        "bounds": [harmonic_step_bound(ball, M, beta, n, offset=offset, epsilon=epsilon) for M in noises],
        "constants": dict(zip(CONSTANTS, (ball.smoothness, ball.pl, *noises, ball.steepest_ray), strict=True)),
    }


@check(*stated("U8/printed", "U8"), of=trained, cases=cases, broken={"noise": 1}, setting=label)
def bounds(found, offset, noise=0):
    """The bound at the checkpoint where it comes nearest to failing, the level shared; broken: half of the noise."""
    bound = found["bounds"][noise]
    ratios = [evidence(summary(ratio), 1.0, comparisons=bound.size) for ratio in (found["gap"] / bound).T]
    facts = {name: value[0] for name, value in found["constants"].items()}
    facts["bound over gap at the end"] = found["bounds"][0, -1] / found["gap"][:, -1].mean()
    nearest = max(ratios, key=lambda one: (one.estimate - 1.0) / one.standard_error)
    return {"U8" if offset else "U8/printed": (nearest, facts)}
