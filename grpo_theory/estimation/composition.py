"""Estimators made of a kernel, or composed of parts."""

from collections.abc import Callable, Mapping

from grpo_theory.estimation.advantage import Advantage
from grpo_theory.estimation.aggregation import Aggregation, find_aggregation
from grpo_theory.estimation.kernel import check_arguments, fields_read
from grpo_theory.estimation.kl_term import KLTerm, find_kl_term
from grpo_theory.estimation.mismatch import Mismatch, find_mismatch
from grpo_theory.estimation.ratio import Clip, Ratio, find_clip, find_ratio
from grpo_theory.estimation.registry import Estimator, find, register
from grpo_theory.estimation.source import remember_text
from grpo_theory.validation import as_count


def make_estimator(
    name: str,
    function: Callable,
    *,
    parameters: Mapping[str, float] | None = None,
    minimum_group_size: int = 1,
    couples_groups: bool = False,
    source: str = "",
) -> Estimator:
    """Make an estimator from an advantage kernel without registering it; the arguments are those of `estimator`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import make_estimator
    >>> def halfway(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         for g in range(batch.rewards.shape[1]):
    ...             advantages[b, g] = batch.rewards[b, g] - 0.5
    >>> mine = make_estimator("halfway_of_mine", halfway)
    >>> gt.advantages([[1.0, 0.0]], mine)[0].tolist(), "halfway_of_mine" in gt.estimators()
    ([0.5, -0.5], False)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    check_arguments(function)
    advantage = Advantage(
        name=name,
        function=function,
        parameters={} if parameters is None else parameters,
        minimum_group_size=as_count("minimum_group_size", minimum_group_size),
        couples_groups=couples_groups,
        reads=fields_read(function),
    )
    remember_text(function)
    return Estimator(name, advantage, source=source)


def estimator(
    name: str,
    *,
    parameters: Mapping[str, float] | None = None,
    minimum_group_size: int = 1,
    couples_groups: bool = False,
    source: str = "",
    overwrite: bool = False,
) -> Callable[[Callable], Estimator]:
    """Register an advantage kernel under a name; the decorated function becomes an `Estimator`.

    Parameters
    ----------
    name : str
        The name by which every function of the package accepts the estimator.
    parameters : Mapping[str, float], optional
        Names and default values of what the kernel finds in ``batch.parameters``.
    minimum_group_size : int, default 1
        The smallest G for which the advantages are defined; 2 for leave-one-out estimators.
    couples_groups : bool, default False
        Whether an advantage depends on other groups of the batch.  If not, the kernel may be given the groups of many batches
        at once.
    source : str, optional
        Formula and source, in a line; the first line of the kernel's docstring if omitted.
    overwrite : bool, default False
        Whether the kernel may replace another one of this name, as in a notebook.  The package's own are never replaced.
        Compositions that have its advantages keep those of before; compose them anew.

    Raises
    ------
    TypeError
        If the function is not a kernel.
    ValueError
        If another kernel has the name already, and is not to be or cannot be replaced.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> @gt.estimator("halfway")
    ... def halfway(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         for g in range(batch.rewards.shape[1]):
    ...             advantages[b, g] = batch.rewards[b, g] - 0.5
    """
    facts = {
        "parameters": parameters,
        "minimum_group_size": minimum_group_size,
        "couples_groups": couples_groups,
        "source": source,
    }
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    as_count("minimum_group_size", minimum_group_size)

    def made(function: Callable) -> Estimator:
        return register(make_estimator(name, function, **facts), overwrite=overwrite)  # type: ignore[arg-type]

    return made


def compose(
    name: str,
    *,
    advantage: str | Estimator,
    ratio: str | Ratio = "none",
    clip: str | Clip = "none",
    aggregation: str | Aggregation = "sum",
    kl: str | KLTerm = "k1 in reward",
    mismatch: str | Mismatch = "none",
    source: str = "",
    overwrite: bool = False,
) -> Estimator:
    """Build an estimator from advantage, importance ratio, clip, aggregation and KL term, and register it.

    A response with tokens t contributes A sum_t w_t c_t + v to the estimate. A is its advantage, and v is the gradient of a KL
    term in the loss. The covector c_t of the token is e_edge - (the probabilities at its prefix). The weight w_t is what clip and
    aggregation make of the importance ratio, times the bounded mismatch.

    Parameters
    ----------
    name : str
        The name by which every function of the package accepts the estimator.
    advantage : str or Estimator
        Whose advantages.
    ratio : {"none", "token", "trajectory", "geometric"} or Ratio
        The importance ratio: probability under the current policy divided by that under the policy that sampled.
    clip : {"none", "two-sided", "upper only", "by sign", "cap", "cap at high", "clamp", "dual"} or Clip
        What happens to a ratio too far from 1. A name stands for widths of 0.2; for other widths give the object, as
        ``gt.estimation.CLIPS["by sign"].with_widths(0.2, 0.28)``. The ratio "none" is 1, which only "cap at high" changes, so
        a clip of it is most often a slip.
    aggregation : {"sum", "own length", "constant", "group tokens", "batch tokens"} or Aggregation
        How tokens are added up.
    kl : {"k1 in reward", "k2 in reward", "k3 in reward", "k1 in loss", "k2 in loss", "k3 in loss"} or KLTerm
        How the problem's penalty, if it has one, enters.
    mismatch : {"none", "token", "token truncated", "token masked", "response truncated", "response masked"} or Mismatch
        A second ratio, of the policy at the start of the update over the one that sampled. It has a bound of its own. It counts
        where `gt.gradient_law` is told both policies, and is 1 elsewhere.
    source : str, optional
        Formula and source, in a line.
    overwrite : bool, default False
        Whether it may take the place of another one of this name, which is not the package's.

    Raises
    ------
    ValueError
        If a part is unknown (the message suggests the nearest), or another estimator has the name.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> ppo = gt.compose("ppo_like", advantage="rloo", ratio="token", clip="by sign", aggregation="own length")
    >>> tis = gt.compose("ppo_like_tis", advantage="rloo", ratio="token", clip="by sign", mismatch="token truncated")
    >>> tis.mismatch.bound.high  # a ratio is cut at 1 + high
    1.0
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    parts = (find_ratio(ratio), find_clip(clip), find_aggregation(aggregation), find_kl_term(kl))
    second = find_mismatch(mismatch)
    return register(Estimator(name, find(advantage, "advantage").advantage, *parts, source, second), overwrite=overwrite)
