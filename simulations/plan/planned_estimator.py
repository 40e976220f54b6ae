"""Plans for a named estimator: its best group size, whether another estimator would gain, and what the advice loses.

RLOO is planned by its squared error and the others by their efficiency. In the controls a group is taken to be as noisy whatever
its size, or estimates are taken for exact. Where estimators are compared, the control takes responses for prompts.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence, Share
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.plan import choose_group_size
from grpo_theory.plan.advice import TOLERANCE
from grpo_theory.plan.batches import SizeChoice
from grpo_theory.plan.efficiency import EfficiencyChoice, Estimates, StepLaw, choose_by_efficiency
from grpo_theory.plan.estimator_advice import EstimatorLaws
from simulations.plan import estimator_switches
from simulations.plan.estimator_pilots import LIMITS, LOGGED, NAMES, PROMPTS, draw_logs, efficiencies
from simulations.statements import stated

HOLDS = {name: stated(f"plan/estimator/{name}") for name in ("best size", "risk")}
"""What is to hold in 95% of logs."""
REGRET, SWITCH = stated("plan/estimator/regret", "plan/estimator/switch")

LEVEL = 0.95
MARGIN = 0.02
"""A set that holds the best size in 93 of 100 cases in place of 95 misleads nobody, as of the other plans."""
ESTIMATORS = ("rloo", "dr_grpo", "trl_grpo")
"""Dr. GRPO's efficiency is RLOO's: the two ways of planning are tried on one truth."""
BY_ERROR = "rloo"
REPLICATIONS, QUICK_REPLICATIONS, CHUNKS, CONTROLS = 300, 40, 4, 20
"""Logs in each chunk. Controls are wrong by so much that fewer do."""
QUANTITIES = ("regret", *HOLDS)
"""What is found of every estimator."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem."""
    each, chunks = (QUICK_REPLICATIONS, 1) if quick else (REPLICATIONS, CHUNKS)
    return [Cell({"problem": name, "replications": each}, chunks) for name in NAMES]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, dict[str, list[float]]]:
    """Draw logs, plan each estimator's batch from them, and judge what is said; of some also what wrong planners say."""
    name = settings["problem"]
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, rollouts in enumerate(draw_logs(name, rng, settings["replications"])):
        laws, chosen = EstimatorLaws(rollouts, LIMITS, None), {}
        for estimator in ESTIMATORS:
            choices = {"planned": plan(rollouts, laws, estimator)}
            if number < CONTROLS:
                choices["control"] = by_efficiency(as_noisy_at_all_sizes(law_of(laws, estimator)))
            for arm, choice in choices.items():
                for quantity, value in judge(choice, name, estimator).items():
                    found[f"{arm}, {estimator}"][quantity].append(value)
            chosen[estimator] = choices["planned"]
        if name in estimator_switches.JUDGED:
            for arm in ("planned", "control")[: 2 if number < CONTROLS else 1]:
                judged = estimator_switches.judge_switches(name, laws, chosen, LEVEL, broken=arm == "control")
                for estimator, values in judged.items():
                    for quantity, value in values.items():
                        found[f"{arm}, {estimator}"][quantity].append(value)
    return {key: dict(values) for key, values in found.items()}


def plan(rollouts: gt.Rollouts | gt.RaggedRollouts, laws: EstimatorLaws, estimator: str) -> SizeChoice:
    """Return what the planner says of the group sizes of a named estimator."""
    if estimator == BY_ERROR:
        return choose_group_size(rollouts, LIMITS, LEVEL)
    return by_efficiency(law_of(laws, estimator))


def law_of(laws: EstimatorLaws, estimator: str) -> StepLaw:
    """Return the law of a named estimator's step, which has sizes that are allowed."""
    law = laws.of(gt.estimators()[estimator])
    assert law is not None
    return law


def by_efficiency(law: StepLaw) -> EfficiencyChoice:
    """Return the choice by efficiency."""
    return choose_by_efficiency(law, LIMITS.batches()[1], LEVEL)


