"""Score moments by reward of a chain, carried from token to token: for every estimator whose weights are products over tokens.

The score of a token may be multiplied by what depends on the token, its state and the sign of the advantage alone. The whole
response may also have a weight that is a product over its tokens (the trajectory ratio) or depends on its length. The recursion
is in docs/derivations.md, section 15.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.parts import no_clip, trajectory_ratio
from grpo_theory.exact.classes import Classes
from grpo_theory.exact.law import NotEnumerableError
from grpo_theory.exact.score_moments import ScoreMoments
from grpo_theory.exact.weights import LARGEST_WEIGHT, gains_of_response
from grpo_theory.problem import ChainPoint, TokenChain

UNREADABLE = {"squared_score_norms": "score norms", "lengths": "lengths"}
"""What a kernel may read of a response besides its reward."""


MOST_PAIRS = 1 << 20
"""Numbers that counts of pairs may take: with many prompts or tokens they are large, and slower than one estimator's sums."""


class Tokens(NamedTuple):
    """What tokens weigh in first and in second moments, (S, V), and what multiplies their scores, (F, S, V)."""

    weights: Array
    squares: Array
    gains: Array


def check_carried(estimator: Estimator, one_length: bool) -> None:
    """Raise unless the law of an estimator can be carried from token to token: the message says which route is left."""
    read = [name for field, name in UNREADABLE.items() if field in estimator.advantage.reads]
    if one_length and "lengths" in read:
        read.remove("lengths")
    if read:
        why = f"its advantages read {' and '.join(read)}, which a recursion over states does not know"
    elif estimator.aggregation.pool:
        why = "it divides by the tokens of the whole group, and a recursion sees one response"
    elif estimator.kl.place == "loss":
        why = "it has a KL term in the loss, and a problem with a chain has no penalty"
    else:
        return
    raise NotEnumerableError(
        f"the law of estimator {estimator.name!r} cannot be carried from token to token, because {why}: use "
        "simulate_gradients, or problem.listed() if there are at most 4,096 responses"
    )


def carried_moments(current: ChainPoint, sampler: ChainPoint, estimator: Estimator) -> tuple[list[ScoreMoments], bool]:
    """Return the score moments by reward, and whether gains differ by the sign of the advantage."""
    one_length = current.chain.lengths.size == 1
    check_carried(estimator, one_length)
    tokens = _tokens(current, sampler, estimator)
    chain = current.chain
    shares = shares_by_length(estimator, chain)
    chances = sampler.own_sums.mass
    if _counts_pairs(current, sampler, tokens, shares):
        sums = current.sums_of_drawn(sampler, tokens.gains)
    else:
        sums = current.score_sums(tokens.weights, tokens.squares, tokens.gains, shares)
    if not (np.isfinite(sums.means).all() and np.isfinite(sums.products).all() and np.abs(sums.products).max() <= LARGEST_WEIGHT):
        raise ValueError(
            f"behaviour must be so near to theta that the importance ratios of estimator {estimator.name!r} have second moments "
            f"below {LARGEST_WEIGHT:g}. Over responses of up to {int(chain.lengths[-1])} tokens they have not"
        )
    moments = []
    number = (chances > 0.0).sum(axis=1)
    for n_classes in np.unique(number):
        prompts = np.flatnonzero(number == n_classes)
        rows = prompts[:, None], np.nonzero(chances[prompts] > 0.0)[1].reshape(-1, n_classes)
        chance, values = chances[rows], current.bandit.values[rows[1]]
        unread = np.full(values.shape, np.nan)
        # Only where they are read: kernels that do not read them are then tried once, and not at each length anew.
        lengths = np.full(values.shape, float(chain.lengths[0])) if "lengths" in estimator.reads else unread
        classes = Classes(prompts, chance, np.stack([values, unread, lengths]))
        means, products = sums.means[rows] / chance[..., None, None], sums.products[rows] / chance[..., None, None]
        forms = partial(_forms, current, tokens, shares**2, rows, chance)
        moments.append(ScoreMoments(classes, means, products, forms))
    return moments, len(tokens.gains) > 1


