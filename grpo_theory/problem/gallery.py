"""A small gallery of named problems, tagged by what they are for."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit

from grpo_theory.data.questions import LONGEST, PROMPTS, arithmetic, long_answers
from grpo_theory.problem.chain import StateRewards, TokenChain, TokenTree
from grpo_theory.problem.point import Problem
from grpo_theory.problem.policy import KL, Bandit, LinearSoftmax, Policy, SoftmaxHead, TabularSoftmax
from grpo_theory.problem.two_layer import TwoLayerSoftmax
from grpo_theory.validation import Array, as_count, as_fraction, check_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["END_OF_ANSWER", "KINDS", "bigram_text", "copy", "crowd", "describe", "goal_walk", "learned_walk", "names", "problem"]
__all__ += ["think_until_sure"]
__dir__ = __all__.copy

DIGITS = 4
STEPS = 8
"""Of a walk from its furthest start to its goal."""
WIDTH = 8
"""The hidden units of the network that learns the walk."""
EVIDENCE = 6
"""The most steps that evidence is on either side of none."""
SEED = 20261125
"""Of the small differences between logits, without which prompts would have gradients that are alike."""
SPREAD = 0.3
"""Their standard deviation."""
DIAL = 40.0
"""The dial is sought on either side of 0 as far as this."""

TEXT = (
    "it is a truth universally acknowledged that a single man in possession of a good fortune must be in want of a wife "
    "however little known the feelings or views of such a man may be on his first entering a neighbourhood this truth is so "
    "well fixed in the minds of the surrounding families that he is considered as the rightful property of some one or other "
    "of their daughters my dear mr bennet said his lady to him one day have you heard that netherfield park is let at last "
)
"""The beginning of Jane Austen's Pride and Prejudice (1813), without marks."""
LETTERS = " abcdefghijklmnopqrstuvwxyz"
UNSEEN = 0.1
"""What is added to every count of the text, so that no pair of letters is impossible."""


def copy(horizon: int, success: float = 0.6) -> Problem:
    """One of 4 digits must be unchanged after T tokens that keep, raise or lower it: credit is spread over all tokens.

    To succeed often the policy must be nearly sure of every token: a longer response is no more random than a short one.

    Parameters
    ----------
    horizon : int
        T, the number of tokens of every response.
    success : float, default 0.6
        The mean success rate. It must be above about a half, the rate of a policy that mostly raises digits.

    Returns
    -------
    Problem
        At the parameter with this success rate. There is a prompt for each digit. Logits are free for each pair of the digit
        given and the digit now.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.copy(horizon=8)
    >>> problem.policy.horizon, round(float(gt.objective(problem, problem.theta)), 6)
    (8, 0.6)
    """
    digits, given = np.arange(DIGITS), np.repeat(np.arange(DIGITS), DIGITS)
    now = np.tile(digits, DIGITS)
    moves = (0, 1, DIGITS - 1)
    transitions = np.stack([given * DIGITS + (now + move) % DIGITS for move in moves], axis=1)
    keeps = np.tile([1.0, 0.0, 0.0], (DIGITS**2, 1))
    chain = TokenChain(transitions, horizon, starts=digits * (DIGITS + 1))
    return _at_success(chain, (given == now).astype(float), keeps, np.zeros(keeps.shape), success)


def goal_walk(horizon: int, success: float = 0.5) -> Problem:
    """A walk on a line must reach its goal within T steps, back, waiting or ahead: a response ends there, or without success.

    Parameters
    ----------
    horizon : int
        T, the largest number of tokens: at least as many as the furthest start is away, 8.
    success : float, default 0.5
        The mean success rate over the starts, which are 2, 4, 6 and 8 steps away.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.goal_walk(horizon=16)
    >>> problem.policy.horizon, round(float(gt.objective(problem, problem.theta)), 6)
    (16, 0.5)
    """
    ahead = np.tile([0.0, 0.0, 1.0], (STEPS + 1, 1))
    return _at_success(_walk(horizon), np.eye(STEPS + 1)[STEPS], ahead, np.zeros(ahead.shape), success)


