"""T12: what the group's mean adds to the update, its bounds and their worst cases, exact.

All groups are enumerated, for random policies and for those that a search finds. In the control scores are not centred.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.exact.multisets import multisets
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.seeds import child_seed, seed_of
from simulations.sequence.group_laws import multiset_probabilities
from simulations.sequence.tokens import Family, Tokens, Uncentred, draw
from simulations.statements import stated
from simulations.worst_cases import by_the_worst, sought, worst_row

T12, X2, X2_ONE, X2_CORRECTED, Y1, Y1_ONE = stated("T12", "T12/X2", "T12/X2, R=1", "T12/X2/corrected", "T12/Y1", "T12/Y1, R=1")
Y1_CORRECTED = stated("T12/Y1/corrected")

LOW, HIGH = 0.2, 0.2
"""The clip's widths, as practised."""
LOGITS, DRIFT = 4.0, 4.0
CELLS = (
    *(((2, 1, None), group_size) for group_size in (1, 2, 4, 64)),
    *(((2, 2, 1), group_size) for group_size in (1, 2)),
    ((2, 3, 1), 1),
)
"""Vocabulary size, horizon and end token of a family of policies, and the group size."""
QUICK_CELLS = CELLS[3:4]
POLICIES, QUICK_POLICIES = 300, 100
STARTS, QUICK_STARTS = 256, 16
CLIMBS = 6
"""Of the smallest family, whose worst cases hide behind the kinks of the clip; one where an evaluation is dear."""
REWARD = 10.0
"""The largest reward where it may be of any size."""


def baseline_term(old: Tokens, now: Tokens, rewards: Array, group_size: int) -> float:
    """Return E||X2||^2, X2 = -(1/G) sum_i (1/|s_i|) sum_t 1_B grad log P_0 (mu_c - mu_0), one prompt, own sample in mu_c."""
    p, paths = old.response_probabilities, old.paths
    counts = multisets(p.size, group_size)
    means = counts @ rewards / group_size
    ratios = old.of_responses(now.probabilities / old.probabilities)
    kept = np.stack([ratios < 1.0 - LOW, ratios > 1.0 + HIGH])
    by_sign = np.where(kept[..., None], 0.0, old.of_responses(old.scores)).sum(axis=2) / paths.lengths[:, None]
    positive = rewards >= means[:, None]
    sums = (counts * positive) @ by_sign[1] + (counts * ~positive) @ by_sign[0]
    power = (sums**2).sum(axis=1) * ((means - p @ rewards) / group_size) ** 2
    return float(multiset_probabilities(p, group_size) @ power)


def current_term(old: Tokens, now: Tokens, rewards: Array, group_size: int) -> float:
    """Return E||Y1||^2, Y1 = (1/T) (1/G) sum_i 1_D rho grad log P_k (mu_k - mu_c), one prompt, own sample in mu_c."""
    p, q = old.response_probabilities, now.response_probabilities
    rho = q / p
    counts = multisets(p.size, group_size)
    sums = counts @ (np.where(rho <= 1.0 + HIGH, rho, 0.0)[:, None] * now.response_scores)
    gaps = q @ rewards - counts @ rewards / group_size
    power = (sums**2).sum(axis=1) * (gaps / (group_size * old.paths.horizon)) ** 2
    return float(multiset_probabilities(p, group_size) @ power)


def _constants(old: Tokens, rewards: Array) -> tuple[float, float, float]:
    """Return 2 L log V, what lengths that differ add to log V, and R."""
    lengths = old.paths.lengths
    spread = 1.0 - 1.0 / lengths.max() if np.ptp(lengths) else 0.0
    return 2.0 * old.lipschitz, float(np.log(old.paths.vocabulary_size)) + spread, float(np.abs(rewards).max())


def baseline_printed(old: Tokens, now: Tokens, rewards: Array, group_size: int) -> float:
    """Return (2L/G) log V."""
    return float(2.0 * old.lipschitz * np.log(old.paths.vocabulary_size) / group_size)


def baseline_corrected(old: Tokens, now: Tokens, rewards: Array, group_size: int) -> float:
    """Return R^2 ((G + 3)/G^2) 2 L (log V + 1 - 1/T), or without 1 - 1/T if all lengths are equal."""
    twice, log_v, r = _constants(old, rewards)
    return r**2 * (group_size + 3.0) / group_size**2 * twice * log_v


