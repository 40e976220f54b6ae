"""N8: prompts that share features: where they interact weakly, the gains there, and what happens elsewhere."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from simulations.claims import claim
from simulations.harness.evidence import evidence, exact, farthest, highest, largest
from simulations.harness.study import EXACT, Cell, Rows, Settings, Study
from simulations.normalisation.ascent import Prompts, State, Step
from simulations.normalisation.prompts import mixture, prompts

CORRELATIONS, QUICK_CORRELATIONS = (0.05, 0.3, 0.7), (0.3,)
ALIKE = {"one right answer, alike": (0.3, 0.3), "one right answer, unlike": (0.5, 0.02)}
"""Success rates of two prompts with the same right answer, the only ones of ours that satisfy the assumption."""
CONFLICTS = ("easy", "easy and hard")
N_PROMPTS = 8
ANSWERS, QUICK_ANSWERS = (2, 3), (2,)
PAIRS, QUICK_PAIRS = 2000, 200
SEARCHES, SEARCH = 2, {"starts": 128, "climbs": 1}
"""How many for each update, each a chunk, because a search takes seconds."""
THETA = 4.0
STATES, QUICK_STATES = 64, 16
"""States along a path at which one-step gains are compared."""
RUNS, QUICK_RUNS, HORIZON, QUICK_HORIZON = 128, 16, 1024, 256
SMALL = 1e-3
ROUNDING = 1e-8
"""A cosine of gradients below this counts as 0, and so does a gradient below this times X V: nearly everything has cancelled."""
NOWHERE = -100.0
"""A shortfall below all others, for a search: a hundred times the guarantee is gained."""
UPDATES = ("N8/plain", "N8/divided")
SOUGHT = UPDATES * SEARCHES
"""Of which update each search is."""


class Interaction(NamedTuple):
    """M of the assumption, NaN where there is none; the largest ratio of standard deviations."""

    strength: float
    ratio: float


def interaction(problem: Prompts, state: State) -> Interaction:
    """Return the least M with M <grad J_i, grad J_j> >= ||X_i grad J_j||^2/||X_i||^2 for all i and j, at one state."""
    gradients, deviation = state.gradients[0], np.sqrt(state.variance[0])
    inner = gradients @ gradients.T
    norms = problem.norms
    seen = (np.einsum("ikd,jd->ijk", problem.features, gradients) ** 2).sum(axis=2) / norms[:, None] ** 2
    interacting = seen > 1e-14 * np.diag(inner)
    rounding = ROUNDING * np.sqrt(np.outer(np.diag(inner), np.diag(inner)))
    lost = np.diag(inner) <= (ROUNDING * norms * state.variance[0]) ** 2
    unknown = lost.any() or (inner <= rounding)[interacting].any()
    strength = float("nan") if unknown else float((seen[interacting] / inner[interacting]).max())
    return Interaction(strength, float(deviation.max() / deviation.min()))


def shortfall(problem: Prompts, theta: Array, step: Step, constant: float, sign: float = 1.0) -> float:
    """Return the greatest share by which a mean gain falls short of constant ||grad J_i||^2/(n V_i^power), at theta (d,)."""
    state = problem.at(theta[None])
    n = len(problem.right)
    moves = sign * step.size * state.gradients[0] / state.variance[0, :, None] ** step.power
    gain = gains(problem, theta, moves).mean(axis=0)
    wanted = constant * state.squares[0] / (n * state.variance[0] ** step.power)
    return float((1.0 - gain / wanted).max())


def gains(problem: Prompts, theta: Array, moves: Array) -> Array:
    """Return how much each move (m, d) raises each prompt's success, (m, n): from logits, so that small gains keep digits."""
    p = softmax(problem.features @ theta, axis=-1)
    growth = np.expm1(np.einsum("ikd,md->mik", problem.features, moves))
    own = (p * problem.right).sum(axis=-1)
    failure = (p * (1.0 - problem.right)).sum(axis=-1)
    pull = failure * (growth * problem.right).sum(axis=-1) - (p * (1.0 - problem.right) * growth).sum(axis=-1)
    return np.asarray(own * pull / (1.0 + (p * growth).sum(axis=-1)))


def _repeated(state: State, n: int) -> State:
    return State(*(np.repeat(part, n, axis=0) for part in state))