def learned_walk(horizon: int) -> Problem:
    """A walk to a goal before training, by a network of two layers that reads how far the goal is: its features are learned.

    Parameters
    ----------
    horizon : int
        T, the largest number of tokens: at least as many as the furthest start is away, 8.

    Returns
    -------
    Problem
        At a start at which back, waiting and ahead are equally likely wherever the walk is.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.learned_walk(horizon=16)
    >>> problem.policy.horizon, problem.policy.dimension, problem.policy.is_linear
    (16, 40, False)
    """
    place = np.linspace(-1.0, 1.0, STEPS + 1)
    network = TwoLayerSoftmax(np.stack([place, np.ones(STEPS + 1)], axis=1), WIDTH, 3)
    return Problem(StateRewards(np.eye(STEPS + 1)[STEPS]), _walk(horizon, network), theta=network.start(rng=SEED))


def _walk(horizon: int, network: TwoLayerSoftmax | None = None) -> TokenChain:
    """Return the chain of a walk on a line from 2, 4, 6 or 8 steps before its goal: back, waiting, ahead."""
    places = np.arange(STEPS)
    transitions = np.stack([np.maximum(places - 1, 0), places, places + 1], axis=1)
    ended = np.full((1, 3), -1)
    horizon = as_count("horizon", horizon, STEPS)
    return TokenChain(np.concatenate([transitions, ended]), horizon, starts=[0, 2, 4, 6], network=network)


def think_until_sure(horizon: int, success: float = 0.5) -> Problem:
    """Tokens add evidence, take it away, or stop: the answer is right the more often the more evidence there is when it stops.

    Parameters
    ----------
    horizon : int
        T, the largest number of tokens; the policy stops after about a third as many.
    success : float, default 0.5
        The mean success rate over the starts, which have a little evidence for, none, or a little against.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.think_until_sure(horizon=12)
    >>> problem.policy.horizon, round(float(gt.objective(problem, problem.theta)), 6)
    (12, 0.5)
    """
    horizon = as_count("horizon", horizon)
    levels = np.arange(2 * EVIDENCE + 1)
    up, down = np.minimum(levels + 1, levels[-1]), np.maximum(levels - 1, 0)
    # Beside two logits of 0, p(stop) = (6/T)/(6/T + 2) = 3/(T + 3), so that about T/3 tokens come before.
    gains, base = (np.tile(row, (levels.size, 1)) for row in ([0.0, 1.0, 0.0], [-np.log(max(horizon, 2) / 6.0), 0.0, 0.0]))
    chain = TokenChain(np.stack([levels, up, down], axis=1), horizon, end_token=0, starts=EVIDENCE + np.array([-2, 0, 2]))
    return _at_success(chain, 1.0 / (1.0 + np.exp(levels - float(EVIDENCE)))[::-1], gains, base, success)


def bigram_text(horizon: int, success: float = 0.3) -> Problem:
    """Letters as often as one follows another in a real text; one prompt asks to end between words, the other with a vowel.

    What a letter does is forgotten after a few others, so that credit lies with a response's last tokens, and noise with all.

    Parameters
    ----------
    horizon : int
        T, the number of tokens of every response.
    success : float, default 0.3
        The mean success rate of the two prompts, which have logits of their own for each pair of letters.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.bigram_text(horizon=8)
    >>> problem.policy.horizon, round(float(gt.objective(problem, problem.theta)), 6)
    (8, 0.3)
    """
    text, size = np.array([LETTERS.index(letter) for letter in TEXT]), len(LETTERS)
    counts = np.full((size, size), UNSEEN)
    np.add.at(counts, (text[:-1], text[1:]), 1.0)
    wanted = np.array([[letter == " " for letter in LETTERS], [letter in "aeiou" for letter in LETTERS]], dtype=np.float64)
    transitions = np.concatenate([np.tile(np.arange(size), (size, 1)) + size * prompt for prompt in range(2)])
    chain = TokenChain(transitions, horizon, starts=[0, size])
    direction = np.repeat(wanted, size, axis=0)
    return _at_success(chain, wanted.ravel(), direction, np.tile(np.log(counts), (2, 1)), success)


