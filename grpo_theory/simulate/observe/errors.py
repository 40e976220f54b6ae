"""Covectors to the squared errors of batches, one driver for each way of adding up a batch.

The estimate of a batch is (1/B) sum_b Phi_b' c_b, with c_b the covector of group b.  For each replication the drivers fill in
`observations` (E, 4 + J, T, LANES), from tile number `first` on.  Row 0 is the squared error of the batch's estimate about g.
Row 1 is the mean of its groups' squared errors about their g(x).  Row 2 is the estimate's squared length, its power.  Row 3 is
its inner product with g, its gain.  The other J rows are the estimate along the directions.

The errors of the first two drivers are sums of products, ``||c||^2 - 2 c.g + ||g||^2``.  So an error of 0 may come out as some
1e-17 of these terms, of either sign.  Power and gain are observed by themselves.  They could not be recovered from the error of
an estimate that is short beside g.

A stage works on one vector of lanes, vector v of the covectors.  These are the lanes from i on, of tile s of the prompts and of
tile t of the observations.
"""

from typing import NamedTuple

import numpy as np

from grpo_theory.compiler import Driver, driver, stage
from grpo_theory.compiler.lanes import WIDTH, add_at, lane_numbers, load, reals, store, take, zeros
from grpo_theory.problem import Point
from grpo_theory.problem.logits import HeadMap, TabularMap
from grpo_theory.simulate.covector.combinations import add_combination
from grpo_theory.simulate.covector.features import features
from grpo_theory.simulate.draw.prompt_tables import at_places, lookup, read_rows
from grpo_theory.simulate.draw.streams import VECTORS
from grpo_theory.simulate.observe.pairs import fill_errors_by_pairs
from grpo_theory.simulate.observe.truth import (
    FILL_ERRORS,
    ErrorRoom,
    Truth,
    begin,
    multiply_facts,
    write_out,
    write_out_batch,
)
from grpo_theory.validation import Array

PAIRED = 16
"""The largest batch whose groups are compared pair by pair, if there are fewer prompts than groups: measured with 2 and 6."""


@stage
def add_alone(row, own, base, products, e, found):
    """Add what a group's covector (1, D, WIDTH) contributes by itself to the sums of estimator e.

    That is all but its products with the groups of the batch, itself among them; `own` is the prompts' number, `base` ||g(x)||^2.
    """
    power, last = reals(0.0), products.shape[1] - 1
    for d in range(row.shape[1]):
        covector = load(row, 0, d, 0)
        power = power + covector * covector
    store(load(found, e, 1, 0) + (own * power - load(products, 0, last - 1, 0) + base), found, e, 1, 0)
    store(load(found, e, 3, 0) + load(products, 0, last, 0), found, e, 3, 0)
    for direction in range(last - 1):
        store(load(found, e, 4 + direction, 0) + load(products, 0, direction, 0), found, e, 4 + direction, 0)


@stage
def add_to_prompt(row, prompts, sums):
    """Add a group's covector (1, D, WIDTH) to the sum (M, D, WIDTH) of its prompt."""
    places = prompts * (sums.shape[1] * WIDTH) + lane_numbers()
    for d in range(sums.shape[1]):
        add_at(sums, places + d * WIDTH, load(row, 0, d, 0))


@stage
def add_prompts(sums, inner, e, found):
    """Add the products of the sums (M, D, WIDTH) of all pairs of prompts, by the prompts' inner products (M, M)."""
    power = load(found, e, 2, 0)
    for m in range(sums.shape[0]):
        for n in range(m + 1):
            times = inner[m, n] if n == m else 2.0 * inner[m, n]
            if times != 0.0:
                total = reals(0.0)
                for d in range(sums.shape[1]):
                    total = total + load(sums, m, d, 0) * load(sums, n, d, 0)
                power = power + times * total
    store(power, found, e, 2, 0)


