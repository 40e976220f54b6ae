"""Training runs: what they reach, update by update, with the spread of the runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpo_theory.plot.axes import given_or_new
from grpo_theory.simulate import TrainingRuns
from grpo_theory.validation import as_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def training(runs: TrainingRuns | Mapping[str, TrainingRuns], *, share: float = 0.8, axes: "Axes | None" = None) -> "Axes":
    """Draw the mean objective against the number of updates, with a band that holds a share of the runs.

    Parameters
    ----------
    runs : TrainingRuns, or mapping of them by label
    share : float, default 0.8
        Of the runs at a checkpoint, between equal tails; runs that diverged are in neither mean nor band.
    axes : Axes, optional
        New ones if omitted.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If runs have but one checkpoint, as without `checkpoints` of `gt.simulate_training`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("single"), {"batch_size": 4, "group_size": 4, "steps": 16, "replications": 32}
    >>> runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.2), **sizes, checkpoints=[1, 4, 16], rng=0)
    >>> gt.plot.training({"leave one out": runs}).get_xlabel()
    'updates'
    """
    import pandas as pd  # slow to import, and not always wanted
    import seaborn as sns
    from matplotlib.colors import to_hex

    as_fraction("share", share)
    named = {runs.estimator: runs} if isinstance(runs, TrainingRuns) else runs
    if not isinstance(named, Mapping) or not all(isinstance(one, TrainingRuns) for one in named.values()):
        raise TypeError(f"runs must be TrainingRuns or a mapping of labels to them, got {type(runs).__name__}")
    if not named:
        raise ValueError("runs must have at least one label, got none")
    for label, one in named.items():
        if len(one.checkpoints) < 2:
            raise ValueError(
                f"runs must have several checkpoints to be drawn, {label!r} has one: simulate them with checkpoints="
            )
    frames = [one.to_frame().assign(label=label) for label, one in named.items()]
    frame = pd.concat(frames, ignore_index=True).dropna(subset=["objective"])
    axes = given_or_new(axes)
    # Seaborn does not take the next colours from the axes' cycle itself.
    lines = [axes.plot([], [])[0] for _ in named]
    looks: dict[str, Any] = {"hue": "label", "style": "label", "palette": [to_hex(line.get_color()) for line in lines]}
    for line in lines:
        line.remove()
    sns.lineplot(frame, x="updates", y="objective", estimator="mean", errorbar=("pi", 100 * share), ax=axes, **looks)
    axes.set(ylabel=f"objective: mean, and {share:.0%} of the runs")
    axes.legend()
    return axes
