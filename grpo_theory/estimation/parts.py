"""The parts of a composition: importance ratios, clips, mismatches, aggregation over tokens, KL terms, and credits of tokens.

The current policy is pi; the behaviour policy, which sampled, is pi_0.  A function of a ratio fills the weights of one response's
tokens from the logs of pi/pi_0 of its tokens.  It does so for N pairs of policies side by side.  A clip says what becomes of a
ratio that has gone too far from 1.  Clipping the surrogate makes its gradient vanish beyond the clip, so a clip turns a ratio
into a weight of the token's logit gradient.

Two programs compute the same network with different kernels and different precision.  The sampler's probabilities mu therefore
differ from pi_old, those of the trainer at the start of the update.  A trainer that corrects for both weights a token by
clip(pi/pi_old) times bound(pi_old/mu).  The bound, which truncates or masks, applies to the second ratio alone.  Where pi_old
sampled, the second factor is 1.

For a token with l = log(pi/reference), the three estimators of the divergence are k1 = l, k2 = l^2/2 and k3 = exp(-l) - 1 + l
(Schulman 2020).  In the reward, their sum over the response's tokens, times the strength, is subtracted from what the kernel
sees.  In the loss, their derivatives in log pi weight the token's logit gradient.
"""

import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from grpo_theory.estimation.code import code_checksum
from grpo_theory.estimation.kernel import SourceFile
from grpo_theory.jit import compiled, pointed, types
from grpo_theory.validation import Array, Integers, as_count, as_not_negative, as_number, as_positive, check_name, check_shape


class Part:
    """A dataclass with a function among its fields.

    A part is pickled with the file in which the function is defined, so that it reaches processes that have not imported it.
    """

    __dataclass_fields__: ClassVar[dict]
    function: Callable
    arguments: ClassVar[tuple]
    """The types of the function's arguments, where it is compiled."""

    @property
    def fill(self) -> Any:
        """The function, compiled."""
        return compiled(self.function)

    @property
    def pointer(self) -> Any:
        """The function, as kernels take it for an argument."""
        return pointed(self.function, *self.arguments)

    def is_same(self, other: "Part") -> bool:
        """Whether both are one part, though perhaps of a file that has been run again: see `is_same_function`."""
        facts = [{field.name: getattr(one, field.name) for field in fields(one)} for one in (self, other)]
        functions = [one.pop("function") for one in facts]
        return type(self) is type(other) and facts[0] == facts[1] and is_same_function(*functions)

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Return how the part is made again of its function's file, the function's name in it, and the other fields.

        Raises
        ------
        TypeError
            If there is no file, as for a function typed at a prompt, or the function has no name at the top level of it.
        """
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "function"}
        facts = {name: dict(fact) if isinstance(fact, Mapping) else fact for name, fact in facts.items()}
        name, path = self.function.__qualname__, inspect.getsourcefile(self.function)
        if path is None or not Path(path).is_file() or "<" in name:
            raise TypeError(f"the function {name!r} must be defined at the top level of a file to be sent to another process")
        source = SourceFile.of_module(Path(path), self.function.__module__)
        return _restore, (type(self), source, name, facts, _seal(self.function))


def is_same_function(one: Callable, other: Callable) -> bool:
    """Whether two functions are the same: equal code, with all that it reaches, or the same place in a file that was run again.

    Two functions made by one run of a file share their code. They are the same only if the values that they enclose and name are
    the same, too.
    """
    origins = [(function.__module__, function.__qualname__) for function in (one, other)]
    again = origins[0] == origins[1] and one.__code__ is not other.__code__
    return one is other or again or code_checksum(one) == code_checksum(other)


def _seal(function: Callable) -> tuple[str | None, str]:
    """Return what tells a function of another process from this one: its checksum, and the Python whose byte code that is of."""
    return sys.implementation.cache_tag, code_checksum(function)


def _restore(
    kind: Callable[..., Part], source: SourceFile, qualname: str, facts: dict[str, Any], seal: tuple[str | None, str]
) -> Part:
    """Return the part of a pickle: its file is run if need be, and the function found in it by name.

    Raises
    ------
    ValueError
        If the function is not the one that was sent, because its file, or one that this imports, was edited in between.
    """
    module = source.load() if source.module != "__main__" else sys.modules["__main__"]
    named = operator.attrgetter(qualname)(module)
    function = named if inspect.isfunction(named) else named.advantage.function
    own = _seal(function)
    if own[0] == seal[0] and own != seal:
        raise ValueError(
            f"the function {qualname!r} of {source.path} must be the same in the process that sends it and the one that gets it. "
            "But its code, or a number that it uses, differs. Its file, or one that it imports, was edited after one of the two "
            "had imported it: start both anew"
        )
    return kind(function=function, **facts)


_ROWS = types.float64[:, ::1]
DUAL_BOUND = 3.0
"""The largest ratio of a token with a negative advantage that a dual clip lets through: verl's clip_ratio_c."""


