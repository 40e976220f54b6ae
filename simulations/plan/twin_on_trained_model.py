"""How far a twin looks ahead of SmolLM2's last block: success along exact ascent, predicted from logs of the start.

The shipped records of `gt.data.trained_model` have one course without division that a twin can follow: steps along exact
gradients in balanced coordinates. A twin cannot follow runs with Adam, because sketches do not keep the coordinates in which Adam
scales. A log has 64 responses to each of the 40 questions, with sketches of 128 numbers. In the control sketches are twice as
long.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.data import trained_model
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.plan.run_worlds import draw_log, sampler
from simulations.plan.trained_start import problem_at_start
from simulations.statements import stated

REACH = stated("twin/trained model")
POWERLESS = {
    (
        REACH.id,
        "80 updates",
    ): "sketches twice as long are four times the learning rate, which makes up for features that do not learn"
}

COURSE, STRIDE = "plain", 0.1
"""The recorded ascent, and the first update's root mean square change of a question's logits, as the records were made."""
FULL, MISS = 64, 0.03
"""Logged responses to a question, and points of success that nobody would act on, as in `twin_reach`."""
LOOKS = (10, 20, 40, 80)
"""Updates after which the records know success."""
JUDGED = LOOKS[1:]
"""Before, success has changed by less than the margin."""
LOGS, QUICK_LOGS = 128, 4
ARMS = {"twin": 1.0, "control": 2.0}
"""By what the sketches of each are multiplied; by less the control would do better than the twin, which is too slow."""


def cells(quick: bool) -> list[Cell]:
    """One cell."""
    return [Cell({"logs": QUICK_LOGS if quick else LOGS, "data": trained_model().provenance["sha256"]})]


def step_scale() -> float:
    """Return the step of the recorded ascent, along the gradient of mean success: its first update has a stated length."""
    case = problem_at_start()
    moved = case.policy.logit_map.logits(gt.moments(case, case.theta).gradient)
    return STRIDE / float(np.sqrt((moved**2).sum(axis=1).mean()))


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, list[list[float]]]:
    """Return the success at the looks, (logs, looks), that each arm predicts from each log."""
    case, step = problem_at_start(), step_scale()
    drawn, prompts = sampler(case, case.theta), np.arange(case.policy.n_prompts)
    found: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    for _ in range(settings["logs"]):
        log = draw_log(drawn, prompts, FULL, rng)
        for arm, factor in ARMS.items():
            found[arm].append(ascend(gt.twin(log.with_scores(factor * log.known_scores)), step))
    return found


def ascend(problem: gt.Problem, step: float) -> list[float]:
    """Return success at the looks of steps along the exact gradient of mean success."""
    theta, values = problem.theta.copy(), []
    for update in range(1, LOOKS[-1] + 1):
        theta = theta + step * gt.moments(problem, theta).gradient
        if update in LOOKS:
            values.append(float(gt.objective(problem, theta)))
    return values


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return success by arm and look, how far predictions miss it, and where it would be if the features stayed."""
    course, (found,) = trained_model().courses[COURSE], results
    real = dict(zip(course.updates.tolist(), course.success.mean(axis=1).tolist(), strict=True))
    frozen = ascend(problem_at_start(), step_scale())
    table: Rows = []
    for c, ahead in enumerate(LOOKS):
        at = {"ahead": ahead, "change": real[ahead] - real[0], "prediction": real[ahead]}
        table.append(at | {"quantity": "success", "arm": "real", "estimate": real[ahead]} | EXACT)
        table.append(at | {"quantity": "success", "arm": "features of the start", "estimate": frozen[c]} | EXACT)
        for arm in ARMS:
            values: Array = np.array(found[arm])[:, c]
            table.append(at | {"quantity": "success", "arm": arm} | summary(values))
            missed = {"quantity": "miss", "arm": arm, "prediction": MISS}
            table.append(at | missed | summary(np.abs(values - real[ahead])))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the misses where success has changed by more than the margin."""
    for ahead, part in table[(table["quantity"] == "miss") & table["ahead"].isin(JUDGED)].groupby("ahead", sort=False):
        at = part.set_index("arm")
        own, control = (
            Evidence(row.estimate, MISS, row.standard_error, replications=int(row.replications))
            for row in (at.loc[arm] for arm in ARMS)
        )
        yield REACH.claim(f"{ahead} updates", own, control, facts={"change": float(at.loc["twin", "change"])})
