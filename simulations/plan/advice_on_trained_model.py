"""SmolLM2, its last block or adapters in all blocks trained: what the planner recommends from a log of the start, and its loss.

The shipped records of `gt.data.trained_model` judge. They have efficiencies of one update, which are exact, and success at the
end of runs with Adam at equal responses. A log has 8 responses to each of the 40 questions, drawn from the model at the start.
For a step it has sketches of 128 numbers. For a run it has rewards alone, which do not depend on what is going to learn. Each
size is at its best of the rates tried. All sizes have three seeds, or ten, which decide nothing at the level of the whole report:
their limits are 95% limits. A negative loss is a lead over the best other size.

In the control groups are four times as large, and eight times for a run. Beside it the planner is asked for a step with permuted
rewards, which tell nothing of gradients.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.data import TrainedModel, trained_model
from grpo_theory.evidence import Claim, Evidence, Share
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.plan import Limits
from grpo_theory.plan.run_advice import SIZES, advise_run
from simulations.best_rate import lead, with_limits
from simulations.plan.asked_planner import CONTROL, LOGGED, PERMUTED, PLANNED, nearest, permuted, plan
from simulations.plan.error_parts import Part, summary_of
from simulations.plan.run_worlds import draw_log, sampler
from simulations.plan.trained_start import problem_at_start
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_runs import arms_of
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.statements import stated

STEP, RUN = stated("plan/step/trained model", "plan/run/trained model")
FEW = "three or ten seeds say nothing at the level of the whole report, not even of sizes that lose 20 points"
POWERLESS = {(RUN.id, "*"): FEW}

TRAINED = ("last block", "adapters")
ESTIMATORS, RESPONSES = ("dr_grpo", "grpo"), 128
MARGIN, TOO_LARGE, LARGER = 0.02, 8, 4
"""As where worlds and networks judge (`planned_run`): two points of success, and the factors of a broken planner."""
LENGTHS = (12, 96)
"""Updates: an eighth of a run, and all of it, 38 and 307 responses for each question."""
LOGS, RUN_LOGS = 256, 3
"""For a step, and for a run, where each log takes the planner ten seconds."""
MISLED = 0.1
"""One log of ten may mislead: more often, and gradients would not be worth their logging."""


def cells(quick: bool) -> list[Cell]:
    """For each estimator, one cell for a step of each part and one for each length of a run, with a chunk for each log."""
    logs, run_logs, lengths = (4, 1, LENGTHS[:1]) if quick else (LOGS, RUN_LOGS, LENGTHS)
    data = {trained: trained_model(trained).provenance["sha256"] for trained in TRAINED}
    found = []
    for name in ESTIMATORS:
        for trained, sha in data.items():
            found.append(Cell({"asked": "step", "trained": trained, "estimator": name, "updates": 1, "logs": logs, "data": sha}))
        for updates in lengths:
            settings = {"asked": "run", "estimator": name, "updates": updates, "logs": run_logs, "data": data[TRAINED[0]]}
            found.append(Cell(settings, run_logs))
    return found


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, list[int]]:
    """Return the sizes that are recommended from logs: of a step by arm, of a run from one log."""
    if settings["asked"] == "run":
        total = settings["updates"] * RESPONSES
        return {PLANNED: [advise_run(_log(TRAINED[0], rng).counts, total, estimator=settings["estimator"]).group_size]}
    found: dict[str, list[int]] = {arm: [] for arm in (PLANNED, PERMUTED)}
    limits, sizes = Limits(budget=RESPONSES, max_group_size=SIZES[-1]), np.array(SIZES)
    for _ in range(settings["logs"]):
        log = _log(settings["trained"], rng)
        for arm, one in zip(found, (log, permuted(log, rng)), strict=True):
            found[arm].append(nearest(sizes, plan(one, settings["estimator"], limits)))
    return found


def _log(trained: str, rng: np.random.Generator) -> gt.RaggedRollouts:
    """Return a log of the start: so many responses to each question, with rewards and sketches."""
    case = problem_at_start(trained)
    return draw_log(sampler(case, case.theta), np.arange(case.policy.n_prompts), LOGGED, rng)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return what the recommended sizes lose, of efficiency or of success, and how often each was recommended."""
    told = {arm: np.array([size for one in results for size in one[arm]]) for arm in results[0]}
    table: Rows = []
    for trained in TRAINED if settings["asked"] == "run" else (settings["trained"],):
        kept = {"trained": trained} | {name: settings[name] for name in ("asked", "estimator", "updates")}
        for arm, sizes in told.items():
            for size in SIZES:
                share = {"quantity": "recommended", "arm": arm, "size": size, "prediction": np.nan}
                table.append(kept | share | summary((sizes == size).astype(float)))
        data = trained_model(trained)
        if settings["asked"] == "step":
            table += [kept | row for row in _step_rows(data, settings["estimator"], told)]
        else:
            table += [kept | row for row in _run_rows(ends_of(data, settings["estimator"], settings["updates"]), told[PLANNED])]
    return table


