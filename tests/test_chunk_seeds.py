"""No two chunks draw the same: each is handed a seed of its own, and those that share one number what they draw on."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from grpo_theory.harness.runner import run
from grpo_theory.harness.store import Store, read_table
from grpo_theory.harness.study import EXACT, Cell, Study, cell_seed, chunk_generator
from simulations.collection import studies
from simulations.seeds import child_seed, seed_of


def words(rng):
    return tuple(rng.bit_generator.random_raw(4).tolist())


def test_chunks_have_generators_of_their_own_unless_they_share_a_seed():
    cell, shared, alone = Cell({"a": 1}, 3), Cell({"a": 1}, 3, shared=True), Cell({"a": 1})
    own = {words(chunk_generator("x", cell, 0, chunk)) for chunk in range(3)}
    whole = words(np.random.default_rng(cell_seed("x", cell, 0)))
    assert len(own) == 3
    assert whole not in own
    assert {words(chunk_generator("x", shared, 0, chunk)) for chunk in range(3)} == {whole}
    assert words(chunk_generator("x", alone, 0, 0)) == whole
    assert words(chunk_generator("x", cell, 0, 1)) == words(chunk_generator("x", Cell({"a": 1}, 9), 0, 1)), (
        "more chunks keep the first"
    )


def test_the_seed_of_a_generator_is_that_which_it_was_made_from_whatever_was_drawn():
    seed = cell_seed("x", Cell({"a": 1}), 0)
    rng = np.random.default_rng(seed)
    rng.normal(size=100)
    assert seed_of(rng).generate_state(4).tolist() == seed.generate_state(4).tolist()
    assert seed_of(rng).spawn_key == seed.spawn_key
    apart = [np.random.default_rng(one).random() for one in (seed, child_seed(seed, 0), child_seed(seed, 1))]
    assert len(set(apart)) == 3
    assert child_seed(seed, 1).spawn_key == seed.spawn(2)[1].spawn_key, "a child is the one that spawning gives"


def test_a_study_that_forgets_its_chunks_number_draws_anew_in_each(tmp_path, monkeypatch):
    def table(results, quick):
        return [{"prediction": 0.0, "estimate": value} | EXACT for _, chunks in results for value in chunks]

    cells = [Cell({"a": 1}, 4)]
    drawing = Study("drawing", "draws", __name__, lambda quick: cells, lambda settings, rng, chunk: rng.random(), table, list)
    monkeypatch.setattr("grpo_theory.harness.runner.study_in", lambda module: drawing)
    with ThreadPoolExecutor(2) as executor:
        list(run([drawing], Store(tmp_path, 3), executor))
    assert read_table(tmp_path, "drawing")[0]["estimate"].nunique() == 4


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gradient_error", {"chunk_replications": 128, "problem": "two-arms", "batch_size": 1 << 3, "group_size": 1 << 12}),
        ("drift", {"horizon": 1, "trees": 2}),
        ("own_length", {"kind": "tabular"}),
        ("coverage_runs", {"runs": 128}),
    ],
)
def test_chunks_that_share_a_seed_differ(name, changes):
    study = studies()[name]
    cell = next(cell for cell in study.cells(False) if cell.shared and cell.chunks > 1)
    settings = cell.settings | changes
    found = [repr(strip(study.compute(settings, np.random.default_rng(cell_seed(name, cell, 0)), chunk))) for chunk in (1, 2)]
    assert found[0] != found[1]


def strip(result):
    """Leave out the number of the chunk and of what it drew, which differ without any drawing."""
    if isinstance(result, list):
        return [{key: value for key, value in row.items() if key not in ("seed", "tree")} for row in result]
    return result
