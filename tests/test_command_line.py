"""The command lines, as a user types them: exit status, one message, no traceback; figures and report from tables."""

import dataclasses
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from grpo_theory.data import arithmetic
from grpo_theory.harness.store import read_table
from paper_figures import __main__ as figures_command
from paper_figures.discovery import figures
from simulations import __main__ as command
from simulations.collection import studies

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "gradient.cells.QUICK_RESPONSES": 1 << 18,
    "gradient.error_law.GROUP_SIZES": (4, 8, 64),
    "gradient.gradient_error.GROUP_SIZES": (4, 6, 8, 32, 64),
    "gradient.estimators.GROUP_SIZES": (4, 64),
    "limit.gap_asymptotics.CROWDS": (2, 4, 8, 16),
    "limit.gap_asymptotics.STEPS": 1 << 12,
    "plan.plan_coverage.QUICK_REPLICATIONS": 25,
    "sequence.drift.QUICK_TREES": {2: 16, 4: 16},
    "sequence.drift.DRIFTS": (0.1, 0.4, 1.0),
    "limit.limit_law.QUICK_RUNS": 256,
    "limit.limit_law.CHUNK_RUNS": 256,
    "training.training_gap.QUICK_RUNS": 64,
    "training.training_gap.STEPS": 512,
    "training.tight_bound.QUICK_RUNS": 1024,
    "training.tight_bound.CHUNK_RUNS": 512,
    "training.group_size.GROUP_SIZES": (2, 8, 64),
    "training.group_size.QUICK_RUNS": 4,
    "training.group_size_schedule.QUICK_RUNS": 4,
    "coverage.coverage.QUICK_REPLICATIONS": 32,
}
"""What makes a quick run of every study quicker still."""


def few_questions():
    """Every tenth of the language model's questions."""
    whole = arithmetic()
    return dataclasses.replace(whole, answers=whole.answers[::10], hidden=whole.hidden[:, ::10])


def forget():
    """Empty the caches of the studies, which remember the few questions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("simulations.") and not name.startswith("grpo_theory.harness"):
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Run every study, quickly."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(f"simulations.{name}", value)
        patch.setattr("grpo_theory.problem.gallery.arithmetic", few_questions)
        try:
            status = command.main(["verify", "--quick", "--results", str(folder), "--seed", "5"])
        finally:
            forget()
    assert status == 0
    return folder


def test_studies_claim_what_they_declare(results):
    """Nothing undeclared, and nothing declared in vain; some worlds and budgets are those of a full run only."""
    in_full = {"U9/budgets", "U9/one curve", "P1/batch", "P1/sharpening", "P1/coverage", "P2", "P8/law"}
    in_full |= {"N12/II, learned features"}
    for name, study in studies().items():
        claimed = {claim.statement.id for claim in study.claims(read_table(results, name)[0])}
        assert claimed | in_full == set(study.decides) | in_full, name


def test_what_is_not_a_number_is_no_evidence(results):
    """An estimate that is NaN is an error; of a check its sides are refused before there is a table."""
    for name in ("advice_regret", "planned_run", "planned_graded_run"):
        with pytest.raises(ValueError, match=r"finite|numbers"):
            studies()[name].claims(read_table(results, name)[0].assign(estimate=np.nan))


def test_figures_and_report_are_drawn_from_the_tables(results, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # one process to start and not one for each processor
    assert figures_command.main(["--results", str(results), "--out", str(tmp_path)]) == 0
    for name in figures():
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert len(page.encode()) < 5e6
    assert page.count("data:image/svg+xml;charset=utf-8,") == len(figures())
    assert not re.search(r'src="(?!data:)|<link|@import|url\((?!%23)', page), "nothing is fetched"
    assert "kl-linear (rloo)" in page
    for out in ("a", "b"):
        again = ["--results", str(results), "--out", str(tmp_path / out), "--only", "oracle_ratio"]
        assert figures_command.main(again) == 0
    first, second = ((tmp_path / out / "figures" / "oracle_ratio.svg").read_bytes() for out in ("a", "b"))
    assert first == second
    twin = (tmp_path / "report.md").read_text()
    for claim in pd.read_csv(results / "claims.csv")["id"].unique():
        assert claim in page
        assert claim in twin


def test_a_users_mistake_is_one_line_and_status_2(capsys):
    for arguments, message in (
        (["run", "no_such_study"], "STUDY must be one of coverage, "),
        (["run", "--results", "/dev/null/x"], "--results must be a folder that can be written"),
        (["run", "--kernels", "/no/such/file.py"], "--kernels must be a Python file that registers estimators"),
    ):
        assert command.main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_figures_without_tables_say_what_to_run(tmp_path, capsys):
    assert figures_command.main(["--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert f"python -m simulations verify --results {tmp_path}`" in capsys.readouterr().err
    assert figures_command.main(["--only", "nothing"]) == 2
    assert "--only must be one of" in capsys.readouterr().err
