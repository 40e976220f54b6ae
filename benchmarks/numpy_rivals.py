"""Two rivals in vectorised NumPy that see every response: one as fast as that gets, and the one that a textbook would print."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.task import SEED, Estimate, Task
from benchmarks.timing import Contender
from grpo_theory.simulate.draw.prompt_tables import alias_rows

ROUND_CHUNKS = 64


def contender(name: str, task: Task, size: int, errors: Callable[[np.random.Generator], NDArray[Any]]) -> Contender:
    """Run chunks of so many replications one after the other; the answer is checked at every run."""
    generator = np.random.Generator(np.random.SFC64(SEED))
    chunks = max(1, min(ROUND_CHUNKS, (1 << 20) // (size * task.batch_responses)))

    def run(rounds: int) -> None:
        squared = np.concatenate([errors(generator) for _ in range(rounds * chunks)]).astype(np.float64)
        task.check(name, Estimate(float(squared.mean()), float(squared.std(ddof=1) / np.sqrt(squared.size))))

    return Contender(name, run, chunks * size * task.batch_responses)


Array = NDArray[np.float64]
Integers = NDArray[np.int64]

TUNED_CHUNK = 1 << 14  # responses; what a chunk touches stays in a second-level cache
TEXTBOOK_NUMBERS = 1 << 19  # numbers in a chunk's array of scores


def alias_tables(laws: Array) -> tuple[Array, Integers]:
    """Return the alias tables of laws (M, O): at place j, j plus the threshold, and what is chosen below it and from it on."""
    places = np.arange(laws.shape[1])
    threshold, other = np.stack([alias_rows(law) for law in laws]).transpose(2, 0, 1)
    choices = np.stack([np.broadcast_to(places, laws.shape), other.astype(np.int64)], axis=2)
    return places + threshold, choices.reshape(len(laws), -1)


def tuned(task: Task) -> Contender:
    """Alias tables read with `take`, buffers and arithmetic in place, a histogram by `bincount`, chunks that fit the cache.

    The tables map a place of an alias table straight to the reward and to the response's column. The histogram of a tabular
    policy is the gradient; a head's goes through the inner products of the hidden states. Others were measured and are slower. On
    the tabular problem at 8 x 16 this takes 11 nanoseconds per response. There `searchsorted` on stacked distribution functions
    takes 28. Comparisons of uniforms with each step of the distribution function take 17, and so do counts of outcomes by
    `bincount`.
    """
    size, (batch_size, group_size) = max(1, TUNED_CHUNK // task.batch_responses), (task.batch_size, task.group_size)
    bandit, law = task.problem.bandit, task.point
    (n_prompts, n_outcomes), n_responses = law.outcome_probabilities.shape, bandit.n_responses
    (prompt_threshold,), (prompt_choices,) = alias_tables(bandit.prompt_weights[None])
    threshold, choices = alias_tables(law.outcome_probabilities)
    threshold = threshold.ravel()
    rewards = np.take_along_axis(law.rewards, choices, axis=1).ravel()
    columns = law.outcome_responses[choices]
    if task.is_tabular:
        columns = columns + n_responses * np.arange(n_prompts)[:, None]
    width = n_prompts * n_responses if task.is_tabular else n_responses
    histograms = size if task.is_tabular else size * batch_size
    columns = columns.ravel()
    starts = width * np.arange(histograms).reshape(size, -1, 1)
    prompt_uniforms, uniforms = np.empty((size, batch_size)), np.empty((size, batch_size, group_size))

    def squared_errors(sums: Array, prompts: Integers) -> Array:
        if task.is_tabular:
            sums -= task.exact.gradient
            return np.einsum("ri,ri->r", sums, sums)
        covectors = sums.reshape(size, batch_size, n_responses)
        products = covectors @ covectors.transpose(0, 2, 1)
        products *= task.inner_products[prompts[:, :, None], prompts[:, None, :]]
        covectors *= task.gradient_logits[prompts]
        powers = products.reshape(size, -1).sum(axis=1)
        return powers - 2.0 * covectors.reshape(size, -1).sum(axis=1) + task.exact.gradient_power

    def errors(generator: np.random.Generator) -> Array:
        x = generator.random(out=prompt_uniforms)
        x *= n_prompts
        entries = x.astype(np.int64)
        prompts = prompt_choices.take(2 * entries + (x >= prompt_threshold.take(entries)))
        x = generator.random(out=uniforms)
        x *= n_outcomes
        entries = x.astype(np.int64)
        entries += n_outcomes * prompts[:, :, None]
        above = x >= threshold.take(entries, mode="clip")
        entries *= 2
        entries += above
        advantages = rewards.take(entries, mode="clip")
        advantages -= advantages.sum(axis=-1, keepdims=True) / group_size
        bins = columns.take(entries, mode="clip")
        bins += starts
        sums = np.bincount(bins.ravel(), advantages.ravel(), minlength=histograms * width) / (batch_size * (group_size - 1.0))
        return squared_errors(sums.reshape(histograms, width), prompts)

    return contender("NumPy, alias tables", task, size, errors)


def textbook(task: Task) -> Contender:
    """Responses by comparison with the distribution function, then rewards, then dense scores contracted by `einsum`."""
    size = max(1, TEXTBOOK_NUMBERS // (task.batch_responses * task.problem.policy.dimension))
    shape = (size, task.batch_size, task.group_size)
    weights = np.cumsum(task.problem.bandit.prompt_weights)[:-1]
    policy = np.cumsum(task.point.probabilities, axis=1)[:, :-1]
    values, law = task.problem.bandit.values, task.problem.bandit.probabilities
    steps = list(zip(np.diff(values), np.moveaxis(np.cumsum(law, axis=2), 2, 0), strict=False))
    scores = task.problem.policy.scores(task.problem.theta)

    def errors(generator: np.random.Generator) -> Array:
        prompts = np.searchsorted(weights, generator.random(shape[:2]), side="right")[:, :, None]
        responses = (generator.random(shape)[..., None] >= policy[prompts]).sum(axis=-1)
        uniforms = generator.random(shape)
        rewards = values[0] + sum(step * (uniforms >= below[prompts, responses]) for step, below in steps)
        others = (rewards.sum(axis=-1, keepdims=True) - rewards) / (task.group_size - 1)
        gradients = np.einsum("rbg,rbgd->rd", rewards - others, scores[prompts, responses]) / task.batch_responses
        return ((gradients - task.exact.gradient) ** 2).sum(axis=1)

    return contender("NumPy, textbook", task, size, errors)
