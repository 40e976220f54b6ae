"""`grpo-theory plan`: it says what the library says, as text, page and data; what it refuses, and that it is quick to start."""

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
import pytest
from tables import answer, rows, said, write

import grpo_theory as gt
from grpo_theory.page.advice import text
from grpo_theory.page.advice.comparisons import with_baseline
from grpo_theory.page.command import SUBCOMMANDS, main, parser
from grpo_theory.plan.expected_step import learning_rate_factor
from grpo_theory.theory import finite_group_objective

KEYS = {
    *("format", "limits", "level", "tolerance", "estimator", "baseline", "recommendation", "confidence_set", "current"),
    *("group_sizes", "constants", "signal_to_noise", "baselines", "rivals", "by_efficiency", "scores", "learning_rate"),
    *("uniform_groups", "rewards", "evaluations", "success_rates", "prompt_weights", "no_group_size", "run", "would_change"),
    *("assumptions", "notes"),
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
    status = main(["plan", *map(str, arguments)])
    return status, *capsys.readouterr()


def data(capsys, *arguments):
    """Return what the command gives as JSON."""
    status, out, err = told(capsys, *arguments, "--json", "-")
    assert (status, err) == (0, "")
    return json.loads(out)


def finite(value):
    """Whether a JSON value holds finite numbers and None alone."""
    if isinstance(value, dict | list):
        return all(finite(part) for part in (value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, str | bool | int) or np.isfinite(value)


# ---- it says what the library says


@pytest.mark.parametrize("which", ["table", "bare"])
@pytest.mark.parametrize("estimator", [None, "rloo", "reinforce", "trl_grpo", "gspo"])
def test_text_page_and_data_are_those_of_the_library_and_recommend_one_batch(which, estimator, request, capsys, tmp_path):
    path, named = request.getfixturevalue(which), ("--estimator", estimator) if estimator else ()
    advice = gt.plan.advise(gt.read_rollouts(path), 1024, group_size=8, estimator=estimator)
    files = ("--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    status, out, err = told(capsys, path, "--budget", 1024, "--group-size", 8, *named, *files)
    record, page = json.loads((tmp_path / "a.json").read_text()), (tmp_path / "a.html").read_text()
    assert (status, err, out) == (0, "", gt.page.to_text(advice))
    assert (record, page) == (gt.page.to_dict(advice), gt.page.to_html(advice))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.html", "a.json"]
    assert (set(record), finite(record)) == (KEYS, True)
    by_title = {part.title: list(part.paragraphs) for part in text.sections(advice)}
    assert record["would_change"] == by_title["What would change this"]
    assert record["assumptions"] == by_title["Assumed, and not checked"]
    assert max(map(len, out.splitlines())) <= 100
    assert not re.search(r"\b(nan|inf)\b", out.lower())
    found = record["recommendation"]
    if which == "bare":
        assert found is None
        assert answer(out).startswith("THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE")
        assert "gt.sketch(" in out
        return
    choice, scores = advice.scores.choice, advice.scores
    assert (found["group_size"], found["batch_size"]) == (choice.group_size, choice.batch_size)
    assert found["cost"] <= 1024
    divides = estimator in ("trl_grpo", "gspo")
    assert found["baseline"] == (None if divides else scores.recommended.pair.name)
    use = f"Use {estimator} with" if divides else f"Use {with_baseline(scores.recommended.pair)} and"
    assert said(answer(out)).startswith(f"RECOMMENDATION {use} groups of {choice.group_size}: {choice.batch_size} prompts with")
    assert f"<p>{use} groups of {choice.group_size}" in page
    assert ("weighs tokens by the lengths of responses" in said(out)) == (estimator == "gspo")
    assert [row["group_size"] for row in record["group_sizes"] if row["loss"] == 0.0] == [choice.group_size]
    assert all(row["loss_low"] <= row["loss"] for row in record["group_sizes"])
    if divides:
        assert [row["efficiency"] for row in record["group_sizes"]] == scores.own.efficiency.tolist()
        assert record["by_efficiency"]["planned"]
        names = [one["name"] for one in record["by_efficiency"]["other_estimators"]]
        assert names == [one.name for one in scores.by_efficiency.others]


class Tags(HTMLParser):
    """Collects tags and addresses."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href")]


def test_the_page_needs_nothing_else_and_shows_the_curves(table, bare):
    for path, curves in ((table, 2), (bare, 1)):
        page = Tags(gt.page.to_html(gt.plan.advise(gt.read_rollouts(path), 512)))
        assert page.tags.count("svg") == curves
        assert not {"script", "link"} & set(page.tags)
        assert all(address.startswith("#") for address in page.addresses), page.addresses


def test_the_page_of_the_docs_names_every_key_and_option():
    page = (Path(__file__).resolve().parents[1] / "docs" / "planner.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []
    told_of = re.findall(r"--[a-z-]+", parser(["plan"])._subparsers._group_actions[0].choices["plan"].format_help())
    assert [name for name in set(told_of) - {"--help"} if f"`{name}" not in page] == []


def test_costs_and_limits_reach_the_answer(capsys, table):
    def best(*more):
        return data(capsys, table, "--budget", 4096, *more)["recommendation"]

    assert best("--cost-prompt", 64)["group_size"] > best()["group_size"]
    assert best("--max-group-size", 2)["group_size"] == 2
    assert best("--max-responses", 100)["responses"] <= 100
    assert best("--multiple-of", 64)["responses"] % 64 == 0
    assert best("--min-prompts", 1365)["batch_size"] >= 1365


@pytest.mark.parametrize(
    ("kept", "change", "reason"),
    [
        (lambda i: i % 8 < 3, None, "3 prompts with 4 responses or more are needed, and the table has 0"),
        (lambda i: i % 8 < 2 or i < 16, None, "3 prompts with 4 responses or more are needed, and the table has 2"),
        (lambda i: True, lambda i: float(i // 8 % 2), "in no group of 4 responses or more do the rewards differ"),
    ],
)
def test_scores_that_cannot_tell_are_said_to(kept, change, reason, capsys, tmp_path):
    """Groups of 2 and 3 give the error at their own sizes, and not the three constants behind it."""
    found = [row | ({"reward": change(i)} if change else {}) for i, row in enumerate(rows(12, 8)) if kept(i)]
    record = data(capsys, write(tmp_path / "rollouts.jsonl", found), "--budget", 64)
    assert (record["recommendation"], reason in record["no_group_size"]) == (None, True)


def test_logs_that_tell_less_are_said_to(capsys, tmp_path, table):
    """Small pilots, many rewards, limits without a logged size, groups of 4 at the edge, and one of everything."""
    small = write(tmp_path / "small.jsonl", rows(6, 4))
    assert not gt.plan.advise(gt.read_rollouts(small), 64).enough
    graded = write(tmp_path / "graded.jsonl", [{**row, "reward": float(i % 13)} for i, row in enumerate(rows())])
    alike = [{**row, "sketch": [row["reward"] - 0.5 + 0.01 * float(i % 3)]} for i, row in enumerate(rows(40, 4))]
    edge, one = write(tmp_path / "alike.jsonl", alike), write(tmp_path / "one.jsonl", rows(12, 8)[5:])
    for path, options, words in (
        (small, (), "The data are not sufficient to be sure"),
        (graded, ("--estimator", "trl_grpo"), "has 13 different rewards, and the law of trl_grpo is known for at most 8"),
        (table, ("--estimator", "trl_grpo", "--multiple-of", 37, "--max-responses", 37), "allow no group of at most 8"),
        (edge, ("--estimator", "trl_grpo", "--cost-prompt", 50), "Larger groups may be better, but this table cannot tell"),
        (one, ("--budget", 2), "1 prompt with fewer than 4 responses was left out; 11 were used"),
    ):
        status, out, _ = told(capsys, path, "--budget", 1024, *options)
        assert (status, words in said(out)) == (0, True), words
        assert not re.search(r"\b1 prompts|\b1 groups|\b1 responses", said(out))


def test_shares_beyond_the_logged_groups_are_marked_and_of_filtered_groups_have_no_estimate(capsys, table, tmp_path):
    advice = gt.plan.advise(gt.read_rollouts(table), 1024)
    (section,) = (part for part in text.sections(advice) if part.title == "Group sizes")
    shown = {int(row[0].replace(",", "")): row[4].endswith("*") for row in section.table[1:] if row[4]}
    uniform = advice.rewards.uniform
    measured = dict(zip(uniform.group_sizes.tolist(), (uniform.measured == 1.0).tolist(), strict=True))
    assert {size: not star for size, star in shown.items()} == {size: measured[size] for size in shown}
    assert set(shown.values()) == {True, False}
    rewards = ({"prompt": f"p{k // 4}", "reward": float(k % 4 < 1 + k // 4 % 3)} for k in range(240))
    record = data(capsys, write(tmp_path / "log.jsonl", rewards), "--budget", 64, "--group-size", 4)
    for row in record["uniform_groups"]:
        assert (row["share"], row["low"], row["high"]) == (None, 2.0 ** (1 - row["group_size"]), 1.0)
    assert (record["success_rates"], record["prompt_weights"], record["evaluations"]) == (None, None, [])
    assert "left out before logging" in record["rewards"]["missing"]


def test_the_range_of_a_learning_rate_holds_along_gradients_that_do_not_point_backwards(table):
    """Of two prompts with gradients 1 and a number, from groups of 8 to 3; a negative one is outside the range."""
    found = learning_rate_factor(gt.read_rollouts(table).rollouts.counts, ("trl_grpo", 8), ("trl_grpo", 3))
    slopes = [finite_group_objective("trl_grpo", size).slope(np.array([0.05, 0.5])) for size in (8, 3)]
    for along, held in ((0.0, True), (0.5, True), (5.0, True), (-0.5, False)):
        factor = (slopes[0] @ [1.0, along]) / (slopes[1] @ [1.0, along])
        assert bool(found.least <= factor <= found.most) is held


def test_the_planner_counts_prompts_and_not_groups(capsys, tmp_path):
    """With scores and from rewards alone; a log that was read with all its groups is refused."""
    found = [row | {"step": step} for step in (1, 2, 3) for row in rows(24, 8, seed=step)]
    path = write(tmp_path / "rollouts.jsonl", found)
    alone = write(tmp_path / "last.jsonl", [row for row in found if row["step"] == 3])
    for more in ((), ("--rewards-only",)):
        every, last = (said(answer(told(capsys, one, "--budget", 256, *more)[1])) for one in (path, alone))
        assert "48 groups left out" in every
        assert every[: every.index("WHAT WAS READ")] == last[: last.index("WHAT WAS READ")]
    log = gt.read_rollouts(path, steps="all")
    for given, findings in ((log, None), (log.rollouts.counts, log.findings)):
        with pytest.raises(ValueError, match="rollouts must have one group per prompt, and these 72 groups are of 24 prompts"):
            gt.plan.advise(given, 256, findings=findings)


# ---- what it refuses


def changed(place=5, without="", **changes):
    found = [{name: one for name, one in row.items() if name != without} for row in rows(6, 4)]
    found[place] |= changes
    return found


BAD = {
    "found the columns prompt_id, completion, length, sketch": (changed(without="reward"), ()),
    "one response": ([row | {"prompt_id": str(i)} for i, row in enumerate(rows(6, 4))], ()),
    "all are 1": ([row | {"reward": 1.0} for row in rows(6, 4)], ()),
    "row 6 ('good')": (changed(reward="good"), ()),
    "row 6 (empty)": (changed(reward=None), ()),
    "step must be whole numbers in every row": (changed(step=3), ()),
    "is empty": ([], ()),
    "scores must be lists of equal length": (changed(sketch=[1.0]), ()),
    "scores must lie in [-1e+12, 1e+12], got 1e+200": (changed(sketch=[1e200, 1.0]), ()),
    "at least 3 prompts": (rows(2, 4), ()),
    "two responses, which cost 2, got 1": (rows(6, 4), ("--budget", "1")),
    "budget must buy at most": (rows(6, 4), ("--budget", "1e300")),
    "--estimator must be one of trl_grpo, ": (rows(6, 4), ("--estimator", "trl_grop")),
    "--estimator must be one of": (rows(6, 4), ("--estimator", "trl_rlo")),
    "those of 'james_stein' depend on the other groups of the batch": (rows(6, 4), ("--estimator", "james_stein")),
    "those of 'optimal_loo' depend on squared score norms": (rows(6, 4), ("--estimator", "optimal_loo")),
    "--group-size must be one that": (rows(6, 4), ("--group-size", "999")),
    "--max-group-size must be at least 2": (rows(6, 4), ("--max-group-size", "0")),
    "--max-group-size must be at most 4096, got 10000": (rows(6, 4), ("--max-group-size", "10000")),
    "--budget 64 pays for at most 32 prompts, fewer than --min-prompts 51\n": (rows(6, 4), ("--min-prompts", "51")),
    "--level must lie strictly between 0 and 1": (rows(6, 4), ("--level", "1")),
    "--tolerance must lie strictly between": (rows(6, 4), ("--tolerance", "0")),
    "steps must be 'newest', 'last'": (rows(6, 4), ("--steps", "some")),
    "--where must be KEY=VALUE, as split=train, got split": (rows(6, 4), ("--where", "split")),
}
"""What the message must hold, the rows, and the options."""


@pytest.mark.parametrize("message", BAD)
def test_each_mistake_has_one_message_and_writes_nothing(message, capsys, tmp_path):
    found, more = BAD[message]
    path, out_folder = write(tmp_path / "in" / "rollouts.jsonl", found), tmp_path / "out"
    out_folder.mkdir()
    files = ("--json", out_folder / "a.json", "--html", out_folder / "a.html")
    status, out, err = told(capsys, path, "--budget", "64", *files, *more)
    assert (status, out, list(out_folder.iterdir())) == (2, "", [])
    assert err.startswith("grpo-theory plan: ")
    assert (err.count("\n"), len(err) < 600) == (1, True), err
    assert message in err


# ---- the command


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
        before = os.times()
        done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
        after = os.times()  # seconds of the processor, which a busy machine does not add to as it does to those of the clock
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert min(times) < 0.5


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
    installed = configparser.ConfigParser()
    installed.read(Path(__file__).resolve().parents[1] / "setup.cfg")
    name, _, function = installed["options.entry_points"]["console_scripts"].strip().partition(" = ")
    assert (name, pkgutil.resolve_name(function)) == ("grpo-theory", main)
