"""What prompts tell of one estimator's step: its best group size by efficiency, and what other estimators would gain.

A subgroup of G of a prompt's n responses, drawn without replacement, is a group of G. The mean over all of them of an estimator's
estimate, and of its squared norm, is unbiased for a group of G (docs/derivations.md, section 35.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.estimation.parts import constant_length, whole
from grpo_theory.exact.multisets import UNREAD, advantage_table, count_multisets, multiset_lines, multisets
from grpo_theory.intervals.interval import Interval, check_level
from grpo_theory.intervals.rollout_intervals import PromptTerms, prompt_gradients
from grpo_theory.intervals.rollouts import Groups, RaggedRollouts
from grpo_theory.plan import group_size as sizing
from grpo_theory.validation import Argument, ArgumentError, Array, Integers, as_count, as_numbers, read_only, shown, typed

SMALLEST = 1e-300
"""Stands for 0 where a logarithm is taken, or a ratio."""
MOST_VALUES = 8
"""Sums of scores are kept for each reward value: of more values they would take more room than the scores."""
MOST_TERMS = 1 << 20
"""The most multisets of rewards, times prompts with different counts of rewards, that are gone through for one group size."""
OTHERS = ("rloo", "trl_grpo", "nemo_rl", "max_rl")
"""The estimators compared with: they divide by nothing, the group's deviation, the other responses' deviation, and the mean."""


# ---- What an estimator does.


def baseline_of(estimator: Estimator, group_size: int) -> str | None:
    """Return the baseline of an estimator whose estimate on policy is the gradient's, times a constant above 0; None for others.

    It is the leave-one-out mean if the advantage is a constant times Z - group mean, and none if it is a constant times Z. Both
    are decided on symbols and so hold for all rewards (`affine_coefficients`). The aggregation must weigh all tokens alike,
    whatever the lengths. On policy ratios are 1 and clips idle.
    """
    coefficients = None if weighs_by_length(estimator) else affine_coefficients(estimator.advantage, group_size)
    if coefficients is None:
        return None
    own, total, *rest = coefficients
    rounding = 1e-12 * abs(own)
    if not own > 0.0 or np.abs(rest).max() > rounding:
        return None
    if abs(own + group_size * total) <= rounding:
        return sizing.LEAVE_ONE_OUT
    return "none" if abs(total) <= rounding else None


def weighs_by_length(estimator: Estimator) -> bool:
    """Return whether the weight of a token depends on the lengths of responses, as in a mean over tokens."""
    aggregation = estimator.aggregation
    return bool(aggregation.pool) or aggregation.function not in (whole, constant_length)


def check_reads_own_rewards(estimator: Estimator) -> None:
    """Raise ValueError unless the advantages depend on the rewards of a response's own group alone."""
    read = [name.replace("_", " ") for name in sorted(estimator.advantage.reads - {"rewards", "parameters"})]
    if read := ["the other groups of the batch"] if estimator.advantage.couples_groups else read:
        told = " must be one whose advantages depend on the rewards of their own group alone, and those of "
        told += f"{estimator.name!r} depend on {' and '.join(read)}. Name another, or leave the name out"
        raise ArgumentError(Argument("estimator"), told)


class PairedGroups(NamedTuple):
    """An estimator's advantages in groups of one size: multisets (n, L) of reward values, and what each value gets (n, L)."""

    multisets: Integers
    advantages: Array


@lru_cache(maxsize=256)
def group_table(estimator: Estimator, values: tuple[float, ...], group_size: int) -> PairedGroups:
    """Return what an estimator gives each reward value, for every number of responses with each; made once.

    Raises
    ------
    ValueError
        If the advantages are not defined for these rewards. If they depend on more than the rewards of their own group, or on
        the order of the responses.
    """
    check_reads_own_rewards(estimator)
    estimator.check_defined(group_size, np.array(values))
    table = advantage_table(estimator.advantage, values, group_size, UNREAD)
    if table is None:
        raise ValueError(
            f"estimator must give responses with equal rewards equal advantages, and {shown(estimator.name)} does not in groups "
            f"of {group_size}"
        )
    counts = multisets(len(values), group_size)
    return read_only(PairedGroups(counts, table.advantages[0][multiset_lines(counts, table.ranks)]))


# ---- Averages over the subgroups of a logged group.


