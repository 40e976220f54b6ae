"""What runs at each group size say of the planner's advice: what its choice loses in a world, with the error of that.

Studies of the advice for whole runs share it.  A size is judged against the best other one, which runs chose that do not judge.
Errors count the runs, the choices of learning rates and the logs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.harness.step_search import best_step
from grpo_theory.harness.study import Rows, Settings
from grpo_theory.plan.run_advice import SIZES, RunAdvice
from grpo_theory.plan.run_simulation import RESPONSES, TUNING, TUNING_RUNS, Arm
from simulations.plan.error_parts import Part, along, best_by_others, of_runs, pooled, summary_of
from simulations.runs.tuning import FOLDS, choice_variance

MARGIN = 0.02
"""Two points of success, as where the law of the best size is judged: what that growth was worth at most."""
USUAL, FAR_OFF = 4, 32
"""The usual size that nothing is gained on, and one so far off that what is gained on it would show."""
TOO_LARGE, LARGER = 8, 4
"""The broken planner's factor: the smallest power of 2 that costs more than the margin where a prompt gets 128 responses.  A size
is compared with another by the factor of the broken one that is smaller, because there zero is the margin."""
INPUTS, ANSWERS, SPREAD = 16, 8, 4.0
"""Of the networks: the second layer starts at normal variables of this size, so that success rates spread from 0.0001 to 0.6."""
NETWORK_POWERS = range(-7, 1)
"""Networks take smaller learning rates: the best ones are inside this grid."""
PROMPTS = 48
"""Of the worlds that are judged: another number than the planner's."""
LOGGED = (256, 8)
"""The prompts and responses of a log."""
JUDGED_RUNS = 128
COMPARED = (4, 8, 16)
"""The sizes that a recommendation is compared with; their broken comparison is with `LARGER` ones."""
CELL = ["start", "estimator", "each"]
"""What a cell of these studies is: how prompts start, what trains, and the responses of a run to each prompt."""


def without(advice: RunAdvice, title: str) -> RunAdvice:
    """Return the advice of the worlds of other kinds than one; all of it where no world is of that kind."""
    kept = [world for world in advice.worlds if world.title != title]
    whole = sum(world.weight for world in kept)
    return replace(advice, worlds=tuple(replace(world, weight=world.weight / whole) for world in kept))


