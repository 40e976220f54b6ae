"""The README's and the planner's page on the shipped answers: what they show is what the command prints."""

import re

from pages import DOCS, run_blocks

from grpo_theory.page.command import main

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
    assert names["advice"].scores.recommended.pair.name == "leave-one-out mean"
