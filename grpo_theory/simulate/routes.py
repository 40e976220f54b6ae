"""Which route an estimator takes from counted groups to the parts of its estimates, and which estimators go together."""

from dataclasses import fields

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator
from grpo_theory.estimation.kernel import SIGNATURE
from grpo_theory.exact.seen import seen_at
from grpo_theory.exact.weights import token_weights
from grpo_theory.first_class import first_class
from grpo_theory.problem import Point
from grpo_theory.simulate.book import join
from grpo_theory.simulate.choice import Lookup, lookup
from grpo_theory.simulate.contrasts import binary_weights, make_contrasts, rounding_of
from grpo_theory.simulate.own_routes import FirstsRoute, OwnRoute, PushRoute
from grpo_theory.simulate.pushes import make_weighing
from grpo_theory.simulate.showing import is_exchangeable, shown_to, table_of
from grpo_theory.simulate.strip import STRIP
from grpo_theory.simulate.table_routes import ContrastRoute, TableRoute

SHOWN_RESPONSES = 1 << 12
"""The responses that a kernel is shown at once, unless one group, or one batch of those that it couples, has more."""

Route = ContrastRoute | TableRoute | FirstsRoute | PushRoute


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
        group_size=group_size,
        kernel=first_class(advantage.kernel, SIGNATURE),
        shown=shown_to(estimator, seen, 2 if weights.depends_on_sign else 1),
        weighing=make_weighing(weights, estimator, batch_size),
        table=table,
        in_order=in_order,
        at_once=batch_size if advantage.couples_groups else at_once,
    )


def routes_of(current: Point, sampler: Point, estimators: list[Estimator], batch_size: int, group_size: int) -> list[Route]:
    """Return the routes of all estimators, those that can go together as one."""
    found: list[Route] = []
    together: list[PushRoute] = []
    values = sampler.bandit.values
    is_binary = values.size == 2
    for estimator in estimators:
        route = push_route(current, sampler, estimator, batch_size, group_size)
        is_plain = route.weighing.is_plain and not route.in_order
        if is_plain and route.table is not None:
            together.append(route)
        elif is_plain and is_binary:
            found.append(firsts_route(route, values))
        else:
            found.append(route)
    if together:
        found.append(contrast_route(together, values) if is_binary else table_route(together))
    return found


def firsts_route(route: PushRoute, values: Array) -> FirstsRoute:
    """Return the route of an estimator whose kernel is shown every response, with binary rewards."""
    return FirstsRoute(
        **{field.name: getattr(route, field.name) for field in fields(OwnRoute)},
        expected=expected_numbers(route),
        rounding=rounding_of(route.group_size, values),
    )


def contrast_route(together: list[PushRoute], values: Array) -> ContrastRoute:
    """Return estimators whose kernels are tables as one route, with binary rewards."""
    weights = [binary_weights(route.table.advantages, values) for route in together if route.table]
    expected, estimators = expected_numbers(together[0]), [route.estimators[0] for route in together]
    return ContrastRoute(estimators, together[0].n_logits, expected, *make_contrasts(weights))


def table_route(together: list[PushRoute]) -> TableRoute:
    """Return estimators whose kernels are tables as one route, with more reward values."""
    estimators, books = [route.estimators[0] for route in together], [route.book for route in together if route.book]
    return TableRoute(estimators, together[0].n_logits, together[0].weighing.tokens, join(books))


def expected_numbers(route: PushRoute) -> Lookup:
    """Return the expected number of responses of each kind (M, K) in a group."""
    return lookup(route.group_size * route.weighing.tokens.rows[:, : route.n_logits])
