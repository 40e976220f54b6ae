"""The curvature of one prompt's success under a network of two layers, in the few directions in which it has any.

A prompt's logits depend on the first layer through a = W1 x. They bend only where a unit and what it feeds move together. Take
the slopes g of J_i in its logits. Second derivatives exist along the H units' inputs and along the H weights of g's combination
of the outputs. They also exist along h, for each other combination. Along all directions that are orthogonal to these 2 H + K - 1
it has none. (docs/derivations.md, section 5.1)
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.problem.two_layer import ACTIVATIONS, TwoLayerMap
from simulations.normalisation.networks import Place


def hessian_norms(problem: gt.Problem, place: Place) -> Array:
    """Return ||Hess J_i|| of each prompt, shape (M,), at a place on the way of a network."""
    return np.asarray(np.abs(np.linalg.eigvalsh(hessians(problem, place))).max(axis=1))


def hessians(problem: gt.Problem, place: Place) -> Array:
    """Return Hess J_i in an orthonormal basis of the directions where it is not 0, shape ``(M, 2 H + K - 1, 2 H + K - 1)``."""
    network = problem.policy.logit_map
    assert isinstance(network, TwoLayerMap)
    scale, act, width = network.scale, ACTIVATIONS[network.activation], network.width
    hidden, second = network.hidden(place.theta), network.layers(place.theta)[1]
    lengths = np.linalg.norm(network.inputs, axis=1)[:, None]
    slopes = place.now.covectors
    rest = complements(slopes)
    sizes = np.linalg.norm(slopes, axis=1, keepdims=True)
    units = scale * lengths[:, None] * second * act.slope(hidden)[:, None]
    along = scale * (slopes / sizes)[:, :, None] * hidden[:, None]
    others = scale * np.linalg.norm(hidden, axis=1)[:, None, None] * rest
    tangent = np.concatenate([units, along, others], axis=2)
    whole = np.swapaxes(tangent, 1, 2) @ logit_hessians(problem, place) @ tangent
    first, mixed = np.arange(width), width + np.arange(width)
    whole[:, first, first] += scale * lengths**2 * (slopes @ second) * act.bend(hidden)
    for rows, columns in ((first, mixed), (mixed, first)):
        whole[:, rows, columns] += scale * sizes * lengths * act.slope(hidden)
    return np.asarray(whole)


def logit_hessians(problem: gt.Problem, place: Place) -> Array:
    """Return the second derivatives of J_i in its logits, shape (M, K, K): E (r - V) [(e - pi)(e - pi)' - (diag pi - pi pi')]."""
    pi = np.exp(problem.policy.log_probabilities(place.theta))
    slopes = place.now.covectors
    across = pi[:, :, None] * slopes[:, None] + slopes[:, :, None] * pi[:, None]
    return np.asarray(slopes[:, :, None] * np.eye(pi.shape[1]) - across)


def complements(vectors: Array) -> Array:
    """Return an orthonormal basis of what is orthogonal to each vector (M, K), shape (M, K, K - 1)."""
    columns = np.concatenate(
        [vectors[:, :, None], np.broadcast_to(np.eye(vectors.shape[1]), (*vectors.shape, vectors.shape[1]))], axis=2
    )
    return np.asarray(np.linalg.qr(columns)[0][:, :, 1:])
