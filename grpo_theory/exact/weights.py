"""The tables u and v of an estimator for a pair (theta, behaviour): what advantages multiply, and what is added to them."""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numba import types

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import F1, F2, F4, READONLY_I1, READONLY_I2, FirstClassType, allocating_stage, compile_function
from grpo_theory.estimation import AGGREGATIONS, Estimator
from grpo_theory.estimation.parts import CLIP_SIGNATURE as CLIP
from grpo_theory.estimation.parts import RATIO_SIGNATURE as RATIO
from grpo_theory.problem import KL, Paths, Point
from grpo_theory.validation import typed

POSITIVE, NEGATIVE = 0, 1
"""Indices of the signs of an advantage in a table of gains."""
LARGEST_WEIGHT = 1e150
"""Weights of tokens are refused above this, because double precision does not hold their squares."""


@dataclass(frozen=True, eq=False)
class TokenWeights:
    """What the tokens of every response weigh, at M prompts.

    The group's estimate is (1/G) sum_i [A_i u_i + v_i], with u = sum_t gain_t c_t and v = sum_t drift_t c_t over the tokens'
    covectors c_t.

    Attributes
    ----------
    paths : Paths
    token_probabilities : ndarray, shape (M, D)
        The token probabilities of the current policy.
    gains : ndarray, shape (K, 2, T, M)
        Ratio, clip and aggregation, for positive advantages and for others; 0 beyond a response's end.
    drifts : ndarray, shape (K, T, M)
        The slope of a KL term in the loss, with its strength and aggregation; 0 if there is none.
    on_policy : bool
        Whether the current policy has drawn the responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> tree = gt.gallery.problem("sequence-shared")
    >>> point = tree.at(tree.theta)
    >>> weights = gt.exact.token_weights(point, point, gt.estimators()["rloo"])
    >>> weights.gains.shape, weights.by_token(np.array([0])).shape, weights.covectors(np.array([0])).shape
    ((15, 2, 3, 6), (1, 1, 15, 3), (1, 1, 15, 21))
    """

    paths: Paths
    token_probabilities: Array
    gains: Array
    drifts: Array
    on_policy: bool

    @cached_property
    def are_level(self) -> bool:
        """Whether the current policy draws, and all tokens weigh the same: the mean of what they add up to is then 0."""
        if not self.on_policy or self.drifting:
            return False
        taken = self.gains[..., 0].transpose(0, 2, 1)[self.paths.taken]
        return bool((taken == taken[0, 0]).all())

    @cached_property
    def depends_on_sign(self) -> bool:
        """Whether positive and negative advantages have different gains."""
        return not np.array_equal(self.gains[:, POSITIVE], self.gains[:, NEGATIVE])

    @cached_property
    def drifting(self) -> bool:
        """Whether there is anything that advantages do not multiply."""
        return bool(self.drifts.any())

    @property
    def n_features(self) -> int:
        """The number F of tables that `covectors` returns."""
        return 1 + self.depends_on_sign + self.drifting

    def by_token(self, prompts: Integers) -> Array:
        """Return what the tokens weigh that advantages multiply, and those of what is added to them, shape (S, F, K, T).

        These are u for positive advantages, u for others if that differs, and v if there is any, at S prompts.
        """
        signs = (POSITIVE, NEGATIVE) if self.depends_on_sign else (POSITIVE,)
        tables = [self.gains[:, sign][..., prompts] for sign in signs]
        weights = np.stack([*tables, self.drifts[..., prompts]] if self.drifting else tables)
        return np.moveaxis(weights, -1, 0)

    def covectors(self, prompts: Integers) -> Array:
        """Return the sums of the tokens' covectors with the weights `by_token`, shape (S, F, K, D)."""
        on_edges = self.paths.spread(self.by_token(prompts))
        return self.paths.centre(on_edges, self.token_probabilities[prompts, None, None])


