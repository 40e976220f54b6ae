"""From counted groups to covectors: the routes of estimators, with one function each that runs the compiled drivers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.exact.seen import seen_at
from grpo_theory.exact.table import AdvantageTable
from grpo_theory.exact.weights import token_weights
from grpo_theory.first_class import first_class
from grpo_theory.lanes import WIDTH, zeros
from grpo_theory.problem import Point
from grpo_theory.simulate.book import Book, join, make_book
from grpo_theory.simulate.choice import Lookup, lookup
from grpo_theory.simulate.contrasts import (
    Contrasts,
    binary_weights,
    compiled_fill_contrasts,
    compiled_fill_contrasts_of_firsts,
    make_contrasts,
)
from grpo_theory.simulate.counting import Counts
from grpo_theory.simulate.covectors import CovectorRoom, compiled_fill_covectors, make_covectors
from grpo_theory.simulate.parts import Parts, make_rows, whole
from grpo_theory.simulate.pushes import Weighing, compiled_fill_covectors_of_pushes, compiled_fill_pushes_by_book, make_weighing
from grpo_theory.simulate.show import make_batch
from grpo_theory.simulate.showing import is_exchangeable, shown_to, table_of
from grpo_theory.simulate.shown import Shown, compiled_fill_firsts, compiled_fill_ordered_pushes, compiled_fill_pushes
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
class ContrastRoute:
    """Estimators whose kernels are tables, with binary rewards, and whose responses are one token that weighs its advantage."""

    estimators: list[Estimator]
    n_logits: int
    expected: Lookup
    contrasts: Contrasts
    columns: Integers
    owners: Integers

    in_order = False

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group."""
        return self.columns.shape[1] * self.n_logits + len(self.owners)

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
        weights = zeros(n_vectors, batch_size, len(self.owners), WIDTH)
        return Parts(rows, weights, self.columns, self.owners), zeros(self.expected.rows.shape[1], WIDTH)


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
    at_once : int
        How many groups the kernel is given at once.
    """

    estimators: list[Estimator]
    n_logits: int
    kernel: Any
    shown: Shown
    expected: Lookup
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
        compiled_fill_contrasts_of_firsts()(self.expected, counts, float(group_size), firsts, deviations, room, parts)
        return [parts]

    def _make_room(self, panel: Panel) -> tuple[Array, Array, Parts, Array]:
        """Make room for what the kernel gives a panel, and for its parts."""
        n_strips, batch_size, *_ = panel.counts.outcomes.shape
        n_vectors = n_strips * VECTORS
        firsts, deviations = (zeros(n_strips, batch_size, n, STRIP) for n in (2, self.n_logits))
        weights = zeros(n_vectors, batch_size, 3, WIDTH)
        weights[:, :, 2] = 1.0
        parts = Parts(make_rows(n_vectors, 3 * batch_size, self.n_logits), weights, np.arange(3)[None], np.arange(3))
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


ShownRoute = FirstsRoute | PushRoute
Route = ContrastRoute | TableRoute | ShownRoute


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
        table=table,
        book=None if table is None else make_book(table, group_size),
        in_order=in_order,
        at_once=batch_size if advantage.couples_groups else at_once,
    )


def routes_of(current: Point, sampler: Point, estimators: list[Estimator], batch_size: int, group_size: int) -> list[Route]:
    """Return the routes of all estimators, those that can go together as one."""
    found: list[Route] = []
    together: list[PushRoute] = []
    is_binary = sampler.bandit.values.size == 2
    for estimator in estimators:
        route = push_route(current, sampler, estimator, batch_size, group_size)
        if not route.weighing.is_plain or route.in_order:
            found.append(route)
        elif route.table is not None:
            together.append(route)
        elif is_binary:
            expected = expected_numbers(route, group_size)
            found.append(FirstsRoute([estimator], route.n_logits, route.kernel, route.shown, expected, route.at_once))
        else:
            found.append(route)
    if together:
        found.append((contrast_route if is_binary else table_route)(together, group_size))
    return found


def contrast_route(together: list[PushRoute], group_size: int) -> ContrastRoute:
    """Return estimators whose kernels are tables as one route, with binary rewards."""
    weights = [binary_weights(route.table.advantages) for route in together if route.table]
    expected, estimators = expected_numbers(together[0], group_size), [route.estimators[0] for route in together]
    return ContrastRoute(estimators, together[0].n_logits, expected, *make_contrasts(weights))


def table_route(together: list[PushRoute], group_size: int) -> TableRoute:
    """Return estimators whose kernels are tables as one route, with more reward values."""
    estimators, books = [route.estimators[0] for route in together], [route.book for route in together if route.book]
    return TableRoute(estimators, together[0].n_logits, together[0].weighing.tokens, join(books))


def expected_numbers(route: PushRoute, group_size: int) -> Lookup:
    """Return the expected number of responses of each kind (M, K) in a group."""
    return lookup(group_size * route.weighing.tokens.rows[:, : route.n_logits])
