"""Stage 0 of a step with an allocation rule: what is known of the prompts drawn, and how many responses each of them gets."""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from grpo_theory.compiler import F1, F2, F3, I2, FirstClassType, allocating_stage, function_value, record_type
from grpo_theory.estimation.allocation import COSTS, SPREAD
from grpo_theory.problem.logits import SURE
from grpo_theory.simulate.advantage.rewards import fill_norms
from grpo_theory.simulate.draw.policy_draw import T2, TOKEN_PATHS, TokenPaths
from grpo_theory.validation import Array

N_KNOWN = 7


class PromptFacts(NamedTuple):
    """What the moments of a prompt are made of, besides the policy.

    Attributes
    ----------
    means, variances : ndarray, shape (M, K)
        E[Z | m, k] and Var(Z | m, k).
    gram : ndarray, shape (M, D, D), or (0, 0, 0) where the rule does not want traces
        Phi Phi' of the policy.
    paths : TokenPaths
    """

    means: Array
    variances: Array
    gram: Array
    paths: TokenPaths


class Allotment(NamedTuple):
    """How the responses of a step are shared out among its prompts.

    Attributes
    ----------
    fill_costs, spread : compiled functions
        The rule's, and `spread_budget`.
    facts : PromptFacts
    budget, low, high : int
        The responses of a step, and the fewest and the most of a prompt.
    memory : float
        Of what was seen of a prompt, the share that still counts once its next group is there.
    sizes : ndarray of int32, shape (B, N)
        Room for the result.
    fault : ndarray, shape (10,)
        1, the costs and what was known where the rule has left costs that mean nothing; the first is 0 if it has not.
    """

    fill_costs: Any
    spread: Any
    facts: PromptFacts
    budget: int
    low: int
    high: int
    memory: float
    sizes: NDArray[np.int32]
    fault: Array


PROMPT_FACTS = record_type(PromptFacts, F2, F2, F3, TOKEN_PATHS)
ALLOTMENT = record_type(
    Allotment,
    FirstClassType(COSTS),
    FirstClassType(SPREAD),
    PROMPT_FACTS,
    numba.int64,
    numba.int64,
    numba.int64,
    numba.float64,
    T2,
    F1,
)
ALLOT = numba.void(ALLOTMENT, F3, F3, I2, numba.int64, F3)


@allocating_stage
def gradient_power(pi, tokens, advantages, gram, paths):
    """Return ||g||^2 of a prompt, from the probabilities of responses (K,) and tokens (D,), Z - V (K,), and Phi Phi' (D, D)."""
    n_logits, size = tokens.size, paths.vocabulary_size
    covector = np.zeros(n_logits)
    for k in range(pi.size):
        for t in range(paths.lengths[k]):
            covector[paths.edges[k, t]] += pi[k] * advantages[k]
    for start in range(0, n_logits, size):
        total = 0.0
        for d in range(start, start + size):
            total += covector[d]
        sure, others = -1, 0.0
        for d in range(start, start + size):
            covector[d] -= total * tokens[d]
            if tokens[d] > SURE:
                sure = d
            else:
                others += covector[d]
        if sure >= 0:
            covector[sure] = -others
    power = 0.0
    for d in range(n_logits):
        for e in range(n_logits):
            power += covector[d] * gram[d, e] * covector[e]
    return power


@allocating_stage
def fill_known(facts, tokens, pi, prompts, n, seen, known):
    """Fill what is known (N, B, 7) of the prompts of n runs.

    The arrays tokens (B, D, N) and pi (B, K, N) are of the policy that samples.  The rows of seen (3, M, N) are sums of rewards,
    numbers of rewards, and values when the runs began.
    """
    n_prompts, n_responses, lanes = pi.shape
    norms, advantages = np.zeros((n_responses, lanes)), np.empty(n_responses)
    for b in range(n_prompts):
        wants_traces = facts.gram.shape[0] > 0
        if wants_traces:
            fill_norms(tokens[b], facts.gram, facts.paths, prompts[b], n, norms)
        for i in range(n):
            m = np.uintp(prompts[b, i])
            likeliest, away = np.argmax(pi[b, :, i]), 0.0
            for k in range(n_responses):
                away += pi[b, k, i] * (facts.means[m, k] - facts.means[m, likeliest])
            value = facts.means[m, likeliest] + away
            variance, power, oracle = 0.0, 0.0, 0.0
            for k in range(n_responses):
                chance, mean = pi[b, k, i], facts.means[m, k]
                advantages[k] = (mean - facts.means[m, likeliest]) - away
                spread = facts.variances[m, k] + advantages[k] ** 2
                variance += chance * spread
                power += chance * norms[k, i]
                oracle += chance * norms[k, i] * spread
            row = known[i, b]
            row[0], row[1], row[2], row[3], row[4] = value, max(0.0, variance), 0.0, 0.0, seen[2, m, i]
            row[5], row[6] = seen[0, m, i], seen[1, m, i]
            if wants_traces:
                slope = gradient_power(pi[b, :, i].copy(), tokens[b, :, i].copy(), advantages, facts.gram[m], facts.paths)
                row[2], row[3] = max(0.0, oracle - slope), variance * power + slope


@function_value(ALLOT)
def allot(allotment, tokens, pi, prompts, n, seen):
    """Fill the sizes of the groups of n runs, which have seen (3, M, N) so much.

    The lanes after them, and runs that have left the numbers, get the fewest.
    """
    n_prompts = prompts.shape[0]
    known, costs = np.empty((n, n_prompts, N_KNOWN)), np.empty((n_prompts, 2))
    gains, own = np.empty(n_prompts), np.empty(n_prompts, dtype=np.int64)
    fill_known(allotment.facts, tokens, pi, prompts, n, seen, known)
    allotment.sizes[:] = allotment.low
    for i in range(n):
        finite = True
        for b in range(n_prompts):
            costs[b, 0], costs[b, 1] = np.nan, np.nan
            for column in range(N_KNOWN):
                finite = finite and np.isfinite(known[i, b, column])
        if not finite:
            continue
        allotment.fill_costs(known[i], costs)
        for b in range(n_prompts):
            for part in range(2):
                if not (costs[b, part] >= 0.0 and costs[b, part] < np.inf):
                    allotment.fault[0] = 1.0
                    allotment.fault[1:3] = costs[b]
                    allotment.fault[3:] = known[i, b]
                    return
        allotment.spread(costs, allotment.budget, allotment.low, allotment.high, gains, own)
        for b in range(n_prompts):
            allotment.sizes[b, i] = own[b]
