"""The first two moments of one group's estimate, from those of its features summed within classes.

The estimate is (1/G) sum_i x_i, x_i the sum of response i's features times covectors.  Its mean and the mean of its square need
only the tokens that responses take and the inner products of their scores; a covector is written out for no response.
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.exact.classes import Classes
from grpo_theory.exact.multisets import GroupMoments
from grpo_theory.exact.weights import TokenWeights
from grpo_theory.problem import Point
from grpo_theory.validation import check_room

_LARGEST_TABLES = 1 << 22
"""The most numbers in the tables of covectors, or of tokens, that are held at a time."""


class Share(NamedTuple):
    """Prompts that have equally many classes, and the moments of their groups' features."""

    kinds: Classes
    sums: GroupMoments

    def part(self, start: int, step: int) -> "Share":
        """Return some of the prompts."""
        own, kinds = slice(start, start + step), self.kinds
        sums = GroupMoments(self.sums.mean[own], self.sums.product[own], self.sums.squares[own])
        return Share(Classes(kinds.prompts[own], kinds.probabilities[own], kinds.responses[own], kinds.fields[:, own]), sums)

    def between(self) -> Array:
        """Return E[S_rf S_sg] less what is due to products of one response's own features, shape (S, R F, R F)."""
        product = self.sums.product.copy()
        for r in range(product.shape[1]):
            product[:, r, :, r] -= self.sums.squares[:, r]
        n_features = product.shape[1] * product.shape[2]
        return product.reshape(-1, n_features, n_features)

    def squares_by_response(self) -> Array:
        """Return the mean over groups of the products of features of each response's own, shape (S, F, F, K)."""
        return np.einsum("srfg,srk->sfgk", self.sums.squares, self.kinds.responses)


def means_and_powers(shares: list[Share], weights: TokenWeights, current: Point) -> tuple[Array, Array]:
    """Return E[sum_i x_i] as covectors (M, D), and E||sum_i x_i||^2, shape (M,)."""
    logit_map, products = current.policy.logit_map, current.token_products
    means, powers = np.zeros(weights.token_probabilities.shape), np.zeros(len(products))
    for share in shares:
        own, within = _by_token(share, weights, products)
        prompts = share.kinds.prompts
        means[prompts] = np.einsum("sr,srd->sd", share.sums.mean.reshape(len(prompts), -1), within)
        # The form sum_ab P_ab <w_a, w_b> is a sum of eigenvalues times squared lengths.
        values, vectors = np.linalg.eigh(share.between())
        turned = np.zeros((len(products), *within.shape[1:]))
        turned[prompts] = np.swapaxes(vectors, 1, 2) @ within
        powers[prompts] = own + (values * logit_map.squared_norms(turned)[prompts]).sum(axis=1)
    return means, powers


def _by_token(share: Share, weights: TokenWeights, products: Array) -> tuple[Array, Array]:
    """Return the responses' own part of E||sum_i x_i||^2, (S,), and the classes' mean covectors of the features, (S, R F, D)."""
    n_prompts, n_classes, n_responses = share.kinds.responses.shape
    horizon = products.shape[-1]
    own, within = np.zeros(n_prompts), []
    step = max(1, _LARGEST_TABLES // (n_responses * horizon * max(horizon, n_classes * weights.n_features)))
    for start in range(0, n_prompts, step):
        part = share.part(start, step)
        prompts, responses = part.kinds.prompts, part.kinds.responses
        tokens = weights.by_token(prompts)
        squares, inner = part.squares_by_response(), products[prompts]
        for f in range(weights.n_features):
            halfway = (tokens[:, f, :, None, :] @ inner)[:, :, 0]
            for g in range(weights.n_features):
                own[start : start + step] += np.einsum("sk,skt,skt->s", squares[:, f, g], halfway, tokens[:, g])
        on_edges = weights.paths.add_up(responses[:, :, None, :, None] * tokens[:, None])
        centred = weights.paths.centre(on_edges, weights.token_probabilities[prompts, None, None])
        within.append(centred.reshape(len(prompts), -1, centred.shape[-1]))
    return own, np.concatenate(within)


def second_moments(shares: list[Share], weights: TokenWeights) -> Array:
    """Return E[sum_ij x_i x_j'] as forms of covectors, shape (M, D, D)."""
    n_prompts, dimension = weights.token_probabilities.shape
    check_room("the second moments of each prompt", (n_prompts, dimension, dimension), "gradient_mse and .trace do without")
    forms = np.empty((n_prompts, dimension, dimension))
    for share in shares:
        numbers = weights.n_features * share.kinds.responses.shape[2] * dimension
        step = max(1, _LARGEST_TABLES // numbers)
        for start in range(0, share.kinds.prompts.size, step):
            part = share.part(start, step)
            forms[part.kinds.prompts] = _forms(part, weights.covectors(part.kinds.prompts))
    return forms


def _forms(share: Share, tables: Array) -> Array:
    """Return the second moments (S, D, D) at some prompts, whose covectors are written out, (S, F, K, D)."""
    n_prompts, n_features, _, dimension = tables.shape
    responses = share.kinds.responses
    within = np.swapaxes(responses[:, None] @ tables, 1, 2).reshape(n_prompts, -1, dimension)
    squares = share.squares_by_response()
    own = np.zeros((n_prompts, dimension, dimension))
    for f in range(n_features):
        for g in range(n_features):
            own += np.swapaxes(tables[:, f] * squares[:, f, g, :, None], 1, 2) @ tables[:, g]
    return own + np.swapaxes(within, 1, 2) @ share.between() @ within
