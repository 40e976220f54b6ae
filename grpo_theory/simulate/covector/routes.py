"""Which route an estimator takes from counted groups to the parts of its estimates, and which estimators go together."""

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.compiler.first_class import first_class
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.affine import affine_coefficients
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.exact.seen import Seen, seen_at
from grpo_theory.exact.weights import token_weights
from grpo_theory.problem import Point
from grpo_theory.simulate.advantage.kernel_facts import has_no_penalty, is_exchangeable, shown_to, table_of
from grpo_theory.simulate.advantage.response_sums import make_coefficients
from grpo_theory.simulate.advantage.sources import Affine, Called, CalledInOrder, Source, Tabulated
from grpo_theory.simulate.advantage.tables import join
from grpo_theory.simulate.covector.contrasts import binary_weights, make_contrasts, rounding_of
from grpo_theory.simulate.covector.own_routes import FirstsRoute, OwnRoute, PushRoute
from grpo_theory.simulate.covector.table_routes import ContrastRoute, TableRoute
from grpo_theory.simulate.covector.token_weights import make_weighing
from grpo_theory.simulate.draw.prompt_tables import Lookup, lookup

Route = ContrastRoute | TableRoute | FirstsRoute | PushRoute


def source_of(estimator: Estimator, seen: Seen, sampler: Point, batch_size: int, group_size: int, n_signs: int) -> Source:
    """Return where an estimator's pushes come from: the first that there is, the fastest first."""
    advantage = estimator.advantage
    table = table_of(estimator, seen, sampler, group_size)
    if table is not None:
        return Tabulated(table, group_size, n_signs)
    kernel, shown = first_class(advantage.kernel, SIGNATURE), shown_to(estimator, seen, sampler, n_signs)
    called = kernel, shown, (batch_size, group_size), advantage.parameter_array, advantage.couples_groups
    if not is_exchangeable(advantage, seen, sampler, batch_size, group_size):
        return CalledInOrder(*called)
    found = affine_coefficients(advantage, group_size)
    if found is None or not np.isfinite(seen.rewards).all():  # infinity, of what is hardly ever drawn, times 0 is no number
        return Called(*called)
    coefficients = make_coefficients(found, seen.rewards, seen.prompt_fields, group_size)
    return Affine(coefficients, shown.n_responses, n_signs)


def push_route(current: Point, sampler: Point, estimator: Estimator, batch_size: int, group_size: int) -> PushRoute:
    """Return the route of an estimator by itself."""
    seen, weights = seen_at(sampler, estimator.kl), token_weights(current, sampler, estimator)
    return PushRoute(
        estimators=[estimator],
        n_logits=current.policy.n_logits,
        group_size=group_size,
        rewards=seen.rewards,
        source=source_of(estimator, seen, sampler, batch_size, group_size, 2 if weights.depends_on_sign else 1),
        weighing=make_weighing(weights, estimator, batch_size),
    )


def routes_of(current: Point, sampler: Point, estimators: list[Estimator], batch_size: int, group_size: int) -> list[Route]:
    """Return the routes of all estimators, those that can go together as one."""
    found: list[Route] = []
    together: list[PushRoute] = []
    for estimator in estimators:
        route = push_route(current, sampler, estimator, batch_size, group_size)
        if not route.weighing.is_plain or route.in_order:
            found.append(route)
        elif isinstance(route.source, Tabulated):
            together.append(route)
        elif isinstance(route.source, Called) and could_be_a_table(route, sampler):
            found.append(firsts_route(route, route.source, sampler.bandit.values))
        else:
            found.append(route)
    if together:
        is_binary = sampler.bandit.values.size == 2
        found.append(contrast_route(together, sampler.bandit.values) if is_binary else table_route(together))
    return found


def could_be_a_table(route: PushRoute, sampler: Point) -> bool:
    """Whether an estimator's kernel might be a table, with binary rewards, for all that is known of it."""
    values = sampler.bandit.values
    return values.size == 2 and not route.estimators[0].advantage.couples_groups and has_no_penalty(route.rewards, values)


def is_called_for_size(route: OwnRoute, sampler: Point) -> bool:
    """Whether an estimator's kernel is called though it treats responses alike, and sees the problem's own rewards."""
    values = sampler.bandit.values
    return isinstance(route.source, Called) and not route.in_order and has_no_penalty(route.rewards, values)


def firsts_route(route: PushRoute, source: Called, values: Array) -> FirstsRoute:
    """Return the route of an estimator whose kernel is shown every response, with binary rewards."""
    return FirstsRoute(
        route.estimators,
        route.n_logits,
        route.group_size,
        route.rewards,
        source,
        expected=expected_numbers(route),
        rounding=rounding_of(route.group_size, values),
    )


def contrast_route(together: list[PushRoute], values: Array) -> ContrastRoute:
    """Return estimators whose kernels are tables as one route, with binary rewards."""
    sources = (route.source for route in together)
    weights = [binary_weights(source.table.advantages, values) for source in sources if isinstance(source, Tabulated)]
    expected, estimators = expected_numbers(together[0]), [route.estimators[0] for route in together]
    return ContrastRoute(estimators, together[0].n_logits, expected, *make_contrasts(weights))


def table_route(together: list[PushRoute]) -> TableRoute:
    """Return estimators whose kernels are tables as one route, with more reward values."""
    estimators, sources = [route.estimators[0] for route in together], [route.source for route in together]
    book = join([source.book for source in sources if isinstance(source, Tabulated)])
    return TableRoute(estimators, together[0].n_logits, together[0].weighing.tokens, book)


def expected_numbers(route: PushRoute) -> Lookup:
    """Return the expected number of responses of each kind (M, K) in a group."""
    return lookup(route.group_size * route.weighing.tokens.rows[:, : route.n_logits])
