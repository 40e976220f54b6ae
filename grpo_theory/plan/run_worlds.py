"""Worlds in which a whole run is tried: they start at the log's success rates, and differ in what rewards do not show."""

from typing import NamedTuple

import numpy as np

from grpo_theory.laboratory.prompt_features import Sharing, graded_features, graded_logits
from grpo_theory.problem import Bandit, LinearSoftmax, Problem, TabularSoftmax
from grpo_theory.validation import Array

SEED = 20261127
FROZEN = 1e3
"""Logits of the start are a feature, divided by this, times a parameter that begins here: it hardly learns."""


class RunWorld(NamedTuple):
    """How prompts and right answers share parameters: what rewards alone do not tell.

    Attributes
    ----------
    title : str
        What it is, in the words of the planner.
    roominess : float
        The dimension of the features that all prompts share, over the number of prompts. 0 is a table, in which no prompt
        touches another. Below 1 no parameter solves all prompts.
    answers, right : int
        Of each prompt, and how many of them are right.
    coherence, transfer, misled : float
        As in `grpo_theory.laboratory.prompt_features.Sharing`.
    """

    title: str
    roominess: float = 1.0
    answers: int = 8
    right: int = 1
    coherence: float = 0.0
    transfer: float = 0.0
    misled: float = 0.0

    def problem(self, rates: Array, draw: int = 0) -> Problem:
        """Return the problem whose prompts start at success rates, shape (M,), the largest first."""
        return self.graded(np.array([0.0, 1.0]), np.stack([1.0 - rates, rates], axis=-1), draw)

    def graded(self, values: Array, shares: Array, draw: int = 0) -> Problem:
        """Return the problem of graded rewards whose prompts start at given laws of them.

        Of the answers `right` have the greatest reward, one has each reward between, and all others have the least.

        Parameters
        ----------
        values : ndarray, shape (L,)
            From 0 to 1, ascending; fewer than `answers` less `right`, plus 2.
        shares : ndarray, shape (M, L)
            Of each prompt's responses, above 0; prompts with the largest mean reward first.
        draw : int, default 0
            The number of the draw of features and starting logits; the planner's own worlds are draw 0.

        Returns
        -------
        Problem
        """
        rng, (count, size) = np.random.default_rng((SEED, draw)), shares.shape
        order = np.maximum(size - 1 - np.maximum(np.arange(self.answers) - self.right + 1, 0), 0)
        levels = np.broadcast_to(order, (count, self.answers))
        logits = graded_logits(shares, levels, rng)
        bandit = Bandit.from_law(values, np.eye(size)[levels])
        if not self.roominess:
            return Problem(bandit, TabularSoftmax(count, self.answers), theta=logits.reshape(-1))
        sharing = Sharing(max(round(self.roominess * count), 2), self.coherence, self.transfer, self.misled)
        features = np.concatenate([graded_features(values[levels], sharing, rng), logits[..., None] / FROZEN], axis=-1)
        theta = np.zeros(sharing.dimension + 1)
        theta[-1] = FROZEN
        return Problem(bandit, LinearSoftmax(features), theta=theta)


WORLDS: tuple[RunWorld, ...] = (
    RunWorld("prompts do not touch each other", roominess=0.0),
    RunWorld("prompts share parameters, with room for all"),
    RunWorld("prompts compete for few parameters", roominess=0.25),
    RunWorld("prompts teach each other", transfer=0.1),
    RunWorld("easy prompts mislead the hard ones", transfer=0.1, misled=0.25),
    RunWorld("right answers are several and alike", right=2, coherence=0.9),
    RunWorld("right answers are several and compete", right=2),
)
"""The dials of the study of whole runs that no log of rewards shows, one at a time."""
