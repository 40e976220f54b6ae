"""The registry: names and objects, parameters, what a kernel reads, what travels, and what is refused."""

import functools
import importlib
import pickle
import re
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation import CLIPS, RATIOS, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.estimation.kernel import Batch, fields_read
from grpo_theory.estimation.parts import constant_length


def test_the_registry_lists_what_the_papers_know_and_cannot_be_written():
    registry = gt.estimators()
    assert {"reinforce", "oracle", "optimal", "rloo", "dr_grpo", "grpo", "dapo", "gspo", "cispo", "tic_grpo"} <= set(registry)
    assert [name for name, found in registry.items() if found.name != name or len(found.description) <= 10] == []
    assert find("rloo") is find(registry["rloo"]) is registry["rloo"]
    with pytest.raises(TypeError, match="does not support item assignment"):
        registry["rloo"] = None
    assert dict(pickle.loads(pickle.dumps(registry))).keys() == registry.keys()


def test_what_a_kernel_reads_is_found_in_its_own_text():
    """A batch that is passed on whole, or whose kernel has no text, counts as read entirely; a wrapper is read itself."""

    def hands_on(batch, advantages):
        gt.estimators()["rloo"].advantage.kernel(batch, advantages)

    def unpacks(batch, advantages):
        rewards, *_ = batch
        advantages[:, :] = rewards + batch.values[0]

    typed = eval("lambda batch, advantages: None")
    for function in (hands_on, unpacks, typed):
        assert fields_read(function) == set(Batch._fields)

    @functools.wraps(unpacks)
    def wrapper(seen, out, /):
        out[:, :] = seen.squared_score_norms

    assert fields_read(wrapper) == {"squared_score_norms"}


def less(share, name="a"):
    """Return the kernel of a text that names a number, run as the file of a name."""
    names = {"__name__": name}
    text = f"SHARE = {share}\n\ndef kernel(batch, advantages):\n    advantages[:, :] = batch.rewards - SHARE\n"
    exec(compile(text, f"<{name}>", "exec"), names)
    return names["kernel"]


def enclosing(share):
    def kernel(batch, advantages):
        advantages[:, :] = batch.rewards - share

    return kernel


def test_a_name_stands_for_one_kernel_until_it_is_replaced_on_request(registry, check_refused):
    """Equal code that names another number is another kernel, unless it is the same place that was run again."""
    first = gt.estimator("mine")(less(0.4))
    with pytest.raises(ValueError, match=r"there is an estimator 'mine' already: .*; overwrite=True replaces"):
        gt.estimator("mine")(less(0.6, "b"))
    assert registry["mine"] is first
    for same in (less(0.6), less(0.6, "c")):
        assert gt.estimator("mine")(same) is registry["mine"]
    assert gt.estimator("mine", overwrite=True)(less(0.7, "d")) is registry["mine"]
    first = gt.estimator("own")(enclosing(0.4))
    check_refused(
        (lambda: gt.estimator("own")(enclosing(0.6)), "there is an estimator 'own' already"),
        (lambda: gt.estimator("rloo", overwrite=True)(less(0.4)), "'rloo' already: .*; choose another name"),
        (lambda: gt.compose("grpo", advantage="rloo", ratio="token", overwrite=True), "'grpo' already: .*; choose another name"),
    )
    assert registry["own"] is first
    assert gt.estimator("own")(enclosing(0.4)) is registry["own"]


PARTS_OF_MINE = """
import numpy as np
import grpo_theory as gt

def squared(log_ratios, length, ratios):
    ratios[:length] = np.exp(2.0 * log_ratios[:length])

def halved(lengths, constant):
    return np.full(lengths.shape, 0.5)

@gt.estimator("scaled", parameters={"factor": 2.0})
def scaled(batch, advantages):
    advantages[:, :] = batch.parameters[0] * batch.rewards

mine = gt.compose("mine", advantage=scaled, ratio=gt.Ratio("squared", squared), aggregation=gt.Aggregation("halved", halved))
"""


