"""`grpo-theory plan`: it says what the library says, as text, page and data; what it refuses, and that it is quick to start."""

import configparser
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tables import answer, rows, said, write

import grpo_theory as gt
from grpo_theory.page.advice import text
from grpo_theory.page.advice.comparisons import with_baseline
from grpo_theory.page.command import SUBCOMMANDS, main, parser

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
    assert set(record) == KEYS
    assert json.dumps(record, allow_nan=False)
    assert page.count("<svg") == (2 if which == "table" else 1)
    assert re.findall(r"<(?:script|link)|(?:src|href)=\"[^#]", page) == [], "the page needs nothing else"
    by_title = {part.title: list(part.paragraphs) for part in text.sections(advice)}
    assert record["assumptions"] == by_title["Assumed, and not checked"]
    found = record["recommendation"]
    if which == "bare":
        assert found is None
        assert answer(out).startswith("THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE")
        assert "gt.sketch(" in out
        return
    choice, scores = advice.scores.choice, advice.scores
    assert (found["group_size"], found["batch_size"]) == (choice.group_size, choice.batch_size)
    divides = estimator in ("trl_grpo", "gspo")
    assert found["baseline"] == (None if divides else scores.recommended.pair.name)
    use = f"Use {estimator} with" if divides else f"Use {with_baseline(scores.recommended.pair)} and"
    assert said(answer(out)).startswith(f"RECOMMENDATION {use} groups of {choice.group_size}: {choice.batch_size} prompts with")
    assert ("weighs tokens by the lengths of responses" in said(out)) == (estimator == "gspo")
    assert [row["group_size"] for row in record["group_sizes"] if row["loss"] == 0.0] == [choice.group_size]
    if divides:
        assert [row["efficiency"] for row in record["group_sizes"]] == scores.own.efficiency.tolist()


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


