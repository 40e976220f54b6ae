"""Chains of tokens: laws by recursion at a thousand tokens, all batches and runs of a short chain, and the same bits."""

import numpy as np
import pytest
from enumeration import Case, Dense
from networks import listed_case
from runs_by_hand import Algorithm, adam_by_numpy, all_observations, ascend, assert_match, z_of_moments

import grpo_theory as gt
from grpo_theory.simulate.policies import dense_features

LIMIT = 4.9
SIZES = {"batch_size": 2, "group_size": 4}
STOPPING = np.array([[[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.3, 0.1]], [[0.2, 0.0, -0.1, 1.0], [1.0, 0.0, 0.0, -0.5]]])


def long_stopping():
    """Responses of some 300 tokens that end by themselves, most of them before the horizon."""
    chain = gt.TokenChain([[0, 1], [1, 0]], 1024, end_token=1, starts=[0, 1], features=STOPPING)
    return gt.Problem(gt.StateRewards([0.2, 0.7]), chain, theta=[-6.5, 1.0, 0.4, 0.0])


def short():
    """A chain of three states with an end token."""
    chain = gt.TokenChain([[0, 1, 2], [1, 2, 0], [2, 0, 1]], 4, end_token=2, starts=[0, 1])
    theta = np.random.default_rng(0).normal(size=chain.dimension)
    return gt.Problem(gt.StateRewards([0.1, 0.8, 0.4], [0.3, 0.7]), chain, theta=theta)


def shortest(activation=None, only=None):
    """A chain whose responses have at most two tokens, so that batches and runs can be enumerated; and its listed twin.

    It may have features that a network learns; or one prompt alone and certain rewards, so that runs of three steps are few.
    """
    network = gt.TwoLayerSoftmax([[1.0, 0.5], [0.2, -1.0]], 2, 2, activation) if activation else None
    chain = gt.TokenChain([[0, 1], [1, 0]], 2, end_token=1, starts=[0, 1], network=network)
    rewards = gt.StateRewards([0.0, 0.7], [0.3, 0.7]) if only is None else gt.StateRewards([0.0, 1.0], np.eye(2)[only])
    problem = gt.Problem(rewards, chain, theta=np.cos(1.3 * np.arange(chain.dimension)) if activation else [0.3, -0.2, 0.1, 0.4])
    if activation:
        return problem, listed_case(problem)
    twin = problem.listed()
    return problem, Case(twin, dense_features(twin.policy.logit_map).transpose(2, 0, 1))


@pytest.mark.parametrize("name", ["rloo", "grpo", "trl_dr_grpo_loss"])
def test_estimates_at_a_thousand_tokens_have_the_law_that_recursion_gives(name, seed):
    """On policy and off it; the one is told from the other by twice the limit."""
    problem, directions = long_stopping(), np.eye(4)[:3]
    away = problem.theta + np.array([0.1, 0.8, 0.05, -0.6])
    behaviours = (None, away) if name != "grpo" else (None,)
    laws = [gt.gradient_law(problem, problem.theta, name, **SIZES, behaviour=behaviour) for behaviour in behaviours]
    for behaviour, own in zip(behaviours, laws, strict=True):
        how = {"directions": directions, "replications": 3000, "rng": seed(5), "behaviour": behaviour}
        run = gt.simulate_gradients(problem, problem.theta, name, **SIZES, **how)
        for law in laws:
            # Standard errors of means along directions are predicted ones.
            along = (run.along[0] - directions @ law.mean) / np.sqrt(law.variance_along(directions) / run.replications)
            z = np.abs([*along, (run.mse[0] - law.mse) / run.mse_standard_error[0]]).max()
            assert z < LIMIT if law is own else z > 2 * LIMIT
        assert run.mse_standard_error[0] < 0.1 * own.mse, "an error of a half would show"


NAMES = ["gspo", "trl_rloo_loss", "tic_grpo", "cispo", "optimal_loo", "optimal", "oracle", "verl_opo", "trl_dr_grpo_loss"]
COUPLED = ["james_stein", "dapo", "trl_grpo_batch", "verl_reinforce_plus_plus_baseline"]


