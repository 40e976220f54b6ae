"""Who draws: softmax policies with linear logits.

Every policy here is pi(k | m) = softmax(Phi_m theta)_k with a linear map Phi: theta -> logits (M, K), so that the score
is Phi_m' (e_k - pi_m).  Whatever a theorem asks of the d-dimensional scores is a statement about the K-dimensional
covectors e_k - pi_m and the inner products Phi_m Phi_m'; a policy therefore gives Phi, its adjoint and its Gram matrices,
and no (M, K, d) array is needed anywhere.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from grpo_theory.validation import as_count, as_real_array, check_shape

Array = NDArray[np.float64]


class Policy(ABC):
    """A softmax policy with linear logits over K responses to each of M prompts; theta has shape (d,)."""

    n_prompts: int
    n_responses: int
    dimension: int

    @abstractmethod
    def logits(self, theta: Array) -> Array:
        """Return Phi theta, shape (..., M, K), for theta of shape (..., d)."""

    @abstractmethod
    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return Phi_m' c_m for each prompt, shape (M, d), for covectors c of shape (M, K)."""

    @abstractmethod
    def adjoint(self, covectors: Array) -> Array:
        """Return sum_m Phi_m' c_m, shape (d,), for covectors c of shape (M, K)."""

    @abstractmethod
    def gram(self) -> Array:
        """Return Phi_m Phi_m' for each prompt, shape (M, K, K)."""

    @abstractmethod
    def congruence(self, forms: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d), for forms A of shape (M, K, K)."""

    def check_theta(self, theta: ArrayLike) -> Array:
        """Return theta as a finite float64 array of shape (d,)."""
        theta = as_real_array("theta", theta, 1)
        check_shape("theta", theta, (self.dimension,), "(d,), the policy's parameters")
        return theta

    def probabilities(self, theta: ArrayLike) -> Array:
        """Return pi(k | m), shape (M, K)."""
        return softmax(self.logits(self.check_theta(theta)), axis=-1)

    def scores(self, theta: ArrayLike) -> Array:
        """Return the score vectors grad log pi(k | m), shape (M, K, d)."""
        covectors = np.eye(self.n_responses) - self.probabilities(theta)[:, None, :]
        return np.stack([self.adjoint_by_prompt(covectors[:, k]) for k in range(self.n_responses)], axis=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(M={self.n_prompts}, K={self.n_responses}, d={self.dimension})"


class TabularSoftmax(Policy):
    """A free logit for every (prompt, response): theta is the (M, K) table of logits, flattened row by row; d = M K.

    Parameters
    ----------
    n_prompts, n_responses : int
        The numbers M and K.
    """

    def __init__(self, n_prompts: int, n_responses: int) -> None:
        self.n_prompts = as_count("n_prompts", n_prompts)
        self.n_responses = as_count("n_responses", n_responses)
        self.dimension = self.n_prompts * self.n_responses

    def logits(self, theta: Array) -> Array:
        """Return the table of logits, shape (..., M, K)."""
        return theta.reshape(*theta.shape[:-1], self.n_prompts, self.n_responses)

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return each covector in its own prompt's block, shape (M, d)."""
        blocks = np.zeros((self.n_prompts, self.n_prompts, self.n_responses))
        prompts = np.arange(self.n_prompts)
        blocks[prompts, prompts] = covectors
        return blocks.reshape(self.n_prompts, self.dimension)

    def adjoint(self, covectors: Array) -> Array:
        """Return the covectors, flattened, shape (d,)."""
        return covectors.reshape(self.dimension)

    def gram(self) -> Array:
        """Return M identity matrices, shape (M, K, K)."""
        return np.broadcast_to(np.eye(self.n_responses), (self.n_prompts, self.n_responses, self.n_responses))

    def congruence(self, forms: Array) -> Array:
        """Return the block diagonal matrix of the forms, shape (d, d)."""
        blocks = np.zeros((self.n_prompts, self.n_responses, self.n_prompts, self.n_responses))
        prompts = np.arange(self.n_prompts)
        blocks[prompts, :, prompts, :] = forms
        return blocks.reshape(self.dimension, self.dimension)


