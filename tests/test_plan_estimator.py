"""`grpo-theory plan --estimator`: the plan is for the estimator that is named, and says what another would gain."""

import json

import numpy as np
import pytest
from tables import answer, rows, write

import grpo_theory as gt
from grpo_theory.page.command import main
from grpo_theory.plan.estimator_advice import OTHERS, logged_size


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plan") / "rollouts.jsonl", rows())


def told(capsys, table, *more):
    status = main(["plan", str(table), "--budget", "1024", *more])
    out, err = capsys.readouterr()
    return status, [" ".join(part.split()) for part in (answer(out) if out else out).split("\n\n")], err


def part(found, title):
    (one,) = (text for text in found if text.startswith(title))
    return one


@pytest.mark.parametrize("name", ["trl_grpo", "grpo", "verl_grpo", "nemo_rl", "max_rl"])
def test_the_recommendation_is_for_the_named_estimator(name, capsys, table):
    status, found, _ = told(capsys, table, "--group-size", "6", "--estimator", name)
    choice = gt.plan.advise(gt.read_rollouts(table), 1024, group_size=6, estimator=name).scores.own
    assert status == 0
    assert found[0].startswith(f"RECOMMENDATION Use {name} with groups of {choice.group_size}: {choice.batch_size} prompts with")
    assert "Groups of up to 8 were compared, the number of responses logged for each prompt" in found[0]
    assert choice.group_size == 6 or f"more efficiency with {name}" in found[0]
    assert found[1].startswith(f"WHAT IT RESTS ON You named {name}.")
    assert "no unbiased estimate exists" in found[1]
    assert f"with {name}" in part(found, "HOW SURE")
    assert f"All rows are with {name}" in part(found, "GROUP SIZES")
    assert f"advantages of {name}" in part(found, "ASSUMED")
    assert not any(text.startswith("BASELINE") for text in found)
    assert choice.group_sizes.tolist() == list(range(2, 9))


def test_other_estimators_stand_beside_the_recommendation(capsys, table):
    for name in (None, "rloo", "trl_grpo"):
        advice = gt.plan.advise(gt.read_rollouts(table), 1024, estimator=name)
        own = {"rloo"} if name is None else {name}
        # All limits hold at once, so that each has a third of the error probability.
        assert [one.gain.level for one in advice.scores.by_efficiency.others] == pytest.approx([1.0 - 0.05 / 3.0] * 3)
        assert [one.name for one in advice.scores.by_efficiency.others] == [one for one in OTHERS if one not in own]
        _, found, _ = told(capsys, table, *(() if name is None else ("--estimator", name)))
        assert any(text.startswith("OTHER ESTIMATORS") for text in found)
    for alias in ("trl_grpo_loss", "grpo"):  # the same advantages by composition, and by a kernel of another name
        without = gt.plan.advise(gt.read_rollouts(table), 1024, estimator=alias)
        assert [one.name for one in without.scores.by_efficiency.others] == ["rloo", "nemo_rl", "max_rl"]


def test_what_rloo_gains_over_another_is_what_the_other_loses_to_it(table):
    """The gain is of the better batches of both, so that one way is the inverse of the other."""
    log = gt.read_rollouts(table)
    first, second = (
        {one.name: one for one in gt.plan.advise(log, 1024, estimator=name).scores.by_efficiency.others}
        for name in ("max_rl", "nemo_rl")
    )
    forth, back = first["nemo_rl"].gain, second["max_rl"].gain
    assert (1.0 + forth.estimate) * (1.0 + back.estimate) == pytest.approx(1.0)
    if np.isfinite(forth.high) and forth.low > -1.0:
        assert (1.0 + forth.high) * (1.0 + back.low) == pytest.approx(1.0, rel=0.2)


def test_the_numbers_of_a_baseline_do_not_depend_on_the_comparison(table):
    """Named RLOO, and no name, are planned by squared error, with the numbers of `choose_group_size`."""
    log = gt.read_rollouts(table)
    for name in ("rloo", "dr_grpo"):
        scores = gt.plan.advise(log, 1024, estimator=name).scores
        expected = gt.plan.choose_group_size(log.rollouts, gt.plan.Limits(budget=1024))
        assert scores.own is None
        assert scores.choice.group_size == expected.group_size
        assert (scores.recommended.choice.mse.estimate == expected.mse.estimate).all()


@pytest.mark.parametrize("name", ["trl_dapo_loss", "trl_grpo_loss", "gspo", "cispo"])
def test_weights_by_length_are_said_to_be_left_out_first(name, capsys, table):
    _, found, _ = told(capsys, table, "--estimator", name)
    assert f"{name} weighs tokens by the lengths of responses" in found[0]
    assert "for its advantages alone" in found[0]
    assert "weighs tokens" not in " ".join(told(capsys, table, "--estimator", "trl_grpo")[1])


