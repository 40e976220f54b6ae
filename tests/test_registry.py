"""The registry: names and objects, parameters, what a kernel reads, and what the decorator refuses."""

import copy
import functools
import importlib
import pickle
import sys

import pytest
from enumeration import NAMED

import grpo_theory as gt
from grpo_theory.estimator import find
from grpo_theory.estimator.kernel import RESPONSE_FIELDS, Batch, fields_read


def test_the_registry_lists_what_the_papers_know_and_cannot_be_written():
    registry = gt.estimators()
    assert {"reinforce", "oracle", "optimal", "rloo", "dr_grpo", "grpo"} <= set(registry)
    assert all(found.name == name and len(found.description) > 10 for name, found in registry.items())
    with pytest.raises(TypeError, match="does not support item assignment"):
        registry["rloo"] = None


def test_names_and_objects_are_found():
    assert find("rloo") is gt.estimators()["rloo"]
    assert find(gt.estimators()["rloo"]) is gt.estimators()["rloo"]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("rlo", ValueError, r"estimator must be one of reinforce, .*, got 'rlo'; did you mean 'rloo'\?"),
        ("dr-grpo", ValueError, r"got 'dr-grpo'; did you mean 'dr_grpo'\?"),
        ("xyzzy", ValueError, r"got 'xyzzy'$"),
        (3, TypeError, r"estimator must be a registered name or an Estimator, got 3"),
        (None, TypeError, r"estimator must be a registered name or an Estimator, got None"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(name, error, message):
    with pytest.raises(error, match=message):
        find(name)


def test_parameters_are_changed_on_a_copy():
    half = gt.estimators()["grpo"].with_parameters(epsilon=0.5)
    assert half.parameter_array.tolist() == [0.5]
    assert gt.estimators()["grpo"].parameter_array.tolist() == [1e-4]
    with pytest.raises(ValueError, match=r"estimator 'grpo' has no parameter 'eps'; it has: epsilon"):
        half.with_parameters(eps=1.0)
    with pytest.raises(ValueError, match=r"estimator 'rloo' has no parameter 'epsilon'; it has: none"):
        gt.estimators()["rloo"].with_parameters(epsilon=1.0)


@pytest.mark.parametrize("value", ["small", float("nan"), None])
def test_a_parameter_that_is_no_number_is_refused_by_name(value):
    with pytest.raises((TypeError, ValueError), match="epsilon"):
        gt.estimators()["grpo"].with_parameters(epsilon=value)


def test_kernels_declare_what_they_read():
    reads = {name: gt.estimators()[name].reads for name in NAMED}
    assert reads["rloo"] == {"rewards"}
    assert reads["oracle"] == {"rewards", "values"}
    assert reads["grpo"] == {"rewards", "parameters"}
    assert reads["optimal_loo"] == {"rewards", "squared_score_norms"}
    assert set(RESPONSE_FIELDS) < set(Batch._fields)


def test_a_batch_passed_on_whole_counts_as_read_entirely():
    def hands_on(batch, advantages):
        gt.estimators()["rloo"].kernel(batch, advantages)

    def unpacks(batch, advantages):
        rewards, *_ = batch
        advantages[:, :] = rewards

    typed = eval("lambda batch, advantages: None")
    assigned = lambda batch, advantages: None  # noqa: E731
    for function in (hands_on, unpacks, typed, assigned):
        assert fields_read(function) == set(Batch._fields)


def test_a_wrapper_is_read_itself_and_not_what_it_wraps():
    def wrapped(batch, advantages):
        advantages[:, :] = batch.rewards

    @functools.wraps(wrapped)
    def wrapper(batch, advantages):
        advantages[:, :] = batch.squared_score_norms

    assert fields_read(wrapper) == {"squared_score_norms"}


def test_a_kernel_may_name_its_arguments_as_it_likes(registry):
    @gt.estimator("renamed")
    def renamed(seen, out):
        out[:, :] = seen.rewards

    assert renamed.reads == {"rewards"}
    assert renamed is gt.estimators()["renamed"]
    assert renamed.description == "renamed"


def test_names_are_taken_once(registry):
    def steal(batch, advantages):
        advantages[:, :] = batch.rewards

    with pytest.raises(ValueError, match=r"name must be new, but an estimator 'rloo' is registered by grpo_theory\."):
        gt.estimator("rloo")(steal)
    first = gt.estimator("mine")(steal)
    assert gt.estimator("mine")(steal).function is first.function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: None, r"must be a plain function of two arguments; a kernel is kernel\(batch, advantages\)"),
        (lambda batch, advantages, more: None, r"must be a plain function of two arguments"),
        (print, r"must be a plain function of two arguments"),
        (3, r"the kernel must be a Python function, got 3; a kernel is kernel\(batch, advantages\)"),
    ],
)
def test_a_kernel_is_a_function_of_two_arguments(registry, function, message):
    with pytest.raises(TypeError, match=message):
        gt.estimator("wrong")(function)
    assert "wrong" not in registry


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_kernel_has_a_name(name):
    with pytest.raises(TypeError, match=f"name must be a non-empty string, got {name!r}"):
        gt.estimator(name)


def test_a_minimum_group_size_is_a_count():
    with pytest.raises(ValueError, match="minimum_group_size must be at least 1, got 0"):
        gt.estimator("wrong", minimum_group_size=0)


def test_arguments_may_be_positional_only(registry):
    @gt.estimator("positional")
    def positional(batch, advantages, /):
        advantages[:, :] = batch.rewards

    assert positional.reads == {"rewards"}


def test_starred_arguments_are_refused(registry):
    with pytest.raises(TypeError, match="must be a plain function of two arguments"):

        @gt.estimator("starred")
        def starred(*batch, **advantages):
            pass


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))], ids=["copy", "pickle"])
def test_estimators_can_be_copied_and_sent_to_another_process(clone):
    assert clone(gt.estimators()["rloo"]).name == "rloo"


def test_another_process_registers_what_it_unpickles(registry, tmp_path, monkeypatch):
    """The second process is played by forgetting the module and the registration."""
    (tmp_path / "kernels_of_mine.py").write_text(
        "import grpo_theory as gt\n\n\n"
        "@gt.estimator('scaled', parameters={'factor': 2.0})\n"
        "def scaled(batch, advantages):\n"
        "    advantages[:, :] = batch.parameters[0] * batch.rewards\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sent = pickle.dumps(importlib.import_module("kernels_of_mine").scaled.with_parameters(factor=3.0))
    del registry["scaled"], sys.modules["kernels_of_mine"]
    received = pickle.loads(sent)
    assert dict(received.parameters) == {"factor": 3.0}
    assert dict(registry["scaled"].parameters) == {"factor": 2.0}
    assert received.function is sys.modules.pop("kernels_of_mine").scaled.function


def test_estimators_can_be_keys():
    assert {gt.estimators()["rloo"]: 1}[gt.estimators()["rloo"]] == 1
