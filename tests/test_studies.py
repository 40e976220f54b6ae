"""Studies: seeds, chunks, resuming, damage, and the verdicts' sensitivity to a wrong library."""

import json

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.inference import judge
from simulations import baselines, error_law, u_statistic
from simulations.gradient_cells import gradient_cells, kernel_checksum, merge, simulate_chunk
from simulations.registry import STUDIES
from simulations.runner import run
from simulations.store import Store, StoreError, read_table
from simulations.study import Cell, Study, cell_seed


def small_cells(quick):
    return gradient_cells(("oracle", "rloo"), (4,), batch_size=4, quick=True, problems=("two-arms", "tabular"))


def small_rows(settings, results):
    simulation = merge(results)
    return [{"problem": settings["problem"], "mse": float(simulation.mse[1]), "n": simulation.replications}]


@pytest.fixture
def small(monkeypatch):
    study = Study("small", "a small study", small_cells, simulate_chunk, small_rows, lambda table: [])
    monkeypatch.setitem(STUDIES, "small", study)
    monkeypatch.setattr("simulations.gradient_cells.QUICK_RESPONSES", 1 << 19)
    monkeypatch.setattr("simulations.gradient_cells.CHUNK_RESPONSES", 1 << 17)
    return study


def chunk_files(root):
    return sorted(root.glob("chunks/small/*/*.json"))


def test_cell_seed_depends_on_study_settings_and_seed_only():
    cell = Cell({"a": 1, "b": 2})
    first = cell_seed("x", cell, 0).generate_state(4)
    assert (first == cell_seed("x", Cell({"b": 2, "a": 1}), 0).generate_state(4)).all()
    for other in (cell_seed("y", cell, 0), cell_seed("x", Cell({"a": 1, "b": 3}), 0), cell_seed("x", cell, 1)):
        assert (first != other.generate_state(4)).any()


def test_a_second_run_computes_nothing_and_workers_do_not_matter(small, tmp_path):
    one, two = Store(tmp_path / "one", 3), Store(tmp_path / "two", 3)
    assert run(small, one, workers=1) == len(chunk_files(one.root)) == 8
    assert run(small, two, workers=3) == 8
    assert run(small, one, workers=1) == 0
    pd.testing.assert_frame_equal(read_table(one.root, "small")[0], read_table(two.root, "small")[0], check_exact=True)


def test_chunks_merge_to_the_run_over_all_blocks(small, tmp_path):
    store = Store(tmp_path, 3)
    run(small, store)
    cell = small.cells(True)[1]
    problem = gt.gallery.problem("tabular")
    whole = gt.simulate_gradients(
        problem.bandit,
        problem.policy,
        problem.theta,
        ("oracle", "rloo"),
        batch_size=4,
        group_size=4,
        replications=1 << 15,
        rng=cell_seed("small", cell, 3),
    )
    row = read_table(tmp_path, "small")[0].iloc[1]
    assert row["n"] == whole.replications
    assert row["mse"] == pytest.approx(whole.mse[1], rel=1e-13)


@pytest.mark.parametrize("damage", ["missing", "truncated", "edited", "other seed", "not json"])
def test_only_a_damaged_chunk_is_computed_again(small, tmp_path, damage):
    store = Store(tmp_path, 3)
    run(small, store)
    before = read_table(tmp_path, "small")[0]
    victim = chunk_files(tmp_path)[2]
    record = json.loads(victim.read_text())
    if damage == "missing":
        victim.unlink()
    elif damage == "truncated":
        victim.write_text(victim.read_text()[:-40])
    elif damage == "edited":
        record["body"]["data"]["means"][0][0] += 1.0
        victim.write_text(json.dumps(record))
    elif damage == "other seed":
        record["body"]["seed"] = 4
        victim.write_text(json.dumps(record))
    else:
        victim.write_bytes(b"\xff\x00")
    assert run(small, store) == 1
    pd.testing.assert_frame_equal(read_table(tmp_path, "small")[0], before, check_exact=True)