@dataclass(frozen=True)
class Ratio(Part):
    """An importance ratio.

    Attributes
    ----------
    name : str
    function : callable
        ``function(log_ratios, length, ratios)`` fills the first `length` rows of ratios (T, N) from those of log_ratios (T, N),
        row t for token t.
    constant : bool, default False
        Whether the weights do not depend on the policies.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import RATIOS
    >>> list(RATIOS), RATIOS["none"].constant
    (['none', 'token', 'trajectory', 'geometric'], True)
    >>> gt.compose("sequence_ratio_example", advantage="rloo", ratio="trajectory").ratio.name
    'trajectory'
    """

    name: str
    function: Callable
    constant: bool = False
    arguments: ClassVar[tuple] = (_ROWS, types.int64, _ROWS)


def no_ratio(log_ratios, length, ratios):
    """Weight 1: no importance sampling."""
    ratios[:length] = 1.0


def token_ratio(log_ratios, length, ratios):
    """Each token has its own ratio pi/pi_0 (PPO, GRPO: arXiv 2402.03300)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = np.exp(log_ratios[t, i])


def trajectory_ratio(log_ratios, length, ratios):
    """Every token has the ratio of the whole response, the product of the tokens' (TIC-GRPO: arXiv 2508.02833)."""
    for i in range(ratios.shape[1]):
        total = 0.0
        for t in range(length):
            total += log_ratios[t, i]
        whole = np.exp(total)
        for t in range(length):
            ratios[t, i] = whole


def geometric_ratio(log_ratios, length, ratios):
    """Every token has the geometric mean of the tokens' ratios (GSPO: arXiv 2507.18071)."""
    for i in range(ratios.shape[1]):
        total = 0.0
        for t in range(length):
            total += log_ratios[t, i]
        # (prod_t r_t)^(1/length) = exp(mean_t l_t) (docs/derivations.md, section 16).
        mean = np.exp(total / length)
        for t in range(length):
            ratios[t, i] = mean


_RATIO_FUNCTIONS = {"none": no_ratio, "token": token_ratio, "trajectory": trajectory_ratio, "geometric": geometric_ratio}
RATIOS = {name: Ratio(name, function, constant=name == "none") for name, function in _RATIO_FUNCTIONS.items()}


@dataclass(frozen=True)
class Clip(Part):
    """A clip of the importance ratio r to between 1 - low and 1 + high.

    Attributes
    ----------
    name : str
    function : callable
        ``function(ratios, length, positive, widths, weights)`` fills the first `length` rows of weights (T, N) from those of
        ratios (T, N).  `positive` says whether the advantages of these responses are positive.  The array widths (2,) contains
        low and high.
    low, high : float, default 0.2
        Not negative.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import CLIPS
    >>> higher = CLIPS["by sign"].with_widths(0.2, 0.28)
    >>> higher.low, higher.high
    (0.2, 0.28)
    >>> gt.compose("clip_higher_example", advantage="rloo", ratio="token", clip=higher).clip.high
    0.28
    """

    name: str
    function: Callable
    low: float = 0.2
    high: float = 0.2
    arguments: ClassVar[tuple] = (_ROWS, types.int64, types.boolean, types.float64[::1], _ROWS)

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            as_not_negative(side, getattr(self, side))

    @property
    def widths(self) -> np.ndarray:
        """Low and high, shape (2,)."""
        return np.array([self.low, self.high], dtype=np.float64)

    def with_widths(self, low: float, high: float) -> "Clip":
        """Return the same clip with other widths."""
        return replace(self, low=low, high=high)