class RewardClasses(NamedTuple):
    """The responses to B prompts, added up by their reward, of L values.

    Attributes
    ----------
    values : tuple of float
        The rewards, ascending.
    counts : ndarray of int64, shape (U, L)
        The different counts of rewards that prompts have.
    which : ndarray of int64, shape (B,)
        Which of them each prompt has.
    sums : ndarray, shape (B, L, J)
        Of the scores.
    squares : ndarray, shape (B, L)
        Sums of the scores' squared norms.
    products : ndarray, shape (B, L, L)
        Inner products of the sums.
    """

    values: tuple[float, ...]
    counts: Integers
    which: Integers
    sums: Array
    squares: Array
    products: Array

    @classmethod
    def of(cls, rollouts: Groups) -> "RewardClasses":
        """Add up one batch; raise ValueError if it has more than `MOST_VALUES` different rewards."""
        values = np.unique(rollouts.rewards)
        if values.size > MOST_VALUES:
            what = "for the law of an estimator that does more than subtract a baseline"
            raise ValueError(f"rollouts must have at most {MOST_VALUES} different rewards {what}, got {values.size:,}")

        def added(group: Groups) -> Array:
            """Return each prompt's counts, sums of squared norms and sums of scores by reward, side by side."""
            of, scores = (group.rewards[..., None] == values).astype(np.float64), group.known_scores
            parts = of.sum(axis=-2)[..., None], np.einsum("...gl,...gj,...gj->...l", of, scores, scores)[..., None]
            return np.concatenate([*parts, np.einsum("...gl,...gj->...lj", of, scores)], axis=-1)

        found = rollouts.by_prompt(added)
        counts, which = np.unique(found[..., 0].astype(np.int64), axis=0, return_inverse=True)
        sums = found[..., 2:]
        products = np.einsum("blj,bmj->blm", sums, sums)
        return cls(tuple(values.tolist()), counts, which.ravel(), sums, found[..., 1], products)


def average_over_subgroups(classes: RewardClasses, estimator: Estimator, group_size: int) -> tuple[Array, Array]:
    """Return, for each prompt, the means over all subgroups of the estimate, shape (B, J), and of its squared norm, (B,).

    The numbers of a subgroup's responses with each reward are hypergeometric. Given them, each response of a class is as likely
    to be in the subgroup as another, and so is each pair of two.
    """
    single, own, pairs = _shares_of(estimator, classes.values, classes.counts.tobytes(), group_size)
    which, diagonal = classes.which, np.eye(len(classes.values))
    means = np.einsum("bl,blj->bj", single[which], classes.sums) / group_size
    distinct_pairs = classes.products - classes.squares[:, :, None] * diagonal
    powers = (own[which] * classes.squares).sum(axis=1)
    powers = powers + (pairs[which] * distinct_pairs).sum(axis=(1, 2))
    return means, powers / group_size**2


@lru_cache(maxsize=256)
def _shares_of(estimator: Estimator, values: tuple[float, ...], counts: bytes, group_size: int) -> tuple[Array, Array, Array]:
    """Return what a response's advantage, its square and a product of two are on average: of L values (U, L), and (U, L, L)."""
    table, members = group_table(estimator, values, group_size), np.frombuffer(counts, dtype=np.int64).reshape(-1, len(values))
    weights, diagonal = _hypergeometric(members, table.multisets), np.eye(len(values))
    given = table.advantages * table.multisets
    own = weights @ (table.advantages * given)
    pairs = np.einsum("un,nl,nm->ulm", weights, given, given) - own[:, :, None] * diagonal
    n = members.astype(np.float64)
    of_pairs = n[:, :, None] * n[:, None, :] - n[:, :, None] * diagonal
    return read_only((_shares(weights @ given, n), _shares(own, n), _shares(pairs, of_pairs)))


def mean_advantages(counts: Integers, table: PairedGroups) -> Array:
    """Return the mean advantage of a response of each value over all subgroups of groups with counts (U, L), shape (U, L)."""
    weights = _hypergeometric(counts, table.multisets)
    return _shares(weights @ (table.advantages * table.multisets), counts.astype(np.float64))


def _hypergeometric(counts: Integers, drawn: Integers) -> Array:
    """Return the probability of each multiset (n, L) among subgroups of groups with counts (U, L), shape (U, n)."""
    size, total = int(drawn[0].sum()), counts.sum(axis=1, keepdims=True)
    left = counts[:, None, :] - drawn
    factorials = gammaln(np.arange(max(total.max(), size) + 1) + 1.0)  # their logarithms
    logs = factorials[counts][:, None, :] - factorials[drawn] - factorials[np.maximum(left, 0)]
    ways = factorials[total] - factorials[size] - factorials[total - size]
    return np.where((left >= 0).all(axis=2), np.exp(logs.sum(axis=2) - ways), 0.0)


def _shares(sums: Array, members: Array) -> Array:
    """Return sums over the members of a class as those of one member; 0 where there is none."""
    return np.divide(sums, members, out=np.zeros_like(sums), where=members > 0.0)