@typed
def token_weights(current: Point, behaviour: Point, estimator: Estimator, old: Point | None = None) -> TokenWeights:
    """Return the weights of an estimator's tokens at theta = current, of responses drawn at another point.

    The importance ratio is of the current policy over the one at `old`, the start of the update.  If `old` is None, it is over
    the policy that sampled, and there is no mismatch.

    Raises
    ------
    ValueError
        If the estimator has a weight above 1e150 for a response that can be drawn, an infinite importance ratio say.  Also if it
        has a KL term in the loss and the problem has no penalty.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("sequence-shared")
    >>> point = problem.at(problem.theta)
    >>> weights = gt.exact.token_weights(point, point, gt.estimators()["rloo"])
    >>> sorted(set(weights.gains.ravel().tolist()))  # every token weighs 1 on policy, and 0 beyond a response's end
    [0.0, 1.0]
    """
    check_penalty(current.kl, estimator)
    start = behaviour if old is None else old
    if not estimator.ratio.constant:
        check_support(current, start)
    paths = current.policy.paths
    if current is start:
        gains = gains_on_policy(estimator, paths, len(current.token_probabilities))
    else:
        log_ratios = current.token_log_probabilities - start.token_log_probabilities
        gains = gains_of(estimator, paths, log_ratios.T)
    if start is not behaviour and not estimator.mismatch.ratio.constant:
        check_support(start, behaviour)
        gains *= mismatch_of(estimator, paths, (start.token_log_probabilities - behaviour.token_log_probabilities).T)
    _forget_undrawn(gains, current, behaviour)
    drifts = _drifts(current, estimator)
    _forget_unsampled(drifts, behaviour, estimator)
    return TokenWeights(paths, current.token_probabilities, gains, drifts, current is behaviour)


def gains_of(estimator: Estimator, paths: Paths, log_ratios: Array) -> Array:
    """Return the gains (K, 2, T, N) for N pairs of policies, given the logs of pi/pi_0 on the edges (D, N)."""
    gains = np.zeros((paths.n_responses, 2, paths.horizon, log_ratios.shape[1]))
    shares = estimator.aggregation.shares(paths.lengths)
    parts = (estimator.ratio.fill.value, estimator.clip.fill.value)
    compiled_fill_gains()(
        *parts, np.ascontiguousarray(log_ratios), paths.edges, paths.lengths, shares, estimator.clip.widths, gains
    )
    return gains


def mismatch_of(estimator: Estimator, paths: Paths, log_ratios: Array) -> Array:
    """Return what the mismatch multiplies gains by (K, 1, T, N), given the logs of pi_old over the sampler on edges (D, N)."""
    second = estimator.mismatch
    alone = replace(estimator, ratio=second.ratio, clip=second.bound, aggregation=AGGREGATIONS["sum"])
    return gains_of(alone, paths, log_ratios)[:, :1]


def gains_on_policy(estimator: Estimator, paths: Paths, n_pairs: int) -> Array:
    """Return the gains (K, 2, T, N) for N pairs of a policy and itself.

    Responses of one length have the same gains up to their shares, so that nothing need be compiled.
    """
    shares = estimator.aggregation.shares(paths.lengths)
    gains = np.zeros((paths.n_responses, 2, paths.horizon, n_pairs))
    for length in np.unique(paths.lengths).tolist():
        alike = paths.lengths == length
        for sign, weights in enumerate(gains_of_response(estimator, np.zeros((length, 1)))):
            gains[alike, sign, :length] = shares[alike, None, None] * weights
    return gains


def gains_of_response(estimator: Estimator, log_ratios: Array) -> Array:
    """Return what ratio and clip make of one response's tokens, of either sign of the advantage, shape (2, T, N).

    The logs of the ratios, (T, N), are those of N pairs of policies.  Nothing is compiled.
    """
    ratios, weights = np.zeros(log_ratios.shape), np.zeros((2, *log_ratios.shape))
    with np.errstate(all="ignore"):
        estimator.ratio.fill.function(log_ratios, len(log_ratios), ratios)
        for sign in range(2):
            estimator.clip.fill.function(ratios, len(ratios), sign == POSITIVE, estimator.clip.widths, weights[sign])
    return weights


def check_penalty(kl: KL | None, estimator: Estimator) -> None:
    """Raise if the estimator has a KL term in the loss and the problem has no penalty."""
    if kl is None and estimator.kl.place == "loss":
        raise ValueError(f"problem must have a kl for the KL term {estimator.kl.name!r} of estimator {estimator.name!r}")


