"""From the groups that a fixed policy drew to the sums that estimators need: advantages added up by response.

An estimate of a group is (1/G) sum_i [A_i u(k_i, sign A_i) + v(k_i)].  So of a group it needs two numbers for each response k.
These are the sum of its advantages and, where there is a v, how often it came.  A kernel that reads rewards alone and treats
responses alike is a table over compositions: how many responses of the group got each reward.  Any other is called, in the
order drawn.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.kernel import PROMPT_FIELDS, REMEMBERS, RESPONSE_FIELDS, compile_kernel
from grpo_theory.estimation.parts import means_at_tokens, value_variances
from grpo_theory.exact.multisets import (
    DistinctPrompts,
    TableSizeWarning,
    check_alone,
    class_tables,
    fields_of_rewards,
    outcome_table,
)
from grpo_theory.jit import inlined, kernel
from grpo_theory.problem import Point, Problem
from grpo_theory.simulate.draws import LANES, Batches
from grpo_theory.validation import Array, Flags, Integers

LARGEST_TABLE = 1 << 22
"""The most numbers of a table over compositions; kernels with more are called."""


class Sums(NamedTuple):
    """What E estimators need of T tiles of B groups.

    Attributes
    ----------
    rows : ndarray, shape (T, B, R, F, K, LANES)
        R rows of sums by response; a row has F features (see `exact.TokenWeights`).
    weights : ndarray, shape (T, E, B, R, LANES)
        How the estimators combine the rows.
    """

    rows: Array
    weights: Array


class AdvantageTable(NamedTuple):
    """The advantages of E kernels by composition.

    Attributes
    ----------
    advantages : ndarray, shape (E, n, L)
        Of a response that got the l-th reward value, at n places of each look; 0 where none did.
    looks : ndarray of int64, shape (M,)
        How a prompt looks to the kernels, by its true value, standard deviation and optimal baseline: the first place of that.
    steps : ndarray of int64, shape (L,)
        What a response of each value adds to the place of the composition.
    """

    advantages: Array
    looks: Integers
    steps: Integers


class Spare(NamedTuple):
    """What the sums of groups are computed in, of L reward values: places in a table (LANES,), and numbers (2 L, LANES)."""

    places: Integers
    parts: Array


def make_spare(n_values: int, lanes: int) -> Spare:
    """Make room for the sums of groups whose rewards have so many values."""
    return Spare(np.empty(lanes, dtype=np.int64), np.empty((2 * n_values, lanes)))


def table_size(problem: Problem | Point, estimator: Estimator, group_size: int) -> int | None:
    """Return the numbers of a kernel's table over compositions, or None if it reads more than the table knows."""
    kind, n_values = estimator.advantage, problem.bandit.values.size
    whole = problem.kl is None or estimator.kl.place != "reward"
    if not whole or kind.memory or kind.couples_groups or not kind.exchangeable or kind.reads & set(RESPONSE_FIELDS[1:]):
        return None
    return (group_size + 1) ** (n_values - 1) * n_values * (problem.policy.n_prompts if kind.reads & set(PROMPT_FIELDS) else 1)


def warn_of_tables(problem: Problem, estimators: Sequence[Estimator], group_size: int, stacklevel: int) -> None:
    """Warn of kernels that have no table because it would be too large."""
    for estimator in estimators:
        size = table_size(problem, estimator, group_size)
        if size is not None and size > LARGEST_TABLE:
            warnings.warn(
                f"the kernel of estimator {estimator.name!r} is called for every group, which takes several times as long as to "
                f"look its advantages up. For {problem.bandit.values.size} reward values and groups of {group_size} their table "
                f"has {size:,} numbers, and {LARGEST_TABLE:,} are allowed. With fewer values or smaller groups there is one",
                TableSizeWarning,
                stacklevel=stacklevel,
            )


def tabulate(kinds: Sequence[tuple[Advantage, int]], values: Array, known: Array, largest: int) -> tuple[Array, Integers]:
    """Return what kernels give in groups of their sizes, (E, n, n places, L), where (3, n) is known of prompts, and the steps."""
    # The place of counts n_1, ..., n_L is sum_{l > 1} (G + 1)^(l - 2) n_l (docs/derivations.md, section 17.1).
    steps = np.array([0, *((largest + 1) ** np.arange(values.size - 1))], dtype=np.int64)
    looks = DistinctPrompts(fields_of_rewards(np.tile(values, (known.shape[1], 1))), known)
    tables = np.zeros((len(kinds), known.shape[1], largest * int(steps[-1]) + 1, values.size))
    for own, (kind, size) in zip(tables, kinds, strict=True):
        for counts, found in class_tables(kind, looks, size):
            own[:, counts @ steps] = found
    return tables, steps


