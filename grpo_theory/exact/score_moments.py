"""Score moments by class: all that the law of a group's estimate needs of a prompt, wherever it comes from.

The estimate is (1/G) sum_i x_i.  Here x_i is the sum of response i's features, which depend on its class and the group's, times
vectors of the response.  Given the classes, the vectors are independent draws.  First and second moments therefore need only the
mean of the vectors and the mean of their inner products, by class (docs/derivations.md, section 4).  A kernel that reads only
rewards cannot distinguish more than reward values, so its classes are those.  Responses that are listed are averaged; those of a
chain are carried (`carried.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.exact.classes import Classes, ListedClasses
from grpo_theory.exact.multisets import GroupMoments
from grpo_theory.exact.weights import TokenWeights
from grpo_theory.problem import LogitMap
from grpo_theory.validation import check_room

_LARGEST_TABLES = 1 << 22
"""The most numbers in the tables of covectors, or of tokens, that are held at a time."""


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Moments, by class, of the F vectors of a response that features multiply, at S prompts that have R classes each.

    Attributes
    ----------
    classes : Classes
    means : ndarray, shape (S, R, F, D)
        As covectors, given the class.
    products : ndarray, shape (S, R, F, F)
        The mean inner products of a response's vectors, given the class.
    forms : callable
        ``forms(coefficients)``, (S, R, F, F), sums coefficients times E[x_f x_g' | class], in covectors, over r, f and g:
        shape (S, D, D).
    """

    classes: Classes
    means: Array
    products: Array
    forms: Callable[[Array], Array]


class Share(NamedTuple):
    """Prompts that have equally many classes: the score moments, and the moments of their groups' features."""

    scores: ScoreMoments
    sums: GroupMoments

    def between(self) -> Array:
        """Return E[S_rf S_sg] less what is due to products of one response's own features, shape (S, R F, R F)."""
        product = self.sums.product.copy()
        for r in range(product.shape[1]):
            product[:, r, :, r] -= self.sums.squares[:, r]
        n_features = product.shape[1] * product.shape[2]
        return product.reshape(-1, n_features, n_features)

    def within(self) -> Array:
        """Return the classes' means side by side, shape (S, R F, D)."""
        means = self.scores.means
        return means.reshape(len(means), -1, means.shape[-1])


def means_and_powers(shares: list[Share], logit_map: LogitMap) -> tuple[Array, Array]:
    """Return E[sum_i x_i] as covectors (M, D), and E||sum_i x_i||^2, shape (M,)."""
    means, powers = np.zeros((logit_map.n_prompts, logit_map.n_logits)), np.zeros(logit_map.n_prompts)
    for share in shares:
        prompts, within = share.scores.classes.prompts, share.within()
        means[prompts] = np.einsum("sr,srd->sd", share.sums.mean.reshape(len(prompts), -1), within)
        # The form sum_ab P_ab <w_a, w_b> is a sum of eigenvalues times squared lengths.
        values, vectors = np.linalg.eigh(share.between())
        turned = np.zeros((logit_map.n_prompts, *within.shape[1:]))
        turned[prompts] = np.swapaxes(vectors, 1, 2) @ within
        own = np.einsum("srfg,srfg->s", share.sums.squares, share.scores.products)
        powers[prompts] = own + (values * logit_map.squared_norms(turned)[prompts]).sum(axis=1)
    return means, powers


def second_moments(shares: list[Share], logit_map: LogitMap) -> Array:
    """Return E[sum_ij x_i x_j'] as forms of covectors, shape (M, D, D)."""
    n_prompts, dimension = logit_map.n_prompts, logit_map.n_logits
    check_room("the second moments of each prompt", (n_prompts, dimension, dimension), "gradient_mse and .trace do without")
    forms = np.empty((n_prompts, dimension, dimension))
    for share in shares:
        within = share.within()
        between = np.swapaxes(within, 1, 2) @ share.between() @ within
        forms[share.scores.classes.prompts] = share.scores.forms(share.sums.squares) + between
    return forms


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
            halfway = (tokens[:, f, :, None, :] @ inner)[:, :, 0]
            for g in range(n_features):
                by_response = np.einsum("skt,skt->sk", halfway, tokens[:, g])
                squares[part, :, f, g] = np.einsum("srk,sk->sr", responses[part], by_response)
        # On policy the mean score is 0, and may be taken off, because classes can have means that are far below their parts.
        shares = (classes.leads if weights.are_level else responses)[part]
        on_edges = weights.paths.add_up(shares[:, :, None, :, None] * tokens[:, None])
        means[part] = weights.paths.centre(on_edges, weights.token_probabilities[prompts[part], None, None])
    return ScoreMoments(classes, means, squares, lambda coefficients: _listed_forms(classes, weights, coefficients))


def _listed_forms(classes: ListedClasses, weights: TokenWeights, coefficients: Array) -> Array:
    """Return the sum of the responses' second moments with coefficients by class, shape (S, D, D), a part at a time."""
    n_prompts, _, n_responses = classes.responses.shape
    dimension = weights.token_probabilities.shape[1]
    forms = np.zeros((n_prompts, dimension, dimension))
    step = max(1, _LARGEST_TABLES // (weights.n_features * n_responses * dimension))
    for start in range(0, n_prompts, step):
        part = slice(start, start + step)
        tables = weights.covectors(classes.prompts[part])
        by_response = np.einsum("srfg,srk->sfgk", coefficients[part], classes.responses[part])
        for f in range(weights.n_features):
            for g in range(weights.n_features):
                forms[part] += np.swapaxes(tables[:, f] * by_response[:, f, g, :, None], 1, 2) @ tables[:, g]
    return forms
