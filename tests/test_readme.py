"""The README's and the contributing page's Python runs as printed, what they say in numbers is so, and verdicts are digested."""

import ast
import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.data import sampled_answers
from grpo_theory.plan.command import main
from simulations.claims import CATALOGUE
from simulations.claims.digest import COLUMNS, digest
from simulations.harness.verdicts import Verdicts

TOP = Path(__file__).resolve().parents[1]
README, CONTRIBUTING = ((TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/contributing.md"))
LITERAL = r"(?:\d+(?:\.\d+)?|True|False)"
SAID = re.compile(rf"^(?P<code>[^#\n]+?) +# (?P<said>{LITERAL}(?:, {LITERAL})*)(?::|$)", flags=re.MULTILINE)
"""An expression, and its values in a comment behind it."""


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run_blocks(text, folder):
    """Run the blocks of a page one after another, each from a file of its own; return the names they leave."""
    names = {}
    for number, block in enumerate(blocks(text)):
        path = folder / f"block_{number}.py"
        path.write_text(block)
        exec(compile(block, path, "exec"), names)
        check_what_is_said(block, names)
    return names


def check_what_is_said(block, names):
    for line in SAID.finditer(block):
        found = eval(compile(ast.parse(line["code"].strip(), mode="eval"), "said", "eval"), names)
        for value, said in zip(np.atleast_1d(np.array(found, dtype=object)), line["said"].split(", "), strict=False):
            assert said == (str(value) if said in ("True", "False") else f"{value:.{len(said.partition('.')[2])}f}"), line["code"]


def test_every_block_of_the_readme_runs(registry, tmp_path):
    names = run_blocks(README, tmp_path)
    assert len(blocks(README)) == 7
    assert len(SAID.findall("".join(blocks(README)))) >= 1
    assert 0.5 < names["tried"].coverage < 0.7
    assert not names["tried"].consistent()
    assert names["tree"].n_responses == 15
    np.testing.assert_allclose(sorted(names["worst"].parameters[:2]), [0.0, 1.0], atol=1e-3)
    assert abs(names["worst"].parameters[2]) < 0.1
    constants = gt.group_size_law(gt.Problem(names["bandit"], gt.TabularSoftmax(2, 3)), np.zeros(6))
    assert constants.optimum == pytest.approx(1.0 + np.sqrt(constants.c3 / constants.c1), rel=1e-12)
    sizes = {"batch_size": 2, "group_size": 4}
    problem = gt.gallery.problem("tabular")
    run = gt.simulate_gradients(problem, problem.theta, "shrunk", **sizes, replications=20_000, rng=0)
    exact = gt.gradient_mse(problem, problem.theta, "shrunk", **sizes)
    assert abs(run.mse[0] - exact) < 4.9 * run.mse_standard_error[0]


def test_every_block_of_the_contributing_page_runs(registry, tmp_path):
    names = run_blocks(CONTRIBUTING, tmp_path)
    assert len(blocks(CONTRIBUTING)) == 4
    assert {"halfway_group", "halfway_clipped"} <= set(registry)
    shared, rng = names["problem"], np.random.default_rng(0)
    theta = rng.normal(size=3)
    twin = gt.Problem(shared.bandit, gt.LinearSoftmax(np.tile(np.eye(3), (2, 1, 1))))
    sizes = {"batch_size": 2, "group_size": 4}
    errors = [gt.gradient_mse(problem, theta, "halfway_group", **sizes) for problem in (shared, twin)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-12)
    tried = gt.coverage(names["hoeffding"], shared, names["truth"], experiment=gt.Pilot(16, 8), replications=1000, rng=0)
    assert tried.coverage >= 0.95


def test_a_wrong_number_in_a_comment_is_found():
    check_what_is_said("x, y, z  # 0.25, 3, True: a remark\n", {"x": 0.251, "y": 3, "z": True})
    for wrong in ("x  # 0.26", "x, y  # 0.25, 4: a remark", "z  # False"):
        with pytest.raises(AssertionError):
            check_what_is_said(wrong, {"x": 0.251, "y": 3, "z": True})
    check_what_is_said("x  # 1 + sqrt(c3/c1)\ny  # (M,)\n", {})


@pytest.mark.parametrize("mark", ["@gt.estimator", "gt.coverage", "gt.worst_case"])
def test_what_is_said_to_take_ten_lines_does(mark):
    shown = next(block for block in blocks(README) if mark in block)
    assert len([line for line in shown.splitlines() if line.strip()]) <= 10


@pytest.fixture(scope="module")
def writer():
    """The script that brings verdicts into the repository."""
    spec = importlib.util.spec_from_file_location("write_verdicts", TOP / "tools" / "write_verdicts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readmes_table_is_the_digest_of_the_verdicts(writer):
    verdicts = pd.read_csv(TOP / "docs" / "verdicts.csv", keep_default_na=False)
    assert list(verdicts.columns) == COLUMNS
    assert set(verdicts["id"]) <= set(CATALOGUE)
    assert writer.with_table(README, digest(verdicts)) == README


def test_verdicts_of_a_quick_run_or_of_some_studies_stay_out(writer, monkeypatch):
    origin = (pd.DataFrame(), 0, False, {}, ("lemma_14",))
    for found, message in (
        (Verdicts(*origin), "lack coverage, "),
        (Verdicts(*origin)._replace(quick=True), "are of a quick run"),
    ):
        monkeypatch.setattr(writer, "read_verdicts", lambda folder, found=found: found)
        with pytest.raises(SystemExit, match=message):
            writer.main(Path("results"))


def test_another_verdict_makes_another_table(writer):
    rows = [
        ("U1", "linear", "confirmed", "refuted"),
        ("U1", "mixed", "confirmed", "refuted"),
        ("U1/own-mean", "mixed", "refuted", "refuted"),
        ("U2/printed", "mixed", "refuted", "refuted"),
        ("U18", "mixed", "confirmed", "inconclusive"),
        ("estimator", "mixed", "confirmed", "refuted"),
    ]
    table = digest(pd.DataFrame(rows, columns=COLUMNS))
    lines = {line.split(" | ")[0]: line for line in table.splitlines() if line.startswith("| U")}
    assert set(lines) == {"| U1", "| U2"}, "a verdict whose control survived, or of the package itself, is no row"
    assert lines["| U1"].endswith("| confirmed (2); own-mean: **refuted** (1) |")
    assert lines["| U2"].endswith("| printed: **refuted** (1) |")
    unmet = ", ".join(statement.id for statement in CATALOGUE.values() if statement.open)
    assert unmet
    assert f"Not decided yet: {unmet} (" in table
    page = f"before\n{writer.BEGIN}\nold\n{writer.END}\nafter\n"
    assert writer.with_table(page, table) == f"before\n{writer.BEGIN}\n\n{table}\n{writer.END}\nafter\n"


def test_the_readmes_plan_is_what_the_command_prints(capsys):
    asked = re.search(r"    grpo-theory (plan .*)\n", README)[1].split()
    assert main([str(TOP / part) if part.startswith("examples/") else part for part in asked]) == 0
    printed = capsys.readouterr().out.splitlines()
    shown, _, _ = README[README.index("    RECOMMENDATION") :].partition("\n\nThen come")
    section = [line.removeprefix("    ") for line in shown.splitlines()]
    assert len(section) > 20
    assert section == printed[: len(section)]


def test_the_planners_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(TOP)
    page = (TOP / "docs" / "planner.md").read_text(encoding="utf-8")
    names = run_blocks(page, tmp_path)
    assert capsys.readouterr().out.startswith("RECOMMENDATION\n")
    sketches = sampled_answers()
    wide = gt.Rollouts(sketches.rewards[sketches.index], sketches.sketches[sketches.index])
    full = gt.plan.advise(wide, 1024, max_group_size=64).scores
    short = names["advice"].scores
    ratios = [getattr(short.choice.law, name) / getattr(full.choice.law, name) for name in ("c1", "c2", "c3")]
    assert [f"{1.0 - ratio:.2f}" for ratio in (max(ratios), min(ratios))] == ["0.16", "0.30"]
    assert abs(ratios[2] / ratios[0] - 1.0) < 0.045
    assert f"{full.real_optimum:.1f}" == f"{short.real_optimum:.1f}" == "3.1"