def no_clip(ratios, length, positive, widths, weights):
    """Weight r."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = ratios[t, i]


def two_sided_clip(ratios, length, positive, widths, weights):
    """Weight r within [1 - low, 1 + high], else 0: the gradient of clip(r, 1 - low, 1 + high) A."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            inside = 1.0 - widths[0] <= ratios[t, i] <= 1.0 + widths[1]
            weights[t, i] = ratios[t, i] if inside else 0.0


def upper_clip(ratios, length, positive, widths, weights):
    """Weight r up to 1 + high, else 0: the gradient of min(r, 1 + high) A (TIC-GRPO: arXiv 2508.02833)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = ratios[t, i] if ratios[t, i] <= 1.0 + widths[1] else 0.0


def clip_by_sign(ratios, length, positive, widths, weights):
    """Weight r unless r > 1 + high with A > 0, or r < 1 - low with A < 0.

    It is the gradient of min(r A, clip(r, 1 - low, 1 + high) A) (PPO: arXiv 1707.06347).
    """
    for t in range(length):
        for i in range(ratios.shape[1]):
            # The gradient is r A grad log pi where the unclipped branch is the smaller, and 0 where the clipped one is
            # (docs/derivations.md, section 16).
            kept = ratios[t, i] <= 1.0 + widths[1] if positive else ratios[t, i] >= 1.0 - widths[0]
            weights[t, i] = ratios[t, i] if kept else 0.0


def cap(ratios, length, positive, widths, weights):
    """Weight min(r, 1 + high): a ratio that is too large is cut, and the token keeps its gradient (CISPO: arXiv 2506.13585)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = min(ratios[t, i], 1.0 + widths[1])


def cap_at_high(ratios, length, positive, widths, weights):
    """Weight min(r, high): the width itself is the cap, so below 1 it scales the gradient on policy too (CISPO in TRL)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = min(ratios[t, i], widths[1])


def clamp(ratios, length, positive, widths, weights):
    """Weight max(1 - low, min(r, 1 + high)): a ratio is cut on both sides, and the token keeps its gradient (CISPO in verl)."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = max(1.0 - widths[0], min(ratios[t, i], 1.0 + widths[1]))


def dual_clip(ratios, length, positive, widths, weights):
    """As by sign, and 0 above `DUAL_BOUND` where A < 0, as in verl.

    It is the gradient of max(min(r A, clip(r, 1 - low, 1 + high) A), 3 A) there (dual-clip PPO: arXiv 1912.09729).
    """
    for t in range(length):
        for i in range(ratios.shape[1]):
            # Where A < 0 and r > 3, r A < 3 A, so that the maximum is the constant 3 A.
            kept = ratios[t, i] <= 1.0 + widths[1] if positive else 1.0 - widths[0] <= ratios[t, i] <= DUAL_BOUND
            weights[t, i] = ratios[t, i] if kept else 0.0


_CLIP_FUNCTIONS = {"none": no_clip, "two-sided": two_sided_clip, "upper only": upper_clip, "by sign": clip_by_sign}
_CLIP_FUNCTIONS |= {"cap": cap, "cap at high": cap_at_high, "clamp": clamp, "dual": dual_clip}
CLIPS = {name: Clip(name, function) for name, function in _CLIP_FUNCTIONS.items()}


