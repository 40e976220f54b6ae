"""What the squared errors of a policy's gradients are found from, and how."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.problem import Point
from grpo_theory.problem.logit_map import HeadMap, TabularMap
from grpo_theory.simulate.covector.features import features
from grpo_theory.simulate.draw.prompt_tables import lookup
from grpo_theory.simulate.observe.errors import Truth, fill_errors_by_features, fill_errors_by_pairs, fill_errors_by_prompt

PAIRED = 16
"""The largest batch whose groups are compared pair by pair, if there are fewer prompts than groups: measured with 2 and 6."""


class Geometry(NamedTuple):
    """A driver that fills in squared errors, and what it compares with."""

    fill_errors: Callable
    truth: Truth


def geometry(point: Point, directions: Array, batch_size: int) -> Geometry:
    """Return how batches are compared with the truth at a point, and with directions (J, d).

    The package's own maps have ways that use their structure; any other class, a subclass of one of them included, gets dense
    features by way of its adjoint.
    """
    policy, moments = point.policy, point.moments
    logits = np.asarray(policy.logits(np.concatenate([directions, moments.gradient[None]])), dtype=np.float64)
    along, of_gradient = logits[:-1], logits[-1]
    if type(policy.logit_map) is TabularMap:
        inner = None
    elif type(policy.logit_map) is HeadMap:
        inner = policy.logit_map.hidden @ policy.logit_map.hidden.T
    else:
        by_prompt = features(policy)
        facts = [by_prompt.reshape(len(by_prompt), -1), moments.prompt_gradients]
        return Geometry(fill_errors_by_features, _truth([*along, *facts], np.empty((0, 0)), moments.gradient))
    own = np.ones(policy.n_prompts) if inner is None else np.diag(inner)
    covectors = moments.gradient_covectors
    powers = own * (covectors**2).sum(axis=1)
    facts = [*along, 2.0 * own[:, None] * covectors, 2.0 * batch_size * of_gradient, powers[:, None]]
    target = np.array([moments.gradient_power])
    if policy.n_prompts < batch_size > PAIRED:
        return Geometry(fill_errors_by_prompt, _truth(facts, np.eye(policy.n_prompts) if inner is None else inner, target))
    return Geometry(fill_errors_by_pairs, _truth(facts, np.empty((0, 0)) if inner is None else inner, target))


def _truth(facts: list[Array], array: Array, target: Array) -> Truth:
    """Put the facts (M, ...) of each prompt one after another."""
    table = lookup(np.concatenate([np.asarray(fact, dtype=np.float64) for fact in facts], axis=1))
    return Truth(table, *(np.array(field, dtype=np.float64, order="C") for field in (array, target)))
