"""No two chunks draw the same: each is handed a seed of its own, and those that share one number what they draw on."""

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest

from grpo_theory.harness.forms import study_of
from grpo_theory.harness.runner import run
from grpo_theory.harness.store import Store, read_table
from grpo_theory.harness.study import EXACT, Cell, Study, cell_seed, chunk_seed
from simulations.collection import studies

SHARED = {
    "advice_regret",
    "baseline_curve",
    "baselines",
    "coverage_runs",
    "drift",
    "estimators",
    "frontier",
    "gradient_error",
    "james_stein",
    "learned_division",
    "learned_drift",
    "learned_time",
    "own_length",
    "phase_course",
    "staleness",
    "stalled",
    "stopped_runs",
    "time_to_level",
    "trained_drift",
}
"""Blocks of replications, problems and runs that are numbered from chunk to chunk, and arms on the same draws."""


def words(seed):
    return tuple(seed.generate_state(4).tolist())


def test_chunks_have_seeds_of_their_own_unless_they_share_one():
    cell, shared, alone = Cell({"a": 1}, 3), Cell({"a": 1}, 3, shared=True), Cell({"a": 1})
    own = {words(chunk_seed("x", cell, 0, chunk)) for chunk in range(3)}
    whole = words(cell_seed("x", cell, 0))
    assert len(own) == 3
    assert whole not in own
    assert {words(chunk_seed("x", shared, 0, chunk)) for chunk in range(3)} == {whole}
    assert words(chunk_seed("x", alone, 0, 0)) == whole
    assert words(chunk_seed("x", cell, 0, 1)) == words(chunk_seed("x", Cell({"a": 1}, 9), 0, 1)), "more chunks keep the first"


def test_an_exact_study_that_draws_is_handed_the_seed_of_its_chunk():
    module = ModuleType("drawn")
    module.compare = lambda settings, rng: [{"estimate": float(np.random.default_rng(rng).random())}]
    study, seed = study_of(module), np.random.SeedSequence(5)
    table = study.rows({}, [study.compute({}, seed, 0)])
    assert [row["estimate"] for row in table] == [np.random.default_rng(5).random()]


def draw(settings, seed, chunk):
    return float(np.random.default_rng(seed).random())


def listed(settings, results):
    return [{"chunk": i, "prediction": 0.0, "estimate": value} | EXACT for i, value in enumerate(results)]


DRAWING = Study("drawing", "draws a number", __name__, lambda quick: [Cell({"a": 1}, 4)], draw, listed, lambda table: [])


def test_a_study_that_forgets_its_chunks_number_draws_anew_in_each(tmp_path, monkeypatch):
    monkeypatch.setattr("grpo_theory.harness.runner.study_in", lambda module: DRAWING)
    with ThreadPoolExecutor(2) as executor:
        assert list(run([DRAWING], Store(tmp_path, 3), executor)) == [(DRAWING, 4)]
    assert read_table(tmp_path, "drawing")[0]["estimate"].nunique() == 4


def test_who_shares_a_seed_is_known():
    shared = {name for name, study in studies().items() if any(cell.shared for quick in (0, 1) for cell in study.cells(quick))}
    assert shared <= SHARED


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gradient_error", {"chunk_replications": 128, "problem": "two-arms", "batch_size": 1 << 13, "group_size": 64}),
        ("drift", {"horizon": 1, "trees": 2}),
        ("own_length", {"kind": "tabular"}),
        ("coverage_runs", {"runs": 128}),
    ],
)
def test_chunks_that_share_a_seed_differ(name, changes):
    study = studies()[name]
    cell = next(cell for cell in study.cells(False) if cell.shared and cell.chunks > 1)
    settings = cell.settings | changes
    found = [repr(strip(study.compute(settings, cell_seed(name, cell, 0), chunk))) for chunk in (1, 2)]
    assert found[0] != found[1]


def strip(result):
    """Leave out the number of the chunk and of what it drew, which differ without any drawing."""
    if isinstance(result, list):
        return [{key: value for key, value in row.items() if key not in ("seed", "tree")} for row in result]
    return result
