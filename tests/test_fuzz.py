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
NOISE = np.random.default_rng(5)
ROLLOUTS = gt.Rollouts(NOISE.integers(0, 2, (6, 4)).astype(float), NOISE.normal(size=(6, 4, 3)))
RAGGED = gt.RaggedRollouts(np.repeat(np.arange(5), [4, 5, 4, 6, 5]), ROLLOUTS.rewards.ravel(), NOISE.normal(size=(24, 3)))
RUN = {**SIZES, "steps": 200, "replications": 1, "rng": 1, "workers": 1}
RUNS = next(iter(gt.simulate_records(PROBLEM, BEST + 0.1, "rloo", gt.PowerLaw(0.8, 0.6), **RUN)))
RECORD = gt.TrainingRecord(RUNS.step_sizes, RUNS.path[0], RUNS.mean_rewards[0], RUNS.hessian[0])
LAW, ALLOCATION = gt.group_size_law(PROBLEM, PROBLEM.theta), gt.allocation_law(PROBLEM, PROBLEM.theta, high=5)
VIP, PILOT, TREE, CHI = gt.allocation_rules()["vip"], gt.Pilot(3, 4), gt.TokenTree(1, 2, 2), gt.WeightedChiSquare([1.0, 0.5])

VALID = {"problem": PROBLEM, "theta": PROBLEM.theta, "theta0": PROBLEM.theta, "behaviour": PROBLEM.theta, "optimum": BEST}
VALID |= {**SIZES, "estimator": "rloo", "estimators": ["rloo", "grpo"], "moments": MOMENTS, "truth": MOMENTS.gradient}
VALID |= {"name": "a", "steps": 24, "replications": 4, "rng": 1, "workers": 1, "seed": 1, "first_block": 0, "progress": False}
VALID |= {"replication": 1, "n": 4, "schedule": gt.Constant(0.1), "inner_steps": 1, "lag": 0, "optimiser": gt.SGD()}
VALID |= {"checkpoints": [12, 24], "ball": None, "allocation": None, "low": 2, "high": 5, "start": PROBLEM.theta, "rule": "vip"}
VALID |= {"budget": 14, "sizes": [2, 3, 4, 5], "fill": VIP.fill, "wants_traces": False, "wants_success": False, "memory": 0.5}
VALID |= {"weighted": True, "eps": 1e-08, "success": [[0.1, 0.9]], "prompt_weights": [1.0], "values": [0.0, 2.0]}
VALID |= {"probabilities": [[[0.1, 0.9]]], "kl": None, "strength": 0.1, "reference": [[0.5, 0.5]], "bandit": TABULAR.bandit}
VALID |= {"policy": TREE, "features": None, "n_prompts": 2, "n_responses": 3, "vocabulary_size": 2, "horizon": 2, "end_token": 0}
VALID |= {"hidden": np.ones((2, 3)), "transitions": [[0, 1], [1, 0]], "inputs": np.ones((2, 3)), "width": 2, "activation": "tanh"}
VALID |= {"scale": 0.5, "starts": [0], "paths": None, "blocks": 2, "logit_map": TABULAR.policy.logit_map}
VALID |= {"edges": np.array([[0], [1]]), "pieces": [np.ones(5)], "directions": np.eye(3), "step": 0.1, "step_scale": 20.0}
VALID |= {"offset": 2, "exponent": 0.5, "centre": np.zeros(3), "radius": 0.2, "reach": 0.3, "value": 0.02, "because": "argued"}
VALID |= {"id": "X1", "source": "here", "text": "a = b", "kind": "identity", "assumptions": "", "formula": "$a = b$"}
VALID |= {"margin": gt.Margin(0.02, "argued"), "whose": "ours", "measured": False, "open": "", "restarts": 2, "reward_range": 1.0}
VALID |= {"baseline": 0.5, "p": 0.3, "ddof": 1.0, "epsilon": 0.0001, "noise": 1.0, "start_gap": 0.1, "q": 1.0}
VALID |= {"linear": gt.theory.linearise(PROBLEM, BEST, "rloo", **SIZES)}
VALID |= {"region": gt.exact.region(PROBLEM, BEST, radius=0.2, reach=0.3), "weights": [1.0, 0.5], "size": 3, "rollouts": ROLLOUTS}
VALID |= {"level": 0.9, "resamples": 99, "record": RECORD, "contrasts": None, "rewards": RAGGED.rewards, "scores": RAGGED.scores}
VALID |= {"prompts": RAGGED.index, "index": RAGGED.index, "log": RAGGED, "gram": RAGGED.scores @ RAGGED.scores.T}
VALID |= {"counts": RAGGED.counts.counts, "groups": [0, 0], "lengths": [2, 3], "responses": 5}
VALID |= {"path": Path(__file__).parent / "rollouts.csv", "batch_rows": 2, "tail": 0.5, "step_sizes": RECORD.step_sizes}
VALID |= {"hessian": None, "mean_rewards": RECORD.mean_rewards, "batches": 4, "samples": NOISE.normal(size=(3, 8))}
VALID |= {"experiment": PILOT, "error": 0.001, "a": NOISE.normal(size=8), "b": NOISE.normal(size=8), "difference": 1.0}
VALID |= {"power": 0.8, "coverage": 0.95, "factors": None, "vectorized": None, "interval": gt.intervals.gradient_between}
VALID |= {"functions": {"between": gt.intervals.gradient_between}, "designs": {"one": (PROBLEM, PILOT)}, "x": [1.0, 2.0, 4.0]}
VALID |= {"y": [1.0, 0.5, 0.2], "standard_errors": None, "sides": lambda x: (float(np.sum(x)), 9.0), "bounds": [(0, 1), (0, 1)]}
VALID |= {"climbs": 1, "compare": "ratio", "tolerance": 0.001, "advantage": "grpo", "ratio": "none", "clip": "none"}
VALID |= {"aggregation": "sum", "mismatch": "none", "overwrite": False, "parameters": None, "minimum_group_size": 1}
VALID |= {"couples_groups": False, "observable": gt.Observable.entropy(), "credit": "none", "observables": ()}
"""What every callable takes by the name of an argument, which means one thing in the whole package."""