def test_a_killed_run_keeps_its_chunks_and_goes_on(small, tmp_path, monkeypatch):
    store = Store(tmp_path, 3)
    written = []
    write = Store.write_chunk

    def stop_after_three(self, *arguments):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(arguments)
        write(self, *arguments)

    monkeypatch.setattr(Store, "write_chunk", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        run(small, store)
    monkeypatch.undo()
    monkeypatch.setitem(STUDIES, "small", small)
    monkeypatch.setattr("simulations.gradient_cells.QUICK_RESPONSES", 1 << 19)
    monkeypatch.setattr("simulations.gradient_cells.CHUNK_RESPONSES", 1 << 17)
    assert len(chunk_files(tmp_path)) == 3
    assert run(small, store) == 5


def test_a_chunk_records_seed_settings_versions_and_run_time(small, tmp_path):
    run(small, Store(tmp_path, 3))
    body = json.loads(chunk_files(tmp_path)[0].read_text())["body"]
    assert body["seed"] == 3
    assert body["settings"]["problem"] in ("two-arms", "tabular")
    assert body["seconds"] > 0.0
    assert body["versions"]["numpy"] == np.__version__
    assert read_table(tmp_path, "small")[1]["seed"] == 3


def test_table_missing_or_damaged_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"no table .*python -m simulations run small"):
        read_table(tmp_path, "small")
    (tmp_path / "small.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(StoreError, match=r"damaged .*python -m simulations run small"):
        read_table(tmp_path, "small")


def test_results_that_cannot_be_written_are_refused_before_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--results must be a folder that can be written"):
        Store(tmp_path / "file", 0)


def test_an_edited_kernel_has_another_checksum():
    def first(batch, advantages):
        advantages[:, :] = 0.5 * batch.rewards

    def second(batch, advantages):
        advantages[:, :] = 0.6 * batch.rewards

    sums = []
    for function in (first, second):
        estimator = gt.estimator(f"checksum_{function.__name__}")(function)
        sums.append(kernel_checksum(estimator.name))
    assert sums[0] != sums[1]


def test_every_study_names_its_claims_sources_and_kinds():
    assert set(STUDIES) >= {"u_statistic", "error_law", "gradient_error", "baselines", "baseline_curve", "estimators"}
    for study in STUDIES.values():
        assert study.cells(True), study.name
        assert len({cell.key for cell in study.cells(False)}) == len(study.cells(False))


def exact_table(study, problems):
    rows = []
    for cell in study.STUDY.cells(True):
        if cell.settings["problem"] in problems:
            rows += study.rows(cell.settings, [study.compute(cell.settings, np.random.SeedSequence(1), 0)])
    return pd.DataFrame(rows)


def test_u1_u2_verdicts_on_a_small_problem():
    verdicts = judge(u_statistic.claims(exact_table(u_statistic, {"two-arms", "lm-instruct"})))
    assert verdicts["power"].all()
    expected = {"U1": "confirmed", "U1/own-mean": "confirmed", "U2/printed": "refuted", "U2/corrected": "confirmed"}
    for key, verdict in expected.items():
        assert set(verdicts.loc[verdicts["id"] == key, "verdict"]) == {verdict}


def test_verdicts_follow_the_evidence_not_a_list(monkeypatch):
    """With a leave-one-out estimator that is 1% off, what was confirmed must be refuted."""
    right = u_statistic.estimate
    monkeypatch.setattr(u_statistic, "estimate", lambda name, *data: right(name, *data) * (1.01 if name == "rloo" else 1.0))
    verdicts = judge(u_statistic.claims(exact_table(u_statistic, {"tabular"}))).set_index("id")
    assert verdicts.loc["U1", "verdict"] == "refuted"
    table = exact_table(error_law, {"tabular"})
    assert judge(error_law.claims(table)).set_index("id").loc["U4/corrected", "verdict"] == "confirmed"
    wrong = judge(error_law.claims(table.assign(mse=table["mse"] * 1.0001))).set_index("id")
    assert wrong.loc["U4/corrected", "verdict"] == "refuted"


def test_value_baseline_is_judged_by_assumption_2():
    rows = []
    for cell in baselines.cells(True):
        if cell.settings["problem"] in ("uniform", "mixed"):
            results = [simulate_chunk(cell.settings, cell_seed("baselines", cell, 0), c) for c in range(cell.chunks)]
            rows += baselines.rows(cell.settings, results)
    verdicts = judge(baselines.claims(pd.DataFrame(rows))).set_index(["id", "problem"])
    assert verdicts["power"].all()
    assert verdicts.loc[("U6/assumption", "uniform"), "verdict"] == "confirmed"
    assert verdicts.loc[("U6/printed", "uniform"), "verdict"] == "confirmed"
    assert verdicts.loc[("U6/assumption", "mixed"), "verdict"] == "refuted"
    assert verdicts.loc[("U6/printed", "mixed"), "verdict"] == "refuted"
