"""Problems of chains at their own parameter."""

import grpo_theory as gt
from grpo_theory.problem import ChainPoint


def chain_point(problem: gt.Problem) -> ChainPoint:
    """Return a chain's problem at its own parameter."""
    point = problem.at(problem.theta)
    assert isinstance(point, ChainPoint)
    return point