ALONE, COLUMNS = {"theta": TABULAR.theta}, {"steps": "newest"}
COLUMNS |= dict.fromkeys(("schema", "where", "files", "group_of", "turns", "lone"))
COLUMNS |= {"source": Path(__file__).parent / "rollouts.csv"}
REWARDED, SHORT = {"rewards": ROLLOUTS.rewards, "scores": ROLLOUTS.scores}, {"steps": np.full(4, 0.1)}
OTHERWISE = {"Ball": {"radius": 1.0}, "Bandit.at_prompt": {"prompt": 0}, "Problem": ALONE | {"policy": TABULAR.policy}}
OTHERWISE |= {"Problem.at": ALONE, "Policy.probabilities": ALONE, "Policy.scores": ALONE, "TokenTree": {"hidden": None}}
OTHERWISE |= {"LinearSoftmax": {"features": np.ones((2, 3, 2))}, "StateRewards": {"success": [0.2, 0.9]}}
OTHERWISE |= {"problem": {"name": "linear"}, "Harmonic": {"step_scale": 1.0}, "PowerLaw": {"step_scale": 1.0}}
OTHERWISE |= {"finite_group_objective": {"rewards": (0.0, 1.0)}, "harmonic_step_bound": {"epsilon": 1.0}}
OTHERWISE |= {"gap_recursion": {"steps": np.ones(4), "start": np.eye(3)}, "recursion_bound": SHORT, "noise_free_path": SHORT}
OTHERWISE |= {
    "mean_advantages": {"law": [0.4, 0.6]},
    "training_law": {"steps": 4},
    "simulate_gradients": {"behaviour": None, "directions": None},
    "Rollouts": REWARDED,
}
OTHERWISE |= {"rollout_hessian": REWARDED, "RaggedRollouts.from_index": {"prompts": RAGGED.prompts}, "CountSketch": {"width": 64}}
OTHERWISE |= {"RewardCounts": {"values": RAGGED.counts.values}, "read_rollouts": COLUMNS}
OTHERWISE |= {"advantages": {"rewards": [1.0, 0.0], "name": "verl_opo", "weights": None}, "TrainingRecord": {"path": RECORD.path}}
OTHERWISE |= {"value_effective": {"bounds": (0.0, 1.0)}}
OTHERWISE |= {"paired_sequence": {"horizon": 30}, "Pilot": {"directions": None}, "RecordedTraining": {"theta0": None}}
OTHERWISE |= {"coverage_grid": {"functions": {"value": gt.intervals.value_clustered}, "truth": 0.5, "reference": None}}
OTHERWISE |= {"worst_case": {"starts": 4}, "compose": {"name": "grpo", "kl": "k1 in reward"}}
OTHERWISE |= {"estimator": {"name": "fuzzed", "memory": None}}
"""Arguments of a callable that are not these."""