def test_scores_that_cannot_tell_are_said_to(capsys, tmp_path):
    """Groups of 2 and 3 give the error at their own sizes, and not the three constants behind it."""
    few = [row for i, row in enumerate(rows(12, 8)) if i % 8 < 3]
    alike = [row | {"reward": float(i // 8 % 2)} for i, row in enumerate(rows(12, 8))]
    for found, reason in (
        (few, "3 prompts with 4 responses or more are needed, and the table has 0"),
        (alike, "in no group of 4 responses or more do the rewards differ"),
    ):
        record = data(capsys, write(tmp_path / "rollouts.jsonl", found), "--budget", 64)
        assert (record["recommendation"], reason in record["no_group_size"]) == (None, True)


def test_logs_that_tell_less_are_said_to(capsys, tmp_path, table):
    """Small pilots, many rewards, limits without a logged size, groups of 4 at the edge, and one of everything."""
    small = write(tmp_path / "small.jsonl", rows(6, 4))
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


def test_shares_of_filtered_groups_have_no_estimate(capsys, tmp_path):
    rewards = ({"prompt": f"p{k // 4}", "reward": float(k % 4 < 1 + k // 4 % 3)} for k in range(240))
    record = data(capsys, write(tmp_path / "log.jsonl", rewards), "--budget", 64, "--group-size", 4)
    for row in record["uniform_groups"]:
        assert (row["share"], row["low"], row["high"]) == (None, 2.0 ** (1 - row["group_size"]), 1.0)
    assert (record["success_rates"], record["prompt_weights"], record["evaluations"]) == (None, None, [])
    assert "left out before logging" in record["rewards"]["missing"]


def test_the_planner_counts_prompts_and_not_groups(capsys, tmp_path):
    """With scores and from rewards alone; a log that was read with all its groups is refused."""
    found = [row | {"step": step} for step in (1, 2, 3) for row in rows(24, 8, seed=step)]
    path = write(tmp_path / "rollouts.jsonl", found)
    alone = write(tmp_path / "last.jsonl", [row for row in found if row["step"] == 3])
    for more in ((), ("--rewards-only",)):
        every, last = (said(answer(told(capsys, one, "--budget", 256, *more)[1])) for one in (path, alone))
        assert every[: every.index("WHAT WAS READ")] == last[: last.index("WHAT WAS READ")]
    log = gt.read_rollouts(path, steps="all")
    with pytest.raises(ValueError, match="rollouts must have one group per prompt, and these 72 groups are of 24 prompts"):
        gt.plan.advise(log.rollouts.counts, 256, findings=log.findings)


BAD = {
    "one response": ([row | {"prompt_id": str(i)} for i, row in enumerate(rows(6, 4))], ()),
    "all are 1": ([row | {"reward": 1.0} for row in rows(6, 4)], ()),
    "scores must lie in [-1e+12, 1e+12], got 1e+200": ([row | {"sketch": [1e200, 1.0]} for row in rows(6, 4)], ()),
    "at least 3 prompts": (rows(2, 4), ()),
    "budget must buy at most": (rows(6, 4), ("--budget", "1e300")),
    "--estimator must be one of": (rows(6, 4), ("--estimator", "trl_rlo")),
    "those of 'james_stein' depend on the other groups of the batch": (rows(6, 4), ("--estimator", "james_stein")),
    "--group-size must be one that": (rows(6, 4), ("--group-size", "999")),
    "--max-group-size must be at least 2": (rows(6, 4), ("--max-group-size", "0")),
    "--max-group-size must be at most 4096, got 10000": (rows(6, 4), ("--max-group-size", "10000")),
    "--budget 64 pays for at most 32 prompts, fewer than --min-prompts 51\n": (rows(6, 4), ("--min-prompts", "51")),
    "--level must lie strictly between 0 and 1": (rows(6, 4), ("--level", "1")),
    "--budget), or the responses of the whole run (--total)": (rows(6, 4), None),
    "--total must be finite and at least one group, 2 responses, got 1": (rows(6, 4), ("--total", "1")),
    "--total 32 is less than one batch of --budget 64": (rows(6, 4), ("--total", "32")),
    "give its responses too (--total)": (rows(6, 4), ("--training-prompts", "9")),
    "--where must be KEY=VALUE, as split=train, got split": (rows(6, 4), ("--where", "split")),
}
"""What the message must hold, the rows, and the options."""


@pytest.mark.parametrize("message", BAD)
def test_each_mistake_has_one_message_and_writes_nothing(message, capsys, tmp_path):
    found, more = BAD[message]
    path, out_folder = write(tmp_path / "in" / "rollouts.jsonl", found), tmp_path / "out"
    out_folder.mkdir()
    files = ("--json", out_folder / "a.json", "--html", out_folder / "a.html")
    status, out, err = told(capsys, path, *files, *(() if more is None else ("--budget", "64", *more)))
    assert (status, out, list(out_folder.iterdir())) == (2, "", [])
    assert err.startswith("grpo-theory plan: ")
    assert (err.count("\n"), len(err) < 600) == (1, True), err
    assert message in err


def test_help_is_quick_and_loads_no_compiler():
    script = """
import sys
from grpo_theory.page.command import main
try:
    main(["plan", "--help"])
except SystemExit as stopped:
    print(stopped.code, [name for name in ("numba", "numpy", "scipy", "pandas", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_the_help_names_every_subcommand_and_python_runs_the_package_as_the_command():
    offered = parser(SUBCOMMANDS)._subparsers._group_actions[0].choices
    assert list(SUBCOMMANDS) == list(offered)
    assert all(name in parser([]).format_help() for name in offered)
    command = [sys.executable, "-W", "error", "-m", "grpo_theory", "plan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("usage: python -m grpo_theory plan [-h] [--budget N] [--total N]")
    installed = configparser.ConfigParser()
    installed.read(Path(__file__).resolve().parents[1] / "setup.cfg")
    name, _, function = installed["options.entry_points"]["console_scripts"].strip().partition(" = ")
    assert (name, pkgutil.resolve_name(function)) == ("grpo-theory", main)