@stage
def clear_sums(sums):
    """Put 0 wherever sums (n, m, WIDTH) are."""
    for row in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            store(reals(0.0), sums, row, k, 0)


@driver(FILL_ERRORS)
def fill_errors_by_prompt(truth, prompts, covectors, room, first, observations):
    """Add up a batch prompt by prompt, and then the products of the prompts; `array` has their inner products (M, M)."""
    batch_size = prompts.shape[1]
    square = float(batch_size * batch_size)
    for v in range(covectors.rows.shape[0]):
        s, i, rows, weights = v // VECTORS, v % VECTORS * WIDTH, covectors.rows[v], covectors.weights[v]
        begin(room.found)
        for e in range(covectors.columns.shape[0]):
            clear_sums(room.sums)
            for b in range(batch_size):
                here = load(prompts, s, b, i)
                add_combination(rows, weights, covectors.columns, e, b, room.row)
                add_to_prompt(room.row, here, room.sums)
                read_rows(truth.facts, here, room.facts)
                multiply_facts(room.row, 0, truth.facts, here, room.facts, room.products, 0)
                own = take(truth.array, here * (truth.array.shape[0] + 1))
                base = at_places(truth.facts, room.products.shape[1] * room.row.shape[1], here, room.facts)
                add_alone(room.row, own, base, room.products, e, room.found)
            add_prompts(room.sums, truth.array, e, room.found)
        write_out(room.found, 1.0 / float(batch_size), first + s, i, observations)
        write_out_batch(room.found, truth.target[0], 1.0 / square, first + s, i, observations)


# ---- any other map, by its features: after J D facts are those of each edge, D d numbers, and g(x)


@stage
def add_along(row, facts, prompts, here, e, found):
    """Add a group's covector (1, D, WIDTH) to the estimate along the J directions, whose logits are the first facts."""
    n_logits = row.shape[1]
    for direction in range(found.shape[1] - 4):
        total = load(found, e, 4 + direction, 0)
        for d in range(n_logits):
            total = total + load(row, 0, d, 0) * at_places(facts, direction * n_logits + d, prompts, here)
        store(total, found, e, 4 + direction, 0)


@stage
def add_gradient(row, facts, prompts, here, e, sums, found):
    """Add a group's gradient to the sums of the batch (E, d, WIDTH), and its squared error about g(x)."""
    n_logits, dimension = row.shape[1], sums.shape[1]
    first = (found.shape[1] - 4) * n_logits
    prompt_error = load(found, e, 1, 0)
    for k in range(dimension):
        gradient = reals(0.0)
        for d in range(n_logits):
            feature = at_places(facts, first + d * dimension + k, prompts, here)
            gradient = gradient + load(row, 0, d, 0) * feature
        error = gradient - at_places(facts, first + n_logits * dimension + k, prompts, here)
        store(load(sums, e, k, 0) + gradient, sums, e, k, 0)
        prompt_error = prompt_error + error * error
    store(prompt_error, found, e, 1, 0)


@stage
def write_out_gradient(sums, share, target, e, t, i, observations):
    """Write down error about g, power and gain of the gradient whose sum over the batch is given; `share` is 1/B."""
    total, power, gain = reals(0.0), reals(0.0), reals(0.0)
    for k in range(target.shape[0]):
        gradient = load(sums, e, k, 0) * share
        error = gradient - target[k]
        total, power, gain = total + error * error, power + gradient * gradient, gain + gradient * target[k]
    store(total, observations, e, 0, t, i)
    store(power, observations, e, 2, t, i)
    store(gain, observations, e, 3, t, i)


