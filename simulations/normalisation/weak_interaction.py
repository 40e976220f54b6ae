"""N8: prompts that share features: the gains of a step where they interact weakly, and what happens elsewhere.

The study measures how far the mean gain of a prompt falls short of its guarantee. It takes the worst of random pairs, of pairs
that a search finds, of paths, and of pairs on which too small a constant shows. In the controls steps descend; for the sums,
prompts stop learning.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import highest, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.normalisation.ascent import Prompts, Step
from simulations.normalisation.interaction import FACTS, falling_short, greatest_change, opposed, pair_of, shortfall
from simulations.normalisation.prompts import label, mixture, prompts
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.worst_cases import sought, worst_evidence

WEAK_INTERACTION = stated("N8")
GAINS = {
    "plain": stated("N8/plain gain"),
    "divided": stated("N8/divided gain"),
    "divided, without R1": stated("N8/divided gain, without R1"),
    "divided, appendix": stated("N8/divided gain, appendix"),
    "divided, without R2": stated("N8/divided gain, without R2"),
}
UPDATES = ("plain", "divided", "divided, without R1")
TOO_SMALL = ("divided, appendix", "divided, without R2")
"""Updates whose constants the proof does not allow, judged where they could fail."""
CONFLICTS = {
    "change": stated("N8/conflict"),
    "gain": stated("N8/conflict, gain"),
    "sum": stated("N8/conflict, sum"),
}

CORRELATIONS, QUICK_CORRELATIONS = (0.05, 0.3, 0.7), (0.3,)
ALIKE = {"one right answer, alike": (0.3, 0.3), "one right answer, unlike": (0.5, 0.02)}
"""Success rates of two prompts with one right answer: those of `prompts` with different ones break the assumption."""
CONFLICTING = ("easy", "easy and hard")
N_PROMPTS = 8
ANSWERS, QUICK_ANSWERS = (2, 3), (2,)
PAIRS, QUICK_PAIRS = 2000, 200
SEARCHES, SEARCH = 2, {"starts": 128, "climbs": 1}
"""How many for each update, each a chunk, because a search takes seconds."""
THETA = 4.0
STATES, QUICK_STATES = 64, 16
"""States along a path at which one-step gains are compared."""
RUNS, QUICK_RUNS, HORIZON, QUICK_HORIZON = 128, 16, 1024, 256
NOWHERE = -100.0
"""A shortfall below all others, for a search: a hundred times the guarantee is gained."""
SOUGHT = UPDATES * SEARCHES
"""Of which update each search is."""
OPPOSED, LEAN = {"opposed, a hard neighbour": 0.001, "opposed, a learnt neighbour": 0.999}, 1e-5
"""Success of the second of two prompts, a step on which lowers the first (`opposed`)."""


def sides(x: Array, answers: int, update: str) -> tuple[float, float]:
    """Return the shortfall and its bound 0; where the assumption fails there is nothing to violate."""
    return falling_short(*pair_of(x, answers), [update]).get(update, NOWHERE), 0.0


def cells(quick: bool) -> list[Cell]:
    """One cell for random pairs of each size, for each problem that satisfies the assumption, and for each that does not.

    The pairs that are opposed satisfy it, and are made so that a constant which is too small shows.

    A quick run searches for no worst case.
    """
    dials = QUICK_CORRELATIONS if quick else CORRELATIONS
    pairs = {"pairs": QUICK_PAIRS if quick else PAIRS, "theta": THETA, "sought": not quick} | SEARCH
    states = {"states": QUICK_STATES if quick else STATES}
    paths = {"runs": QUICK_RUNS if quick else RUNS, "horizon": QUICK_HORIZON if quick else HORIZON, "prompts": N_PROMPTS}
    return [
        *(
            Cell({"what": "pairs", "setting": f"{k} answers", "answers": k} | pairs, 1 if quick else 1 + len(SOUGHT))
            for k in (QUICK_ANSWERS if quick else ANSWERS)
        ),
        *(Cell({"what": "alike", "setting": name, "correlation": dial} | states) for name in ALIKE for dial in dials),
        *(Cell({"what": "opposed", "setting": name, "neighbour": rate, "lean": LEAN}) for name, rate in OPPOSED.items()),
        *(Cell({"what": "conflict", "setting": name, "correlation": dial} | paths) for name in CONFLICTING for dial in dials),
    ]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the worst shortfalls, where the assumption holds, or what becomes of the conclusions where it does not."""
    if settings["what"] == "pairs":
        return _sought(SOUGHT[chunk - 1], settings, rng) if chunk else _pairs(settings, rng)
    return {"alike": _alike, "opposed": _opposed, "conflict": _conflict}[settings["what"]](settings, rng)


def _worst(problems: list[tuple[Prompts, Array]], names: Sequence[str] = UPDATES) -> Rows:
    """Return the greatest shortfall of each update over problems, right and descending, and how many satisfy the assumption."""
    table = []
    for how, sign in (("path", 1.0), ("broken", -1.0)):
        shortfalls = pd.DataFrame([gaps for one in problems if (gaps := falling_short(*one, names, sign))])
        facts = {"how": how, "holds": len(shortfalls) / len(problems)} | {fact: largest(shortfalls[fact]) for fact in FACTS}
        table += [facts | {"statement": name, "estimate": largest(shortfalls[name])} for name in names]
    return table


