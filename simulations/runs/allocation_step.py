"""P3, P4: responses shared out among prompts, in one step, exact.

The printed variances are compared with the true ones, and each rule's sizes with equal ones. The study also shows what is left of
the gain if success rates are guessed from a few earlier responses. Problems of the gallery are judged one by one. Of a world the
mean over draws is judged, with limits that count draws. That variances are near is said of every prompt of every draw. In the
controls variances are divided by n, sizes are upside down, or sizes are as 1/p^2.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.runs.allocation_rules import SGPO_NOW, STEEPLY, UPSIDE_DOWN, VIP_AT_START
from simulations.runs.worlds import WORLDS
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

PRINTED, GRADIENT, ELSEWHERE = stated("P3/printed variance", "P3/no gradient", "P3/printed variance, elsewhere")
VIP_GAINS, VIP_SHARE, SEEN_RAW, SEEN = stated("P3/one step", "P3/share of the gain", "P3/seen rates, raw", "P3/seen rates")
DYNAMO_GAINS, SGPO_GAINS = stated("P4/DynaMO, one step", "P4/sGPO, one step")
GALLERY = ("mixed", "two-speeds", "lm-zero-shot", "lm-few-shot", "lm-instruct", "lm-answers")
LARGE = ("shared", "tabular", "hard")
"""Of the worlds of whole runs, at their start."""
MEAN, HIGH = 8, 32
RULES = ("uniform", "neyman", "vip", "dynamo", "sgpo")
NEAR, HALF = 0.1, 0.5
"""A tenth of the error is a tenth of the responses; who gets less than half of a gain has made the wrong choice."""
WORTH = 0.02
"""A gain of less than 2% of the error is one that nobody would build anything for."""
DRAWS, POLICIES, SEEN_BEFORE = 48, 24, 8
"""Draws of a world, numbers 0 to 47, random policies, and earlier responses to a prompt. A first run had 24 draws."""
SEEN_DRAWS, SEEN_PROMPTS, SEEN_OF_A_DRAW = 32, 8000, 2
"""How often earlier responses are drawn: on one problem so often, or for so many prompts; on each draw of a world twice."""
BOUNDS = {PRINTED: 0.0, GRADIENT: 0.0, ELSEWHERE: NEAR, VIP_SHARE: HALF}
"""What is held against each statement's estimate; 1, the error of equal sizes, where nothing is said."""
STATED = {one.id: one for one in (*BOUNDS, VIP_GAINS, DYNAMO_GAINS, SGPO_GAINS, SEEN_RAW, SEEN)}
Measured = dict[Any, tuple[Any, Any]]
"""By statement or rule, what was found on a problem and in the control: a number, or a sample where responses are drawn."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem or world; a quick run has the cheapest, and few draws."""
    names = [f"gallery/{name}" for name in GALLERY[: 3 if quick else None]]
    names += [f"world/{name}" for name in LARGE[: 1 if quick else None]]
    return [Cell({"problem": "independent"}), *(Cell({"problem": name, "draws": 4 if quick else DRAWS}) for name in names)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return a row for each statement and each rule's error on one problem, or in the mean over draws of one world."""
    kind, _, name = settings["problem"].partition("/")
    if kind == "independent":
        return [row for setting, one in _independent().items() for row in _told(setting, [one], [{}])]
    if kind == "gallery":
        problem = gt.gallery.problem(name)
        found, facts = _shared_out(problem, seed_of(rng), max(SEEN_DRAWS, SEEN_PROMPTS // problem.policy.n_prompts))
        return _told(name, [found], [facts])
    measured = (
        _shared_out(WORLDS[name].problem(draw), child_seed(seed_of(rng), draw), SEEN_OF_A_DRAW)
        for draw in range(settings["draws"])
    )
    return _told(f"world {name}", *zip(*measured, strict=True))


def _told(setting: str, by_draw: Sequence[Measured], facts: Sequence[dict[str, float]]) -> Rows:
    """Return rows: of one problem its own value, or sample; of several the sample of means, or the worst where all are meant."""
    table: Rows = []
    for about in by_draw[0]:
        samples = [np.array([np.mean(one[about][side]) for one in by_draw]) for side in (0, 1)]
        if len(by_draw) == 1:
            samples = [np.atleast_1d(side) for side in by_draw[0][about]]
        if about == ELSEWHERE:
            samples = [samples[0].max(keepdims=True), samples[1].min(keepdims=True)]
        own, broken = (summary(sample) for sample in samples)
        if isinstance(about, str):
            table.append({"problem": setting, "quantity": "error", "rule": about, "statement": "", "prediction": np.nan} | own)
            continue
        bound = BOUNDS.get(about, 1.0)
        row = {"problem": setting, "quantity": "claim", "statement": about.id, "prediction": bound} | own
        row |= {"other_sign": float(((samples[0] - bound) * (own["estimate"] - bound) < 0.0).mean())}
        row |= {"broken": broken["estimate"], "broken_error": broken["standard_error"], "broken_of": broken["replications"]}
        table.append(row | {"facts": json.dumps({fact: float(np.mean([one[fact] for one in facts])) for fact in facts[0]})})
    return table


def rows(settings: Settings, results: list[Rows]) -> Rows:
    """Return the rows."""
    return results[0]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each statement on each problem."""
    for row in table[table["quantity"] == "claim"].to_dict("records"):
        broken = row | {"estimate": row["broken"], "standard_error": row["broken_error"], "replications": row["broken_of"]}
        yield STATED[row["statement"]].claim(row["problem"], evidence(row), evidence(broken), json.loads(row["facts"]))


def _printed(point: gt.Point, sizes: Array | Integers) -> Array:
    """Return the printed trace of the leave-one-out estimate with each prompt's own s^2, shape (sizes, M), rewards 0 and 1."""
    exact = point.moments
    return np.asarray(exact.reward_variance * exact.score_power / (sizes[:, None] - 1.0))


def _independent() -> dict[str, Measured]:
    """Prompts at which every answer is right equally often, and 24 policies: the largest deviation, of controls the least."""
    rates = np.array([0.05, 0.3, 0.5, 0.9])
    policy, sizes = gt.TabularSoftmax(len(rates), 5), np.arange(2, HIGH + 1)
    bandit = gt.Bandit(np.tile(rates[:, None], 5))
    problem = gt.Problem(bandit, policy)
    points = [problem.at(theta) for theta in np.random.default_rng(7).normal(size=(POLICIES, policy.dimension))]
    found: dict[str, Measured] = {}
    for estimator, factor in (("rloo", np.ones(sizes.size)), ("dr_grpo", (1.0 - 1.0 / sizes) ** 2)):
        errors = []
        for point in points:
            law = gt.allocation_law(problem, point.theta, estimator, high=HIGH)
            printed = factor[:, None] * _printed(point, sizes)
            wrong = printed * ((sizes - 1.0) / sizes)[:, None]
            errors.append([float(np.abs(one / law.traces - 1.0).max()) for one in (printed, wrong)])
        found[f"rewards that are luck ({estimator})"] = {PRINTED: (np.max(errors, axis=0)[0], np.min(errors, axis=0)[1])}
    other = gt.gallery.problem("tabular")
    lengths = [float(np.sqrt(one.moments.gradient_power)) for one in (*points, other.at(other.theta))]
    found["rewards that are luck"] = {GRADIENT: (max(lengths[:-1]), lengths[-1])}
    return found


def _shared_out(problem: gt.Problem, seed: np.random.SeedSequence, seen: int) -> tuple[Measured, dict[str, float]]:
    """Return what each rule's sizes gain over equal ones, and facts; earlier responses are drawn so often."""
    law = gt.allocation_law(problem, problem.theta, high=HIGH)
    budget = MEAN * problem.policy.n_prompts
    errors = {rule: law.mse(law.sizes(rule, budget)) for rule in RULES}
    equal, least = errors["uniform"], errors["neyman"]  # of leave-one-out estimates Neyman's sizes are the best
    upside_down, steep = (law.mse(law.sizes(rule, budget)) / equal for rule in (UPSIDE_DOWN, STEEPLY))
    beside = {rule.name: law.mse(law.sizes(rule, budget)) for rule in (VIP_AT_START, SGPO_NOW)}
    found: Measured = {rule: (error / least, np.nan) for rule, error in (errors | beside).items()}
    at = law.known[:, 1] > 0.0
    true, printed = law.traces[MEAN - law.low, at], _printed(law.point, np.array([float(MEAN)]))[0, at]
    ratios = printed / true
    facts = {"least ratio": float(ratios.min()), "greatest ratio": float(ratios.max()), "median ratio": float(np.median(ratios))}
    facts |= {f"error, {rule}": error / least for rule, error in errors.items()} | {"gain of the best": 1.0 - least / equal}
    # As the printed law with the largest variance that rewards have, at all prompts: it knows nothing of p.
    broken = float(np.abs(printed / (4.0 * law.known[at, 1]) / true - 1.0).max())
    found[ELSEWHERE] = float(np.abs(ratios - 1.0).max()), broken
    if np.ptp(law.known[:, 1]) > 1e-9:  # else these rules have nothing to choose by
        found[VIP_GAINS] = errors["vip"] / equal, upside_down
        found[DYNAMO_GAINS] = errors["dynamo"] / equal, upside_down
        found[SGPO_GAINS] = errors["sgpo"] / equal, steep
        if np.isin(law.point.bandit.values, (0.0, 1.0)).all():
            for statement, more in ((SEEN_RAW, 0.0), (SEEN, 1.0)):
                found[statement] = _by_seen_rates(law, more, budget, np.random.default_rng(seed), seen) / equal, upside_down
    if equal - least >= WORTH * equal:
        found[VIP_SHARE] = (errors["vip"] - least) / (equal - least), (upside_down * equal - least) / (equal - least)
    return found, facts


def _by_seen_rates(law: gt.AllocationLaw, more: float, budget: int, rng: np.random.Generator, seen: int) -> Array:
    """Return errors with rates that earlier responses gave: sizes do not depend on the responses that they are of."""
    rights = rng.binomial(SEEN_BEFORE, np.clip(law.known[:, 0], 0.0, 1.0), size=(seen, len(law.known)))
    rates = (rights + more) / (SEEN_BEFORE + 2.0 * more)
    known = (np.stack([own, own * (1.0 - own), *law.known[:, 2:].T], axis=1) for own in rates)
    return np.array([law.mse(replace(law, known=one).sizes("vip", budget)) for one in known])