def trained(problem: gt.Problem, settings: Settings, powers: Sequence[int], seed: np.random.SeedSequence) -> Array:
    """Return success at the end of runs at each size, (R, S): each quarter has the rate that other runs chose for it."""
    rates, updates = problem.bandit.n_prompts * 3.0 ** np.array(powers), (settings["each"] * PROMPTS // RESPONSES,)
    found = []
    for size in SIZES:
        arm = Arm(problem, find(settings["estimator"]), size)
        tried = np.array([arm.train(rate, updates, TUNING_RUNS, seed, TUNING)[0] for rate in rates])
        steps = [best_step(rates, -share.mean(axis=1)) for share in np.array_split(tried, FOLDS, axis=1)]
        count = JUDGED_RUNS // FOLDS
        ends = [arm.train(step, updates, count, seed, TUNING + 1 + fold)[0] for fold, step in enumerate(steps)]
        found.append(np.concatenate(ends))
    return np.stack(found, axis=1)


def rows_of(settings: Settings, results: list[Any]) -> Rows:
    """Return the success of each size in each world, what is recommended there, and what choices lose on average over worlds."""
    judged, *logs = results
    worlds = [np.array(runs) for runs in judged.values()]
    added = [choice_variance(runs) for runs in worlds]
    names = {name: settings[name] for name in CELL} | {"prediction": np.nan}
    table: Rows = []
    for name, runs, extra in zip(judged, worlds, added, strict=True):
        for s, size in enumerate(SIZES):
            at = names | {"quantity": "success", "world": name, "group_size": size}
            table.append(at | summary_of(float(runs[:, s].mean()), (of_runs(runs[:, s]), Part(extra / FOLDS))))
        for number, log in enumerate(logs):
            told_here = {"quantity": "told", "world": name, "log": number, "estimate": float(log[name])}
            table.append(names | told_here | {"standard_error": 0.0, "replications": 0})
    chosen = {"planned": np.array([[SIZES.index(log[name]) for name in judged] for log in logs])}
    last = len(SIZES) - 1
    chosen["control"] = np.minimum(chosen["planned"] + int(np.log2(TOO_LARGE)), last)
    chosen |= {f"always {size}": np.full((1, len(worlds)), s) for s, size in enumerate(SIZES)}
    usual = [f"always {size}" for size in SIZES]
    compared = [(arm, "best") for arm in chosen] + [("planned", other) for other in usual]
    compared += [(f"always {LARGER * size}", f"always {size}") for size in COMPARED]
    for arm, other in compared:
        against = None if other == "best" else chosen[other][0]
        row = lost(worlds, added, chosen[arm], against)
        table.append(names | {"quantity": "lost", "arm": arm, "against": other} | row)
    return table


def lost(worlds: list[Array], added: list[float], chosen: Array, against: Array | None) -> dict[str, float]:
    """Return the success that choices lose on average over worlds, with its parts of variance; to the best other size if none.

    Parameters
    ----------
    worlds : list of ndarray, shape (R, S)
        Success of runs, by group size.
    added : list of float
        The variance that one choice of a learning rate adds in each.
    chosen : ndarray of int, shape (L, W)
        The place of the size that each log led to in each world.
    against : ndarray of int, shape (W,), or None
    """
    places = zip(worlds, chosen.T, [None] * len(worlds) if against is None else against, strict=True)
    by_world, samples, apart = zip(*(lost_in(*each) for each in places), strict=True)
    by_log, count = np.mean(by_world, axis=0), len(worlds)
    runs = pooled(of_runs(sample) for sample in samples)
    parts = {
        "run_variance": runs.variance / count**2,
        "run_free": runs.free,
        "rate_variance": float(np.dot(apart, added)) / FOLDS / count**2,
        "log_variance": float(by_log.var(ddof=1)) if len(by_log) > 1 else 0.0,
    }
    variance = parts["run_variance"] + parts["rate_variance"] + parts["log_variance"] / len(by_log)
    said = {"estimate": float(by_log.mean()), "standard_error": float(np.sqrt(variance)), "replications": JUDGED_RUNS}
    return parts | {"logs": len(by_log)} | said


def lost_in(samples: Array, chosen: Array, against: int | None) -> tuple[Array, Array, float]:
    """Return what each log's choice loses in a world, (L,), the runs' values, (R,), and how many choices of a rate count.

    To the best other size a choice loses at least 0, with the error of that comparison. That the size was the best of these runs
    does not make it certain.
    """
    by_log, sample, places = np.zeros(len(chosen)), np.zeros(len(samples)), np.arange(samples.shape[1])
    for place in np.unique(chosen):
        own = chosen == place
        other = best_by_others(samples, FOLDS, int(place)) if against is None else np.full(FOLDS, against)
        lead = along(samples, other) - samples[:, place]
        by_log[own] = max(0.0, float(lead.mean())) if against is None else float(lead.mean())
        sample += own.mean() * lead
    if against is None:
        return by_log, sample, 2.0
    weights = (chosen[:, None] == places).mean(axis=0) - (places == against)
    return by_log, sample, float(weights @ weights)


def claims_of(table: pd.DataFrame, regret: Statement, against: Mapping[int, Statement], same: Statement) -> Iterator[Claim]:
    """Judge the regret, whether it is less than that of one size for all, and whether anything is gained on groups of 4.

    Parameters
    ----------
    table : DataFrame
        What `rows_of` made.
    regret, same : Statement
    against : mapping of int to Statement
        Of some of the sizes in `COMPARED`.
    """
    found = table[table["quantity"] == "lost"]
    logs = spread_of_logs(found)
    for (start, estimator, each), cell in found.groupby(CELL, sort=False):
        setting = f"{start} ({estimator}), {each} responses a prompt"
        at = evidence_by_arm(cell, logs)
        facts = {f"loss of G = {size}": at[f"always {size}", "best"].estimate for size in SIZES}
        own, broken = (replace(at[arm, "best"], prediction=MARGIN) for arm in ("planned", "control"))
        yield regret.claim(setting, own, broken, facts=facts)
        for size, statement in against.items():
            usual = f"always {size}"
            yield statement.claim(setting, at["planned", usual], at[f"always {LARGER * size}", usual])
        gains = (at["planned", f"always {size}"] for size in (USUAL, FAR_OFF))
        own, broken = (replace(one, estimate=-one.estimate, prediction=MARGIN) for one in gains)
        yield same.claim(setting, own, broken)


def spread_of_logs(found: pd.DataFrame) -> dict[str, Part]:
    """Return the variance between logs of what the planner loses, by what it is compared with, pooled over all cells."""
    planned = found[found["arm"] == "planned"]
    free = float((planned[planned["against"] == "best"]["logs"] - 1).sum())
    return {other: Part(float(part["log_variance"].mean()), free) for other, part in planned.groupby("against")}


def evidence_by_arm(cell: pd.DataFrame, logs: Mapping[str, Part]) -> dict[tuple[str, str], Evidence]:
    """Return the evidence of a cell's rows, by arm and what it is compared with."""
    rows = {(row.arm, row.against): row for row in cell.itertuples()}
    return {key: _evidence_of(row, logs[key[1]], rows["planned", "best"]) for key, row in rows.items() if key[1] in logs}


def _evidence_of(row: Any, logs: Part, spare: Any) -> Evidence:
    """Return the evidence of a row, which is compared with 0; one size for all has no log.

    Where every log led to the very size that it is compared with, nothing has varied.  Another log might lead elsewhere, so the
    runs' variance of a spare row, a comparison of two sizes, stands in.
    """
    parts = [Part(row.run_variance, row.run_free), Part(row.rate_variance)]
    if row.logs > 1:
        parts.append(Part(logs.variance / row.logs, logs.free))
    if not any(part.variance > 0.0 for part in parts):
        parts = [Part(spare.run_variance, spare.run_free)]
    said = summary_of(float(row.estimate), parts)
    return Evidence(said["estimate"], 0.0, said["standard_error"], replications=int(said["replications"]))