def _counts_pairs(current: ChainPoint, sampler: ChainPoint, tokens: Tokens, shares: Array) -> bool:
    """Whether how often pairs of tokens are drawn says all: many estimators and policies then share one recursion."""
    plain = tokens.weights is sampler.state_probabilities and tokens.squares is tokens.weights
    return (
        current is not sampler
        and plain
        and current.n_pairs <= MOST_PAIRS
        and current.tangent.features is None
        and bool((shares[current.chain.lengths] == 1.0).all())
    )


def shares_by_length(estimator: Estimator, chain: TokenChain) -> Array:
    """Return what an estimator's aggregation makes of a response's tokens, by its length, shape (T + 1,); 1 of other lengths."""
    shares = np.ones(chain.horizon + 1)
    shares[chain.lengths] = estimator.aggregation.shares(chain.lengths)
    return shares


def _forms(
    current: ChainPoint, tokens: Tokens, shares: Array, rows: tuple[Integers, Integers], chance: Array, coefficients: Array
) -> Array:
    """Return what `ScoreMoments.forms` does, of the prompts and rewards of some rows, which have chances."""
    every = np.zeros((current.chain.n_prompts, current.bandit.values.size, *coefficients.shape[2:]))
    every[rows] = coefficients / chance[..., None, None]
    return current.score_forms(tokens.squares, tokens.gains, shares, every)[rows[0][:, 0]]


def _tokens(current: ChainPoint, sampler: ChainPoint, estimator: Estimator) -> Tokens:
    """Return what tokens weigh for an estimator whose responses another point draws."""
    drawn = sampler.state_probabilities
    if current is sampler or estimator.ratio.constant:
        return Tokens(drawn, drawn, _gains(estimator, np.zeros(drawn.shape)))
    log_ratios = token_log_ratios(current, sampler)
    if by_token(estimator):
        return Tokens(drawn, drawn, _gains(estimator, log_ratios))
    if estimator.ratio.function is trajectory_ratio and estimator.clip.function is no_clip:
        return Tokens(current.state_probabilities, drawn * np.exp(2.0 * log_ratios), np.ones((1, *drawn.shape)))
    raise NotEnumerableError(
        f"the law of estimator {estimator.name!r} off policy cannot be carried from token to token. Its weights are "
        "neither a function of each token's own ratio nor the unclipped ratio of the whole response. Use simulate_gradients, or "
        "problem.listed() if there are at most 4,096 responses"
    )


def token_log_ratios(current: ChainPoint, sampler: ChainPoint) -> Array:
    """Return the logs of the ratios of each token's probabilities at two points, shape (S, V): 0 where it is never sampled.

    Raises
    ------
    ValueError
        If a token that the current policy may draw, in a state that it reaches, is never sampled.
    """
    drawn = sampler.state_probabilities
    missing = (drawn == 0.0) & (current.state_probabilities > 0.0) & current.reached[:, None]
    if missing.any():
        state, token = (int(one) for one in np.argwhere(missing)[0])
        raise ValueError(
            f"behaviour must give every token of the current policy a probability above 0, and gives 0 to token {token} in state "
            f"{state}. The importance ratio is then infinite"
        )
    return np.where(drawn > 0.0, current.state_log_probabilities - sampler.state_log_probabilities, 0.0)


_TRIED = np.linspace(-0.9, 0.7, 5)[:, None]
"""Logs of ratios, inside and outside of clips, of one response's tokens."""


def by_token(estimator: Estimator) -> bool:
    """Whether ratio and clip weigh each token by its own ratio: tried on a response of five tokens, and on each token alone."""
    together = gains_of_response(estimator, _TRIED)
    alone = np.concatenate([gains_of_response(estimator, one[None]) for one in _TRIED], axis=1)
    return bool(np.allclose(together, alone, rtol=1e-12, atol=0.0))


def _gains(estimator: Estimator, log_ratios: Array) -> Array:
    """Return what multiplies the scores of tokens with these ratios (S, V): twice, if the sign of the advantage matters."""
    row = np.ascontiguousarray(log_ratios.reshape(1, -1))
    both = gains_of_response(estimator, row).reshape(2, *log_ratios.shape)
    return both[:1] if np.array_equal(both[0], both[1]) else both
