"""What runs at each group size say of the planner's advice: what its choice loses, over draws of a kind of problem.

A group size has one learning rate for all draws of a kind. The best size in hindsight is the best of all sizes and rates of the
grid, by the mean over draws. Logs of rewards alone say nothing of a draw's features. So each log is judged by all draws, and how
far apart logs end is pooled over all cells.

Two choices were made after a run. In the control all groups have 32 responses, eight times the usual 4. First it was eight times
each recommendation. Three logs that lead to 16 or 32 are so far apart that this was not told from the margin. The grid of the
worlds was extended by one rate at either end. One size in nine had its best rate at an end, of graded rewards three in ten.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.evidence import Evidence
from grpo_theory.harness.study import EXACT, Cell, Settings
from grpo_theory.plan.run_advice import RESPONSES, SIZES, advise_run
from grpo_theory.simulate.step_grid import StepGrid
from simulations.best_rate import lead
from simulations.seeds import child_seed, seed_of

MARGIN = 0.02
"""Two points of success, as where the law of the best size is judged: what that growth was worth at most."""
USUAL, FAR_OFF = 4, 32
"""The usual size that nothing is gained on, and one so far off that what it loses, or what is gained on it, shows."""
LARGER = 4
"""By how much larger groups stand in for a recommendation where it is compared with one size: there zero is the margin."""
INPUTS, ANSWERS, SPREAD = 16, 8, 4.0
"""Of the networks: the second layer starts at normal variables of this size, so that success rates spread from 0.0001 to 0.6."""
POWERS, NETWORK_POWERS = range(-4, 6), range(-7, 1)
"""The learning rates are these powers of 3, times the number of prompts; networks take smaller ones."""
PROMPTS = 48
"""Of the worlds that are judged: another number than the planner's."""
LOGGED = (256, 8)
"""The prompts and responses of a log."""
DRAWS, QUICK_DRAWS, TOGETHER = 48, 4, 32
"""Draws of each kind; and runs of each draw, which are trained side by side, as many at each rate."""
LOGS, QUICK_LOGS = 3, 2
"""Of each cell: few, because asking the planner takes as long as forty draws do, or ten of long runs."""
COMPARED = (4, 8, 16)
"""The sizes that a recommendation is compared with; their broken comparison is with `LARGER` ones."""
CELL = ["start", "estimator", "each"]
"""What a cell of these studies is: how prompts start, what trains, and the responses of a run to each prompt."""


class Part(NamedTuple):
    """The variance that something independent adds to an estimate, and its degrees of freedom: infinite if it is known."""

    variance: float
    free: float = np.inf


def summary_of(estimate, parts):
    """Return the columns of an estimate whose error has independent parts, with degrees of freedom by Satterthwaite (1946).

    If none varies they are those of all parts.
    """
    variance = sum(part.variance for part in parts)
    squares = sum(part.variance**2 / part.free for part in parts)
    free = variance**2 / squares if squares else sum(part.free for part in parts)
    runs = max(2, int(np.nan_to_num(free)) + 1)  # what is not finite is refused as evidence
    return {"estimate": estimate, "standard_error": float(np.sqrt(variance)), "replications": runs}


def mean_over_kinds(rows, prediction, logs=()):
    """Return the evidence of the mean of rows, one for each kind of problem, which are independent; logs are common to all."""
    parts = [Part(row.standard_error**2 / len(rows) ** 2, row.replications - 1.0) for row in rows.itertuples()]
    return Evidence(prediction=prediction, **summary_of(float(np.array(rows["estimate"]).mean()), [*parts, *logs]))


def network(width, seed, bandit):
    """Return a network at its start; the rewards of its answers are drawn whatever it thinks of them."""
    rng = np.random.default_rng(seed)
    policy = gt.TwoLayerSoftmax(rng.normal(size=(PROMPTS, INPUTS)), width, ANSWERS, scale=width**-0.5)
    rewards, theta = bandit(rng), policy.start(rng)
    theta[width * INPUTS :] = SPREAD * rng.normal(size=ANSWERS * width)
    return gt.Problem(rewards, policy, theta=theta)


def without(advice, title):
    """Return the advice of the worlds of other kinds than one; all of it where no world is of that kind."""
    kept = [world for world in advice.worlds if world.title != title]
    whole = sum(world.weight for world in kept)
    return replace(advice, worlds=tuple(replace(world, weight=world.weight / whole) for world in kept))


