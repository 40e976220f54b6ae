"""Score moments by class: all that the law of a group's estimate needs of a prompt, wherever it comes from.

The estimate is (1/G) sum_i x_i.  Here x_i is the sum of response i's features, which depend on its class and the group's, times
vectors of the response.  Given the classes, the vectors are independent draws.  First and second moments therefore need only the
mean of the vectors and the mean of their inner products, by class (docs/derivations.md, section 4).  A kernel that reads only
rewards cannot distinguish more than reward values, so its classes are those.  Responses that are listed are averaged; those of a
chain are carried from token to token (`problem/chain_point.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import AGGREGATIONS, Estimator
from grpo_theory.estimation.kernel import RESPONSE_FIELDS
from grpo_theory.estimation.parts import advantage_estimation, no_clip, trajectory_ratio, value_variances
from grpo_theory.estimation.registry import NEGATIVE, POSITIVE, check_penalty, gains_of, gains_of_response
from grpo_theory.exact.multisets import (
    Classes,
    DistinctPrompts,
    Looked,
    NotEnumerableError,
    distinct_prompts,
    fields_of_rewards,
    looked_at,
)
from grpo_theory.problem import ChainPoint, Paths, Point, TokenChain
from grpo_theory.problem.chain_point import ScoreSums, TokenCredits, Walk, all_to_come, chances_to_come
from grpo_theory.validation import Array, Integers, as_numbers, check_finite, check_room, check_shape, typed

LARGEST_WEIGHT = 1e150
"""Weights of tokens are refused above this, because double precision does not hold their squares."""


@dataclass(frozen=True, eq=False)
class TokenWeights:
    """What the tokens of every response weigh, at M prompts.

    The group's estimate is (1/G) sum_i [A_i u_i + v_i], with u = sum_t gain_t c_t and v = sum_t drift_t c_t over the tokens'
    logit gradients c_t.

    Attributes
    ----------
    paths : Paths
    token_probabilities : ndarray, shape (M, D)
        The token probabilities of the current policy.
    gains : ndarray, shape (K, 2, T, M)
        Ratio, clip and aggregation, for positive advantages and for others; 0 beyond a response's end.
    drifts : ndarray, shape (K, T, M)
        The slope of a KL term in the loss, with its strength and aggregation, and credits of tokens; 0 if there is neither.
    errors : ndarray, shape (M, K, E, T)
        What independent errors of mean 0 and variance 1 weigh at the tokens.  They are drawn for each response: one for the
        estimated value before each token, or none.
    on_policy : bool
        Whether the current policy has drawn the responses.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> tree = gt.gallery.problem("sequence-shared")
    >>> point = tree.at(tree.theta)
    >>> weights = gt.exact.token_weights(point, point, gt.estimators()["rloo"])
    >>> weights.gains.shape, weights.by_token(np.array([0])).shape, weights.logit_gradients(np.array([0])).shape
    ((15, 2, 3, 6), (1, 1, 15, 3), (1, 1, 15, 21))
    """

    paths: Paths
    token_probabilities: Array
    gains: Array
    drifts: Array
    errors: Array
    on_policy: bool

    @cached_property
    def depends_on_sign(self) -> bool:
        """Whether positive and negative advantages have different gains."""
        return not np.array_equal(self.gains[:, POSITIVE], self.gains[:, NEGATIVE])

    @cached_property
    def drifting(self) -> bool:
        """Whether there is anything that advantages do not multiply."""
        return bool(self.drifts.any() or self.errors.any())

    @property
    def n_features(self) -> int:
        """The number F of tables that `logit_gradients` returns."""
        return 1 + self.depends_on_sign + self.drifting

    def by_token(self, prompts: Integers) -> Array:
        """Return what the tokens weigh that advantages multiply, and those of what is added to them, shape (S, F, K, T).

        These are u for positive advantages, u for others if that differs, and v if there is any, at S prompts.
        """
        signs = (POSITIVE, NEGATIVE) if self.depends_on_sign else (POSITIVE,)
        tables = [self.gains[:, sign][..., prompts] for sign in signs]
        weights = np.stack([*tables, self.drifts[..., prompts]] if self.drifting else tables)
        return np.moveaxis(weights, -1, 0)

    def logit_gradients(self, prompts: Integers) -> Array:
        """Return the sums of the tokens' logit gradients with the weights `by_token`, shape (S, F, K, D)."""
        on_edges = self.paths.spread(self.by_token(prompts))
        # sum_t w_t (e_edge - p_prefix) = E - P(E), E the weights added up on the edges (docs/derivations.md, section 15).
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
        gains = np.repeat(gains_of(estimator, paths), len(current.token_probabilities), axis=-1)
    else:
        log_ratios = current.token_log_probabilities - start.token_log_probabilities
        gains = gains_of(estimator, paths, log_ratios.T)
    if start is not behaviour and not estimator.mismatch.ratio.constant:
        check_support(start, behaviour)
        # The mismatch multiplies gains by a weight of its own ratio, pi_old over the sampler, which its bound clips.
        second = estimator.mismatch
        alone = replace(estimator, ratio=second.ratio, clip=second.bound, aggregation=AGGREGATIONS["sum"])
        log_ratios = start.token_log_probabilities - behaviour.token_log_probabilities
        gains *= gains_of(alone, paths, log_ratios.T)[:, :1]
    drawn = (current.probabilities > 0.0) | (behaviour.probabilities > 0.0)
    if (found := _forget_large(gains, drawn)) is not None:
        prompt, response = found
        largest = float(np.abs(gains[response, ..., prompt]).max())
        size = "infinite" if not np.isfinite(largest) else f"{largest:.3g}, whose square is beyond double precision"
        raise ValueError(
            f"behaviour must give every response of the current policy a probability above 0, and gives "
            f"{behaviour.probabilities[prompt, response]:.3g} to response {response} of prompt {prompt}. "
            f"The importance ratio is then {size}"
        )
    drifts = np.zeros((paths.n_responses, paths.horizon, len(current.token_probabilities)))
    if estimator.kl.place == "loss" and current.kl is not None:
        slopes = np.empty_like(current.log_ratios_to_reference)
        estimator.kl.fill(np.ascontiguousarray(current.log_ratios_to_reference), slopes)
        # v = -strength sum_t share_t slope_t c_t, slope 1, l or 1 - exp(-l) for k1, k2 or k3 (docs/derivations.md, section 16).
        by_token = paths.gather(-current.kl.strength * slopes) * estimator.aggregation.shares(paths.lengths)[:, None]
        drifts[:] = np.moveaxis(by_token, 0, -1)
    if (found := _forget_large(drifts, behaviour.probabilities > 0.0)) is not None:
        prompt, response = found
        raise ValueError(
            f"the KL term {estimator.kl.name!r} has a slope beyond double precision at response {response} of prompt {prompt}. "
            f"The response is sampled with probability {behaviour.probabilities[prompt, response]:.3g}, and has a token that the "
            "current policy all but excludes and the reference does not"
        )
    point = behaviour if estimator.credit.name == "none" else credited(behaviour, estimator)
    if estimator.credit.name != "none":
        # A credit does not depend on the group, as the slope of a KL term does not: it stands beside it in v, weighted as A is.
        own = np.moveaxis(listed_credits(point, estimator), 0, -1)
        drifts += np.where(own > 0.0, gains[:, POSITIVE], gains[:, NEGATIVE]) * own
    errors = value_errors(point, estimator, gains)
    return TokenWeights(paths, current.token_probabilities, gains, drifts, errors, current is behaviour)


