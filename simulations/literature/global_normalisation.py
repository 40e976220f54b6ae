"""REINFORCE++ (arXiv 2501.03262): dividing by the batch's deviation in place of the group's, exact for rewards of 0 and 1.

A group with c right of G adds c (G - c)/G to the batch's sum of squares. The law of this sum is a convolution over the groups.
In the controls the group's own deviation divides, or the advantage is centred alone.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check
from simulations.literature.drawn import over
from simulations.statements import stated


def astray(rates, group_size, batch_size):
    """Return the part of the mean update that is not along the gradient, relative to the part that is; one logit a prompt.

    E[c (G - c)/G^2 over the batch's deviation]/(p (1 - p)) multiplies each prompt's grad p.
    """
    right = np.arange(group_size + 1)
    from scipy.stats import binom  # slow to import

    law, squares = binom.pmf(right, group_size, rates[:, None]), right * (group_size - right)
    one, rest = np.bincount(squares, weights=law.mean(axis=0)), np.ones(1)
    for _ in range(batch_size - 1):
        rest = np.convolve(rest, one)
    total = squares[:, None] + np.arange(rest.size)
    deviations = np.sqrt(np.maximum(total, 1) / (batch_size * group_size**2))
    gradient = rates * (1.0 - rates)
    update = (law * squares / group_size**2) @ (np.where(total > 0, 1.0 / deviations, 0.0) @ rest) / gradient * gradient
    along = (update @ gradient) / (gradient @ gradient)
    return float(np.linalg.norm(update - along * gradient) / np.linalg.norm(along * gradient))


@check(
    stated("reinforce++/local"),
    cases=over(group_size=(2, 3, 4, 16, 64)),
    broken={"kernel": "rloo"},
    setting="G = {group_size}",
)
def local(group_size, kernel="grpo"):
    """The mean advantage of both rewards, and what it estimates, at four success rates."""
    rates = np.array([0.02, 0.3, 0.5, 0.9])
    law = np.stack([1.0 - rates, rates], axis=-1)
    found, meant = (gt.exact.mean_advantages(kernel, [0.0, 1.0], law, group_size=size) for size in (group_size, np.inf))
    return np.abs(found), np.abs(meant)


@check(
    stated("reinforce++/vanishes"),
    cases=over(draw=range(3), group_size=(4, 8)),
    broken={"whole_batch": False},
    setting="draw {draw}, G = {group_size}",
)
def vanishes(group_size, rng, whole_batch=True):
    """The slope over batch sizes."""
    rates = rng.uniform(0.05, 0.95, size=4)
    batches = np.array([32, 64, 128, 256])
    parts = [astray(rates, group_size, size if whole_batch else 1) for size in batches]
    return log_log_slope(batches, parts)[0], -1.0


@check(
    *stated("reinforce++/below the group", "reinforce++/monotone"),
    cases=over(draw=range(3), group_size=(4, 8, 16)),
    broken={"share": 0.3},
    setting="draw {draw}, G = {group_size}",
)
def smaller(group_size, rng, share=1.0):
    """The part that is astray, from one group to sixteen; in the broken case a doubled batch leaves three tenths."""
    rates = rng.uniform(0.02, 0.98, size=4)
    parts = np.array([astray(rates, group_size, size) for size in (1, 2, 4, 8, 16)])
    return {
        "reinforce++/below the group": (parts[1], share * parts[0]),
        "reinforce++/monotone": (parts[1:], share * parts[:-1]),
    }


@check(
    stated("reinforce++/groups of two and three"),
    cases=over(draw=range(3), group_size=(2, 3)),
    broken={"group_size": 4},
    setting="draw {draw}, G = {group_size}",
)
def unbiased(group_size, rng):
    """Every mixed group has the same deviation there."""
    rates = rng.uniform(0.02, 0.98, size=4)
    return [astray(rates, group_size, size) for size in (1, 2, 8)], np.zeros(3)
