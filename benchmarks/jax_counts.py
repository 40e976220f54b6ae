"""Rivals in jitted JAX that see groups as counts of 16-bit words below integer thresholds, all else in single precision.

Replications lie along the last axis of every array.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_contender import Block, contender
from benchmarks.jax_lanes import Lanes
from benchmarks.task import Task
from benchmarks.timing import Contender
from benchmarks.words import CountedLaw, covectors_of_counts

BLOCK_GROUPS = (1 << 11, 1 << 14)
FEW_PROMPTS = 32
UNROLLED = 8  # words of 32 bits in a loop over lanes

SumUp = Callable[[Any, Any], Any]  # of covectors (K, B, R) and prompts (B, R), to squared errors (R,)


def _by_pairs(task: Task) -> SumUp:
    """Return squared errors of a head from the inner products of all pairs of groups."""
    inner_products, logits = jnp.float32(task.inner_products), jnp.float32(task.gradient_logits)
    power = float(task.exact.gradient_power)

    def errors(covectors: Any, prompts: Any) -> Any:
        batches, at = jnp.moveaxis(covectors, 0, -1).swapaxes(0, 1), prompts.T
        weights = inner_products[at[:, :, None], at[:, None, :]]
        products = jnp.einsum("rbk,rck->rbc", batches, batches)
        return power + (products * weights).sum(axis=(1, 2)) - 2.0 * (batches * logits[at]).sum(axis=(1, 2))

    return errors


def _by_prompt(task: Task) -> SumUp:
    """Return squared errors of a tabular policy, prompt by prompt: the groups of each are added up under a mask."""
    gradient = jnp.float32(task.exact.gradient.reshape(task.point.probabilities.shape))

    def errors(covectors: Any, prompts: Any) -> Any:
        found = 0.0
        for m, own in enumerate(gradient):
            total = jnp.where(prompts == m, covectors, 0.0).sum(axis=1)
            found += ((total - own[:, None]) ** 2).sum(axis=0)
        return found

    return errors


def _add_below(below: list[Any], word: Any, thresholds: Any, halves: int = 2) -> list[Any]:
    """Count the halves of words of 32 bits that are below each of the thresholds (C - 1, B, R)."""
    parts = [word.astype(jnp.uint16), (word >> 16).astype(jnp.uint16)][:halves]
    return [
        found + sum((part < threshold).astype(jnp.uint16) for part in parts)
        for found, threshold in zip(below, thresholds, strict=True)
    ]


def _by_threefry(task: Task, key: Any, thresholds: Any) -> list[Any]:
    """Return counts of the words below each threshold, the words drawn beforehand."""
    whole, odd = divmod(task.group_size, 2)
    words = jax.random.bits(key, (whole + odd, *thresholds.shape[1:]), jnp.uint32)
    below = [jnp.zeros(thresholds.shape[1:], jnp.uint16) for _ in thresholds]
    below, _ = jax.lax.scan(
        lambda found, word: (_add_below(found, word, thresholds), None), below, words[:whole], unroll=UNROLLED
    )
    return _add_below(below, words[-1], thresholds, 1) if odd else below


def _by_lanes(task: Task, lanes: Lanes, thresholds: Any) -> tuple[Lanes, list[Any]]:
    """Return the lanes, and counts of their next words that are below each threshold, compared as they are drawn."""
    below = [jnp.zeros(thresholds.shape[1:], jnp.uint16) for _ in thresholds]
    whole, odd = divmod(task.group_size, 2)

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        lanes, below = carry
        lanes, word = lanes.next()
        return (lanes, _add_below(below, word, thresholds)), None

    (lanes, below), _ = jax.lax.scan(step, (lanes, below), length=whole, unroll=UNROLLED)
    if odd:
        lanes, word = lanes.next()
        below = _add_below(below, word, thresholds, 1)
    return lanes, below


def _blocks(task: Task, law: CountedLaw, size: int, sum_up: SumUp) -> dict[str, Block]:
    """Return the blocks, by the name of their generator."""
    prompt_cumulative = jnp.float32(np.cumsum(task.problem.bandit.prompt_weights)[:-1])
    table = jnp.asarray(law.thresholds.T)
    rights = None if law.right is None else jnp.asarray(law.right)
    shape = task.batch_size, size

    def draw_prompts(uniforms: Any) -> Any:
        if len(prompt_cumulative) < FEW_PROMPTS:
            return sum((uniforms >= weight).astype(jnp.int32) for weight in prompt_cumulative)
        return jnp.searchsorted(prompt_cumulative, uniforms, side="right")

    def errors(prompts: Any, below: list[Any]) -> Any:
        edges = [jnp.zeros(shape), *(found.astype(jnp.float32) for found in below), jnp.full(shape, float(task.group_size))]
        counts = jnp.stack([high - low for low, high in pairwise(edges)])
        right = None if rights is None else jnp.moveaxis(rights[prompts], -1, 0)
        return sum_up(covectors_of_counts(law, task, counts, right), prompts)

    def by_threefry(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key)
        prompts = draw_prompts(jax.random.uniform(keys[0], shape))
        return state, errors(prompts, _by_threefry(task, keys[1], jnp.moveaxis(table[prompts], -1, 0)))

    def by_lanes(lanes: Lanes, key: Any) -> tuple[Lanes, Any]:
        lanes, word = lanes.next()
        prompts = draw_prompts((word >> 8).astype(jnp.float32) * 2.0**-24)
        lanes, below = _by_lanes(task, lanes, jnp.moveaxis(table[prompts], -1, 0))
        return lanes, errors(prompts, below)

    return {"threefry": by_threefry, "SFC32 in lanes": by_lanes}


def rivals(task: Task) -> list[Contender]:
    """Return the variants; which is fastest depends on the task."""
    law = CountedLaw.of(task)
    found = []
    for groups in BLOCK_GROUPS:
        size = groups // task.batch_size

        def start(key: Any, size: int = size) -> Lanes:
            return Lanes.start(key, (task.batch_size, size))

        for name, block in _blocks(task, law, size, _by_prompt(task) if task.is_tabular else _by_pairs(task)).items():
            found.append(contender(f"JAX, 16-bit words, {name}, {groups} groups", task, size, block, start))
    return found
