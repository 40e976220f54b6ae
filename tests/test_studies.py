"""Studies: seeds, chunks, resuming, damage, columns, and the verdicts' sensitivity to a wrong library."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from study_tables import claims

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.harness.runner import run
from grpo_theory.harness.store import Store, read_table
from grpo_theory.harness.study import Cell, cell_seed
from grpo_theory.harness.study_file import study_in
from grpo_theory.theory import baseline_trace
from simulations.collection import studies
from simulations.gradient import error_law, prompt_baselines, u_statistic


def compute(study, store, workers=2, **options):
    """Run one study; returns the number of its chunks that were computed."""
    with ThreadPoolExecutor(workers) as executor:
        ((_, computed),) = run([study], store, executor, **options)
    return computed


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("simulations.gradient.cells.REPLICATIONS", 1 << 20)
    monkeypatch.setattr("simulations.gradient.cells.QUICK_RESPONSES", 1 << 23)
    monkeypatch.setattr("simulations.gradient.cells.CHUNK_RESPONSES", 1 << 21)
    return study_in("small")


def test_cell_seed_depends_on_study_settings_and_seed_only():
    cell = Cell({"a": 1, "b": 2})
    first = cell_seed("x", cell, 0).generate_state(4)
    assert (first == cell_seed("x", Cell({"b": 2, "a": 1}), 0).generate_state(4)).all()
    assert (first == cell_seed("x", Cell({"of": "whatever computes it", **cell.settings}), 0).generate_state(4)).all()
    for other in (cell_seed("y", cell, 0), cell_seed("x", Cell({"a": 1, "b": 3}), 0), cell_seed("x", cell, 1)):
        assert (first != other.generate_state(4)).any()


def test_a_second_run_computes_nothing_and_neither_workers_nor_other_studies_matter(small, tmp_path):
    other = dataclasses.replace(small, name="other")
    alone, together = Store(tmp_path / "alone", 3), Store(tmp_path / "together", 3)
    assert [compute(study, alone, workers=1) for study in (small, other, small)] == [8, 8, 0]
    with ThreadPoolExecutor(2) as executor:
        found = {study.name: computed for study, computed in run([small, other], together, executor)}
    assert found == {"small": 8, "other": 8}
    for name in found:
        pd.testing.assert_frame_equal(*(read_table(store.root, name)[0] for store in (alone, together)), check_exact=True)


@pytest.mark.parametrize("damage", ["truncated", "edited", "other seed"])
def test_only_a_damaged_chunk_is_computed_again(small, tmp_path, damage):
    store = Store(tmp_path, 3)
    compute(small, store)
    before = read_table(tmp_path, "small")[0]
    victim = sorted(tmp_path.glob("chunks/small/*/*.json"))[2]
    record = json.loads(victim.read_text())
    if damage == "edited":
        record["body"]["data"]["simulation"][0]["means"][0][0] += 1.0
    elif damage == "other seed":
        record["body"]["seed"] = 4
    victim.write_text(victim.read_text()[:-40] if damage == "truncated" else json.dumps(record))
    assert compute(small, store) == 1
    pd.testing.assert_frame_equal(read_table(tmp_path, "small")[0], before, check_exact=True)


def test_every_study_is_named_by_its_file_and_has_cells_that_differ():
    for name, study in studies().items():
        assert name == study.name == study.module.rpartition(".")[2]
        assert study.cells(True), study.name
        cells = study.cells(False)
        assert len({cell.key for cell in cells}) == len(cells)


def claims_on(module, problems):
    """Run the cells of a study that are about some problems, and read its claims off the table."""
    return claims(module, problem=problems)


def test_verdicts_follow_the_evidence_not_a_list(monkeypatch):
    """With a leave-one-out estimator that is 1% off, what was confirmed must be refuted."""
    right = u_statistic.estimate
    monkeypatch.setattr(u_statistic, "estimate", lambda name, *data: right(name, *data) * (1.01 if name == "rloo" else 1.0))
    verdicts = judge(claims_on(u_statistic, {"tabular"})).set_index("id")
    assert verdicts.loc["U1", "verdict"] == "refuted"
    assert judge(claims_on(error_law, {"tabular"})).set_index("id").loc["U4/corrected", "verdict"] == "confirmed"
    law = gt.group_size_law
    monkeypatch.setattr(gt, "group_size_law", lambda *point: scaled(law(*point), 1.0001))
    wrong = judge(claims_on(error_law, {"tabular"})).set_index("id")
    assert wrong.loc["U4/corrected", "verdict"] == "refuted"


def scaled(law, factor):
    return gt.GroupSizeLaw(factor * law.c1, factor * law.c2, factor * law.c3)


def test_the_limits_are_the_closed_forms():
    problem = gt.gallery.problem("uncorrelated-linear")
    moments = gt.moments(problem, problem.theta)
    found = prompt_baselines.limits(problem)
    f = moments.prompt_weights
    assert found["rloo"] == pytest.approx(f @ moments.oracle_trace, rel=1e-11)
    assert found["best"] == pytest.approx(f @ baseline_trace(moments, moments.optimal_baseline), rel=1e-11)
    short = f @ baseline_trace(moments, 0.8 * moments.value)
    assert found[prompt_baselines.SHORT] == pytest.approx(short, rel=1e-11)
    assert short - found["best"] == pytest.approx(f @ (moments.score_squared_norm * moments.value**2) / 25.0, rel=1e-9)


def test_a_kernel_that_gives_nan_confirms_nothing(monkeypatch):
    """It once did: the greater of 0 and NaN was 0."""
    case = u_statistic.CASES[0]
    assert np.max(u_statistic.discrepancies(**case, rng=np.random.default_rng(0))["U1"][0]) < 1e-10
    monkeypatch.setattr(u_statistic, "estimate", lambda name, scores, rewards: np.full(scores.shape[1], np.nan))
    with pytest.raises(ValueError, match="sides must be finite"):
        claims_on(u_statistic, {"tabular"})
