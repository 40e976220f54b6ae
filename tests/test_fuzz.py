"""Inputs of every kind at every public callable: a result, or a ValueError or TypeError that names an argument."""

import inspect
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import grpo_theory as gt

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
"""How many inputs are tried; 2,000 take less than two minutes."""

PROBLEM = gt.gallery.problem("kl-linear")
TABULAR = gt.gallery.problem("tabular")
BEST = gt.find_optimum(PROBLEM, PROBLEM.theta)
MOMENTS = gt.moments(PROBLEM, PROBLEM.theta)
SIZES = {"batch_size": 2, "group_size": 3}
RUN = {**SIZES, "steps": 24, "replications": 3, "rng": 1, "workers": 1}
AT = {"problem": PROBLEM, "theta": PROBLEM.theta}
ESTIMATE = {**AT, "estimator": "rloo", **SIZES}
ALLOCATION = gt.allocation_law(**AT, high=5)
NOISE = np.random.default_rng(5)
ROLLOUTS = gt.Rollouts(NOISE.integers(0, 2, (6, 4)).astype(float), NOISE.normal(size=(6, 4, 3)))
RAGGED = gt.RaggedRollouts(np.repeat(np.arange(5), [4, 5, 4, 6, 5]), ROLLOUTS.rewards.ravel(), NOISE.normal(size=(24, 3)))
LOG = Path(__file__).parent / "rollouts.csv"
READ = dict.fromkeys(("prompt", "reward", "response", "step")) | {"steps": "newest", "batch_rows": 2}
OF_ROLLOUTS = {"rollouts": ROLLOUTS, "level": 0.9}
RECORD = next(
    iter(gt.simulate_records(PROBLEM, BEST + 0.1, "rloo", gt.Power(0.8, 0.6), **RUN | {"replications": 1, "steps": 200}))
)
RECORD = gt.TrainingRecord(RECORD.step_sizes, RECORD.path[0], RECORD.mean_rewards[0], RECORD.hessian[0])
OF_RECORD = {"record": RECORD, "level": 0.9}
LINEAR = gt.theory.linearise(PROBLEM, BEST, "rloo", **SIZES)
REGION = gt.exact.region(PROBLEM, BEST, radius=0.2, reach=0.3)
PAIRS = {"a": NOISE.normal(size=8), "b": NOISE.normal(size=8)}
DRAWN = {"problem": PROBLEM, "truth": MOMENTS.gradient, "experiment": gt.Pilot(3, 4), "level": 0.9, "rng": 1}


def of_one_name(cases):
    """Return cases by the name of their callable."""
    return {getattr(call, "__qualname__", repr(call)): (call, valid) for call, valid in cases}


