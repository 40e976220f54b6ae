"""Covectors to the squared errors of batches, one driver for each way of adding up a batch.

The estimate of a batch is (1/B) sum_b Phi_b' c_b, with c_b the covector of group b.  Of each replication the drivers fill in
`observations` (E, 4 + J, T, LANES), from strip number `first` on: row 0 is the squared error of the batch's estimate about g,
row 1 the mean of its groups' squared errors about their g(x), row 2 the estimate's own squared length, its power, row 3 its inner
product with g, its gain, and the J others the estimate along the directions.

The errors of the first two drivers are sums of products, ||c||^2 - 2 c.g + ||g||^2: one that is 0 may come out as some 1e-17 of
these, of either sign.  Power and gain are observed by themselves, because of an estimate that is short beside g the error keeps
none of their digits.

A stage is for one vector of lanes: vector v of the covectors, which are the lanes from i on of strip s of the prompts and of
strip t of the observations.
"""

from functools import cache
from typing import Any, NamedTuple

import numba

from grpo_theory.arrays import Array
from grpo_theory.compiler.compilation import F1, F2, F3, F4, NO_ARRAYS, compile_driver, record_type, stage
from grpo_theory.compiler.lanes import WIDTH, add_at, lane_numbers, load, reals, store, take, zeros
from grpo_theory.simulate.covector.combinations import COMBINATIONS, add_combination
from grpo_theory.simulate.draw.generator import VECTORS
from grpo_theory.simulate.draw.prompt_tables import LOOKUP, Lookup, at_places, read_rows
from grpo_theory.simulate.observe.gram import add_both, add_row, multiply_own, multiply_pairs, relate, weigh_before


class Truth(NamedTuple):
    """What the observations are measured against: the problem at theta.

    Attributes
    ----------
    facts : Lookup
        Of each prompt: the logits of the directions, J D numbers, and then what the driver asks for.
    array : ndarray of two dimensions
        A table that the driver understands.
    target : ndarray of one dimension
        ||g||^2, or g.
    """

    facts: Lookup
    array: Array
    target: Array


class ErrorRoom(NamedTuple):
    """Room for one vector of lanes.

    Attributes
    ----------
    facts : ndarray, shape (at least R, WIDTH)
        Those of the lanes' prompts.
    relations : ndarray, shape (2, B, WIDTH)
        What the groups of two rows have to do with those before them.
    gram : ndarray, shape (2, N, WIDTH)
        Products of two rows with those before them.
    before : ndarray, shape (2, C, WIDTH)
        Their sums over the groups before, by each column of the weights.
    products : ndarray, shape (2, J + 2, WIDTH)
        Products of two rows with facts.
    found : ndarray, shape (E, 4 + J, WIDTH)
        Sums over the groups of the batch, for each observation.
    base : ndarray, shape (1, WIDTH)
        The sum of ||g(x)||^2 over the groups.
    row : ndarray, shape (1, D, WIDTH)
        The covector of one group.
    sums : ndarray, shape (n, m, WIDTH)
        What a driver adds up.
    """

    facts: Array
    relations: Array
    gram: Array
    before: Array
    products: Array
    found: Array
    base: Array
    row: Array
    sums: Array


TRUTH = record_type(Truth, LOOKUP, F2, F1)
I3 = numba.int64[:, :, ::1]
ERROR_ROOM = record_type(ErrorRoom, F2, F3, F3, F3, F3, F3, F2, F3, F3)


@stage
def begin(found):
    """Begin the sums (E, 4 + J, WIDTH) with 0."""
    for e in range(found.shape[0]):
        for row in range(found.shape[1]):
            store(reals(0.0), found, e, row, 0)


@stage
def write_out(found, share, t, i, observations):
    """Write down what is a mean over the groups: all but error, power and gain of the batch; the sums are (E, 4 + J, WIDTH)."""
    for e in range(found.shape[0]):
        store(load(found, e, 1, 0) * share, observations, e, 1, t, i)
        for row in range(4, found.shape[1]):
            store(load(found, e, row, 0) * share, observations, e, row, t, i)


