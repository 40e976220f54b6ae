"""Squared errors of batches, added up as the products of all pairs of the rows of their covectors.

This driver is for maps where ||Phi' c||^2 is |c|^2 times a number that depends on the prompt.  The facts begin with the
directions' logits.  Then come twice the covector of g(x) times that number, 2 B times the logits of g, and ||g(x)||^2.

Rows are worked on two at a time.  The two are rows r and r + 1, of groups b and a, which may be the same group.  Below they have
numbers 0 and 1.  Their products with all earlier rows are computed once for all estimators, each of which weights them.
"""

from grpo_theory.compiler import driver, stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, take, where
from grpo_theory.simulate.draw.prompt_tables import at_places, read_rows
from grpo_theory.simulate.draw.streams import VECTORS
from grpo_theory.simulate.observe.truth import FILL_ERRORS, begin, multiply_facts, write_out, write_out_batch


@stage
def relate(prompts, b, i, inner, relations, k):
    """Relate a group with itself and those before it, in row k of relations (2, B, WIDTH): twice their prompts' inner products.

    Without any (M, M), prompts are orthogonal: 1 where they are the same.
    """
    own = load(prompts, b, i)
    for c in range(b + 1):
        if inner.shape[0] == 0:
            store(where(load(prompts, c, i) == own, reals(2.0), 0.0), relations, k, c, 0)
        else:
            store(2.0 * take(inner, own * inner.shape[0] + load(prompts, c, i)), relations, k, c, 0)


@stage
def multiply_pairs(rows, r, c, relations, k, b, a, gram):
    """Multiply rows r and r + 1 with rows c and c + 1, of groups b and a: four at once.

    The first is related to these groups as row 0 of `relations` says, the second as row k.
    """
    first, second, third, fourth = reals(0.0), reals(0.0), reals(0.0), reals(0.0)
    for d in range(rows.shape[1]):
        x, y = load(rows, r, d, 0), load(rows, r + 1, d, 0)
        z, w = load(rows, c, d, 0), load(rows, c + 1, d, 0)
        first, second, third, fourth = first + x * z, second + x * w, third + y * z, fourth + y * w
    store(load(relations, 0, b, 0) * first, gram, 0, c, 0)
    store(load(relations, 0, a, 0) * second, gram, 0, c + 1, 0)
    store(load(relations, k, b, 0) * third, gram, 1, c, 0)
    store(load(relations, k, a, 0) * fourth, gram, 1, c + 1, 0)


@stage
def multiply_own(rows, r, relations, k, b, a, gram):
    """Multiply rows r and r + 1, of groups b and a, with themselves and each other; a square counts once, a product twice."""
    first, third, fourth = reals(0.0), reals(0.0), reals(0.0)
    for d in range(rows.shape[1]):
        x, y = load(rows, r, d, 0), load(rows, r + 1, d, 0)
        first, third, fourth = first + x * x, third + y * x, fourth + y * y
    store(0.5 * load(relations, 0, b, 0) * first, gram, 0, r, 0)
    store(load(relations, k, b, 0) * third, gram, 1, r, 0)
    store(0.5 * load(relations, k, a, 0) * fourth, gram, 1, r + 1, 0)


@stage
def weigh_before(weights, covectors, r, b, a, gram, sums):
    """Weigh the two rows' products with those before by each column: sums (2, C, WIDTH) over the groups before b, or before a.

    The second row is left out where all estimators that use a column have fewer parts.
    """
    n_parts = covectors.columns.shape[1]
    for column in range(covectors.owners.shape[0]):
        i, first, second = covectors.owners[column], reals(0.0), reals(0.0)
        if i < 0:
            continue
        if r + 1 - a * n_parts > covectors.lasts[column]:
            for c in range(b):
                first = first + load(gram, 0, c * n_parts + i, 0) * load(weights, c, column, 0)
            store(first, sums, 0, column, 0)
            continue
        for c in range(b):
            weight = load(weights, c, column, 0)
            first = first + load(gram, 0, c * n_parts + i, 0) * weight
            second = second + load(gram, 1, c * n_parts + i, 0) * weight
        if a > b:
            second = second + load(gram, 1, b * n_parts + i, 0) * load(weights, b, column, 0)
        store(first, sums, 0, column, 0)
        store(second, sums, 1, column, 0)


