"""What is read off SmolLM2's sampled answers, for all of its parameters and for its head alone: numbers, and their errors."""

import numpy as np

import grpo_theory as gt
from grpo_theory.data import sampled_answers
from grpo_theory.intervals.rollout_intervals import prompt_gradients
from simulations.gradient import sampled_terms as terms
from simulations.gradient.sampled_terms import ANOTHERS, TENFOLD, Sample, Scores

ALL, HEAD, BOTH = "all parameters", "head", "head beside all parameters"
UNCENTRED = "head, uncentred"
"""A broken head: scores with a common part, whose square is three times the mean of theirs, so that c3 is fourfold."""
GROUP_SIZES = (4, 8, 16, 32, 64)
NEAR_ORTHOGONAL = 0.1
BLOCKS = 4
WRONG_SIGN = "value, wrong sign"
EVERY = "all kinds"
"""Of the questions."""


def scores_of(gradient, questions=EVERY, block=None):
    """Return the shipped scores of all questions or of a kind; of the sketches one block by itself if it is asked for."""
    data = sampled_answers()
    index = data.index if questions == EVERY else data.index[data.kinds == data.kind_names.index(questions)]
    if gradient == ALL:
        blocks = data.sketches if block is None else np.sqrt(BLOCKS) * np.split(data.sketches, BLOCKS, axis=1)[block]
        return Scores(data.rewards, blocks, index, exact=False)
    common = np.sqrt(3.0 * (data.head**2).sum(axis=1)[data.index].mean())
    uncentred = np.column_stack([data.head, np.full(len(data.head), common)])
    return Scores(data.rewards, data.head if gradient == HEAD else uncentred, index, exact=True)


def statistics(means):
    """Return what is read off the means of each gradient's terms, by gradient, quantity, and group size, 0 where it has none."""
    values, logs = proxies(means), {}
    for name, own in means.items():
        c1, c2, c3 = terms.components(own)
        logs[name] = np.log(c3 / c1)
        values |= {(name, quantity, 0): value for quantity, value in (("c1", c1), ("c2", c2), ("c3", c3))}
        compared = [(one, other, 0) for one in ("value", WRONG_SIGN) for other in ("none", "optimal")]
        for size in GROUP_SIZES:
            compared += [(one, "value", size) for one in ("leave-one-out", "means of pairs")] + [("leave-one-out", "none", size)]
        for one, other, size in compared:
            by = terms.noise(own, size or 2)
            values[name, f"{one} against {other}", size] = by[one] / by[other] - 1.0
        for suffix in ("", TENFOLD):
            values[name, f"correlation of ||W||^2 and Z{suffix}", 0] = terms.within_correlation(own, suffix)
    values |= {(BOTH, f"log (G* - 1), {head}", 0): (logs[head] - logs[ALL]) / 2.0 for head in (HEAD, UNCENTRED)}
    return values | {(BOTH, "share of ||W||^2", 0): means[HEAD]["P"] / means[ALL]["P"]}


def proxies(means):
    """Return the correlations over prompts of the reward's variance and the curvature, its own or, broken, another's."""
    products = {"Fisher, trace": "variance P", "Fisher, trace, another's": ANOTHERS}
    return {
        (name, quantity, 0): terms.proxy_correlation(means[name], product)
        for name in (ALL, HEAD)
        for quantity, product in products.items()
    }


def cosines(scores, known):
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


def of_responses(without):
    """Return the standard error given the prompts, from an estimate without each response (B, G), and its degrees of freedom.

    Responses are draws within their prompts, so the variances of prompts add up. Satterthwaite's number of degrees of freedom
    says how many prompts share in the sum.
    """
    group_size = without.shape[1]
    variances = (group_size - 1.0) * without.var(axis=1)
    total = float(variances.sum())
    freedom = total**2 / float((variances**2).sum()) * (group_size - 1.0) if total > 0.0 else 1.0
    return {"response_error": float(np.sqrt(total)), "freedom": freedom}
