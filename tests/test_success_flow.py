"""Flows of a success probability against the gradients of the library, integrated by another method."""

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.theory import DividedFlow, FiniteGroupFlow, PlainFlow, finite_group_objective

GRPO = CONVENTIONS["openrlhf_group_norm"].with_parameters(epsilon=0.0)
"""Divided by the group's own standard deviation, ddof 1, nothing added to it."""


FLOWS = {"plain": PlainFlow(), "plain, 5": PlainFlow(5), "divided": DividedFlow(), "divided, 5": DividedFlow(5)} | {
    f"G = {n}": FiniteGroupFlow(answers, objective=finite_group_objective(GRPO, n)) for n, answers in ((2, 2), (8, 3), (64, 2))
}
WEIGHTS = {"p": lambda v: 1.0, "d": lambda v: 1.0 / np.sqrt(v)}


def weight(name, p):
    return FLOWS[name].objective.slope(p) if name[0] == "G" else WEIGHTS[name[0]](p * (1.0 - p))


@pytest.mark.parametrize("name", FLOWS)
def test_the_flow_is_that_of_the_policys_own_gradients(name):
    """d theta/dt = w(p) grad p in the space of logits, with as many answers, from the library's exact gradients."""
    flow, start = FLOWS[name], 0.01
    problem = gt.Problem(gt.Bandit(np.eye(flow.answers)[:1]), gt.TabularSoftmax(1, flow.answers))
    theta = np.zeros(flow.answers)
    theta[0] = logit(start) + np.log(flow.answers - 1.0)

    def velocity(time, at):
        moments = gt.moments(problem, at)
        return weight(name, moments.value[0]) * moments.gradient

    times = np.array([0.3, 3.0, 30.0, 100.0])
    path = solve_ivp(velocity, (0.0, 100.0), theta, method="DOP853", t_eval=times, rtol=1e-11, atol=1e-11).y.T
    np.testing.assert_allclose([gt.moments(problem, at).value[0] for at in path], flow.success(start, times), rtol=1e-8)


@pytest.mark.parametrize("name", FLOWS)
def test_the_clock_is_the_integral_of_the_slowness(name):
    flow = FLOWS[name]
    for end in (-6.0, -0.4, 3.0):
        slowness = quad(lambda u: 1.0 / (weight(name, expit(u)) * expit(u) * expit(-u)), 0.0, end, epsabs=0.0, epsrel=1e-12)[0]
        np.testing.assert_allclose(flow.clock(end), slowness, rtol=1e-11)
