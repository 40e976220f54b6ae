"""A message about arguments may be repeated under other names; what a user wrote is never taken for a name."""

import copy
import pickle

import pytest

from grpo_theory.plan import Limits
from grpo_theory.validation import Argument, ArgumentError, as_count, as_fraction, as_not_negative, as_positive, check_name

NAMES = {name: f"--{name.replace('_', '-')}" for name in ("budget", "cost_prompt", "max_responses", "min_prompts", "multiple_of")}


def test_limits_are_named_as_the_command_names_them_and_else_as_the_library_does():
    cases = [
        ({"budget": 64, "cost_prompt": -1.0}, "--cost-prompt must be"),
        ({"budget": 64, "max_group_size": 9999}, "max_group_size must be"),
        ({"budget": 64, "min_prompts": 51}, "--budget 64 pays for at most 32 prompts, fewer than --min-prompts 51"),
        ({"budget": 64, "max_responses": 60, "min_prompts": 2, "multiple_of": 101}, "--multiple-of 101 divides"),
    ]
    for limits, message in cases:
        with pytest.raises(ArgumentError) as refused:
            Limits(**limits).batches()
        assert message in refused.value.renamed(NAMES)
        assert refused.value.renamed({}) == str(refused.value)
        assert not any(option in str(refused.value) for option in NAMES.values())


def test_only_names_are_renamed_and_errors_travel():
    with pytest.raises(ArgumentError) as refused:
        check_name("budget", "budget must", ("rloo", "grpo"))
    assert refused.value.renamed(NAMES) == "--budget must be one of rloo, grpo, got 'budget must'"
    assert ArgumentError(Argument("budget"), " is not ", "budget").renamed(NAMES) == "--budget is not budget"
    for check, value in [(as_positive, 0.0), (as_not_negative, -1.0), (as_fraction, 1.0), (as_count, 0), (as_count, 2**60)]:
        with pytest.raises(ValueError, match=r"^one ") as refused:
            check("one", value)
        for error in (pickle.loads(pickle.dumps(refused.value)), copy.deepcopy(refused.value)):
            assert str(error) == str(refused.value)
            assert error.renamed({"one": "two"}) == f"two{str(refused.value).removeprefix('one')}"
