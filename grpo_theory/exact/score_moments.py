"""Score moments by class: all that the law of a group's estimate needs of a prompt, wherever it comes from.

The estimate is (1/G) sum_i x_i.  Here x_i is the sum of response i's features, which depend on its class and the group's, times
vectors of the response.  Given the classes, the vectors are independent draws.  First and second moments therefore need only the
mean of the vectors and the mean of their inner products, by class (docs/derivations.md, section 4).  A kernel that reads only
rewards cannot distinguish more than reward values, so its classes are those.  Responses that are listed are averaged; those of a
chain are carried (`problem/recursion.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from grpo_theory.estimation import AGGREGATIONS, Estimator
from grpo_theory.estimation.kernel import RESPONSE_FIELDS
from grpo_theory.estimation.parts import no_clip, trajectory_ratio
from grpo_theory.exact.multisets import Classes, ListedClasses, fields_of_rewards
from grpo_theory.jit import compiled
from grpo_theory.problem import KL, ChainPoint, LogitMap, Paths, Point, TokenChain
from grpo_theory.validation import Array, Integers, as_numbers, check_finite, check_room, check_shape, typed

POSITIVE, NEGATIVE = 0, 1
"""Indices of the signs of an advantage in a table of gains."""
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
        gains = gains_on_policy(estimator, paths, len(current.token_probabilities))
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
    if estimator.credit.name != "none":
        credits = as_numbers("credit", estimator.credit.function(behaviour, estimator.credit.settings))
        check_shape("credit", credits, (len(current.token_probabilities), *paths.edges.shape), "(M, K, T)")
        check_finite("credit", credits)
        # A credit does not depend on the group, as the slope of a KL term does not: it stands beside it in v, weighted as A is.
        own = np.moveaxis(np.where(paths.taken, credits, 0.0), 0, -1)
        drifts += np.where(own > 0.0, gains[:, POSITIVE], gains[:, NEGATIVE]) * own
    return TokenWeights(paths, current.token_probabilities, gains, drifts, current is behaviour)


def gains_of(estimator: Estimator, paths: Paths, log_ratios: Array) -> Array:
    """Return the gains (K, 2, T, N) for N pairs of policies, given the logs of pi/pi_0 on the edges (D, N).

    Ratios and clips are functions of one response's tokens, for many side by side: here for all responses of a length.
    """
    gains = np.zeros((paths.n_responses, 2, paths.horizon, log_ratios.shape[1]))
    shares = estimator.aggregation.shares(paths.lengths)
    for length in np.unique(paths.lengths).tolist():
        alike = np.flatnonzero(paths.lengths == length)
        along = np.ascontiguousarray(log_ratios[paths.edges[alike, :length].T]).reshape(length, -1)
        ratios, weights = np.empty_like(along), np.empty_like(along)
        compiled(estimator.ratio.function)(along, length, ratios)
        for sign in range(2):
            compiled(estimator.clip.function)(ratios, length, sign == POSITIVE, estimator.clip.widths, weights)
            # w_t = share_t clip(r_t, sign A) (docs/derivations.md, section 16).
            own = weights.reshape(length, alike.size, -1) * shares[alike, None]
            gains[alike, sign, :length] = own.swapaxes(0, 1)
    return gains


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
        estimator.ratio.function(log_ratios, len(log_ratios), ratios)
        for sign in range(2):
            estimator.clip.function(ratios, len(ratios), sign == POSITIVE, estimator.clip.widths, weights[sign])
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


class NotEnumerableError(ValueError):
    """Raised when an estimator's exact moments cannot be enumerated; `gt.simulate_gradients` still works.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("sequence-shared"), {"batch_size": 8, "group_size": 4}
    >>> try:
    ...     gt.gradient_mse(problem, problem.theta, "dapo", **sizes)
    ... except gt.NotEnumerableError:
    ...     found = gt.simulate_gradients(problem, problem.theta, "dapo", **sizes, replications=256, rng=0)
    >>> found.mse.shape
    (1,)
    """


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Moments, by class, of the F vectors of a response that features multiply, at S prompts that have R classes each.

    Attributes
    ----------
    classes : Classes
    means : ndarray, shape (S, R, F, D)
        As logit gradients, given the class.
    products : ndarray, shape (S, R, F, F)
        The mean inner products of a response's vectors, given the class.
    matrices : callable
        ``matrices(coefficients)``, (S, R, F, F), sums coefficients times E[x_f x_g' | class], in logit gradients, over r, f
        and g: shape (S, D, D).
    """

    classes: Classes
    means: Array
    products: Array
    matrices: Callable[[Array], Array]


