"""Groups that a fixed policy drew to the sums of each response's advantages, over G: by table, by coefficients, by the kernel.

If what is made of an advantage depends on its sign, those above 0 are summed apart from the others.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba

from grpo_theory.compiler import F2, F3, F5, Driver, allocating_driver, driver, stage
from grpo_theory.compiler.lanes import WIDTH, as_real, load, reals, store, where, zeros
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import KERNEL
from grpo_theory.exact.multisets import AdvantageTable
from grpo_theory.simulate.advantage.affine import COEFFICIENTS, Coefficients, find_affine
from grpo_theory.simulate.advantage.call_room import CALL_ROOM, KERNEL_VIEW, CallRoom, KernelView, make_call_room
from grpo_theory.simulate.advantage.kernel_call import call_in_order, call_on_counts
from grpo_theory.simulate.advantage.tables import TABLES, Tables, look_up_advantages, make_tables, multiset_numbers
from grpo_theory.simulate.draw.batches import Batches, Buffers
from grpo_theory.simulate.draw.counting import COUNTS
from grpo_theory.simulate.draw.order import ORDERED
from grpo_theory.simulate.draw.streams import LANES
from grpo_theory.validation import Array


@stage
def sum_by_response(counts, b, i, advantages, stride, n_values, sums):
    """Sum the advantages of the outcomes, by sign and response, in sums (B, n_signs, K, N), for the lanes from i on.

    Those of response k are from row k times the stride on, one for each reward value, in advantages (at least L or O, WIDTH).
    """
    one_sign = sums.shape[1] == 1
    for k in range(sums.shape[2]):
        above, others = reals(0.0), reals(0.0)
        for value in range(n_values):
            advantage = load(advantages, k * stride + value, 0)
            total = advantage * as_real(load(counts, b, k * n_values + value, i))
            if one_sign:
                above = above + total
            else:
                positive = advantage > 0.0
                above, others = where(positive, above + total, above), where(positive, others, others + total)
        store(above, sums, b, 0, k, i)
        if not one_sign:
            store(others, sums, b, 1, k, i)


@driver(numba.void(TABLES, COUNTS, F2, F5))
def sum_tabulated(tables, counts, advantages, sums):
    """Fill in sums (S, B, n_signs, K, LANES) by a table; advantages (at least L, WIDTH) are room."""
    n_tiles, batch_size, _ = counts.prompts.shape
    n_values = tables.ranks.shape[0] + 1
    for s in range(n_tiles):
        outcomes, own = counts.outcomes[s], sums[s]
        for b in range(batch_size):
            for i in range(0, LANES, WIDTH):
                multisets = multiset_numbers(outcomes, b, i, tables.ranks)
                look_up_advantages(tables, 0, load(counts.prompts, s, b, i), multisets, advantages)
                sum_by_response(outcomes, b, i, advantages, 0, n_values, own)


@driver(numba.void(COEFFICIENTS, COUNTS, F3, F5))
def sum_by_coefficients(coefficients, counts, room, sums):
    """Fill in sums (S, B, n_signs, K, LANES) of an affine kernel; room (2, at least O + 1, WIDTH) is for rewards, advantages."""
    n_tiles, batch_size, _ = counts.prompts.shape
    n_values, found, advantages = counts.outcomes.shape[2] // sums.shape[3], room[0], room[1]
    for s in range(n_tiles):
        outcomes, own = counts.outcomes[s], sums[s]
        for b in range(batch_size):
            for i in range(0, LANES, WIDTH):
                find_affine(coefficients, outcomes, b, i, load(counts.prompts, s, b, i), found, advantages)
                sum_by_response(outcomes, b, i, advantages, n_values, n_values, own)


@allocating_driver(numba.void(KERNEL, KERNEL_VIEW, COUNTS, CALL_ROOM, F3, F5))
def sum_called(kernel, view, counts, room, by_outcome, sums):
    """Fill in sums (S, B, n_signs, K, LANES) of a kernel that treats responses alike; by_outcome (B, O, WIDTH) is room."""
    n_tiles, batch_size, _ = counts.prompts.shape
    n_values = counts.outcomes.shape[2] // sums.shape[3]
    for s in range(n_tiles):
        outcomes, own = counts.outcomes[s], sums[s]
        for i in range(0, LANES, WIDTH):
            call_on_counts(kernel, view, outcomes, counts.prompts[s], i, WIDTH, room, by_outcome)
            for b in range(batch_size):
                sum_by_response(outcomes, b, i, by_outcome[b], n_values, n_values, own)


@allocating_driver(numba.void(KERNEL, KERNEL_VIEW, numba.int64[:, :, ::1], ORDERED, CALL_ROOM, F5))
def sum_ordered(kernel, view, prompts, ordered, room, sums):
    """Fill in sums (S, B, n_signs, K, LANES) of a kernel that is shown outcomes (S, B, G, LANES) in the order drawn."""
    for s in range(prompts.shape[0]):
        call_in_order(kernel, view, ordered[s], prompts[s], LANES, room, sums[s])


@dataclass(frozen=True, eq=False)
class Tabulated:
    """The sums of a kernel that is a table."""

    table: AdvantageTable
    group_size: int

    driver, in_order = sum_tabulated, False

    @cached_property
    def tables(self) -> Tables:
        """The table over G."""
        return make_tables(self.table, self.group_size)

    def fill(self, batches: Batches, buffers: Buffers, sums: Array) -> None:
        """Fill in sums (S, B, n_signs, K, LANES)."""
        advantages = buffers.array("advantages", self.tables.advantages.shape[1], WIDTH)
        sum_tabulated.run(self.tables, batches.counts, advantages, sums)


@dataclass(frozen=True, eq=False)
class Affine:
    """The sums of a kernel that is affine in the rewards."""

    coefficients: Coefficients

    driver, in_order = sum_by_coefficients, False

    def fill(self, batches: Batches, buffers: Buffers, sums: Array) -> None:
        """Fill in sums (S, B, n_signs, K, LANES)."""
        room = buffers.array("rewards and advantages", 2, self.coefficients.rewards.rows.shape[1], WIDTH)
        sum_by_coefficients.run(self.coefficients, batches.counts, room, sums)


@dataclass(frozen=True, eq=False)
class Called:
    """The sums of a kernel that is called, on batches of B groups of G responses: on counted groups if it treats responses alike.

    Attributes
    ----------
    kernel : compiled function
    view : KernelView
    advantage : Advantage
    sizes : tuple of int
        B and G.
    in_order : bool
        Whether it is shown the responses in the order drawn.
    """

    kernel: Any
    view: KernelView
    advantage: Advantage
    sizes: tuple[int, int]
    in_order: bool

    @property
    def driver(self) -> Driver:
        """The driver that is used."""
        return sum_ordered if self.in_order else sum_called

    def room(self, buffers: Buffers) -> tuple[CallRoom, Array]:
        """Return room to show the kernel what is drawn, and for the advantages (B, O, WIDTH) of the outcomes."""
        made: tuple[CallRoom, Array] = buffers.made("call", Called._make_room, self)
        return made

    def _make_room(self) -> tuple[CallRoom, Array]:
        batch_size, group_size = self.sizes
        room = make_call_room(self.advantage, batch_size, group_size, float(group_size))
        return room, zeros(batch_size, len(self.view.responses), WIDTH)

    def fill(self, batches: Batches, buffers: Buffers, sums: Array) -> None:
        """Fill in sums (S, B, n_signs, K, LANES)."""
        room, by_outcome = self.room(buffers)
        if self.in_order:
            sum_ordered.run(self.kernel, self.view, batches.counts.prompts, batches.ordered, room, sums)
        else:
            sum_called.run(self.kernel, self.view, batches.counts, room, by_outcome, sums)


Source = Tabulated | Affine | Called