def test_another_process_gets_a_users_own_kernel_and_parts(registry, tmp_path, monkeypatch):
    """The second process is played by forgetting the module; the file may be run again, as a notebook's cell is."""
    (tmp_path / "parts_of_mine.py").write_text(PARTS_OF_MINE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("parts_of_mine")
    first = module.mine
    again = importlib.reload(module).mine
    assert registry["mine"] is again is not first
    sent = pickle.dumps(again.with_parameters(factor=3.0))
    del registry["mine"], registry["scaled"], sys.modules["parts_of_mine"]
    received = pickle.loads(sent)
    module = sys.modules.pop("parts_of_mine")
    assert dict(received.advantage.parameters) == {"factor": 3.0}
    assert dict(registry["scaled"].advantage.parameters) == {"factor": 2.0}
    assert received.advantage.function is module.scaled.advantage.function
    assert received.ratio == module.mine.ratio == registry["mine"].ratio
    assert received.aggregation.shares(np.array([1, 2])).tolist() == [0.5, 0.5]


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


def by_row(batch, advantages):
    for b in range(len(batch.rewards)):
        advantages[b] = batch.rewards[b] - batch.rewards[b].mean()


def yields(batch, advantages):
    yield 0


def made(function=by_row, **facts):
    return lambda: gt.estimator("wrong", **facts)(function)


def composed(**parts):
    return lambda: gt.compose("wrong", **{"advantage": "rloo", **parts})


def test_what_makes_no_estimator_is_refused_by_name(registry, check_refused):
    """Each call, and the words that its message must hold."""
    refused = [
        (lambda: gt.estimator(""), "name must be a non-empty string, got ''"),
        (made(minimum_group_size=0), "minimum_group_size must be at least 1, got 0"),
        (made(lambda batch: None), "must be a plain function of 2 arguments; a kernel is kernel(batch, advantages)"),
        (made(waits), "the kernel 'waits' must run when it is called"),
        (made(yields), "the kernel 'yields' must run when it is called"),
        (made(parameters=[("epsilon", 1.0)]), "parameters must be a mapping of names to numbers"),
        (made(parameters={"epsilon": None}), "parameter epsilon must be a finite number"),
        (made(parameters={"an epsilon": 1.0}), "parameters must have names that can be Python's"),
        (lambda: gt.estimators()["grpo"].with_parameters(eps=1.0), "estimator 'grpo' has no parameter 'eps'; it has: epsilon"),
        (composed(advantage="rlo"), "advantage must be one of rloo, "),
        (composed(clip=RATIOS["token"]), "clip must be a name or an instance of Clip, got Ratio("),
        (composed(mismatch="xyzzy"), "mismatch must be one of none, token, "),
        *((partial(CLIPS["cap"].with_widths, 0.2, w), "high must be ") for w in (-0.1, np.nan, np.inf, True, "0.2")),
        (lambda: gt.Aggregation("mine", constant_length, constant=0.0), "constant must be finite and above 0"),
        (lambda: pickle.dumps(gt.Ratio("local", lambda a, b, c: None)), "must be defined at the top level of a file"),
    ]
    check_refused(*((call, re.escape(words)) for call, words in refused), error=(TypeError, ValueError))
    assert "wrong" not in registry


def test_kernels_are_what_they_are_declared_to_be():
    """Exchangeable: equal up to the order of responses.  Affine in rewards are those that are found to be by their symbols."""
    rng, affine = np.random.default_rng(0), set()
    rewards, known = rng.normal(size=(8, 5)), rng.normal(size=(3, 8))
    rewards[0], known[1] = 1.0, np.abs(known[1])
    norms, lengths, place = rng.random((8, 5)), rng.integers(1, 5, (8, 5)), rng.permutation(5)

    def run(kind, order=slice(None)):
        found = np.empty((8, 5))
        kind.run([*(np.ascontiguousarray(one[:, order]) for one in (rewards, norms, lengths, -norms)), *known], found)
        return found

    for name, estimator in gt.estimators().items():
        kind = estimator.advantage
        if kind.exchangeable and not kind.couples_groups:
            np.testing.assert_allclose(run(kind, place), run(kind)[:, place], rtol=1e-9, atol=1e-12, err_msg=name)
        form = affine_coefficients(kind, 5)
        if form is not None:
            a, b, *of_prompt, c = form
            told = a * rewards + b * rewards.sum(axis=1, keepdims=True) + (np.array(of_prompt) @ known)[:, None] + c
            np.testing.assert_allclose(run(kind), told, atol=1e-12, err_msg=name)
            affine.add(name)
    assert {"reinforce", "oracle", "optimal", "rloo", "dr_grpo"} <= affine
    own = gt.estimation.make_estimator("by_row", by_row).advantage
    assert affine_coefficients(own, 4) == pytest.approx([1.0, -0.25, 0.0, 0.0, 0.0, 0.0])
    assert "grpo" not in affine
