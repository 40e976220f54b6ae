"""SmolLM2, its last block or adapters in all blocks trained: what the planner recommends from a log of the start, and its loss.

The shipped records of `gt.data.trained_model` judge. They have efficiencies of one update, which are exact, and success at the
end of runs with Adam at equal responses. A log has 8 responses to each of the 40 questions, drawn from the model at the start.
For a step it has sketches of 128 numbers. For a run it has rewards alone, which do not depend on what is going to learn. Runs
have three seeds, or ten, which decide nothing at the level of the whole report: their limits are 95% limits.

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
from grpo_theory.evidence import Claim, Evidence, Share, Statement
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.plan import Limits
from grpo_theory.plan.run_advice import SIZES, advise_run
from simulations.plan.asked_planner import CONTROL, LOGGED, PERMUTED, PLANNED, nearest, permuted, plan
from simulations.plan.error_parts import Part, summary_of
from simulations.plan.run_worlds import draw_log, sampler
from simulations.plan.trained_start import problem_at_start
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.runs.seed_limits import jackknife, with_limits
from simulations.sources import OURS

PAGE = "docs/planner.md"
STEP = Statement(
    "plan/step/trained model",
    PAGE,
    "SmolLM2 learns, and a group size is recommended from a log of its start. In at least nine of ten logs, it loses at most a "
    "tenth of the highest efficiency of an update",
    "upper bound",
    whose=OURS,
)
RUN = Statement(
    "plan/run/trained model",
    PAGE,
    "SmolLM2 learns, and a group size for the run is recommended from rewards at the start alone. At the end it loses at most "
    "two points of success against the best other size",
    "upper bound",
    whose=OURS,
)
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
HABITS = (2, 4, 8, 16, 32, 64)


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
            table += [kept | row for row in Ends(data, settings["estimator"], settings["updates"]).rows(told[PLANNED])]
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


class Ends:
    """Success after some updates of an estimator's runs with Adam, each seed at the learning rate that the other seeds chose.

    Attributes
    ----------
    by_rate : dict of int to ndarray
        Success by seed and learning rate of each group size; some sizes have more seeds than others.
    """

    def __init__(self, data: TrainedModel, estimator: str, updates: int) -> None:
        place = data.updates.tolist().index(updates)
        runs = [run for run in data.runs if (run.arm.estimator, run.arm.optimiser, run.arm.reuse) == (estimator, "Adam", 1)]
        seeds = {run.seed for run in runs}
        rates = sorted({run.arm.rate for run in runs})
        rates = [rate for rate in rates if {run.seed for run in runs if run.arm.rate == rate} == seeds]
        found: dict[int, dict[int, list[float]]] = {size: {} for size in SIZES}
        for run in runs:
            if run.arm.rate in rates:
                at = found[run.arm.group_size].setdefault(run.seed, [np.nan] * len(rates))
                at[rates.index(run.arm.rate)] = float(run.success[place])
        self.by_rate = {size: np.array([ends[seed] for seed in sorted(ends)]) for size, ends in found.items()}

    @property
    def by_size(self) -> dict[int, Array]:
        """Success by seed of each size, each seed at the rate that its other seeds chose."""
        return {size: self._tuned(values) for size, values in self.by_rate.items()}

    def without(self, seed: int | None) -> "Ends":
        """Return the same without a seed, or as it is; sizes that have it not stay as they are."""
        found = object.__new__(Ends)
        found.by_rate = {
            size: values if seed is None or seed >= len(values) else np.delete(values, seed, axis=0)
            for size, values in self.by_rate.items()
        }
        return found

    @property
    def common(self) -> int:
        """How many seeds every group size has, the first ones."""
        return min(map(len, self.by_size.values()))

    @staticmethod
    def _tuned(values: Array) -> Array:
        """Return success by seed of values (seeds, rates), at the rate with the highest mean over the other seeds."""
        others = (values.sum(axis=0) - values) / (len(values) - 1)
        return values[np.arange(len(values)), others.argmax(axis=1)]

    def lead(self, size: int, against: int | None) -> Array:
        """Return, by seed, how far another size is ahead of one; of the best other one, which the other seeds chose, if None."""
        if against is not None:
            count = min(len(self.by_size[size]), len(self.by_size[against]))
            return self.by_size[against][:count] - self.by_size[size][:count]
        others = np.stack([values[: self.common] for other, values in self.by_size.items() if other != size])
        left = (others.sum(axis=1, keepdims=True) - others).argmax(axis=0)
        return others[left, np.arange(self.common)] - self.by_size[size][: self.common]

    def rows(self, told: Array) -> Iterator[dict[str, Any]]:
        """Yield success by size, and what recommended sizes (L,) and usual ones lose to the best other size and to each other."""
        for size, values in self.by_size.items():
            yield {"quantity": "success", "arm": f"always {size}", "prediction": np.nan} | with_limits(summary(values))
        larger = np.minimum(told * TOO_LARGE, SIZES[-1])
        arms = {PLANNED: told, CONTROL: larger} | {f"always {size}": np.array([size]) for size in HABITS}
        for arm, sizes in arms.items():
            yield {"quantity": "lost", "arm": arm, "against": "best", "prediction": MARGIN} | self._lost(sizes, None)
        for size in HABITS:
            yield (
                {"quantity": "lost", "arm": PLANNED, "against": f"always {size}"}
                | {"prediction": MARGIN}
                | self._lost(told, size)
            )

    def _lost(self, told: Array, against: int | None) -> dict[str, float]:
        """Return what sizes (L,), one from each log, lose on average, with the errors of seeds and of logs."""
        if against is not None and (told == against).all():  # one size against itself
            return with_limits({"estimate": 0.0, "standard_error": 0.0, "replications": self._seeds(told, against)})
        seeds, by_log = self._seeds(told, against), self._by_log(told, against)
        found = jackknife(lambda seed: np.array(self.without(seed)._by_log(told, against).mean()), seeds)
        runs = Part(float(found["standard_error"]) ** 2, seeds - 1.0)
        if against is None:
            by_log = np.maximum(by_log, 0.0)
        between = Part(float(by_log.var(ddof=1)) / len(told), len(told) - 1.0) if len(told) > 1 else Part(0.0)
        return with_limits(summary_of(float(by_log.mean()), (runs, between)))

    def _seeds(self, told: Array, against: int | None) -> int:
        """Return the number of seeds that a comparison has."""
        return min(len(self.lead(int(size), against)) for size in np.unique(told))

    def _by_log(self, told: Array, against: int | None) -> Array:
        """Return what the size of each log loses, (L,)."""
        leads = {size: float(self.lead(int(size), against).mean()) for size in np.unique(told)}
        return np.array([leads[size] for size in told])


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
