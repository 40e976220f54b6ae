"""How the covectors of the estimators of a simulation are found, at a fixed policy: those that can go together as one.

The route from rewards to advantages decides.  Kernels that are tables go together, if responses are one token that weighs its
advantage; any other estimator is worked out by itself.
"""

from dataclasses import dataclass

from grpo_theory.compiler import first_class_value
from grpo_theory.compiler.lanes import WIDTH, zeros
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.exact.multisets import seen_at
from grpo_theory.exact.score_moments import token_weights
from grpo_theory.problem import Point
from grpo_theory.simulate.advantage.affine import make_coefficients
from grpo_theory.simulate.advantage.response_sums import Affine, Called, Source, Tabulated
from grpo_theory.simulate.advantage.route import AFFINE, IN_ORDER, has_no_penalty, route_at, view_at
from grpo_theory.simulate.advantage.tables import Tables, join
from grpo_theory.simulate.covector.combinations import Combinations, alone, combine, make_rows
from grpo_theory.simulate.covector.contrasts import Contrasts, binary_weights, expected_numbers, fill_contrasts, make_contrasts
from grpo_theory.simulate.covector.tabulated import fill_covectors
from grpo_theory.simulate.covector.token_weights import TokenWeighing, fill_covectors_of_sums, make_weighing
from grpo_theory.simulate.draw.batches import Batches, Buffers
from grpo_theory.simulate.draw.prompt_tables import Lookup, lookup
from grpo_theory.simulate.draw.streams import LANES, VECTORS
from grpo_theory.validation import Array, Integers


@dataclass(frozen=True, eq=False)
class ContrastCovectors:
    """Of estimators whose kernels are tables, with binary rewards."""

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
        """Compile what it takes."""
        fill_contrasts.compile()

    def fill(self, batches: Batches, buffers: Buffers) -> list[Combinations]:
        """Return the covectors of all estimators together."""
        covectors, room = buffers.made("contrasts", self._make_room, batches)
        fill_contrasts.run(self.expected, self.contrasts, batches.counts, room, covectors)
        return [covectors]

    def _make_room(self, batches: Batches) -> tuple[Combinations, Array]:
        n_tiles, batch_size, *_ = batches.counts.outcomes.shape
        n_vectors = n_tiles * VECTORS
        rows = make_rows(n_vectors, batch_size * self.columns.shape[1], self.n_logits)
        weights = zeros(n_vectors, batch_size, self.contrasts.n_columns, WIDTH)
        return combine(rows, weights, self.columns), zeros(self.expected.rows.shape[1], WIDTH)


@dataclass(frozen=True, eq=False)
class TableCovectors:
    """Of estimators whose kernels are tables, with more reward values."""

    estimators: list[Estimator]
    n_logits: int
    tokens: Lookup
    sure: float
    tables: Tables

    in_order = False

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group."""
        return len(self.estimators) * self.n_logits

    def compile(self) -> None:
        """Compile what it takes."""
        fill_covectors.compile()

    def fill(self, batches: Batches, buffers: Buffers) -> list[Combinations]:
        """Return the covectors of one estimator after another."""
        found, advantages, room, several = buffers.made("tables", self._make_room, batches)
        fill_covectors.run(self.tokens, self.sure, self.tables, batches.counts, advantages, room, found)
        return list(several)

    def _make_room(self, batches: Batches) -> tuple[Array, Array, Array, list[Combinations]]:
        n_tiles, batch_size, *_ = batches.counts.outcomes.shape
        advantages, room = zeros(self.tables.advantages.shape[1], WIDTH), zeros(self.tokens.rows.shape[1], WIDTH)
        found = make_rows(len(self.estimators), n_tiles * VECTORS, batch_size, self.n_logits)
        return found, advantages, room, [alone(rows, batch_size) for rows in found]


@dataclass(frozen=True, eq=False)
class OwnCovectors:
    """Of one estimator of any kind.

    Attributes
    ----------
    estimators : list of one Estimator
    n_logits, group_size : int
    rewards : ndarray, shape (M, O)
        Of the outcomes, as the kernel sees them.
    source : Source
        Where the sums of its advantages come from.
    weighing : TokenWeighing
    """

    estimators: list[Estimator]
    n_logits: int
    group_size: int
    rewards: Array
    source: Source
    weighing: TokenWeighing

    @property
    def in_order(self) -> bool:
        """Whether the kernel asks for the responses in the order drawn."""
        return self.source.in_order

    @property
    def n_numbers(self) -> int:
        """How many numbers there are of each group, the sums among them."""
        n_responses, n_signs = self.weighing.gains.shape[:2]
        return self.n_logits + n_signs * n_responses

    def compile(self) -> None:
        """Compile what it takes."""
        self.source.driver.compile()
        fill_covectors_of_sums.compile()

    def fill(self, batches: Batches, buffers: Buffers) -> list[Combinations]:
        """Return the estimator's covectors."""
        n_tiles, batch_size, *_ = batches.counts.outcomes.shape
        n_responses, n_signs = self.weighing.gains.shape[:2]
        sums = buffers.array("sums", n_tiles, batch_size, n_signs, n_responses, LANES)
        self.source.fill(batches, buffers, sums)
        found, covectors = buffers.made("own", self._make_room, batches)
        tokens = buffers.array("tokens", self.weighing.tokens.rows.shape[1], WIDTH)
        fill_covectors_of_sums.run(self.weighing, self.group_size, batches.counts, sums, tokens, found)
        return list(covectors)

    def _make_room(self, batches: Batches) -> tuple[Array, list[Combinations]]:
        n_tiles, batch_size, *_ = batches.counts.outcomes.shape
        found = make_rows(1, n_tiles * VECTORS, batch_size, self.n_logits)
        return found, [alone(rows, batch_size) for rows in found]


