"""N12: the phases of training with division by the standard deviation, on SmolLM2's head.

The exact runs are steepest ascent along the mean of grad J_i and of grad J_i / sqrt(V_i). Their first updates have the same
length, so they differ only in where they turn. In the sampled runs groups have 8 responses, and the plain arm has its best
constant step. The others have the step that gives their first mean update the same length. (A best step for each, from a grid of
factor 2, is no fairer. Times to a level are so flat in the step that the choice, and with it who is ahead, turns with the seed.)

The control of phases I and II is the arm that multiplies by the standard deviation. That of III has prompts that share no
features, so that no training takes their orthogonality away. That of the gain without orthogonality has coordinates in which
prompts are orthogonal.
"""

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import neg
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Flags
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence, exact, highest
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.normalisation.heads import OWN, STRIDE, ascent, cosines, gram, head_problem, label, near_orthogonal, state
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL, is_orthogonal, stretches, windows
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

PHASES, FIRST, SECOND, THIRD, THIRD_FROM_THE_START = stated("N12", "N12/I", "N12/II", "N12/III", "N12/III, from the start")
POWERLESS = {("N12/II", "lm-few-shot, ridge 0.01, sampled"): "the sampled runs do not tell a change of a point from none"}

PROBLEM = "lm-few-shot"
RIDGES, QUICK_RIDGES = (OWN, 100.0, 1.0, 0.01), (OWN, 0.01)
"""From the head's own coordinates, over features as orthogonal as the paper's (|cos| 0.085 at ridge 1), to nearly free ones."""
SAMPLED = 0.01
"""The ridge of the sampled runs, as in `trained_heads`: at larger ones no arm gets to 0.8 in time."""
POWERS = {"plain": 0.0, "divided": -1.0, "multiplied": 1.0}
EXACT_UPDATES, QUICK_EXACT_UPDATES = (0, 10, 20, 40, 80, 160, 320, 640, 1280), (0, 10, 20, 40, 80, 160, 320)
EXACT_STRIDE, QUICK_EXACT_STRIDE = STRIDE, 4.0 * STRIDE
UPDATES, QUICK_UPDATES = (0, 5, 10, 20, 40, 80, 160, 320), (0, 5, 10, 20)
BATCH_SIZE, GROUP_SIZE = 32, 8
STEP_SIZE = 512.0
"""Of the plain arm: that of its least mean time to 0.8, of 64, 128, ..., 2048, in two pilots on other seeds."""
RUNS, QUICK_RUNS, CHUNK_RUNS = 128, 2, 16


def multiplied_by_deviation(batch, advantages):
    """A = (Z - the group's mean) times the group's standard deviation."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        deviation = batch.rewards[b].std()
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = (batch.rewards[b, g] - mean) * deviation


ARMS: dict[str, str | Estimator] = {
    "plain": "dr_grpo",
    "divided": "grpo",
    "multiplied": make_estimator("multiplied_by_deviation", multiplied_by_deviation),
}
SUCCESSES = ("success", "easy", "hard")
"""Mean success over all prompts, and over the halves that are easier and harder at the start."""
MEASURES = (*SUCCESSES, "deviation", "orthogonality", "apart")


def cells(quick: bool) -> list[Cell]:
    """One cell for each system of coordinates, exact, and one for the sampled runs, chunks of which are a few runs of an arm."""
    updates = list(QUICK_EXACT_UPDATES if quick else EXACT_UPDATES)
    common = {"how": "exact", "updates": updates, "stride": QUICK_EXACT_STRIDE if quick else EXACT_STRIDE}
    exact_cells = [Cell({"ridge": ridge, **common}) for ridge in (QUICK_RIDGES if quick else RIDGES)]
    sampled = {"how": "sampled", "ridge": SAMPLED, "updates": list(QUICK_UPDATES if quick else UPDATES)}
    sampled |= {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "step_size": STEP_SIZE}
    runs = QUICK_RUNS if quick else RUNS
    sampled |= {"runs": min(runs, CHUNK_RUNS)}
    return [*exact_cells, Cell(sampled, len(ARMS) * -(-runs // CHUNK_RUNS), shared=True)]


def measured(logits: Array, products: Array, success: Array, easy: Flags) -> list[float]:
    """Return `MEASURES` of a policy: success, also of halves, mean deviation, and shares of near-orthogonal gradients."""
    now = state(logits, success)
    alone = near_orthogonal(cosines(np.diag(np.diag(products)), now.covectors))
    shares = (near_orthogonal(cosines(products, now.covectors)), alone)
    means = (now.value.mean(), now.value[easy].mean(), now.value[~easy].mean(), now.deviation.mean())
    return [float(value) for value in (*means, *shares)]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Return the step and the measures of arms' runs, (runs, checkpoints, measures)."""
    problem = head_problem(PROBLEM, settings["ridge"])
    value = problem.at(problem.theta).moments.value
    easy = value > np.median(value)
    if settings["how"] == "exact":
        return {arm: {"step": np.nan, "runs": [_exact(problem, power, settings, easy)]} for arm, power in POWERS.items()}
    block, a = divmod(chunk, len(ARMS))
    arm = list(ARMS)[a]
    return {arm: _sampled(problem, arm, settings, child_seed(seed_of(rng), block), easy)}


