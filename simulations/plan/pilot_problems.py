"""Problems and pilots on which the planner is tried, all with known errors or efficiencies at every group size.

Where lengths have heavy tails, a prompt has a success rate p of the law beta(1, 1.5), a length L and a direction u. A response
succeeds with probability p; its score is W = L (A (Z - p) u + e), with e normal of variance 1 over all coordinates. So W has mean
0 and the prompt's gradient is L A p (1 - p) u. The constants need only moments of p and L.
"""

from collections.abc import Callable
from functools import cache
from math import exp, gamma, pi, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import roots_jacobi

import grpo_theory as gt
from grpo_theory.evidence import Share
from grpo_theory.plan import Limits
from grpo_theory.plan.advice import TOLERANCE
from grpo_theory.plan.efficiency import group_table
from grpo_theory.plan.group_size import Estimates, choose
from grpo_theory.problem.logits import HeadMap
from grpo_theory.validation import Array

HEAD = "language model's head"
NONE = "single"
"""Where c1 is 0 and a larger group is always better."""
NAMES = ("linear", "graded", "balanced", NONE, HEAD)
"""In "balanced" the best group is large: c3 is 340 times c1."""
LANGUAGE_MODEL, DIRECTIONS = "lm-few-shot", 4
UNIT = 1e6
"""The parameter in front of the model's own logits: so large that its share of the scores is 0 but for rounding."""
LIMITS = Limits(budget=1024, max_group_size=64)
ASKED = 16
"""The group size at which error, loss and signal are asked for."""
RATES = (1.0, 1.5)
SIGNAL, COORDINATES, ALIGNED = 1.5, 8, 0.5
"""A; the number of coordinates; the component of every prompt's direction along one of them. The others' mean is 0."""
NODES = 32
RARE, LONG = 0.05, 4.0
"""One prompt in 20 has a gradient four times as long."""
SIZES = (4, 64)
HEAVY = "lognormal 0.7"
CHAINS = {"long way": 10, "two kinds": 15}
"""Seeds. Of the first 30, these have the best size for TRL's estimator inside the logged ones, and a loss of 20% or more at 2. In
the second RLOO's best size is 8 and that of TRL's is 4."""
LOG_NAMES = ("linear", "graded", HEAD, *CHAINS, HEAVY)
PROMPTS, LOGGED, BLOCK = 256, 8, 50
LOG_LIMITS = Limits(budget=256, max_group_size=LOGGED)
STATES, TOKENS, HORIZON, FEATURES = 12, 3, 5, 10


@cache
def problem(name):
    """Return a problem by name: one of the gallery, or the language model's head along a few directions.

    The head W has 10 x 576 numbers. V is trained in W + V P, as in a low-rank adapter. The rows of P are the leading principal
    directions of the hidden states. The logits are W h + V P h, at V = 0. The first direction has 97% of the hidden states'
    squared length, so c1, c2 and c3 are within 3% of the whole head's. A pilot of 2,048 prompts fits in memory.
    """
    if name != HEAD:
        return gt.gallery.problem(name)
    whole = gt.gallery.problem(LANGUAGE_MODEL)
    head = whole.policy.logit_map
    assert isinstance(head, HeadMap)
    _, axes = np.linalg.eigh(head.hidden.T @ head.hidden)
    along = head.hidden @ axes[:, -DIRECTIONS:]
    logits = whole.policy.logits(whole.theta)
    adapter = np.einsum("kl,mr->mklr", np.eye(logits.shape[1]), along).reshape(*logits.shape, -1)
    features = np.concatenate([adapter, logits[..., None] / UNIT], axis=-1)
    theta = np.append(np.zeros(adapter.shape[-1]), UNIT)
    return gt.Problem(whole.bandit, gt.LinearSoftmax(features), theta=theta, name=name, title=name)


@cache
def constants(name):
    """Return the exact c1, c2 and c3."""
    case = problem(name)
    return gt.group_size_law(case, case.theta)


@cache
def truth(law):
    """Return the exact error at every allowed group size, and the best, of exact c1, c2 and c3."""
    return choose(Estimates(np.array([law.c1, law.c2, law.c3]), np.zeros((3, 2))), LIMITS, heavy=False)


