"""The output head of a network that reads the tokens so far: one hidden state for every prefix."""

import numpy as np

from grpo_theory.arrays import Array, cached_array
from grpo_theory.problem.logit_map import LARGEST_DIMENSION, LogitMap
from grpo_theory.problem.paths import Paths, less_mean


class PrefixHeadMap(LogitMap):
    """Logits W h_mp of a head W (V, H) over frozen hidden states h (M, P, H) of prefixes.

    The parameter theta is W, flattened row by row.  The features of the edge with token v at prefix p are e_v x h_mp.  The inner
    product of two edges' features is that of the hidden states if they have the same token, and otherwise 0.  Nothing of shape
    (M, D, d) is formed.
    """

    def __init__(self, hidden: Array, vocabulary_size: int) -> None:
        self.hidden = hidden
        self.hidden.setflags(write=False)
        self.n_prompts, self.n_prefixes, self.width = hidden.shape
        self.vocabulary_size = vocabulary_size
        self.n_logits = self.n_prefixes * vocabulary_size
        self.dimension = vocabulary_size * self.width

    @cached_array
    def prefix_gram(self) -> Array:
        """Inner products of the hidden states of each prompt, shape (M, P, P)."""
        return self.hidden @ np.swapaxes(self.hidden, 1, 2)

    def _by_prefix(self, covectors: Array) -> Array:
        return covectors.reshape(*covectors.shape[:-1], self.n_prefixes, self.vocabulary_size)

    def logits(self, theta: Array) -> Array:
        """Return W h_mp, shape (..., M, D)."""
        heads = theta.reshape(*theta.shape[:-1], 1, self.vocabulary_size, self.width)
        by_prefix = self.hidden @ np.swapaxes(heads, -1, -2)
        return by_prefix.reshape(*theta.shape[:-1], self.n_prompts, self.n_logits)

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return sum_p c_mp x h_mp, shape (M, d)."""
        heads = np.swapaxes(self._by_prefix(covectors), 1, 2) @ self.hidden
        return heads.reshape(self.n_prompts, self.dimension)

    def adjoint(self, covectors: Array) -> Array:
        """Return sum_mp c_mp x h_mp, shape (d,)."""
        columns = covectors.reshape(-1, self.vocabulary_size)
        return (columns.T @ self.hidden.reshape(-1, self.width)).reshape(self.dimension)

    def gram(self) -> Array:
        """Return the inner products of the prefixes' hidden states times the identity of the tokens, shape (M, D, D)."""
        blocks = self.prefix_gram[:, :, None, :, None] * np.eye(self.vocabulary_size)[:, None, :]
        return blocks.reshape(self.n_prompts, self.n_logits, self.n_logits)

    def congruence(self, forms: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d); refused where that matrix is too large to be wanted."""
        if self.dimension > LARGEST_DIMENSION:
            raise ValueError(
                f"a matrix of shape {(self.dimension, self.dimension)} is not formed for this policy; "
                "ask gradient_law(...) for .trace, .mse or .variance_along(directions) instead"
            )
        sizes = (self.n_prefixes, self.vocabulary_size)
        blocks = forms.reshape(self.n_prompts, *sizes, *sizes)
        product = np.einsum("mpvqw,mph,mqi->vhwi", blocks, self.hidden, self.hidden, optimize=True)
        return product.reshape(self.dimension, self.dimension)

    def squared_norms(self, covectors: Array) -> Array:
        """Return ||sum_p c_p x h_mp||^2, shape (M, K)."""
        columns = np.swapaxes(self._by_prefix(covectors), -1, -2)
        return np.maximum(((columns @ self.prefix_gram[:, None]) * columns).sum(axis=(-2, -1)), 0.0)

    def token_products(self, paths: Paths, probabilities: Array) -> Array:
        """Return the inner products of the scores of the tokens of each response, shape (M, K, T, T)."""
        prefixes, tokens = np.divmod(np.where(paths.taken, paths.edges, 0), self.vocabulary_size)
        of_tokens = less_mean(np.eye(self.vocabulary_size), self._by_prefix(probabilities)[..., None], axis=-2)
        covectors = of_tokens[:, prefixes, tokens] * paths.taken[:, :, None]
        products = self.prefix_gram[:, prefixes[:, :, None], prefixes[:, None, :]]
        for s in range(paths.horizon):
            for t in range(paths.horizon):
                products[..., s, t] *= np.einsum("mkv,mkv->mk", covectors[:, :, s], covectors[:, :, t])
        return products