def _at_success(chain: TokenChain, right: Array, direction: Array, base: Array, success: float) -> Problem:
    """Return the problem at the parameter along a direction (S, V) from a base (S, V) at which the mean success rate is given."""
    from scipy.optimize import brentq  # slow to import, and seldom wanted

    success = as_fraction("success", success)
    base = base + SPREAD * np.random.default_rng(SEED).standard_normal(base.shape)
    problem = Problem(StateRewards(right), chain)

    def above(dial: float) -> float:
        value = problem.at((base + dial * direction).ravel()).value
        return float(problem.bandit.prompt_weights @ value) - success

    ends = above(-DIAL), above(DIAL)
    if min(ends) > 0.0 or max(ends) < 0.0:
        low, high = sorted(success + end for end in ends)
        raise ValueError(f"success must be a rate that this chain can have, {low:.3g} to {high:.3g}, got {success:g}")
    dial = brentq(above, -DIAL, DIAL, xtol=1e-12)
    return replace(problem, theta=(base + dial * direction).ravel())


KINDS = {"copy": copy, "goal walk": goal_walk, "think until sure": think_until_sure, "bigram text": bigram_text}
"""The kinds of task by name."""


TAGS = ("gradient", "training", "assumption", "off policy", "sequence", "language model", "chain", "learned features")
"""What the problems are for.  Most are for errors of the gradient at a fixed theta, or for training towards a known interior
maximiser.  Some meet an assumption by construction, and some are for updates on responses of an older policy.  Further tags say
that responses have several tokens, that the policy is that of a real language model, or that it learns its features.  A chain has
only the tags "chain" and "learned features".  Its responses are too many to be listed, and the other tags are for problems with
listed responses."""
CHAIN_TOKENS = 64
"""The horizon of the gallery's chains; `grpo_theory.problem.gallery` makes them with any other."""


END_OF_ANSWER = 10
"""The token that ends an answer of several digits; tokens 0 to 9 are the digits."""


class _Entry(NamedTuple):
    title: str
    tags: tuple[str, ...]
    make: Callable[[], Problem]


def _two_arms() -> Problem:
    """One prompt, two arms, the better one twice as likely as the worse; everything can be checked by hand."""
    return Problem(Bandit([[0.3, 0.8]]), TabularSoftmax(1, 2), theta=[0.0, np.log(2.0)])


def _uniform() -> Problem:
    """A tabular policy before training: all score norms are equal, so Assumption 2 holds exactly."""
    rng = np.random.default_rng(1)
    return Problem(Bandit(rng.uniform(0.1, 0.9, (6, 4))), TabularSoftmax(6, 4))


def _tabular() -> Problem:
    """A tabular policy on its way: logits at random, unequal prompt weights."""
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.full(6, 4.0))
    bandit = Bandit(rng.uniform(0.05, 0.95, (6, 4)), weights)
    return Problem(bandit, TabularSoftmax(6, 4), theta=rng.normal(size=24))


def _linear() -> Problem:
    """Prompts share five features: what is learned on one changes the others."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(12, 5, 5)) / np.sqrt(5.0)
    bandit = Bandit(rng.uniform(0.05, 0.95, (12, 5)))
    return Problem(bandit, LinearSoftmax(features), theta=rng.normal(size=5))


def _graded() -> Problem:
    """Three-valued rewards, format plus accuracy, on shared features."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(8, 4, 6)) / np.sqrt(6.0)
    law = rng.dirichlet(np.ones(3), size=(8, 4))
    return Problem(Bandit.from_law([0.0, 1.0, 2.0], law), LinearSoftmax(features), theta=rng.normal(size=6))


