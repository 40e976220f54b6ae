"""Python on pages runs as printed, and what the README says in numbers is so."""

import re

import numpy as np
import pandas as pd
import pytest
from pages import DOCS, SAID, blocks, check_what_is_said, run_blocks

import grpo_theory as gt
from grpo_theory.page.digest import COLUMNS
from simulations.collection import catalogue

TOP = DOCS.parent
README, CONTRIBUTING = ((TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/contributing.md"))
PAGES = ["start", "sequences", "training", "coverage", "estimators", "inequalities", "contributing", "own_study"]
PAGES += ["long_responses", "runs_allocation", "runs_staleness", "twin"]
"""Pages of the documentation with programs in them, besides the findings; README.md has a test of its own."""


def read(page):
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def test_the_readmes_program_runs_in_six_lines_and_shows_what_it_says(registry, tmp_path):
    (block,) = blocks(README)
    assert len([line for line in block.splitlines() if line.strip()]) == 6
    assert len(SAID.findall(block)) == 3
    names = run_blocks(README, tmp_path)
    assert block in read("start")
    law = gt.gradient_law(names["problem"], names["problem"].theta, "grpo", **names["sizes"])
    longer = np.linalg.norm(law.mean) / np.linalg.norm(law.true_gradient)
    assert all(f"another gradient, here {longer:.1f} times as long" in " ".join(page.split()) for page in (README, read("start")))


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_the_documentation_runs(page, registry, tmp_path):
    names = run_blocks(read(page), tmp_path)
    assert len(blocks(read(page))) >= 1
    check = {"estimators": check_estimators, "contributing": check_contributing, "long_responses": check_long_responses}
    check.get(page, lambda names: None)(names)


def check_long_responses(names):
    assert f"TRL's default: {names['efficiency']:.3f}, exact" in read("long_responses")
    assert f"for rloo: {names['best']:.1f}" in read("long_responses")


def check_estimators(names):
    assert len(SAID.findall(read("estimators"))) == 4
    sizes = {"batch_size": 2, "group_size": 4}
    problem = gt.gallery.problem("tabular")
    run = gt.simulate_gradients(problem, problem.theta, "shrunk", **sizes, replications=20_000, rng=0)
    exact = gt.gradient_mse(problem, problem.theta, "shrunk", **sizes)
    assert abs(run.mse[0] - exact) < 4.9 * run.mse_standard_error[0]


def check_contributing(names):
    assert len(blocks(CONTRIBUTING)) == 3
    assert {"halfway_group", "halfway_clipped"} <= set(gt.estimators())
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
    check_what_is_said("x  # -0.25\n", {"x": -0.251})
    check_what_is_said("print(x)  # 0.25\n", {"x": 0.251})
    for wrong in ("x  # 0.26", "print(x)  # 0.26", "x, y  # 0.25, 4: a remark", "z  # False"):
        with pytest.raises(AssertionError):
            check_what_is_said(wrong, {"x": 0.251, "y": 3, "z": True})
    check_what_is_said("x  # 1 + sqrt(c3/c1)\ny  # (M,)\n", {})


def trainers():
    """Return the rows of the table of trainers: names, whether unbiased, of what, and their efficiency."""
    rows = [
        line.strip("|").split("|")
        for line in re.search(r"<!-- trainers -->\n(.*?)<!-- end", read("trainers"), re.DOTALL)[1].splitlines()[2:]
    ]
    return [(re.findall(r"`(\w+)`", row[1]), *(cell.strip() for cell in row[2:5])) for row in rows]


@pytest.mark.parametrize(("names", "unbiased", "what", "efficiency"), trainers(), ids=str)
def test_the_table_of_trainers_is_true(names, unbiased, what, efficiency):
    """A mean update is the gradient, along it, or not along it; efficiencies are exact, or simulated where groups are coupled."""
    problem, head = gt.gallery.problem("mixed"), gt.gallery.problem("lm-few-shot")
    gradient = gt.moments(problem, problem.theta).gradient
    assert names
    for name in names:
        if gt.estimators()[name].couples_groups:
            sizes = {"batch_size": 32, "group_size": 8, "replications": 40_000}
            run = gt.simulate_gradients(head, head.theta, name, **sizes, rng=3)
            assert abs(run.efficiency[0] - float(efficiency)) < 0.005 + 4.9 * run.efficiency_standard_error[0], name
        else:
            assert f"{gt.efficiency(head, head.theta, name, batch_size=32, group_size=8):.2f}" == efficiency, name
        if "groups are coupled" in what or name == "james_stein":
            continue
        mean = gt.gradient_mean(problem, problem.theta, name, batch_size=1, group_size=8)
        cosine = mean @ gradient / np.linalg.norm(mean) / np.linalg.norm(gradient)
        if what.startswith("mean reward"):
            assert cosine == pytest.approx(1.0, abs=1e-12), name
            assert np.allclose(mean, gradient, rtol=1e-10) == (unbiased == "yes"), name
            factor = (mean @ gradient) / (gradient @ gradient)
            assert "shorter by 1 - 1/G" not in what or factor == pytest.approx(1.0 - 1.0 / 8.0, rel=1e-10), name
        else:
            assert cosine < 0.999, name


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert len(links) >= 15
    assert [link for link in links if not (TOP / link).exists()] == []


def test_the_verdicts_that_are_kept_are_of_the_catalogue():
    verdicts = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
    assert list(verdicts.columns) == COLUMNS
    assert set(verdicts["id"]) <= set(catalogue())
