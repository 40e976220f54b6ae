"""A message about arguments may be repeated under other names; what a user wrote is never taken for a name."""

import copy
import pickle

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.plan import Limits
from grpo_theory.validation import Argument, ArgumentError, as_count, as_fraction, as_not_negative, as_positive, check_name

NAMES = {name: f"--{name.replace('_', '-')}" for name in ("budget", "cost_prompt", "max_responses", "min_prompts", "multiple_of")}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"budget": 0.0}, "--budget must be finite and above 0, got 0.0"),
        ({"budget": 1.0}, "--budget must pay for one prompt with two responses, which cost 2, got 1"),
        ({"budget": 1e300}, "--budget must buy at most 1e+12 pairs of responses, got 1e+300"),
        ({"budget": 64, "cost_prompt": -1.0}, "--cost-prompt must be finite and at least 0, got -1.0"),
        ({"budget": 64, "min_prompts": 0}, "--min-prompts must be at least 1, got 0"),
        ({"budget": 64, "max_group_size": 9999}, "max_group_size must be at most 4096, got 9999"),
        (
            {"budget": 64, "min_prompts": 51},
            "no batch meets all limits: --budget 64 pays for at most 32 prompts, fewer than --min-prompts 51",
        ),
        (
            {"budget": 640, "max_responses": 20, "min_prompts": 15},
            "no batch meets all limits: --max-responses 20 leaves room for at most 10 prompts, fewer than --min-prompts 15",
        ),
        (
            {"budget": 64, "max_responses": 60, "min_prompts": 2, "multiple_of": 101},
            "no batch meets all limits: none in groups of 2 to 4096 has a number of responses that --multiple-of 101 divides. "
            "A batch must also fit --budget 64, --max-responses 60, --min-prompts 2",
        ),
    ],
)
def test_limits_are_named_as_the_command_names_them_and_else_as_the_library_does(limits, message):
    with pytest.raises(ArgumentError) as refused:
        Limits(**limits).batches()
    assert refused.value.renamed(NAMES) == message
    plain = message
    for name, option in NAMES.items():
        plain = plain.replace(option, name)
    assert str(refused.value) == plain
    assert refused.value.renamed({}) == plain


def test_only_names_are_renamed():
    with pytest.raises(ArgumentError) as refused:
        check_name("budget", "budget must", ("rloo", "grpo"))
    assert refused.value.renamed(NAMES) == "--budget must be one of rloo, grpo, got 'budget must'"
    assert ArgumentError(Argument("budget"), " is not ", "budget").renamed(NAMES) == "--budget is not budget"


def test_it_is_a_value_error_that_travels_to_other_processes():
    with pytest.raises(ValueError, match=r"^group_size must be at least 2, got 1$") as refused:
        as_count("group_size", 1, 2)
    for copied in (pickle.loads(pickle.dumps(refused.value)), copy.deepcopy(refused.value)):
        assert str(copied) == str(refused.value)
        assert copied.renamed({"group_size": "G"}) == "G must be at least 2, got 1"


@pytest.mark.parametrize(
    ("check", "value"), [(as_positive, 0.0), (as_not_negative, -1.0), (as_fraction, 1.0), (as_count, 0), (as_count, 2**60)]
)
def test_the_checks_of_one_number_name_their_argument(check, value):
    with pytest.raises(ArgumentError) as refused:
        check("one", value)
    assert refused.value.parts[0] == "one"
    assert refused.value.renamed({"one": "two"}) == f"two{str(refused.value).removeprefix('one')}"


def test_a_number_in_place_of_limits_is_a_budget():
    rng = np.random.default_rng(3)
    rollouts = gt.RewardCounts.from_rewards(np.repeat(np.arange(8), 4), rng.integers(0, 2, 32))
    assert gt.plan.advise(rollouts, 64).limits == Limits(budget=64)
    assert gt.plan.advise(rollouts, Limits(budget=64, max_group_size=4)).limits.max_group_size == 4
    with pytest.raises(TypeError, match="budget must be a number above 0, got 'much'"):
        gt.plan.advise(rollouts, "much")