def _mixed_difficulty() -> Problem:
    """Eight prompts with one right answer in five, from hardly ever found (2%) to nearly always (98%)."""
    chance = expit(np.linspace(-4.0, 4.0, 8))
    success, logits = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], (8, 1)), np.zeros((8, 5))
    # p = exp(l)/(exp(l) + 4) at l = log(4 p/(1 - p)).
    logits[:, 0] = np.log(4.0 * chance / (1.0 - chance))
    return Problem(Bandit(success), TabularSoftmax(8, 5), theta=logits.reshape(-1))


def _sequence_tabular() -> Problem:
    """Sequences of three tokens out of three, a free logit at every prefix, unequal prompt weights."""
    rng = np.random.default_rng(5)
    policy = TokenTree(4, vocabulary_size=3, horizon=3)
    bandit = Bandit(rng.uniform(0.05, 0.95, (4, policy.n_responses)), rng.dirichlet(np.full(4, 4.0)))
    return Problem(bandit, policy, theta=rng.normal(size=policy.dimension))


def _sequence_shared() -> Problem:
    """Sequences of one to three tokens with an end token; prompts and prefixes share five features."""
    rng = np.random.default_rng(6)
    features = rng.normal(size=(6, 21, 5)) / np.sqrt(5.0)
    policy = TokenTree(6, vocabulary_size=3, horizon=3, end_token=0, features=features)
    bandit = Bandit(rng.uniform(0.05, 0.95, (6, policy.n_responses)))
    return Problem(bandit, policy, theta=rng.normal(size=5))


def _uncorrelated(linear: bool) -> Problem:
    """Score norms and rewards vary, and are uncorrelated at every prompt: Assumption 2 holds, and not for want of variation."""
    rng = np.random.default_rng(8 if linear else 7)
    policy: Policy = LinearSoftmax(rng.normal(size=(12, 5, 5)) / np.sqrt(5.0)) if linear else TabularSoftmax(6, 4)
    theta, draws = rng.normal(size=policy.dimension), rng.uniform(size=(policy.n_prompts, policy.n_responses))
    pi, norms = policy.probabilities(theta), (policy.scores(theta) ** 2).sum(axis=-1)
    centred = norms - (pi * norms).sum(axis=1, keepdims=True)
    # The least squares residual of the draws on ||W||^2 under pi, which is uncorrelated with it.
    left = draws - centred * (pi * centred * draws).sum(axis=1, keepdims=True) / (pi * centred**2).sum(axis=1, keepdims=True)
    # Cov(||W||^2, Z | x) = 0 makes b* = V, which is Assumption 2 (docs/derivations.md, section 3); stretching keeps it.
    success = 0.05 + 0.9 * (left - left.min()) / np.ptp(left)
    return Problem(Bandit(success, None if linear else rng.dirichlet(np.full(6, 4.0))), policy, theta=theta)


def _language_model(prompt: str) -> Problem:
    """SmolLM2's head on 500 arithmetic questions: reward 1 for the right digit, the questions equally likely."""
    data = arithmetic()
    success = np.eye(len(data.head))[data.answers]
    policy = SoftmaxHead(data.hidden[PROMPTS.index(prompt)], len(data.head))
    return Problem(Bandit(success), policy, theta=data.head.astype(np.float64).reshape(-1))


def _long_answers() -> Problem:
    """SmolLM2's head behind every prefix of answers of up to three digits: reward 1 for the right number."""
    data = long_answers()
    policy = TokenTree(len(data.answers), len(data.head), LONGEST, END_OF_ANSWER, hidden=data.hidden)
    digits = ["".join(map(str, response)).removesuffix(str(END_OF_ANSWER)) for response in policy.responses]
    success = np.array([[text == str(answer) for text in digits] for answer in data.answers], dtype=np.float64)
    return Problem(Bandit(success), policy, theta=data.head.astype(np.float64).reshape(-1))