@dataclass(frozen=True)
class Aggregation(Part):
    """How the tokens of a group's responses are added up.

    Attributes
    ----------
    name : str
    function : callable
        ``function(lengths, constant)`` returns the weight of each token of responses of these lengths (K,), shape (K,).
    pool : {"", "group", "batch"}, default ""
        Whose tokens, besides, share the weight 1: G times the tokens' mean over the group, or B G times that over the batch.
    constant : float, optional
        A number of tokens to divide by; the horizon, which is the length of the longest response, if omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from grpo_theory.estimation import AGGREGATIONS
    >>> print(AGGREGATIONS["own length"].shares(np.array([1, 2, 4])))
    [1.   0.5  0.25]
    >>> print(AGGREGATIONS["constant"].shares(np.array([1, 2, 4])))
    [0.25 0.25 0.25]
    """

    name: str
    function: Callable[[Integers, float], Array]
    pool: Literal["", "group", "batch"] = ""
    constant: float | None = None

    def __post_init__(self) -> None:
        if self.constant is not None:
            as_positive("constant", self.constant)

    def shares(self, lengths: Integers) -> Array:
        """Return the weight of each token of the responses, shape (K,), for their lengths (K,)."""
        constant = float(lengths.max()) if self.constant is None else self.constant
        shares = np.ascontiguousarray(self.function(lengths, constant), dtype=np.float64)
        check_shape("function", shares, lengths.shape, "(K,), the weights that it returns")
        return shares


def whole(lengths: Integers, constant: float) -> Array:
    """Weight 1: the sum over tokens."""
    return np.ones(lengths.shape)


def own_length(lengths: Integers, constant: float) -> Array:
    """Weight 1/length: the mean over the response's own tokens (GRPO: arXiv 2402.03300)."""
    return 1.0 / lengths


def constant_length(lengths: Integers, constant: float) -> Array:
    """Weight 1/constant (Dr. GRPO: arXiv 2503.20783)."""
    return np.full(lengths.shape, 1.0 / constant)


AGGREGATIONS = {
    "sum": Aggregation("sum", whole),
    "own length": Aggregation("own length", own_length),
    "constant": Aggregation("constant", constant_length),
    "group tokens": Aggregation("group tokens", whole, pool="group"),
    "batch tokens": Aggregation("batch tokens", whole, pool="batch"),
}


@dataclass(frozen=True)
class KLTerm(Part):
    """An estimator of the divergence and its place.

    Attributes
    ----------
    name : str
    place : {"reward", "loss"}
    function : callable
        ``function(log_ratios, terms)`` fills terms (rows, N) entry by entry from logs of pi/reference of tokens.  For the reward
        the entries are the estimator itself, and for the loss its derivative in log pi.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import KL_TERMS
    >>> KL_TERMS["k3 in loss"].place
    'loss'
    >>> gt.compose("rloo_k3_example", advantage="rloo", kl="k3 in loss").kl.name
    'k3 in loss'
    """

    name: str
    place: Literal["reward", "loss"]
    function: Callable
    arguments: ClassVar[tuple] = (_ROWS, _ROWS)


def k1(log_ratios, terms):
    """Fill in l: k1, and the derivative of k2."""
    terms[:] = log_ratios


def k2(log_ratios, terms):
    """Fill in l^2/2."""
    terms[:] = 0.5 * log_ratios**2


def k3(log_ratios, terms):
    """Fill in exp(-l) - 1 + l."""
    # expm1, because exp(-l) - 1 loses all digits where the policy has hardly left the reference.
    # On policy, E[W sum_t k3(l_t)] = grad {KL(pi || reference) - KL(reference || pi)}.  The last one has its visits to
    # prefixes held fixed (docs/derivations.md, section 19).
    terms[:] = np.expm1(-log_ratios) + log_ratios


def k1_slope(log_ratios, terms):
    """Fill in 1, the derivative of k1: its mean gradient under pi is 0."""
    terms[:] = 1.0


def k3_slope(log_ratios, terms):
    """Fill in 1 - exp(-l), the derivative of k3."""
    # On policy, E[sum_t (1 - exp(-l_t)) W_t] = grad KL(reference || pi), with visits to prefixes held fixed
    # (docs/derivations.md, section 19).
    terms[:] = -np.expm1(-log_ratios)


_KL_FUNCTIONS: dict[Literal["reward", "loss"], tuple] = {"reward": (k1, k2, k3), "loss": (k1_slope, k1, k3_slope)}
KL_TERMS = {
    one.name: one
    for place, functions in _KL_FUNCTIONS.items()
    for one in (KLTerm(f"k{k} in {place}", place, function) for k, function in enumerate(functions, 1))
}