def credited(behaviour: Point, estimator: Estimator) -> Point:
    """Return the point at which credits are taken: without the penalty where the loss has it, or it would count twice."""
    if behaviour.kl is None or estimator.kl.name == "k1 in reward":
        return behaviour
    if estimator.kl.place == "loss":
        return replace(behaviour, kl=None, log_reference=None)
    raise ValueError(
        f"estimator {estimator.name!r} must have its KL term as 'k1 in reward' or in the loss to have credits, "
        f"got {estimator.kl.name!r}"
    )


def listed_credits(point: Point, estimator: Estimator) -> Array:
    """Return the credits of the tokens of all listed responses, shape (M, K, T), at the point where they are taken."""
    paths = point.policy.paths
    credits = as_numbers("credit", estimator.credit.function(point, estimator.credit.settings))
    check_shape("credit", credits, (len(point.token_probabilities), *paths.edges.shape), "(M, K, T)")
    check_finite("credit", credits)
    return np.where(paths.taken, credits, 0.0)


def value_errors(point: Point, estimator: Estimator, gains: Array) -> Array:
    """Return what the errors of estimated values weigh at the tokens, `TokenWeights.errors`, for gains (K, 2, T, M)."""
    own, n_tokens = np.moveaxis(gains[:, POSITIVE], -1, 0), gains.shape[2]
    if not (continuations := estimator.credit.continuations):
        return np.empty((*own.shape[:2], 0, n_tokens))
    if not np.array_equal(gains[:, POSITIVE], gains[:, NEGATIVE]):
        raise NotEnumerableError(
            f"estimator {estimator.name!r} must have a clip that does not depend on the sign of a credit, because values that "
            "are means of continuations make the sign random: take 'two-sided', 'upper only' or 'none'"
        )
    # V_s + e_s, Var e_s = Var(Z | prefix)/k: e_s is in the credit of token s with -1, and in that of t < s with
    # lambda^(s-1-t) (1 - lambda), as two differences share an estimate (docs/derivations.md, section 39).
    ahead, decay = np.subtract.outer(np.arange(n_tokens), np.arange(n_tokens)), estimator.credit.settings[0]
    shares = np.where(ahead > 0, (1.0 - decay) * decay ** np.maximum(ahead - 1, 0), -1.0 * (ahead == 0))
    deviations = np.sqrt(value_variances(point) / continuations)
    return deviations[..., None] * own[:, :, None] * shares