def check_support(current: Point, behaviour: Point) -> None:
    """Raise if a token that the current policy draws, at a prefix that it reaches, has probability 0 under the sampling one."""
    drawn = current.policy.paths.collect(current.probabilities) > 0.0
    missing = (behaviour.token_probabilities == 0.0) & drawn
    if missing.any():
        prompt, edge = (int(i) for i in np.argwhere(missing)[0])
        prefix, token = divmod(edge, current.policy.paths.vocabulary_size)
        raise ValueError(
            f"behaviour must give every token of the current policy a probability above 0, and gives 0 to token {token} after "
            f"prefix {prefix} of prompt {prompt}. The importance ratio is then infinite"
        )


def _forget_undrawn(gains: Array, current: Point, behaviour: Point) -> None:
    """Set gains (K, 2, T, M) that are too large to 0 for responses that neither policy draws; raise if there are others."""
    # "not <=" finds NaN as well as what is too large.
    large = ~(np.abs(gains) <= LARGEST_WEIGHT).all(axis=(1, 2))
    drawn = large & ((current.probabilities > 0.0) | (behaviour.probabilities > 0.0)).T
    if drawn.any():
        response, prompt = (int(i) for i in np.argwhere(drawn)[0])
        largest = float(np.abs(gains[response, ..., prompt]).max())
        size = "infinite" if not np.isfinite(largest) else f"{largest:.3g}, whose square is beyond double precision"
        raise ValueError(
            f"behaviour must give every response of the current policy a probability above 0, and gives "
            f"{behaviour.probabilities[prompt, response]:.3g} to response {response} of prompt {prompt}. "
            f"The importance ratio is then {size}"
        )
    np.moveaxis(gains, -1, 1)[large] = 0.0


def _forget_unsampled(drifts: Array, behaviour: Point, estimator: Estimator) -> None:
    """Set drifts (K, T, M) that are too large to 0 for responses that are never sampled; raise if there are others."""
    large = ~(np.abs(drifts) <= LARGEST_WEIGHT).all(axis=1)
    sampled = large & (behaviour.probabilities > 0.0).T
    if sampled.any():
        response, prompt = (int(i) for i in np.argwhere(sampled)[0])
        raise ValueError(
            f"the KL term {estimator.kl.name!r} has a slope beyond double precision at response {response} of prompt {prompt}. "
            f"The response is sampled with probability {behaviour.probabilities[prompt, response]:.3g}, and has a token that the "
            "current policy all but excludes and the reference does not"
        )
    np.moveaxis(drifts, -1, 1)[large] = 0.0


def _drifts(current: Point, estimator: Estimator) -> Array:
    paths = current.policy.paths
    drifts = np.zeros((paths.n_responses, paths.horizon, len(current.token_probabilities)))
    if estimator.kl.place == "loss" and current.kl is not None:
        slopes = np.empty_like(current.log_ratios_to_reference)
        estimator.kl.fill(np.ascontiguousarray(current.log_ratios_to_reference), slopes)
        shares = estimator.aggregation.shares(paths.lengths)
        by_token = paths.gather(-current.kl.strength * slopes) * shares[:, None]
        drifts[:] = np.moveaxis(by_token, 0, -1)
    return drifts


@allocating_stage
def fill_gains(fill_ratios, fill_weights, log_ratios, edges, lengths, shares, widths, gains):
    """Fill gains (K, 2, T, N) from the logs of pi/pi_0 on the edges (D, N), for N pairs of policies side by side."""
    n_responses, horizon = edges.shape
    n_pairs = log_ratios.shape[1]
    along = np.empty((horizon, n_pairs))
    ratios = np.empty((horizon, n_pairs))
    for k in range(n_responses):
        length = lengths[k]
        for t in range(length):
            for i in range(n_pairs):
                along[t, i] = log_ratios[edges[k, t], i]
        fill_ratios(along, length, ratios)
        for sign in range(2):
            fill_weights(ratios, length, sign == 0, widths, gains[k, sign])
            for t in range(length):
                for i in range(n_pairs):
                    gains[k, sign, t, i] *= shares[k]


@cache
def compiled_fill_gains() -> Any:
    """Compile `fill_gains` for use by itself, or read it from the cache."""
    parts = FirstClassType(RATIO), FirstClassType(CLIP)
    return compile_function(fill_gains, types.void(*parts, F2, READONLY_I2, READONLY_I1, F1, F1, F4))
