"""Rivals in jitted JAX that see groups as counts of words of 16 or 8 bits below thresholds, all else in single precision.

Replications lie along the last axis of every array.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_contender import Block, Lanes, contender
from benchmarks.task import Task
from benchmarks.timing import Contender
from benchmarks.words import BYTES, WORDS, ByteLaw, CountedLaw, covectors_of_counts

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
        power = 0.0
        for m, own in enumerate(gradient):
            total = jnp.where(prompts == m, covectors, 0.0).sum(axis=1)
            power += ((total - own[:, None]) ** 2).sum(axis=0)
        return power

    return errors


def _parts(word: Any, kind: Any) -> list[Any]:
    """Return the words of 16 or 8 bits that a word of 32 is made of."""
    bits = 8 * np.dtype(kind).itemsize
    return [(word >> first).astype(kind) for first in range(0, 32, bits)]


def _add_below(below: list[Any], parts: list[Any], thresholds: Any) -> list[Any]:
    """Count the words that are below each of the thresholds (C, B, R)."""
    return [
        count + sum((part < threshold).astype(count.dtype) for part in parts)
        for count, threshold in zip(below, thresholds, strict=True)
    ]


def _zeros(thresholds: Any, kind: Any = jnp.uint16) -> list[Any]:
    return [jnp.zeros(thresholds.shape[1:], kind) for _ in thresholds]


def _by_lanes(lanes: Lanes, n_words: int, thresholds: Any, dtype: Any = jnp.uint16) -> tuple[Lanes, list[Any]]:
    """Return the lanes, and counts of so many next words below each threshold, compared as they are drawn."""
    kind = thresholds.dtype
    whole, rest = divmod(n_words, 4 // kind.itemsize)

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        lanes, below = carry
        lanes, word = lanes.next()
        return (lanes, _add_below(below, _parts(word, kind), thresholds)), None

    (lanes, below), _ = jax.lax.scan(step, (lanes, _zeros(thresholds, dtype)), length=whole, unroll=UNROLLED)
    if rest:
        lanes, word = lanes.next()
        below = _add_below(below, _parts(word, kind)[:rest], thresholds)
    return lanes, below


def _by_bytes(lanes: Lanes, task: Task, again: int, coarse: Any, fine: Any) -> tuple[Lanes, list[Any]]:
    """Do the same with words of 8 bits, and draw what they leave open by so many words of 16 bits, an even number."""
    dtype = jnp.uint8 if task.group_size < BYTES else jnp.uint16
    lanes, below = _by_lanes(lanes, task.group_size, coarse, dtype)
    left, more = task.group_size - below[-1].astype(jnp.uint16), _zeros(fine)
    for first in range(0, again, 2):
        lanes, word = lanes.next()
        kept = [jnp.where(left > first + i, part, WORDS - 1) for i, part in enumerate(_parts(word, jnp.uint16))]
        more = _add_below(more, kept, fine)
    return lanes, [each + own for each, own in zip(below[:-1], more, strict=True)]


def _blocks(task: Task, law: CountedLaw, size: int, sum_up: SumUp) -> dict[str, Block]:
    """Return the blocks, by the names of their words and their generator."""
    prompt_cumulative = jnp.float32(np.cumsum(task.problem.bandit.prompt_weights)[:-1])
    bytes_law = ByteLaw.of(law, task.group_size)
    table, coarse, fine = (jnp.asarray(each.T) for each in (law.thresholds, bytes_law.coarse, bytes_law.fine))
    rights = None if law.right is None else jnp.asarray(law.right)
    shape = task.batch_size, size

    def draw_prompts(uniforms: Any) -> Any:
        if len(prompt_cumulative) < FEW_PROMPTS:
            return sum((uniforms >= weight).astype(jnp.int32) for weight in prompt_cumulative)
        return jnp.searchsorted(prompt_cumulative, uniforms, side="right")

    def errors(prompts: Any, below: list[Any]) -> Any:
        edges = [jnp.zeros(shape), *(count.astype(jnp.float32) for count in below), jnp.full(shape, float(task.group_size))]
        counts = jnp.stack([high - low for low, high in pairwise(edges)])
        right = None if rights is None else jnp.moveaxis(rights[prompts], -1, 0)
        return sum_up(covectors_of_counts(law, task, counts, right), prompts)

    def rows(each: Any, prompts: Any) -> Any:
        return jnp.moveaxis(each[prompts], -1, 0)

    def begin(lanes: Lanes) -> tuple[Lanes, Any]:
        lanes, word = lanes.next()
        return lanes, draw_prompts((word >> 8).astype(jnp.float32) * 2.0**-24)

    def by_lanes(lanes: Lanes, key: Any) -> tuple[Lanes, Any]:
        lanes, prompts = begin(lanes)
        lanes, below = _by_lanes(lanes, task.group_size, rows(table, prompts))
        return lanes, errors(prompts, below)

    def by_bytes(lanes: Lanes, key: Any) -> tuple[Lanes, Any]:
        lanes, prompts = begin(lanes)
        lanes, below = _by_bytes(lanes, task, bytes_law.again, rows(coarse, prompts), rows(fine, prompts))
        return lanes, errors(prompts, below)

    return {
        "16-bit words, SFC32 in lanes": by_lanes,
        "8-bit words, SFC32 in lanes": by_bytes,
    }


def _contenders(task: Task, groups: int) -> list[Contender]:
    """Return the variants with so many groups in a block."""
    size = groups // task.batch_size
    blocks = _blocks(task, CountedLaw.of(task), size, _by_prompt(task) if task.is_tabular else _by_pairs(task))

    def start(key: Any) -> Lanes:
        return Lanes.start(key, (task.batch_size, size))

    return [contender(f"JAX, {name}, {groups} groups", task, size, block, start) for name, block in blocks.items()]


def rivals(task: Task) -> list[Contender]:
    """Return the variants; which is fastest depends on the task."""
    return [variant for groups in BLOCK_GROUPS for variant in _contenders(task, groups)]
