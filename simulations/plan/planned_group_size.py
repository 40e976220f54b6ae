"""Regret of the planned group size, and coverage of the planner's limits.

The study covers pilots of all sizes. In the control the pilots are planned with what is wrong by much.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Share
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Settings
from grpo_theory.plan import GroupSizeChoice, choose_group_size, signal_to_noise
from grpo_theory.plan.advice import TOLERANCE
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.plan.group_size import choose
from grpo_theory.plan.scores_advice import usable
from simulations.plan.pilot_problems import HEAD, LIMITS, NAMES, NONE, constants, problem, signal, truth
from simulations.statements import stated

HOLDS = {name: stated(f"plan/{name}") for name in ("best size", "risk", "loss")}
"""What is to hold in 95% of pilots with gradients."""
REGRET = stated("plan/regret")

LEVEL = 0.95
MARGIN = 0.02
"""A set that holds the best size in 93 of 100 cases instead of 95 misleads nobody."""
MISSES = 1.0 - LEVEL + MARGIN
DEFAULT = 8
"""The group size of who does not plan: TRL's default."""
ASKED = 16
"""The group size at which the loss and the signal are asked for."""
PROMPTS, SIZES = (32, 128, 512, 2048), (2, 4, 8, 16, 64)
QUICK_PROMPTS, QUICK_SIZES = (32, 512), (2, 8)
POINT = (512, 8)
REPLICATIONS, CHUNK = 100, 50
POINT_REPLICATIONS, QUICK_REPLICATIONS, CONTROLS = 1000, 10, 100
"""In each chunk; controls are wrong by so much that fewer do."""
POINT_CHUNKS = 2
COVERED = (*HOLDS, "c1", "c2", "c3", "signal")
QUANTITIES = ("answered", "enough", "regret", *COVERED)


def cells(quick: bool) -> list[Cell]:
    """All problems, numbers of prompts and group sizes; and one point with many replications, on which the claims rest."""
    prompts, sizes = (QUICK_PROMPTS, QUICK_SIZES) if quick else (PROMPTS, SIZES)
    each, chunks = (QUICK_REPLICATIONS, 1) if quick else (CHUNK, REPLICATIONS // CHUNK)
    design = [(("design", name, b, n, each), chunks) for name in NAMES for b in prompts for n in sizes]
    each, chunks = (QUICK_REPLICATIONS * 5, 1) if quick else (POINT_REPLICATIONS, POINT_CHUNKS)
    points = [(("point", name, *POINT, each), chunks) for name in NAMES]
    keys = ("part", "problem", "prompts", "size", "replications")
    return [Cell(dict(zip(keys, one, strict=True)), chunks) for one, chunks in design + points]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, dict[str, list[float]]]:
    """Draw pilots, and judge what the planner says of each; at the point, also what a planner says that is wrong."""
    name = settings["problem"]
    pilot = gt.Pilot(settings["prompts"], settings["size"])
    judged: dict[str, dict[str, list[float]]] = {"planned": defaultdict(list), "control": defaultdict(list)}
    for number in range(settings["replications"]):
        rollouts = pilot.take(pilot.sample(problem(name), rng, 1), 0)
        kept, _ = usable(rollouts)
        judged["planned"]["answered"].append(float(kept is not None))
        if kept is None:
            continue
        choice = choose_group_size(rollouts, LIMITS, LEVEL)
        for quantity, value in judge(choice, name).items():
            judged["planned"][quantity].append(value)
        if settings["part"] == "design":
            judged["planned"]["signal"].append(float(told_signal(rollouts, choice, name)))
        elif number < CONTROLS:
            for quantity, value in judge(wrong_choice(rollouts, name, rng), name).items():
                judged["control"][quantity].append(value)
    return {arm: dict(values) for arm, values in judged.items()}


def judge(choice: GroupSizeChoice, name: str) -> dict[str, float]:
    """Return the regret, whether the planner calls its answer good enough, and what of its limits and its set holds."""
    exact = truth(name)
    regret, at = exact.loss.estimate[choice.best], exact.at(ASKED)
    law = constants(name)
    exactly = np.array([law.c1, law.c2, law.c3])
    held = (choice.constants.low <= exactly) & (exactly <= choice.constants.high)
    holds = {
        "best size": choice.candidates[exact.best],
        "risk": regret <= choice.risk,
        "loss": choice.loss.low[at] <= exact.loss.estimate[at] <= choice.loss.high[at],
        **{f"c{k + 1}": bool(held[k]) for k in range(3)},
    }
    said = {"regret": float(regret), "enough": float(choice.risk <= TOLERANCE)}
    return said | {quantity: float(held) for quantity, held in holds.items()}


def told_signal(rollouts: gt.Rollouts, choice: GroupSizeChoice, name: str) -> bool:
    """Return whether the limits of the signal-to-noise ratio hold it."""
    batch = int(choice.batch_sizes[choice.at(ASKED)])
    return bool(signal_to_noise(rollouts, batch, ASKED, LEVEL).covers(signal(name, ASKED)))


def wrong_choice(rollouts: gt.Rollouts, name: str, rng: np.random.Generator) -> GroupSizeChoice:
    """Choose with a wrong c1: the noise of the prompts' estimates is left in it.

    For the language model's head that changes the best whole number too little. There rewards are exchanged at random within each
    group, which makes c1 0.
    """
    if name == HEAD:
        return choose_group_size(gt.Rollouts(rng.permuted(rollouts.rewards, axis=1), rollouts.scores), LIMITS, LEVEL)
    terms = pilot_terms(rollouts)
    noisy = terms._replace(power=(terms.gradients**2).sum(axis=-1))
    return choose(noisy.components(), noisy.covariance(), rollouts.batch_size, LIMITS, LEVEL)


def rows(settings: Settings, results: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each quantity: its mean over the pilots that are answered, and its 95% quantile where it is the regret.

    Beside it the best group size, and what the default loses, both exact.
    """
    exact = truth(settings["problem"])
    common = dict(settings) | {"best": exact.group_size, "default": float(exact.loss.estimate[exact.at(DEFAULT)])}
    for arm, quantity in product(("planned", "control"), QUANTITIES):
        values = np.concatenate([np.array(chunk[arm].get(quantity, ())) for chunk in results])
        if values.size:
            share = float(values.mean())
            spread = float(values.std(ddof=1)) if quantity == "regret" else np.sqrt(share * (1.0 - share))
            numbers = {"estimate": share, "standard_error": float(spread / np.sqrt(values.size)), "replications": values.size}
            most = float(np.quantile(values, LEVEL)) if quantity == "regret" else np.nan
            prediction = LEVEL if quantity in COVERED else np.nan
            yield common | {"arm": arm, "quantity": quantity, "most": most, "prediction": prediction} | numbers


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read off, at the point, that sets and limits hold as often as they say, and that the regret is within the tolerance."""
    points = table[table["part"] == "point"].set_index(["problem", "quantity", "arm"])
    for name in NAMES:
        setting = f"{name}, {POINT[0]} prompts of {POINT[1]}"
        for quantity, statement in HOLDS.items():
            both = (points.loc[name, quantity, arm] for arm in ("planned", "control"))
            own, control = (Share(1.0 - row["estimate"], MISSES, replications=int(row["replications"])) for row in both)
            yield statement.claim(setting, own, control)
        if name != NONE:
            planned, wrong = (evidence(points.loc[name, "regret", arm], TOLERANCE) for arm in ("planned", "control"))
            yield REGRET.claim(setting, planned, wrong)
