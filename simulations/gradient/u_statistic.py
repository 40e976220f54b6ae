"""U1 and U2: the leave-one-out gradient is a U-statistic; its Hoeffding projection."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.claims import unconverted
from simulations.gradient.groups import estimate
from simulations.identities import gap_claims, gap_rows

GROUPS = 200
GROUP_SIZE = 5
STRAY = 0.01
"""The controls of the projection draw one partner in a hundred from another law: it is the first outcome, whatever the policy."""
STATEMENTS = (
    ("U1", "pairs", "pairs_own"),
    ("U1/own-mean", "own", "own_plain"),
    ("U2/printed", "printed", "printed_stray"),
    ("U2/corrected", "projection", "projection_stray"),
)
"""Statement, the discrepancy that it says is zero, and that of something broken: for U1 the kernel whose mean has the own sample
in it, which is off by 1/G, a fifth at G = 5; for U1/own-mean the one whose mean has not; for U2 stray partners."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact up to rounding, so quick is no different."""
    return [Cell({"problem": name, "groups": GROUPS, "group_size": GROUP_SIZE}) for name in gt.gallery.names("gradient")]


def u_statistic(scores: Array, rewards: Array) -> Array:
    """Average (1/2)(W_i - W_j)(Z_i - Z_j) over all pairs i < j; scores (G, D), rewards (G,)."""
    i, j = np.triu_indices(len(rewards), 1)
    return np.mean(0.5 * (scores[i] - scores[j]) * (rewards[i] - rewards[j])[:, None], axis=0)


def _draw_group(point: gt.Point, prompt: int, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    drawn = rng.choice(point.outcome_responses.size, size=size, p=point.outcome_probabilities[prompt])
    return point.covectors[prompt, point.outcome_responses[drawn]], point.rewards[prompt, drawn]


def _projection(point: gt.Point, prompt: int, stray: float = 0.0) -> tuple[Array, Array, Array]:
    """Return 2 h_1 by enumeration of the partner, W (z - V), and g, for every outcome of the prompt.

    A share of the partners can be astray: the first outcome instead of a draw from the policy.
    """
    p, z = point.outcome_probabilities[prompt], point.rewards[prompt]
    w = point.covectors[prompt, point.outcome_responses]
    h = 0.5 * (w[:, None] - w[None]) * (z[:, None] - z[None])[..., None]
    partner = (1.0 - stray) * p
    partner[0] += stray
    twice = 2.0 * np.einsum("p,opk->ok", partner, h)
    return twice, w * (z - p @ z)[:, None], np.einsum("o,ok->k", p * z, w)


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, float]:
    """Return the largest discrepancies, relative to the root mean square score."""
    problem = gt.gallery.problem(settings["problem"])
    point, gram = problem.at(problem.theta), problem.policy.logit_map.gram()
    scale = np.sqrt(point.moments.score_power)
    rng = np.random.default_rng(seed)
    names = ("pairs", "pairs_own", "own", "own_plain", "projection", "printed", "projection_stray", "printed_stray")
    worst: dict[str, float] = dict.fromkeys(names, 0.0)

    def note(name: str, gap: Array, prompt: int) -> None:
        squares = np.einsum("...k,kl,...l->...", gap, gram[prompt], gap)
        worst[name] = largest([worst[name], *np.sqrt(np.maximum(squares, 0.0)).reshape(-1) / scale[prompt]])

    group_size = settings["group_size"]
    for _ in range(settings["groups"]):
        prompt = int(rng.integers(problem.bandit.n_prompts))
        scores, rewards = _draw_group(point, prompt, group_size, rng)
        pairs = u_statistic(scores, rewards)
        leave_one_out, own = (estimate(name, scores, rewards) for name in ("rloo", "dr_grpo"))
        note("pairs", leave_one_out - pairs, prompt)
        note("pairs_own", own - pairs, prompt)
        note("own", own - (1.0 - 1.0 / group_size) * leave_one_out, prompt)
        note("own_plain", own - leave_one_out, prompt)
    for prompt in range(problem.bandit.n_prompts):
        twice, printed, gradient = _projection(point, prompt)
        note("projection", twice - (printed + gradient), prompt)
        note("printed", twice - printed, prompt)
        astray, _, _ = _projection(point, prompt, STRAY)
        note("projection_stray", astray - (printed + gradient), prompt)
        note("printed_stray", astray - printed, prompt)
    return worst


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each problem and discrepancy."""
    common = {"problem": settings["problem"], "group_size": settings["group_size"]}
    return gap_rows(common, "quantity", results[0])


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each identity: the largest discrepancy is zero; the control sends something broken the same way."""
    return gap_claims(table, "quantity", STATEMENTS)


STUDY = unconverted(
    "u_statistic",
    "U1, U2: the U-statistic and its Hoeffding projection, exact",
    cells,
    compute,
    rows,
    claims,
    tuple(statement for statement, *_ in STATEMENTS),
)