def prompt_table(estimators: Sequence[Estimator], point: Point, group_size: int) -> AdvantageTable:
    """Tabulate kernels that read the same fields; prompts are the looks of the table."""
    seen, values = outcome_table(point, estimators[0].kl), point.bandit.values
    reads = [name in estimators[0].advantage.reads for name in PROMPT_FIELDS]
    known = np.stack([field if read else np.zeros(len(field)) for field, read in zip(seen.prompt_fields, reads, strict=True)])
    distinct, looks = np.unique(known, axis=1, return_inverse=True)
    distinct[~np.array(reads)] = np.nan
    tables, steps = tabulate([(one.advantage, group_size) for one in estimators], values, distinct, group_size)
    return AdvantageTable(tables.reshape(len(tables), -1, values.size), looks.reshape(-1) * tables.shape[2], steps)


def reward_table(estimator: Estimator, values: Array, group_sizes: list[int]) -> AdvantageTable:
    """Return what a kernel gives rewards with these values (L,) in groups of some sizes, which are the looks of the table."""
    kinds, unknown, largest = [(estimator.advantage, size) for size in group_sizes], np.full((3, 1), np.nan), max(group_sizes)
    tables, steps = tabulate(kinds, values, unknown, largest)
    of_size = np.zeros(largest + 1, dtype=np.int64)
    of_size[group_sizes] = np.arange(len(group_sizes)) * tables.shape[2]
    return AdvantageTable(tables.reshape(1, -1, values.size), of_size, steps)


def contrast_table(table: AdvantageTable, group_size: int) -> AdvantageTable:
    """Return A = A_0 + s D and D = A_1 - A_0 in place of the advantages A_0 and A_1 of two reward values.

    Here s is the share of responses that got the higher one. D is 0 where one reward is all that there is.
    """
    low, high = np.moveaxis(table.advantages.reshape(len(table.advantages), -1, group_size + 1, 2).copy(), -1, 0)
    low[..., -1], high[..., 0] = high[..., -1], low[..., 0]
    apart, share = high - low, np.arange(group_size + 1) / group_size
    # A_1 n_k1 + A_0 (n_k - n_k1) = D h_k + A n_k for each response k (docs/derivations.md, section 17.1).
    return table._replace(advantages=np.stack([low + share * apart, apart], axis=-1).reshape(table.advantages.shape))


@kernel
def fill_contrasts(table, batches, with_mean, spare, sums):
    """Fill in rows and weights of kernels whose rewards have two values: A_k = D h_k + A n_k, see `contrast_table`.

    Of n_k responses k, n_k1 got the higher reward, and so did a share s of the group.  The contrast is h_k = n_k1 - s n_k.
    Estimators share h and n, and A is 0 for those that are centred.
    """
    n_tiles, batch_size, n_classes, _ = batches.counts.shape
    group_size, places, drawn, share = 0.0, spare.places, spare.parts[0], spare.parts[1]
    for c in range(n_classes):
        group_size += batches.counts[0, 0, c, 0]
    for t in range(n_tiles):
        for b in range(batch_size):
            prompts, counts, row = batches.prompts[t, b], batches.counts[t, b], sums.rows[t, b, 0, 0]
            for j in range(LANES):
                share[j] = 0.0
            for k in range(row.shape[0]):
                for j in range(LANES):
                    row[k, j] = counts[2 * k + 1, j]
                    share[j] += row[k, j]
            for j in range(LANES):
                places[j] = table.looks[prompts[j]] + np.int64(share[j])
                share[j] /= group_size
            for k in range(row.shape[0]):
                for j in range(LANES):
                    drawn[j] = np.float64(counts[2 * k, j]) + counts[2 * k + 1, j]
                    row[k, j] -= share[j] * drawn[j]
                if with_mean:
                    for j in range(LANES):
                        sums.rows[t, b, 1, 0, k, j] = drawn[j]
            for e in range(sums.weights.shape[1]):
                for j in range(LANES):
                    sums.weights[t, e, b, 0, j] = table.advantages[e, places[j], 1]
                if with_mean:
                    for j in range(LANES):
                        sums.weights[t, e, b, 1, j] = table.advantages[e, places[j], 0]


