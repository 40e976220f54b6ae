"""Training problems with a start and a schedule: what the studies of the group size have in common."""

import dataclasses
from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.theory import training_law

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
OTHERS = (
    *(("kl-linear", FAR, ("Constant", step)) for step in (0.25, 1.0, 4.0)),
    ("lm-few-shot", None, ("Constant", 0.005)),
)


def schedule_label(schedule):
    """Return the schedule in words."""
    name, *arguments = schedule
    return f"{name}({', '.join(f'{value:g}' for value in arguments)})"


CASE_AT = {(case[0], schedule_label(case[2])): case for case in (*CASES, *OTHERS)}
"""By the problem's name and the schedule in words."""


def case_settings(problem, schedule):
    """Return the settings that `case_of` reads."""
    _, start, arguments = CASE_AT[problem, schedule]
    return {"problem": problem, "start": None if start is None else list(start), "schedule": list(arguments)}


def case_of(settings):
    """Return the case of a cell's settings."""
    return CASE_AT[settings["problem"], schedule_label(settings["schedule"])]


def case_problem(case):
    """Return the problem of a case, with its start as theta."""
    problem = gt.gallery.problem(case[0])
    return problem if case[1] is None else dataclasses.replace(problem, theta=np.array(case[1]))


def case_steps(case, steps):
    """Return the first step sizes of a case, shape (steps,)."""
    name, *arguments = case[2]
    return {"Constant": gt.Constant, "Harmonic": gt.Harmonic}[name](*arguments).steps(steps)


@cache
def case_law(case, steps):
    """Return the exact law of the noise's cost after a number of steps."""
    problem = case_problem(case)
    return training_law(problem, problem.theta, case_steps(case, steps), steps=steps)


def best_along(problem, path, sizes, budget):
    """Return the group size of the gradient's least error at each policy of a path (n, d), shape (n,)."""
    laws = (gt.group_size_law(problem, theta) for theta in path)
    return np.array([sizes[np.argmin(law.mse(budget / sizes, sizes))] for law in laws])