@dataclass(frozen=True)
class Mismatch:
    """The second importance ratio of an estimator, and its bound.

    Attributes
    ----------
    name : str
    ratio : Ratio
        Of pi_old over the sampler: per token, of the whole response, or geometric.
    bound : Clip
        What becomes of it, whatever the sign of the advantage; it must leave a ratio of 1 as it is.

    Raises
    ------
    ValueError
        If the bound depends on the advantage's sign, or changes a ratio of 1.

    Examples
    --------
    >>> from grpo_theory.estimation import MISMATCHES
    >>> truncated = MISMATCHES["token truncated"]
    >>> truncated.with_bound(3.0).bound.high  # a ratio is cut at 1 + high
    2.0
    >>> truncated.is_same(truncated.with_bound(3.0))
    False
    """

    name: str
    ratio: Ratio
    bound: Clip

    def __post_init__(self) -> None:
        ratios = np.array([[0.01], [0.5], [1.0], [1.1], [2.0], [100.0]])
        weights = np.zeros((2, *ratios.shape))
        for sign in range(2):
            self.bound.function(ratios, len(ratios), sign == 0, self.bound.widths, weights[sign])
        if weights[0, 2, 0] != 1.0 or not np.array_equal(weights[0], weights[1]):
            raise ValueError(
                f"bound must leave a ratio of 1 as it is and not depend on the advantage's sign. But {self.bound.name!r} with "
                f"widths {self.bound.low:g} and {self.bound.high:g} does not. Take 'none', 'cap', 'clamp' or 'upper only'"
            )

    def with_bound(self, largest: float) -> "Mismatch":
        """Return the same mismatch with another upper bound on the ratio, at least 1."""
        if not 1.0 <= as_number("largest", largest) < np.inf:
            raise ValueError(f"largest must be finite and at least 1, got {largest}")
        return Mismatch(self.name, self.ratio, self.bound.with_widths(self.bound.low, largest - 1.0))

    def is_same(self, other: "Mismatch") -> bool:
        """Whether both are one mismatch, though perhaps of a file that has been run again."""
        return self.name == other.name and self.ratio.is_same(other.ratio) and self.bound.is_same(other.bound)


MISMATCHES = {
    "none": Mismatch("none", RATIOS["none"], CLIPS["none"]),
    "token": Mismatch("token", RATIOS["token"], CLIPS["none"]),
    "token truncated": Mismatch("token truncated", RATIOS["token"], CLIPS["cap"].with_widths(0.0, 1.0)),
    "token masked": Mismatch("token masked", RATIOS["token"], CLIPS["upper only"].with_widths(0.0, 4.0)),
    "response truncated": Mismatch("response truncated", RATIOS["trajectory"], CLIPS["cap"].with_widths(0.0, 1.0)),
    "response masked": Mismatch("response masked", RATIOS["trajectory"], CLIPS["upper only"].with_widths(0.0, 2.0)),
}
"""The mismatches by name, with the bounds that trainers use by default.  The bound is 2 where the ratio is truncated (verl), 5
where tokens are masked (AReaL), and 3 where responses are masked (TRL with vLLM).  The sources are in docs/trainers.md."""


@dataclass(frozen=True)
class Credit(Part):
    """What each token gets besides the advantage of its response.

    Attributes
    ----------
    name : str
    function : callable
        ``function(point, settings)`` returns the credits of the tokens of all responses, shape (M, K, T), at the `gt.Point` of
        the policy that samples.  Beyond a response's end they are not read.  Ratio, clip and aggregation apply to them.
        Of a `TokenChain` they have the shape (T, S, V): by tokens drawn so far, state and token.
    settings : tuple of float
        What the function finds in `settings`.
    continuations : int, default 0
        If above 0, each V_t of "values" or "gae" is the mean reward of so many continuations, drawn anew for each response and
        token.  At a response's end V is its mean reward.

    Examples
    --------
    Process rewards, here a tenth for each token that is not the first of the vocabulary, from each token on:

    >>> import numpy as np, grpo_theory as gt
    >>> def to_go(point, settings):
    ...     paths = point.policy.paths
    ...     paid = settings[0] * paths.gather(np.arange(paths.n_logits) % paths.vocabulary_size > 0)
    ...     rest = np.cumsum(paid[:, ::-1], axis=1)[:, ::-1]
    ...     return np.broadcast_to(rest, (len(point.probabilities), *rest.shape))
    >>> process = gt.estimation.Credit("process", to_go, (0.1,))
    >>> gt.compose("rloo_and_process_example", advantage="rloo", credit=process).credit.with_settings(0.2).settings
    (0.2,)

    Values that are the mean of four continuations, not of VinePPO's nine:

    >>> gt.estimation.CREDITS["vine"].with_continuations(4).continuations
    4
    """

    name: str
    function: Callable
    settings: tuple[float, ...] = ()
    continuations: int = 0

    def __post_init__(self) -> None:
        if as_count("continuations", self.continuations, 0) and self.function is not advantage_estimation:
            raise ValueError(
                f"credit must be of exact values, as 'values' and 'gae' are, to have continuations, got {self.name!r}"
            )

    def with_continuations(self, continuations: int) -> "Credit":
        """Return the same credit with values that are the mean of so many continuations, exact ones if it is 0."""
        return replace(self, continuations=continuations)

    def with_settings(self, *settings: float) -> "Credit":
        """Return the same credit with other settings."""
        return replace(self, settings=tuple(as_number("settings", one) for one in settings))