def steps(problem: Prompts, found: Interaction) -> dict[str, tuple[Step, float]]:
    """Return the step of each theorem, and the constant of its guarantee."""
    largest_norm = float(problem.norms.max())
    plain = largest_norm**2 * max(1.0, found.strength / 2.0)
    divided = largest_norm**2 * max(1.0, 5.0 * found.strength / 8.0) * found.ratio
    return {"N8/plain": (Step(1.0 / plain, 0.0), 0.5 / plain), "N8/divided": (Step(0.5 / divided, 0.5), 3.0 / (16.0 * divided))}


def falling_short(problem: Prompts, theta: Array, sign: float = 1.0) -> dict[str, float]:
    """Return the shortfall of each update, and M, or nothing where the assumption fails."""
    found = interaction(problem, problem.at(theta[None]))
    if np.isnan(found.strength):
        return {}
    gaps = {name: shortfall(problem, theta, step, constant, sign) for name, (step, constant) in steps(problem, found).items()}
    return gaps | {"M": found.strength}


def pair_of(x: Array, answers: int) -> tuple[Prompts, Array]:
    """Return two prompts with the features and at the point that parameters give."""
    features = x[: 2 * answers**2].reshape(2, answers, answers)
    return Prompts(features, np.eye(answers)[[0, 0]], np.zeros(answers)), x[2 * answers**2 :]


def sides(x: Array, answers: int, update: str) -> tuple[float, float]:
    """Return the shortfall and its bound 0; where the assumption fails there is nothing to violate."""
    return falling_short(*pair_of(x, answers)).get(update, NOWHERE), 0.0


def cells(quick: bool) -> list[Cell]:
    """One cell for random pairs of each size, for each problem that satisfies the assumption, and for each that does not.

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
        *(Cell({"what": "conflict", "setting": name, "correlation": dial} | paths) for name in CONFLICTS for dial in dials),
    ]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, Any]]:
    """Return the worst shortfalls, where the assumption holds, or what becomes of the conclusions where it does not."""
    if settings["what"] == "pairs":
        own_seed = seed.spawn(1 + len(SOUGHT))[chunk]
        return _sought(SOUGHT[chunk - 1], settings, own_seed) if chunk else _pairs(settings, own_seed)
    return {"alike": _alike, "conflict": _conflict}[settings["what"]](settings, seed)


def _worst(problems: list[tuple[Prompts, Array]]) -> list[dict[str, Any]]:
    """Return the greatest shortfall of both updates over problems, right and descending, and how many satisfy the assumption."""
    rows = []
    for how, sign in (("path", 1.0), ("broken", -1.0)):
        found = [gaps for gaps in (falling_short(*one, sign) for one in problems) if gaps]
        facts = {"how": how, "holds": len(found) / len(problems), "M": largest([gaps["M"] for gaps in found])}
        rows += [facts | {"statement": name, "estimate": largest([gaps[name] for gaps in found])} for name in UPDATES]
    return rows


def _box(answers: int) -> list[tuple[float, float]]:
    """Return the box of the parameters of two prompts: features, and a point."""
    return [(-1.0, 1.0)] * (2 * answers**2) + [(-THETA, THETA)] * answers


def _pairs(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the worst of random pairs."""
    low, high = np.array(_box(settings["answers"])).T
    points = np.random.default_rng(seed).uniform(low, high, size=(settings["pairs"], len(low)))
    return _worst([pair_of(x, settings["answers"]) for x in points])


