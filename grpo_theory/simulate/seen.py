"""What a kernel that is called sees of rollouts of a policy that moves."""

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import PROMPT_FIELDS
from grpo_theory.exact.score_moments import check_penalty
from grpo_theory.problem import LogitMap, Problem
from grpo_theory.simulate.advantages import KernelCall
from grpo_theory.simulate.rollouts import PolicyRoom, Room, World
from grpo_theory.validation import Array, Integers


def powers_of(logit_gradients: Array, gram: Array) -> Array:
    """Return ||Phi' c||^2 = c' Phi Phi' c, (n, K), of logit gradients (n, K, D) and Gram matrices (n, D, D)."""
    return np.maximum(((logit_gradients @ gram) * logit_gradients).sum(axis=-1), 0.0)


class Viewer:
    """Calls an estimator's kernel on rollouts."""

    def __init__(self, problem: Problem, estimator: Estimator, world: World) -> None:
        check_penalty(problem.kl, estimator)
        self.problem, self.estimator, self.world = problem, estimator, world
        self.log_reference = problem.log_reference
        self._reads, self._call = estimator.advantage.reads, KernelCall(estimator.advantage)

    def advantages(self, room: Room, policy: PolicyRoom, theta: Array) -> Array:
        """Return the advantages of the responses (LANES, B, G), drawn from policies with parameters (R, d).

        Raises
        ------
        ValueError
            If one is not finite, of a run that has not left the finite numbers.
        """
        batch_size, _, lanes = policy.pi.shape
        penalties = self.penalties(room, policy)
        reads_norms, known = self._reads & {"squared_score_norms", "optimal_baselines"}, np.full((3, batch_size, lanes), np.nan)
        norms = self._norms(room, policy, theta) if reads_norms else np.full(policy.pi.shape, np.nan)
        logs = np.log(policy.pi) if "log_probabilities" in self._reads else np.full(policy.pi.shape, np.nan)
        if self._reads & set(PROMPT_FIELDS):
            known[:] = self._known(room, policy, penalties, norms)
        wanted = np.zeros(lanes, dtype=bool)
        wanted[: len(theta)] = np.isfinite(theta).all(axis=1)
        lengths = self.world.logits.lengths
        return self._call.advantages(
            room.ordered, self.rewards(penalties), np.stack([norms, logs]), lengths, known, batch_size, wanted
        )

    def rewards(self, penalties: Array) -> Array:
        """Return the reward of each outcome, less the penalties (B, K, LANES) of the responses, shape (B, O, LANES)."""
        values = self.problem.bandit.values[:, None] - penalties[:, :, None]
        return np.ascontiguousarray(values).reshape(len(values), -1, penalties.shape[2])

    def away(self, log_tokens: Array, prompts: Integers) -> Array:
        """Return log(pi/reference) of the tokens (B, D, LANES) at prompts (B, LANES)."""
        assert self.log_reference is not None  # there is a penalty
        return log_tokens - self.log_reference[prompts].swapaxes(1, 2)

    def penalties(self, room: Room, policy: PolicyRoom) -> Array:
        """Return a KL term in the reward, which is subtracted from it, shape (B, K, LANES); 0 if there is none."""
        if self.problem.kl is None or self.estimator.kl.place != "reward":
            return np.zeros(policy.pi.shape)
        away = self.away(policy.log_tokens, room.prompts)
        terms = np.empty_like(away)
        # strength sum_t k(l_t), with l = log(pi/reference) at the policy that sampled (docs/derivations.md, section 16).
        self.estimator.kl.fill(away.reshape(-1, away.shape[2]), terms.reshape(-1, away.shape[2]))
        return self.problem.kl.strength * self.problem.policy.paths.along(terms.swapaxes(1, 2)).swapaxes(1, 2)

    def _norms(self, room: Room, policy: PolicyRoom, theta: Array) -> Array:
        """Return the squared lengths of scores (B, K, LANES); those of features that are learned are each run's own."""
        of_map, n, norms = self.problem.policy.logit_map, len(theta), np.full(policy.pi.shape, np.nan)
        maps = [of_map] if isinstance(of_map, LogitMap) else [of_map.at(one) for one in theta]
        own = np.stack([np.asarray(one.gram()) for one in maps])
        paths = self.problem.policy.paths
        for prompts, tokens, found in zip(room.prompts[:, :n], policy.tokens, norms, strict=True):
            gram = own[np.arange(n) if len(own) > 1 else 0, prompts]
            found[:, :n] = powers_of(paths.centre(paths.incidence, tokens[:, :n].T[:, None]), gram).T
        return norms

    def _known(self, room: Room, policy: PolicyRoom, penalties: Array, norms: Array) -> tuple[Array, Array, Array]:
        """Return true value, standard deviation and optimal baseline E[|W|^2 Z]/E|W|^2 of the prompts, (B, LANES) each."""
        bandit = self.problem.bandit
        variances = (bandit.probabilities * (bandit.values - bandit.mean_reward[..., None]) ** 2).sum(axis=-1)
        means = bandit.mean_reward[room.prompts].swapaxes(1, 2) - penalties
        value = (policy.pi * means).sum(axis=1)
        spread = variances[room.prompts].swapaxes(1, 2) + (means - value[:, None]) ** 2
        powers = policy.pi * norms
        with np.errstate(all="ignore"):
            power = np.maximum(powers.sum(axis=1), np.finfo(float).tiny)
            # b* = V + Cov(||W||^2, Z)/E||W||^2 (docs/derivations.md, section 3).
            baseline = value + (powers * (means - value[:, None])).sum(axis=1) / power
        return value, np.sqrt((policy.pi * spread).sum(axis=1)), baseline