@kernel
def sum_tabulated(table, keys, counts, by_sign, spare, sums):
    """Add up the advantages (N, F, K, LANES) of groups of which so many responses are in each class (N, C, LANES).

    The keys (N, LANES) say how a group looks to the table.  The last feature counts responses where there are more than
    advantages need.
    """
    n_values, lanes, signs, places, advantages = (
        table.steps.shape[0],
        keys.shape[1],
        2 if by_sign else 1,
        spare.places,
        spare.parts,
    )
    for b in range(counts.shape[0]):
        for j in range(lanes):
            places[j] = table.looks[keys[b, j]]
        for c in range(counts.shape[1]):
            if c % n_values > 0:  # the first value adds nothing
                for j in range(lanes):
                    places[j] += table.steps[c % n_values] * counts[b, c, j]
        for level in range(n_values):
            for j in range(lanes):
                advantages[level, j] = table.advantages[0, places[j], level]
            if by_sign:
                for j in range(lanes):
                    advantages[n_values + level, j] = min(advantages[level, j], 0.0)
                    advantages[level, j] = max(advantages[level, j], 0.0)
        sums[b] = 0.0
        for c in range(counts.shape[1]):
            # S_kf = sum_l n_kl phi_f(A_l), with phi = (A, 1) or (max(A, 0), min(A, 0), 1) (docs/derivations.md, section 4).
            k, level = c // n_values, c % n_values
            for sign in range(signs):
                for j in range(lanes):
                    sums[b, sign, k, j] += counts[b, c, j] * advantages[sign * n_values + level, j]
            if sums.shape[1] > signs:
                for j in range(lanes):
                    sums[b, -1, k, j] += counts[b, c, j]


