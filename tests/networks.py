"""Networks of two layers written out: logits unit by unit, and their derivatives by steps along the imaginary axis."""

from dataclasses import dataclass

import numpy as np
from enumeration import Case, prefixes

import grpo_theory as gt
from grpo_theory.problem.two_layer import TwoLayerMap

ACTIVATIONS = {"tanh": np.tanh, "relu": lambda a: np.where(a.real > 0.0, a, 0.0), "identity": lambda a: a}
KINDS = (*ACTIVATIONS, "tree")
STEP = 1e-30
"""An imaginary step: derivatives are exact to rounding, because nothing is subtracted."""


@dataclass(frozen=True, eq=False)
class NetworkCase(Case):
    """A case whose logits are a network's, one of its rows (M, P) at each beginning of a response."""

    network: TwoLayerMap | None = None
    rows: np.ndarray | None = None

    def features_at(self, theta):
        rows, shape = self.rows, self.features.shape
        return logits_of(self.network, theta)[rows].reshape(shape[:2]), derivatives_of(self.network, theta)[rows].reshape(shape)


def network_case(kind="tanh", penalty="plain", width=4) -> Case:
    """Make a small problem whose policy is a network, of single responses or of sequences ("tree")."""
    rng = np.random.default_rng([KINDS.index(kind), penalty == "kl", width])
    inputs = rng.normal(size=(2, 3))
    if kind == "tree":
        policy = gt.Policy(TwoLayerMap(inputs, width, 6, "tanh", 0.7), gt.TokenTree(2, 2, 3, end_token=0).paths)
    else:
        policy = gt.TwoLayerSoftmax(inputs, width, 4, kind, scale=0.7)
    bandit = gt.Bandit.from_law([-0.5, 1.0, 2.0], rng.dirichlet(np.ones(3), size=(2, 4)), [0.7, 0.3])
    kl = gt.KL(0.3, rng.dirichlet(np.full(4, 3.0), size=2)) if penalty == "kl" else None
    problem = gt.Problem(bandit, policy, kl, rng.normal(size=policy.dimension))
    shape = 2, policy.n_logits, policy.dimension
    return NetworkCase(problem, np.zeros(shape), network=policy.logit_map, rows=np.arange(2)[:, None])


def listed_case(problem) -> NetworkCase:
    """Make the case of a chain of learned features: its responses are listed, and each beginning has its state's logits."""
    chain, twin = problem.policy, problem.listed()
    rows = np.repeat(chain.starts[:, None], len(prefixes(Case(twin, None))), axis=1)
    for p, prefix in enumerate(prefixes(Case(twin, None))):
        for token in prefix:
            rows[:, p] = chain.transitions[rows[:, p], token]
    shape = len(rows), twin.policy.n_logits, problem.theta.size
    return NetworkCase(twin, np.zeros(shape), network=chain.logit_map.network, rows=rows)


def logits_of(network: TwoLayerMap, theta):
    """Return the logits (M, K) for theta (d,), which may be complex."""
    n_inputs, width = network.inputs.shape[1], network.width
    act, split = ACTIVATIONS[network.activation], width * n_inputs
    found = np.zeros((network.n_prompts, network.n_logits), dtype=theta.dtype)
    for m, x in enumerate(network.inputs):
        for j in range(width):
            h = act((theta[j * n_inputs : (j + 1) * n_inputs] * x).sum())
            for k in range(network.n_logits):
                found[m, k] += network.scale * theta[split + k * width + j] * h
    return found


def derivatives_of(network: TwoLayerMap, theta):
    """Return the derivatives of the logits in theta, shape (M, K, d)."""
    shifts = 1j * STEP * np.eye(theta.size)
    return np.stack([logits_of(network, theta + shift).imag / STEP for shift in shifts], axis=-1)


def differences(function, theta, step=1e-5):
    """Return the derivative of a function in theta, last axis, by differences of fourth order."""
    shifts = step * np.eye(theta.size)
    one, two = (
        np.stack([function(theta + n * shift) - function(theta - n * shift) for shift in shifts], axis=-1) for n in (1, 2)
    )
    return (8.0 * one - two) / (12.0 * step)