def test_the_best_at_the_logged_size_is_said_to_be_at_the_edge(capsys, tmp_path):
    found = [{**row, "sketch": [row["reward"] - 0.5 + 0.01 * float(i % 3)]} for i, row in enumerate(rows(40, 4))]
    _, text, _ = told(capsys, write(tmp_path / "alike.jsonl", found), "--estimator", "trl_grpo", "--cost-prompt", "50")
    assert text[0].startswith("RECOMMENDATION Use trl_grpo with groups of 4:")
    assert "Larger groups may be better, but this table cannot tell" in text[0]
    _, text, _ = told(capsys, write(tmp_path / "alike.jsonl", found), "--estimator", "trl_grpo", "--group-size", "16")
    assert "Your group size 16 is above the 4 responses logged for each prompt" in text[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("james_stein", "those of 'james_stein' depend on the other groups of the batch"),
        ("optimal_loo", "those of 'optimal_loo' depend on squared score norms"),
        ("trl_grop", "did you mean 'trl_grpo'"),
    ],
)
def test_estimators_that_cannot_be_planned_have_one_message(name, reason, capsys, table):
    status, found, err = told(capsys, table, "--estimator", name)
    assert (status, found) == (2, [""])
    assert err.startswith("grpo-theory plan: --estimator must be one")
    assert err.count("\n") == 1
    assert reason in err


def test_rewards_alone_are_told_of_any_estimator(capsys, table):
    for name in ("trl_grpo", "james_stein"):
        status, found, _ = told(capsys, table, "--estimator", name, "--rewards-only")
        assert status == 0
        assert found[0].startswith("THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE")


def test_many_different_rewards_leave_the_leave_one_out_plan_and_say_why(capsys, tmp_path):
    found = [{**row, "reward": float(i % 13)} for i, row in enumerate(rows())]
    path = write(tmp_path / "graded.jsonl", found)
    _, text, _ = told(capsys, path, "--estimator", "trl_grpo")
    assert text[0].startswith("RECOMMENDATION Use the leave-one-out baseline")
    assert "the table has 13 different rewards, and the law of trl_grpo is known for at most 8" in text[1]
    assert not any(one.startswith("OTHER ESTIMATORS") for one in text)
    _, text, _ = told(capsys, table_of_three(tmp_path), "--estimator", "trl_grpo")
    assert text[0].startswith("RECOMMENDATION Use trl_grpo")


def table_of_three(folder):
    """Write a log with three different rewards."""
    return write(folder / "three.jsonl", [{**row, "reward": row["reward"] * (1 + i % 2)} for i, row in enumerate(rows())])


def test_limits_that_allow_no_logged_size_leave_the_leave_one_out_plan(capsys, table):
    _, text, _ = told(capsys, table, "--estimator", "trl_grpo", "--multiple-of", "1024")
    assert text[0].startswith("RECOMMENDATION Use trl_grpo with groups of")
    _, text, _ = told(capsys, table, "--estimator", "trl_grpo", "--multiple-of", "37", "--max-responses", "37")
    assert text[0].startswith("RECOMMENDATION Use the leave-one-out baseline and groups of 37")
    assert "budget and limits allow no group of at most 8, the number of responses that the prompts have" in text[1]


def test_groups_of_several_sizes_are_planned_up_to_what_half_of_them_have(tmp_path, capsys):
    assert logged_size(np.array([4, 8, 8, 16])) == 8
    assert logged_size(np.array([4, 8, 16])) == 4
    assert logged_size(np.array([64] * 5 + [4] * 4)) == 64
    found = [row for i, row in enumerate(rows()) if i // 8 % 3 or i % 8 < 5]
    path = write(tmp_path / "ragged.jsonl", found)
    advice = gt.plan.advise(gt.read_rollouts(path), 1024, estimator="trl_grpo")
    assert advice.scores.by_efficiency.largest == 8
    assert advice.scores.by_efficiency.prompts == 32
    assert advice.scores.prompts == 48
    _, text, _ = told(capsys, path, "--estimator", "trl_grpo")
    assert "of 32 prompts" in text[1]


def test_json_says_the_same_and_nothing_of_a_baseline(capsys, table):
    for more in ((), ("--group-size", "8"), ("--group-size", "64")):
        assert main(["plan", str(table), "--budget", "1024", "--estimator", "trl_grpo", "--json", "-", *more]) == 0
        found = json.loads(capsys.readouterr().out)
        choice = gt.plan.advise(gt.read_rollouts(table), 1024, estimator="trl_grpo").scores.own
        recommended = found["recommendation"]
        assert (recommended["baseline"], recommended["before_rounding"]) == (None, None)
        assert recommended["group_size"] == choice.group_size
        assert [row["efficiency"] for row in found["group_sizes"]] == choice.efficiency.tolist()
        assert {row["mse"] for row in found["group_sizes"]} == {None}
        assert found["by_efficiency"]["planned"]
        assert found["by_efficiency"]["largest"] == 8
        assert (found["current"] is None) == (more != ("--group-size", "8"))
        assert found["rivals"] == []
        assert [one["name"] for one in found["by_efficiency"]["other_estimators"]] == ["rloo", "nemo_rl", "max_rl"]


def test_the_page_shows_the_curve_of_the_estimator(table):
    for size in (None, 8, 64):
        page = gt.page.to_html(gt.plan.advise(gt.read_rollouts(table), 1024, group_size=size, estimator="trl_grpo"))
        assert "best efficiency above this one" in page
        assert "Use trl_grpo with groups of" in page
        assert ("yours: 8" in page) == (size == 8)