@driver(FILL_ERRORS)
def fill_errors_by_features(truth, prompts, covectors, room, first, observations):
    """Add up a batch as a gradient of d dimensions."""
    batch_size, n_estimators = prompts.shape[1], covectors.columns.shape[0]
    for v in range(covectors.rows.shape[0]):
        s, i, rows, weights = v // VECTORS, v % VECTORS * WIDTH, covectors.rows[v], covectors.weights[v]
        clear_sums(room.sums)
        begin(room.found)
        for b in range(batch_size):
            here = load(prompts, s, b, i)
            read_rows(truth.facts, here, room.facts)
            for e in range(n_estimators):
                add_combination(rows, weights, covectors.columns, e, b, room.row)
                add_gradient(room.row, truth.facts, here, room.facts, e, room.sums, room.found)
                add_along(room.row, truth.facts, here, room.facts, e, room.found)
        for e in range(n_estimators):
            write_out_gradient(room.sums, 1.0 / float(batch_size), truth.target, e, first + s, i, observations)
        write_out(room.found, 1.0 / float(batch_size), first + s, i, observations)


def make_error_room(
    fill_errors: Driver,
    truth: Truth,
    shape: tuple[int, ...],
    n_columns: int,
    n_estimators: int,
    batch_size: int,
    n_observations: int,
) -> ErrorRoom:
    """Make the room that a driver needs for so many estimators, whose covectors have rows of a shape, and so many columns."""
    _, n_rows, n_logits, _ = shape
    sums = {fill_errors_by_prompt: (len(truth.array), n_logits), fill_errors_by_features: (n_estimators, len(truth.target))}
    return ErrorRoom(
        facts=zeros(truth.facts.rows.shape[1], WIDTH),
        relations=zeros(2, batch_size, WIDTH),
        gram=zeros(2, n_rows, WIDTH),
        before=zeros(2, n_columns, WIDTH),
        products=zeros(2, n_observations - 2, WIDTH),
        found=zeros(n_estimators, n_observations, WIDTH),
        base=zeros(1, WIDTH),
        row=zeros(1, n_logits, WIDTH),
        sums=zeros(*sums.get(fill_errors, (0, 0)), WIDTH),
    )


class Geometry(NamedTuple):
    """A driver that fills in squared errors, and what it compares with."""

    fill_errors: Driver
    truth: Truth


def geometry(point: Point, directions: Array, batch_size: int) -> Geometry:
    """Return how batches are compared with the truth at a point, and with directions (J, d).

    The package's own maps have drivers that use their structure.  Any other class gets dense features by way of its adjoint; so
    does a subclass of one of these maps.
    """
    policy, moments = point.policy, point.moments
    logits = np.asarray(point.tangent.logits(np.concatenate([directions, moments.gradient[None]])), dtype=np.float64)
    along, of_gradient = logits[:-1], logits[-1]
    if type(policy.logit_map) is TabularMap:
        inner = None
    elif type(policy.logit_map) is HeadMap:
        inner = policy.logit_map.hidden @ policy.logit_map.hidden.T
    else:
        by_prompt = features(point.tangent)
        facts = [by_prompt.reshape(len(by_prompt), -1), moments.prompt_gradients]
        return Geometry(fill_errors_by_features, _truth([*along, *facts], np.empty((0, 0)), moments.gradient))
    own = np.ones(policy.n_prompts) if inner is None else np.diag(inner)
    covectors = moments.gradient_covectors
    powers = own * (covectors**2).sum(axis=1)
    facts = [*along, 2.0 * own[:, None] * covectors, 2.0 * batch_size * of_gradient, powers[:, None]]
    target = np.array([moments.gradient_power])
    if policy.n_prompts < batch_size > PAIRED:
        return Geometry(fill_errors_by_prompt, _truth(facts, np.eye(policy.n_prompts) if inner is None else inner, target))
    return Geometry(fill_errors_by_pairs, _truth(facts, np.empty((0, 0)) if inner is None else inner, target))


def _truth(facts: list[Array], array: Array, target: Array) -> Truth:
    """Put the facts (M, ...) of each prompt one after another."""
    table = lookup(np.concatenate([np.asarray(fact, dtype=np.float64) for fact in facts], axis=1))
    return Truth(table, *(np.array(field, dtype=np.float64, order="C") for field in (array, target)))