def _sought(update: str, settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    """Return the worst pair that a search finds for an update."""
    answers = settings["answers"]
    worst = gt.worst_case(
        partial(sides, answers=answers, update=update),
        _box(answers),
        rng=seed,
        starts=settings["starts"],
        climbs=settings["climbs"],
        compare="difference",
    )
    facts = falling_short(*pair_of(worst.parameters, answers))
    return [{"how": "sought", "statement": update, "estimate": worst.score, "M": facts.get("M", 0.0), "holds": 1.0}]


def _alike(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    problem = Prompts.of(prompts(settings["correlation"], ALIKE[settings["setting"]]))
    theta, rng, states = problem.theta[None], np.random.default_rng(seed), []
    for _ in range(settings["states"]):
        states.append((problem, theta[0]))
        theta = problem.step(theta, problem.at(theta), np.asarray(rng.integers(2, size=1)), Step(1.0, 0.0))
    return _worst(states)


def _conflict(settings: Settings, seed: np.random.SeedSequence) -> list[dict[str, Any]]:
    whole = prompts(settings["correlation"], mixture(settings["setting"], settings["prompts"]))
    agreed = gt.Problem(
        gt.Bandit(whole.bandit.mean_reward[np.zeros(settings["prompts"], dtype=int)]), whole.policy, theta=whole.theta
    )
    problem = Prompts.of(whole)
    found = []
    for how, one in (("path", problem), ("broken", Prompts.of(agreed))):
        found.append({"how": how, "statement": "N8/conflict", "estimate": _greatest_change(problem, one)})
        sign = 1.0 if how == "path" else -1.0
        gap = shortfall(problem, problem.theta, Step(1.0, 0.0), 0.5, sign)
        found.append({"how": how, "statement": "N8/conflict, gain", "estimate": gap})
        found += _sums(problem, settings, seed, stops=how == "broken")
    return [row | {"M": 0.0, "holds": 0.0} for row in found]


def _greatest_change(different: Prompts, rewarded: Prompts) -> float:
    """Return the greatest change of J_i by a small step on j, over pairs with different right answers, per step and gradients."""
    state, n = rewarded.at(rewarded.theta[None]), len(rewarded.right)
    moved = rewarded.step(np.tile(rewarded.theta, (n, 1)), _repeated(state, n), np.arange(n), Step(SMALL, 0.0))
    norms = np.sqrt(state.squares[0])
    changes = (rewarded.at(moved).success - state.success) / (SMALL * np.outer(norms, norms))
    pairs = different.right @ different.right.T == 0.0
    return float(changes[pairs].max())


def _sums(problem: Prompts, settings: Settings, seed: np.random.SeedSequence, stops: bool) -> list[dict[str, Any]]:
    """Return each prompt's sum of squared gradients over its bound; broken, prompts stop learning at success 1/2."""
    n, runs = len(problem.right), settings["runs"]
    rng, theta, total = np.random.default_rng(seed), np.tile(problem.theta, (runs, 1)), np.zeros((runs, n))
    rows = np.arange(runs)
    for _ in range(settings["horizon"]):
        state, drawn = problem.at(theta), np.asarray(rng.integers(n, size=runs))
        total += state.squares
        learns = ~(stops & (state.success[rows, drawn] >= 0.5))
        theta = np.where(learns[:, None], problem.step(theta, state, drawn, Step(1.0, 0.0)), theta)
    start = problem.at(problem.theta[None]).success[0]
    quotients = total / (2.0 * n * (1.0 - start))
    means, errors = quotients.mean(axis=0), quotients.std(axis=0, ddof=1) / np.sqrt(runs)
    facts = {"how": "broken" if stops else "path", "statement": "N8/conflict, sum", "replications": runs}
    return [
        facts | {"prompt": i, "estimate": float(mean), "standard_error": float(error)}
        for i, (mean, error) in enumerate(zip(means, errors, strict=True))
    ]


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each statement and how its worst was found, and for each prompt's sum."""
    common = {"what": settings["what"], "setting": settings["setting"], "correlation": settings.get("correlation", np.nan)}
    return [
        common | {"prompt": -1, **EXACT} | row | {"prediction": float(row["statement"] == "N8/conflict, sum")}
        for result in results
        for row in result
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The gains where the assumption holds, by the worst of what was drawn and sought; the conclusions where it fails."""
    found = []
    for (statement, setting, correlation), part in table.groupby(
        ["statement", "setting", "correlation"], sort=False, dropna=False
    ):
        where = setting if np.isnan(correlation) else f"{setting} (correlation {correlation:g})"
        own, broken = part[part["how"] != "broken"], part[part["how"] == "broken"]
        if statement == "N8/conflict, sum":
            greatest = (evidence(some.loc[highest(some["estimate"])], comparisons=len(some)) for some in (own, broken))
            found.append(claim(statement, where, *greatest))
            continue
        worst = own.loc[highest(own["estimate"])]
        facts = {} if statement.startswith("N8/conflict") else {"M": worst["M"], "share where M exists": own["holds"].iloc[0]}
        both = exact(worst["estimate"], 0.0), exact(broken.loc[farthest(broken["estimate"]), "estimate"], 0.0)
        found.append(claim(str(statement), where, *both, facts=facts))
    return found


STUDY = Study(
    "weak_interaction",
    "N8: prompts that share features",
    cells,
    compute,
    rows,
    claims,
    (*UPDATES, "N8/conflict", "N8/conflict, gain", "N8/conflict, sum"),
)
