"""T1, T2: the updates of GRPO and TIC-GRPO term by term, exact.

On random problems the library's update of a rollout is compared with the sum of the terms, as printed and as corrected. In the
control the update has another clip.
"""

import numpy as np

from grpo_theory.estimation.parts import CLIPS
from grpo_theory.evidence.reading import largest
from grpo_theory.exact import token_weights
from grpo_theory.harness import check
from simulations.sequence.parts import composed, of_length, random_problem
from simulations.sequence.tokens import Tokens
from simulations.statements import stated

T1, T2 = stated("T1", "T2")

WAYS = ("T1/printed", "T1/corrected", "T2/printed", "T2/sign", "T2/corrected")
"""Each decomposition and the way of writing it: as printed, with only the sign turned, and right."""
TREES = ((3, 1, None), (2, 3, 1), (3, 2, 0), (2, 4, None), (2, 6, 0))
"""Vocabulary size, horizon and end token."""
COUNT, QUICK_COUNT = 50, 10
"""Random problems of each tree."""
PROMPTS, DIMENSION, GROUP_SIZE = 4, 4, 5
LOW, HIGH = 0.2, 0.28
DRIFT = 0.5
"""The length of theta_k - theta_0; scores are 1-Lipschitz."""
READINGS = ("batch", "any weights", "leave-one-out")
"""Weights 1/B and 1/G with the own sample in mu_c; any weights; and 1/B and 1/G without the own sample in mu_c."""


class Rollout:
    """A group of each prompt, drawn by the old policy, and what both decompositions are made of, token by token.

    Responses, weights zeta xi, rewards and advantages are (B, G), of tokens (B, G, T) or (B, G, T, d).
    """

    def __init__(self, problem, theta, reading, rng):
        self.problem, self.theta, paths = problem, theta, problem.policy.paths
        success, size = problem.bandit.mean_reward, (problem.bandit.n_prompts, GROUP_SIZE)
        old, now = ([Tokens(paths, one @ at, one) for one in problem.policy.jacobian()] for at in (problem.theta, theta))
        self.drawn = np.array([rng.choice(p.size, GROUP_SIZE, p=p / p.sum()) for p in problem.at(problem.theta).probabilities])
        self.rewards = (rng.uniform(size=size) < np.take_along_axis(success, self.drawn, axis=1)).astype(np.float64)
        self.weights = rng.uniform(0.1, 1.0, size) if reading == "any weights" else np.full(size, 1.0 / self.rewards.size)
        means = self.rewards.mean(axis=1, keepdims=True)
        if reading == "leave-one-out":
            means = (GROUP_SIZE * means - self.rewards) / (GROUP_SIZE - 1)
        self.advantages = self.rewards - means

        def along(values):
            return np.stack([one[drawn] for one, drawn in zip(values, self.drawn, strict=True)])

        self.taken, self.lengths, self.horizon = paths.taken[self.drawn], paths.lengths[self.drawn], paths.horizon
        self.score_0, self.score_k = (along([one.of_responses(one.scores) for one in tokens]) for tokens in (old, now))
        self.ratio = along([n.of_responses(n.probabilities / o.probabilities) for n, o in zip(now, old, strict=True)])
        self.rho = np.where(self.taken, self.ratio, 1.0).prod(axis=2)
        p, q = (np.array([one.response_probabilities for one in tokens]) for tokens in (old, now))
        self.mu_0, self.mu_k = ((shares * success).sum(axis=1, keepdims=True) for shares in (p, q))
        self.mean_length = (p @ paths.lengths).mean()
        self.kept = np.where(self.advantages[..., None] >= 0.0, self.ratio <= 1.0 + HIGH, self.ratio >= 1.0 - LOW) & self.taken

    def update(self, estimator):
        """Return the update that the library's estimator makes of it, sum zeta xi A u, shape (d,)."""
        weights = token_weights(self.problem.at(self.theta), self.problem.at(self.problem.theta), estimator)
        prompts, signs = np.arange(len(self.drawn)), int(weights.depends_on_sign) * (self.advantages < 0.0)
        logit_gradients = weights.logit_gradients(prompts)[prompts[:, None], signs, self.drawn]
        pushed = np.einsum("bg,bgd->bd", self.weights * self.advantages, logit_gradients)
        return self.problem.policy.tangent(self.theta).adjoint(pushed)

    def _sum(self, by_response, by_token, vectors):
        return np.einsum("bg,bg,bgt,bgtd->d", self.weights, by_response, by_token.astype(np.float64), vectors)

    def terms_of_grpo(self, way):
        """Return (1/TT) ghat + X1 + X2 + X3 + X4, as printed or corrected."""
        share, centred = 1.0 / self.lengths, self.rewards - self.mu_0
        excess, gap = centred - self.advantages, 1.0 / self.mean_length - share
        ghat = self._sum(centred, self.taken, self.score_0) / self.mean_length
        moved = self.ratio[..., None] * self.score_k - self.score_0  # (grad P_k - grad P_0)/P_0
        x1 = self._sum(share * self.advantages, self.kept, moved)
        x2 = -self._sum(share * excess, self.kept, self.score_0)
        x3 = self._sum(centred, self.taken & ~self.kept, self.score_0) / self.mean_length
        x4 = -self._sum(gap * centred, self.kept, self.score_0)
        return ghat + x1 + x2 + (x3 if way == "printed" else -x3) + x4

    def terms_of_tic(self, way):
        """Return (1/T) gtilde + Y1 + Y2, as printed, with the sign of Y2 turned, or corrected."""
        centred, kept = self.rewards - self.mu_k, self.rho <= 1.0 + HIGH
        gtilde = self._sum(self.rho * centred, self.taken, self.score_k)
        y1 = self._sum(kept * self.rho * (self.advantages - centred), self.taken, self.score_k)
        y2 = self._sum(~kept * self.rho * (centred if way == "corrected" else self.advantages), self.taken, self.score_k)
        return (gtilde + y1 + (y2 if way == "printed" else -y2)) / self.horizon


@check(
    *stated(*WAYS),
    cases=lambda quick: [{"reading": reading, "count": QUICK_COUNT if quick else COUNT} for reading in READINGS],
    broken={"clips": ("two-sided", "cap")},
    setting="{reading}",
)
def decompositions(reading, count, rng, clips=("by sign", "upper only")):
    """The largest discrepancies between updates and their terms, over all trees, relative to the update."""
    of_token, of_response = (CLIPS[name].with_widths(LOW, HIGH) for name in clips)
    grpo = composed("dr_grpo", "token", of_token, "own length")
    tic = composed("dr_grpo", "trajectory", of_response, "constant")
    gaps, clipped = [], []
    for tree in TREES:
        for _ in range(count):
            problem = random_problem(rng, *tree, n_prompts=PROMPTS, dimension=DIMENSION)
            theta = problem.theta + of_length(DRIFT, rng.normal(size=DIMENSION))
            rollout = Rollout(problem, theta, reading, rng)
            clipped.append(1.0 - rollout.kept.sum() / rollout.taken.sum())
            sides = {"T1": (rollout.update(grpo), rollout.terms_of_grpo), "T2": (rollout.update(tic), rollout.terms_of_tic)}
            found = [(*sides[name], way) for name, _, way in (one.partition("/") for one in WAYS)]
            gaps.append([np.linalg.norm(left - terms(way)) / (np.linalg.norm(left) + 1e-3) for left, terms, way in found])
    return {
        name: (largest(of_problems), 0.0, {"clipped": np.mean(clipped)})
        for name, of_problems in zip(WAYS, np.transpose(gaps), strict=True)
    }