class SharedScores(NamedTuple):
    """Prompts that have equally many classes: their score moments, and the moments of their groups' sums within classes.

    Attributes
    ----------
    scores : ScoreMoments
    mean : ndarray, shape (S, R, F)
        E[S_rf].
    product : ndarray, shape (S, R, F, R, F)
        E[S_rf S_sg].
    squares : ndarray, shape (S, R, F, F)
        E[sum over the members of class r of feature f times feature g].
    """

    scores: ScoreMoments
    mean: Array
    product: Array
    squares: Array

    def between(self) -> Array:
        """Return E[S_rf S_sg] less what is due to products of one response's own features, shape (S, R F, R F)."""
        product = self.product.copy()
        for r in range(product.shape[1]):
            # The coefficient of m_rf m_sg' is E[S_rf S_sg] - 1{r = s} E[Q_rfg] (docs/derivations.md, section 4).
            product[:, r, :, r] -= self.squares[:, r]
        n_features = product.shape[1] * product.shape[2]
        return product.reshape(-1, n_features, n_features)

    def within(self) -> Array:
        """Return the classes' means side by side, shape (S, R F, D)."""
        means = self.scores.means
        return means.reshape(len(means), -1, means.shape[-1])


def means_and_powers(shares: list[SharedScores], logit_map: LogitMap) -> tuple[Array, Array]:
    """Return E[sum_i x_i] as logit gradients (M, D), and E||sum_i x_i||^2, shape (M,)."""
    means, powers = np.zeros((logit_map.n_prompts, logit_map.n_logits)), np.zeros(logit_map.n_prompts)
    for share in shares:
        prompts, within = share.scores.classes.prompts, share.within()
        # E[sum_i x_i] = sum_rf E[S_rf] m_rf (docs/derivations.md, section 4).
        means[prompts] = np.einsum("sr,srd->sd", share.mean.reshape(len(prompts), -1), within)
        # The form sum_ab P_ab <w_a, w_b> is a sum of eigenvalues times squared lengths.
        values, vectors = np.linalg.eigh(share.between())
        turned = np.zeros((logit_map.n_prompts, *within.shape[1:]))
        turned[prompts] = np.swapaxes(vectors, 1, 2) @ within
        # E||sum_i x_i||^2 = sum_rfg E[Q_rfg] E[<u_f, u_g> | r] + sum_ab P_ab <w_a, w_b> (docs/derivations.md, section 4).
        own = np.einsum("srfg,srfg->s", share.squares, share.scores.products)
        powers[prompts] = own + (values * logit_map.squared_norms(turned)[prompts]).sum(axis=1)
    return means, powers


def second_moments(shares: list[SharedScores], logit_map: LogitMap) -> Array:
    """Return E[sum_ij x_i x_j'] as matrices in the logits, shape (M, D, D)."""
    n_prompts, dimension = logit_map.n_prompts, logit_map.n_logits
    check_room("the second moments of each prompt", (n_prompts, dimension, dimension), "gradient_mse and .trace do without")
    matrices = np.empty((n_prompts, dimension, dimension))
    for share in shares:
        within = share.within()
        # E[(sum_i x_i)(sum_i x_i)'] = sum_rfg E[Q_rfg] E[u_f u_g' | r] + sum_ab P_ab m_a m_b' (docs/derivations.md, section 4).
        between = np.swapaxes(within, 1, 2) @ share.between() @ within
        matrices[share.scores.classes.prompts] = share.scores.matrices(share.squares) + between
    return matrices


def listed_moments(classes: ListedClasses, weights: TokenWeights, products: Array) -> ScoreMoments:
    """Average over listed responses, whose tokens have weights, and scores with inner products (M, K, T, T)."""
    prompts, responses = classes.prompts, classes.responses
    n_prompts, n_classes, n_responses = responses.shape
    horizon, n_features = products.shape[-1], weights.n_features
    means = np.empty((n_prompts, n_classes, n_features, weights.token_probabilities.shape[1]))
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
        # On policy the mean score is 0, and may be taken off, because classes can have means that are far below their parts.
        shares = (classes.leads if weights.are_level else responses)[part]
        on_edges = weights.paths.add_up(shares[:, :, None, :, None] * tokens[:, None])
        means[part] = weights.paths.centre(on_edges, weights.token_probabilities[prompts[part], None, None])
    return ScoreMoments(classes, means, squares, lambda coefficients: _listed_matrices(classes, weights, coefficients))


