"""What the planner's group size for a whole run loses, in worlds and networks that its simulated worlds leave out.

A log is drawn at the start of a run, and the planner is asked. What it recommends is judged by runs of a world of a kind that is
taken out of its own, with other prompts, or of a network whose features are learned.  Broken, the planner recommends the size
that loses most.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.plan.run_advice import SIZES, RunAdvice, advise_run
from grpo_theory.plan.run_simulation import JUDGED_RUNS, POWERS, RESPONSES, train_sizes
from grpo_theory.plan.run_worlds import WORLDS
from grpo_theory.samples import RewardCounts
from simulations.seeds import child_seed, seed_of
from simulations.sources import OURS

SOURCE = "question of those who plan a run from rewards alone"
REGRET = Statement(
    "plan/run/regret",
    SOURCE,
    "the group size that the planner recommends for a run from rewards alone loses on average at most two points of success "
    "against the best size, in worlds that it was not given",
    "upper bound",
    whose=OURS,
)
AGAINST: Mapping[int, Statement] = {
    size: Statement(
        f"plan/run/against {size}",
        SOURCE,
        f"the group size that the planner recommends for a run from rewards alone loses less success on average than groups of "
        f"{size} at every budget, in worlds that it was not given",
        "ordering",
        whose=OURS,
    )
    for size in (8, 16)
}
MARGIN = 0.02
"""Two points of success, as where the law of the best size is judged: what that growth was worth at most."""
RATES: Mapping[str, tuple[float, float]] = {"easy": (0.5, 0.1), "wide": (0.5, 1e-3), "hard": (0.1, 1e-4)}
"""Success rates at the start are spread evenly in their logarithm between these."""
NETWORKS: Mapping[str, int] = {"network of width 16": 16, "network of width 64": 64}
INPUTS, ANSWERS, SPREAD = 16, 8, 4.0
"""Of the networks: the second layer starts at normal variables of this size, so that success rates spread from 0.0001 to 0.6."""
NETWORK_POWERS = range(-7, 1)
"""Networks take smaller learning rates: the best ones are inside this grid."""
PROMPTS = 48
"""Of the worlds that are judged: another number than the planner's."""
LOGGED = (256, 8)
"""The prompts and responses of a log."""
EACH = (16, 128)
"""The responses of a run, for each prompt that is trained on."""
SEED = 20261128
CASES: tuple[tuple[str, str, int], ...] = (
    *((rates, "trl_grpo", each) for rates in RATES for each in EACH),
    ("wide", "rloo", EACH[1]),
    *((network, "trl_grpo", EACH[1]) for network in NETWORKS),
)


def cells(quick: bool) -> list[Cell]:
    """One for each law of success rates or network, estimator and length of a run; quick has one of each kind, and short runs."""
    listed = [("easy", "trl_grpo", 8), ("network of width 16", "trl_grpo", 8)] if quick else CASES
    return [Cell({"start": start, "estimator": estimator, "each": each}) for start, estimator, each in listed]


def network(width: int) -> gt.Problem:
    """Return a problem with a network at its start; one answer to each prompt is right, whichever the network thinks of it."""
    rng = np.random.default_rng([SEED, width])
    policy = gt.TwoLayerSoftmax(rng.normal(size=(PROMPTS, INPUTS)), width, ANSWERS, scale=width**-0.5)
    right = rng.integers(0, ANSWERS, PROMPTS)[:, None] == np.arange(ANSWERS)
    theta = policy.start(rng)
    theta[width * INPUTS :] = SPREAD * rng.normal(size=ANSWERS * width)
    return gt.Problem(gt.Bandit(right.astype(float)), policy, theta=theta)


def problems(start: str) -> dict[str, gt.Problem]:
    """Return what runs are judged on, by name: a world of each kind at some success rates, or one network."""
    if start in NETWORKS:
        return {start: network(NETWORKS[start])}
    easiest, rarest = RATES[start]
    rates = np.geomspace(easiest, rarest, PROMPTS)
    return {world.title: world.problem(rates) for world in WORLDS}


def drawn_log(rates: np.ndarray, rng: np.random.Generator) -> RewardCounts:
    """Return a log of as many prompts as a log has, each at a success rate drawn from these, shape (M,)."""
    prompts, responses = LOGGED
    wins = rng.binomial(responses, rng.choice(rates, prompts))
    rewards = (np.arange(responses) < wins[:, None]).astype(float)
    return RewardCounts.from_rewards(np.repeat(np.arange(prompts), responses), rewards.ravel())


