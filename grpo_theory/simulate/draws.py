"""Groups that a fixed policy draws: random words to prompts, and to how often each outcome came or in which order.

A group is counted by comparisons of integer words with thresholds, without finding out which response had which outcome.  Let p
be the probabilities of a prompt's classes of outcomes.  Then p = (1 - R/2^16) d + (R/2^16) q, where d is made of the whole parts
of 2^16 p, and q of what is left.  A word of 16 bits below 2^16 - R is a draw from d.  Any other leads to a draw from q with 53
bits.  So the law is exact to the rounding of p, whatever p.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import Point
from grpo_theory.simulate.blocks import LANES, fill_words, next_uniform
from grpo_theory.validation import Array, Integers, as_count

LARGEST_GROUP = 1 << 15
"""The most responses of a group: their counts are numbers of 16 bits."""
PAST = 32767
"""A word of 16 bits that is below no threshold."""
MOST_RESPONSES = 1 << 20
"""The most responses of a step: drawn for all lanes at once, each takes some 3 to 10 kB."""
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def as_sizes(batch_size: int, group_size: int) -> tuple[int, int]:
    """Return the prompts and the responses to each of a step that is drawn; raise if these are too many to hold."""
    batch_size, group_size = as_count("batch_size", batch_size), as_count("group_size", group_size)
    if batch_size * group_size > MOST_RESPONSES:
        raise ValueError(
            f"batch_size times group_size must be at most {MOST_RESPONSES:,} to be drawn, got {batch_size} times {group_size}. "
            "Draw smaller batches, or ask an exact law, whose cost does not depend on batch_size (gradient_law, group_size_law)"
        )
    return batch_size, group_size


class PromptLaw(NamedTuple):
    """The alias table of the prompts (Walker; Vose): of each, which share of 2^32 it keeps, and who has the rest; (M,) both."""

    kept: NDArray[np.uint64]
    alias: Integers


class OutcomeLaw(NamedTuple):
    """What responses are drawn from, at each prompt.

    A class of outcomes is a response with a reward, or a response alone where prompt and response decide the reward.

    Attributes
    ----------
    prompts : PromptLaw
    thresholds : ndarray of int16, shape (C or C + 1, M)
        The distribution function of the classes' whole parts, less 2^15; an even number of rows, because two are counted at once.
    residual : ndarray, shape (M, C)
        The law of what words of 16 bits leave open.
    levels : ndarray of int64, shape (C, M) or (0, M)
        The number of the reward value that a class has, where prompt and response decide it.
    stride : int
        The classes of a response: 1 where the reward is decided, and else the number L of reward values.
    """

    prompts: PromptLaw
    thresholds: NDArray[np.int16]
    residual: Array
    levels: Integers
    stride: int


def prompt_law(weights: Array) -> PromptLaw:
    """Return the alias table of prompts with these weights (M,)."""
    kept, choices = np.empty(len(weights)), np.empty((len(weights), 2), dtype=np.int64)
    fill_aliases(weights[None], kept, choices)
    return PromptLaw(np.rint(kept * 2.0**32).astype(np.uint64), np.ascontiguousarray(choices[:, 1]))


@kernel
def fill_aliases(laws, thresholds, choices):
    """Fill the alias tables of laws (S, V), in Vose's order, whose places are numbered through all laws."""
    n_states, n_tokens = laws.shape
    small, large = np.empty(n_tokens, np.int64), np.empty(n_tokens, np.int64)
    for s in range(n_states):
        first, total, n_small, n_large = s * n_tokens, 0.0, 0, 0
        for v in range(n_tokens):
            total += laws[s, v]
        for v in range(n_tokens):
            edge = first + v
            # In the end n_tokens p_v = thresholds[v] + the sum of 1 - thresholds[low] over low with choices[low, 1] = v
            # (Walker 1977; Vose 1991).
            thresholds[edge] = laws[s, v] * n_tokens / total
            choices[edge, 0] = choices[edge, 1] = edge
            if thresholds[edge] < 1.0:
                small[n_small] = edge
                n_small += 1
            else:
                large[n_large] = edge
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            low, high = small[n_small], large[n_large - 1]
            choices[low, 1] = high
            thresholds[high] -= 1.0 - thresholds[low]
            if thresholds[high] < 1.0:
                n_large -= 1
                small[n_small] = high
                n_small += 1
        # What is left is 1 up to rounding; a point of probability 0 is never left, because its deficit is 1.
        for j in range(n_small):
            thresholds[small[j]] = 1.0
        for j in range(n_large):
            thresholds[large[j]] = 1.0