def _kl_tabular() -> Problem:
    """A tabular policy with a penalty: the optimum is known, and flat in one direction at each prompt."""
    bandit = Bandit(np.random.default_rng(11).uniform(0.2, 0.8, (2, 3)))
    return Problem(bandit, TabularSoftmax(2, 3), KL(1.0, np.full((2, 3), 1.0 / 3)))


def _kl_linear() -> Problem:
    """Shared features with a penalty: the optimum is unique, and found by Newton's method."""
    rng = np.random.default_rng(12)
    bandit = Bandit(rng.uniform(0.1, 0.9, (4, 3)))
    return Problem(bandit, LinearSoftmax(rng.normal(size=(4, 3, 3))), KL(0.5, np.full((4, 3), 1.0 / 3)))


def _kl_sequence() -> Problem:
    """Sequences of one or two tokens on shared features, with a penalty: the optimum is unique."""
    rng = np.random.default_rng(14)
    policy = TokenTree(3, vocabulary_size=2, horizon=2, end_token=0, features=rng.normal(size=(3, 4, 2)))
    bandit = Bandit(rng.uniform(0.1, 0.9, (3, policy.n_responses)))
    return Problem(bandit, policy, KL(0.5, np.full((3, policy.n_responses), 1.0 / policy.n_responses)))


def _conflict() -> Problem:
    """No penalty, yet an interior maximiser: what helps one prompt harms another.

    In each prompt the middle response is right.  The features of the three responses lie on a line, the middle one between the
    others.  Its logit is therefore never the largest, and no theta makes a prompt sure of it.  The line has a different direction
    for each prompt.
    """
    angles = np.array([0.0, 1.0, 2.2, 3.9])
    along = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    offsets = np.array([[-1.2, 0.0, 2.0], [-2.0, 0.0, 1.0], [-1.5, 0.0, 1.2], [-1.0, 0.0, 1.8]])
    bandit = Bandit(np.tile([0.1, 0.9, 0.2], (4, 1)))
    return Problem(bandit, LinearSoftmax(offsets[:, :, None] * along[:, None, :]))


def _single() -> Problem:
    """One prompt, binary reward, an interior maximiser: every group estimator ascends a function of the same value."""
    features = np.array([[[-1.2, 0.3], [0.0, 0.0], [1.5, 0.2], [0.1, -1.4]]])
    return Problem(Bandit([[0.1, 0.9, 0.2, 0.15]]), LinearSoftmax(features))


def _indifferent() -> Problem:
    """All responses to a prompt are equally good: the reward says nothing of the score, and Corollary 10's assumption holds."""
    bandit = Bandit(np.repeat([[0.3], [0.8]], 3, axis=1))
    return Problem(bandit, TabularSoftmax(2, 3), KL(1.0, np.full((2, 3), 1.0 / 3)))