class LinearSoftmax(Policy):
    """Logits phi(m, k) . theta with dense features.

    Parameters
    ----------
    features : array_like, shape (M, K, d)
        The feature vector of every (prompt, response).
    """

    def __init__(self, features: ArrayLike) -> None:
        self.features = as_real_array("features", features, 3)
        self.features.setflags(write=False)
        self.n_prompts, self.n_responses, self.dimension = self.features.shape

    def logits(self, theta: Array) -> Array:
        """Return phi(m, k) . theta, shape (..., M, K)."""
        return np.einsum("mkd,...d->...mk", self.features, theta)

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return sum_k c_mk phi(m, k), shape (M, d)."""
        return np.einsum("mkd,mk->md", self.features, covectors)

    def adjoint(self, covectors: Array) -> Array:
        """Return sum_mk c_mk phi(m, k), shape (d,)."""
        return np.einsum("mkd,mk->d", self.features, covectors)

    def gram(self) -> Array:
        """Return phi(m, k) . phi(m, l), shape (M, K, K)."""
        return np.einsum("mkd,mld->mkl", self.features, self.features)

    def congruence(self, forms: Array) -> Array:
        """Return sum_m Phi_m' A_m Phi_m, shape (d, d)."""
        return np.einsum("mkd,mkl,mle->de", self.features, forms, self.features, optimize=True)


class SoftmaxHead(Policy):
    """The output head of a network over frozen hidden states: logits W h_m, score (e_k - pi_m) x h_m.

    Parameters
    ----------
    hidden : array_like, shape (M, H)
        The hidden state h_m of each prompt.
    n_responses : int
        The number K of head rows; theta is the head W (K, H), flattened row by row, d = K H.

    Notes
    -----
    Phi_m = I_K x h_m', so Gram matrices are ||h_m||^2 I_K and inner products across prompts are (h_m . h_n)(c_m . c_n).
    """

    def __init__(self, hidden: ArrayLike, n_responses: int) -> None:
        self.hidden = as_real_array("hidden", hidden, 2)
        self.hidden.setflags(write=False)
        self.n_responses = as_count("n_responses", n_responses)
        self.n_prompts, self.width = self.hidden.shape
        self.dimension = self.n_responses * self.width

    def logits(self, theta: Array) -> Array:
        """Return W h_m, shape (..., M, K)."""
        logits = theta.reshape(-1, self.width) @ self.hidden.T
        logits = logits.reshape(*theta.shape[:-1], self.n_responses, self.n_prompts)
        return np.ascontiguousarray(np.swapaxes(logits, -1, -2))

    def adjoint_by_prompt(self, covectors: Array) -> Array:
        """Return c_m x h_m, shape (M, d)."""
        return np.einsum("mk,mh->mkh", covectors, self.hidden).reshape(self.n_prompts, self.dimension)

    def adjoint(self, covectors: Array) -> Array:
        """Return sum_m c_m x h_m, shape (d,)."""
        return (covectors.T @ self.hidden).reshape(self.dimension)

    def gram(self) -> Array:
        """Return ||h_m||^2 I_K, shape (M, K, K)."""
        squared_norms = np.einsum("mh,mh->m", self.hidden, self.hidden)
        return squared_norms[:, None, None] * np.eye(self.n_responses)

    def congruence(self, forms: Array) -> Array:
        """Return sum_m A_m x h_m h_m', shape (d, d); refused where that matrix is too large to be wanted."""
        if self.dimension > 4096:
            raise ValueError(
                f"a matrix of shape {(self.dimension, self.dimension)} is not formed for this policy; "
                "ask gradient_law(...) for .trace, .mse or .variance_along(directions) instead"
            )
        product = np.einsum("mkl,mh,mi->khli", forms, self.hidden, self.hidden, optimize=True)
        return product.reshape(self.dimension, self.dimension)
