"""Training problems of the gallery at their maximisers."""

from functools import cache

import numpy as np

import grpo_theory as gt


@cache
def maximum(name: str) -> tuple[gt.Problem, np.ndarray, float]:
    """Return a training problem, its maximiser and the maximum."""
    problem = gt.gallery.problem(name)
    best = gt.find_optimum(problem, problem.theta)
    return problem, best, float(gt.objective(problem, best))


@cache
def curvatures(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the curvatures at the maximiser and their directions Q."""
    problem, best, _ = maximum(name)
    return gt.exact.check_optimum(problem, best)