def outcome_law(point: Point) -> OutcomeLaw:
    """Tabulate the law of prompts, and of outcomes at a point."""
    n_prompts, n_values = len(point.outcome_probabilities), point.bandit.values.size
    joint = point.outcome_probabilities.reshape(n_prompts, -1, n_values)
    decided = bool(((joint > 0.0).sum(axis=2) <= 1).all())
    # If one of (k, 1), ..., (k, L) at most is possible, a threshold for each response does (docs/derivations.md, section 17).
    p = joint.sum(axis=2) if decided else joint.reshape(n_prompts, -1)
    levels = np.argmax(joint > 0.0, axis=2) if decided else np.empty((n_prompts, 0), dtype=np.int64)
    scaled = 65536.0 * (p / p.sum(axis=1, keepdims=True))
    # p = whole/2^16 + rho residual, with rho = 1 - sum_c whole_c/2^16 (docs/derivations.md, section 17).
    whole = np.floor(scaled)
    full = whole.sum(axis=1) >= 65536.0  # at least one word is left open, so that every threshold has 16 bits
    whole[full, np.argmax(whole[full], axis=1)] -= 1.0
    left = scaled - whole
    reached = (np.cumsum(whole, axis=1) - 32768.0).astype(np.int16)
    reached = np.pad(reached, ((0, 0), (0, p.shape[1] % 2)), mode="edge")
    return OutcomeLaw(
        prompts=prompt_law(point.bandit.prompt_weights),
        thresholds=np.ascontiguousarray(reached.T),
        residual=left / left.sum(axis=1, keepdims=True),
        levels=np.ascontiguousarray(levels.T.astype(np.int64)),
        stride=1 if decided else n_values,
    )


class Batches(NamedTuple):
    """T tiles of batches of B groups.

    Attributes
    ----------
    prompts : ndarray of int64, shape (T, B, LANES)
    counts : ndarray of uint16, shape (T, B, C, LANES)
        How many responses of the group are in each class.
    ordered : ndarray of uint16, shape (T, B, G, LANES)
        The class of each response, in the order drawn; of no tiles where nobody asks for it.
    """

    prompts: Integers
    counts: NDArray[np.uint16]
    ordered: NDArray[np.uint16]


class DrawRoom(NamedTuple):
    """What a tile is drawn in: words (n, LANES), their quarters (4 n, LANES), and of classes the thresholds and words below."""

    words: NDArray[np.uint64]
    short: NDArray[np.int16]
    thresholds: NDArray[np.int16]
    below: NDArray[np.uint16]


def make_batches(law: OutcomeLaw, n_tiles: int, batch_size: int, group_size: int, *, in_order: bool) -> Batches:
    """Make room for batches that are drawn from a law."""
    counts = np.empty((n_tiles, batch_size, law.residual.shape[1], LANES), dtype=np.uint16)
    ordered = np.empty((n_tiles if in_order else 0, batch_size, group_size, LANES), dtype=np.uint16)
    return Batches(np.empty((n_tiles, batch_size, LANES), dtype=np.int64), counts, ordered)


