"""Classes of outcomes that a kernel cannot tell apart.

A kernel that reads only rewards gives two responses with equal rewards equal advantages.  Given the number of responses of
each class in a group, the scores are independent draws from the classes' conditional laws; so the multisets of classes
suffice for exact expectations, and with binary rewards there are G + 1 of them whatever the number of responses K.
"""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation.kernel import RESPONSE_FIELDS
from grpo_theory.exact.seen import Seen
from grpo_theory.problem import Point


@dataclass(frozen=True)
class Classes:
    """The R classes of one prompt's outcomes, all of positive probability.

    Attributes
    ----------
    probabilities : ndarray, shape (R,)
    responses : ndarray, shape (R, K)
        P(response | class).
    fields : ndarray, shape (3, R)
        What a kernel sees of a member: reward, squared score norm and length; NaN for a field that it does not read.
    """

    probabilities: Array
    responses: Array
    fields: Array


def classes(point: Point, seen: Seen, prompt: int, reads: Set[str]) -> Classes:
    """Partition the outcomes of one prompt, drawn at a point, by the response fields in `reads`."""
    possible = point.outcome_probabilities[prompt] > 0.0
    p = point.outcome_probabilities[prompt, possible]
    responses = point.outcome_responses[possible]
    fields = (seen.rewards[prompt, possible], seen.squared_score_norms[prompt, responses], seen.lengths[responses])
    unread = [name not in reads for name in RESPONSE_FIELDS]
    shown = np.stack([np.zeros(p.size) if hidden else field for field, hidden in zip(fields, unread, strict=True)])
    kinds, member = np.unique(shown, axis=1, return_inverse=True)
    member = member.reshape(-1)
    kinds[unread] = np.nan
    q = np.zeros(kinds.shape[1])
    np.add.at(q, member, p)
    conditional = np.zeros((kinds.shape[1], point.policy.n_responses))
    np.add.at(conditional, (member, responses), p)
    return Classes(probabilities=q, responses=conditional / q[:, None], fields=kinds)