# ---- The law of a step, and the choice of its group size.


def product_of(first: Array, second: Array) -> sizing.Estimates:
    """Return the inner product of the means of two vectors of each prompt, (..., B, J), by the products of different prompts'."""
    size, total, other = first.shape[-2], first.sum(axis=-2, keepdims=True), second.sum(axis=-2, keepdims=True)
    with_others = np.einsum("...j,...j->...", first, other - second)
    with_others = with_others + (with_others if first is second else np.einsum("...j,...j->...", second, total - first))
    influences = with_others / (size - 2.0)
    values = with_others.sum(axis=-1) / (2.0 * size * (size - 1.0))
    return sizing.Estimates(values, influences - influences.mean(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class StepLaw:
    """Moments of one group's estimate ghat at K group sizes, over prompts and groups; g is the gradient.

    Attributes
    ----------
    group_sizes : ndarray, shape (K,)
    square : Estimates
        Of ||g||^2, shape ().
    along : Estimates
        Of g . E ghat, shape (K,).
    mean_square : Estimates
        Of ||E ghat||^2, shape (K,).
    power : Estimates
        Of E ||ghat||^2, shape (K,).
    """

    group_sizes: Integers
    square: sizing.Estimates
    along: sizing.Estimates
    mean_square: sizing.Estimates
    power: sizing.Estimates

    @classmethod
    def of_powers(cls, sizes: Integers, powers: Array, gradients: Array, means: Array | None = None) -> "StepLaw":
        """Return the law from each prompt's gradient (B, J), and its group's squared norms (K, B) and means (K, B, J)."""
        square, mean = product_of(gradients, gradients), powers.mean(axis=-1)
        same = sizing.Estimates(np.full(sizes.size, square.values), np.tile(square.influences, (sizes.size, 1)))
        along, own = (same, same) if means is None else (product_of(gradients, means), product_of(means, means))
        return cls(sizes, square, along, own, sizing.Estimates(mean, powers - mean[:, None]))

    @classmethod
    def of_unbiased(cls, terms: PromptTerms, group_sizes: Integers) -> "StepLaw":
        """Return the law of an estimator that is unbiased for g, from what prompts say of c1 and its own c2 and c3."""
        at = as_numbers("group_sizes", group_sizes)[:, None]
        return cls.of_powers(group_sizes, terms.power + terms.c2 / at + terms.c3 / (at * (at - 1.0)), terms.gradients)

    @classmethod
    def of_subgroups(cls, classes: RewardClasses, gradients: Array, estimator: Estimator, group_sizes: Integers) -> "StepLaw":
        """Return the law of an estimator's advantages from all subgroups, and the prompts' gradient estimates (B, J)."""
        averages = (average_over_subgroups(classes, estimator, size) for size in group_sizes.tolist())
        means, powers = (np.stack(part) for part in zip(*averages, strict=True))
        return cls.of_powers(group_sizes, powers, gradients, means)

    def root_efficiency(self, batch_sizes: Integers) -> tuple[sizing.Estimates, Array]:
        """Return the root of each efficiency times ||g||, with so many prompts beside each group size, shape (K,).

        The first are estimates, which may be below 0 as g . E ghat may. The second are the likely values, given that g . E ghat
        is not below 0.
        """
        share = 1.0 / as_numbers("batch_sizes", batch_sizes)
        below = self.power.values * share + (1.0 - share) * np.maximum(self.mean_square.likely, SMALLEST)
        moved = self.power.influences * share[:, None] + (1.0 - share)[:, None] * self.mean_square.influences
        # With few prompts the estimate of a mean square may be 0 or less: the likely value takes its place.
        length = np.sqrt(np.where(below > 0.0, below, np.maximum(sizing.Estimates(below, moved).likely, SMALLEST)))
        roots = self.along.values / length
        influences = (self.along.influences - (0.5 * roots / length)[:, None] * moved) / length[:, None]
        return sizing.Estimates(roots, influences), np.maximum(self.along.likely, SMALLEST) / length

    def signal(self, index: int, batch_size: int, level: float, sketch_width: int | None = None) -> Interval:
        """Return the interval of (g . E ghat)^2/||g||^2 over what a step's E||ghat||^2 is above it.

        It is efficiency/(1 - efficiency). Of an unbiased estimator it is ||g||^2 over the squared error.
        """
        share, along, own, power = 1.0 / batch_size, *(part.at(index) for part in (self.along, self.mean_square, self.power))
        slope = float(np.maximum(along.likely, SMALLEST) / np.maximum(self.square.likely, SMALLEST))
        weights = slope * np.array([2.0, -slope])
        strength = sizing.Estimates(*(np.tensordot(weights, np.stack(part), 1) for part in zip(along, self.square, strict=True)))
        step = (share * part + (1.0 - share) * other for part, other in zip(power, own, strict=True))
        noise = sizing.Estimates(*(whole - part for whole, part in zip(step, strength, strict=True)))
        short = 0.0 if sketch_width is None else 2.0 / as_count("sketch_width", sketch_width)
        return sizing.ratio_interval(strength, noise, level, noise=short)


@typed
def signal_to_noise(
    rollouts: Groups, batch_size: int, group_size: int, level: float = 0.95, *, sketch_width: int | None = None
) -> Interval:
    """Return an interval of ||g||^2 over the mean squared error of the leave-one-out gradient at a batch and group size.

    At 1 the noise of one step is as large as the gradient itself. The products of different prompts' gradient estimates are
    unbiased for ||g||^2, so that the estimate can be below 0. The limits are Fieller's (1954), cut at 0, with variances from
    deleting one prompt at a time. Their quantiles allow for gradients whose lengths differ much between prompts
    (`grpo_theory.intervals.interval`). A lower limit of 0 says that the data do not tell the gradient from 0.

    Parameters
    ----------
    rollouts : Rollouts or RaggedRollouts
        One batch of at least 3 prompts, 4 responses each.
    batch_size, group_size : int
        Of the training step that is asked about: at least 1 and 2.
    level : float, default 0.95
    sketch_width : int, optional
        How many numbers a sketch has, if the scores are sketches. The limits then take in the error of the one map that makes
        all sketches. Its relative variance is at most 2/width, for ||g||^2 and for the error, which is a trace. The two errors
        have a correlation of 0 or more, and are taken for uncorrelated (docs/derivations.md, section 36).

    Returns
    -------
    Interval
        The upper limit is infinite where the data do not tell the error from 0. The standard error is the delta method's.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> found = gt.plan.signal_to_noise(rollouts, batch_size=128, group_size=8)
    >>> round(float(found.estimate), 1)
    2.3
    """
    sizes = np.array([as_count("group_size", group_size, 2)])
    law = StepLaw.of_unbiased(sizing.pilot_terms(rollouts), sizes)
    return law.signal(0, as_count("batch_size", batch_size), check_level(level), sketch_width)


@dataclass(frozen=True, eq=False)
class EfficiencyChoice(sizing.SizeChoice):
    """The batches of one estimator, the efficiency of a step with each, and which is best.

    The fields are those of every choice: `estimates`, of shape (K,), are the roots of the efficiencies times ||g||. A loss is by
    what share the best size's efficiency is above that of the size: 0.05 is 5% more gain of one step.

    Attributes
    ----------
    efficiency : ndarray, shape (K,)
        Likely values, none above 1.
    likely_root : float
        The likely value of the recommended size's root.
    law : StepLaw
        What it rests on.
    """

    efficiency: Array
    likely_root: float
    law: StepLaw
    power: ClassVar[float] = -2.0


def choose_by_efficiency(law: StepLaw, batch_sizes: Integers, level: float = 0.95) -> EfficiencyChoice:
    """Choose the group size at which a step of its own best length gains most, from the law of an estimator's step.

    A size is a candidate unless a two-sided t test shows that another has a larger root of its efficiency. `choose_group_size`
    tests errors in the same way. Quantiles allow for heavy tails, for the recommended size too.

    Parameters
    ----------
    law : StepLaw
        At least 3 prompts.
    batch_sizes : ndarray of int, shape (K,)
        The number of prompts in a training batch at each of the law's group sizes.
    level : float, default 0.95
    """
    level, (roots, likely) = check_level(level), law.root_efficiency(batch_sizes)
    best, weights = int(np.argmax(likely)), np.eye(likely.size)
    with np.errstate(over="ignore"):  # a size whose likely step has no part along the gradient loses without limit
        loss = (likely[best] / likely) ** 2 - 1.0
    compared = sizing.compare_sizes(roots, weights, loss, best, level, EfficiencyChoice.power)
    efficiency = np.minimum(likely**2 / float(np.maximum(law.square.likely, SMALLEST)), 1.0)
    root = float(likely[best])
    return EfficiencyChoice(law.group_sizes, batch_sizes, *compared, best, roots, weights, roots.values, efficiency, root, law)


# ---- The user's estimator and others.


def logged_size(sizes: Integers) -> int:
    """Return the largest number of responses that at least half the prompts have, and at least three."""
    most = max(sizing.FEWEST_PROMPTS, (sizes.size + 1) // 2)
    return int(np.sort(sizes)[::-1][most - 1])


class EstimatorLaws:
    """The laws of estimators' steps on usable rollouts, at the allowed group sizes."""

    def __init__(self, kept: Groups, limits: sizing.Limits, group_size: int | None) -> None:
        self.largest = logged_size(kept.sizes)
        self.rollouts = kept.at_least(self.largest) if isinstance(kept, RaggedRollouts) else kept
        self.allowed, self.batches = limits.batches()
        self.asked = group_size
        self.distinct = np.unique(self.rollouts.rewards).size

    @cached_property
    def gradients(self) -> Array:
        """The prompts' estimates of the gradient."""
        return prompt_gradients(self.rollouts)

    @cached_property
    def classes(self) -> RewardClasses:
        """The responses by their reward."""
        return RewardClasses.of(self.rollouts)

    def sizes(self, estimator: Estimator | None) -> Integers:
        """Return the allowed group sizes, or some of them; of an estimator, those whose subgroups are averaged over.

        All prompts then have so many responses, and there are not too many multisets of rewards.
        """
        within = self.allowed
        if estimator is not None:
            within = within[(within >= estimator.advantage.minimum_group_size) & (within <= self.largest)]
        some = within[sizing.rivals(within.size, 0)] if within.size else within
        some = np.union1d(some, within[within == self.asked])
        if estimator is None or not some.size:
            return some
        of, values = len(self.classes.counts), len(self.classes.values)
        return some[[of * count_multisets(values, size) <= MOST_TERMS for size in some.tolist()]]

    def of(self, estimator: Estimator) -> StepLaw | None:
        """Return the law of an estimator's advantages up to the logged group size; None if no such size is allowed."""
        sizes = self.sizes(estimator)
        return StepLaw.of_subgroups(self.classes, self.gradients, estimator, sizes) if sizes.size else None

    def choice(self, estimator: Estimator, level: float) -> EfficiencyChoice | None:
        """Return the best batch of an estimator, of RLOO by its constants; None if no size is allowed."""
        unbiased = estimator.name == "rloo"
        law = StepLaw.of_unbiased(sizing.pilot_terms(self.rollouts), self.sizes(None)) if unbiased else self.of(estimator)
        if law is None:
            return None
        return choose_by_efficiency(law, self.batches[np.searchsorted(self.allowed, law.group_sizes)], level)

    def others(self, own: Estimator | None, level: float) -> dict[str, EfficiencyChoice]:
        """Return the choices of `OTHERS` but the user's estimator; of all but RLOO if the user's is planned by its error."""
        found, values = {}, self.classes.values
        for other in map(find, OTHERS):
            try:
                same = other.name == "rloo"
                if own is not None:  # the user's, if it gives responses the same advantages, whatever either is called
                    sizes = np.intersect1d(self.sizes(other), self.sizes(own)).tolist()
                    tables = [[group_table(one, values, size).advantages for one in (other, own)] for size in sizes]
                    same = bool(tables) and all(np.allclose(one, two, rtol=1e-9, atol=1e-12) for one, two in tables)
                if not same and (choice := self.choice(other, level)) is not None:
                    found[other.name] = choice
            except ValueError:  # as one that divides by the mean, of rewards below 0
                continue
        return found

    def of_recommended(self, baseline: str, choice: sizing.SizeChoice) -> tuple[sizing.Estimates, float]:
        """Return the root of the efficiency of a baseline with its batch, times ||g||, and its likely value."""
        law = StepLaw.of_unbiased(sizing.baseline_terms(self.rollouts)[baseline], np.array([choice.group_size]))
        roots, likely = law.root_efficiency(np.array([choice.batch_size]))
        return roots.at(0), float(likely[0])


def switches(
    choices: Mapping[str, EfficiencyChoice], root: sizing.Estimates, likely: float, level: float
) -> tuple[sizing.Switch, ...]:
    """Return what other estimators would gain over one whose efficiency has a root: all limits hold at once, at the level.

    Each has an equal part of the error probability. What is promised is said of the batches that are named, not of batches that
    would be best.
    """
    found = []
    for name, choice in choices.items():
        each, ratio = 1.0 - (1.0 - level) / len(choices), choice.likely_root / likely
        roots = sizing.ratio_interval(choice.estimates.at(choice.best), root, each, at=np.asarray(ratio))
        error = 2.0 * ratio * roots.standard_error
        gain = Interval(np.asarray(ratio**2 - 1.0), error, roots.low**2 - 1.0, roots.high**2 - 1.0, each)
        found.append(sizing.Switch(name, choice.group_size, choice.batch_size, gain))
    return tuple(found)