def _box(answers: int) -> list[tuple[float, float]]:
    """Return the box of the parameters of two prompts: features, and a point."""
    return [(-1.0, 1.0)] * (2 * answers**2) + [(-THETA, THETA)] * answers


def _pairs(settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the worst of random pairs."""
    low, high = np.array(_box(settings["answers"])).T
    points = rng.uniform(low, high, size=(settings["pairs"], len(low)))
    return _worst([pair_of(x, settings["answers"]) for x in points])


def _sought(update: str, settings: Settings, rng: np.random.Generator) -> Rows:
    """Return the worst pair that a search finds for an update."""
    answers = settings["answers"]
    worst = sought(partial(sides, answers=answers, update=update), _box(answers), settings, rng, "difference")
    facts = falling_short(*pair_of(worst.parameters, answers), [update])
    row = {"how": "sought", "statement": update, "estimate": worst.score, "holds": 1.0}
    return [row | {name: facts.get(name, 0.0) for name in FACTS}]


def _alike(settings: Settings, rng: np.random.Generator) -> Rows:
    problem = Prompts.of(prompts(settings["correlation"], ALIKE[settings["setting"]]))
    theta, states = problem.theta[None], []
    for _ in range(settings["states"]):
        states.append((problem, theta[0]))
        theta = problem.step(theta, problem.at(theta), np.asarray(rng.integers(2, size=1)), Step(1.0, 0.0))
    return _worst(states)


def _opposed(settings: Settings, rng: np.random.Generator) -> Rows:
    problem = opposed(settings["neighbour"], settings["lean"])
    return _worst([(problem, problem.theta)], (*UPDATES, *TOO_SMALL))


def _conflict(settings: Settings, rng: np.random.Generator) -> Rows:
    whole = prompts(settings["correlation"], mixture(settings["setting"], settings["prompts"]))
    agreed = gt.Problem(
        gt.Bandit(whole.bandit.mean_reward[np.zeros(settings["prompts"], dtype=int)]), whole.policy, theta=whole.theta
    )
    problem = Prompts.of(whole)
    table = []
    for how, one, sign in (("path", problem, 1.0), ("broken", Prompts.of(agreed), -1.0)):
        table.append({"how": how, "statement": "change", "estimate": greatest_change(problem, one)})
        gap = shortfall(problem, problem.theta, Step(1.0, 0.0), 0.5, sign)
        table.append({"how": how, "statement": "gain", "estimate": gap})
        table += _sums(problem, settings, seed_of(rng), stops=how == "broken")
    return table


def _sums(problem: Prompts, settings: Settings, seed: np.random.SeedSequence, stops: bool) -> Rows:
    """Return each prompt's sum of squared gradients over its bound; in the control prompts stop learning at success 1/2."""
    n, runs = len(problem.right), settings["runs"]
    rng, theta, total = np.random.default_rng(seed), np.tile(problem.theta, (runs, 1)), np.zeros((runs, n))
    each = np.arange(runs)
    for _ in range(settings["horizon"]):
        state, drawn = problem.at(theta), np.asarray(rng.integers(n, size=runs))
        total += state.squares
        learns = ~(stops & (state.success[each, drawn] >= 0.5))
        theta = np.where(learns[:, None], problem.step(theta, state, drawn, Step(1.0, 0.0)), theta)
    start = problem.at(problem.theta[None]).success[0]
    quotients = total / (2.0 * n * (1.0 - start))
    means, errors = quotients.mean(axis=0), quotients.std(axis=0, ddof=1) / np.sqrt(runs)
    facts = {"how": "broken" if stops else "path", "statement": "sum", "replications": runs, "prediction": 1.0}
    return [
        facts | {"prompt": i, "estimate": float(mean), "standard_error": float(error)}
        for i, (mean, error) in enumerate(zip(means, errors, strict=True))
    ]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each statement and how its worst was found, and for each prompt's sum."""
    common = {"what": settings["what"], "setting": settings["setting"], "correlation": settings.get("correlation", np.nan)}
    return [common | {"prediction": 0.0, **EXACT} | row for result in results for row in result]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The gains where the assumption holds, by the worst of what was drawn and sought; the conclusions where it fails."""
    for (name, setting, dial), part in table.groupby(["statement", "setting", "correlation"], sort=False, dropna=False):
        where = label(setting, dial)
        right, broken = part[part["how"] != "broken"], part[part["how"] == "broken"]
        own, control = worst_evidence(right), worst_evidence(broken)
        if name in CONFLICTS:
            yield CONFLICTS[name].claim(where, own, control)
        else:
            worst = right.loc[highest(right["estimate"])]
            facts = {fact: worst[fact] for fact in FACTS} | {"share where M exists": right["holds"].iloc[0]}
            yield GAINS[name].claim(where, own, control, facts)