@pytest.mark.parametrize("away", [0.0, 0.4])
def test_estimates_have_the_moments_of_all_batches(away, seed):
    """Ratios of sequences, clips, pools of tokens, kernels that read norms, lengths and values, and that couple groups."""
    problem, twin = shortest()
    behaviour, directions = problem.theta + away * np.cos(np.arange(4)), np.eye(4)[:2]
    estimators, sizes = [gt.estimators()[name] for name in (*NAMES, *COUPLED)], {"batch_size": 2, "group_size": 2}
    chances, rows = all_observations(twin, estimators, behaviour, directions, sizes)
    how = {"behaviour": behaviour, "directions": directions, "replications": 10_000, "rng": seed(5)}
    run = gt.simulate_gradients(problem, problem.theta, estimators, **sizes, **how)
    z, relative = z_of_moments(run, chances, rows)
    assert z < LIMIT
    assert relative < 0.03
    for wrong in (np.roll(rows, 1, axis=0), np.sqrt(1.3) * rows):
        assert z_of_moments(run, chances, wrong)[0] > LIMIT


SPEEDY = gt.Adam((0.5, 0.9), 1e-3)
THRICE = {"inner_steps": 3, "batch_size": 3, "steps": 3, "only": 0}
COURSES = [
    ("rloo", {"steps": 3, "only": 0}),
    ("grpo", {"optimiser": SPEEDY}),
    ("dapo", {"inner_steps": 2, "batch_size": 2}),
    ("gspo", {"inner_steps": 2, "batch_size": 2}),
    ("trl_rloo_loss", {"lag": 1}),
    ("tic_grpo", {"lag": 2, "steps": 3, "only": 1}),
    ("cispo", {"lag": 1, "optimiser": SPEEDY}),
    ("optimal_loo", {"ball": 0.3}),
    ("james_stein", {"batch_size": 2, "steps": 1}),
    ("rloo", {"steps": 3, "only": 0, "activation": "tanh"}),
    ("trl_rloo_loss", {**THRICE, "activation": "relu"}),
    ("trl_rloo_loss", {**THRICE, "activation": "identity", "optimiser": SPEEDY}),
]


@pytest.mark.parametrize(("name", "how"), COURSES)
def test_runs_are_those_that_there_can_be_and_come_as_often_as_they_should(name, how):
    """To 1e-9, and by Pearson's statistic; with three times the chances of half of them they do not pass."""
    how = dict(how)
    problem, twin = shortest(how.pop("activation", None), how.pop("only", None))
    steps, batch_size = gt.PowerLaw(0.9, 0.6).steps(how.pop("steps", 2)), how.pop("batch_size", 1)
    if "ball" in how:
        how["ball"] = gt.Ball(problem.theta, how["ball"])
    optimiser = how.pop("optimiser", gt.SGD())
    move = ascend if optimiser == gt.SGD() else adam_by_numpy(optimiser.betas, optimiser.eps)
    law = Algorithm(Dense(twin), gt.estimators()[name], steps, move=move, **how).runs(problem.theta, batch_size, 2)
    how |= {"batch_size": batch_size, "group_size": 2, "steps": len(steps), "replications": 800}
    runs = gt.simulate_training(problem, problem.theta, name, steps, **how, optimiser=optimiser, rng=3)
    assert_match(runs, problem, law, 3.0)


def test_bits_are_the_same_for_any_workers_and_company():
    problem, names = short(), ["rloo", "gspo", "optimal_loo"]

    def simulate(estimators, **how):
        return gt.simulate_gradients(problem, problem.theta, estimators, **SIZES, **{"replications": 2500, "rng": 5} | how)

    whole = simulate(names)
    assert simulate(names, workers=3).to_dict() == whole.to_dict()
    assert simulate(names, rng=6).to_dict() != whole.to_dict()
    np.testing.assert_array_equal(simulate("gspo").means[0], whole.means[1])
