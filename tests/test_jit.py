"""How the package compiles: machine code of other sources is never run, and no kernel falls off a cliff of speed."""

import ast
import inspect
import os
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.jit import ABOVE, cache_folder
from grpo_theory.simulate import rollouts
from grpo_theory.simulate.ascents import make_training
from grpo_theory.simulate.draws import (
    LANES,
    block_streams,
    count_below,
    fill_batches,
    fill_words,
    make_batches,
    make_draw_room,
    outcome_law,
)
from grpo_theory.simulate.observations import observe_pairs, truth_at
from grpo_theory.simulate.policies import exponentiate, make_scratch

RAISES = r"np\.(empty|zeros|ones|arange)\w*\(|range\(.*,.*, (?!\d+\)$)"
"""What may raise an error within a kernel."""


def test_machine_code_lies_in_a_folder_of_its_sources_and_that_of_older_ones_is_deleted(tmp_path):
    source = tmp_path / "package" / "source.py"
    source.parent.mkdir()
    source.write_text("one = 1\n")
    first = cache_folder(source.parent, None)
    assert cache_folder(source.parent, str(first)) == first, "as a process that this one starts is told"
    first.mkdir(parents=True)
    copy = shutil.copytree(source.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    assert cache_folder(copy, str(first)) == first, "a copy that is run beside the package does not delete its folder"
    source.write_text("one = 2\n")
    os.utime(source, (1, 1))
    second = cache_folder(source.parent, None)
    assert second != first
    assert not first.exists()
    assert cache_folder(source.parent, str(tmp_path / "chosen")).parent == tmp_path / "chosen"


def test_no_kernel_imports_a_room_whose_edits_keep_machine_code():
    package, importing = Path(gt.__file__).parent, rf"(?m)^from grpo_theory\.({ABOVE.replace(' ', '|')})\b"
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    kernels = {path: text for path, text in texts.items() if "grpo_theory.jit import" in text}
    below = [path for path in texts if path.relative_to(package).parts[0] not in ABOVE.split()]
    assert len(kernels) > 10
    assert [str(path) for path in {*kernels, *below} if re.search(importing, texts[path]) and path.name != "__main__.py"] == []


def least_seconds(*calls):
    """Return the least processor time that each call takes of twenty, all calls in turn, so that a busy machine slows all."""
    times = []
    for _ in range(21):
        row = []
        for call, repeats in calls:
            start = time.thread_time()
            for _ in range(repeats):
                call()
            row.append((time.thread_time() - start) / repeats)
        times.append(row)
    return np.min(times[1:], axis=0)  # the first compiles


@pytest.mark.compiled
def test_no_kernel_is_slower_than_vectors_of_lanes_are():
    """Words against NumPy's, which come one by one; all else against as many rows of words, which have the same vectors.

    Limits are some twice what the dearest of code for four kinds of processors takes, as these ratios differ little among them.
    Without vectors words take twice as long and comparisons, exponentials and groups four to ten times.
    """
    problem = gt.gallery.problem("tabular")
    law = outcome_law(problem.at(problem.theta))
    streams, room, batches = (
        block_streams(np.random.SeedSequence(0), 0),
        make_draw_room(law, 8, 64),
        make_batches(law, 8, 8, 64, in_order=False),
    )
    words, scratch = np.empty((512, LANES), dtype=np.uint64), make_scratch(0, LANES)
    short = words.view(np.int16).reshape(-1, LANES)
    thresholds, below = np.zeros((8, LANES), np.int16), np.zeros((8, LANES), np.uint16)
    cubes, weights, found = np.ones((1, 16, 64, LANES)), np.ones((1, 1, 16, 1, LANES)), np.zeros((1, 4, 1, LANES))
    truth = truth_at(problem.at(problem.theta), np.empty((0, problem.theta.size)))._replace(gradients=np.ones((64, 6)))
    seen = np.zeros((1, 16, LANES), dtype=np.int64), cubes, weights, 0, found
    training = make_training(problem, gt.estimators()["rloo"], np.full(10**4, 0.1), (8, 16))
    runs = training.start(np.random.SeedSequence(0), 0, np.tile(problem.theta, (LANES, 1)))
    numpy_words = np.random.PCG64(0)
    calls = {
        "words of streams": (lambda: fill_words(streams.lanes, words), 20, 512, 0),
        "NumPy's words": (lambda: numpy_words.random_raw(words.size), 2, 512, 0),
        "comparisons with thresholds": (lambda: count_below(short, 0, 2048, thresholds, below), 20, 2048 * 8, 0.25),
        "exponentials": (lambda: exponentiate(cubes[0, 0], 64, scratch), 20, 64, 10.0),
        "products of rows": (lambda: observe_pairs(truth, *seen), 5, 136 * 64, 2.0),
        "a group drawn": (lambda: fill_batches(law, 64, streams, room, batches), 10, 64, 200.0),
        "a group of a run": (lambda: runs.advance(runs.count + 20), 1, 160, 300.0),
    }
    seconds = least_seconds(*((call, repeats) for call, repeats, _, _ in calls.values()))
    row = {name: taken / rows for (name, (_, _, rows, _)), taken in zip(calls.items(), seconds, strict=True)}
    ratios = {name: cost / row["words of streams"] for name, cost in row.items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio > (calls[name][3] or np.inf)} == {}, ratios
    assert ratios["NumPy's words"] > 3.0, "2.5 without vectors, 3.9 to 5.7 with those of four or eight"


@pytest.mark.compiled
def test_what_training_calls_at_each_step_cannot_raise():
    """A kernel that may leave with an error counts references to its arrays, see `jit.inlined`: a third of a step's time.

    So it returns at its end, makes no array, and has no range of a step that might be 0.  It calls what is written into it alone.
    """
    loop = next(node for node in ast.walk(ast.parse(inspect.getsource(rollouts.train.py_func))) if isinstance(node, ast.While))
    looked, kernels, found = [loop], {}, []
    while looked:  # what is written into the loop is a part of it
        for name in (getattr(node.func, "id", "") for node in ast.walk(looked.pop()) if isinstance(node, ast.Call)):
            called = vars(rollouts).get(name)
            if hasattr(called, "py_func") and called.targetoptions.get("inline") == "always":
                looked.append(ast.parse(inspect.getsource(called.py_func)))
            elif hasattr(called, "py_func") and name not in {"weigh", "keep_rollout", "fill_unit_logits", "add_unit_gradient"}:
                kernels[name] = called.py_func
    looked = [*kernels.values()]
    assert len(looked) > 10
    while looked:
        function = looked.pop()
        body = ast.parse(inspect.getsource(function)).body[0].body
        for node in (node for part in body for node in ast.walk(part)):
            called = function.__globals__.get(getattr(node.func, "id", "")) if isinstance(node, ast.Call) else None
            inner, words = hasattr(called, "py_func"), ast.unparse(node)
            if inner and called.targetoptions.get("inline") == "always":
                looked.append(called.py_func)
            elif inner or (isinstance(node, ast.Return) and node is not body[-1]) or re.match(RAISES, words):
                found.append(f"{function.__name__}: {words}")
    assert found == []
