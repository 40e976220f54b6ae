"""The routes of estimators that are worked out one by one: from counted groups, by pushes of responses, to parts of estimates."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.simulate.advantage.called import compiled_fill_firsts
from grpo_theory.simulate.advantage.sources import Called, Source
from grpo_theory.simulate.covector.combinations import Parts, make_parts, make_rows, whole
from grpo_theory.simulate.covector.contrasts import compiled_fill_contrasts_of_firsts
from grpo_theory.simulate.covector.tabulated import make_covectors
from grpo_theory.simulate.covector.token_weights import Weighing, compiled_fill_covectors_of_pushes
from grpo_theory.simulate.draw.batches import Panel, Scratch
from grpo_theory.simulate.draw.generator import LANES, VECTORS
from grpo_theory.simulate.draw.prompt_tables import Lookup


@dataclass(frozen=True, eq=False)
class OwnRoute:
    """One estimator.

    Attributes
    ----------
    estimators : list of one Estimator
    n_logits, group_size : int
    rewards : ndarray, shape (M, O)
        Of the outcomes, as the kernel sees them.
    source : Source
        Where its advantages come from.
    """

    estimators: list[Estimator]
    n_logits: int
    group_size: int
    rewards: Array
    source: Source

    @property
    def in_order(self) -> bool:
        """Whether the kernel asks for the responses in the order drawn."""
        return self.source.in_order


@dataclass(frozen=True, eq=False)
class FirstsRoute(OwnRoute):
    """One whose kernel is shown every response, with binary rewards; responses are one token that weighs its advantage.

    If equal rewards of a group have equal advantages, the estimates are bit for bit those of a table.

    Attributes
    ----------
    expected : Lookup
        The expected numbers (M, K) of the responses.
    rounding : tuple of two floats
        See `rounding_of`.
    """

    source: Called
    expected: Lookup
    rounding: tuple[float, float]

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group."""
        return 4 * self.n_logits

    def compile(self) -> None:
        """Compile what the route needs."""
        compiled_fill_firsts()
        compiled_fill_contrasts_of_firsts()

    def parts(self, panel: Panel, scratch: Scratch) -> list[Parts]:
        """Return the parts of the estimator's estimates."""
        counts, size, source = panel.counts, float(self.group_size), self.source
        firsts, deviations, parts, room = scratch.made("firsts", self._make_room, panel)
        compiled_fill_firsts()(source.kernel, source.shown, counts, source.room(scratch), firsts, deviations)
        compiled_fill_contrasts_of_firsts()(self.expected, counts, size, self.rounding, firsts, deviations, room, parts)
        return [parts]

    def _make_room(self, panel: Panel) -> tuple[Array, Array, Parts, Array]:
        """Make room for what the kernel gives a panel, and for its parts."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        n_vectors = n_strips * VECTORS
        firsts, deviations = (zeros(n_strips, batch_size, n, LANES) for n in (2, self.n_logits))
        weights = zeros(n_vectors, batch_size, 3, WIDTH)
        weights[:, :, 2] = 1.0
        parts = make_parts(make_rows(n_vectors, 3 * batch_size, self.n_logits), weights, np.arange(3)[None])
        return firsts, deviations, parts, zeros(self.expected.rows.shape[1], WIDTH)


@dataclass(frozen=True, eq=False)
class PushRoute(OwnRoute):
    """One of any kind.

    Attributes
    ----------
    weighing : Weighing
    """

    weighing: Weighing

    def compile(self) -> None:
        """Compile what the route needs."""
        self.source.compile()
        compiled_fill_covectors_of_pushes()

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group."""
        return self.n_logits

    def parts(self, panel: Panel, scratch: Scratch) -> list[Parts]:
        """Return the estimator's estimates."""
        pushes = self.pushes(panel, scratch)
        found, parts = scratch.made("pushed", self._make_room, panel)
        tokens = scratch.array("here", self.weighing.tokens.rows.shape[1], WIDTH)
        compiled_fill_covectors_of_pushes()(self.weighing, self.group_size, panel.counts, pushes, tokens, found)
        return parts

    def _make_room(self, panel: Panel) -> tuple[Array, list[Parts]]:
        """Make room for the covectors of a panel."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        found = make_covectors(1, n_strips, batch_size, self.n_logits)
        return found, [whole(rows, batch_size) for rows in found]

    def pushes(self, panel: Panel, scratch: Scratch) -> Array:
        """Return the pushes of the responses, shape (S, B, n_signs K, LANES)."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        n_responses, n_signs = self.weighing.gains.shape[:2]
        found = scratch.array("pushes", n_strips, batch_size, n_signs * n_responses, LANES)
        self.source.fill(panel, scratch, found)
        return found
