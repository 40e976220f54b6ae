"""The command lines, as a user types them: exit status, one message, no traceback; figures and report from tables."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from grpo_theory.harness.store import read_table
from paper_figures import __main__ as figures_command
from paper_figures.discovery import figures
from simulations import __main__ as command
from simulations.collection import studies

ROOT = Path(__file__).resolve().parents[1]
RESULTS, REPORT = ROOT / "results-quick", ROOT / "report-quick"
OPPOSITE = {"confirmed": {"refuted", "not reproduced here"}, "refuted": {"confirmed"}, "reproduced here": {"not reproduced here"}}
OPPOSITE["not reproduced here"] = {"confirmed", "reproduced here"}


@pytest.fixture(scope="module")
def results():
    """Return the results of the quick reproduction, where it was made in this checkout, as the gate does before its tests."""
    if not (RESULTS / "claims.csv").exists() or not (REPORT / "report.html").exists():
        pytest.skip("make reproduce QUICK=1 makes the results and the report")
    return RESULTS


def test_studies_claim_what_they_declare(results):
    """Nothing undeclared, and nothing declared in vain; some worlds and budgets are those of a full run only."""
    in_full = {"U9/budgets", "U9/one curve", "P1/batch", "P1/sharpening", "P1/coverage", "P2", "P8/law"}
    in_full |= {"N12/II, learned features"}
    for name, study in studies().items():
        claimed = {claim.statement.id for claim in study.claims(read_table(results, name)[0])}
        assert claimed | in_full == set(study.decides) | in_full, name


def test_a_quick_run_never_says_the_opposite_of_the_full_one(results):
    """It may be unsure; what is exact is decided as in the full run, with a control that is refuted where it is there."""
    full = pd.read_csv(ROOT / "docs" / "verdicts.csv", keep_default_na=False).set_index(["id", "problem"])
    found = pd.read_csv(results / "claims.csv", keep_default_na=False)
    full = full[["verdict", "control"]].add_suffix(" of the full run")
    rows = found.join(full, on=["id", "problem"], how="inner")
    assert rows["id"].nunique() > 500
    rows = rows[(rows["id"] != "T15/cost") | (rows["problem"] != "shared features, KL")]  # one draw here, the worst of many there
    pairs = zip(rows["verdict"], rows["verdict of the full run"], strict=True)
    opposite = rows[[there in OPPOSITE.get(here, ()) for here, there in pairs]]
    assert opposite.empty, opposite[["id", "problem", "estimate", "verdict", "verdict of the full run"]]
    exact = rows[(rows["standard_error"] == 0.0) & rows["verdict"].isin(OPPOSITE)]
    assert (exact["control"] == exact["control of the full run"]).all()


def test_what_is_not_a_number_is_no_evidence(results):
    """An estimate that is NaN is an error; of a check its sides are refused before there is a table."""
    with pytest.raises(ValueError, match=r"finite|numbers"):
        studies()["advice_regret"].claims(read_table(results, "advice_regret")[0].assign(estimate=np.nan))


def test_figures_and_report_are_drawn_from_the_tables(results, tmp_path):
    page, twin = ((REPORT / f"report.{kind}").read_text() for kind in ("html", "md"))
    for name in figures():
        assert (REPORT / "figures" / f"{name}.png").stat().st_size > 10_000
    assert len(page.encode()) < 5e6
    assert page.count("data:image/svg+xml;charset=utf-8,") == len(figures())
    assert not re.search(r'src="(?!data:)|<link|@import|url\((?!%23)', page), "nothing is fetched"
    assert "kl-linear (rloo)" in page
    for out in ("a", "b"):
        again = ["--results", str(results), "--out", str(tmp_path / out), "--only", "oracle_ratio"]
        assert figures_command.main(again) == 0
    first, second = ((tmp_path / out / "figures" / "oracle_ratio.svg").read_bytes() for out in ("a", "b"))
    assert first == second
    for claim in pd.read_csv(results / "claims.csv")["id"].unique():
        assert claim in page
        assert claim in twin


def test_a_users_mistake_is_one_line_and_status_2(one_line):
    for arguments, message in (
        (["run", "no_such_study"], "STUDY must be one of coverage, "),
        (["run", "--results", "/dev/null/x"], "--results must be a folder that can be written"),
        (["run", "--kernels", "/no/such/file.py"], "--kernels must be a Python file that registers estimators"),
    ):
        assert message in one_line(command.main, *arguments)


def test_figures_without_tables_say_what_to_run(tmp_path, one_line):
    error = one_line(figures_command.main, "--results", tmp_path, "--out", tmp_path / "out")
    assert f"python -m simulations verify --results {tmp_path}`" in error
    assert "--only must be one of" in one_line(figures_command.main, "--only", "nothing")