def _listed_matrices(classes: ListedClasses, weights: TokenWeights, coefficients: Array) -> Array:
    """Return the sum of the responses' second moments with coefficients by class, shape (S, D, D), a part at a time."""
    n_prompts, _, n_responses = classes.responses.shape
    dimension = weights.token_probabilities.shape[1]
    matrices = np.zeros((n_prompts, dimension, dimension))
    step = max(1, _LARGEST_TABLES // (weights.n_features * n_responses * dimension))
    for start in range(0, n_prompts, step):
        part = slice(start, start + step)
        tables = weights.logit_gradients(classes.prompts[part])
        by_response = np.einsum("srfg,srk->sfgk", coefficients[part], classes.responses[part])
        for f in range(weights.n_features):
            for g in range(weights.n_features):
                matrices[part] += np.swapaxes(tables[:, f] * by_response[:, f, g, :, None], 1, 2) @ tables[:, g]
    return matrices


_UNREADABLE = {"squared_score_norms": "score norms", "lengths": "lengths", "log_probabilities": "probabilities"}
"""What a kernel may read of a response besides its reward."""


MOST_PAIRS = 1 << 20
"""Numbers that counts of pairs may take: with many prompts or tokens they are large, and slower than one estimator's sums."""


class TokenTables(NamedTuple):
    """What tokens weigh in first and in second moments, (S, V), and what multiplies their scores, (F, S, V)."""

    weights: Array
    squares: Array
    gains: Array


def _check_summable(estimator: Estimator, one_length: bool) -> None:
    """Raise unless the law of an estimator can be carried from token to token: the message says which route is left."""
    read = [name for field, name in _UNREADABLE.items() if field in estimator.advantage.reads]
    if one_length and "lengths" in read:
        read.remove("lengths")
    if read:
        why = f"its advantages read {' and '.join(read)}, which a recursion over states does not know"
    elif estimator.aggregation.pool:
        why = "it divides by the tokens of the whole group, and a recursion sees one response"
    elif estimator.credit.name != "none":
        why = "its tokens have credits of their own, which are tables over listed responses"
    elif estimator.kl.place == "loss":
        why = "it has a KL term in the loss, and a problem with a chain has no penalty"
    else:
        return
    raise NotEnumerableError(
        f"the law of estimator {estimator.name!r} cannot be carried from token to token, because {why}: use "
        "simulate_gradients, or problem.listed() if there are at most 4,096 responses"
    )


def prefix_sum_moments(current: ChainPoint, sampler: ChainPoint, estimator: Estimator) -> tuple[list[ScoreMoments], bool]:
    """Return the score moments by reward, and whether gains differ by the sign of the advantage."""
    chain = current.chain
    _check_summable(estimator, chain.lengths.size == 1)
    tokens = _token_tables(current, sampler, estimator)
    chances, shares = sampler.own_sums.mass, shares_by_length(estimator, chain)
    plain = tokens.squares is tokens.weights is sampler.state_probabilities and current.tangent.features is None
    # Where how often pairs of tokens are drawn says all, many estimators and policies share one recursion.
    if current is not sampler and plain and current.n_pairs <= MOST_PAIRS and (shares[chain.lengths] == 1.0).all():
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
        fields = fields_of_rewards(values)
        # Only where they are read: kernels that do not read them are then tried once, and not at each length anew.
        if "lengths" in estimator.reads:
            fields[RESPONSE_FIELDS.index("lengths")] = float(chain.lengths[0])
        classes = Classes(prompts, chance, fields)
        # E[X_f | Z = z] = M_0/P(Z = z) and E[<X_f, X_g> | Z = z] = Q_0/P(Z = z) (docs/derivations.md, section 15.1).
        means, products = sums.means[rows] / chance[..., None, None], sums.products[rows] / chance[..., None, None]
        # A share a(L) of a response of length L is a(L)^2 in second moments (docs/derivations.md, section 15.1).
        matrices = partial(_matrices_on_chain, current, tokens, shares**2, rows, chance)
        moments.append(ScoreMoments(classes, means, products, matrices))
    return moments, len(tokens.gains) > 1


def shares_by_length(estimator: Estimator, chain: TokenChain) -> Array:
    """Return what an estimator's aggregation makes of a response's tokens, by its length, shape (T + 1,); 1 of other lengths."""
    shares = np.ones(chain.horizon + 1)
    shares[chain.lengths] = estimator.aggregation.shares(chain.lengths)
    return shares


def _matrices_on_chain(
    current: ChainPoint, tokens: TokenTables, shares: Array, rows: tuple[Integers, Integers], chance: Array, coefficients: Array
) -> Array:
    """Return what `ScoreMoments.matrices` does, of the prompts and rewards of some rows, which have chances."""
    every = np.zeros((current.chain.n_prompts, current.bandit.values.size, *coefficients.shape[2:]))
    every[rows] = coefficients / chance[..., None, None]
    return current.score_matrices(tokens.squares, tokens.gains, shares, every)[rows[0][:, 0]]


def _token_tables(current: ChainPoint, sampler: ChainPoint, estimator: Estimator) -> TokenTables:
    """Return what tokens weigh for an estimator whose responses another point draws."""
    drawn = sampler.state_probabilities
    if current is sampler or estimator.ratio.constant:
        return TokenTables(drawn, drawn, _gains(estimator, np.zeros(drawn.shape)))
    log_ratios = token_log_ratios(current, sampler)
    if by_token(estimator):
        return TokenTables(drawn, drawn, _gains(estimator, log_ratios))
    if estimator.ratio.function is trajectory_ratio and estimator.clip.function is no_clip:
        # A ratio of the whole response has k = p0 (p/p0) = p in first and k = p0 (p/p0)^2 = p^2/p0 in second moments
        # (docs/derivations.md, section 15.1).
        return TokenTables(current.state_probabilities, drawn * np.exp(2.0 * log_ratios), np.ones((1, *drawn.shape)))
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
