"""The installed command: what it prints and writes, what it refuses, and that it is quick to start."""

import configparser
import json
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tables import answer, rows, write

import grpo_theory as gt
from grpo_theory.page.advice import text
from grpo_theory.page.advice.comparisons import with_baseline
from grpo_theory.page.command import SUBCOMMANDS, main, parser

KEYS = {
    *(
        "format",
        "limits",
        "level",
        "tolerance",
        "estimator",
        "baseline",
        "recommendation",
        "confidence_set",
        "current",
        "group_sizes",
    ),
    *(
        "constants",
        "signal_to_noise",
        "baselines",
        "rivals",
        "by_efficiency",
        "scores",
        "learning_rate",
        "uniform_groups",
        "rewards",
        "evaluations",
    ),
    *("success_rates", "prompt_weights", "no_group_size", "run", "would_change", "assumptions", "notes"),
}
"""The documented keys of the JSON (docs/planner.md)."""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A log with sketches."""
    return write(tmp_path_factory.mktemp("plan") / "rollouts.jsonl", rows())


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A log of rewards alone."""
    kept = ("prompt_id", "completion", "reward")
    return write(tmp_path_factory.mktemp("plan") / "bare.jsonl", [{name: row[name] for name in kept} for row in rows()])


def told(capsys, *arguments):
    """Run the command; return its status and what it printed."""
    status = main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def finite(value):
    """Whether a JSON value holds finite numbers and None alone."""
    if isinstance(value, dict):
        return all(finite(part) for part in value.values())
    if isinstance(value, list):
        return all(finite(part) for part in value)
    return value is None or isinstance(value, str | bool | int) or np.isfinite(value)


def test_the_answer_comes_first_and_is_that_of_the_library(capsys, table):
    status, out, err = told(capsys, "plan", table, "--budget", 1024, "--group-size", 16)
    assert (status, err) == (0, "")
    log = gt.read_rollouts(table)
    advice = gt.plan.advise(log, 1024, group_size=16)
    assert out == gt.page.to_text(advice)
    choice = advice.scores.choice
    first = answer(out).splitlines()[:3]
    assert first[0] == "RECOMMENDATION"
    assert first[1].startswith("  Use ")
    pair = advice.scores.recommended.pair
    use = f"Use {with_baseline(pair)} and groups of {choice.group_size}: {choice.batch_size} prompts with"
    assert use in " ".join(out.split())
    for heading in (
        "WHAT IT RESTS ON",
        "HOW SURE",
        "GROUP SIZES",
        "WHAT WOULD CHANGE THIS",
        "ASSUMED, AND NOT CHECKED",
        "WHAT WAS READ",
    ):
        assert f"\n{heading}\n" in out
    assert "your group size 16 has" in " ".join(out.split())
    limits = gt.plan.Limits(budget=1024)
    expected = gt.plan.choose_group_size(log.rollouts, limits)
    plain = advice.scores.leave_one_out
    assert (plain.group_size, plain.low, plain.high) == (expected.group_size, expected.low, expected.high)


def test_all_rows_are_words_and_no_line_is_too_wide(capsys, table, bare):
    for path in (table, bare):
        _, out, _ = told(capsys, "plan", path, "--budget", 1024, "--group-size", 8, "--estimator", "trl_grpo")
        assert max(len(line) for line in out.splitlines()) <= 100
        assert "nan" not in out.lower().replace("finance", "")
        assert not re.search(r"\binf\b", out.lower())