@stage
def write_out_batch(found, power, share, t, i, observations):
    """Write down error, power and gain of the batch, from sums over pairs of groups, and 2 B times the gain.

    `power` is ||g||^2, and `share` is 1/B^2: a multiplication takes a tenth of the time of a division.
    """
    for e in range(found.shape[0]):
        own, twice = load(found, e, 2, 0) * share, load(found, e, 3, 0) * share
        store(own - twice + power, observations, e, 0, t, i)
        store(own, observations, e, 2, t, i)
        store(0.5 * twice, observations, e, 3, t, i)


# ---- maps where ||Phi' c||^2 is |c|^2 times a number of the prompt; after the directions' logits, facts are twice the covector
# ---- of g(x) times that number, 2 B times the logits of g, and ||g(x)||^2


@stage
def multiply_facts(rows, r, facts, prompts, here, products, k):
    """Multiply a row with each of the prompts' J + 2 facts that are D numbers, the last two at once, for row k of products."""
    n_logits, last = rows.shape[1], products.shape[1] - 1
    for fact in range(last - 1):
        total = reals(0.0)
        for d in range(n_logits):
            total = total + load(rows, r, d, 0) * at_places(facts, fact * n_logits + d, prompts, here)
        store(total, products, k, fact, 0)
    first, second = reals(0.0), reals(0.0)
    for d in range((last - 1) * n_logits, last * n_logits):
        number = load(rows, r, d - (last - 1) * n_logits, 0)
        first = first + number * at_places(facts, d, prompts, here)
        second = second + number * at_places(facts, d + n_logits, prompts, here)
    store(first, products, k, last - 1, 0)
    store(second, products, k, last, 0)


@stage
def multiply_facts_of_two(rows, r, facts, prompts, here, products):
    """Do the same for rows r and r + 1 of one group, whose facts are the same."""
    n_logits = rows.shape[1]
    for fact in range(products.shape[1]):
        first, second = reals(0.0), reals(0.0)
        for d in range(n_logits):
            number = at_places(facts, fact * n_logits + d, prompts, here)
            first, second = first + load(rows, r, d, 0) * number, second + load(rows, r + 1, d, 0) * number
        store(first, products, 0, fact, 0)
        store(second, products, 1, fact, 0)


@stage
def meet(truth, prompts, b, i, begins, n_logits, room, k):
    """Relate a row of group b, one of the prompts (B, LANES), with facts and with the groups before, as row k of the room.

    A second row of the same group, which does not begin it, has the facts and the relations of the first.
    """
    here = load(prompts, b, i)
    if k == 0 or begins:
        read_rows(truth.facts, here, room.facts)
        relate(prompts, b, i, truth.array, room.relations, k)
    if begins:
        power = at_places(truth.facts, room.products.shape[1] * n_logits, here, room.facts)
        store(load(room.base, 0, 0) + power, room.base, 0, 0)
    return here


@stage
def add_base(base, found):
    """Add the sum of ||g(x)||^2 to that of the squared errors about g(x)."""
    for e in range(found.shape[0]):
        store(load(found, e, 1, 0) + load(base, 0, 0), found, e, 1, 0)


