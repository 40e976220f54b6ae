"""Where the pushes of an estimator come from: its table, its coefficients, or its kernel, which is shown every response."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grpo_theory.arrays import Array
from grpo_theory.compiler.lanes import WIDTH
from grpo_theory.exact.table import AdvantageTable
from grpo_theory.simulate.advantage.called import (
    Shown,
    ShowRoom,
    compiled_fill_ordered_pushes,
    compiled_fill_pushes,
    make_show_room,
)
from grpo_theory.simulate.advantage.response_sums import (
    Coefficients,
    compiled_fill_pushes_by_book,
    compiled_fill_pushes_by_coefficients,
)
from grpo_theory.simulate.advantage.tables import Book, make_book
from grpo_theory.simulate.draw.batches import Panel, Scratch


@dataclass(frozen=True, eq=False)
class Tabulated:
    """A kernel's table."""

    table: AdvantageTable
    group_size: int
    n_signs: int

    in_order = False

    @cached_property
    def book(self) -> Book:
        """The table over G."""
        return make_book(self.table, self.group_size)

    def compile(self) -> None:
        """Compile what it takes."""
        compiled_fill_pushes_by_book()

    def fill(self, panel: Panel, scratch: Scratch, pushes: Array) -> None:
        """Fill in pushes (S, B, n_signs K, LANES)."""
        advantages = scratch.array("advantages", self.book.advantages.shape[1], WIDTH)
        compiled_fill_pushes_by_book()(self.book, panel.counts, self.n_signs, advantages, pushes)


@dataclass(frozen=True, eq=False)
class Affine:
    """The coefficients of a kernel that is affine in the rewards, which may differ from prompt to prompt and have many values."""

    coefficients: Coefficients
    n_responses: int
    n_signs: int

    in_order = False

    def compile(self) -> None:
        """Compile what it takes."""
        compiled_fill_pushes_by_coefficients()

    def fill(self, panel: Panel, scratch: Scratch, pushes: Array) -> None:
        """Fill in pushes (S, B, n_signs K, LANES)."""
        width = self.coefficients.rewards.rows.shape[1]
        room = scratch.array("rewards", width, WIDTH), scratch.array("advantages", width, WIDTH)
        compiled_fill_pushes_by_coefficients()(self.coefficients, panel.counts, self.n_responses, self.n_signs, *room, pushes)


@dataclass(frozen=True, eq=False)
class Called:
    """A kernel that treats responses alike, and is shown every one.

    Attributes
    ----------
    kernel : compiled function
    shown : Shown
    sizes : tuple of int
        B and G.
    parameters : ndarray of one dimension
        The kernel's.
    couples : bool
        Whether it couples the groups of a batch.
    """

    kernel: Any
    shown: Shown
    sizes: tuple[int, int]
    parameters: Array
    couples: bool

    in_order = False

    def room(self, scratch: Scratch) -> ShowRoom:
        """Return room to show it what is drawn."""
        return scratch.made("shown", Called._make_room, self)

    def _make_room(self) -> ShowRoom:
        return make_show_room(len(self.shown.responses), *self.sizes, self.parameters, couples=self.couples)

    def compile(self) -> None:
        """Compile what it takes."""
        compiled_fill_pushes()

    def fill(self, panel: Panel, scratch: Scratch, pushes: Array) -> None:
        """Fill in pushes (S, B, n_signs K, LANES)."""
        compiled_fill_pushes()(self.kernel, self.shown, panel.counts, self.room(scratch), pushes)


class CalledInOrder(Called):
    """A kernel that does not treat responses alike: it is shown them in the order drawn."""

    in_order = True

    def compile(self) -> None:
        """Compile what it takes."""
        compiled_fill_ordered_pushes()

    def fill(self, panel: Panel, scratch: Scratch, pushes: Array) -> None:
        """Fill in pushes (S, B, n_signs K, LANES)."""
        prompts, room = panel.counts.prompts, self.room(scratch)
        compiled_fill_ordered_pushes()(self.kernel, self.shown, prompts, panel.ordered, room, pushes)


Source = Tabulated | Affine | Called