def as_noisy_at_all_sizes(law: StepLaw) -> StepLaw:
    """Return the law of who takes a group of any size for one of 2, so that more prompts are better, and estimates for exact."""
    along, own, power = (
        Estimates(np.full_like(part.values, part.values[0]), np.zeros_like(part.influences))
        for part in (law.along, law.mean_square, law.power)
    )
    return StepLaw(law.group_sizes, law.square, along, own, power)


def judge(choice: SizeChoice, name: str, estimator: str) -> dict[str, float]:
    """Return by what share the best size's efficiency is above the recommended one's, and what holds of the set and the limit."""
    exact = efficiencies(name, estimator)
    best = int(np.argmax(exact))
    regret = exact[best] / exact[choice.best] - 1.0
    # A squared error is as 1/efficiency - 1, and of the choice by squared error the limit is about that.
    errors = 1.0 / exact - 1.0
    loss = regret if isinstance(choice, EfficiencyChoice) else errors[choice.best] / errors[best] - 1.0
    return {"regret": float(regret), "best size": float(choice.candidates[best]), "risk": float(loss <= choice.risk)}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each estimator and quantity: its mean over the logs, the best group size, and what the smallest one loses."""
    table = []
    for arm in ("planned", "control"):
        for estimator in ESTIMATORS:
            exact = efficiencies(settings["problem"], estimator)
            for quantity in results[0][f"{arm}, {estimator}"]:
                values = np.concatenate([np.array(one[f"{arm}, {estimator}"][quantity]) for one in results])
                facts = {
                    "arm": arm,
                    "estimator": estimator,
                    "quantity": quantity,
                    "best": int(LIMITS.batches()[0][np.argmax(exact)]),
                    "smallest": float(exact.max() / exact[0] - 1.0),
                    "prediction": LEVEL if quantity in HOLDS or quantity == estimator_switches.HOLD else np.nan,
                    "estimate": float(values.mean()),
                    "standard_error": float(values.std(ddof=1) / np.sqrt(values.size)),
                }
                table.append(dict(settings) | facts | {"replications": values.size})
    return table


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read off how often sets and limits hold, and what the recommended sizes lose on average."""
    by_key = table.set_index(["problem", "estimator", "quantity", "arm"])
    found = []
    for name in NAMES:
        for estimator in ESTIMATORS:
            setting = f"{name}, {estimator}, {PROMPTS} prompts of {LOGGED}"
            for quantity, statement in HOLDS.items():
                own, control = (_misses(by_key.loc[name, estimator, quantity, arm]) for arm in ("planned", "control"))
                found.append(statement.claim(setting, own, control))
            if float(by_key.loc[name, estimator, "regret", "planned"]["smallest"]) < TOLERANCE:
                continue  # no advice that errs towards small groups would show
            own, control = (_regret(by_key.loc[name, estimator, "regret", arm]) for arm in ("planned", "control"))
            found.append(REGRET.claim(setting, own, control))
    return found + [_switch(table, estimator) for estimator in estimator_switches.OWN]


def _switch(table: pd.DataFrame, estimator: str) -> Claim:
    """How often the limits of gains over an estimator hold, over the logs of all problems, which are as many of each."""
    own = table[(table["quantity"] == estimator_switches.HOLD) & (table["estimator"] == estimator)]
    setting = f"{own['problem'].nunique()} problems, {estimator}, {PROMPTS} prompts of {LOGGED}"
    return SWITCH.claim(setting, _pooled(own[own["arm"] == "planned"]), _pooled(own[own["arm"] == "control"]))


def _pooled(logs: pd.DataFrame) -> Evidence:
    return _misses(pd.Series({"estimate": logs["estimate"].mean(skipna=False), "replications": logs["replications"].sum()}))


def _misses(row: pd.Series) -> Evidence:
    return Share(1.0 - float(row["estimate"]), 1.0 - LEVEL + MARGIN, replications=int(row["replications"]))


def _regret(row: pd.Series) -> Evidence:
    return Evidence(float(row["estimate"]), TOLERANCE, float(row["standard_error"]), replications=int(row["replications"]))
