"""Squared errors of batches, added up as the products of all pairs of the rows of their covectors.

For maps where ||Phi' c||^2 is |c|^2 times a number of the prompt.  After the directions' logits, facts are twice the covector of
g(x) times that number, 2 B times the logits of g, and ||g(x)||^2.

A row's products with all rows before it are found once for all estimators, each of which weighs them.
"""

from grpo_theory.compiler import stage
from grpo_theory.compiler.lanes import WIDTH, load, reals, store, take, where
from grpo_theory.simulate.draw.prompt_tables import at_places, read_rows
from grpo_theory.simulate.draw.streams import VECTORS
from grpo_theory.simulate.observe.truth import begin, multiply_facts, write_out, write_out_batch


@stage
def relate(prompts, b, i, inner, relations):
    """Relate a group with itself and those before it, (1, B, WIDTH): twice their prompts' inner products.

    Without any (M, M), prompts are orthogonal: 1 where they are the same.
    """
    own = load(prompts, b, i)
    for c in range(b + 1):
        if inner.shape[0] == 0:
            store(where(load(prompts, c, i) == own, reals(2.0), 0.0), relations, 0, c, 0)
        else:
            store(2.0 * take(inner, own * inner.shape[0] + load(prompts, c, i)), relations, 0, c, 0)


@stage
def multiply_rows(rows, b, n_parts, relations, gram):
    """Multiply the rows of group b with those up to its last, two with two, as their groups are related; a square counts once."""
    start, odd = b * n_parts, n_parts % 2
    for c in range(0, start + n_parts, 2):
        here, there = load(relations, 0, c // n_parts, 0), load(relations, 0, min((c + 1) // n_parts, b), 0)
        for part in range(0, n_parts - odd, 2):
            first, second, third, fourth, r = reals(0.0), reals(0.0), reals(0.0), reals(0.0), start + part
            for d in range(rows.shape[1]):
                x, y, z, w = load(rows, r, d, 0), load(rows, r + 1, d, 0), load(rows, c, d, 0), load(rows, c + 1, d, 0)
                first, second, third, fourth = first + x * z, second + x * w, third + y * z, fourth + y * w
            store(here * first, gram, part, c, 0)
            store(there * second, gram, part, c + 1, 0)
            store(here * third, gram, part + 1, c, 0)
            store(there * fourth, gram, part + 1, c + 1, 0)
        if odd:
            first, second = reals(0.0), reals(0.0)
            for d in range(rows.shape[1]):
                x = load(rows, start + n_parts - 1, d, 0)
                first, second = first + x * load(rows, c, d, 0), second + x * load(rows, c + 1, d, 0)
            store(here * first, gram, n_parts - 1, c, 0)
            store(there * second, gram, n_parts - 1, c + 1, 0)
    for part in range(n_parts):
        store(0.5 * load(gram, part, start + part, 0), gram, part, start + part, 0)


@stage
def weigh_before(weights, covectors, b, part, gram, before):
    """Weigh a row's products with those of the groups before its own, b, by each column: sums (R, C, WIDTH).

    A column is left out where all estimators that use it have no such part.
    """
    n_parts = covectors.columns.shape[1]
    for column in range(covectors.owners.shape[0]):
        owner = covectors.owners[column]
        if owner >= 0 and part <= covectors.lasts[column]:
            total = reals(0.0)
            for c in range(b):
                total = total + load(gram, part, c * n_parts + owner, 0) * load(weights, c, column, 0)
            store(total, before, part, column, 0)


@stage
def add_group(weights, columns, e, b, room):
    """Add what group b contributes, part by part, to the sums of estimator e."""
    n_parts, last = columns.shape[1], room.products.shape[1] - 1
    gap, power, gain = load(room.found, e, 1, 0), load(room.found, e, 2, 0), load(room.found, e, 3, 0)
    for part in range(n_parts):
        if columns[e, part] >= 0:
            weight = load(weights, b, columns[e, part], 0)
            inside, outside = load(room.gram, part, b * n_parts + part, 0) * weight, reals(0.0)
            for i in range(part):
                if columns[e, i] >= 0:
                    inside = inside + load(room.gram, part, b * n_parts + i, 0) * load(weights, b, columns[e, i], 0)
            for i in range(n_parts):
                if columns[e, i] >= 0:
                    outside = outside + load(room.before, part, columns[e, i], 0)
            gap = gap + weight * (inside - load(room.products, part, last - 1, 0))
            power = power + weight * (outside + inside)
            gain = gain + weight * load(room.products, part, last, 0)
    store(gap, room.found, e, 1, 0)
    store(power, room.found, e, 2, 0)
    store(gain, room.found, e, 3, 0)
    for direction in range(last - 1):
        along = load(room.found, e, 4 + direction, 0)
        for part in range(n_parts):
            if columns[e, part] >= 0:
                along = along + load(weights, b, columns[e, part], 0) * load(room.products, part, direction, 0)
        store(along, room.found, e, 4 + direction, 0)


def fill_errors_by_pairs(truth, prompts, covectors, room, first, observations):
    """Add up a batch as the products of all pairs of its rows; `array` has inner products of prompts, or is empty."""
    n_vectors, _, n_logits, _ = covectors.rows.shape
    batch_size, columns = prompts.shape[1], covectors.columns
    n_estimators, n_parts = columns.shape
    square = float(batch_size * batch_size)
    for v in range(n_vectors):
        s, i, rows, weights = v // VECTORS, v % VECTORS * WIDTH, covectors.rows[v], covectors.weights[v]
        base = reals(0.0)
        begin(room.found)
        for b in range(batch_size):
            here = load(prompts, s, b, i)
            read_rows(truth.facts, here, room.facts)
            base = base + at_places(truth.facts, room.products.shape[1] * n_logits, here, room.facts)
            relate(prompts[s], b, i, truth.array, room.relations)
            multiply_rows(rows, b, n_parts, room.relations, room.gram)
            for part in range(n_parts):
                multiply_facts(rows, b * n_parts + part, truth.facts, here, room.facts, room.products, part)
                weigh_before(weights, covectors, b, part, room.gram, room.before)
            for e in range(n_estimators):
                add_group(weights, columns, e, b, room)
        for e in range(n_estimators):
            store(load(room.found, e, 1, 0) + base, room.found, e, 1, 0)
        write_out(room.found, 1.0 / float(batch_size), first + s, i, observations)
        write_out_batch(room.found, truth.target[0], 1.0 / square, first + s, i, observations)