def check_support(current: Point, behaviour: Point) -> None:
    """Raise if a token that the current policy draws, at a prefix that it reaches, has probability 0 under the sampling one."""
    paths = current.policy.paths
    missing = (behaviour.token_probabilities == 0.0) & (paths.collect(current.probabilities) > 0.0)
    _refuse_unsampled(missing.reshape(len(missing), -1, paths.vocabulary_size), "after prefix {1} of prompt {0}")


def _refuse_unsampled(missing: np.ndarray, place: str) -> None:
    """Raise if a token is missing: the last index is the token, and the others fill in the place."""
    if missing.any():
        *where, token = np.argwhere(missing)[0].tolist()
        raise ValueError(
            f"behaviour must give every token of the current policy a probability above 0, and gives 0 to token {token} "
            f"{place.format(*where)}. The importance ratio is then infinite"
        )


def _forget_large(table: Array, drawn: np.ndarray) -> tuple[int, int] | None:
    """Set what is too large in a table (K, ..., T, M) to 0 where nothing is drawn.  Return a place where it is drawn (M, K)."""
    # "not <=" finds NaN as well as what is too large.
    large = ~(np.abs(table) <= LARGEST_WEIGHT).all(axis=tuple(range(1, table.ndim - 1)))
    if (large & drawn.T).any():
        response, prompt = np.argwhere(large & drawn.T)[0].tolist()
        return prompt, response
    np.moveaxis(table, -1, 1)[large] = 0.0
    return None