@stage
def add_row(weights, columns, e, b, part, room, k):
    """Add what a part of group b, row k of the room, contributes to the sums of estimator e."""
    n_parts, last = columns.shape[1], room.products.shape[1] - 1
    weight = load(weights, b, columns[e, part], 0)
    inside = load(room.gram, k, b * n_parts + part, 0) * weight
    for i in range(part):
        if columns[e, i] >= 0:
            inside = inside + load(room.gram, k, b * n_parts + i, 0) * load(weights, b, columns[e, i], 0)
    outside = load(room.before, k, columns[e, 0], 0)
    for i in range(1, n_parts):
        if columns[e, i] >= 0:
            outside = outside + load(room.before, k, columns[e, i], 0)
    gap = load(room.found, e, 1, 0) + weight * (inside - load(room.products, k, last - 1, 0))
    power = load(room.found, e, 2, 0) + weight * (outside + inside)
    gain = load(room.found, e, 3, 0) + weight * load(room.products, k, last, 0)
    store(gap, room.found, e, 1, 0)
    store(power, room.found, e, 2, 0)
    store(gain, room.found, e, 3, 0)
    for direction in range(last - 1):
        along = load(room.found, e, 4 + direction, 0) + weight * load(room.products, k, direction, 0)
        store(along, room.found, e, 4 + direction, 0)


@stage
def add_both(weights, columns, e, b, room):
    """Do so with both parts of group b at once, which are the two rows of the room: in half as many instructions."""
    last, difference, mean = room.products.shape[1] - 1, columns[e, 0], columns[e, 1]
    x, y = load(weights, b, difference, 0), load(weights, b, mean, 0)
    upper = load(room.gram, 0, 2 * b, 0) * x
    lower = load(room.gram, 1, 2 * b + 1, 0) * y + load(room.gram, 1, 2 * b, 0) * x
    first = load(room.before, 0, difference, 0) + load(room.before, 0, mean, 0)
    second = load(room.before, 1, difference, 0) + load(room.before, 1, mean, 0)
    gap = load(room.found, e, 1, 0) + x * (upper - load(room.products, 0, last - 1, 0))
    power = load(room.found, e, 2, 0) + x * (first + upper)
    gain = load(room.found, e, 3, 0) + x * load(room.products, 0, last, 0)
    store(gap + y * (lower - load(room.products, 1, last - 1, 0)), room.found, e, 1, 0)
    store(power + y * (second + lower), room.found, e, 2, 0)
    store(gain + y * load(room.products, 1, last, 0), room.found, e, 3, 0)
    for direction in range(last - 1):
        along = load(room.found, e, 4 + direction, 0) + x * load(room.products, 0, direction, 0)
        store(along + y * load(room.products, 1, direction, 0), room.found, e, 4 + direction, 0)


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


@driver(FILL_ERRORS)
def fill_errors_by_pairs(truth, prompts, covectors, room, first, observations):
    """Add up a batch as the products of all pairs of its rows; `array` has inner products of prompts, or is empty."""
    n_vectors, n_rows, n_logits, _ = covectors.rows.shape
    batch_size, n_parts, columns = prompts.shape[1], covectors.columns.shape[1], covectors.columns
    square = float(batch_size * batch_size)
    for v in range(n_vectors):
        s, i, rows, weights = v // VECTORS, v % VECTORS * WIDTH, covectors.rows[v], covectors.weights[v]
        own = prompts[s]
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
            weigh_before(weights, covectors, r, b, place, room.gram, room.before)
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