RECORDS = """AllocationLaw Batch Coverage Ellipsoid GradientLaw GradientSimulation GroupSizeLaw Interval Moments Point RolloutLog
TrainingRuns WorstCase"""
"""Records that the package makes, and no user: they hold what they are given."""
WITHOUT_INPUT = "LogitMap NotEnumerableError Optimiser Schedule SmoothMap"
"""A class to derive from, an error and protocols."""
ELSEWHERE = "sketch Aggregation Clip Credit Estimator KLTerm Memory Mismatch Objective Observable Ratio check"
"""Tried in tests/test_sketch.py, where torch is installed, and in tests/test_registry.py, test_mismatch.py, test_credits.py,
test_objectives.py, test_mean_path.py, test_memory.py and test_sides.py."""
LEFT = {*f"{RECORDS} {WITHOUT_INPUT} {ELSEWHERE}".split()}
ROOMS = {
    gt: " ".join(name for name in dir(gt) if callable(getattr(gt, name)) and name not in LEFT),
    gt.exact: """mean_advantages population climbed gradient directional_derivatives
        spectral_radius check_optimum search_optimum region steepest_ray
        longest_estimate""",
    gt.theory: """mse_weights leave_one_out_parts leave_one_out_covariance leave_one_out_traces own_mean_mse break_even_group_size
        remainder_bound baseline_trace finite_group_objective standardised_slope left_out_slope best_slope relative_slope
        mixed_share mixed_bias linearise limit_covariance gap_recursion constant_step_bound harmonic_step_bound recursion_bound
        training_law noise_free_path""",
    gt.intervals: """gradient_jackknife gradient_between gradient_ellipsoid value_naive value_clustered value_effective
        group_size_jackknife group_size_fieller group_size_bootstrap components_jackknife components_bootstrap mse_jackknife
        mse_bootstrap estimate_group_size_law tail_value learned_value best_value last_iterate averaged_iterate
        batch_means random_scaling random_scaling_quantile gap_limit gap_weights best_set
        paired_difference paired_sequence seeds_needed rollout_hessian""",
    gt.laboratory: "coverage_of_several coverage_grid replications_to_tell",
    gt.language_model: "CountSketch",
    gt.gallery: "problem",
    gt.Bandit: "from_law",
    gt.RaggedRollouts: "from_index from_inner_products",
    gt.RewardCounts: "from_rewards",
    gt.evidence: "log_log_slope",
    gt.estimation: "find",
    TABULAR: "at",
    TABULAR.bandit: "at_prompt",
    TABULAR.policy: "probabilities scores",
    gt.TwoLayerSoftmax(np.ones((2, 3)), 2, 3): "start",
    gt.Constant(0.1): "steps",
    gt.Harmonic(1.0): "steps",
    gt.PowerLaw(1.0, 0.5): "steps",
    gt.gradient_law(PROBLEM, PROBLEM.theta, "rloo", **SIZES): "variance_along",
    LAW: "mse best",
    ALLOCATION: "mse sizes best",
    VIP: "between",
    CHI: "cdf sf pdf ppf rvs",
    ROLLOUTS: "along",
    RAGGED: "at_least with_scores",
    PILOT: "sample",
    gt.language_model.CountSketch(64, 2): "__call__",
}