_LARGEST_TABLES = 1 << 22
"""The most numbers in the tables of logit gradients, or of tokens, that are held at a time."""


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Moments, by class, of the F vectors of a response that features multiply, at S prompts that have R classes each.

    Attributes
    ----------
    classes : Classes
    looks : DistinctPrompts
        The ways in which the prompts look to the kernel.
    look : ndarray of int64, shape (S,)
        The number of each prompt's look.
    means : ndarray, shape (S, R, F, D)
        As logit gradients, given the class.
    products : ndarray, shape (S, R, F, F)
        The mean inner products of a response's vectors, given the class.
    matrices : callable
        ``matrices(coefficients)``, (S, R, F, F), sums coefficients times E[x_f x_g' | class], in logit gradients, over r, f
        and g: shape (S, D, D).
    by_sign, drifting : bool
        Whether the vectors of positive and negative advantages differ, and whether the last is what no advantage multiplies.
    """

    classes: Classes
    looks: DistinctPrompts
    look: Integers
    means: Array
    products: Array
    matrices: Callable[[Array], Array]
    by_sign: bool
    drifting: bool


class SharedScores(NamedTuple):
    """Prompts that have equally many classes: their score moments, and the moments of their groups' sums within classes.

    Attributes
    ----------
    scores : ScoreMoments
    within : ndarray, shape (S, R F, D)
        The classes' means side by side.
    mean : ndarray, shape (S, R F)
        E[S_rf].
    between : ndarray, shape (S, R F, R F)
        E[S_rf S_sg], less what is due to products of one response's own features.
    squares : ndarray, shape (S, R, F, F)
        E[sum over the members of class r of feature f times feature g].
    """

    scores: ScoreMoments
    within: Array
    mean: Array
    between: Array
    squares: Array


def scores_of(current: Point, sampler: Point, estimator: Estimator, old: Point | None = None) -> list[ScoreMoments]:
    """Return the score moments of an estimator, by what its kernel tells apart: by reward, if it reads only rewards.

    They are carried along the tokens of a chain, and averaged over responses that are listed.
    """
    if isinstance(current, ChainPoint) and isinstance(sampler, ChainPoint):
        if old is not None:
            raise ValueError("old must be left out for a TokenChain: laws of three policies are computed of trees and bandits")
        return prefix_sum_moments(current, sampler, estimator)
    weights, partition = token_weights(current, sampler, estimator, old), looked_at(sampler, estimator)
    return [listed_moments(looked, weights, current.token_products) for looked in partition]


def listed_moments(looked: Looked, weights: TokenWeights, products: Array) -> ScoreMoments:
    """Average over listed responses, whose tokens have weights, and scores with inner products (M, K, T, T)."""
    classes = looked[0]
    prompts, responses = classes.prompts, classes.responses
    n_prompts, n_classes, n_responses = responses.shape
    horizon, n_features, dimension = products.shape[-1], weights.n_features, weights.token_probabilities.shape[1]
    # On policy the mean score is 0, and may be taken off, because classes can have means that are far below their parts.
    taken = weights.gains[..., 0].transpose(0, 2, 1)[weights.paths.taken]
    level = weights.on_policy and not weights.drifting and (taken == taken[0, 0]).all()
    means = np.empty((n_prompts, n_classes, n_features, dimension))
    squares = np.empty((n_prompts, n_classes, n_features, n_features))
    step = max(1, _LARGEST_TABLES // (n_responses * horizon * max(horizon, n_classes * n_features)))
    for start in range(0, n_prompts, step):
        part = slice(start, start + step)
        tokens, inner = weights.by_token(prompts[part]), products[prompts[part]]
        for f in range(n_features):
            # <u_f, u_g> = w_f' B w_g, B the inner products of the scores of a response's tokens (docs/derivations.md, section 4).
            halfway = (tokens[:, f, :, None, :] @ inner)[:, :, 0]
            for g in range(n_features):
                by_response = np.einsum("skt,skt->sk", halfway, tokens[:, g])
                squares[part, :, f, g] = np.einsum("srk,sk->sr", responses[part], by_response)
        if weights.errors.size:
            # Errors are independent of all else, so that E||v + e||^2 = E||v||^2 + E||e||^2.
            errors = weights.errors[prompts[part]]
            by_response = np.einsum("sket,sktu,skeu->sk", errors, inner, errors, optimize=True)
            squares[part, :, -1, -1] += np.einsum("srk,sk->sr", responses[part], by_response)
        shares = (classes.leads if level else responses)[part]
        on_edges = weights.paths.add_up(shares[:, :, None, :, None] * tokens[:, None])
        means[part] = weights.paths.centre(on_edges, weights.token_probabilities[prompts[part], None, None])

    def matrices(coefficients: Array) -> Array:
        total = np.zeros((n_prompts, dimension, dimension))
        step = max(1, _LARGEST_TABLES // (n_features * n_responses * dimension))
        for start in range(0, n_prompts, step):  # a part at a time
            part = slice(start, start + step)
            tables = weights.logit_gradients(prompts[part])
            by_response = np.einsum("srfg,srk->sfgk", coefficients[part], responses[part])
            for f in range(n_features):
                for g in range(n_features):
                    total[part] += np.swapaxes(tables[:, f] * by_response[:, f, g, :, None], 1, 2) @ tables[:, g]
            for error in np.moveaxis(weights.errors[prompts[part]], 2, 0):
                table = weights.paths.centre(weights.paths.spread(error), weights.token_probabilities[prompts[part], None])
                total[part] += np.swapaxes(table * by_response[:, -1, -1, :, None], 1, 2) @ table
        return total

    return ScoreMoments(*looked, means, squares, matrices, weights.depends_on_sign, weights.drifting)


_UNREADABLE = {"squared_score_norms": "score norms", "lengths": "lengths", "log_probabilities": "probabilities"}
"""What a kernel may read of a response besides its reward."""


MOST_PAIRS = 1 << 20
"""Numbers that counts of pairs may take: with many prompts or tokens they are large, and slower than one estimator's sums."""


def prefix_sum_moments(current: ChainPoint, sampler: ChainPoint, estimator: Estimator) -> list[ScoreMoments]:
    """Return the score moments by reward."""
    chain, drawn = current.policy, sampler.state_probabilities
    read = [name for field, name in _UNREADABLE.items() if field in estimator.advantage.reads]
    if chain.lengths.size == 1 and "lengths" in read:
        read.remove("lengths")
    on_policy = current is sampler or estimator.ratio.constant
    own_ratios = on_policy or by_token(estimator)
    whole_ratio = estimator.ratio.function is trajectory_ratio and estimator.clip.function is no_clip
    reasons = {
        f"its advantages read {' and '.join(read)}, which a recursion over states does not know": bool(read),
        "it divides by the tokens of the whole group, and a recursion sees one response": bool(estimator.aggregation.pool),
        "it has a KL term in the loss, and a problem with a chain has no penalty": estimator.kl.place == "loss",
        "off policy its weights are neither a function of each token's own ratio nor the unclipped ratio of the whole response": (
            not own_ratios and not whole_ratio
        ),
    }
    if why := [reason for reason, holds in reasons.items() if holds]:
        raise NotEnumerableError(
            f"the law of estimator {estimator.name!r} cannot be carried from token to token, because {why[0]}: use "
            "simulate_gradients, or problem.listed() if there are at most 4,096 responses"
        )
    # What tokens weigh in first and in second moments, (S, V), and what multiplies their scores, (F, S, V): twice, if the sign of
    # the advantage matters.
    weights, squares, gains = drawn, drawn, np.ones((1, *drawn.shape))
    log_ratios = np.zeros(drawn.shape) if on_policy else token_log_ratios(current, sampler)
    if own_ratios:
        gains = gains_of_response(estimator, log_ratios.reshape(1, -1)).reshape(2, *drawn.shape)
        gains = gains[:1] if np.array_equal(gains[0], gains[1]) else gains
    else:
        # A ratio of the whole response has k = p0 (p/p0) = p in first and k = p0 (p/p0)^2 = p^2/p0 in second moments
        # (docs/derivations.md, section 15.1).
        weights, squares = current.state_probabilities, drawn * np.exp(2.0 * log_ratios)
    chances, shares = sampler.own_sums.mass, shares_by_length(estimator, chain)
    plain = squares is drawn and current.tangent.features is None
    # A share a(L) of a response of length L is a(L)^2 in second moments (docs/derivations.md, section 15.1).
    second: Callable = partial(current.score_matrices, squares, gains, shares**2)
    if estimator.credit.name != "none":
        walks = [current.walk(weights, shares), current.walk(squares, shares**2)]
        sums, second = credited_scores(current, token_credits(sampler, estimator), walks, gains)
    # Where how often pairs of tokens are drawn says all, many estimators and policies share one recursion.
    elif current is not sampler and plain and current.n_pairs <= MOST_PAIRS and (shares[chain.lengths] == 1.0).all():
        sums = current.sums_of_drawn(sampler, gains)
    else:
        sums = current.score_sums(weights, squares, gains, shares)
    if not (np.isfinite(sums.means).all() and np.isfinite(sums.products).all() and np.abs(sums.products).max() <= LARGEST_WEIGHT):
        raise ValueError(
            f"behaviour must be so near to theta that the importance ratios of estimator {estimator.name!r} have second moments "
            f"below {LARGEST_WEIGHT:g}. Over responses of up to {int(chain.lengths[-1])} tokens they have not"
        )

    def matrices(prompts: Integers, columns: Integers, chance: Array, coefficients: Array) -> Array:
        every = np.zeros((chain.n_prompts, current.bandit.values.size, *coefficients.shape[2:]))
        every[prompts[:, None], columns] = coefficients / chance[..., None, None]
        return second(every)[prompts]

    moments, number = [], (chances > 0.0).sum(axis=1)
    for n_classes in np.unique(number):
        prompts = np.flatnonzero(number == n_classes)
        columns = np.nonzero(chances[prompts] > 0.0)[1].reshape(-1, n_classes)
        rows = prompts[:, None], columns
        chance, fields = chances[rows], fields_of_rewards(current.bandit.values[columns])
        # Only where they are read: kernels that do not read them are then tried once, and not at each length anew.
        if "lengths" in estimator.reads:
            fields[RESPONSE_FIELDS.index("lengths")] = float(chain.lengths[0])
        classes = Classes(prompts, chance, fields)
        known = *sampler.moments.known_to_oracles, *estimator.remembered(chain.n_prompts)
        looked = distinct_prompts(classes, known, estimator.reads)
        # E[X_f | Z = z] = M_0/P(Z = z) and E[<X_f, X_g> | Z = z] = Q_0/P(Z = z) (docs/derivations.md, section 15.1).
        given = sums.means[rows] / chance[..., None, None], sums.products[rows] / chance[..., None, None]
        own = partial(matrices, prompts, columns, chance)
        moments.append(ScoreMoments(classes, *looked, *given, own, len(gains) > 1, estimator.credit.name != "none"))
    return moments


def token_credits(point: ChainPoint, estimator: Estimator) -> TokenCredits:
    """Return the credits of an estimator's tokens at the point of the policy that samples."""
    credit, shape = estimator.credit, (point.policy.horizon, *point.policy.transitions.shape)
    if credit.function is advantage_estimation:
        return point.generalised_advantages(credit.settings[0], credit.continuations or np.inf)
    steps = as_numbers("credit", credit.function(point, credit.settings))
    check_shape("credit", steps, shape, "(T, S, V) for a TokenChain: by tokens drawn, state and token")
    check_finite("credit", steps)
    return TokenCredits(steps, 0.0, np.empty(0), np.zeros(shape[:2]))


@np.errstate(over="ignore", invalid="ignore")
def credited_sums(walk: Walk, credits: TokenCredits, kinds: Integers, vectors: Array) -> tuple[Array, Array]:
    """Return sums over responses of X_f (S, R, F, W), and of <X_f, X_g> (S, R, F, F), by the state in which they begin.

    X_f adds up vectors (F, S, V, W) over the tokens.  Those of kind 1, not of kind 0 (F,), are multiplied by the token's credit.
    """
    (n_features, *_, width), (n_states, n_rewards), decay = vectors.shape, walk.law.shape, credits.decay
    check_room("credited scores", (2, *walk.nexts.shape, n_rewards, n_features, max(width, n_features)), "use simulate_gradients")
    mass, goes_on, k = chances_to_come(walk), walk.goes_on[..., None], walk.weights[..., None]
    inner, pairs = np.einsum("fsvi,gsvi->svfg", vectors, vectors), kinds[:, None] + kinds
    # Of N = e + l A, A the next token's credit and e the error of the value before it: sums of N and N^2, of X_f and N X_f.
    powers, mean = np.zeros((2, n_states, n_rewards)), np.zeros((2, n_states, n_rewards, n_features, width))
    product, decays = np.zeros((n_states, n_rewards, n_features, n_features)), np.reshape([1.0, decay], (2, 1, 1, 1, 1))
    for t in range(len(mass), 0, -1):
        # A token's credit is B - e with B = d + N', and e is independent of all else (docs/derivations.md, section 15.1).
        d, error, (n, nn) = credits.steps[t - 1][..., None], credits.variances[t - 1][:, None, None], powers[:, walk.nexts]
        m0 = k * all_to_come(walk, mass, t)
        m1, m2 = d * m0 + goes_on * n, d**2 * m0 + goes_on * (2.0 * d * n + nn)
        later = goes_on[..., None, None] * mean[:, walk.nexts]
        later[1] += d[..., None, None] * later[0]
        crossed = np.einsum("fsvi,fsvrgi->srfg", vectors, later[kinds])
        alone = np.einsum("fgsvr,svfg->srfg", np.stack([m0, m1, m2 + error * m0])[pairs], inner)
        product = alone + crossed + crossed.swapaxes(2, 3) + np.einsum("sv,svrfg->srfg", walk.goes_on, product[walk.nexts])
        weights = np.array([[m0, m1], [decay * m1, decay * m2 - (1.0 - decay) * error * m0]])[:, kinds]
        mean = decays * later.sum(axis=2) + np.einsum("jfsvr,fsvi->jsrfi", weights, vectors)
        powers = np.stack([decay * m1, decay**2 * m2 + (1.0 - decay) ** 2 * error * m0]).sum(axis=2)
    return mean[0], product


def credited_scores(current: ChainPoint, credits: TokenCredits, walks: list[Walk], gains: Array) -> tuple[ScoreSums, Callable]:
    """Return the sums of scores by reward, credits last, and what has their second moments as matrices (M, D, D).

    The walks are those of first and of second moments.
    """
    by_sign, shape, starts, n = len(gains) > 1, gains.shape[1:], current.policy.starts, gains[0].size
    if by_sign and (credits.decay or credits.variances.any()):
        raise NotEnumerableError("clip must not see the sign of credits that later tokens decide: use simulate_gradients")
    if by_sign:
        credits = credits._replace(steps=credits.steps * np.where(credits.steps > 0.0, *gains))
    gains = np.concatenate([gains, np.ones_like(gains[:1]) if by_sign else gains])
    kinds, edges = np.array([0] * (len(gains) - 1) + [1]), current.centred(np.eye(n))
    means, _ = credited_sums(walks[0], credits, kinds, gains[..., None] * edges.reshape(*shape, -1))
    _, products = credited_sums(walks[1], credits, kinds, gains[..., None] * current.tangent.vectors(edges).reshape(*shape, -1))

    def matrices(coefficients: Array) -> Array:
        # Each entry of each feature is a feature of its own.
        apart = (gains[:, None] * edges.T.reshape(-1, *shape)).reshape(-1, *shape, 1)
        _, own = credited_sums(walks[1], credits, np.repeat(kinds, n), apart)
        return np.einsum("mrfg,mrfdge->mde", coefficients, own[starts].reshape(*coefficients.shape[:3], n, -1, n))

    return ScoreSums(np.empty(0), means[starts], products[starts], np.empty(0)), matrices


def shares_by_length(estimator: Estimator, chain: TokenChain) -> Array:
    """Return what an estimator's aggregation makes of a response's tokens, by its length, shape (T + 1,); 1 of other lengths."""
    shares = np.ones(chain.horizon + 1)
    shares[chain.lengths] = estimator.aggregation.shares(chain.lengths)
    return shares


def token_log_ratios(current: ChainPoint, sampler: ChainPoint) -> Array:
    """Return the logs of the ratios of each token's probabilities at two points, shape (S, V): 0 where it is never sampled.

    Raises
    ------
    ValueError
        If a token that the current policy may draw, in a state that it reaches, is never sampled.
    """
    drawn = sampler.state_probabilities
    _refuse_unsampled((drawn == 0.0) & (current.state_probabilities > 0.0) & current.reached[:, None], "in state {}")
    return np.where(drawn > 0.0, current.state_log_probabilities - sampler.state_log_probabilities, 0.0)


_TRIED = np.linspace(-0.9, 0.7, 5)[:, None]
"""Logs of ratios, inside and outside of clips, of one response's tokens."""


def by_token(estimator: Estimator) -> bool:
    """Whether ratio and clip weigh each token by its own ratio: tried on a response of five tokens, and on each token alone."""
    together = gains_of_response(estimator, _TRIED)
    alone = np.concatenate([gains_of_response(estimator, one[None]) for one in _TRIED], axis=1)
    return bool(np.allclose(together, alone, rtol=1e-12, atol=0.0))
