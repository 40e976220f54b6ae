"""The registry: names and objects, parameters, what a kernel reads, and what the decorator refuses."""

import copy
import functools
import importlib
import pickle
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from enumeration import NAMED

import grpo_theory as gt
from grpo_theory.estimation import CLIPS, RATIOS, find
from grpo_theory.estimation.kernel import RESPONSE_FIELDS, Batch, fields_read
from grpo_theory.estimation.parts import two_sided_clip


def test_the_registry_lists_what_the_papers_know_and_cannot_be_written():
    registry = gt.estimators()
    assert {"reinforce", "oracle", "optimal", "rloo", "dr_grpo", "grpo", "dapo", "gspo", "cispo", "tic_grpo"} <= set(registry)
    assert all(found.name == name and len(found.description) > 10 for name, found in registry.items())
    with pytest.raises(TypeError, match="does not support item assignment"):
        registry["rloo"] = None


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("rlo", ValueError, r"estimator must be one of \d+ names, got 'rlo'; did you mean 'rloo'\?"),
        ("halfway_group", ValueError, r"got 'halfway_group'$"),
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
    assert half.name == "grpo(epsilon=0.5)"
    assert half.advantage.parameter_array.tolist() == [0.5]
    assert gt.estimators()["grpo"].advantage.parameter_array.tolist() == [1e-4]
    assert half.with_parameters(epsilon=2.0).name == "grpo(epsilon=2.0)"
    with pytest.raises(ValueError, match=r"estimator 'grpo' has no parameter 'eps'; it has: epsilon"):
        half.with_parameters(eps=1.0)
    with pytest.raises(ValueError, match=r"estimator 'rloo' has no parameter 'epsilon'; it has: none"):
        gt.estimators()["rloo"].with_parameters(epsilon=1.0)


def test_kernels_declare_what_they_read():
    reads = {name: gt.estimators()[name].reads for name in NAMED}
    assert reads["rloo"] == {"rewards"}
    assert reads["oracle"] == {"rewards", "values"}
    assert reads["grpo"] == {"rewards", "parameters"}
    assert reads["optimal_loo"] == {"rewards", "squared_score_norms"}
    assert set(RESPONSE_FIELDS) < set(Batch._fields)


def test_a_batch_passed_on_whole_counts_as_read_entirely():
    def hands_on(batch, advantages):
        gt.estimators()["rloo"].advantage.kernel(batch, advantages)

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


def test_names_are_taken_once(registry):
    def steal(batch, advantages):
        advantages[:, :] = batch.rewards

    with pytest.raises(ValueError, match=r"name must be new, but there is an estimator 'rloo' already: "):
        gt.estimator("rloo")(steal)
    first = gt.estimator("mine")(steal)
    assert gt.estimator("mine")(steal).advantage.function is first.advantage.function


def less(share):
    def kernel(batch, advantages):
        advantages[:, :] = batch.rewards - share

    return kernel


GLOBAL = """
import grpo_theory as gt
SHARE = {share}

def kernel(batch, advantages):
    advantages[:, :] = batch.rewards - SHARE
"""


def run_as(name, text):
    names = {"__name__": name}
    exec(compile(text, f"<{name}>", "exec"), names)
    return names["kernel"]


def test_kernels_of_the_same_words_that_name_other_numbers_are_others(registry):
    kernels = [run_as(name, GLOBAL.format(share=share)) for name, share in (("a", 0.4), ("b", 0.6), ("c", 0.4))]
    first = gt.estimator("mine")(kernels[0])
    with pytest.raises(ValueError, match=r"name must be new, but there is an estimator 'mine' already"):
        gt.estimator("mine")(kernels[1])
    assert registry["mine"] is first
    assert gt.estimator("mine")(kernels[2]) is registry["mine"]


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


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))], ids=["copy", "pickle"])
def test_estimators_can_be_copied_and_sent_to_another_process(clone):
    for name in ("rloo", "dapo"):
        known = gt.estimators()[name]
        sent = clone(known)
        assert sent.name == name
        assert sent.advantage.function is known.advantage.function
        assert (sent.ratio, sent.clip, sent.aggregation, sent.kl) == (known.ratio, known.clip, known.aggregation, known.kl)