def judge(choice, law):
    """Return the regret, whether the planner calls its answer good enough, and what of its limits and its set holds."""
    exact = truth(law)
    regret, at = exact.loss.estimate[choice.best], exact.at(ASKED)
    constants = np.array([law.c1, law.c2, law.c3])
    return {
        "regret": regret,
        "enough": choice.risk <= TOLERANCE,
        "best size": choice.candidates[exact.best],
        "risk": regret <= choice.risk,
        "loss": choice.loss.low[at] <= exact.loss.estimate[at] <= choice.loss.high[at],
        "error": choice.mse.low[at] <= exact.mse.estimate[at] <= choice.mse.high[at],
        **dict(zip(("c1", "c2", "c3"), (choice.constants.low <= constants) & (constants <= choice.constants.high), strict=True)),
    }


def misses(held, draws, most):
    """Return the evidence that a promise fails at most so often, from in how many draws it held."""
    return Share(float(1.0 - held / draws), most, replications=int(draws))


class LengthLaw(NamedTuple):
    """A law of gradient lengths L.

    Attributes
    ----------
    draw : callable
        Takes a generator and how many to draw.
    mean, square : float
        The means of L and of its square.
    signal : bool
        Whether L multiplies only what reward and score share, so that lengths do not cancel in ratios of errors.
    """

    draw: Callable[[np.random.Generator, int], Array]
    mean: float
    square: float
    signal: bool = False


def lognormal(spread, signal=False):
    """Return the law of exp(spread N), N standard normal."""
    return LengthLaw(lambda rng, size: rng.lognormal(0.0, spread, size), exp(spread**2 / 2.0), exp(2.0 * spread**2), signal)


LAWS = {
    "equal": LengthLaw(lambda rng, size: np.ones(size), 1.0, 1.0),
    "lognormal 0.7": lognormal(0.7),
    "lognormal 0.7, signal": lognormal(0.7, signal=True),
    "lognormal 1": lognormal(1.0),
    "exponential": LengthLaw(lambda rng, size: rng.exponential(1.0, size), 1.0, 2.0),
    "half t, 5 degrees": LengthLaw(
        lambda rng, size: np.abs(rng.standard_t(5.0, size)), sqrt(5.0 / pi) * gamma(3.0) / (2.0 * gamma(2.5)), 5.0 / 3.0
    ),
    "rare": LengthLaw(
        lambda rng, size: np.where(rng.random(size) < RARE, LONG, 1.0), 1.0 + RARE * (LONG - 1.0), 1.0 + RARE * (LONG**2 - 1.0)
    ),
}
"""Light and heavy tails. Of "rare" 21% of pilots of 30 prompts have no long gradient at all."""


@cache
def rate_nodes():
    """Return success rates and weights by which polynomials are averaged over their law exactly."""
    nodes, weights = roots_jacobi(NODES, RATES[1] - 1.0, RATES[0] - 1.0)
    return (1.0 + nodes) / 2.0, weights / weights.sum()


@cache
def exact_law(name):
    """Return the exact c1, c2 and c3."""
    law = LAWS[name]
    p, weights = rate_nodes()
    variance, fourth = weights @ (p * (1.0 - p)), weights @ (p * (1.0 - p) ** 4 + (1.0 - p) * p**4)
    square = weights @ (p * (1.0 - p)) ** 2
    signal, noise = SIGNAL**2 * law.square, 1.0 if law.signal else law.square
    power = signal * square
    mean = (SIGNAL * law.mean * ALIGNED * variance) ** 2
    c2 = signal * fourth + noise * variance - power
    return gt.GroupSizeLaw(float(power - mean), float(c2), float(signal * square + noise * variance + power))