def no_credit(point: Any, settings: tuple[float, ...]) -> float:
    """Return 0."""
    return 0.0


def advantage_estimation(point: Any, settings: tuple[float, ...]) -> Array:
    """Return sum_l lambda^l delta_{t+l}, delta_t = V_{t+1} - V_t for exact values V, at a response's end its reward."""
    decay, (before, after) = settings[0], means_at_tokens(point, point.bandit.mean_reward - point.penalties)
    # GAE (Schulman et al. 2016, equation 16) with discount 1; with lambda = 0 it is Q - V, with 1 the reward less V.
    credits = after - before
    for t in range(credits.shape[-1] - 2, -1, -1):
        credits[..., t] += decay * credits[..., t + 1]
    return credits


def means_at_tokens(point: Any, amounts: Array) -> tuple[Array, Array]:
    """Return the mean of what responses have (M, K), given the prefix before each token and given the token too, (M, K, T)."""
    paths, p = point.policy.paths, point.probabilities
    taken, gained = paths.collect(p), paths.collect(p * amounts)
    # V at a prefix is what is gained through its edges over the chance to be there; a token leads to its edge's own.
    before, after = (
        np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0.0)
        for top, bottom in ((paths.by_prefix(gained), paths.by_prefix(taken)), (gained, taken))
    )
    return paths.gather(before), paths.gather(after)


def value_variances(point: Any) -> Array:
    """Return the variance of the reward given the prefix before each token of each response, shape (M, K, T)."""
    law = point.bandit.probabilities
    rewards = point.rewards.reshape(law.shape) - point.value[:, None, None]  # squares of what is far from 0 would cancel
    mean, square = ((law * rewards**power).sum(axis=-1) for power in (1, 2))
    return np.maximum(means_at_tokens(point, square)[0] - means_at_tokens(point, mean)[0] ** 2, 0.0)


CREDITS = {
    "none": Credit("none", no_credit),
    "values": Credit("values", advantage_estimation, (0.0,)),
    "gae": Credit("gae", advantage_estimation, (0.95,)),
    "vine": Credit("vine", advantage_estimation, (0.0,), continuations=9),
}
"""The credits by name: "values" is Q - V at each prefix, "gae" generalised advantage estimation, both with exact values.  Those
of "vine" are the means of nine continuations (VinePPO: arXiv 2410.01679)."""

PARTS: dict[str, Mapping[str, Any]] = {"ratio": RATIOS, "clip": CLIPS, "aggregation": AGGREGATIONS, "kl": KL_TERMS}
PARTS |= {"mismatch": MISMATCHES, "credit": CREDITS}
"""By the argument of `gt.compose`."""


def find_part(argument: str, value: Any) -> Any:
    """Look up a part of a composition by its name, for an argument of `gt.compose`; a part is returned as it is.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those that there are.
    TypeError
        If it is neither a name nor a part.
    """
    named = PARTS[argument]
    kind = type(next(iter(named.values())))
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a name or an instance of {kind.__name__}, got {value!r}")
    check_name(argument, value, named)
    return named[value]
