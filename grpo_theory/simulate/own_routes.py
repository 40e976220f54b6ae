"""The routes of estimators that are worked out one by one: from counted groups, by pushes of responses, to parts of estimates."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact.table import AdvantageTable
from grpo_theory.lanes import WIDTH, zeros
from grpo_theory.simulate.book import Book, make_book
from grpo_theory.simulate.choice import Lookup
from grpo_theory.simulate.contrasts import compiled_fill_contrasts_of_firsts
from grpo_theory.simulate.covectors import make_covectors
from grpo_theory.simulate.panel import Panel, Scratch
from grpo_theory.simulate.parts import Parts, make_parts, make_rows, whole
from grpo_theory.simulate.pushes import Weighing, compiled_fill_covectors_of_pushes, compiled_fill_pushes_by_book
from grpo_theory.simulate.show import make_batch
from grpo_theory.simulate.shown import Shown, compiled_fill_firsts, compiled_fill_ordered_pushes, compiled_fill_pushes
from grpo_theory.simulate.strip import STRIP, VECTORS


@dataclass(frozen=True, eq=False)
class OwnRoute:
    """One estimator, whose kernel may be shown every response.

    Attributes
    ----------
    estimators : list of one Estimator
    n_logits, group_size : int
    kernel : compiled function
    shown : Shown
    at_once : int
        How many groups the kernel is given at once.
    """

    estimators: list[Estimator]
    n_logits: int
    group_size: int
    kernel: Any
    shown: Shown
    at_once: int

    def seen(self, scratch: Scratch) -> tuple[Batch, Array]:
        """Return room for the groups that the kernel is shown at once, and for their advantages."""
        parameters = self.estimators[0].advantage.parameter_array
        return make_batch(self.at_once, self.group_size, parameters), scratch.array("seen", self.at_once, self.group_size)


@dataclass(frozen=True, eq=False)
class FirstsRoute(OwnRoute):
    """One whose kernel is shown every response, with binary rewards; responses are one token that weighs its advantage.

    Attributes
    ----------
    expected : Lookup
        The expected numbers (M, K) of the responses.
    rounding : tuple of two floats
        See `rounding_of`.
    """

    expected: Lookup
    rounding: tuple[float, float]

    in_order = False

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
        counts, size = panel.counts, float(self.group_size)
        firsts, deviations, parts, room = scratch.made("firsts", self._make_room, panel)
        compiled_fill_firsts()(self.kernel, self.shown, counts, *self.seen(scratch), firsts, deviations)
        compiled_fill_contrasts_of_firsts()(self.expected, counts, size, self.rounding, firsts, deviations, room, parts)
        return [parts]

    def _make_room(self, panel: Panel) -> tuple[Array, Array, Parts, Array]:
        """Make room for what the kernel gives a panel, and for its parts."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        n_vectors = n_strips * VECTORS
        firsts, deviations = (zeros(n_strips, batch_size, n, STRIP) for n in (2, self.n_logits))
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
    table : AdvantageTable or None
        The kernel's, if it has one.
    in_order : bool
        Whether the kernel is shown the responses in the order drawn, because it does not treat them alike.
    """

    weighing: Weighing
    table: AdvantageTable | None
    in_order: bool

    @cached_property
    def book(self) -> Book | None:
        """The table over G."""
        return None if self.table is None else make_book(self.table, self.group_size)

    def compile(self) -> None:
        """Compile what the route needs."""
        (compiled_fill_pushes_by_book if self.book else compiled_fill_ordered_pushes if self.in_order else compiled_fill_pushes)()
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
        """Return the pushes of the responses, shape (S, B, n_signs K, STRIP)."""
        counts, n_signs = panel.counts, self.shown.n_signs
        n_strips, batch_size, n_outcomes, _ = counts.outcomes.shape
        found = scratch.array("pushes", n_strips, batch_size, n_signs * self.shown.n_responses, STRIP)
        if self.book is not None:
            advantages = scratch.array("advantages", self.book.advantages.shape[1], WIDTH)
            compiled_fill_pushes_by_book()(self.book, counts, n_signs, advantages, found)
            return found
        room = *self.seen(scratch), found
        if self.in_order:
            responses = np.repeat(np.arange(self.shown.n_responses), n_outcomes // self.shown.n_responses)
            compiled_fill_ordered_pushes()(self.kernel, self.shown, counts.prompts, panel.ordered, responses, *room)
        else:
            compiled_fill_pushes()(self.kernel, self.shown, counts, *room)
        return found
