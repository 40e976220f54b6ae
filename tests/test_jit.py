"""How the package compiles: machine code of other sources is never run, and no kernel falls off a cliff of speed."""

import os
import time

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.jit import cache_folder, kernel
from grpo_theory.simulate.ascents import make_training
from grpo_theory.simulate.draws import count_below, fill_batches, make_batches, make_draw_room, outcome_law
from grpo_theory.simulate.observations import multiply
from grpo_theory.simulate.policies import exponentiate, make_scratch
from grpo_theory.simulate.streams import LANES, block_streams, fill_words


def test_machine_code_lies_in_a_folder_of_its_sources_and_that_of_older_ones_is_deleted(tmp_path):
    source = tmp_path / "package" / "source.py"
    source.parent.mkdir()
    source.write_text("one = 1\n")
    first = cache_folder(source.parent, None)
    assert cache_folder(source.parent, str(first)) == first, "as a process that this one starts is told"
    first.mkdir(parents=True)
    source.write_text("one = 2\n")
    os.utime(source, (1, 1))
    second = cache_folder(source.parent, None)
    assert second != first
    assert not first.exists()
    assert cache_folder(source.parent, str(tmp_path / "chosen")).parent == tmp_path / "chosen"


@kernel
def add_rows(rows, total, repeats):
    """Add up rows (n, LANES) again and again: what a loop over lanes should cost."""
    for _ in range(repeats):
        for i in range(rows.shape[0]):
            for j in range(LANES):
                total[j] += rows[i, j]


def seconds_of(call, repeats):
    """Return the least time of a call, of several."""
    call()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append(time.perf_counter() - start)
    return min(times) / repeats


@pytest.mark.compiled
def test_no_kernel_is_slower_than_loops_over_lanes_are():
    """In rows of 64 that are added up.  Three times what was measured is the limit; loops not made of vectors cost six."""
    rows, total = np.ones((64, LANES)), np.zeros(LANES)
    row = seconds_of(lambda: add_rows(rows, total, 100), 10) / (100 * len(rows))
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
    cubes, dot = np.ones((16, 64, LANES)), np.zeros(LANES)
    training = make_training(problem, gt.estimators()["rloo"], np.full(10**4, 0.1), (8, 16))
    runs = training.start(np.random.SeedSequence(0), 0, np.tile(problem.theta, (LANES, 1)))
    costs = {
        "words of streams": (seconds_of(lambda: fill_words(streams.lanes, words), 20) / 512, 4.0),
        "comparisons with thresholds": (seconds_of(lambda: count_below(short, 0, 2048, thresholds, below), 20) / 2048 / 8, 0.5),
        "exponentials": (seconds_of(lambda: exponentiate(cubes[0], 64, scratch), 20) / 64, 20.0),
        "products of rows": (seconds_of(lambda: multiply(cubes, 1, 2, total, dot), 20) / 64, 6.0),
        "a group drawn": (seconds_of(lambda: fill_batches(law, 64, streams, room, batches), 20) / 64, 400.0),
        "a group of a run": (seconds_of(lambda: runs.advance(runs.count + 100), 5) / 800, 750.0),
    }
    found = {name: cost / row for name, (cost, _) in costs.items()}
    assert {name: ratio for name, ratio in found.items() if ratio > costs[name][1]} == {}, found
