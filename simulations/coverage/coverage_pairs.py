"""Coverage of intervals for the difference of two estimators.

The intervals are computed from pairs of runs with common random numbers.

The runs are one step long, so that the joint law of a pair, and the mean difference, are exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory import intervals
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.intervals import Interval, vectorized
from simulations.coverage.narrowing import narrowing
from simulations.coverage.promise import LEVEL, nominal, share
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
BLOCK = 256
PILOT_PAIRS = 100_000


class Pairs(NamedTuple):
    """The objectives after training of two estimators, shape (..., pairs); each pair saw the same uniforms."""

    first: Array
    second: Array


class PairLaw(NamedTuple):
    """The exact joint law of a pair: cumulative probabilities and the two objectives, shape (n,) each."""

    cumulative: Array
    first: Array
    second: Array

    @property
    def difference(self) -> float:
        """The mean of first - second."""
        return float(np.diff(self.cumulative, prepend=0.0) @ (self.first - self.second))


@cache
def pair_law() -> PairLaw:
    """Enumerate one step of training: every prompt and group of responses, seen by both estimators."""
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
    first, second = np.concatenate(objectives, axis=1)
    return PairLaw(np.cumsum(np.concatenate(chances)), first, second)


@dataclass(frozen=True)
class PairedTraining:
    """The experiment of training both estimators for one step, with each of several seeds: draws from the exact law."""

    pairs: int

    @property
    def block_replications(self) -> int:
        """The number of sets of pairs in a block."""
        return BLOCK

    def sample(self, problem: Any, rng: Any, replications: int) -> Pairs:
        """Draw sets of pairs, shape (replications, pairs)."""
        law = pair_law()
        drawn = np.searchsorted(law.cumulative, rng.random((replications, self.pairs)) * law.cumulative[-1], side="right")
        return Pairs(law.first[drawn], law.second[drawn])

    def take(self, block: Pairs, i: int) -> Pairs:
        """Return one set of pairs."""
        return Pairs(block.first[i], block.second[i])


@vectorized
def paired(data: Pairs, level: float) -> Interval:
    """The paired t interval."""
    return intervals.paired_difference(data.first, data.second, level)


def sequence(data: Pairs, level: float, *, first: int) -> Interval:
    """What the confidence sequence never excludes from a number of pairs on: it covers if the sequence covers throughout."""
    return _intersection(intervals.paired_sequence(data.first, data.second, level, horizon=first), first)


def watched(data: Pairs, level: float, *, first: int) -> Interval:
    """What t intervals never exclude, one after each pair from a number of pairs on."""
    gap = data.first - data.second
    n = np.arange(1, gap.shape[-1] + 1)
    mean = np.cumsum(gap, axis=-1) / n
    spread = np.cumsum(gap**2, axis=-1) / n - mean**2
    error = np.sqrt(np.maximum(spread, 0.0) / np.maximum(n - 1, 1))
    half = np.append(0.0, stdtrit(n[1:] - 1, (1.0 + level) / 2.0)) * error
    return _intersection(Interval(mean, error, mean - half, mean + half, level), first)


def _intersection(interval: Interval, first: int) -> Interval:
    late = (..., slice(first - 1, None))
    low, high = interval.low[late].max(axis=-1), interval.high[late].min(axis=-1)
    nowhere = np.where(low > high, np.nan, 0.0)
    return Interval(interval.estimate[..., -1], interval.standard_error[..., -1], low + nowhere, high + nowhere, interval.level)


@cache
def seeds() -> int:
    """Return the advised number of seeds for the true difference, from a large pilot."""
    pilot = PairedTraining(PILOT_PAIRS).sample(gt.gallery.problem(PROBLEM), np.random.default_rng(0), 1)
    return intervals.seeds_needed(pilot.first[0], pilot.second[0], pair_law().difference, power=POWER, level=LEVEL)


def cells(quick: bool) -> list[Cell]:
    """Intervals at fixed numbers of pairs, at all of a range at once, and the power at the number of seeds that is advised."""
    fixed = [("paired_difference", pairs, pairs, REPLICATIONS) for pairs in PAIRS]
    fixed += [("paired_difference", pairs, pairs, FEWER_REPLICATIONS) for pairs in (seeds(), seeds() // 2)]
    fixed += [("narrowed", pairs, pairs, FEWER_REPLICATIONS) for pairs in PAIRS]
    ranges = [(name, *span, FEWER_REPLICATIONS) for span in SEQUENCES for name in ("paired_sequence", "watched")]
    return [
        Cell({"interval": name, "from": first, "pairs": pairs, "runs": QUICK_REPLICATIONS if quick else runs})
        for name, first, pairs, runs in (*fixed, *ranges)
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Ask an interval about sets of pairs; the share that excludes 0 is its power."""
    functions: dict[str, Any] = {
        "paired_difference": paired,
        "narrowed": narrowing(paired, 0.9),
        "paired_sequence": partial(sequence, first=settings["from"]),
        "watched": partial(watched, first=settings["from"]),
    }
    covered = gt.coverage(
        functions[settings["interval"]],
        gt.gallery.problem(PROBLEM),
        pair_law().difference,
        experiment=PairedTraining(settings["pairs"]),
        level=LEVEL,
        replications=settings["runs"],
        rng=seed_of(rng),
        workers=1,
        vectorized=True,
    )
    table = covered.measures(null=0.0).query("measure in ('coverage', 'mean width', 'rejection %')")
    return table.drop(columns=["level", "component"]).rename(columns={"mcse": "standard_error"}).to_dict("records")


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each measure."""
    (measured,) = results
    common = {"problem": PROBLEM, "target": "difference of two estimators", **settings}
    yield from (common | row | {"prediction": nominal(row["measure"])} for row in measured)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Coverage at fixed numbers of pairs, at all of a range at once, and the power at the advised number."""
    percent, where = table["measure"] == "rejection %", f"{PROBLEM}, rloo - reinforce"
    at = (
        table.assign(estimate=table["estimate"] / np.where(percent, 100.0, 1.0))
        .set_index(["measure", "interval", "pairs"])
        .sort_index()
    )
    for pairs in PAIRS:
        own, control = (share(at.loc["coverage", name, pairs], LEVEL) for name in ("paired_difference", "narrowed"))
        yield DIFFERENCE.claim(f"{where} ({pairs} pairs)", own, control)
    for first, last in SEQUENCES:
        names = "paired_sequence", "watched"
        own, control = (share(at.loc["coverage", name, last], 1.0 - LEVEL, misses=True) for name in names)
        yield SEQUENCE.claim(f"{where} ({first} to {last} pairs)", own, control)
    rejected, advised = at.loc["rejection %", "paired_difference"], seeds()
    own, control = (share(rejected.loc[pairs], 1.0 - POWER, misses=True) for pairs in (advised, advised // 2))
    yield SEEDS.claim(f"{where} ({advised} pairs)", own, control)
