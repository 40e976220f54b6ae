"""The routes of estimators that are worked out one by one: from counted groups, by pushes of responses, to parts of estimates."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator
from grpo_theory.exact.table import AdvantageTable
from grpo_theory.lanes import WIDTH, zeros
from grpo_theory.simulate.book import Book
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
class FirstsRoute:
    """One estimator whose kernel is shown every response, with binary rewards; responses are one token that weighs its advantage.

    Attributes
    ----------
    estimators : list of one Estimator
    n_logits : int
    kernel : compiled function
    shown : Shown
    expected : Lookup
        The expected numbers (M, K) of the responses.
    rounding : tuple of two floats
        See `rounding_of`.
    at_once : int
        How many groups the kernel is given at once.
    """

    estimators: list[Estimator]
    n_logits: int
    kernel: Any
    shown: Shown
    expected: Lookup
    rounding: tuple[float, float]
    at_once: int

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
        counts, group_size = panel.counts, panel.group_size
        seen = make_batch(self.at_once, group_size, self.estimators[0].advantage.parameter_array)
        advantages = scratch.array("seen", self.at_once, group_size)
        firsts, deviations, parts, room = scratch.made("firsts", self._make_room, panel)
        compiled_fill_firsts()(self.kernel, self.shown, counts, seen, advantages, firsts, deviations)
        compiled_fill_contrasts_of_firsts()(
            self.expected, counts, float(group_size), self.rounding, firsts, deviations, room, parts
        )
        return [parts]

    def _make_room(self, panel: Panel) -> tuple[Array, Array, Parts, Array]:
        """Make room for what the kernel gives a panel, and for its parts."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        n_vectors = n_strips * VECTORS
        firsts, deviations = (zeros(n_strips, batch_size, n, STRIP) for n in (2, self.n_logits))
        weights = zeros(n_vectors, batch_size, 3, WIDTH)
        weights[:, :, 2] = 1.0
        parts = make_parts(make_rows(n_vectors, 3 * batch_size, self.n_logits), weights, np.arange(3)[None], np.arange(3))
        return firsts, deviations, parts, zeros(self.expected.rows.shape[1], WIDTH)


@dataclass(frozen=True, eq=False)
class PushRoute:
    """One estimator, of any kind.

    Attributes
    ----------
    estimators : list of one Estimator
    n_logits : int
    kernel : compiled function
    shown : Shown
    weighing : Weighing
    table : AdvantageTable or None
        The kernel's, if it has one.
    book : Book or None
        The same over G.
    in_order : bool
        Whether the kernel is shown the responses in the order drawn, because it does not treat them alike.
    at_once : int
        How many groups the kernel is given at once.
    """

    estimators: list[Estimator]
    n_logits: int
    kernel: Any
    shown: Shown
    weighing: Weighing
    table: AdvantageTable | None
    book: Book | None
    in_order: bool
    at_once: int

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
        compiled_fill_covectors_of_pushes()(self.weighing, panel.group_size, panel.counts, pushes, tokens, found)
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
        parameters = self.estimators[0].advantage.parameter_array
        seen = make_batch(self.at_once, panel.group_size, parameters)
        room = seen, scratch.array("seen", self.at_once, panel.group_size), found
        if self.in_order:
            responses = np.repeat(np.arange(self.shown.n_responses), n_outcomes // self.shown.n_responses)
            compiled_fill_ordered_pushes()(self.kernel, self.shown, counts.prompts, panel.ordered, responses, *room)
        else:
            compiled_fill_pushes()(self.kernel, self.shown, counts, *room)
        return found
