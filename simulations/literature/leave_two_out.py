"""Leave-two-out (arXiv 2606.06080): an unbiased gradient of the best of k whose advantages sum to 0 in every group.

A response is compared with each other one in turn, both beside the same k - 1 of the rest.  The other's mean best is then the
mean maximum over k of the others.  No other symmetric function of the other rewards centres every group.  In the broken cases
the baseline is PKPO's, knows the response, or is none.
"""

from itertools import combinations_with_replacement

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check
from simulations.literature.drawn import BINARY, GRADED, expected_update, world
from simulations.literature.pkpo import CASES, traces
from simulations.literature.subsets import baselines
from simulations.statements import stated


@check(stated("maxpo/centred"), cases=[{"n": 4, "k": 2}, {"n": 6, "k": 4}], broken={"name": "k minus one"}, setting="n = {n}")
def centred(n, k, name="leave-two-out"):
    """All groups of three rewards."""
    groups = list(combinations_with_replacement(GRADED, n))
    return np.sum(gt.advantages(groups, baselines(k, n)[name]), axis=1), np.zeros(len(groups))


@check(stated("maxpo/unbiased"), cases=CASES, broken={"own": 1.0})
def unbiased(policy, n, k, rng, own=0.0):
    """The mean update beside the gradient."""
    problem = world(policy, rng, GRADED, objective=gt.Objective.best_of(k), width=None)
    one = baselines(k, n)["leave-two-out"].with_parameters(own=own)
    return expected_update(problem, one, n), gt.exact.gradient(problem)


@check(
    stated("maxpo/variance"),
    cases=[{"odds": odds, "n": n, "k": k} for odds in (0.0, 4.0) for n, k in ((4, 2), (6, 4))],
    broken={"name": "plain"},
    sound={"values": (0.0, 0.5, 1.0), "theta": (-1.2, 1.0, -0.9), "n": 4, "k": 2},
    setting="two answers, log odds {odds} of the right one, n = {n}, k = {k}",
)
def variance(odds, n, k, name="leave-two-out", values=BINARY, theta=None):
    """The two traces; it is the lower one for three answers of which the middle one is likely."""
    found = traces(values, theta or (0.0, odds), n, k)
    return found[name], found["k minus one"]


@check(
    stated("maxpo/two answers"),
    cases=[{"n": n, "k": k} for n, k in ((3, 2), (4, 2), (6, 4), (8, 3))],
    broken={"name": "plain"},
    setting="log odds from -6 to 6, n = {n}, k = {k}",
)
def two_answers(n, k, name="k minus one"):
    """The other way round, over a grid of success rates."""
    found = [traces(BINARY, (0.0, odds), n, k) for odds in np.linspace(-6.0, 6.0, 25)]
    return [one[name] for one in found], [one["leave-two-out"] for one in found]


@check(stated("maxpo/easy prompts"), cases=[{"n": 4, "k": 2}, {"n": 6, "k": 3}], broken={"name": "plain"})
def easy(n, k, name="leave-two-out"):
    """The slope over failure rates of the ratio of variances."""
    failures = np.array([1e-2, 3e-3, 1e-3, 3e-4])
    found = [traces(BINARY, (0.0, np.log(1.0 / failure - 1.0)), n, k) for failure in failures]
    return log_log_slope(failures, [one[name] / one["k minus one"] for one in found])[0], -1.0