def _exact(problem: gt.Problem, power: float, settings: Settings, easy: Flags) -> list[list[float]]:
    known = gram(problem), problem.bandit.mean_reward, easy
    path = enumerate(ascent(problem, power, settings["updates"][-1], settings["stride"]))
    return [measured(now.logits, *known) for n, now in path if n in settings["updates"]]


def _sampled(problem: gt.Problem, arm: str, settings: Settings, seed: np.random.SeedSequence, easy: Flags) -> dict[str, Any]:
    """Train with first mean updates as long as the plain arm's, on draws that all arms share."""
    sizes = {name: settings[name] for name in ("batch_size", "group_size")}
    plain, own = (np.linalg.norm(gt.gradient_mean(problem, problem.theta, ARMS[one], **sizes)) for one in ("plain", arm))
    step = float(settings["step_size"] * plain / own)
    known = gram(problem), problem.bandit.mean_reward, easy
    updates, runs = settings["updates"], settings["runs"]
    theta = np.tile(problem.theta, (runs, 1))
    course = [[measured(logits, *known) for logits in problem.policy.logits(theta)]]
    for stage, (before, after) in enumerate(pairwise(updates)):
        theta = _trained(problem, theta, arm, step, after - before, settings, child_seed(seed, stage))
        course.append([measured(logits, *known) for logits in problem.policy.logits(theta)])
    return {"step": step, "runs": np.swapaxes(course, 0, 1).tolist()}


def _trained(
    problem: gt.Problem, theta: Array, arm: str, step: float, steps: int, settings: Settings, seed: np.random.SeedSequence
) -> Array:
    """Train every run (R, d) on with a constant step; best steps are long, and the filter for that stays, for all threads."""
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    return gt.simulate_training(
        problem,
        theta,
        ARMS[arm],
        gt.Constant(step),
        batch_size=settings["batch_size"],
        group_size=settings["group_size"],
        steps=steps,
        replications=len(theta),
        rng=seed,
        workers=1,
    ).theta


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Measures of each arm at each checkpoint, advantages over the plain arm and their increases, with their phases."""
    step_of = {arm: result["step"] for part in results for arm, result in part.items()}
    measures = {arm: np.concatenate([part[arm]["runs"] for part in results if arm in part]) for arm in step_of}
    common = {"how": settings["how"], "coordinates": label(settings["ridge"]), "prediction": np.nan}
    updates, plain = settings["updates"], measures["plain"]
    table: Rows = []
    for arm, runs in measures.items():
        table += [common | {"arm": arm, "step": step_of[arm]} | row for row in _courses(MEASURES, updates, runs)]
    premises = [plain[:, :, MEASURES.index(name)].mean(axis=0) for name in ("deviation", "orthogonality")]
    for arm in ("divided", "multiplied"):
        gains = (measures[arm] - plain)[:, :, : len(SUCCESSES)]
        courses = _courses([f"advantage, {part}" for part in SUCCESSES], updates, gains)
        increases = [row for between in (windows, stretches) for row in between(gains[:, :, 0], updates, *premises)]
        table += [common | {"arm": arm} | row for row in courses + increases]
    return table


def _courses(quantities: Sequence[str], updates: list[int], runs: Array) -> Rows:
    """Return a row for each checkpoint and quantity of runs (R, checkpoints, quantities)."""
    return [
        {"quantity": quantity, "update": update} | summary(runs[:, c, q])
        for c, update in enumerate(updates)
        for q, quantity in enumerate(quantities)
    ]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the printed phases where their premises hold."""
    gains = {}
    for (how, coordinates), part in table.groupby(["how", "coordinates"], sort=False):
        where, by_arm = f"{PROBLEM}, {coordinates}, {how}", part.groupby(["quantity", "arm"])
        first, last = (ends.set_index(["quantity", "arm"]).to_dict("index") for ends in (by_arm.head(1), by_arm.tail(1)))
        for statement, name, measure, bound in ((FIRST, "increase in I", neg, 0.0), (SECOND, "increase in II", abs, NOTICEABLE)):
            if (name, "divided") in last:
                both = [last[name, arm] for arm in ("divided", "multiplied")]
                facts = {"from update": both[0]["update"], "to update": both[0]["until"]}
                own, control = (evidence(row | {"estimate": measure(row["estimate"])}, bound) for row in both)
                yield statement.claim(where, own, control, facts)
        own, control = (evidence(last[quantity, "plain"], ORTHOGONAL) for quantity in ("orthogonality", "apart"))
        yield THIRD.claim(where, own, control)
        if how == "exact":
            gains[coordinates] = first["orthogonality", "plain"]["estimate"], last["advantage, success", "divided"]["estimate"]
    best = highest(pd.Series({coordinates: share for coordinates, (share, _) in gains.items()}))
    for coordinates, (share, gain) in gains.items():
        if not is_orthogonal(share):
            own, control = (exact(value, NOTICEABLE) for value in (gain, gains[best][1]))
            where = f"{PROBLEM}, {coordinates}, exact"
            yield THIRD_FROM_THE_START.claim(where, own, control, facts={"share |cos| < 0.1": share})