def make_draw_room(law: OutcomeLaw, batch_size: int, group_size: int) -> DrawRoom:
    """Make room for a tile that is drawn from a law."""
    rows = batch_size * (1 + -(-group_size // 4))
    words, shape = np.empty((-(-rows // 4) * 4, LANES), dtype=np.uint64), (law.thresholds.shape[0], LANES)
    short = words.view(np.int16).reshape(-1, LANES)
    return DrawRoom(words, short, np.empty(shape, dtype=np.int16), np.empty(shape, dtype=np.uint16))


@inlined
def choose_prompts(words, row, law, prompts):
    """Choose prompts (LANES,) by the words of a row: a column by the upper half, who keeps it by the lower."""
    n_prompts = np.uint64(law.kept.shape[0])
    for j in range(prompts.shape[0]):
        # P(m) = (kept[m]/2^32 + the sum of 1 - kept[c]/2^32 over columns c with alias[c] = m)/n_prompts (Walker 1977).
        word = words[row, j]
        column = np.int64(((word >> _HALF) * n_prompts) >> _HALF)
        prompts[j] = column if (word & _LOW) < law.kept[column] else law.alias[column]


@inlined
def count_below(words, first, stop, thresholds, below):
    """Count words (n, LANES), from the first to before `stop`, below each threshold (an even number, LANES)."""
    for c in range(0, thresholds.shape[0], 2):
        for j in range(below.shape[1]):
            below[c, j] = 0
            below[c + 1, j] = 0
        for g in range(first, stop, 4):
            for j in range(below.shape[1]):
                one, two = thresholds[c, j], thresholds[c + 1, j]
                x, y, z, w = words[g, j], words[g + 1, j], words[g + 2, j], words[g + 3, j]
                below[c, j] += int(x < one) + int(y < one) + int(z < one) + int(w < one)
                below[c + 1, j] += int(x < two) + int(y < two) + int(z < two) + int(w < two)


@inlined
def count_classes(words, first, group_size, thresholds, below, counts):
    """Count the classes (C, LANES) of a group by its words, from the first on."""
    count_below(words, first, first + (group_size + 3) // 4 * 4, thresholds, below)
    # C_c = #(words < F_c) - #(words < F_{c-1}), with thresholds F: a group is its counts (docs/derivations.md, section 17).
    for j in range(counts.shape[1]):
        counts[0, j] = below[0, j]
    for c in range(1, counts.shape[0]):
        for j in range(counts.shape[1]):
            counts[c, j] = below[c, j] - below[c - 1, j]


@inlined
def draw_residual(law, prompt, lone):
    """Draw a class from what words of 16 bits leave open."""
    rest, last, c = next_uniform(lone), law.residual.shape[1] - 1, 0
    # The first c with residual_0 + ... + residual_c > u, for u of 53 bits (docs/derivations.md, section 17).
    while c < last and rest >= law.residual[prompt, c]:
        rest -= law.residual[prompt, c]
        c += 1
    while law.residual[prompt, c] == 0.0:
        c -= 1
    return c


@inlined
def find_in_order(words, first, thresholds, n_classes, ordered):
    """Find the class of each response (G, LANES), by how many thresholds its word has reached, from the first word on."""
    for g in range(ordered.shape[0]):
        for j in range(ordered.shape[1]):
            reached = 0
            for c in range(n_classes):
                reached += int(words[first + g, j] >= thresholds[c, j])
            ordered[g, j] = reached


@inlined
def tally(ordered, counts):
    """Count how many responses (G, LANES) are in each class (C, LANES)."""
    for c in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            counts[c, j] = 0
    for g in range(ordered.shape[0]):
        for j in range(ordered.shape[1]):
            counts[ordered[g, j], j] += np.uint16(1)


@inlined
def draw_group(law, b, batch_size, group_size, room, prompts):
    """Choose the prompts (LANES,) of a group, fill in their thresholds, and return the first row of the responses' words."""
    choose_prompts(room.words, b, law.prompts, prompts)
    for c in range(room.thresholds.shape[0]):
        for j in range(LANES):
            room.thresholds[c, j] = law.thresholds[c, prompts[j]]
    padded = (group_size + 3) // 4 * 4
    first = 4 * batch_size + b * padded
    for row in range(first + group_size, first + padded):
        for j in range(LANES):
            room.short[row, j] = PAST
    return first


@kernel
def fill_batches(law, group_size, streams, room, batches):
    """Draw tiles of batches: prompts and counts.

    The first B words of a tile are for the prompts, and the quarters of later words for the responses.
    """
    n_tiles, batch_size, _ = batches.prompts.shape
    for t in range(n_tiles):
        fill_words(streams.lanes, room.words)
        for b in range(batch_size):
            prompts, counts = batches.prompts[t, b], batches.counts[t, b]
            first = draw_group(law, b, batch_size, group_size, room, prompts)
            count_classes(room.short, first, group_size, room.thresholds, room.below, counts)
            for j in range(LANES):
                for _ in range(group_size - np.int64(room.below[counts.shape[0] - 1, j])):
                    counts[draw_residual(law, prompts[j], streams.lone), j] += np.uint16(1)


@kernel
def fill_ordered_batches(law, group_size, streams, room, batches):
    """Draw tiles of batches from the same words: prompts, the class of each response in the order drawn, and counts."""
    n_tiles, batch_size, _ = batches.prompts.shape
    for t in range(n_tiles):
        fill_words(streams.lanes, room.words)
        for b in range(batch_size):
            prompts, ordered, n_classes = batches.prompts[t, b], batches.ordered[t, b], law.residual.shape[1]
            first = draw_group(law, b, batch_size, group_size, room, prompts)
            find_in_order(room.short, first, room.thresholds, n_classes, ordered)
            for g in range(group_size):
                for j in range(LANES):
                    if ordered[g, j] == n_classes:
                        ordered[g, j] = draw_residual(law, prompts[j], streams.lone)
            tally(ordered, batches.counts[t, b])


@kernel
def pool_tokens(lengths, stride, pool, counts, rows):
    """Divide rows (B R, D, LANES), R of each group, by the tokens of `pool` groups, and multiply them by their responses.

    The counts (B, C, LANES) are those of classes, of which a response has as many as the stride.
    """
    lanes = counts.shape[2]
    n_rows, tokens, responses = rows.shape[0] // counts.shape[0], np.empty(lanes), np.empty(lanes)
    for first in range(0, counts.shape[0], pool):
        for j in range(lanes):
            tokens[j] = 0.0
            responses[j] = 0.0
        for b in range(first, first + pool):
            for c in range(counts.shape[1]):
                for j in range(lanes):
                    tokens[j] += counts[b, c, j] * lengths[c // stride]
                    responses[j] += counts[b, c, j]
        for i in range(first * n_rows, (first + pool) * n_rows):
            for d in range(rows.shape[1]):
                for j in range(lanes):
                    # A token weighs G/(tokens of the group), or B G/(tokens of the batch) (docs/derivations.md, section 16).
                    rows[i, d, j] *= responses[j] / tokens[j]
