"""What is read off SmolLM2's sampled answers, for all of its parameters and for its head alone: numbers, and their errors."""

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.data import sampled_answers
from grpo_theory.intervals.u_statistics import prompt_gradients
from simulations.gradient.sampled_terms import (
    ANOTHERS,
    TENFOLD,
    Means,
    Sample,
    Scores,
    components,
    noise,
    proxy_correlation,
    within_correlation,
)

ALL, HEAD, BOTH = "all parameters", "head", "head beside all parameters"
UNCENTRED = "head, uncentred"
"""A broken head: scores with a common part, whose square is three times the mean of theirs, so that c3 is fourfold."""
GROUP_SIZES = (4, 8, 16, 32, 64)
NEAR_ORTHOGONAL = 0.1
BLOCKS = 4
WRONG_SIGN = "value, wrong sign"
EVERY = "all kinds"
"""Of the questions."""

Key = tuple[str, str, int]
"""Gradient, quantity, and group size, 0 where it has none."""


def scores_of(gradient: str, questions: str = EVERY, block: int | None = None) -> Scores:
    """Return the shipped scores of all questions or of a kind; of the sketches one block by itself if it is asked for."""
    data = sampled_answers()
    kept = np.ones(len(data.kinds), dtype=bool) if questions == EVERY else data.kinds == data.kind_names.index(questions)
    if gradient == HEAD:
        return Scores(data.rewards, data.head, data.index[kept], exact=True)
    if gradient == UNCENTRED:
        common = np.sqrt(3.0 * (data.head**2).sum(axis=1)[data.index].mean())
        scores = np.column_stack([data.head, np.full(len(data.head), common)])
        return Scores(data.rewards, scores, data.index[kept], exact=True)
    blocks = data.sketches if block is None else np.sqrt(BLOCKS) * np.split(data.sketches, BLOCKS, axis=1)[block]
    return Scores(data.rewards, blocks, data.index[kept], exact=False)


def statistics(means: dict[str, Means]) -> dict[Key, Array]:
    """Return what is read off the means of each gradient's terms."""
    values: dict[Key, Array] = {}
    for name, own in means.items():
        c1, c2, c3 = components(own)
        values |= {(name, quantity, 0): value for quantity, value in (("c1", c1), ("c2", c2), ("c3", c3))}
        values[name, "log c3/c1", 0] = np.log(c3 / c1)
        for size in GROUP_SIZES:
            by = noise(own, size)
            for other in ("none", "value", "optimal"):
                values[name, f"leave-one-out against {other}", size] = by["leave-one-out"] / by[other] - 1.0
            values[name, "means of pairs against value", size] = by["means of pairs"] / by["value"] - 1.0
        for one, other in (
            ("value", "optimal"),
            ("value", "none"),
            ("none", "optimal"),
            (WRONG_SIGN, "none"),
            (WRONG_SIGN, "optimal"),
        ):
            values[name, f"{one} against {other}", 0] = by[one] / by[other] - 1.0
        for suffix in ("", TENFOLD):
            values[name, f"correlation of ||W||^2 and Z{suffix}", 0] = within_correlation(own, suffix)
    for head in (HEAD, UNCENTRED):
        apart = values[head, "log c3/c1", 0] - values[ALL, "log c3/c1", 0]
        values[BOTH, f"log (G* - 1), {head}", 0] = apart / 2.0
    values[BOTH, "share of ||W||^2", 0] = means[HEAD]["P"] / means[ALL]["P"]
    return values | proxies(means)


def proxies(means: dict[str, Means]) -> dict[Key, Array]:
    """Return the correlations over prompts of the reward's variance and the curvature, its own or, broken, another's."""
    correlations: dict[Key, Array] = {}
    for name in (ALL, HEAD):
        own = means[name]
        correlations |= {
            (name, "Fisher, trace", 0): proxy_correlation(own),
            (name, "Fisher, trace, another's", 0): proxy_correlation(own, ANOTHERS),
        }
    return correlations


def cosines(scores: Scores, known: Integers) -> dict[str, Array]:
    """Return matrices (K, K) over pairs of some prompts: cosines, those with a common part, their squares, and whether below 0.1.

    The noise in the lengths is removed. Squares are products of two estimates, one from each half of the responses and of the
    sketch, so they have no noise of their own. In the control all gradients have a part in common, half as long as they are.
    """
    sample = Sample.of(scores)
    lengths = np.sqrt(sample.terms["power"][known])
    scale = np.outer(lengths, lengths)
    whole = sample.products[np.ix_(known, known)] / scale
    parts = []
    for half, responses in enumerate(np.split(scores.answers[known], 2, axis=1)):
        rewards, some = scores.of(responses)
        if not scores.exact:
            some = np.sqrt(2.0) * np.split(some, 2, axis=-1)[half]
        gradients = prompt_gradients(gt.Rollouts(rewards, some))
        parts.append(gradients @ gradients.T / scale)
    matrices = {"cosine": whole, "squared cosine": parts[0] * parts[1]}
    for name, of_pairs in (("", whole), (", a common part", (0.25 + whole) / 1.25)):
        matrices[f"share below 0.1{name}"] = (np.abs(of_pairs) < NEAR_ORTHOGONAL).astype(np.float64)
    return matrices


def of_responses(without: Array) -> dict[str, float]:
    """Return the standard error given the prompts, from an estimate without each response (B, G), and its degrees of freedom.

    Responses are draws within their prompts, so the variances of prompts add up. Satterthwaite's number of degrees of freedom
    says how many prompts share in the sum.
    """
    group_size = without.shape[1]
    variances = (group_size - 1.0) * without.var(axis=1)
    total = float(variances.sum())
    freedom = total**2 / float((variances**2).sum()) * (group_size - 1.0) if total > 0.0 else 1.0
    return {"response_error": float(np.sqrt(total)), "freedom": freedom}