def _balanced() -> Problem:
    """Corollary 10's assumption holds at the maximiser, though prompts pull there in different directions.

    The mean penalised rewards q of three prompts' seven responses are random numbers projected to meet two conditions.  At
    theta*, W W' and Z are uncorrelated at each prompt, and the prompts' gradients add up to zero.
    """
    rng = np.random.default_rng(15)
    n_prompts, n_responses, strength = 3, 7, 0.5
    policy, best = LinearSoftmax(rng.normal(size=(n_prompts, n_responses, 2)) / np.sqrt(2.0)), np.array([0.3, -0.2])
    pi, w = policy.probabilities(best), policy.scores(best)
    squares = np.stack([w[..., 0] ** 2, w[..., 0] * w[..., 1], w[..., 1] ** 2], axis=1)
    # Cov(W W', q) = sum_k pi_k (w_k w_k' - E[W W']) q_k.
    squares -= (pi[:, None] * squares).sum(axis=-1, keepdims=True)
    by_prompt = np.concatenate([pi[:, None] * squares, pi[:, None]], axis=1)
    conditions = np.zeros((n_prompts, 4, n_prompts, n_responses))
    conditions[range(n_prompts), :, range(n_prompts)] = by_prompt
    gradients = np.moveaxis(pi[..., None] * w, -1, 0).reshape(2, -1)
    everything = np.concatenate([conditions.reshape(4 * n_prompts, -1), gradients])
    q = rng.normal(size=n_prompts * n_responses)
    # q - A^+ A q is the nearest point to q at which all conditions A give 0.
    q -= np.linalg.pinv(everything) @ (everything @ q)
    # q_k = E[Z | k] - strength log(pi_k/reference_k) with reference 1/K (docs/derivations.md, section 5), solved for E[Z | k].
    success = 0.5 + 0.3 * q.reshape(pi.shape) / np.abs(q).max() + strength * np.log(n_responses * pi)
    return Problem(Bandit(success), policy, KL(strength, np.full((n_prompts, n_responses), 1.0 / n_responses)))


def crowd(n_prompts: int) -> Problem:
    """Tabular, with a penalty, and a limit law of twice as many comparable weights as there are prompts.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.gallery.crowd(5).policy.n_prompts
    5
    """
    bandit = Bandit(np.random.default_rng(13).uniform(0.2, 0.8, (n_prompts, 3)))
    title = f"tabular, {n_prompts} prompts, KL penalty"
    return Problem(bandit, TabularSoftmax(n_prompts, 3), KL(1.0, np.full((n_prompts, 3), 1.0 / 3)), name="crowd", title=title)


