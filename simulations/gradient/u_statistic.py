"""U1, U2: the U-statistic and its Hoeffding projection, exact.

Groups are drawn, and leave-one-out gradients are compared with means over pairs. The projection is a sum over all partners. The
largest discrepancy is reported.

In the control of the pairs, the mean includes the own sample: it is off by 1/G, a fifth at G = 5. In that of the own sample's
factor, the mean does not include it. In that of the projection, partners come from another law.
"""

from collections.abc import Iterator

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from simulations.gradient.groups import estimate
from simulations.statements import stated

PAIRS, OWN_MEAN, PROJECTION, PRINTED, CORRECTED = stated("U1", "U1/own-mean", "U2", "U2/printed", "U2/corrected")
STATEMENTS = (PAIRS, OWN_MEAN, PRINTED, CORRECTED)

GROUPS = 200
GROUP_SIZE = 5
STRAY = 0.01
"""The broken side of the projection draws one partner in a hundred from another law: it is the first outcome, whatever the
policy."""


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


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[Comparison]:
    """Yield each statement's largest discrepancy and that of its broken side, relative to the root mean square score."""
    problem = gt.gallery.problem(settings["problem"])
    point = problem.at(problem.theta)
    gram = point.tangent.gram()
    scale = np.sqrt(point.moments.score_power)
    worst = {one: [0.0, 0.0] for one in STATEMENTS}

    def note(statement: Statement, prompt: int, *gaps: Array) -> None:
        for side, gap in enumerate(gaps):
            squares = np.einsum("...k,kl,...l->...", gap, gram[prompt], gap)
            lengths = np.sqrt(np.maximum(squares, 0.0)).reshape(-1) / scale[prompt]
            worst[statement][side] = largest([worst[statement][side], *lengths])

    group_size = settings["group_size"]
    for _ in range(settings["groups"]):
        prompt = int(rng.integers(problem.bandit.n_prompts))
        scores, rewards = _draw_group(point, prompt, group_size, rng)
        pairs = u_statistic(scores, rewards)
        leave_one_out, own = (estimate(name, scores, rewards) for name in ("rloo", "dr_grpo"))
        note(PAIRS, prompt, leave_one_out - pairs, own - pairs)
        note(OWN_MEAN, prompt, own - (1.0 - 1.0 / group_size) * leave_one_out, own - leave_one_out)
    for prompt in range(problem.bandit.n_prompts):
        (twice, printed, gradient), (astray, _, _) = _projection(point, prompt), _projection(point, prompt, STRAY)
        note(PRINTED, prompt, twice - printed, astray - printed)
        note(CORRECTED, prompt, twice - (printed + gradient), astray - (printed + gradient))
    for statement, (gap, broken) in worst.items():
        yield statement.compare(problem.name, gap, 0.0, broken=broken)