PARTS_OF_MINE = """
import numpy as np
import grpo_theory as gt

def squared(log_ratios, length, ratios):
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = np.exp(2.0 * log_ratios[t, i])

def halved(lengths, constant):
    return np.full(lengths.shape, 0.5)

mine = gt.compose(
    "mine", advantage="rloo", ratio=gt.Ratio("squared", squared), aggregation=gt.Aggregation("halved", halved)
)
"""


def test_another_process_gets_a_composition_of_a_users_own_parts(registry, tmp_path, monkeypatch):
    (tmp_path / "parts_of_mine.py").write_text(PARTS_OF_MINE)
    monkeypatch.syspath_prepend(tmp_path)
    sent = pickle.dumps(importlib.import_module("parts_of_mine").mine)
    del registry["mine"], sys.modules["parts_of_mine"]
    received = pickle.loads(sent)
    module = sys.modules.pop("parts_of_mine")
    assert received.ratio == module.mine.ratio == registry["mine"].ratio
    assert received.aggregation == module.mine.aggregation
    assert received.aggregation.shares(np.array([1, 2])).tolist() == [0.5, 0.5]


def test_a_file_of_compositions_may_be_run_again(registry, tmp_path, monkeypatch):
    """As a cell of a notebook is: the functions are new, their places and their code are not."""
    (tmp_path / "parts_of_mine.py").write_text(PARTS_OF_MINE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("parts_of_mine")
    first = module.mine
    again = importlib.reload(module).mine
    assert registry["mine"] is again is not first
    assert again.ratio.function is not first.ratio.function
    del sys.modules["parts_of_mine"]


def test_a_part_with_a_function_of_no_place_cannot_be_sent():
    local = gt.Ratio("local", lambda log_ratios, length, ratios: None)
    with pytest.raises(TypeError, match=r"the function '.*<lambda>' must be defined at the top level of a file"):
        pickle.dumps(local)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"advantage": "rlo"}, ValueError, r"advantage must be one of \d+ names, got 'rlo'; did you mean 'rloo'\?"),
        ({"advantage": None}, TypeError, r"advantage must be a registered name or an Estimator, got None"),
        (
            {"ratio": "tokens"},
            ValueError,
            r"ratio must be one of none, token, trajectory, geometric, got 'tokens'; did you mean 'token'\?",
        ),
        ({"ratio": 1.0}, TypeError, r"ratio must be a name or an instance of Ratio, got 1\.0"),
        ({"clip": "two sided"}, ValueError, r"clip must be one of none, .*, dual, got 'two sided'; did you mean 'two-sided'\?"),
        ({"clip": 0.2}, TypeError, r"clip must be a name or an instance of Clip, got 0\.2"),
        ({"clip": RATIOS["token"]}, TypeError, r"clip must be a name or an instance of Clip, got Ratio\("),
        ({"aggregation": "length"}, ValueError, r"aggregation must be .*, got 'length'; did you mean 'own length'\?"),
        ({"aggregation": np.mean}, TypeError, r"aggregation must be a name or an instance of Aggregation, got <function mean"),
        ({"kl": "k3 loss"}, ValueError, r"kl must be one of k1 in reward, .*, got 'k3 loss'; did you mean 'k3 in loss'\?"),
        ({"kl": "xyzzy"}, ValueError, r"kl must be one of .*, got 'xyzzy'$"),
        ({"kl": gt.KL(1.0, [[0.5, 0.5]])}, TypeError, r"kl must be a name or an instance of KLTerm, got KL\("),
    ],
)
def test_unknown_parts_are_refused_with_a_suggestion(registry, parts, error, message):
    with pytest.raises(error, match=message):
        gt.compose("wrong", **{"advantage": "rloo", **parts})
    assert "wrong" not in registry


def test_what_the_package_names_is_never_replaced(registry):
    with pytest.raises(ValueError, match=r"'rloo' already: .*; choose another name"):
        gt.estimator("rloo", overwrite=True)(less(0.4))
    with pytest.raises(ValueError, match=r"'grpo' already: .*; choose another name"):
        gt.compose("grpo", advantage="rloo", ratio="token", overwrite=True)