def _two_speeds() -> Problem:
    """Everything by hand: two prompts want opposite things in a flat direction, a third has luck alone in a curved one.

    The maximiser is 0, where the policy is the reference; the curvatures are strength/6 and 4 strength/3.
    """
    features = np.zeros((3, 2, 2))
    # At 0 both responses are equally likely, and -H = strength E Cov(phi): strength (2/3) 1^2/4 and strength (1/3) 4^2/4
    # (docs/derivations.md, section 5).
    features[:2, 0, 0] = 1.0
    features[2, 0, 1] = 4.0
    bandit = Bandit([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    return Problem(bandit, LinearSoftmax(features), KL(3.0, np.full((3, 2), 1.0 / 2)))


def _network() -> Problem:
    """A network of two layers whose features are learned, on its way: eight prompts, read from two numbers and a bias."""
    rng = np.random.default_rng(16)
    inputs = np.concatenate([rng.normal(size=(8, 2)), np.ones((8, 1))], axis=1)
    policy = TwoLayerSoftmax(inputs, width=8, n_responses=4)
    bandit = Bandit(rng.uniform(0.05, 0.95, (8, 4)))
    return Problem(bandit, policy, theta=rng.normal(size=policy.dimension) / np.sqrt(2.0))


_ENTRIES: dict[str, _Entry] = {
    "two-arms": _Entry("two arms", ("gradient",), _two_arms),
    "uniform": _Entry("tabular, uniform", ("gradient",), _uniform),
    "tabular": _Entry("tabular", ("gradient",), _tabular),
    "linear": _Entry("linear features", ("gradient",), _linear),
    "graded": _Entry("three-valued reward", ("gradient",), _graded),
    "mixed": _Entry("mixed difficulty", ("gradient",), _mixed_difficulty),
    "sequence-tabular": _Entry("sequences, tabular", ("gradient", "sequence"), _sequence_tabular),
    "sequence-shared": _Entry("sequences, shared features", ("gradient", "sequence"), _sequence_shared),
    **{f"lm-{p}": _Entry(f"SmolLM2, {p}", ("gradient", "language model"), partial(_language_model, p)) for p in PROMPTS},
    "lm-answers": _Entry("SmolLM2, long answers", ("off policy", "sequence", "language model"), _long_answers),
    "uncorrelated-tabular": _Entry("tabular, Assumption 2 holds", ("assumption",), partial(_uncorrelated, False)),
    "uncorrelated-linear": _Entry("linear features, Assumption 2 holds", ("assumption",), partial(_uncorrelated, True)),
    "kl-tabular": _Entry("tabular, KL penalty", ("training",), _kl_tabular),
    "kl-linear": _Entry("linear features, KL penalty", ("training",), _kl_linear),
    "kl-sequence": _Entry("sequences, KL penalty", ("training", "sequence"), _kl_sequence),
    "conflict": _Entry("linear features, conflict", ("training",), _conflict),
    "single": _Entry("one prompt", ("training",), _single),
    "indifferent": _Entry("indifferent rewards, KL penalty", ("training",), _indifferent),
    "balanced": _Entry("linear features, Corollary 10's assumption holds", ("training", "assumption"), _balanced),
    "crowd": _Entry("tabular, 16 prompts, KL penalty", ("training",), partial(crowd, 16)),
    "two-speeds": _Entry("two speeds, KL penalty", ("training",), _two_speeds),
    **{f"chain-{k.replace(' ', '-')}": _Entry(f"chain, {k}", ("chain",), partial(f, CHAIN_TOKENS)) for k, f in KINDS.items()},
    "network": _Entry("network of two layers", ("learned features",), _network),
    "chain-network": _Entry("chain, network of two layers", ("chain", "learned features"), partial(learned_walk, CHAIN_TOKENS)),
}


def names(*tags: str) -> tuple[str, ...]:
    """Return the names of the problems that have all the tags; see `TAGS`.

    Raises
    ------
    ValueError
        If there is no such tag.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.gallery.names("training", "sequence")
    ('kl-sequence',)
    """
    for tag in tags:
        check_name("tags", tag, TAGS)
    return tuple(name for name, entry in _ENTRIES.items() if set(tags) <= set(entry.tags))


def problem(name: str) -> Problem:
    """Return a problem of the gallery by name.

    Raises
    ------
    ValueError
        If there is none of that name.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.gallery.problem("lm-few-shot").title
    'SmolLM2, few-shot'
    """
    check_name("name", name, _ENTRIES)
    entry = _ENTRIES[name]
    return replace(entry.make(), name=name, title=entry.title)


def describe() -> "pd.DataFrame":
    """Describe the gallery's problems in a table with one row per problem, by name.

    The columns are tags, prompts (M), responses (K), parameters (d), reward (expected at `Problem.theta`), and about.  The entry
    of responses is <NA> for a chain, which has too many to be listed.  The last column says in a sentence what the problem is.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> table = gt.gallery.describe()
    >>> table.loc["two-arms", "about"]
    'One prompt, two arms, the better one twice as likely as the worse; everything can be checked by hand.'
    >>> [int(n) for n in table.loc["linear", ["prompts", "responses", "parameters"]]]
    [12, 5, 5]
    """
    import pandas as pd  # slow to import, and not always wanted

    rows = []
    for name, entry in _ENTRIES.items():
        made = problem(name)
        moments = made.at(made.theta).moments
        maker = entry.make.func if isinstance(entry.make, partial) else entry.make
        rows.append(
            {
                "name": name,
                "tags": ", ".join(entry.tags),
                "prompts": made.policy.n_prompts,
                "responses": None if isinstance(made.policy, TokenChain) else made.policy.n_responses,
                "parameters": made.policy.dimension,
                "reward": float(moments.prompt_weights @ moments.value),
                # The sentence that the maker's docstring begins with.
                "about": " ".join((maker.__doc__ or entry.title).partition("\n\n")[0].split()),
            }
        )
    return pd.DataFrame(rows).set_index("name").astype({"responses": "Int64"})