CASES = of_one_name(
    [
        (gt.Adam, {"eps": 1e-8}),
        (gt.SGD, {}),
        (gt.Ball, {"centre": np.zeros(3), "radius": 1.0}),
        (gt.Bandit, {"success": [[0.1, 0.9]], "prompt_weights": [1.0]}),
        (gt.Bandit.from_law, {"values": [0.0, 2.0], "probabilities": [[[0.1, 0.9]]], "prompt_weights": [1.0]}),
        (TABULAR.bandit.at_prompt, {"prompt": 0}),
        (gt.KL, {"strength": 0.1, "reference": [[0.5, 0.5]]}),
        (gt.Problem, {"bandit": TABULAR.bandit, "policy": TABULAR.policy, "kl": None, "theta": TABULAR.theta, "name": "a"}),
        (TABULAR.at, {"theta": TABULAR.theta}),
        (gt.LinearSoftmax, {"features": np.ones((2, 3, 2))}),
        (gt.TabularSoftmax, {"n_prompts": 2, "n_responses": 3}),
        (gt.SoftmaxHead, {"hidden": np.ones((2, 3)), "n_responses": 3}),
        (gt.TokenTree, {"n_prompts": 2, "vocabulary_size": 2, "horizon": 2, "end_token": 0, "features": None, "hidden": None}),
        (gt.TwoLayerSoftmax, {"inputs": np.ones((2, 3)), "width": 2, "n_responses": 3, "activation": "tanh", "scale": 0.5}),
        (gt.TwoLayerSoftmax(np.ones((2, 3)), 2, 3).start, {"rng": 1}),
        (gt.StateRewards, {"success": [0.2, 0.9], "prompt_weights": [1.0]}),
        (gt.TokenChain, {"transitions": [[0, 1], [1, 0]], "horizon": 3, "end_token": 0, "features": None, "starts": [0]}),
        (gt.Policy, {"logit_map": TABULAR.policy.logit_map, "paths": None}),
        (TABULAR.policy.probabilities, {"theta": TABULAR.theta}),
        (TABULAR.policy.scores, {"theta": TABULAR.theta}),
        (gt.Paths, {"edges": np.array([[0], [1]]), "vocabulary_size": 2}),
        (gt.gallery.problem, {"name": "linear"}),
        (gt.Constant, {"step": 0.1}),
        (gt.Margin, {"value": 0.02, "because": "less than a reader would notice"}),
        (
            gt.Statement,
            {
                **{"id": "X1", "source": "here", "text": "a = b", "kind": "identity", "assumptions": "", "formula": "$a = b$"},
                **{"margin": gt.Margin(0.02, "argued"), "whose": "ours", "measured": False, "open": ""},
            },
        ),
        (gt.Harmonic, {"step_scale": 1.0, "offset": 2}),
        (gt.Power, {"step_scale": 1.0, "exponent": 0.5}),
        (gt.Constant(0.1).steps, {"n": 4}),
        (gt.Harmonic(1.0).steps, {"n": 4}),
        (gt.Power(1.0, 0.5).steps, {"n": 4}),
        (gt.edge_table, {"policy": gt.TokenTree(1, 2, 2)}),
        (gt.response_table, {"policy": gt.TokenTree(1, 2, 2)}),
        (gt.moments, AT),
        (gt.objective, AT),
        (gt.hessian, AT),
        (gt.exact.gradient, AT),
        (gt.exact.directional_derivatives, {**AT, "directions": np.eye(3)}),
        (gt.exact.spectral_radius, {**AT, "step": 0.1}),
        (gt.exact.check_optimum, {"problem": PROBLEM, "optimum": BEST}),
        (gt.find_optimum, {"problem": PROBLEM, "theta0": PROBLEM.theta}),
        (gt.exact.search_optimum, {"problem": PROBLEM, "theta0": PROBLEM.theta, "restarts": 2, "rng": 1}),
        (gt.exact.region, {"problem": PROBLEM, "optimum": BEST, "radius": 0.2, "reach": 0.3}),
        (gt.exact.steepest_ray, {"problem": PROBLEM, "optimum": BEST, "radius": 0.2}),
        (gt.exact.longest_estimate, {"problem": PROBLEM, "optimum": BEST, "radius": 0.2}),
        (gt.gradient_law, ESTIMATE),
        (gt.gradient_mean, ESTIMATE),
        (gt.gradient_covariance, ESTIMATE),
        (gt.gradient_mse, {**ESTIMATE, "behaviour": PROBLEM.theta}),
        (gt.efficiency, {**ESTIMATE, "behaviour": PROBLEM.theta}),
        (gt.gradient_law(**ESTIMATE).variance_along, {"directions": np.eye(3)}),
        (gt.group_size_law, AT),
        (gt.group_size_law(**AT).mse, SIZES),
        (gt.group_size_law(**AT).best, {"budget": 12}),
        (gt.allocation_law, {**AT, "estimator": "rloo", "low": 2, "high": 5, "start": PROBLEM.theta}),
        (ALLOCATION.mse, {"sizes": [2, 3, 4, 5]}),
        (ALLOCATION.sizes, {"rule": "vip", "budget": 14}),
        (ALLOCATION.best, {"budget": 14}),
        (gt.allocation_rules, {}),
        (gt.allocation_rules()["vip"].between, {"low": 2, "high": 5}),
        (
            gt.AllocationRule,
            {"name": "a", "fill": gt.allocation_rules()["vip"].fill, "low": 2, "high": 5, "wants_traces": False, "memory": 0.5}
            | {"wants_success": False, "weighted": True},
        ),
        (gt.theory.mse_weights, SIZES),
        (gt.theory.leave_one_out_parts, AT),
        (gt.theory.leave_one_out_covariance, {**AT, **SIZES}),
        (gt.theory.leave_one_out_traces, {"moments": MOMENTS, "group_size": 3}),
        (gt.theory.own_mean_mse, {"moments": MOMENTS, **SIZES}),
        (gt.theory.break_even_group_size, {"moments": MOMENTS}),
        (gt.theory.remainder_bound, {"moments": MOMENTS, "group_size": 3, "reward_range": 1.0}),
        (gt.theory.baseline_trace, {"moments": MOMENTS, "baseline": 0.5}),
        (gt.theory.finite_group_objective, {"estimator": "rloo", "group_size": 3}),
        (gt.theory.standardised_slope, {"p": 0.3, "group_size": 3, "ddof": 1.0, "epsilon": 1e-4}),
        (gt.theory.left_out_slope, {"p": 0.3, "group_size": 3, "ddof": 1.0, "epsilon": 1e-4}),
        (gt.theory.best_slope, {"p": 0.3, "group_size": 3, "ddof": 1.0, "epsilon": 1e-4}),
        (gt.theory.relative_slope, {"p": 0.3, "group_size": 3}),
        (gt.theory.mixed_share, {"p": 0.3, "group_size": 3}),
        (gt.theory.mixed_bias, {"p": 0.3, "group_size": 3}),
        (gt.limit_law, {"problem": PROBLEM, "optimum": BEST, "estimator": "rloo", **SIZES, "step_scale": 20.0}),
        (gt.theory.linearise, {"problem": PROBLEM, "optimum": BEST, "estimator": "rloo", **SIZES}),
        (gt.theory.limit_covariance, {"linear": LINEAR, "step_scale": 20.0}),
        (gt.theory.gap_recursion, {"linear": LINEAR, "steps": np.ones(4), "start": np.eye(3)}),
        (gt.theory.constant_step_bound, {"region": REGION, "noise": 1.0, "step": 0.1, "start_gap": 0.1, "n": 4}),
        (
            gt.theory.harmonic_step_bound,
            {"region": REGION, "noise": 1.0, "step_scale": 20.0, "n": 4, "offset": 2, "epsilon": 1.0},
        ),
        (gt.theory.recursion_bound, {"region": REGION, "noise": 1.0, "steps": np.full(4, 0.1), "start_gap": 0.1}),
        (gt.theory.training_law, {"problem": PROBLEM, "theta0": PROBLEM.theta, "schedule": gt.Constant(0.1), "steps": 4}),
        (gt.theory.noise_free_path, {"problem": PROBLEM, "theta0": PROBLEM.theta, "steps": np.full(4, 0.1)}),
        (gt.WeightedChiSquare, {"weights": [1.0, 0.5]}),
        (gt.WeightedChiSquare([1.0, 0.5]).cdf, {"q": 1.0}),
        (gt.WeightedChiSquare([1.0, 0.5]).sf, {"q": 1.0}),
        (gt.WeightedChiSquare([1.0, 0.5]).pdf, {"q": 1.0}),
        (gt.WeightedChiSquare([1.0, 0.5]).ppf, {"p": 0.5}),
        (gt.WeightedChiSquare([1.0, 0.5]).rvs, {"size": 3, "rng": 1}),
        (gt.block_replications, SIZES),
        (
            gt.simulate_gradients,
            {**AT, "estimators": ["rloo", "grpo"], **SIZES, "replications": 8, "rng": 1, "workers": 1}
            | {"behaviour": None, "directions": None, "first_block": 0},
        ),
        (
            gt.simulate_training,
            {"problem": PROBLEM, "theta0": PROBLEM.theta, "estimator": "rloo", "schedule": gt.Constant(0.1), **RUN}
            | {"inner_steps": 1, "lag": 0, "optimiser": gt.SGD(), "checkpoints": [12, 24], "ball": None}
            | {"allocation": None},
        ),
        (
            gt.simulate_records,
            {"problem": PROBLEM, "theta0": PROBLEM.theta, "estimator": "rloo", "schedule": gt.Constant(0.1), **RUN},
        ),
        (gt.Rollouts, {"rewards": ROLLOUTS.rewards, "scores": ROLLOUTS.scores}),
        (ROLLOUTS.along, {"directions": np.eye(3)}),
        (gt.RaggedRollouts, {"prompts": RAGGED.index, "rewards": RAGGED.rewards, "scores": RAGGED.scores}),
        (
            gt.RaggedRollouts.from_index,
            {"prompts": RAGGED.prompts, "index": RAGGED.index, "rewards": RAGGED.rewards, "scores": RAGGED.scores},
        ),
        (
            gt.RaggedRollouts.from_inner_products,
            {"prompts": RAGGED.index, "rewards": RAGGED.rewards, "gram": RAGGED.scores @ RAGGED.scores.T},
        ),
        (gt.twin, {"log": RAGGED}),
        (gt.RewardCounts, {"values": RAGGED.counts.values, "counts": RAGGED.counts.counts}),
        (gt.RewardCounts.from_rewards, {"prompts": RAGGED.index, "rewards": RAGGED.rewards}),
        (gt.language_model.CountSketch, {"width": 64, "blocks": 2, "seed": 1}),
        (gt.language_model.CountSketch(64, 2).__call__, {"pieces": [np.ones(5)]}),
        (gt.read_rollouts, {"path": LOG, **READ, "length": None, "scores": None}),
        (gt.read_reward_counts, {"path": LOG, **READ}),
        (gt.advantages, {"rewards": [1.0, 0.0], "name": "verl_opo", "groups": [0, 0], "weights": None, "lengths": [2, 3]}),
        (RAGGED.at_least, {"responses": 5}),
        (RAGGED.with_scores, {"scores": RAGGED.scores}),
        (gt.samples.rollout_hessian, {"rewards": ROLLOUTS.rewards, "scores": ROLLOUTS.scores, "strength": 0.1}),
        (
            gt.TrainingRecord,
            {"step_sizes": RECORD.step_sizes, "path": RECORD.path, "mean_rewards": RECORD.mean_rewards, "hessian": None}
            | {"tail": 0.5},
        ),
        *((getattr(gt.intervals, f"gradient_{kind}"), OF_ROLLOUTS) for kind in ("jackknife", "between", "ellipsoid")),
        *((getattr(gt.intervals, f"value_{kind}"), OF_ROLLOUTS) for kind in ("naive", "clustered", "effective")),
        *((getattr(gt.intervals, f"group_size_{kind}"), OF_ROLLOUTS) for kind in ("jackknife", "fieller")),
        (gt.intervals.components_jackknife, OF_ROLLOUTS),
        (gt.intervals.components_bootstrap, {**OF_ROLLOUTS, "resamples": 99, "rng": 1}),
        (gt.intervals.group_size_bootstrap, {**OF_ROLLOUTS, "resamples": 99, "rng": 1}),
        (gt.intervals.mse_jackknife, {**OF_ROLLOUTS, **SIZES}),
        (gt.intervals.mse_bootstrap, {**OF_ROLLOUTS, **SIZES, "resamples": 99, "rng": 1}),
        (gt.intervals.estimate_group_size_law, {"rollouts": ROLLOUTS}),
        *((getattr(gt.intervals, f"{kind}_value"), OF_RECORD) for kind in ("tail", "learned", "best")),
        *((getattr(gt.intervals, f"{kind}_iterate"), {**OF_RECORD, "contrasts": None}) for kind in ("last", "averaged")),
        (gt.intervals.last_iterate_ellipsoid, {**OF_RECORD, "contrasts": np.eye(3)}),
        (gt.intervals.batch_means, {**OF_RECORD, "contrasts": None, "batches": 4}),
        (gt.intervals.random_scaling, {**OF_RECORD, "contrasts": None}),
        (gt.intervals.random_scaling_quantile, {"level": 0.9}),
        (gt.intervals.gap_limit, OF_RECORD),
        (gt.intervals.gap_weights, {"record": RECORD}),
        (gt.intervals.best_set, {"samples": NOISE.normal(size=(3, 8)), "level": 0.9}),
        (gt.intervals.paired_difference, {**PAIRS, "level": 0.9}),
        (gt.intervals.paired_sequence, {**PAIRS, "level": 0.9, "horizon": 30}),
        (gt.intervals.seeds_needed, {**PAIRS, "difference": 1.0, "power": 0.8, "level": 0.9}),
        (gt.Pilot, {**SIZES, "directions": None}),
        (gt.Pilot(3, 4).sample, {"problem": PROBLEM, "rng": 1, "replications": 2}),
        (
            gt.RecordedTraining,
            {"estimator": "rloo", "schedule": gt.Constant(0.1), **SIZES, "steps": 24, "theta0": None, "tail": 0.5},
        ),
        (
            gt.coverage,
            {"interval": gt.intervals.gradient_between, **DRAWN, "replications": 4, "workers": 1, "first": 0, "vectorized": None},
        ),
        (gt.replay, {"interval": gt.intervals.gradient_between, **DRAWN, "replication": 1, "vectorized": None}),
        (
            gt.laboratory.coverage_of_several,
            {"functions": {"between": gt.intervals.gradient_between}, **DRAWN, "replications": 4, "workers": 1},
        ),
        (
            gt.laboratory.coverage_grid,
            {"functions": {"value": gt.intervals.value_clustered}, "designs": {"one": (PROBLEM, gt.Pilot(3, 4))}, "truth": 0.5}
            | {"reference": None, "level": 0.9, "replications": 4, "rng": 1, "workers": 1},
        ),
        (gt.laboratory.replications_to_tell, {"level": 0.95, "coverage": 0.9, "error": 0.001, "power": 0.9}),
        (gt.evidence.log_log_slope, {"x": [1.0, 2.0, 4.0], "y": [1.0, 0.5, 0.2], "standard_errors": None}),
        (
            gt.worst_case,
            {"sides": lambda x: (float(np.sum(x)), 9.0), "bounds": [(0, 1), (0, 1)], "rng": 1, "starts": 4, "climbs": 1}
            | {"compare": "ratio", "tolerance": 1e-3},
        ),
        (
            gt.compose,
            {"name": "grpo", "advantage": "grpo", "ratio": "none", "clip": "none", "aggregation": "sum"}
            | {"kl": "k1 in reward", "mismatch": "none", "overwrite": False},
        ),
        (
            gt.estimator,
            {
                "name": "fuzzed",
                "parameters": None,
                "minimum_group_size": 1,
                "couples_groups": False,
                "source": "",
                "overwrite": False,
            },
        ),
        (gt.estimators, {}),
        (gt.estimation.find, {"estimator": "grpo"}),
    ]
)