def _step_rows(data: TrainedModel, estimator: str, told: dict[str, Array]) -> Iterator[dict[str, Any]]:
    """Yield the exact efficiency that recommended sizes lose against the best size, at the start and on the way."""
    for place, (course, number) in PLACES.items():
        one = data.courses[course.format(estimator)]
        scores = Scores(one.success[number], one.gram[number], one.powers[number])
        values = np.array([efficiency(scores, estimator, RESPONSES // size, size) for size in SIZES])
        arms = told | {CONTROL: np.minimum(LARGER * told[PLANNED], SIZES[-1])}
        for arm, sizes in arms.items():
            lost = 1.0 - values[np.searchsorted(SIZES, sizes)] / values.max()
            at = {"quantity": "efficiency lost", "place": place, "arm": arm, "against": "best", "prediction": LOST}
            yield at | summary(lost)
            misled = {"quantity": "misled", "place": place, "arm": arm, "against": "best", "prediction": MISLED}
            yield misled | summary((lost > LOST).astype(float))
        for size, value in zip(SIZES, values, strict=True):
            at = {"quantity": "efficiency lost", "place": place, "arm": f"always {size}", "against": "best", "prediction": LOST}
            yield at | {"estimate": 1.0 - float(value / values.max()), "standard_error": 0.0, "replications": 0}


def ends_of(data: TrainedModel, estimator: str, updates: int) -> dict[int, Array]:
    """Return success after some updates by group size, (rates, seeds), of the seeds that all sizes have."""
    runs = [run for run in data.runs if (run.arm.estimator, run.arm.reuse) == (estimator, 1)]
    shared = set.intersection(*({run.seed for run in runs if run.arm.group_size == size} for size in SIZES))
    found, look = arms_of(run for run in runs if run.seed in shared), data.updates.tolist().index(updates)
    return {size: found[estimator, size][..., look] for size in SIZES}


def _run_rows(ends: dict[int, Array], told: Array) -> Iterator[dict[str, Any]]:
    """Yield success by size, and what recommended sizes (L,) and fixed ones lose to the best other size and to each other."""
    for size, values in ends.items():
        yield {"quantity": "success", "arm": f"always {size}", "prediction": np.nan} | lead((values,))
    arms = {PLANNED: told, CONTROL: np.minimum(told * TOO_LARGE, SIZES[-1])}
    arms |= {f"always {size}": np.array([size]) for size in SIZES}
    for arm, sizes in arms.items():
        yield {"quantity": "lost", "arm": arm, "against": "best", "prediction": MARGIN} | lost(ends, sizes)
    for size in SIZES:
        against = {"quantity": "lost", "arm": PLANNED, "against": f"always {size}", "prediction": MARGIN}
        yield against | lost(ends, told, size)


def lost(ends: dict[int, Array], told: Array, against: int | None = None) -> dict[str, Any]:
    """Return what sizes (L,), one from each log, lose on average to a size, or to the best of the others than each if None."""
    sides: list[Array] = []
    contrast, by_log = [], np.zeros(len(told))
    for size in np.unique(told):
        others = [values for other, values in ends.items() if (other != size if against is None else other == against)]
        pair = (np.concatenate(others), ends[int(size)])
        sides += pair
        contrast += [np.mean(told == size), -np.mean(told == size)]
        by_log[told == size] = lead(pair, (1.0, -1.0))["estimate"]
    row = lead(sides, contrast)
    if not row["standard_error"]:  # one size against itself
        return row
    between = Part(float(by_log.var(ddof=1)) / len(told), len(told) - 1.0) if len(told) > 1 else Part(0.0)
    runs = Part(row["standard_error"] ** 2, row["replications"] - 1.0)
    return row | with_limits(summary_of(row["estimate"], (runs, between)))


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge how many logs mislead a step, and the success that the run's size loses."""
    misled = table[table["quantity"] == "misled"]
    for (trained, estimator, place), part in misled.groupby(["trained", "estimator", "place"], sort=False):
        own, control = (Share(row.estimate, row.prediction, replications=int(row.replications)) for row in _arms(part))
        yield STEP.claim(f"{trained}, {estimator}, {place}", own, control)
    ends = table[(table["quantity"] == "lost") & (table["against"] == "best")]
    for (trained, estimator, updates), part in ends.groupby(["trained", "estimator", "updates"], sort=False):
        planned, broken = (
            Evidence(row.estimate, row.prediction, row.standard_error, replications=int(row.replications)) for row in _arms(part)
        )
        yield RUN.claim(f"{trained}, {estimator}, {updates} updates", planned, broken)


def _arms(part: pd.DataFrame) -> Iterator[Any]:
    """Return the rows of the planner and of the control."""
    return part.set_index("arm").loc[[PLANNED, CONTROL]].itertuples()