@kernel
def show_groups(ordered, rewards, own, lengths, known, shown):
    """Write out what a kernel sees: fields (n, B, G) of responses, and (F, n, B) of prompts, for n = LANES N/B batches.

    The classes of the responses (N, G, LANES) have rewards (N, C, LANES), and the responses lengths (K,).  Their squared score
    norms and log probabilities are (2, N, K, LANES).  Of the prompts (F, N, LANES) is known: three fields, and columns of memory.
    """
    batch_size, stride = shown[0].shape[1], rewards.shape[1] // own.shape[2]
    for b in range(ordered.shape[0]):
        first, place = b // batch_size * ordered.shape[2], b % batch_size
        for g in range(ordered.shape[1]):
            for j in range(ordered.shape[2]):
                c = ordered[b, g, j]
                shown[0][first + j, place, g] = rewards[b, c, j]
                shown[1][first + j, place, g] = own[0, b, c // stride, j]
                shown[2][first + j, place, g] = lengths[c // stride]
                shown[3][first + j, place, g] = own[1, b, c // stride, j]
        for field in range(known.shape[0]):
            for j in range(ordered.shape[2]):
                shown[4][field, first + j, place] = known[field, b, j]


@kernel
def sum_called(advantages, n_values, ordered, by_sign, sums):
    """Add up advantages (n, B, G) of responses in the order drawn (N, G, LANES), as `sum_tabulated` does."""
    batch_size, signs = advantages.shape[1], 2 if by_sign else 1
    sums[:] = 0.0
    for b in range(ordered.shape[0]):
        first, place = b // batch_size * ordered.shape[2], b % batch_size
        for g in range(ordered.shape[1]):
            for j in range(ordered.shape[2]):
                k, advantage = ordered[b, g, j] // n_values, advantages[first + j, place, g]
                sums[b, 1 if by_sign and not advantage > 0.0 else 0, k, j] += advantage
                if sums.shape[1] > signs:
                    sums[b, -1, k, j] += 1.0


@inlined
def weigh_edges(edges, lengths, gains, places, scale, sums, row):
    """Fill weights of edges (D, LANES) with what advantages added up by response (F, K, LANES) weigh there.

    The gains of tokens are (F, K, T, 1), the same for all, or (F, K, T, n).  Of these each lane has one, at its place (LANES,).
    """
    alike = gains.shape[3] == 1
    row[:] = 0.0
    # E = scale sum_f sum_k S_kf sum_t gain_fkt e_edge(k,t), which is then centred (docs/derivations.md, section 15).
    for feature in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            for t in range(lengths[k]):
                edge = edges[k, t]
                if alike:
                    gain = scale * gains[feature, k, t, 0]
                    for j in range(row.shape[1]):
                        row[edge, j] += gain * sums[feature, k, j]
                else:
                    for j in range(row.shape[1]):
                        row[edge, j] += scale * gains[feature, k, t, places[j]] * sums[feature, k, j]


def error_drawer(point: Point, estimator: Estimator) -> Callable[[np.random.Generator, Batches, Array], None]:
    """Return what fills in the errors (n, B, T, K, LANES) of values that are the mean of continuations, added up over a group.

    They are in units of their standard deviation, as `exact.TokenWeights` weighs them.
    """
    values, paths, continuations = point.bandit.values, point.policy.paths, estimator.credit.continuations
    if point.kl is not None:
        raise ValueError(
            f"estimator {estimator.name!r} must have its KL term in the loss, or the problem no kl, for simulations: "
            "continuations draw rewards and no penalties; gt.gradient_law has the law"
        )
    law = np.stack([means_at_tokens(point, one)[0] for one in np.moveaxis(point.bandit.probabilities, 2, 0)], axis=-1)
    deviations = np.sqrt(continuations * value_variances(point))

    def draw(generator: np.random.Generator, batches: Batches, rows: Array) -> None:
        drawn = batches.counts.reshape(*batches.counts.shape[:2], paths.n_responses, -1, LANES).sum(axis=3, dtype=np.int64)
        rows[:] = 0.0
        for tile, k, t in np.argwhere(np.broadcast_to(paths.taken, (len(drawn), *paths.taken.shape))):
            prompts, number = batches.prompts[tile], continuations * drawn[tile, :, k]
            found = generator.multinomial(number, law[prompts, k, t]) @ values - number * (law[prompts, k, t] @ values)
            deviation = deviations[prompts, k, t]
            np.divide(found, deviation, out=rows[tile, :, t, k], where=deviation > 0.0)

    return draw


@lru_cache
def remembering(function: Callable) -> Callable:
    """Return what turns the memories of runs into the next by the function of a `Memory`; one is compiled for each."""
    fill = compile_kernel(function, *REMEMBERS)

    @kernel
    def remember(prompts, rewards, parameters, memories):
        """Change memories (n, M, S) of runs by their groups' rewards (n, B, G) at prompts (B, n), one group after another."""
        for i in range(rewards.shape[0]):
            for b in range(rewards.shape[1]):
                fill(memories[i, prompts[b, i]], rewards[i, b], parameters)

    return remember


class KernelCall:
    """Calls a kernel on drawn groups, and looks once whether it sees each by itself."""

    def __init__(self, advantage: Advantage) -> None:
        self.advantage, self._checked = advantage, False

    def advantages(
        self, ordered: Any, rewards: Array, own: Array, lengths: Integers, known: Array, batch_size: int, wanted: Flags
    ) -> Array:
        """Return the advantages (n, B, G) of n batches, for the fields of `show_groups`.

        Raises
        ------
        ValueError
            If one is not finite where it is wanted (n,).
        """
        kernel, group_size = self.advantage, ordered.shape[1]
        n, of_prompts, shape = len(wanted), (len(known), len(wanted), batch_size), (len(wanted), batch_size, group_size)
        shown = np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64), np.empty(shape), np.empty(of_prompts)
        show_groups(ordered, rewards, own, lengths, known, shown)
        advantages = np.full(shape, np.nan)
        if kernel.couples_groups:
            for i in range(n):
                kernel.run([*(field[i] for field in shown[:4]), *shown[4][:, i]], advantages[i])
        else:
            flat = [*(field.reshape(-1, group_size) for field in shown[:4]), *shown[4].reshape(len(known), -1)]
            found = advantages.reshape(-1, group_size)
            kernel.run(flat, found)
            told = np.isfinite(found).all(axis=1)
            if told.any() and not self._checked:
                check_alone(kernel, [field[told] for field in flat], found[told])
                self._checked = True
        bad = ~np.isfinite(advantages).all(axis=2) & wanted[:, None]
        if bad.any():
            replication, group = np.argwhere(bad)[0]
            raise ValueError(
                f"the kernel of estimator {kernel.name!r} must fill finite advantages, and does not for a batch of "
                f"{batch_size} x {group_size} responses, in a group with rewards {shown[0][replication, group].tolist()}"
            )
        return advantages


class Caller:
    """Calls a kernel on the groups of tiles."""

    def __init__(self, estimator: Estimator, point: Point) -> None:
        self._call, seen = KernelCall(estimator.advantage), outcome_table(point, estimator.kl)
        of_response = np.stack([seen.squared_score_norms, seen.log_probabilities])
        of_prompt = np.stack([*seen.prompt_fields, *estimator.remembered(len(seen.rewards))])
        self._facts = seen.rewards, of_response, seen.lengths, of_prompt

    def advantages(self, batches: Batches) -> Array:
        """Return the advantages of the responses, shape (n, B, G)."""
        prompts, (rewards, own, lengths, known) = batches.prompts.reshape(-1, LANES), self._facts
        of_class, of_response = (np.ascontiguousarray(fact[..., prompts, :].swapaxes(-1, -2)) for fact in (rewards, own))
        n_tiles, batch_size, *shape = batches.ordered.shape
        ordered, wanted = batches.ordered.reshape(-1, *shape), np.ones(n_tiles * LANES, dtype=bool)
        return self._call.advantages(ordered, of_class, of_response, lengths, known[:, prompts], batch_size, wanted)