RECORDS = {
    *(
        "AllocationLaw",
        "Batch",
        "Coverage",
        "Ellipsoid",
        "GradientLaw",
        "GradientSimulation",
        "GroupSizeLaw",
        "Interval",
        "Moments",
        "Point",
        "RolloutLog",
    ),
    *("TrainingRuns", "WorstCase"),
}
"""Records that the package makes, and no user: they hold what they are given."""
WITHOUT_INPUT = {"LogitMap", "NotEnumerableError", "Optimiser", "Schedule", "SmoothMap"}
"""A class to derive from, an error and two protocols."""
WITH_TORCH = {"sketch"}
"""Tried in tests/test_sketch.py, where torch is installed."""
PARTS = {"Aggregation", "Clip", "Estimator", "KLTerm", "Mismatch", "Ratio", "check"}
"""Parts of estimators, tried in tests/test_registry.py and tests/test_mismatch.py; and checks, in tests/test_sides.py."""

JUNK = [
    *(None, "", "GRPO", "linear", b"bytes", True, False, object(), {}, set(), [], (), [[]], [[[]]], [None], ["a"]),
    *(-1, 0, 1, 2, 3, 1.5, -0.5, 10**30, 2**62, -(2**62), np.nan, np.inf, -np.inf, 1e200, 1.7e308, 5e-324, 1j, np.float32(0.3)),
    *(
        [1, [2, 3]],
        [np.nan],
        [np.inf],
        [1e200, 1.0],
        [-1.0, 2.0],
        [[0.5, 0.5]],
        [[0.2, 0.9]],
        [[[0.5, 0.5]]],
        [1j, 2.0],
        range(3),
    ),
    *(np.zeros(3), np.ones((3, 3)), np.zeros((2, 0)), np.full(3, 1e200), np.full((6, 4), np.nan), np.zeros((2, 3, 4))),
    *(np.array(["a", "b"]), np.array([None, 1]), np.array(3), np.array(True), np.datetime64("2020-01-01"), np.arange(24.0)),
    *(lambda *a, **k: None, lambda *a: "nothing", PROBLEM, TABULAR, ROLLOUTS, RAGGED, RECORD, MOMENTS, gt.Constant(1.7e308)),
    *(gt.Pilot(3, 4), gt.estimators()["grpo"], slice(1), np.random.default_rng(1), "rloo"),
]


