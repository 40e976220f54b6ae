"""N10, N11: how orthogonal SmolLM2's questions are, by their representations and by their gradients as the head learns, exact.

All pairs of the 500 questions are compared. The printed numbers are of another model, of 1,000 pairs, and of a model whose hidden
states learn. Here the hidden states are frozen, so a drift of the gradients' cosines comes from the policies alone.

In the controls the mean, which all representations have in common, is added once more, or all features are taken as equal. For
the drift, prompts share no feature, so their cosines stay 0.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check, run
from simulations.normalisation.heads import OWN, ascent, cosines, gram, head_problem, hidden_states, label, near_orthogonal
from simulations.normalisation.measured_statements import ORTHOGONAL_GRADIENTS
from simulations.statements import stated

PARTS = stated("N10", "N11")
PROBLEMS = ("lm-few-shot", "lm-zero-shot", "lm-instruct")
WHITENED = 0.01
"""The ridge of the coordinates in which the head is trained, as in `quality_path`."""
RIDGES = (OWN, 1.0, WHITENED)
COORDINATES = tuple(label(ridge) for ridge in RIDGES)
END, MOST_UPDATES, STRIDE = 0.9, 1000, 0.1
TIMES = ("start", "middle", "end")
"""Success as it is at first, half-way, and END."""
PRINTED_MEAN, PRINTED_SHARE, BELOW = 0.088, 0.9, 0.15
PRINTED_NEAR = dict(zip(TIMES, (0.977, 0.803, 0.524), strict=True))
FALL = 0.1
"""A drift of a tenth of the pairs is a quarter of what is printed."""
EDGES = np.linspace(-1.0, 1.0, 81)


def asked(quick, values, name="coordinates"):
    """Return each way of asking, one if quick, with each of some values."""
    return [{"problem": problem, name: value} for problem in (PROBLEMS[:1] if quick else PROBLEMS) for value in values]


def milestones(path, count, end=END):
    """Return the first states at which mean success is at so many levels, equally far apart from the start to an end.

    Raises
    ------
    ValueError
        If the path does not get there.
    """
    reached: list = []
    levels = np.zeros(0)
    for now in path:
        success = now.value.mean()
        levels = levels if len(levels) else np.linspace(success, end, count)
        while len(reached) < count and success >= levels[len(reached)]:
            reached.append(now)
        if len(reached) == count:
            return reached
    raise ValueError(f"the path must reach a mean success of {end:g}")


@check(
    *stated("N10/mean", "N10/share", "N10/whitened"),
    cases=lambda quick: asked(quick, ("hidden states raw", "hidden states centred", label(WHITENED)), "states"),
    broken={"states": "with the mean"},
    setting="{problem}, {states}",
)
def representations(problem, states):
    """The mean |cos| of hidden states as they are, less their mean, or whitened, and the share of cosines above a limit."""
    hidden = hidden_states(gt.gallery.problem(problem))
    mean = hidden.mean(axis=0)
    if states.startswith("ridge"):
        powers, directions = np.linalg.eigh(hidden.T @ hidden / len(hidden) + WHITENED * np.eye(hidden.shape[1]))
        hidden = hidden @ (directions / np.sqrt(powers)) @ directions.T
    hidden = hidden + {"with the mean": mean, "hidden states centred": -mean}.get(states, 0.0)
    unit = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    between = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
    above = 1.0 - near_orthogonal(between, BELOW), 1.0 - PRINTED_SHARE
    sides = {} if states.startswith("ridge") else {"N10/mean": (np.abs(between).mean(), PRINTED_MEAN), "N10/share": above}
    return sides if states.startswith("hidden") else sides | {"N10/whitened": above}


@run()
def gradients(problem):
    """Return the shares of near-orthogonal gradients at three times, right and broken, in three systems of coordinates."""
    states = milestones(ascent(head_problem(problem, WHITENED), 0.0, MOST_UPDATES, STRIDE), len(TIMES))
    found: dict = {"success": [now.value.mean() for now in states]}
    for ridge in RIDGES:
        products = gram(head_problem(problem, ridge))
        features = {"own": products, "same": np.ones_like(products), "apart": np.diag(np.diag(products))}
        between = {how: [cosines(one, now.logit_gradients) for now in states] for how, one in features.items()}
        found[label(ridge)] = {how: [near_orthogonal(one) for one in each] for how, each in between.items()}
        found[label(ridge)]["density"] = [np.histogram(one, EDGES, density=True)[0] for one in between["own"]]
    return found


@check(
    ORTHOGONAL_GRADIENTS,
    of=gradients,
    cases=lambda quick: [one | {"time": time} for one in asked(quick, COORDINATES) for time in TIMES],
    broken={"how": "same"},
    setting="{problem}, {coordinates}, {time}",
)
def printed(found, coordinates, time, how="own"):
    """The shares that are printed."""
    # equal features have about the share printed for the end, so the control is held against that of the start
    return found[coordinates][how][TIMES.index(time)], PRINTED_NEAR[time if how == "own" else TIMES[0]]


@check(
    stated("N11/drift"),
    of=gradients,
    cases=lambda quick: asked(quick, COORDINATES),
    broken={"how": "apart"},
    setting="{problem}, {coordinates}",
)
def drift(found, coordinates, how="own"):
    """The fall of the share."""
    start, _, end = found[coordinates][how]
    return end - start, -FALL