@pytest.mark.parametrize("which", ["table", "bare"])
def test_json_has_the_documented_keys_and_finite_numbers(capsys, which, request):
    path = request.getfixturevalue(which)
    status, out, _ = told(capsys, "plan", path, "--budget", 256, "--json", "-")
    assert status == 0
    found = json.loads(out)
    assert set(found) == KEYS
    assert finite(found)
    assert (found["recommendation"] is None) == (which == "bare")
    assert [row["group_size"] for row in found["uniform_groups"]] == sorted(row["group_size"] for row in found["uniform_groups"])
    if which == "table":
        best = min(found["group_sizes"], key=lambda row: row["mse"])
        assert best["group_size"] == found["recommendation"]["group_size"]
        assert best["loss"] == 0.0
        assert found["recommendation"]["cost"] <= 256
        assert all(row["loss_low"] <= row["loss"] for row in found["group_sizes"])


def test_the_page_of_the_docs_names_every_key_and_option():
    page = (Path(__file__).resolve().parents[1] / "docs" / "planner.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []
    told_of = re.findall(r"--[a-z-]+", parser(["plan"])._subparsers._group_actions[0].choices["plan"].format_help())
    assert [name for name in set(told_of) - {"--help"} if f"`{name}" not in page] == []


def test_files_hold_the_same_as_the_library_gives(capsys, table, tmp_path):
    asked = ("plan", table, "--budget", 1024, "--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    status, out, _ = told(capsys, *asked)
    advice = gt.plan.advise(gt.read_rollouts(table), 1024)
    assert status == 0
    assert out == gt.page.to_text(advice)
    assert json.loads((tmp_path / "a.json").read_text()) == gt.page.to_dict(advice)
    page = (tmp_path / "a.html").read_text()
    assert page == gt.page.to_html(advice)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json"]


def test_json_is_made_from_fields_and_not_from_the_sections(table, bare, monkeypatch):
    """What would change the advice, and what it assumes, are those of the text, and do not need its list of sections."""
    for path in (table, bare):
        advice = gt.plan.advise(gt.read_rollouts(path), 512)
        record = gt.page.to_dict(advice)
        by_title = {part.title: part.paragraphs for part in text.sections(advice)}
        assert record["would_change"] == list(by_title["What would change this"])
        assert record["assumptions"] == list(by_title["Assumed, and not checked"])
        monkeypatch.setattr(text, "sections", None)
        assert gt.page.to_dict(advice) == record
        monkeypatch.undo()


def test_an_advice_is_shown_briefly_by_itself(table, bare):
    full, alone = (gt.plan.advise(gt.read_rollouts(path), 512) for path in (table, bare))
    assert str(full) == f"<Advice {full.scores.recommended.pair}; gt.page.to_text shows all of it>"
    assert "Missing(scores=True" in str(alone)


class Tags(HTMLParser):
    """Collects tags and addresses."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses, self.open = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass


def test_the_page_needs_nothing_else_and_shows_the_curves(table, bare):
    full, alone = (Tags(gt.page.to_html(gt.plan.advise(gt.read_rollouts(path), 512))) for path in (table, bare))
    assert full.tags.count("svg") == 2
    assert alone.tags.count("svg") == 1
    for page in (full, alone):
        assert "script" not in page.tags
        assert "link" not in page.tags
        assert all(address.startswith("#") for address in page.addresses), page.addresses
    page = gt.page.to_html(gt.plan.advise(gt.read_rollouts(table), 512))
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_rewards_alone_say_plainly_what_is_missing_and_how_to_get_it(capsys, bare, table):
    status, out, _ = told(capsys, "plan", bare, "--budget", 1024)
    assert status == 0
    assert answer(out).startswith("THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE")
    assert "gt.sketch(" in out
    _, streamed, _ = told(capsys, "plan", table, "--budget", 1024, "--rewards-only")
    assert answer(streamed).startswith("THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE")


@pytest.mark.parametrize(
    ("kept", "change", "reason"),
    [
        (lambda i: i % 8 < 3, {}, "3 prompts with 4 responses or more are needed, and the table has 0"),
        (lambda i: i % 8 < 2 or i < 16, {}, "3 prompts with 4 responses or more are needed, and the table has 2"),
        (lambda i: True, {"reward": lambda i: float(i // 8 % 2)}, "in no group of 4 responses or more do the rewards differ"),
    ],
)
def test_scores_that_cannot_tell_are_said_to(kept, change, reason, capsys, tmp_path):
    """Groups of 2 and 3 give the error at their own sizes, and not the three constants behind it."""
    found = [row | {name: make(i) for name, make in change.items()} for i, row in enumerate(rows(12, 8)) if kept(i)]
    path = write(tmp_path / "rollouts.jsonl", found)
    status, out, _ = told(capsys, "plan", path, "--budget", 64)
    assert status == 0
    assert answer(out).startswith("THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD\n")
    assert reason in " ".join(out.split())
    assert "\nFROM THE REWARDS ALONE\n" in out
    _, out, _ = told(capsys, "plan", path, "--budget", 64, "--json", "-")
    record = json.loads(out)
    assert record["recommendation"] is None
    assert reason in record["no_group_size"]


def test_a_pilot_too_small_to_tell_says_so_first(capsys, tmp_path):
    path = write(tmp_path / "rollouts.jsonl", rows(6, 4))
    _, out, _ = told(capsys, "plan", path, "--budget", 64)
    recommendation, _, sure = (" ".join(part.split()) for part in answer(out).split("\n\n")[:3])
    assert "The data are not sufficient to be sure" in recommendation
    assert "prompts like the 6 here" in sure
    assert not gt.plan.advise(gt.read_rollouts(path), 64).enough


def test_costs_and_limits_reach_the_answer(capsys, table):
    def best(*more):
        _, out, _ = told(capsys, "plan", table, "--budget", 4096, "--json", "-", *more)
        return json.loads(out)["recommendation"]

    plain, costly = best(), best("--cost-prompt", 64)
    assert costly["group_size"] > plain["group_size"]
    assert best("--max-group-size", 2)["group_size"] == 2
    assert best("--max-responses", 100)["responses"] <= 100
    assert best("--multiple-of", 64)["responses"] % 64 == 0
    assert best("--min-prompts", 1365)["batch_size"] >= 1365


def changed(path, place, **changes):
    found = rows(6, 4)
    found[place] |= changes
    return write(path, found)


def without(path, *names):
    return write(path, [{key: value for key, value in row.items() if key not in names} for row in rows(6, 4)])


def truncated(path, ending):
    if ending == "jsonl":
        text = write(path.with_suffix(".jsonl"), rows(6, 4)).read_text()
        path.with_suffix(".jsonl").write_text(text[:-30])
    else:
        pd.DataFrame(rows(6, 4)).to_parquet(path.with_suffix(".parquet"))
        whole = path.with_suffix(".parquet").read_bytes()
        path.with_suffix(".parquet").write_bytes(whole[: len(whole) // 2])
    return path.with_suffix(f".{ending}")


BAD = {
    "missing column": (lambda path: without(path, "reward"), (), "found the columns prompt_id, completion, length, sketch"),
    "one response a prompt": (
        lambda path: write(path, [{**row, "prompt_id": str(i)} for i, row in enumerate(rows(6, 4))]),
        (),
        "one response",
    ),
    "all rewards equal": (lambda path: write(path, [{**row, "reward": 1.0} for row in rows(6, 4)]), (), "all are 1"),
    "no number": (lambda path: changed(path, 5, reward="good"), (), "row 6 ('good')"),
    "NaN": (lambda path: changed(path, 5, reward=None), (), "row 6 (empty)"),
    "steps in part of the rows": (lambda path: changed(path, 5, step=3), (), "step must be whole numbers in every row"),
    "empty": (lambda path: write(path, []), (), "is empty"),
    "truncated lines": (lambda path: truncated(path, "jsonl"), (), "line 24 is broken"),
    "truncated Parquet": (lambda path: truncated(path, "parquet"), (), "is no whole Parquet file"),
    "unequal sketches": (lambda path: changed(path, 5, sketch=[1.0]), (), "scores must be lists of equal length"),
    "no file": (lambda path: path.with_suffix(".csv"), (), "does not exist"),
    "small budget": (lambda path: write(path, rows(6, 4)), ("--budget", "1"), "two responses, which cost 2, got 1"),
    "unknown estimator": (lambda path: write(path, rows(6, 4)), ("--estimator", "trl_grop"), "did you mean 'trl_grpo'"),
    "another unknown estimator": (lambda path: write(path, rows(6, 4)), ("--estimator", "trl_rlo"), "--estimator must be one of"),
    "group size beyond the budget": (
        lambda path: write(path, rows(6, 4)),
        ("--group-size", "999"),
        "--group-size must be one that",
    ),
    "group size 0": (lambda path: write(path, rows(6, 4)), ("--max-group-size", "0"), "--max-group-size must be at least 2"),
    "huge groups": (
        lambda path: write(path, rows(6, 4)),
        ("--max-group-size", "10000"),
        "--max-group-size must be at most 4096, got 10000",
    ),
    "too many prompts": (
        lambda path: write(path, rows(6, 4)),
        ("--min-prompts", "51"),
        "no batch meets all limits: --budget 64 pays for at most 32 prompts, fewer than --min-prompts 51\n",
    ),
    "huge sketches": (lambda path: changed(path, 5, sketch=[1e200, 1.0]), (), "scores must lie in [-1e+12, 1e+12], got 1e+200"),
    "huge budget": (lambda path: write(path, rows(6, 4)), ("--budget", "1e300"), "budget must buy at most"),
    "a level of 1": (lambda path: write(path, rows(6, 4)), ("--level", "1"), "--level must lie strictly between 0 and 1"),
    "no tolerance": (lambda path: write(path, rows(6, 4)), ("--tolerance", "0"), "--tolerance must lie strictly between"),
    "two prompts": (lambda path: write(path, rows(2, 4)), (), "at least 3 prompts"),
    "steps that are none": (lambda path: write(path, rows(6, 4)), ("--steps", "some"), "steps must be 'newest', 'last'"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_has_one_message_and_writes_nothing(name, capsys, tmp_path):
    make, more, message = BAD[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    path = make(tmp_path / "in" / "rollouts.jsonl")
    asked = ("plan", path, "--budget", "64", "--json", tmp_path / "out" / "a.json", "--html", tmp_path / "out" / "a.html", *more)
    status, out, err = told(capsys, *asked)
    assert status == 2
    assert out == ""
    assert err.startswith("grpo-theory plan: ")
    assert err.count("\n") == 1, err
    assert len(err) < 600
    assert message in err
    assert list((tmp_path / "out").iterdir()) == []


def test_outputs_that_cannot_be_written_are_refused_before_anything_is_read(capsys, tmp_path, table):
    for given, message in (
        (("--json", tmp_path / "none" / "a.json"), "--json must be a file in a folder that exists"),
        (("--html", tmp_path), "--html must be a file in a folder that exists"),
        (("--json", tmp_path / "a", "--html", tmp_path / "a"), "--json and --html must be different files"),
    ):
        status, out, err = told(capsys, "plan", "nowhere.jsonl", "--budget", 64, *given)
        assert (status, out) == (2, "")
        assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_the_table_is_never_written_over(option, capsys, tmp_path):
    """By its name, by another way to it, by a link, or by a file in the folder that is the table; another folder's may."""
    path = write(tmp_path / "rollouts.jsonl", rows(6, 4))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.jsonl").hardlink_to(path)
    (tmp_path / "other" / "soft.jsonl").symlink_to(path)
    before = path.read_bytes()
    for table, target, message in (
        (path, path, "must not be the table itself"),
        (path, tmp_path / "other" / ".." / "rollouts.jsonl", "must not be the table itself"),
        (path, tmp_path / "other" / "link.jsonl", "must not be the table itself"),
        (path, tmp_path / "other" / "soft.jsonl", "must not be the table itself"),
        (tmp_path, tmp_path / "other" / "a.jsonl", "must be outside the table's folder"),
        (tmp_path, tmp_path / "plan.json", "must be outside the table's folder"),
    ):
        status, out, err = told(capsys, "plan", table, "--budget", 64, option, target)
        assert (status, out) == (2, "")
        assert f"{option} {message}" in err
        assert str(target) in err
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", "rollouts.jsonl"]
    assert sorted(one.name for one in (tmp_path / "other").iterdir()) == ["link.jsonl", "soft.jsonl"]
    assert told(capsys, "plan", path, "--budget", 64, option, tmp_path / "plan.out")[0] == 0


def test_a_page_is_not_printed(capsys, tmp_path, table, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = told(capsys, "plan", table, "--budget", 64, "--html", "-")
    assert (status, out) == (2, "")
    assert "--html must be a file, got -" in err
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_named_before_anything_is_read(capsys, tmp_path, table, monkeypatch):
    """A name that is too long, which no check of rights sees; and a disk that fails after all the work."""
    target = tmp_path / ("a" * 300)
    status, out, err = told(capsys, "plan", "nowhere.jsonl", "--budget", 64, "--json", target)
    assert (status, out) == (2, "")
    assert f"--json must be a file in a folder that exists and can be written, got {target}: File name too long" in err
    monkeypatch.setattr(Path, "replace", failing_disk)
    status, out, err = told(capsys, "plan", table, "--budget", 64, "--json", tmp_path / "a.json")
    assert (status, out) == (2, "")
    assert err == f"grpo-theory plan: {tmp_path / 'a.json'}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


def failing_disk(path, target):
    raise OSError(28, "No space left on device", str(path))


def test_a_page_that_fails_leaves_no_json_and_no_part_behind(capsys, tmp_path, table, monkeypatch):
    def failing(advice, run):
        raise OSError(28, "No space left on device", "a.html")

    monkeypatch.setattr(gt.page, "to_html", failing, raising=False)
    (tmp_path / "a.json").write_text("old")
    asked = ("plan", table, "--budget", 64, "--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    status, out, err = told(capsys, *asked)
    assert (status, out) == (2, "")
    assert "No space left on device" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "old"


def test_help_is_quick_and_loads_no_compiler():
    script = """
import sys
from grpo_theory.page.command import main
try:
    main(["plan", "--help"])
except SystemExit as stopped:
    print(stopped.code, [name for name in ("numba", "numpy", "scipy", "pandas", "matplotlib") if name in sys.modules])
"""
    times = []
    for _ in range(3):
        start = processor_time_of_children()
        done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
        times.append(processor_time_of_children() - start)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert min(times) < 0.5


def processor_time_of_children():
    """Return seconds of the processor, which a busy machine does not add to as it does to those of the clock."""
    spent = os.times()
    return spent.children_user + spent.children_system


def test_the_help_names_every_subcommand_and_python_runs_the_package_as_the_command():
    offered = parser(SUBCOMMANDS)._subparsers._group_actions[0].choices
    assert list(SUBCOMMANDS) == list(offered)
    assert all(name in parser([]).format_help() for name in offered)
    for name, one in offered.items():
        assert one.format_help() == parser([name])._subparsers._group_actions[0].choices[name].format_help()
        assert len(one.format_usage()) > len(parser([])._subparsers._group_actions[0].choices[name].format_usage())
    command = [sys.executable, "-W", "error", "-m", "grpo_theory", "plan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m grpo_theory plan [-h] [--budget N] [--total N]")


def test_the_entry_point_is_the_command():
    installed = configparser.ConfigParser()
    installed.read(Path(__file__).resolve().parents[1] / "setup.cfg")
    name, _, function = installed["options.entry_points"]["console_scripts"].strip().partition(" = ")
    assert name == "grpo-theory"
    assert pkgutil.resolve_name(function) is main