def draw_pilot(name, prompts, ragged, rng):
    """Draw a pilot with 4 to 64 responses a prompt, each number as likely, or with 8; return it and each prompt's length."""
    law = LAWS[name]
    sizes = rng.integers(SIZES[0], SIZES[1] + 1, prompts) if ragged else np.full(prompts, 8)
    index = np.repeat(np.arange(prompts), sizes)
    rate, lengths = rng.beta(*RATES, prompts)[index], law.draw(rng, prompts)
    length = lengths[index]
    rest = rng.standard_normal((prompts, COORDINATES - 1))
    rest *= sqrt(1.0 - ALIGNED**2) / np.linalg.norm(rest, axis=1, keepdims=True)
    direction = np.hstack([np.full((prompts, 1), ALIGNED), rest])[index]
    rewards = (rng.random(index.size) < rate).astype(np.float64)
    noise = rng.standard_normal((index.size, COORDINATES)) / sqrt(COORDINATES)
    shared = (SIGNAL * length * (rewards - rate))[:, None] * direction
    scores = shared + (noise if law.signal else length[:, None] * noise)
    return gt.RaggedRollouts.from_index(np.arange(prompts), index, rewards, scores), lengths


@cache
def chain(seed):
    """Return a chain of twelve states, each a prompt's first, whose success rates and steps are drawn with a seed."""
    rng = np.random.default_rng(seed)
    transitions = rng.integers(0, STATES, (STATES, TOKENS))
    transitions[:, 0] = (np.arange(STATES) + 1) % STATES  # every state can be left
    policy = gt.TokenChain(transitions, HORIZON, features=rng.normal(size=(STATES, TOKENS, FEATURES)), starts=range(STATES))
    success = 1.0 / (1.0 + np.exp(1.5 - 2.5 * rng.normal(size=STATES)))
    return gt.Problem(gt.StateRewards(success), policy, theta=0.8 * rng.normal(size=FEATURES))


@cache
def listed(name):
    """Return the problem that logs are drawn from, a chain's responses listed."""
    return chain(CHAINS[name]).listed() if name in CHAINS else problem(name)


def draw_logs(name, rng, number):
    """Draw logs of 256 prompts with 8 responses each, in blocks, because a block takes its scores from one table."""
    pilot = gt.Pilot(PROMPTS, LOGGED)
    for start in range(0, number, BLOCK):
        size = min(BLOCK, number - start)
        if name == HEAVY:
            yield from (draw_pilot(name, PROMPTS, False, rng)[0] for _ in range(size))
        else:
            block = pilot.sample(listed(name), rng, size)
            yield from (pilot.take(block, i) for i in range(size))


@cache
def efficiencies(name, estimator):
    """Return the exact efficiency at each allowed group size: of chains by recursion from state to state."""
    if name == HEAVY:
        return heavy_efficiencies(estimator)
    case = chain(CHAINS[name]) if name in CHAINS else problem(name)
    pairs = zip(*(part.tolist() for part in LOG_LIMITS.batches()), strict=True)
    return np.array([gt.efficiency(case, case.theta, estimator, batch_size=b, group_size=g) for g, b in pairs])


def heavy_efficiencies(estimator):
    """Return the exact efficiencies where lengths are lognormal.

    With a_i the advantages, ``ghat = (L/G)(A u sum_i a_i (Z_i - p) + sum_i a_i e_i)``. So given p the sums over a group's
    successes are all that is needed. Their binomial means are polynomials in p, which the quadrature averages exactly.
    """
    from scipy.stats import binom  # slow to import, and seldom wanted

    law, found = LAWS[HEAVY], gt.estimators()[estimator]
    p, weights = rate_nodes()
    gradient = weights @ (p * (1.0 - p))
    values = []
    for size, batch in zip(*(part.tolist() for part in LOG_LIMITS.batches()), strict=True):
        table = group_table(found, (0.0, 1.0), size)
        failures, successes = table.multisets.T
        chances = binom.pmf(successes, size, p[:, None])
        along = table.advantages[:, 1] * successes * (1.0 - p[:, None]) - table.advantages[:, 0] * failures * p[:, None]
        squares = table.advantages[:, 1] ** 2 * successes + table.advantages[:, 0] ** 2 * failures
        mean = weights @ (chances * along).sum(axis=1) / size
        signal, noise = (weights @ (chances * part).sum(axis=1) / size**2 for part in (along**2, squares))
        power = law.square * (SIGNAL**2 * signal + noise)
        length = SIGNAL * law.mean * ALIGNED
        own, exact = (length * mean) ** 2, (length * gradient) ** 2
        values.append(own / (power / batch + (1.0 - 1.0 / batch) * own) if exact > 0.0 else 0.0)
    return np.array(values)
