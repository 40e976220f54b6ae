"""The routes of estimators whose kernels are tables and whose responses are one token: from counts to parts of estimates."""

from dataclasses import dataclass

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.simulate.advantage.tables import Book
from grpo_theory.simulate.covector.combinations import Parts, make_parts, make_rows, whole
from grpo_theory.simulate.covector.contrasts import Contrasts, compiled_fill_contrasts
from grpo_theory.simulate.covector.tabulated import CovectorRoom, compiled_fill_covectors, make_covectors
from grpo_theory.simulate.draw.batches import Panel, Scratch
from grpo_theory.simulate.draw.generator import VECTORS
from grpo_theory.simulate.draw.prompt_tables import Lookup


@dataclass(frozen=True, eq=False)
class ContrastRoute:
    """Estimators whose kernels are tables, with binary rewards, and whose responses are one token that weighs its advantage."""

    estimators: list[Estimator]
    n_logits: int
    expected: Lookup
    contrasts: Contrasts
    columns: Integers

    in_order = False

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group."""
        return self.columns.shape[1] * self.n_logits + self.contrasts.n_columns

    def compile(self) -> None:
        """Compile what the route needs."""
        compiled_fill_contrasts()

    def parts(self, panel: Panel, scratch: Scratch) -> list[Parts]:
        """Return the parts of the estimates of all estimators together."""
        parts, room = scratch.made("contrasts", self._make_room, panel)
        compiled_fill_contrasts()(self.expected, self.contrasts, panel.counts, room, parts)
        return [parts]

    def _make_room(self, panel: Panel) -> tuple[Parts, Array]:
        """Make room for the parts of a panel."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        n_vectors = n_strips * VECTORS
        rows = make_rows(n_vectors, batch_size * self.columns.shape[1], self.n_logits)
        weights = zeros(n_vectors, batch_size, self.contrasts.n_columns, WIDTH)
        return make_parts(rows, weights, self.columns), zeros(self.expected.rows.shape[1], WIDTH)


@dataclass(frozen=True, eq=False)
class TableRoute:
    """Estimators whose kernels are tables, with other rewards, and whose responses are one token that weighs its advantage."""

    estimators: list[Estimator]
    n_logits: int
    tokens: Lookup
    book: Book

    in_order = False

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group."""
        return len(self.estimators) * self.n_logits

    def compile(self) -> None:
        """Compile what the route needs."""
        compiled_fill_covectors()

    def parts(self, panel: Panel, scratch: Scratch) -> list[Parts]:
        """Return the estimates of one estimator after another."""
        found, room, parts = scratch.made("table", self._make_room, panel)
        compiled_fill_covectors()(self.tokens, self.book, panel.counts, room, found)
        return parts

    def _make_room(self, panel: Panel) -> tuple[Array, CovectorRoom, list[Parts]]:
        """Make room for the covectors of a panel."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        advantages, here = zeros(self.book.advantages.shape[1], WIDTH), zeros(self.tokens.rows.shape[1], WIDTH)
        found = make_covectors(len(self.estimators), n_strips, batch_size, self.n_logits)
        return found, CovectorRoom(advantages, here), [whole(rows, batch_size) for rows in found]
