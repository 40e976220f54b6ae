"""The README's and the planner's page on the shipped answers: what they show is what the command prints."""

import json
import re

import numpy as np
from pages import DOCS, run_blocks

import grpo_theory as gt
from grpo_theory.data import sampled_answers
from grpo_theory.page.command import main
from grpo_theory.plan.group_size import real_optimum

TOP = DOCS.parent
README, PAGE = ((TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/planner.md"))


def test_the_readmes_plan_is_what_the_command_prints(capsys, monkeypatch):
    monkeypatch.chdir(TOP)
    assert main(re.search(r"    grpo-theory (plan .*)\n", README)[1].split()) == 0
    printed = capsys.readouterr().out.splitlines()
    shown, _, _ = README[README.index("    RECOMMENDATION") :].partition("\n\nName your")
    section = [line.removeprefix("    ") for line in shown.splitlines()]
    first = printed.index("RECOMMENDATION")
    assert printed[0] == "READ AS"
    assert len(section) >= 6
    assert section[-1].endswith("."), "it ends with a sentence"
    assert section == printed[first : first + len(section)]


def test_the_planners_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(TOP)
    names = run_blocks(PAGE, tmp_path)
    assert capsys.readouterr().out.startswith("READ AS\n")
    answers, short = sampled_answers(), names["advice"].scores
    every = gt.Rollouts(answers.rewards[answers.index], answers.sketches[answers.index])
    asked = np.array([answers.prompts.index(prompt) for prompt in dict.fromkeys(row["prompt"] for row in example())])
    same = gt.Rollouts(every.rewards[asked], every.scores[asked])
    full, on_all = (gt.plan.advise(rollouts, gt.plan.Limits(budget=1024, max_group_size=64)).scores for rollouts in (same, every))
    ratios = [
        getattr(short.leave_one_out.constants.law, name) / getattr(full.leave_one_out.constants.law, name)
        for name in ("c1", "c2", "c3")
    ]
    assert [round(100.0 * (1.0 - ratio)) for ratio in ratios] == [22, 19, 19]
    assert round(100.0 * (ratios[2] / ratios[0] - 1.0)) == 4
    limits = gt.plan.Limits(budget=1024, max_group_size=64)
    optima = [real_optimum(one.leave_one_out, limits) for one in (short, full, on_all)]
    assert [f"{one:.2f}" for one in optima] == ["3.10", "3.05", "3.14"]
    assert {(one.recommended.pair.name, one.choice.group_size) for one in (short, full, on_all)} == {("leave-one-out mean", 3)}
    assert (len(asked), len(answers.prompts)) == (66, 129)
    ratios = [gt.plan.signal_to_noise(rollouts, 341, 3) for rollouts in (names["log"].rollouts, same)]
    assert [f"{float(one.estimate):.2f}" for one in ratios] == ["7.76", "4.60"]
    assert short.signal.covers(float(full.signal.estimate))


def example():
    with (TOP / "examples" / "rollouts.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
