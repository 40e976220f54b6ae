"""U11: when the limit law of the gap has set in, and how near it is to a normal law, exact.

In the controls exponents are a third larger, and the skewness is 3% larger.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

import grpo_theory as gt
from grpo_theory.evidence import Evidence, log_log_slope
from grpo_theory.exact import check_optimum
from grpo_theory.harness import check, run
from grpo_theory.theory import Linearisation, gap_recursion, leave_one_out_covariance, limit_covariance
from simulations.limit.gap_weights import law_of_noise
from simulations.maximum import maximum
from simulations.statements import stated

U11_TRANSIENT, U11_SKEWNESS, U11_COMPARABLE = stated("U11/transient", "U11/skewness", "U11/comparable")

CROWDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of prompts."""
SLOW = [{"problem": problem, "factor": factor} for problem in ("kl-tabular", "conflict") for factor in (0.6, 0.75, 1.0)]
STEPS, OFFSET = 1 << 13, 512
SLACK = 0.15
"""Of an exponent, as a share of it: it distinguishes n^-1 from n^-2."""
LARGER = {"larger": 4.0 / 3.0}


@run()
def crowds():
    """The largest distance of the standardised law from the normal, and what its skewness predicts, by the number of prompts."""
    points, found = np.linspace(-3.0, 4.0, 701), []
    for prompts in CROWDS:
        problem = gt.gallery.crowd(prompts)
        best = gt.find_optimum(problem, problem.theta)
        law = law_of_noise(*check_optimum(problem, best), leave_one_out_covariance(problem, best, batch_size=1, group_size=4))
        skewness = 2.0**1.5 * (law.weights**3).sum() / (law.weights**2).sum() ** 1.5
        distance = np.abs(law.cdf(law.mean() + law.std() * points) - ndtr(points)).max()
        found.append((distance, skewness / (6.0 * np.sqrt(2.0 * np.pi))))
    return dict(zip(("distance", "predicted"), np.transpose(found), strict=True))


@check(U11_SKEWNESS, of=crowds, broken={"larger": 1.03}, setting="crowd (64 prompts)")
def skewness(found, larger=1.0):
    """The largest crowd, which is nearest to a normal law."""
    return abs(found["distance"][-1] / (larger * found["predicted"][-1]) - 1.0), 0.01


@check(U11_COMPARABLE, of=crowds, broken=LARGER, setting="crowd (2 to 64 prompts)")
def comparable(found, larger=1.0):
    """The rate at which the law comes near to a normal one."""
    return log_log_slope(CROWDS, found["distance"])[0], -0.5 * larger


@check(U11_TRANSIENT, cases=SLOW, broken=LARGER, setting="{problem} (beta lambda_min = {factor:g})")
def transient(problem, factor, larger=1.0):
    """The shortfall of E n Delta from its limit in the direction that is slowest, started at the maximiser."""
    found, best, _ = maximum(problem)
    curvatures, directions = check_optimum(found, best)
    noise = directions.T @ leave_one_out_covariance(found, best, batch_size=1, group_size=4) @ directions
    n, beta = 2 ** np.arange(10, int(np.log2(STEPS)) + 1), factor / curvatures.min()
    steps, limits, shortfalls = gt.Harmonic(beta, OFFSET).steps(STEPS), [], []
    for k, curvature in enumerate(curvatures):
        alone = Linearisation(curvatures[[k]], directions[:, [k]], np.array([[curvature]]), noise[[k]][:, [k]])
        limits.append(alone.gap(limit_covariance(alone, beta)))
        shortfalls.append(1.0 - (n + OFFSET) * gap_recursion(alone, steps, np.zeros((1, 1)))[n - 1] / limits[-1])
    shares, exponents = np.array(limits) / np.sum(limits), 2.0 * beta * curvatures - 1.0
    # The n at which sum_k s_k (n_0/n)^(exponent_k) is 5%, given the terms s_k at n_0.
    terms = shares * [shortfall[0] for shortfall in shortfalls]
    set_in = (n[0] + OFFSET) * np.exp(brentq(lambda x: terms @ np.exp(-exponents * x) - 0.05, -20.0, 200.0))
    facts = {"steps, and the offset, until the gap falls 5% short of its limit": set_in}
    slope, _ = log_log_slope(n + OFFSET, shortfalls[int(curvatures.argmin())])
    return Evidence(slope, larger * (1.0 - 2.0 * factor), margin=SLACK * abs(1.0 - 2.0 * factor)), facts
