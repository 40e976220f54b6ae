"""Rivals in jitted JAX on the CPU that see every response."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_contender import BLOCK_RESPONSES, Block, contender
from benchmarks.task import Task
from benchmarks.timing import Contender

Statistic = Callable[[Any, Any, Any], Any]  # of prompts, responses and advantages


def _by_scatter(task: Task) -> Statistic:
    """Scatter-add the advantages of each group."""
    n_responses = task.problem.policy.n_responses

    def histogram(prompts: Any, responses: Any, advantages: Any) -> Any:
        groups = jnp.arange(prompts.size).reshape(*prompts.shape, 1)
        flat = jnp.zeros(prompts.size * n_responses)
        return flat.at[groups * n_responses + responses].add(advantages).reshape(*prompts.shape, n_responses)

    return histogram


def _by_mask(task: Task) -> Statistic:
    """Sum the advantages of each group under a mask for each response."""

    def histogram(prompts: Any, responses: Any, advantages: Any) -> Any:
        each = range(task.problem.policy.n_responses)
        return jnp.stack([jnp.where(responses == k, advantages, 0.0).sum(axis=-1) for k in each], axis=-1)

    return histogram


def _through_inner_products(task: Task, histogram: Statistic) -> Statistic:
    """Return squared errors from the groups' covectors and the inner products between prompts."""
    inner_products, logits = jnp.float32(task.inner_products), jnp.float32(task.gradient_logits)
    power = float(task.exact.gradient_power)

    def errors(prompts: Any, responses: Any, advantages: Any) -> Any:
        covectors = histogram(prompts, responses, advantages)
        if task.is_tabular:
            weights = (prompts[:, :, None] == prompts[:, None, :]).astype(jnp.float32)
        else:
            weights = inner_products[prompts[:, :, None], prompts[:, None, :]]
        products = jnp.einsum("rbk,rck->rbc", covectors, covectors)
        return (products * weights).sum((1, 2)) - 2.0 * (covectors * logits[prompts]).sum((1, 2)) + power

    return errors


def _direct(task: Task) -> Statistic:
    """Return squared errors from the gradient of a tabular policy, scattered into its own coordinates."""
    gradient = jnp.float32(task.exact.gradient)
    n_prompts, n_responses = task.point.probabilities.shape

    def errors(prompts: Any, responses: Any, advantages: Any) -> Any:
        rows = jnp.arange(len(prompts))[:, None, None] * n_prompts + prompts[:, :, None]
        flat = jnp.zeros(len(prompts) * n_prompts * n_responses).at[rows * n_responses + responses].add(advantages)
        return ((flat.reshape(len(prompts), -1) - gradient) ** 2).sum(axis=1)

    return errors


def _block(task: Task, size: int, statistic: Statistic) -> Block:
    """Return the block that draws by comparison with the distribution function."""
    law, scale = task.point, 1.0 / (task.batch_size * (task.group_size - 1.0))
    cumulative = jnp.float32(np.cumsum(law.outcome_probabilities, axis=1)[:, :-1])
    prompt_cumulative = jnp.float32(np.cumsum(task.problem.bandit.prompt_weights)[:-1])
    rewards, responses = jnp.float32(law.rewards[0]), jnp.int32(law.outcome_responses)

    def block(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key)
        prompts = jnp.searchsorted(prompt_cumulative, jax.random.uniform(keys[0], (size, task.batch_size)), side="right")
        uniforms = jax.random.uniform(keys[1], (size, task.batch_size, task.group_size))
        outcomes = (uniforms[..., None] >= cumulative[prompts][:, :, None, :]).sum(axis=-1)
        z = rewards[outcomes]
        return state, statistic(prompts, responses[outcomes], scale * (z - z.mean(axis=-1, keepdims=True)))

    return block


def rivals(task: Task) -> list[Contender]:
    """Return the variants; which is fastest depends on the task."""
    size = BLOCK_RESPONSES // task.batch_responses
    statistics = {
        "scatter": _through_inner_products(task, _by_scatter(task)),
        "masks": _through_inner_products(task, _by_mask(task)),
    }
    if task.is_tabular:
        statistics["direct scatter"] = _direct(task)
    return [contender(f"JAX, {name}", task, size, _block(task, size, each)) for name, each in statistics.items()]
