"""U1 and U2: the leave-one-out gradient is a U-statistic; its Hoeffding projection."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import grpo_theory as gt
from grpo_theory.estimator import find
from grpo_theory.exact.outcomes import Outcomes, outcomes
from grpo_theory.inference import Claim, Evidence
from simulations.study import Cell, Rows, Settings, Study

SOURCE = "arXiv 2603.01162"
GROUPS = 200
GROUP_SIZE = 5


def cells(quick: bool) -> list[Cell]:
    """One cell a problem; exact up to rounding, so quick is no different."""
    return [Cell({"problem": name, "groups": GROUPS, "group_size": GROUP_SIZE}) for name in gt.gallery.names()]


def _norm(covectors: NDArray[np.float64], gram: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(np.maximum(np.einsum("...k,kl,...l->...", covectors, gram, covectors), 0.0))


def u_statistic(scores: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average (1/2)(W_i - W_j)(Z_i - Z_j) over all pairs i < j; scores (G, K), rewards (G,)."""
    i, j = np.triu_indices(len(rewards), 1)
    return np.mean(0.5 * (scores[i] - scores[j]) * (rewards[i] - rewards[j])[:, None], axis=0)


def estimate(name: str, scores: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute (1/G) sum_i A_i W_i with the registered kernel."""
    advantages = np.empty((1, len(rewards)))
    unread, nothing = np.ones((1, len(rewards))), np.zeros(1)
    lengths = np.ones((1, len(rewards)), dtype=np.int64)
    batch = gt.Batch(rewards[None], unread, lengths, nothing, nothing, nothing, find(name).parameter_array)
    find(name).kernel(batch, advantages)
    return advantages[0] @ scores / len(rewards)


def _draw_group(table: Outcomes, prompt: int, size: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    drawn = rng.choice(table.responses.size, size=size, p=table.probabilities[prompt])
    scores = np.eye(table.policy_probabilities.shape[1])[table.responses[drawn]] - table.policy_probabilities[prompt]
    return scores, table.rewards[prompt, drawn]


def _projection(table: Outcomes, prompt: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return 2 h_1 by enumeration of the partner, W (z - V), and g, for every outcome of the prompt."""
    p, z = table.probabilities[prompt], table.rewards[prompt]
    w = np.eye(table.policy_probabilities.shape[1])[table.responses] - table.policy_probabilities[prompt]
    h = 0.5 * (w[:, None] - w[None]) * (z[:, None] - z[None])[..., None]
    twice = 2.0 * np.einsum("p,opk->ok", p, h)
    return twice, w * (z - p @ z)[:, None], np.einsum("o,ok->k", p * z, w)


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, float]:
    """Return the largest discrepancies, relative to the root mean square score."""
    problem = gt.gallery.problem(settings["problem"])
    table = outcomes(problem.bandit, problem.policy, problem.theta)
    exact = gt.moments(problem.bandit, problem.policy, problem.theta)
    gram = problem.policy.gram()
    scale = np.sqrt(exact.score_power)
    rng = np.random.default_rng(seed)
    worst: dict[str, float] = dict.fromkeys(("pairs", "pairs_own", "own", "own_plain", "projection", "printed"), 0.0)

    def note(name: str, gap: NDArray[np.float64], prompt: int) -> None:
        worst[name] = max(worst[name], float(np.max(_norm(gap, gram[prompt]))) / scale[prompt])

    group_size = settings["group_size"]
    for _ in range(settings["groups"]):
        prompt = int(rng.integers(problem.bandit.n_prompts))
        scores, rewards = _draw_group(table, prompt, group_size, rng)
        pairs = u_statistic(scores, rewards)
        leave_one_out, own = (estimate(name, scores, rewards) for name in ("rloo", "dr_grpo"))
        note("pairs", leave_one_out - pairs, prompt)
        note("pairs_own", own - pairs, prompt)
        note("own", own - (1.0 - 1.0 / group_size) * leave_one_out, prompt)
        note("own_plain", own - leave_one_out, prompt)
    for prompt in range(problem.bandit.n_prompts):
        twice, printed, gradient = _projection(table, prompt)
        note("projection", twice - (printed + gradient), prompt)
        note("printed", twice - printed, prompt)
    return worst


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row a problem and discrepancy."""
    return [
        {"problem": settings["problem"], "quantity": name, "estimate": gap, "prediction": 0.0, "standard_error": 0.0}
        for name, gap in results[0].items()
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Each identity: the largest discrepancy is zero; the control is an identity known to be wrong."""
    statements = (
        ("U1", "Lemma 1", "leave-one-out gradient = mean over pairs of (1/2)(W_i-W_j)(Z_i-Z_j)", "pairs", "pairs_own"),
        (
            "U1/own-mean",
            "Lemma 1",
            "own sample in the group mean: (1-1/G) times the leave-one-out gradient",
            "own",
            "own_plain",
        ),
        ("U2/printed", "Hoeffding projection", "2 h_1 = W (z - V)", "printed", "pairs_own"),
        ("U2/corrected", "docs/derivations.md, 1", "2 h_1 = W (z - V) + g", "projection", "printed"),
    )
    found = []
    for problem, part in table.groupby("problem", sort=False):
        gaps = part.set_index("quantity")["estimate"]
        for key, number, statement, gap, control in statements:
            evidence, wrong = (Evidence(estimate=float(gaps[name]), prediction=0.0) for name in (gap, control))
            found.append(Claim(key, f"{SOURCE}, {number}", statement, "identity", str(problem), evidence, wrong))
    return found


STUDY = Study("u_statistic", "U1, U2: the U-statistic and its Hoeffding projection, exact", cells, compute, rows, claims)