def study_of(problems, drawn_log, cases, quick_cases, networks, regret, against, same):
    """Return the functions of a study of such runs: its cells, what computes a chunk, and its claims.

    The first chunk of a cell trains, each other one asks the planner with a log of its own.

    Parameters
    ----------
    problems : callable
        ``problems(start, draw)`` are the problems of a draw, by kind of world; draw 0 is the planner's own and judges nothing.
    drawn_log : callable
        ``drawn_log(problem, rng)`` draws a log of a problem's start.
    cases, quick_cases : sequence of tuple
        Starts, estimators and lengths.
    networks : collection of str
        The starts that are networks.
    regret, same : Statement
    against : mapping of int to Statement
        Of some of the sizes in `COMPARED`.
    """

    def cells(quick):
        logs, draws, listed = (QUICK_LOGS, QUICK_DRAWS, quick_cases) if quick else (LOGS, DRAWS, cases)
        keys = (*CELL, "logs", "draws")
        return [Cell(dict(zip(keys, (*case, logs, draws), strict=True)), 1 + logs, shared=True) for case in listed]

    def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
        start, estimator, seed = settings["start"], settings["estimator"], seed_of(rng)
        if chunk > 0:
            judged, own = problems(start, chunk), np.random.default_rng(child_seed(seed, 0, chunk))
            log, total = drawn_log(next(iter(judged.values())), own), settings["each"] * PROMPTS
            advice = advise_run(log, total, training_prompts=PROMPTS, estimator=estimator)
            return {name: without(advice, name).group_size for name in judged}
        updates, found = (settings["each"] * PROMPTS // RESPONSES,), defaultdict(list)
        powers, batches = NETWORK_POWERS if start in networks else POWERS, [(RESPONSES // size, size) for size in SIZES]
        for draw in range(1, 1 + settings["draws"]):
            for number, (kind, case) in enumerate(problems(start, draw).items()):
                rates, one = case.bandit.n_prompts * 3.0 ** np.array(powers), child_seed(seed, draw, number)
                found[kind].append([reached(case, estimator, batch, rates, updates, one)[:, 0] for batch in batches])
        return {kind: np.transpose(ends, (2, 1, 0)).round(6).tolist() for kind, ends in found.items()}

    def claims(table):
        logs = spread_of_logs(table)
        for (start, estimator, each), cell in table.groupby(CELL, sort=False):
            setting = f"{start} ({estimator}), {each} responses a prompt"
            at = evidence_by_arm(cell, logs)
            facts = {f"loss of G = {size}": at[f"always {size}", "best"].estimate for size in SIZES}
            own, broken = (replace(at[arm, "best"], prediction=MARGIN) for arm in ("planned", f"always {FAR_OFF}"))
            yield regret.claim(setting, own, broken, facts=facts)
            for size, statement in against.items():
                usual = f"always {size}"
                yield statement.claim(setting, at["planned", usual], at[f"always {LARGER * size}", usual])
            gains = (at["planned", f"always {size}"] for size in (USUAL, FAR_OFF))
            own, broken = (replace(one, estimate=-one.estimate, prediction=MARGIN) for one in gains)
            yield same.claim(setting, own, broken)

    return cells, simulate, rows_of, claims


def reached(problem, estimator, batch, rates, updates, seed):
    """Return mean success of a draw's runs at each rate after numbers of updates, (rates, C), with a batch of (prompts, group).

    A run that left the finite numbers has nothing left.
    """
    grid = StepGrid.of(problem, find(estimator), rates, np.ones(updates[-1]), batch)
    return np.nan_to_num(grid.objectives(TOGETHER // np.size(rates), seed, updates), nan=0.0).mean(axis=1)


def lost(values, chosen, against=None):
    """Return the success that choices of a size lose, on average, to the size at a place, or to the best of all in hindsight.

    Parameters
    ----------
    values : ndarray, shape (rates, S, draws)
        Success by learning rate, group size and draw.
    chosen : sequence of int or ndarray of int, shape (draws,)
        Choices, each with one learning rate: the place of the size in all draws, or in each.
    against : int, optional
    """
    draws = np.arange(values.shape[-1])
    arms = [values[:, np.broadcast_to(places, draws.shape), draws] for places in chosen]
    other = values if against is None else values[:, against]
    return lead([other, *arms], [1.0, *[-1.0 / len(arms)] * len(arms)])


def rows_of(settings, results):
    """Return the success of each size in each kind of world, what is recommended there, and what choices lose."""
    judged, *logs = results
    names = {name: settings[name] for name in CELL} | {"prediction": np.nan}
    for kind, runs in judged.items():
        values, at = np.array(runs), names | {"world": kind}
        for s, size in enumerate(SIZES):
            yield at | {"quantity": "success", "group_size": size} | lead([values[:, s]])
        for number, log in enumerate(logs):
            yield at | {"quantity": "told", "log": number, "group_size": log[kind], "estimate": float(log[kind])} | EXACT
        arms = {"planned": [SIZES.index(log[kind]) for log in logs]}
        arms |= {f"always {size}": [s] for s, size in enumerate(SIZES)}
        compared = [(arm, "best") for arm in arms] + [("planned", f"always {size}") for size in SIZES]
        compared += [(f"always {LARGER * size}", f"always {size}") for size in COMPARED]
        for arm, other in compared:
            against = None if other == "best" else arms[other][0]
            yield at | {"quantity": "lost", "arm": arm, "against": other} | lost(values, arms[arm], against)


def spread_of_logs(table):
    """Return what logs add to the variance of what the planner reaches, averaged over kinds of worlds, pooled over cells."""
    success, told = (table[table["quantity"] == quantity] for quantity in ("success", "told"))
    met = told.merge(success, on=[*CELL, "world", "group_size"], suffixes=("", "_reached"))
    cells = met.groupby([*CELL, "log"])["estimate_reached"].mean().groupby(level=CELL)
    return Part(float((cells.var(ddof=1) / cells.count()).mean()), float((cells.count() - 1).sum()))


def evidence_by_arm(cell, logs):
    """Return the evidence that an arm loses nothing, on average over a cell's kinds of worlds, by arm and what it is against."""
    pairs = cell[cell["quantity"] == "lost"].groupby(["arm", "against"], sort=False)
    return {pair: mean_over_kinds(rows, 0.0, [logs] if pair[0] == "planned" else ()) for pair, rows in pairs}
