"""Chains that matter: kinds of task at any length, each with a dial for how often it succeeds.

They differ in how credit is spread over the tokens. It is spread over all of them (`copy`, `goal_walk`), over those before the
response stops (`think_until_sure`), or over the last few (`bigram_text`).
"""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.problem.chain import TokenChain
from grpo_theory.problem.problem import Problem
from grpo_theory.problem.state_rewards import StateRewards
from grpo_theory.problem.two_layer import TwoLayerSoftmax
from grpo_theory.validation import as_count, as_fraction

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
    """
    horizon = as_count("horizon", horizon)
    digits, given = np.arange(DIGITS), np.repeat(np.arange(DIGITS), DIGITS)
    now = np.tile(digits, DIGITS)
    moves = (0, 1, DIGITS - 1)
    transitions = np.stack([given * DIGITS + (now + move) % DIGITS for move in moves], axis=1)
    keeps = np.zeros(transitions.shape)
    keeps[:, 0] = 1.0
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
    """
    ahead = np.zeros((STEPS + 1, 3))
    ahead[:, 2] = 1.0
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
    """
    horizon = as_count("horizon", horizon)
    levels = np.arange(2 * EVIDENCE + 1)
    up, down = np.minimum(levels + 1, levels[-1]), np.maximum(levels - 1, 0)
    gains, base = np.zeros((levels.size, 3)), np.zeros((levels.size, 3))
    gains[:, 1] = 1.0
    base[:, 0] = -np.log(max(horizon, 2) / 6.0)
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
    """
    horizon = as_count("horizon", horizon)
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
    rewards = StateRewards(right)
    base = base + SPREAD * np.random.default_rng(SEED).standard_normal(base.shape)
    problem = Problem(rewards, chain)

    def above(dial: float) -> float:
        value = problem.at((base + dial * direction).ravel()).value
        return float(problem.bandit.prompt_weights @ value) - success

    ends = above(-DIAL), above(DIAL)
    if min(ends) > 0.0 or max(ends) < 0.0:
        low, high = sorted(success + end for end in ends)
        raise ValueError(f"success must be a rate that this chain can have, {low:.3g} to {high:.3g}, got {success:g}")
    dial = brentq(above, -DIAL, DIAL, xtol=1e-12)
    return Problem(rewards, chain, theta=(base + dial * direction).ravel())


KINDS = {"copy": copy, "goal walk": goal_walk, "think until sure": think_until_sure, "bigram text": bigram_text}
"""The kinds of task by name."""