def test_a_name_stands_for_one_composition(registry):
    first = gt.compose("mine", advantage="rloo", ratio="token")
    assert gt.compose("mine", advantage="rloo", ratio="token").ratio is first.ratio
    for other in ({"ratio": "geometric"}, {"ratio": "token", "clip": "cap"}, {"ratio": "token", "advantage": "grpo"}):
        with pytest.raises(ValueError, match="name must be new, but there is an estimator 'mine' already"):
            gt.compose("mine", **{"advantage": "rloo", **other})
    with pytest.raises(ValueError, match="name must be new, but there is an estimator 'rloo' already"):
        gt.compose("rloo", advantage="rloo", ratio="token")
    assert registry["mine"].ratio is first.ratio


@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize("width", [-0.1, np.nan, np.inf, True, "0.2", None])
def test_a_clip_has_finite_widths_that_are_not_negative(side, width):
    message = rf"{side} must be a finite width of the clip, at least 0, got {width!r}"
    with pytest.raises(ValueError, match=message):
        gt.Clip("mine", two_sided_clip, **{side: width})
    with pytest.raises(ValueError, match=message):
        CLIPS["cap"].with_widths(**{"low": 0.2, "high": 0.2, side: width})


def test_what_an_estimator_reads_and_couples_is_its_kernels_and_its_aggregations():
    found = gt.estimators()
    assert found["gspo"].reads == found["grpo"].reads
    assert found["cispo"].reads == found["grpo"].reads | {"lengths"}
    assert (found["cispo"].couples_groups, found["dapo"].couples_groups) == (False, True)
    tree = gt.Problem(gt.Bandit([[0.2, 0.9, 0.4]]), gt.TokenTree(1, 2, 2, end_token=0))
    with pytest.raises(gt.NotEnumerableError, match="estimator 'dapo' couples groups: use simulate_gradients"):
        gt.gradient_mse(tree, tree.theta, "dapo", batch_size=2, group_size=2)
    # Where all responses have one token, the batch's tokens are its responses, whatever these are.
    arms, sizes = gt.gallery.problem("two-arms"), {"batch_size": 2, "group_size": 2}
    own = replace(found["dapo"], aggregation=gt.estimation.AGGREGATIONS["own length"])
    assert gt.gradient_mse(arms, arms.theta, "dapo", **sizes) == gt.gradient_mse(arms, arms.theta, own, **sizes)


async def waits(batch, advantages):
    advantages[:, :] = batch.rewards


def yields(batch, advantages):
    yield 0


@pytest.mark.parametrize("function", [waits, yields])
def test_a_kernel_runs_when_it_is_called(registry, function):
    with pytest.raises(TypeError, match=r"the kernel '\w+' must run when it is called, not be async or yield; a kernel is"):
        gt.estimator("wrong")(function)
    assert "wrong" not in registry


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ([("epsilon", 1.0)], TypeError, r"parameters must be a mapping of names to numbers, .*, got \[\('epsilon', 1.0\)\]"),
        ([], TypeError, r"parameters must be a mapping of names to numbers, .*, got \[\]"),
        (
            {"epsilon": 10**400},
            ValueError,
            r"parameter epsilon must be a finite number that a float can hold, got a number beyond",
        ),
        ({"an epsilon": 1.0}, ValueError, r"parameters must have names that can be Python's, as 'epsilon', got 'an epsilon'"),
        ({3: 1.0}, ValueError, r"parameters must have names that can be Python's, as 'epsilon', got 3"),
        ({"class": 1.0}, ValueError, r"parameters must have names that can be Python's, as 'epsilon', got 'class'"),
    ],
)
def test_parameters_that_cannot_be_are_refused(registry, parameters, error, message):
    with pytest.raises(error, match=message):
        gt.estimator("wrong", parameters=parameters)(two_arguments)
    assert "wrong" not in registry


def two_arguments(batch, advantages):
    advantages[:, :] = batch.rewards


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("reinforce++", "verl_reinforce_plus_plus_baseline"),
        ("REINFORCE++", "verl_reinforce_plus_plus_baseline"),
        ("grpo++", "grpo"),
        ("reinforc", "reinforce"),
    ],
)
def test_two_signs_of_addition_are_words_of_a_name(asked, meant):
    with pytest.raises(ValueError, match=f"got '{re.escape(asked)}'; did you mean '{meant}'"):
        find(asked)
