"""Training problems with a start and a schedule: what the studies of the group size have in common."""

import dataclasses
from collections.abc import Sequence
from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.harness.study import Settings
from grpo_theory.theory import TrainingLaw, leave_one_out_parts, training_law

FAR = (2.0, -2.0, 1.0)
CASES = (
    ("linear", None, ("Constant", 8.0)),
    ("linear", None, ("Harmonic", 120.0, 14)),
    ("mixed", None, ("Constant", 8.0)),
    ("mixed", None, ("Harmonic", 60.0, 4)),
    ("kl-linear", FAR, ("Constant", 2.0)),
    ("kl-linear", FAR, ("Harmonic", 30.0, 14)),
    ("kl-tabular", None, ("Constant", 2.0)),
)
"""Problem, start (the problem's own if None), schedule."""


def case_settings(problem: str, start: Sequence[float] | None, schedule: Sequence[str | float]) -> dict[str, object]:
    """Return the settings that `case_problem` and `case_steps` read."""
    return {"problem": problem, "start": None if start is None else list(start), "schedule": list(schedule)}


def case_problem(settings: Settings) -> gt.Problem:
    """Return the problem of a case, with its start as theta."""
    problem = gt.gallery.problem(settings["problem"])
    return problem if settings["start"] is None else dataclasses.replace(problem, theta=np.array(settings["start"]))


def case_steps(settings: Settings, steps: int) -> Array:
    """Return the first step sizes of a case, shape (steps,)."""
    name, *arguments = settings["schedule"]
    return {"Constant": gt.Constant, "Harmonic": gt.Harmonic}[name](*arguments).steps(steps)


def schedule_label(settings: Settings) -> str:
    """Return the schedule in words."""
    name, *arguments = settings["schedule"]
    return f"{name}({', '.join(f'{value:g}' for value in arguments)})"


def case_law(settings: Settings, steps: int) -> TrainingLaw:
    """Return the exact law of the noise's cost after a number of steps."""
    start = settings["start"]
    return _law(settings["problem"], None if start is None else tuple(start), tuple(settings["schedule"]), steps)


@cache
def _law(name: str, start: tuple[float, ...] | None, schedule: tuple[str | float, ...], steps: int) -> TrainingLaw:
    settings = case_settings(name, start, schedule)
    problem = case_problem(settings)
    return training_law(problem, problem.theta, case_steps(settings, steps), steps=steps)


def best_along(problem: gt.Problem, path: Array, sizes: Integers, budget: int) -> Integers:
    """Return the group size of the gradient's least error at each policy of a path (n, d), shape (n,)."""
    laws = (gt.group_size_law(problem, theta) for theta in path)
    return np.array([sizes[np.argmin(law.mse(budget / sizes, sizes))] for law in laws])


def second_orders(settings: Settings) -> list[float]:
    """Return the second order of the loss at the last checkpoint, with each group size."""
    steps, sizes = settings["checkpoints"][-1], np.array(settings["group_sizes"], dtype=np.float64)
    plans = np.repeat(sizes[:, None], steps, axis=1)
    return [float(loss) for loss in case_law(settings, steps).second_order(settings["budget"], plans)]


def law_without_damping(settings: Settings, steps: int) -> TrainingLaw:
    """Return a law that is known to be wrong: every step's noise is weighed as if it stayed what it was to the end.

    What later steps do to it, the transport of the second derivative in docs/derivations.md, section 14, is left out.
    """
    law, problem, sizes = case_law(settings, steps), case_problem(settings), case_steps(settings, steps)
    curvature = gt.hessian(problem, law.path[-1])
    weights = (
        [-0.5 * size**2 * np.vdot(curvature, part) for part in leave_one_out_parts(problem, theta)]
        for size, theta in zip(sizes, law.path, strict=False)
    )
    return dataclasses.replace(law, constants=np.array(list(weights)))
