"""The README's and the planner's page on the shipped answers: what they show is what the command prints."""

import re

from pages import DOCS, run_blocks

import grpo_theory as gt
from grpo_theory.data import sampled_answers
from grpo_theory.plan.command import main

TOP = DOCS.parent
README, PAGE = ((TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/planner.md"))


def test_the_readmes_plan_is_what_the_command_prints(capsys, monkeypatch):
    monkeypatch.chdir(TOP)
    assert main(re.search(r"    grpo-theory (plan .*)\n", README)[1].split()) == 0
    printed = capsys.readouterr().out.splitlines()
    shown, _, _ = README[README.index("    RECOMMENDATION") :].partition("\n\nThen come")
    section = [line.removeprefix("    ") for line in shown.splitlines()]
    assert len(section) > 20
    assert section == printed[: len(section)]


def test_the_planners_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(TOP)
    names = run_blocks(PAGE, tmp_path)
    assert capsys.readouterr().out.startswith("RECOMMENDATION\n")
    answers = sampled_answers()
    wide = gt.Rollouts(answers.rewards[answers.index], answers.sketches[answers.index])
    full = gt.plan.advise(wide, 1024, max_group_size=64).scores
    short = names["advice"].scores
    ratios = [getattr(short.choice.law, name) / getattr(full.choice.law, name) for name in ("c1", "c2", "c3")]
    assert [f"{1.0 - ratio:.2f}" for ratio in (max(ratios), min(ratios))] == ["0.16", "0.30"]
    assert abs(ratios[2] / ratios[0] - 1.0) < 0.045
    assert f"{full.real_optimum:.1f}" == f"{short.real_optimum:.1f}" == "3.1"
