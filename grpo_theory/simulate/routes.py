"""From counted groups to covectors: the routes of estimators, with one function each that runs the compiled drivers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.exact.seen import seen_at
from grpo_theory.exact.weights import token_weights
from grpo_theory.first_class import first_class
from grpo_theory.lanes import WIDTH, zeros
from grpo_theory.problem import Point
from grpo_theory.simulate.book import Book, join, make_book
from grpo_theory.simulate.choice import Lookup
from grpo_theory.simulate.counting import Counts
from grpo_theory.simulate.covectors import CovectorRoom, compiled_fill_covectors
from grpo_theory.simulate.pushes import Weighing, compiled_fill_covectors_of_pushes, compiled_fill_pushes_by_book, make_weighing
from grpo_theory.simulate.show import make_batch
from grpo_theory.simulate.showing import is_exchangeable, shown_to, table_of
from grpo_theory.simulate.shown import Shown, compiled_fill_ordered_pushes, compiled_fill_pushes
from grpo_theory.simulate.strip import STRIP, VECTORS

SHOWN_RESPONSES = 1 << 12
"""The responses that a kernel is shown at once, unless one group, or one batch of those that it couples, has more."""


class Scratch:
    """What one thread uses again, panel after panel and block after block."""

    def __init__(self) -> None:
        self._kept: dict[tuple, Any] = {}

    def array(self, name: str, *shape: int, dtype: type = np.float64) -> np.ndarray:
        """Return the array of this name and shape, with whatever it has in it."""
        return self.made(name, zeros, *shape, dtype=dtype)

    def made(self, name: str, make: Callable, *arguments: Any, **options: Any) -> Any:
        """Return what was made under this name of these arguments."""
        key = name, *arguments
        if key not in self._kept:
            self._kept[key] = make(*arguments, **options)
        return self._kept[key]


@dataclass(frozen=True, eq=False)
class Panel:
    """Some strips of batches.

    Attributes
    ----------
    counts : Counts
    ordered : ndarray of uint16, shape (S, B, G, STRIP), or None
        The outcomes in the order drawn, if any estimator asks for it.
    group_size : int
    """

    counts: Counts
    ordered: NDArray[np.uint16] | None
    group_size: int


@dataclass(frozen=True, eq=False)
class TableRoute:
    """Estimators whose kernels are tables and whose responses are one token that weighs its advantage."""

    estimators: list[Estimator]
    n_logits: int
    tokens: Lookup
    book: Book

    in_order = False

    def compile(self) -> None:
        """Compile what the route needs."""
        compiled_fill_covectors()

    def covectors(self, panel: Panel, scratch: Scratch) -> Array:
        """Return covectors of each estimator, shape (E, V, B, D, WIDTH)."""
        found, room = scratch.made("table", self._make_room, panel)
        compiled_fill_covectors()(self.tokens, self.book, panel.counts, room, found)
        return found

    def _make_room(self, panel: Panel) -> tuple[Array, CovectorRoom]:
        """Make room for the covectors of a panel."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        advantages, here = zeros(self.book.advantages.shape[1], WIDTH), zeros(self.tokens.rows.shape[1], WIDTH)
        found = zeros(len(self.estimators), n_strips * VECTORS, batch_size, self.n_logits, WIDTH)
        return found, CovectorRoom(advantages, here)


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
    book : Book or None
        The kernel's table, if it has one.
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
    book: Book | None
    in_order: bool
    at_once: int

    def compile(self) -> None:
        """Compile what the route needs."""
        (compiled_fill_pushes_by_book if self.book else compiled_fill_ordered_pushes if self.in_order else compiled_fill_pushes)()
        compiled_fill_covectors_of_pushes()

    def covectors(self, panel: Panel, scratch: Scratch) -> Array:
        """Return covectors of the estimator, shape (1, V, B, D, WIDTH)."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        pushes = self.pushes(panel, scratch)
        found = scratch.array("pushed", 1, n_strips * VECTORS, batch_size, self.n_logits, WIDTH)
        tokens = scratch.array("here", self.weighing.tokens.rows.shape[1], WIDTH)
        compiled_fill_covectors_of_pushes()(self.weighing, panel.group_size, panel.counts, pushes, tokens, found)
        return found

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


Route = TableRoute | PushRoute


def push_route(current: Point, sampler: Point, estimator: Estimator, batch_size: int, group_size: int) -> PushRoute:
    """Return the route of an estimator by itself."""
    advantage, seen = estimator.advantage, seen_at(sampler, estimator.kl)
    weights = token_weights(current, sampler, estimator)
    table = table_of(estimator, seen, sampler, group_size)
    in_order = table is None and not is_exchangeable(advantage, seen, sampler, batch_size, group_size)
    at_once = max(1, min(batch_size * STRIP, SHOWN_RESPONSES // group_size))
    return PushRoute(
        estimators=[estimator],
        n_logits=current.policy.n_logits,
        kernel=first_class(advantage.kernel, SIGNATURE),
        shown=shown_to(estimator, seen, 2 if weights.depends_on_sign else 1),
        weighing=make_weighing(weights, estimator, batch_size),
        book=None if table is None else make_book(table, group_size),
        in_order=in_order,
        at_once=batch_size if advantage.couples_groups else at_once,
    )


def routes_of(current: Point, sampler: Point, estimators: list[Estimator], batch_size: int, group_size: int) -> list[Route]:
    """Return the routes of all estimators, those that can go together as one."""
    found: list[Route] = []
    together: list[PushRoute] = []
    books: list[Book] = []
    for estimator in estimators:
        route = push_route(current, sampler, estimator, batch_size, group_size)
        if route.book is not None and route.weighing.is_plain:
            together.append(route)
            books.append(route.book)
        else:
            found.append(route)
    if together:
        tokens = together[0].weighing.tokens
        estimators = [route.estimators[0] for route in together]
        found.append(TableRoute(estimators, current.policy.n_logits, tokens, join(books)))
    return found
