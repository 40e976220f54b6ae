"""Python on pages and in findings runs as printed, and what the README and the findings say in numbers is so."""

import re

import numpy as np
import pandas as pd
import pytest
from pages import DOCS, SAID, blocks, check_what_is_said, run_blocks

import grpo_theory as gt
from grpo_theory.page.command import main
from grpo_theory.page.digest import COLUMNS, evidence
from simulations.collection import catalogue
from tools.write_evidence import LINE

TOP = DOCS.parent
README = (TOP / "README.md").read_text(encoding="utf-8")
PAGES = ["index", "coverage", "objectives", "contributing", "own_study", "long_responses", "runs", "twin"]
"""Pages of the documentation with programs in them, besides the findings; README.md has a test of its own."""
NOTES = sorted(path for path in (DOCS / "findings").glob("*.md") if path.name != "index.md")
VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)


def read(page):
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def test_the_readmes_program_runs_in_six_lines_and_shows_what_it_says(registry, tmp_path):
    (block,) = blocks(README)
    assert len([line for line in block.splitlines() if line.strip()]) == 6
    assert len(SAID.findall(block)) == 3
    names = run_blocks(README, tmp_path)
    law = gt.gradient_law(names["problem"], names["problem"].theta, "grpo", **names["sizes"])
    longer = np.linalg.norm(law.mean) / np.linalg.norm(law.true_gradient)
    assert f"another gradient, here {longer:.1f} times as long" in " ".join(README.split())


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_the_documentation_runs(page, registry, tmp_path):
    names = run_blocks(read(page), tmp_path)
    assert len(blocks(read(page))) >= 1
    if page == "long_responses":
        assert f"TRL's default: {names['efficiency']:.3f}, exact" in read(page)
        assert f"for rloo: {names['best']:.1f}" in read(page)
    if page == "contributing":
        asked = {"experiment": gt.Pilot(16, 8), "replications": 1000, "rng": 0}
        assert gt.coverage(names["hoeffding"], names["problem"], names["truth"], **asked).coverage >= 0.95


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
    lines = re.search(r"<!-- trainers -->\n(.*?)<!-- end", read("trainers"), re.DOTALL)[1].splitlines()[2:]
    rows = (line.strip("|").split("|") for line in lines)
    return [(re.findall(r"`(\w+)`", row[1]), *(cell.strip() for cell in row[2:5])) for row in rows]


@pytest.mark.parametrize(("names", "unbiased", "what", "efficiency"), trainers(), ids=str)
def test_the_table_of_trainers_is_true(names, unbiased, what, efficiency):
    """A mean update is the gradient, along it, or not along it; efficiencies are exact, or simulated where groups are coupled."""
    problem, head = gt.gallery.problem("mixed"), gt.gallery.problem("lm-few-shot")
    gradient = gt.moments(problem, problem.theta).gradient
    assert names
    for name in names:
        if gt.estimators()[name].couples_groups:
            sizes = {"batch_size": 32, "group_size": 8, "replications": 10_000}
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


def test_the_readme_says_how_long_a_run_takes_as_make_does():
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    quick, full = re.search(r"\$\(if \$\(QUICK\),(\d+),(\d+)\) minutes", makefile).groups()
    assert f"about {full} minutes on two idle cores" in README
    assert f"`QUICK=1` takes {quick} minutes" in README


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert len(links) >= 15
    assert [link for link in links if not (TOP / link).exists()] == []


def test_the_verdicts_that_are_kept_have_the_columns_of_the_digest():
    assert list(VERDICTS.columns) == COLUMNS


def test_the_readmes_plan_is_what_the_command_prints(capsys, monkeypatch):
    monkeypatch.chdir(TOP)
    assert main(re.search(r"    grpo-theory (plan .*)\n", README)[1].split()) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = README.partition("of SmolLM2:\n\n")[2].partition("\n\nName your")[0]
    section = [line.removeprefix("    ") for line in shown.splitlines()]
    assert len(section) >= 5
    assert section == printed[: len(section)]


def test_the_planners_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(TOP)
    names = run_blocks(read("planner"), tmp_path)
    assert capsys.readouterr().out.startswith("Keep your group size 8 with trl_grpo for a step")
    assert names["gt"].page.answer(names["advice"]).group_size == 8


def claims(path):
    """Return the claims of a note, and the line of their verdicts."""
    (line,) = LINE.findall(path.read_text(encoding="utf-8"))
    return re.findall("`(.+?)`", line), line


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_a_notes_program_prints_what_it_says_and_its_verdicts_are_those_of_the_run(path, registry, tmp_path):
    page = path.read_text(encoding="utf-8")
    (block,) = blocks(page)
    assert SAID.search(block), "a program shows a number"
    assert all(found["code"].startswith("print(") for found in SAID.finditer(block))
    run_blocks(page, tmp_path)
    names, line = claims(path)
    assert line == evidence(VERDICTS, names)


def test_the_front_says_what_sizes_lose_in_long_runs():
    lost = pd.read_csv(DOCS / "long_runs.csv").query("kind == 'all kinds'").set_index(["estimator", "group_size"])["estimate"]
    assert "groups of 8 lost 0.2 to 0.6 points to the best size. Those of 64 lost four to six" in README
    assert (100.0 * lost.xs(8, level="group_size")).round(1).tolist() == [0.2, 0.6]
    assert (100.0 * lost.xs(64, level="group_size")).round().tolist() == [6.0, 4.0]


def test_the_front_says_what_the_clip_costs():
    lost = 100.0 * pd.read_csv(DOCS / "long_clips.csv").set_index(["optimiser", "clip", "budget"])["estimate"].unstack()
    assert "a clip at 0.2 cost plain ascent 19 points early and 3 late" in README
    assert lost.loc["SGD", "0.2"].round().tolist()[::2] == [19.0, 3.0]
    assert "Adam 4 and 0." in README
    assert lost.loc["Adam", "0.2"].round().tolist()[::2] == [4.0, 0.0]


def test_the_evidence_on_pages_is_what_the_verdicts_have():
    found = [line for path in DOCS.glob("*.md") for line in LINE.findall(path.read_text(encoding="utf-8"))]
    assert found
    assert all(line == evidence(VERDICTS, re.findall("`(.+?)`", line)) for line in found)


NOT_REFUTED = ("curvature", "whole_runs")
"""Constants that are loose, and two statements that hold in different worlds."""


def test_every_note_but_two_refutes_something_as_printed():
    """And no note shows a correction that was not confirmed."""
    powerful = VERDICTS[VERDICTS["control"] == "refuted"].groupby("id")["verdict"].agg(set)
    for path in NOTES:
        refuted = [catalogue()[name].whose for name in claims(path)[0] if "refuted" in powerful[name]]
        assert ("paper" in refuted) == (path.stem not in NOT_REFUTED), path.stem
        assert "correction" not in refuted, path.stem


def test_another_verdict_makes_another_line():
    rows = {"problem": ["easy", "hard", "weak"], "verdict": ["refuted", "refuted", "confirmed"]}
    table = pd.DataFrame(rows | {"id": "N6/printed", "control": ["refuted", "refuted", "inconclusive"]})
    assert evidence(table, ["N6/printed"]) == "**Verdicts.** `N6/printed` **refuted** (2)."
