"""The commands that list estimators and problems, short reprs, tables to be printed, and what a misspelt name suggests."""

import pytest

import grpo_theory as gt
from grpo_theory.page.command import main

PROBLEM = gt.gallery.problem("two-arms")


def test_every_estimator_is_listed_with_its_formula(capsys):
    assert main(["estimators"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for name, one in gt.estimators().items():
        assert f"{name} {' '.join(one.description.split())}" in said


def test_a_word_chooses_estimators(capsys):
    assert main(["estimators", "OPENRLHF"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[0] != " "] == [
        name for name in gt.estimators() if name.startswith("openrlhf")
    ]
    assert main(["estimators", "no such word"]) == 1
    assert f"none of {len(gt.estimators())} has 'no such word'" in capsys.readouterr().out


def test_every_problem_is_described(capsys):
    table = gt.gallery.describe()
    assert tuple(table.index) == gt.gallery.names()
    assert table["about"].str.endswith(".").all()
    assert table["responses"].isna().sum() == len(gt.gallery.names("chain"))
    row, made = table.loc["graded"], gt.gallery.problem("graded")
    assert (row["prompts"], row["responses"], row["parameters"]) == (8, 4, 6)
    assert row["reward"] == pytest.approx(gt.objective(made, made.theta), rel=1e-12)
    assert main(["problems", "two-arms"]) == 0
    assert "1 prompt, 2 responses each, 2 parameters, reward 0.633" in " ".join(capsys.readouterr().out.split())


def test_summaries_have_the_numbers():
    sizes = {"batch_size": 4, "group_size": 4}
    law = gt.gradient_law(PROBLEM, PROBLEM.theta, "dr_grpo", **sizes)
    lines = dict(line.rsplit(maxsplit=1) for line in law.summary().splitlines()[2:-1])
    assert float(lines["mean squared error"]) == pytest.approx(law.mse, rel=1e-3)
    assert float(lines["of it squared bias"]) == pytest.approx(law.bias @ law.bias, rel=1e-3)
    assert float(lines["efficiency"]) == pytest.approx(law.efficiency, rel=1e-3)
    run = gt.simulate_gradients(PROBLEM, PROBLEM.theta, ["rloo", "grpo"], **sizes, replications=100, rng=0)
    assert f"{run.mse[1]:.4g}" in run.summary().splitlines()[-1].split()