def fill_errors_by_pairs(truth, prompts, covectors, room, first, observations):
    """Add up a batch as the products of all pairs of its rows; `array` has inner products of prompts, or is empty."""
    n_vectors, n_rows, n_logits, _ = covectors.rows.shape
    batch_size, n_parts, columns = prompts.shape[1], covectors.columns.shape[1], covectors.columns
    square = float(batch_size * batch_size)
    for v in range(n_vectors):
        s, i, rows, own = v // VECTORS, v % VECTORS * WIDTH, covectors.rows[v], prompts[v // VECTORS]
        begin(room.found)
        store(reals(0.0), room.base, 0, 0)
        for r in range(0, n_rows, 2):
            b, a = r // n_parts, (r + 1) // n_parts
            k, place = 0 if a == b else 1, min(a, batch_size - 1)
            for row in range(1 if a == b else 1 + place - b):
                here = meet(truth, own, b + row, i, (r + row) % n_parts == 0, n_logits, room, row)
                if a == b:
                    multiply_facts_of_two(rows, r, truth.facts, here, room.facts, room.products)
                else:
                    multiply_facts(rows, r + row, truth.facts, here, room.facts, room.products, row)
            multiply_own(rows, r, room.relations, k, b, place, room.gram)
            for c in range(0, r, 2):
                multiply_pairs(rows, r, c, room.relations, k, c // n_parts, (c + 1) // n_parts, room.gram)
            weigh_before(covectors, v, r, b, place, room.gram, room.before)
            weights = covectors.weights[v]
            for e in range(columns.shape[0]):
                if n_parts == 2 and columns[e, 1] >= 0:
                    add_both(weights, columns, e, b, room)
                    continue
                if columns[e, r - b * n_parts] >= 0:
                    add_row(weights, columns, e, b, r - b * n_parts, room, 0)
                if a < batch_size and columns[e, r + 1 - a * n_parts] >= 0:
                    add_row(weights, columns, e, a, r + 1 - a * n_parts, room, 1)
        add_base(room.base, room.found)
        write_out(room.found, 1.0 / float(batch_size), first + s, i, observations)
        write_out_batch(room.found, truth.target[0], 1.0 / square, first + s, i, observations)


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
def clear(sums):
    """Put 0 wherever sums (n, m, WIDTH) are."""
    for row in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            store(reals(0.0), sums, row, k, 0)


def fill_errors_by_prompt(truth, prompts, covectors, room, first, observations):
    """Add up a batch prompt by prompt, and then the products of the prompts; `array` has their inner products (M, M)."""
    batch_size = prompts.shape[1]
    square = float(batch_size * batch_size)
    for v in range(covectors.rows.shape[0]):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        begin(room.found)
        for e in range(covectors.columns.shape[0]):
            clear(room.sums)
            for b in range(batch_size):
                here = load(prompts, s, b, i)
                add_combination(covectors, e, v, b, room.row)
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


def fill_errors_by_features(truth, prompts, covectors, room, first, observations):
    """Add up a batch as a gradient of d dimensions."""
    batch_size, n_estimators = prompts.shape[1], covectors.columns.shape[0]
    for v in range(covectors.rows.shape[0]):
        s, i = v // VECTORS, v % VECTORS * WIDTH
        clear(room.sums)
        begin(room.found)
        for b in range(batch_size):
            here = load(prompts, s, b, i)
            read_rows(truth.facts, here, room.facts)
            for e in range(n_estimators):
                add_combination(covectors, e, v, b, room.row)
                add_gradient(room.row, truth.facts, here, room.facts, e, room.sums, room.found)
                add_along(room.row, truth.facts, here, room.facts, e, room.found)
        for e in range(n_estimators):
            write_out_gradient(room.sums, 1.0 / float(batch_size), truth.target, e, first + s, i, observations)
        write_out(room.found, 1.0 / float(batch_size), first + s, i, observations)


SIGNATURE = numba.void(TRUTH, I3, COMBINATIONS, ERROR_ROOM, numba.int64, F4)


def make_error_room(
    driver: Any, truth: Truth, shape: tuple[int, ...], n_columns: int, n_estimators: int, batch_size: int, n_observations: int
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
        sums=zeros(*sums.get(driver, (0, 0)), WIDTH),
    )


@cache
def compiled_errors(driver: Any) -> Any:
    """Compile one of the drivers above, or read it from the cache."""
    return compile_driver(driver, SIGNATURE, **NO_ARRAYS)
