"""Coverage of intervals for the difference of two estimators.

The intervals are computed from pairs of runs with common random numbers.

The runs are one step long, so that the joint law of a pair, and the mean difference, are exact.
"""

from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.evidence import Share
from grpo_theory.harness import check, rows, run
from grpo_theory.intervals import Interval, vectorized
from simulations.coverage.candidates import LEVEL
from simulations.coverage.narrowing import narrowing
from simulations.seeds import seed_of
from simulations.statements import stated

DIFFERENCE, SEQUENCE, SEEDS = stated("CI/paired_difference", "CI/paired_sequence", "CI/seeds_needed")

POWER = 0.8
PROBLEM, STEP, GROUP_SIZE = "kl-linear", 2.0, 4
PAIRS = (30, 400)
SEQUENCES = ((10, 100), (100, 400))
"""The pairs at which one begins and stops to look."""
REPLICATIONS, FEWER_REPLICATIONS, QUICK_REPLICATIONS = 50_176, 12_544, 512
"""There are fewer where a share is compared with a bound, and for controls. Both are 0.015 or more from what they are compared
with, and a quarter of the replications gives limits of about 0.01."""
ADVISED = 360
"""The number of seeds that `intervals.seeds_needed` advises for the true difference, from a large pilot."""
WHERE = f"{PROBLEM}, rloo - reinforce"


@cache
def pair_law():
    """Return the joint law of a pair, every prompt and group of responses: chances (n,), and objectives after a step (2, n)."""
    problem = gt.gallery.problem(PROBLEM)
    point, scores = problem.at(problem.theta), problem.policy.scores(problem.theta)
    probabilities = point.outcome_probabilities
    groups = np.array(list(product(range(probabilities.shape[1]), repeat=GROUP_SIZE)))
    chances, objectives = [], []
    for m, weight in enumerate(problem.bandit.prompt_weights):
        rewards, drawn = point.rewards[m][groups], scores[m][point.outcome_responses[groups]]
        others = (rewards.sum(axis=1, keepdims=True) - rewards) / (GROUP_SIZE - 1)
        chances.append(weight * probabilities[m][groups].prod(axis=1))
        estimates = np.einsum("eng,ngd->end", np.stack([rewards - others, rewards]), drawn) / GROUP_SIZE
        objectives.append(gt.objective(problem, problem.theta + STEP * estimates))
    return np.concatenate(chances), np.concatenate(objectives, axis=1)


class PairedTraining:
    """The experiment of training both estimators for one step, with each of several seeds: draws from the exact law."""

    block_replications = 256

    def __init__(self, pairs):
        self.pairs = pairs

    def sample(self, problem, rng, replications):
        """Draw sets of pairs, which saw the same uniforms: objectives of both estimators, shape (replications, 2, pairs)."""
        chances, objectives = pair_law()
        cumulative = np.cumsum(chances)
        drawn = np.searchsorted(cumulative, rng.random((replications, self.pairs)) * cumulative[-1], side="right")
        return np.moveaxis(objectives[:, drawn], 0, 1)

    def take(self, block, i):
        """Return one set of pairs."""
        return block[i]


def paired(data, level):
    """The paired t interval."""
    return intervals.paired_difference(data[..., 0, :], data[..., 1, :], level)


def sequence(data, level, *, first):
    """What the confidence sequence never excludes from a number of pairs on: it covers if the sequence covers throughout."""
    return intersection(intervals.paired_sequence(data[..., 0, :], data[..., 1, :], level, horizon=first), first)


def watched(data, level, *, first):
    """What t intervals never exclude, one after each pair from a number of pairs on."""
    gap = data[..., 0, :] - data[..., 1, :]
    n = np.arange(1, gap.shape[-1] + 1)
    mean = np.cumsum(gap, axis=-1) / n
    spread = np.cumsum(gap**2, axis=-1) / n - mean**2
    error = np.sqrt(np.maximum(spread, 0.0) / np.maximum(n - 1, 1))
    half = np.append(0.0, stdtrit(n[1:] - 1, (1.0 + level) / 2.0)) * error
    return intersection(Interval(mean, error, mean - half, mean + half, level), first)


def intersection(interval, first):
    """Return what is in all intervals from a number of pairs on, which may be nothing."""
    late = (..., slice(first - 1, None))
    low, high = interval.low[late].max(axis=-1), interval.high[late].min(axis=-1)
    nowhere = np.where(low > high, np.nan, 0.0)
    return Interval(interval.estimate[..., -1], interval.standard_error[..., -1], low + nowhere, high + nowhere, interval.level)


def case(interval, first, pairs, runs, quick):
    """Return a case: an interval, the numbers of pairs at which one begins and stops to look, and how often it is tried."""
    return {"interval": interval, "from": first, "pairs": pairs, "runs": QUICK_REPLICATIONS if quick else runs}


def fixed(quick):
    """List intervals at fixed numbers of pairs."""
    return [case("paired_difference", pairs, pairs, REPLICATIONS, quick) for pairs in PAIRS]


def ranges(quick):
    """List intervals at all numbers of a range at once."""
    return [case("paired_sequence", *span, FEWER_REPLICATIONS, quick) for span in SEQUENCES]


def advised(quick, pairs=ADVISED):
    """List the interval at the number of seeds that is advised."""
    return [case("paired_difference", pairs, pairs, FEWER_REPLICATIONS, quick)]


@run()
def asked(interval, pairs, runs, rng, **case):
    """Ask an interval about sets of pairs: the shares that cover, and that exclude 0."""
    functions: dict[str, Any] = {
        "paired_difference": paired,
        "narrowed": narrowing(paired, 0.9),
        "paired_sequence": partial(sequence, first=case["from"]),
        "watched": partial(watched, first=case["from"]),
    }
    chances, (first, second) = pair_law()
    truth, experiment, asked = chances @ (first - second), PairedTraining(pairs), vectorized(functions[interval])
    problem, drawn = gt.gallery.problem(PROBLEM), {"replications": runs, "rng": seed_of(rng), "workers": 1}
    covered = gt.coverage(asked, problem, truth, experiment=experiment, **drawn)
    return {"covers": [covered.coverage], "rejects": [((covered.low > 0.0) | (covered.high < 0.0)).mean()]}


@rows(of=asked, cases=lambda quick: [*fixed(quick), *advised(quick), *advised(quick, ADVISED // 2), *ranges(quick)])
def coverages(found):
    """The coverage of each interval, for the table of coverages."""
    yield {"problem": PROBLEM, "target": "difference of two estimators", "measure": "coverage", "estimate": found["covers"][0]}


NARROWED = {"interval": "narrowed", "runs": FEWER_REPLICATIONS}


@check(DIFFERENCE, of=asked, cases=fixed, broken=NARROWED, setting=f"{WHERE} ({{pairs}} pairs)")
def difference(found, runs):
    """Coverage at fixed numbers of pairs."""
    return Share(found["covers"][0], LEVEL, replications=runs)


@check(SEQUENCE, of=asked, cases=ranges, broken={"interval": "watched"}, setting=f"{WHERE} ({{from}} to {{pairs}} pairs)")
def throughout(found, runs):
    """How often a sequence misses at any number of a range."""
    return Share(1.0 - found["covers"][0], 1.0 - LEVEL, replications=runs)


HALF = {"from": ADVISED // 2, "pairs": ADVISED // 2}


@check(SEEDS, of=asked, cases=advised, broken=HALF, setting=f"{WHERE} ({{pairs}} pairs)")
def power(found, runs):
    """How often the difference is missed at the advised number."""
    return Share(1.0 - found["rejects"][0], 1.0 - POWER, replications=runs)
