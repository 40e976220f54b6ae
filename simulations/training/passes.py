"""T8 where responses serve several passes: what dropping ratio and clip costs.

Both arms take their own best step of those tried, or the arm without ratio takes that of the arm with the clip. Problems are
random, and limits count them. In the control an arm descends.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.best_rate import LEAD_FACTS, lead
from simulations.seeds import seed_of
from simulations.sequence.off_policy import Pairs
from simulations.sequence.parts import composed
from simulations.statements import stated
from simulations.training.worlds import WORLDS

OWN_STEP, CLIPS_STEP = stated("T8/dropped, several passes", "T8/dropped, several passes at the step of the clip")

BATCH_SIZE, GROUP_SIZE, ROLLOUTS = 16, 8, 16
PASSES = {4: 4, 16: 1}
"""Passes over a rollout's responses, and minibatches of each: sixteen updates a rollout."""
WORLD, OPTIMISER = WORLDS["four"], gt.Adam()
CLIP, NONE = composed("rloo", "token", "by sign"), composed("rloo", "none")
STEP_SIZES = tuple(2.0**power for power in range(-6, 2))
"""From steps that hardly learn to steps that are too large for both."""
DESCENDS = 0.125
"""The step of the control, for which there is no best one."""
PROBLEMS, RUNS = 64, 3
"""Problems are the sample: they differ by more than runs on one of them do."""
POINT = 0.01
"""One point of success at the end is less than two runs with other seeds differ by."""
STATED = {"own": OWN_STEP, "clip's": CLIPS_STEP}
"""What is stated, by whose best step the arm without ratio takes."""
FACTS = {"success": "estimate", "step": "step"}
"""Columns of the table, by what the facts of a claim call them."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each number of passes; quick has the first, on a quarter of the problems."""
    sizes = {"problems": PROBLEMS // (4 if quick else 1), "step_sizes": list(STEP_SIZES)}
    return [Cell({"passes": passes, "minibatches": PASSES[passes]} | sizes) for passes in list(PASSES)[: 1 if quick else None]]


class Minibatches(NamedTuple):
    """The advantages of a rollout's responses, summed by minibatch, prompt and response, shape (R, minibatches, M, K) each.

    Attributes
    ----------
    right, wrong : ndarray
        Of the responses with reward 1, and of those with reward 0.
    """

    right: Array
    wrong: Array


def drawn(problem: gt.Problem, reached: Array, minibatches: int, rng: np.random.Generator) -> Minibatches:
    """Draw a rollout for each run, from the probabilities of its responses (S, R, M, K); advantages leave one out.

    Runs r of all S step sizes are drawn by the same uniforms.
    """
    steps, runs, n_prompts, n_responses = reached.shape
    prompts = rng.choice(n_prompts, size=(runs, BATCH_SIZE), p=problem.bandit.prompt_weights)
    uniforms = rng.random((runs, BATCH_SIZE, GROUP_SIZE))
    solved = rng.random(uniforms.shape)
    below = reached.cumsum(axis=-1)[:, np.arange(runs)[:, None], prompts]
    responses = (uniforms[..., None] * below[:, :, :, None, -1:] > below[:, :, :, None]).sum(axis=-1)
    rewards = solved < problem.bandit.mean_reward[prompts[..., None], responses]
    advantages = (GROUP_SIZE * rewards - rewards.sum(axis=-1, keepdims=True)) / (GROUP_SIZE - 1.0)
    shape = (steps * runs, minibatches, n_prompts, n_responses)
    minibatch = np.arange(BATCH_SIZE)[:, None] % minibatches
    run = np.arange(steps * runs).reshape(steps, runs, 1, 1)
    indices = np.ravel_multi_index(np.broadcast_arrays(run, minibatch, prompts[..., None], responses), shape)
    return Minibatches(*(_summed(indices, advantages * kept, shape) for kept in (rewards, ~rewards)))


def _summed(indices: Integers, advantages: Array, shape: tuple[int, ...]) -> Array:
    totals = np.bincount(indices.ravel(), weights=advantages.ravel(), minlength=int(np.prod(shape)))
    return np.asarray(totals, dtype=np.float64).reshape(shape)


class Trainer(NamedTuple):
    """How an arm is trained; with the sign -1 it descends, which is broken."""

    settings: Settings
    estimator: gt.Estimator
    sign: float = 1.0

    def success(self, problem: gt.Problem, step_sizes: Array, runs: int, seed: np.random.SeedSequence) -> Array:
        """Train with Adam at each of S step sizes, and return the exact objective at the end of each run, (S, R)."""
        rng, minibatches = np.random.default_rng(seed), self.settings["minibatches"]
        theta = np.tile(problem.theta[:, None], step_sizes.size * runs)
        moments, count, share = np.zeros((2, *theta.shape)), 0, self.sign * minibatches / (BATCH_SIZE * GROUP_SIZE)
        # The optimiser takes one step size for all: it makes a step of size 1, which each run takes times its own.
        scales = np.repeat(step_sizes, runs)
        for _ in range(ROLLOUTS):
            old = theta.T.copy()
            start = Pairs(problem, old, old)
            reached = start.reached.reshape(step_sizes.size, runs, *start.reached.shape[1:])
            rollout = drawn(problem, reached, minibatches, rng)
            for batch in list(range(minibatches)) * self.settings["passes"]:
                pairs, count = start.moved(theta.T.copy()), count + 1
                update = share * pairs.updates(self.estimator, rollout.right[:, batch], rollout.wrong[:, batch])
                move = np.zeros_like(theta)
                OPTIMISER.move(move, np.ascontiguousarray(update.T), moments, OPTIMISER.settings, 1.0, count)
                theta += scales * move
        return np.asarray(gt.objective(problem, theta.T.copy())).reshape(step_sizes.size, runs)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train each arm at each step on random problems; return the mean success of a problem's runs, (steps, problems)."""
    grid = np.array(settings["step_sizes"])
    arms = {"clip": (CLIP, 1.0, grid), "none": (NONE, 1.0, grid), "broken": (NONE, -1.0, np.array([DESCENDS]))}
    reached: dict[str, list[Array]] = {name: [] for name in arms}
    for problem, own in WORLD.drawn(seed_of(rng), settings["problems"]):
        for name, (estimator, sign, steps) in arms.items():
            reached[name].append(Trainer(settings, estimator, sign).success(problem, steps, RUNS, own).mean(axis=1))
    return {name: np.stack(success, axis=-1).tolist() for name, success in reached.items()}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """What each arm reached, and by how much the clip is ahead of each of the others."""
    clip, none, broken = (np.array(results[0][name]) for name in ("clip", "none", "broken"))
    common = {"passes": settings["passes"], "minibatches": settings["minibatches"], "prediction": np.nan}
    best, own = (settings["step_sizes"][arm.mean(axis=1).argmax()] for arm in (clip, none))
    arms = {
        "clip": (best, lead([clip]), lead([clip, clip], (1.0, -1.0))),
        "own": (own, lead([none]), lead([clip, none], (1.0, -1.0))),
        "clip's": (best, lead([clip], judged=[none]), lead([clip], judged=[clip - none])),
        "broken": (DESCENDS, lead([broken]), lead([clip, broken], (1.0, -1.0))),
    }
    table: Rows = []
    for arm, (step, success, ahead) in arms.items():
        about = common | {"arm": arm, "step": step}
        table += [about | {"quantity": "success"} | success, about | {"quantity": "ahead"} | ahead]
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By how much the clip is ahead at the end, against a point; the control puts an arm that descends behind it."""
    for (passes, minibatches), part in table.groupby(["passes", "minibatches"], sort=False):
        where = f"problems of {WORLD.title}, {ROLLOUTS} rollouts, Adam, {passes} passes of {minibatches}"
        ahead, success = (part[part["quantity"] == name].set_index("arm") for name in ("ahead", "success"))
        for arm, statement in STATED.items():
            own, control = (evidence(ahead.loc[name].to_dict(), POINT) for name in (arm, "broken"))
            facts = {f"{fact}, {name}": success.loc[name, at] for name in ("clip", arm) for fact, at in FACTS.items()}
            facts |= {fact: float(ahead.loc[arm, column]) for column, fact in LEAD_FACTS.items()}
            yield statement.claim(where, own, control, facts=facts)
