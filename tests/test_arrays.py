"""Arrays at the boundary: masks and imaginary parts are refused, what is kept is nobody else's, and records are not compared."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.exact.multisets import DistinctPrompts, class_tables, fields_of_rewards, multisets
from grpo_theory.intervals.interval import tail_table
from grpo_theory.intervals.rollouts import RewardCounts
from grpo_theory.laboratory.trial import RecordedTraining
from grpo_theory.language_model.scores import CountSketch
from grpo_theory.plan.efficiency import group_table

PROBLEM = gt.gallery.problem("kl-tabular")
M, K, D = PROBLEM.bandit.n_prompts, PROBLEM.bandit.n_responses, PROBLEM.policy.dimension
STEPS, PATH = np.full(20, 0.1), np.cumsum(np.random.default_rng(3).normal(size=(21, D)), axis=0)
SIZES = {"batch_size": 2, "group_size": 4}
TAKERS = {
    "success": (np.full((2, 2), 0.5), gt.Bandit),
    "values": (np.array([0.0, 1.0]), lambda values: gt.Bandit.from_law(values, np.full((2, 2, 2), 0.5))),
    "features": (np.ones((2, 3, 4)), gt.LinearSoftmax),
    "reference": (np.full((M, K), 1.0 / K), partial(gt.KL, 0.1)),
    "theta": (np.zeros(D), partial(gt.moments, PROBLEM)),
    "directions": (np.eye(D), lambda directions: gt.Pilot(2, 4, directions)),
    "rewards": (np.ones((4, 8)), gt.Rollouts),
    "rewards, ragged": (np.ones(4), partial(gt.RaggedRollouts, [1, 1, 2, 2])),
    "path": (PATH, lambda path: gt.TrainingRecord(STEPS, path, np.ones(20))),
    "schedule": (STEPS, lambda steps: RecordedTraining("rloo", steps, 2, 4, 20)),
    "q": (np.ones(3), gt.theory.WeightedChiSquare([1.0, 0.5]).cdf),
    "group_size": (np.array([2.0, 3.0]), partial(gt.theory.group_size_law(PROBLEM, PROBLEM.theta).mse, 4.0)),
    "pieces": (np.ones(64), lambda piece: CountSketch(256)([piece])),
}
"""What an entry point calls an argument, a value, and a call with it."""


@pytest.mark.parametrize("name", TAKERS)
def test_no_mask_is_lost_and_no_imaginary_part_is_dropped(name):
    value, take = TAKERS[name]
    take(np.ma.array(value))  # nothing is masked
    hidden = np.ma.array(value, mask=np.arange(value.size).reshape(value.shape) == value.size - 1)
    with pytest.raises((TypeError, ValueError), match="must have no masked value, got 1: leave those out"):
        take(hidden)
    if "prompts" not in name:
        with pytest.raises((TypeError, ValueError), match=r"must be .*complex numbers"):
            take(value + 1j)
        with pytest.raises((TypeError, ValueError), match=r"must be .*dates and times"):
            take(value.astype("datetime64[D]"))


def arrays_of(record):
    """Return the arrays of a record, those of its cached properties too."""
    names = [one.name for one in dataclasses.fields(record)]
    names += [name for name in dir(type(record)) if isinstance(inspect.getattr_static(type(record), name), cached_property)]
    return {name: array for name in names if isinstance(array := getattr(record, name, None), np.ndarray)}


KEEPERS: dict[str, tuple[list[np.ndarray], Callable]] = {
    "rollouts": ([np.ones((4, 8)), np.ones((4, 8, 2))], gt.Rollouts),
    "counts": ([np.array([0, 0, 1, 1]), np.arange(4.0)], RewardCounts.from_rewards),
    "record": ([STEPS.copy(), PATH.copy(), np.ones(20), np.eye(D)], gt.TrainingRecord),
    "training": ([STEPS.copy(), np.zeros(D)], lambda steps, theta0: RecordedTraining("rloo", steps, 2, 4, 20, theta0)),
    "point": ([np.zeros(D)], PROBLEM.at),
    "moments": ([np.zeros(D)], partial(gt.moments, PROBLEM)),
    "paths": ([np.array([[0], [1], [2]])], lambda edges: gt.problem.Paths(edges, 3)),
    "kl": ([np.full((M, K), 1.0 / K)], partial(gt.KL, 0.1)),
}


@pytest.mark.parametrize("name", KEEPERS)
def test_what_a_record_keeps_is_its_own(name):
    given, make = KEEPERS[name]
    given = [array.copy() for array in given]
    record = make(*given)
    before = {name: array.copy() for name, array in arrays_of(record).items()}
    assert before
    for array in given:
        array += 1
    for field, array in arrays_of(record).items():
        np.testing.assert_array_equal(array, before[field], err_msg=field)
        assert not array.flags.writeable, field
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_what_a_function_keeps_for_the_next_call_is_closed_to_writing():
    advantage = gt.estimators()["grpo"].advantage
    looks = DistinctPrompts(fields_of_rewards(np.array([[0.0, 1.0]])), np.full((3, 1), np.nan))
    returned = [multisets(1, 4), multisets(3, 4), *tail_table(12, 0.9), *next(class_tables(advantage, looks, 4))]
    returned += [*group_table(gt.estimators()["grpo"], (0.0, 1.0), 4)]
    assert multisets(3, 4) is returned[1]
    assert not any(one.flags.writeable for one in returned)


def test_a_mask_within_a_list_is_seen():
    rows = [np.ma.array([0.1, 0.2], mask=[False, True]), [0.3, 0.4]]
    for take in (gt.Bandit, gt.Rollouts):
        with pytest.raises(ValueError, match="must have no masked value, got 1"):
            take(rows)