def complaint(name, changes):
    """Call a callable with some of its arguments changed; say what is wrong with the answer, if anything is."""
    call, valid = CASES[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", gt.exact.StabilityWarning)
            warnings.simplefilter("ignore", gt.exact.OptimumWarning)
            found = call(**(valid | changes))
            if inspect.isgenerator(found):
                list(found)
    except (TypeError, ValueError) as error:
        named = [argument for argument in inspect.signature(call).parameters if re.search(rf"\b{argument}\b", str(error))]
        return "" if named else f"{type(error).__name__} without an argument's name: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@st.composite
def inputs(draw):
    """A callable, and one or two of its arguments with something else in their place."""
    name = draw(st.sampled_from([name for name, (_, valid) in CASES.items() if valid]))
    places = draw(st.lists(st.sampled_from(sorted(CASES[name][1])), min_size=1, max_size=2, unique=True))
    return name, {place: JUNK[draw(st.integers(0, len(JUNK) - 1))] for place in places}


@given(inputs())
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_result_or_an_error_that_names_an_argument(case):
    name, changes = case
    assert not complaint(name, changes), (name, changes, complaint(name, changes))


@pytest.mark.parametrize("name", CASES)
def test_what_is_changed_is_valid_before(name):
    call, valid = CASES[name]
    found = call(**valid)
    if inspect.isgenerator(found):
        list(found)


def test_every_public_callable_is_tried():
    public = {name for name in dir(gt) if callable(getattr(gt, name))}
    assert public == {name for name in CASES if name in public} | RECORDS | WITHOUT_INPUT | WITH_TORCH | PARTS


def test_the_check_has_power():
    def careless(theta):
        return theta.shape

    CASES["careless"] = careless, {"theta": np.zeros(3)}
    try:
        assert complaint("careless", {"theta": None}).startswith("AttributeError")
    finally:
        del CASES["careless"]
