"""Classes of outcomes that a kernel cannot tell apart.

A kernel that reads only rewards gives two responses with equal rewards equal advantages.  Given the number of responses of
each class in a group, the scores are independent draws from the classes' conditional laws; so the multisets of classes
suffice for exact expectations, and with binary rewards there are G + 1 of them whatever the number of responses K.
"""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import RESPONSE_FIELDS
from grpo_theory.exact.outcomes import Outcomes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Classes:
    """The R classes of one prompt's outcomes, all of positive probability.

    Attributes
    ----------
    probabilities : ndarray, shape (R,)
    responses : ndarray, shape (R, K)
        P(response | class).
    rewards, squared_score_norms : ndarray, shape (R,)
        What a kernel sees of a member; NaN for a field that it does not read.
    """

    probabilities: Array
    responses: Array
    rewards: Array
    squared_score_norms: Array


def classes(table: Outcomes, prompt: int, reads: Set[str]) -> Classes:
    """Partition the outcomes of one prompt by the response fields in `reads`."""
    possible = table.probabilities[prompt] > 0.0
    p = table.probabilities[prompt, possible]
    responses = table.responses[possible]
    fields = {
        "rewards": table.rewards[prompt, possible],
        "squared_score_norms": table.squared_score_norms[prompt, responses],
        "lengths": np.ones(p.size),
    }
    seen = np.stack([fields[name] if name in reads else np.zeros(p.size) for name in RESPONSE_FIELDS])
    kinds, member = np.unique(seen, axis=1, return_inverse=True)
    member = member.reshape(-1)
    kinds[[name not in reads for name in RESPONSE_FIELDS]] = np.nan
    q = np.zeros(kinds.shape[1])
    np.add.at(q, member, p)
    conditional = np.zeros((kinds.shape[1], table.policy_probabilities.shape[1]))
    np.add.at(conditional, (member, responses), p)
    return Classes(
        probabilities=q,
        responses=conditional / q[:, None],
        rewards=kinds[0],
        squared_score_norms=kinds[1],
    )