def current_printed(old: Tokens, now: Tokens, rewards: Array, group_size: int) -> float:
    """Return 2 (1 + e) L log V/(T G)."""
    paths = old.paths
    return float(2.0 * (1.0 + HIGH) * old.lipschitz * np.log(paths.vocabulary_size) / (paths.horizon * group_size))


def current_corrected(old: Tokens, now: Tokens, rewards: Array, group_size: int) -> float:
    """Return [(|mu_k - mu_0| + 2R/G)^2 + R^2/G] 2 (1 + e) L log V/T."""
    drift = abs(float((now.response_probabilities - old.response_probabilities) @ rewards))
    r = float(np.abs(rewards).max())
    return ((drift + 2.0 * r / group_size) ** 2 + r**2 / group_size) * group_size * current_printed(old, now, rewards, group_size)


Term = Callable[[Tokens, Tokens, Array, int], float]

BOUNDS: dict[Statement, tuple[Term, Term]] = {
    X2_ONE: (baseline_term, baseline_printed),
    X2_CORRECTED: (baseline_term, baseline_corrected),
    Y1_ONE: (current_term, current_printed),
    Y1_CORRECTED: (current_term, current_corrected),
}
"""A term and its bound; with rewards up to 1 the two bounds of X2 are in one proportion, so one search does for both."""
SOUGHT = (X2_ONE, Y1_ONE, Y1_CORRECTED)
ANY_REWARD = {X2_ONE: X2, Y1_ONE: Y1}
"""The statements with rewards of any size: the terms grow with its square, and the printed bounds do not."""
STATED = {one.id: one for one in (*BOUNDS, *ANY_REWARD.values())}
"""By id, as the table names them."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each family of policies and group size."""
    common = {"low": LOW, "high": HIGH, "logits": LOGITS, "drift": DRIFT}
    common |= {"policies": QUICK_POLICIES, "starts": QUICK_STARTS} if quick else {"policies": POLICIES, "starts": STARTS}
    return [
        Cell(
            {"family": list(family), "group_size": size, "climbs": CLIMBS if family == CELLS[0][0] and not quick else 1, **common}
        )
        for family, size in (QUICK_CELLS if quick else CELLS)
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the largest ratios of terms to bounds: of random policies, sought, and of random policies with broken scores."""
    family, group_size = Family(*settings["family"]), settings["group_size"]
    box = family.bounds(settings["logits"], settings["drift"], 1.0)
    seed = seed_of(rng)
    drawn, *seeds = (child_seed(seed, part) for part in range(1 + len(SOUGHT)))
    points = draw(box, settings["policies"], drawn)
    worst: dict[tuple[Statement, str], ArrayLike] = {}
    for how, make in (("random", Tokens), ("broken", Uncentred)):
        of_points = [_ratios(family.at(x, make), group_size) for x in points]
        worst |= {(one, how): [ratios[one] for ratios in of_points] for one in BOUNDS}
    for statement, own_seed in zip(SOUGHT, seeds, strict=True):
        worst_case = sought(partial(_sides, BOUNDS[statement], family, group_size), box, settings, own_seed)
        at_worst = _ratios(family.at(worst_case.parameters), group_size)
        also = (X2_CORRECTED,) if statement == X2_ONE else ()
        worst |= {(one, "sought"): [at_worst[one]] for one in (statement, *also)}
    worst |= {(ANY_REWARD[one], how): np.multiply(REWARD**2, ratios) for (one, how), ratios in worst.items() if one in ANY_REWARD}
    return [worst_row(one, how, ratios) for (one, how), ratios in worst.items()]


def _sides(pair: tuple[Term, Term], family: Family, group_size: int, x: Array) -> tuple[float, float]:
    at = family.at(x)
    term, bound = (side(*at, group_size) for side in pair)
    return term, bound


def _ratios(at: tuple[Tokens, Tokens, Array], group_size: int) -> dict[Statement, float]:
    """Return each term over its bound."""
    terms: dict[Term, float] = {term: term(*at, group_size) for term in (baseline_term, current_term)}
    return {one: terms[term] / bound(*at, group_size) for one, (term, bound) in BOUNDS.items()}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each bound and how its worst case was sought: the term over its bound."""
    common = {"setting": Family(*settings["family"]).name, "group_size": settings["group_size"], **EXACT}
    return [common | row for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each bound at each group size, over all families of policies."""
    for (name, group_size), part in table.groupby(["statement", "group_size"], sort=False):
        yield STATED[name].claim(f"G = {group_size}", *by_the_worst(part))
