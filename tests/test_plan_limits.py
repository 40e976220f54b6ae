"""Where limits bind the answer names them, and says nothing that holds only without them."""

from dataclasses import replace

import numpy as np
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.page.advice.recommendation import binding
from grpo_theory.plan import Limits
from grpo_theory.plan.batches import limits_groups, limits_prompts
from grpo_theory.plan.group_size import choose


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return gt.read_rollouts(write(tmp_path_factory.mktemp("plan") / "rollouts.jsonl", rows()))


def text(log, estimator=None, **limits):
    return " ".join(gt.page.to_text(gt.plan.advise(log, Limits(**limits), estimator=estimator)).split())


def test_the_only_size_is_said_to_be_the_only_one(log):
    found = text(log, "rloo", budget=64, min_prompts=32)
    assert "Only this group size is allowed (--min-prompts 32): there is no choice." in found
    assert "every other permitted group size" not in found
    assert "The budget hardly matters" not in found
    assert "so similar" not in found
    assert "Groups larger than 2 are not allowed (--min-prompts 32)" in found


def test_where_the_memory_is_full_more_budget_buys_no_prompts(log):
    found = text(log, budget=1_000_000, max_responses=512, multiple_of=16)
    assert "Spend a larger budget on more prompts" not in found
    assert "A larger budget alone changes nothing: --max-responses 512 allows no more prompts" in found


def test_without_limits_the_budget_buys_prompts(log):
    found = text(log, budget=1024)
    assert "Spend a larger budget on more prompts" in found
    assert "--max-responses" not in found
    assert "Groups larger than" not in found


def test_a_largest_size_that_is_best_is_no_sign_of_gradients_that_are_alike(log):
    advice = gt.plan.advise(log, Limits(budget=1024, max_group_size=2))
    assert not advice.scores.choice.bounded
    assert not advice.scores.choice.constants.alike
    assert "so similar" not in gt.page.to_text(advice)


@pytest.mark.parametrize(("c1", "alike"), [(-0.005, True), (0.019, True), (0.021, False), (1.0, False)])
def test_gradients_may_be_alike_where_the_lower_limit_of_c1_is_not_above_0(c1, alike):
    """With a standard error of 0.01 and 50 prompts the limits are 0.0201 either side."""
    law, covariance = gt.GroupSizeLaw(c1, 1.0, 1.0), np.diag([0.01, 0.0, 0.0]) ** 2
    assert choose(law, covariance, 50, Limits(budget=64)).constants.alike is alike


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"budget": 64, "min_prompts": 32}, "--min-prompts 32"),
        ({"budget": 64, "max_group_size": 6}, "--max-group-size 6"),
        ({"budget": 64, "max_responses": 10}, "--max-responses 10"),
        ({"budget": 64}, "the budget"),
        ({"budget": 100, "multiple_of": 64}, "--multiple-of 64"),
    ],
)
def test_the_limit_that_is_named_is_the_one_that_binds(limits, name):
    found = Limits(**limits)
    largest = found.batches()[0][-1]
    assert binding(found) == name
    assert limits_groups(found) == (() if name == "the budget" else (name.split()[0][2:].replace("-", "_"),))
    if name == "the budget":
        assert replace(found, budget=2 * found.budget).batches()[0][-1] > largest
    else:
        option = name.split()[0][2:].replace("-", "_")
        freed = Limits(**{key: value for key, value in limits.items() if key != option})
        assert freed.batches()[0][-1] > largest


def test_prompts_are_kept_out_by_memory_only_where_the_budget_would_pay_for_them():
    for budget in (96, 100, 200, 1000):
        limits = Limits(budget=budget, max_responses=100, multiple_of=12)
        for size in (2, 3, 8):
            free = replace(limits, max_responses=None)
            assert limits_prompts(limits, size) == (free.prompts(size) > limits.prompts(size))