EstimatorCovectors = ContrastCovectors | TableCovectors | OwnCovectors


def own_covectors(current: Point, sampler: Point, estimator: Estimator, batch_size: int, group_size: int) -> OwnCovectors:
    """Return how the covectors of an estimator by itself are found."""
    seen, weights = seen_at(sampler, estimator.kl), token_weights(current, sampler, estimator)
    route = route_at(estimator, seen, sampler, batch_size, group_size)
    source: Source
    if route.table is not None:
        source = Tabulated(route.table, group_size)
    elif route.kind == AFFINE:
        source = Affine(make_coefficients(route.coefficients, seen.rewards, seen.prompt_fields, group_size))
    else:
        kernel, view = first_class_value(estimator.advantage.kernel, SIGNATURE), view_at(estimator, seen, sampler)
        source = Called(kernel, view, estimator.advantage, (batch_size, group_size), route.kind == IN_ORDER)
    weighing = make_weighing(weights, estimator, batch_size)
    return OwnCovectors([estimator], current.policy.n_logits, group_size, seen.rewards, source, weighing)


def covectors_of(
    current: Point, sampler: Point, estimators: list[Estimator], batch_size: int, group_size: int
) -> list[EstimatorCovectors]:
    """Return how the covectors of all estimators are found, those that can go together as one."""
    found: list[EstimatorCovectors] = []
    together: list[OwnCovectors] = []
    for estimator in estimators:
        own = own_covectors(current, sampler, estimator, batch_size, group_size)
        (together if own.weighing.is_plain and isinstance(own.source, Tabulated) else found).append(own)
    if together:
        is_binary = sampler.bandit.values.size == 2
        found.append(_contrast_covectors(together, sampler.bandit.values) if is_binary else _table_covectors(together))
    return found


def is_called_for_size(one: OwnCovectors, sampler: Point) -> bool:
    """Whether an estimator's kernel is called though it treats responses alike, and sees the problem's own rewards."""
    values = sampler.bandit.values
    return isinstance(one.source, Called) and not one.in_order and has_no_penalty(one.rewards, values)


def _contrast_covectors(together: list[OwnCovectors], values: Array) -> ContrastCovectors:
    sources = (own.source for own in together)
    weights = [binary_weights(source.table.advantages, values) for source in sources if isinstance(source, Tabulated)]
    first, estimators = together[0], [own.estimators[0] for own in together]
    expected = lookup(expected_numbers(first.weighing.tokens.rows[:, : first.n_logits], first.group_size))
    return ContrastCovectors(estimators, first.n_logits, expected, *make_contrasts(weights))


def _table_covectors(together: list[OwnCovectors]) -> TableCovectors:
    estimators, sources = [own.estimators[0] for own in together], [own.source for own in together]
    tables = join([source.tables for source in sources if isinstance(source, Tabulated)])
    weighing = together[0].weighing
    return TableCovectors(estimators, together[0].n_logits, weighing.tokens, weighing.sure, tables)