def without(advice: RunAdvice, title: str) -> RunAdvice:
    """Return the advice of the worlds of other kinds than one; all of it where no world is of that kind."""
    kept = [world for world in advice.worlds if world.title != title]
    whole = sum(world.weight for world in kept)
    return replace(advice, worlds=tuple(replace(world, weight=world.weight / whole) for world in kept))


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Return the success that each size reaches in each world, and what the planner says there without such worlds."""
    seed = seed_of(rng)
    judged = problems(settings["start"])
    first = next(iter(judged.values()))
    rates = (first.policy.probabilities(first.theta) * first.bandit.mean_reward).sum(axis=-1)
    log = drawn_log(rates, np.random.default_rng(child_seed(seed, 0)))
    each, estimator = settings["each"], settings["estimator"]
    advice = advise_run(log, each * PROMPTS, training_prompts=PROMPTS, estimator=estimator)
    table: Rows = []
    powers = NETWORK_POWERS if settings["start"] in NETWORKS else POWERS
    for number, (name, problem) in enumerate(judged.items(), start=1):
        told = without(advice, name)
        facts = {"world": name, "told": told.group_size, "worst": int(told.group_sizes[told.expected_losses.argmax()])}
        course = train_sizes(problem, find(estimator), SIZES, (each * PROMPTS // RESPONSES,), child_seed(seed, number), powers)
        for size, value, error in zip(SIZES, course.success[:, 0], course.errors[:, 0], strict=True):
            table.append(facts | {"group_size": size, "estimate": float(value), "standard_error": float(error)})
    return table


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the success of each size in each world, with the sizes that the planner and the broken planner recommend."""
    common = dict(settings) | {"quantity": "success", "prediction": np.nan, "replications": JUDGED_RUNS}
    return [common | row for row in results[0]]


def lost(cell: pd.DataFrame, by: str | int) -> tuple[float, float]:
    """Return the success that a choice loses against the best size, on average over the worlds of a cell; and its error.

    `by` is the column of what was told, or one size for all.
    """
    if not np.isfinite(cell["estimate"]).all():
        raise ValueError("estimates must be finite numbers")
    losses, variances = [], []
    for _, world in cell.groupby("world", sort=False):
        at = world.set_index("group_size")
        best, chosen = at.loc[at["estimate"].idxmax()], at.loc[by if isinstance(by, int) else at[by].iloc[0]]
        losses.append(best["estimate"] - chosen["estimate"])
        variances.append(0.0 if chosen.name == best.name else best["standard_error"] ** 2 + chosen["standard_error"] ** 2)
    return float(np.mean(losses)), float(np.sqrt(np.sum(variances)) / len(losses))


def less_than(cell: pd.DataFrame, by: str, size: int) -> Evidence:
    """Return the success that a choice loses less that of one size for all, on average over the worlds of a cell."""
    differences, variances = [], []
    for _, world in cell.groupby("world", sort=False):
        at = world.set_index("group_size")
        usual, chosen = at.loc[size], at.loc[at[by].iloc[0]]
        differences.append(usual["estimate"] - chosen["estimate"])
        variances.append(0.0 if chosen.name == size else usual["standard_error"] ** 2 + chosen["standard_error"] ** 2)
    error = float(np.sqrt(np.sum(variances)) / len(differences))
    return Evidence(float(np.mean(differences)), 0.0, error, replications=JUDGED_RUNS)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the regret, and whether it is less than that of one size for all; the control recommends the worst size."""
    for (start, estimator, each), cell in table.groupby(["start", "estimator", "each"], sort=False):
        setting = f"{start} ({estimator}), {each} responses a prompt"
        facts = {f"loss of G = {size}": lost(cell, size)[0] for size in SIZES}
        own, broken = (_regret(cell, by) for by in ("told", "worst"))
        yield REGRET.claim(setting, own, broken, facts=facts)
        for size, statement in AGAINST.items():
            yield statement.claim(setting, less_than(cell, "told", size), less_than(cell, "worst", size))


def _regret(cell: pd.DataFrame, by: str) -> Evidence:
    loss, error = lost(cell, by)
    return Evidence(loss, MARGIN, error, replications=JUDGED_RUNS, comparisons=len(SIZES))
