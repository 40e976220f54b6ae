"""`grpo-theory plan`: one screen that says what to do first, page and data of the same advice, what it refuses; and its start."""

import configparser
import json
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tables import rows, said, write

import grpo_theory as gt
from grpo_theory.page.command import SUBCOMMANDS, main, parser
from grpo_theory.plan.advice import KEPT, LOST, RULE, advise_run

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A log with sketches."""
    return write(tmp_path_factory.mktemp("plan") / "rollouts.jsonl", rows())


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A log of rewards alone."""
    kept = ("prompt_id", "completion", "reward")
    return write(tmp_path_factory.mktemp("plan") / "bare.jsonl", [{name: row[name] for name in kept} for row in rows()])


@pytest.fixture(scope="module")
def advice(table):
    """The advice of the log with sketches, whose best group size is not 8."""
    return gt.plan.advise(gt.read_rollouts(table), 1024, group_size=8)


def told(capsys, *arguments):
    """Run the command; return its status and what it printed."""
    status = main(["plan", *map(str, arguments)])
    return status, *capsys.readouterr()


def data(capsys, *arguments):
    """Return what the command gives as JSON."""
    status, out, err = told(capsys, *arguments, "--json", "-")
    assert (status, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(
    ("which", "estimator"), [("table", None), ("table", "reinforce"), ("table", "gspo"), ("bare", "trl_grpo")]
)
def test_text_page_and_data_are_those_of_the_library_and_recommend_one_batch(which, estimator, request, capsys, tmp_path):
    path, named = request.getfixturevalue(which), ("--estimator", estimator) if estimator else ()
    advice = gt.plan.advise(gt.read_rollouts(path), 1024, group_size=8, estimator=estimator)
    asked = (path, "--budget", 1024, "--group-size", 8, *named)
    status, out, err = told(capsys, *asked, "--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    record, page = json.loads((tmp_path / "a.json").read_text()), (tmp_path / "a.html").read_text()
    assert (status, err, out) == (0, "", gt.page.to_text(advice))
    assert (record, page) == (gt.page.to_dict(advice), gt.page.to_html(advice))
    assert re.findall(r"(?:src|href)=\"(?!data:|#)", page) == [], "the page needs nothing else"
    every = told(capsys, *asked, "--all")[1]
    assert every == gt.page.to_text(advice, everything=True)
    assert "ASSUMED, AND NOT CHECKED" in every
    sample, found = advice.rewards.sample, record["recommendation"]
    assert [record["rewards"][name] for name in ("prompts", "mixed_prompts", "largest_group")] == [48, sample.mixed_prompts, 8]
    assert record["rewards"]["mean"]["estimate"] == float(sample.mean_reward.estimate)
    if which == "bare":
        assert (record["step"], found["group_size"], page.count("<figure")) == (None, None, 0)
        assert out.startswith("No group size for one step can be told: the table has no gradients.")
        return
    choice, scores = advice.scores.choice, advice.scores
    assert (found["best"], page.count("<figure")) == (choice.group_size, 1)
    divides = estimator in ("trl_grpo", "gspo")
    using = estimator or "the leave-one-out baseline"
    size = 8 if found["keep"] else choice.group_size
    batch = f"with {using} for a step: {1024 // size} prompts with {size} responses each"
    assert said(out).startswith(f"{'Keep your group size 8' if found['keep'] else f'Use groups of {size}'} {batch}")
    assert ("weighs tokens by the lengths of responses" in said(out)) == (estimator == "gspo")
    assert divides == (scores.own is not None) == ("a step: gain left" in out)
    loss = record["step"]["loss"]["estimate"]
    assert loss == choice.loss.estimate.tolist()
    assert record["step"]["group_sizes"][loss.index(0.0)] == choice.group_size


def test_the_screen_has_at_most_25_lines_whatever_the_log_and_the_notes(table, bare):
    """And loses nothing that --all does not have."""
    logs = [gt.read_rollouts(path) for path in (table, bare)]
    runs = (None, *(advise_run(logs[0], 8000, group_size=size) for size in (8, 64)))
    for log, estimator in product(logs, (None, "gspo")):
        one = gt.plan.advise(log, 1024, group_size=8, estimator=estimator)
        for notes, run in product((0, 1, 6), runs):
            noted = replace(one, notes=tuple(f"note {i} {'goes on ' * 40}" for i in range(notes)))
            screen, every = gt.page.to_text(noted, run).splitlines(), said(gt.page.to_text(noted, run, everything=True))
            assert len(screen) <= 25
            assert max(map(len, screen)) <= 100
            assert screen[-1].startswith("What this rests on")
            assert screen[-1].endswith(": --all")
            assert all(f"Note: note {i} goes on" in every for i in range(notes))


def test_a_run_is_followed_where_it_was_asked_for_and_the_step_is_named_in_one_line(advice, table, capsys):
    step, asked = advice.scores.choice.group_size, (table, "--budget", 1024, "--total", 8000, "--training-prompts", 100)
    text = told(capsys, *asked, "--group-size", 64)[1]
    assert said(text).startswith("Use groups of 8 with rloo for the whole run of 8,000 responses, 80 for each of 100 prompts.")
    assert f"One step alone would ask for groups of {step}" in said(text)
    assert f"groups of {RULE} lost {LOST[0]:g} points to the best size on average, and at most {LOST[1]:g}" in said(text)
    assert [line.split()[0] for line in text.splitlines() if "recommended" in line] == ["8"]
    assert said(told(capsys, *asked, "--group-size", 16)[1]).startswith("Keep your group size 16 with rloo for the whole run")
    record = data(capsys, *asked, "--group-size", 64)
    assert (record["recommendation"]["question"], record["recommendation"]["group_size"]) == ("run", 8)
    assert record["run"] == record["run"] | {"group_size": 8, "asked": 64, "keep": False, "each": 80.0}
    assert "give its number of responses (--total)" in said(gt.page.to_text(advice))


@pytest.mark.parametrize(
    ("more", "size", "kept"),
    [
        ({}, 8, False),
        *(({"group_size": size}, size if keep else 8, keep) for size, keep in ((2, False), (4, True), (32, True), (64, False))),
        ({"group_size": 16, "largest": 4}, 4, False),
        ({"total": 5}, 5, False),
        ({"total": 100, "costs": (4.0, 8.0)}, 8, False),
        ({"total": 50, "costs": (4.0, 8.0), "group_size": 8}, 5, False),
    ],
)
def test_a_run_has_groups_of_8_or_the_size_in_use_from_4_to_32(more, size, kept, bare):
    """Or the largest that is allowed, or that the run pays for."""
    found = advise_run(gt.read_rollouts(bare), **({"total": 8000} | more))
    assert (found.group_size, found.keep) == (size, kept)
    assert (RULE, KEPT) == (8, (4, 32))


def test_a_runs_cost_and_learning_rate_go_with_its_size(bare):
    log = gt.read_rollouts(bare)
    costly = advise_run(log, 3840, costs=(4.0, 1.0), group_size=64, estimator="dr_grpo")
    assert costly.each == pytest.approx(3840 / (1 + 4 / 8) / 48)
    assert costly.learning_rate == pytest.approx(8**0.3)
    assert advise_run(log, 3840, group_size=2, estimator="trl_grpo").learning_rate == pytest.approx(0.25**0.45)
    assert advise_run(log, 3840, group_size=16).learning_rate is None
    with pytest.raises(ValueError, match="at least one group of 2, which costs 6, got 5"):
        advise_run(log, 5, costs=(4.0, 1.0))
    with pytest.raises(ValueError, match="rollouts must have different rewards"):
        advise_run(gt.RewardCounts.from_rewards([0, 0, 1, 1, 2, 2], np.ones(6)), 100)


def test_a_size_that_may_be_best_is_kept(advice):
    choice = advice.scores.choice
    for size in (2, 4, 8, 64):
        found = gt.page.answer(replace(advice, group_size=size))
        assert found.keep == choice.candidates[choice.at(size)]
        assert found.group_size == (size if found.keep else choice.group_size)
        assert found.batch_size == 1024 // found.group_size
    assert gt.page.to_text(replace(advice, group_size=choice.group_size)).startswith("Keep your group size ")


def test_a_size_that_loses_less_than_the_tolerance_is_kept(advice):
    loss = float(advice.scores.choice.loss.estimate[advice.scores.choice.at(8)])
    for tolerance, kept in ((1.01 * loss, True), (0.99 * loss, False)):
        one = replace(advice, tolerance=tolerance)
        assert gt.page.answer(one).keep == kept
        assert (f"within the tolerance of {100 * tolerance:.0f}% of groups of" in said(gt.page.to_text(one))) == kept


def test_the_learning_rate_goes_with_the_size(table, capsys):
    """With the leave-one-out mean the step's mean does not depend on the size; with the deviation it does."""
    assert "Keep the learning rate." in said(told(capsys, table, "--budget", 1024, "--group-size", 64)[1])
    log = gt.read_rollouts(DOCS.parent / "examples" / "rollouts.jsonl")
    found = gt.plan.advise(log, 1024, group_size=8, estimator="trl_grpo", tolerance=0.001)
    new = ("trl_grpo", found.scores.choice.group_size)
    known = float(gt.plan.learning_rate_factor(log.rollouts.counts, ("trl_grpo", 8), new).factor.estimate)
    assert float(found.rewards.learning_rate.factor.estimate) == pytest.approx(known)
    assert f"Multiply the learning rate by about {known:.3g}" in said(gt.page.to_text(found))
    run = advise_run(log, 8000, estimator="trl_grpo", group_size=64)
    assert f"learning rate by about {8**0.45:.3g} for plain SGD; with Adam keep it" in said(gt.page.to_text(found, run))


def test_costs_and_limits_reach_the_answer(capsys, table):
    def best(*more):
        return data(capsys, table, "--budget", 4096, *more)["recommendation"]

    assert best("--cost-prompt", 64)["group_size"] > best()["group_size"]
    assert best("--max-group-size", 2)["group_size"] == 2
    few = best("--max-responses", 100)
    assert few["group_size"] * few["batch_size"] <= 100
    whole = best("--multiple-of", 64)
    assert whole["group_size"] * whole["batch_size"] % 64 == 0
    assert best("--min-prompts", 1365)["batch_size"] >= 1365


def test_logs_that_tell_less_are_said_to(capsys, tmp_path, table):
    """Small pilots, many rewards, limits without a logged size, groups of 4 at the edge or less, and one of everything."""
    sketched = rows(12, 8)
    alike = [{**row, "sketch": [row["reward"] - 0.5 + 0.01 * float(i % 3)]} for i, row in enumerate(rows(40, 4))]
    logs = {
        "small": rows(6, 4),
        "graded": [{**row, "reward": float(i % 13)} for i, row in enumerate(rows())],
        "edge": alike,
        "one": sketched[5:],
        "few": [row for i, row in enumerate(sketched) if i % 8 < 3],
        "equal": [row | {"reward": float(i // 8 % 2)} for i, row in enumerate(sketched)],
    }
    paths = {name: write(tmp_path / f"{name}.jsonl", found) for name, found in logs.items()} | {"table": table}
    for name, options, words in (
        ("small", (), "To be sure, log about"),
        ("graded", ("--estimator", "trl_grpo"), "trl_grpo could not be planned for itself: "),
        ("table", ("--estimator", "trl_grpo", "--multiple-of", 37, "--max-responses", 37), "allow no group of at most 8"),
        ("edge", ("--estimator", "trl_grpo", "--cost-prompt", 50), "Larger groups may be better: log more responses"),
        ("one", ("--budget", 2), "1 prompt with fewer than 4 responses left out where gradients are needed; 11 used"),
        ("few", (), "3 prompts with 4 responses or more are needed, and the table has 0"),
        ("equal", (), "in no group of 4 responses or more do the rewards differ"),
    ):
        status, out, _ = told(capsys, paths[name], "--budget", 1024, *options, "--all")
        assert (status, words in said(out)) == (0, True), words


@pytest.mark.parametrize("groups", [40, 39])
def test_shares_of_groups_that_may_have_been_filtered_have_no_estimate(capsys, tmp_path, groups):
    """Of 40 mixed groups of 4 at least 40/8 of equal rewards were to be expected, and fewer of 39; both have the remark."""
    rewards = ({"prompt": f"p{k // 4}", "reward": float(k % 4 < 1 + k // 4 % 3)} for k in range(4 * groups))
    asked = (write(tmp_path / "log.jsonl", rewards), "--budget", 64, "--group-size", 4)
    record = data(capsys, *asked)
    assert any("dynamic sampling" in note for note in record["notes"])
    found, shares = record["rewards"], record["rewards"]["uniform"]
    assert [found["rates"] is None, "left out before logging" in found["refusal"]] == [groups == 40] * 2
    if groups == 40:
        assert re.search(r"^ +4 +16 +12% to 100% +yours$", told(capsys, *asked)[1], re.MULTILINE)
        assert shares["interval"]["low"] == [2.0 ** (1 - size) for size in shares["group_sizes"]]
        assert set(shares["interval"]["estimate"]) == {None}
        assert (found["weights"], found["evaluations"]) == (None, [])


def test_the_planner_counts_prompts_and_not_groups(capsys, tmp_path):
    """A log of three steps says what its last step says alone; one that was read with all its groups is refused."""
    found = [row | {"step": step} for step in (1, 2, 3) for row in rows(24, 8, seed=step)]
    path = write(tmp_path / "rollouts.jsonl", found)
    alone = write(tmp_path / "last.jsonl", [row for row in found if row["step"] == 3])
    every, last = (data(capsys, one, "--budget", 256) for one in (path, alone))
    assert every | {"notes": None} == last | {"notes": None}
    log = gt.read_rollouts(path, steps="all")
    with pytest.raises(ValueError, match="rollouts must have one group per prompt, and these 72 groups are of 24 prompts"):
        gt.plan.advise(log.rollouts.counts, 256, findings=log.findings)
    with pytest.raises(ValueError, match="rollouts must have one group per prompt"):
        gt.plan.advise_run(log, 256)


def test_the_page_of_the_docs_is_short_and_its_options_are_there():
    page = (DOCS / "planner.md").read_text(encoding="utf-8")
    offered = parser(["plan"])._subparsers._group_actions[0].choices["plan"].format_help()
    assert set(re.findall(r"`(--[a-z-]+)", page)) <= set(re.findall(r"--[a-z-]+", offered))
    assert len(page.split()) <= 1200


BAD = {
    "one response": ([row | {"prompt_id": str(i)} for i, row in enumerate(rows(6, 4))], ()),
    "all are 1": ([row | {"reward": 1.0} for row in rows(6, 4)], ()),
    "at least 3 prompts": (rows(2, 4), ()),
    "--estimator must be one of": (rows(6, 4), ("--estimator", "trl_rlo")),
    "--group-size must be one that": (rows(6, 4), ("--group-size", "999")),
    "--max-group-size must be at least 2": (rows(6, 4), ("--max-group-size", "0")),
    "--budget 64 pays for at most 32 prompts": (rows(6, 4), ("--min-prompts", "51")),
    "--budget), or the responses of the whole run (--total)": (rows(6, 4), None),
    "--total must pay at least one group of 2, which costs 2, got 1": (rows(6, 4), ("--total", "1")),
    "--total 32 is less than one batch of --budget 64": (rows(6, 4), ("--total", "32")),
    "give its responses too (--total)": (rows(6, 4), ("--training-prompts", "9")),
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


def test_a_plan_visits_at_most_28_files_of_the_package(capsys):
    """The screen asks for nothing of what other estimators gain: how far a reader of one plan has to follow it."""
    asked = ["plan", str(DOCS.parent / "examples" / "rollouts.jsonl"), "--budget", "1024", "--group-size", "8"]
    main(asked)
    found = set()
    sys.setprofile(lambda frame, event, _: found.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        main(asked)
    finally:
        sys.setprofile(None)
    package = Path(gt.__file__).parent
    assert len([name for name in found if name.endswith(".py") and Path(name).is_relative_to(package)]) <= 28
