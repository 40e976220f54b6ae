"""Chains of tokens: laws by recursion at a thousand tokens, all batches and runs of a short chain, and the same bits."""

import numpy as np
import pytest
from dense import Dense
from enumeration import Case
from runs_by_hand import Algorithm, adam_by_numpy, all_observations, ascend, match, z_of_moments

import grpo_theory as gt
from grpo_theory.simulate.policies import dense_features

LIMIT, RARE = 4.9, 1e-6
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


def shortest():
    """A chain whose responses have at most two tokens, so that batches and runs can be enumerated; and its listed twin."""
    chain = gt.TokenChain([[0, 1], [1, 0]], 2, end_token=1, starts=[0, 1])
    problem = gt.Problem(gt.StateRewards([0.0, 0.7], [0.3, 0.7]), chain, theta=[0.3, -0.2, 0.1, 0.4])
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
COURSES = {
    "rloo": {"steps": 3, "only": 0},
    "grpo": {"optimiser": SPEEDY},
    "dapo": {"inner_steps": 2, "batch_size": 2},
    "gspo": {"inner_steps": 2, "batch_size": 2},
    "trl_rloo_loss": {"lag": 1},
    "tic_grpo": {"lag": 2, "steps": 3, "only": 1},
    "cispo": {"lag": 1, "optimiser": SPEEDY},
    "optimal_loo": {"ball": 0.3},
    "james_stein": {"batch_size": 2, "steps": 1},
}


def train(problem, estimator, schedule=gt.Constant(0.5), **more):  # noqa: B008
    how = {"batch_size": 4, "group_size": 4, "steps": 8, "replications": 9, "rng": 3} | more
    return gt.simulate_training(problem, problem.theta, estimator, schedule, **how)


@pytest.mark.parametrize("name", COURSES)
def test_runs_are_those_that_there_can_be_and_come_as_often_as_they_should(name):
    """To 1e-9, and by Pearson's statistic; with three times the chances of half of them they do not pass."""
    how, (problem, twin) = dict(COURSES[name]), shortest()
    steps, batch_size, only = gt.PowerLaw(0.9, 0.6).steps(how.pop("steps", 2)), how.pop("batch_size", 1), how.pop("only", None)
    if only is not None:  # one prompt and certain rewards, so that runs of three steps are few
        weights = np.eye(2)[only]
        problem = gt.Problem(gt.StateRewards([0.0, 1.0], weights), problem.policy, theta=problem.theta)
        twin = Case(problem.listed(), twin.features)
    if "ball" in how:
        how["ball"] = gt.Ball(problem.theta, how["ball"])
    optimiser = how.pop("optimiser", gt.SGD())
    move = ascend if optimiser == gt.SGD() else adam_by_numpy(optimiser.betas, optimiser.eps)
    chances, paths = Algorithm(Dense(twin), gt.estimators()[name], steps, move=move, **how).runs(problem.theta, batch_size, 2)
    how |= {"batch_size": batch_size, "group_size": 2, "steps": len(steps), "replications": 800}
    runs = train(problem, name, steps, **how, optimiser=optimiser)
    distance, p_value = match(runs, problem, (chances, paths))
    assert distance < 1e-9
    assert p_value > RARE
    ends = paths[:, -1] @ np.arange(4)
    wrong = chances * np.where(ends > chances @ ends, 3.0, 1.0)
    assert match(runs, problem, (wrong / wrong.sum(), paths))[1] < RARE


def test_bits_are_the_same_for_any_workers_number_company_and_checkpoints():
    problem, names = short(), ["rloo", "gspo", "optimal_loo"]

    def simulate(estimators, **how):
        return gt.simulate_gradients(problem, problem.theta, estimators, **SIZES, **{"replications": 2500, "rng": 5} | how)

    whole = simulate(names)
    assert simulate(names, workers=3).to_dict() == whole.to_dict()
    assert simulate(names, rng=6).to_dict() != whole.to_dict()
    np.testing.assert_array_equal(simulate("gspo").means[0], whole.means[1])
    run = train(problem, "gspo", inner_steps=2, workers=1)
    for workers, replications, checkpoints in ((5, 9, [2, 8]), (2, 4, [0, 8])):
        other = train(problem, "gspo", replications=replications, inner_steps=2, workers=workers, checkpoints=checkpoints)
        for field in ("theta", "average", "farthest"):
            np.testing.assert_array_equal(getattr(other, field), getattr(run, field)[:replications])
        np.testing.assert_array_equal(other.objectives[:, -1], run.objectives[:replications, -1])
    assert len(np.unique(run.theta, axis=0)) == 9