def valid_of(call):
    """Return a callable's valid arguments."""
    own = OTHERWISE.get(call.__qualname__, {})
    return {name: own.get(name, VALID.get(name)) for name in inspect.signature(call).parameters if name in VALID or name in own}


CALLS = [getattr(room, name) for room, names in ROOMS.items() for name in names.split()]
CASES = {call.__qualname__: (call, valid_of(call)) for call in CALLS}

JUNK = [None, "", "GRPO", "linear", b"bytes", True, False, object(), {}, set(), [], (), [[]], [[[]]], [None], ["a"]]
JUNK += [-1, 0, 1, 2, 3, 1.5, -0.5, 10**30, 2**62, -(2**62), np.nan, np.inf, -np.inf, 1e200, 1.7e308, 5e-324, 1j, np.float32(0.3)]
JUNK += [
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
]
JUNK += [np.zeros(3), np.ones((3, 3)), np.zeros((2, 0)), np.full(3, 1e200), np.full((6, 4), np.nan), np.zeros((2, 3, 4))]
JUNK += [np.array(["a", "b"]), np.array([None, 1]), np.array(3), np.array(True), np.datetime64("2020-01-01"), np.arange(24.0)]
JUNK += [lambda *a, **k: None, lambda *a: "nothing", PROBLEM, TABULAR, ROLLOUTS, RAGGED, RECORD, MOMENTS, gt.Constant(1.7e308)]
JUNK += [PILOT, gt.estimators()["grpo"], slice(1), np.random.default_rng(1), "rloo"]


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


pytestmark = pytest.mark.usefixtures("registry")
"""What is composed under a name of the package has a source of this file: it is forgotten after each test."""


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
        (found,) = found
    assert isinstance(found, np.ndarray) or len(str(found).splitlines()) <= 10


def test_what_is_read_or_ships_is_printed_in_ten_lines():
    log = gt.read_rollouts(Path(__file__).parents[1] / "examples" / "rollouts.jsonl")
    made = [log, log.rollouts, log.findings, gt.checks.check_log(log), gt.checks.read_log(log), RECORD, ROLLOUTS, RAGGED]
    made += [
        gt.plan.advise(log, 64),
        gt.plan.advise_run(log, 2000),
        gt.theory.training_law(PROBLEM, None, gt.Constant(0.1), steps=3),
    ]
    made += [gt.data.sampled_answers(), gt.data.long_rollouts(), gt.data.arithmetic(), gt.data.long_answers(), gt.estimators()]
    trained = gt.data.trained_model()
    made += [trained, *(one for field in vars(trained).values() if isinstance(field, tuple | dict) for one in field)]
    assert [type(one).__name__ for one in made if len(str(one).splitlines()) > 10] == []


POINTS = [(name, at) for name, (_, valid) in CASES.items() if "problem" in valid for at in ("theta", "theta0") if at in valid]


@pytest.mark.parametrize(("name", "at"), POINTS)
def test_parameters_are_the_problems_own_if_omitted(name, at):
    call, valid = CASES[name]
    own, rest = valid["problem"].theta, {one: value for one, value in valid.items() if one != at}
    found = [call(**rest, **{at: given}) for given in (own, None)]
    shown = [[str(one)] if not inspect.isgenerator(one) else [*map(str, one)] for one in found]
    assert shown[0] == shown[1]
    after = [one for one in inspect.signature(call).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD][2:]
    if not any(one.default is one.empty for one in after):
        assert inspect.signature(call).parameters[at].default is None


def test_what_is_not_tried_is_there():
    assert {name for name in LEFT if not hasattr(gt, name)} == set()


def test_the_check_has_power():
    def careless(theta):
        return theta.shape

    CASES["careless"] = careless, {"theta": np.zeros(3)}
    try:
        assert complaint("careless", {"theta": None}).startswith("AttributeError")
    finally:
        del CASES["careless"]
