"""Logs with several columns that may be rewards: which is taken, what is said of the others, and names that are nearly right."""

import json

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.page.command import main

PROMPTS, SIZE = 12, 8


def written(folder, row, seed=3):
    """Write a log whose rows are made from a prompt's number, a response's number, accuracy and format."""
    rng = np.random.default_rng(seed)
    path = folder / "log.jsonl"
    rows = []
    for prompt in range(PROMPTS):
        for response in range(SIZE):
            accuracy, form = float(rng.random() < 0.4), float(rng.random() < 0.7)
            rows.append(row(prompt, response, accuracy, form))
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def nested(prompt, _, accuracy, form):
    return {"prompt_id": f"q{prompt}", "rm": {"accuracy": accuracy, "format": form}, "total": accuracy + 0.2 * form}


def flat(prompt, _, accuracy, form):
    return {"prompt_id": prompt, "accuracy": accuracy, "format": form, "kl": 0.1, "total": accuracy + 0.2 * form}


def read(path, **options):
    found = gt.read_rollouts(path, **options).findings
    return found.columns["reward"], found


@pytest.mark.parametrize(("row", "first"), [(nested, "rm.accuracy + 0.2 * rm.format"), (flat, "accuracy + 0.2 * format")])
def test_a_total_that_is_the_sum_of_the_rewards_is_taken_and_said(row, first, tmp_path, capsys):
    path = written(tmp_path, row)
    reward, found = read(path)
    assert reward == "total"
    assert f"total is taken for the reward: in the first rows it is {first} (--reward " in found.remarks[0]
    assert set(found.rewards) <= {0.0, 0.2, 1.0, 1.2}
    for command in (["plan", str(path), "--budget", "64"], ["check", str(path)]):
        assert main(command) == 0
        assert "total is taken for the reward" in " ".join(capsys.readouterr().out.split()), command[0]


def test_a_total_that_is_no_sum_of_the_rewards_is_named_and_not_taken(tmp_path):
    """The control: a number with this name may count tokens."""
    path = written(tmp_path, lambda q, i, a, m: {**flat(q, i, a, m), "total": 100 + q * i})
    reward, found = read(path)
    assert reward == "accuracy"
    assert found.remarks[0].startswith("accuracy is taken for the reward, and format, total may be rewards too: --reward total")


def test_of_several_rewards_without_a_total_the_others_are_named(tmp_path, capsys):
    path = written(tmp_path, lambda q, i, a, m: {"prompt_id": q, "rm": {"accuracy": a, "format": m}})
    reward, found = read(path)
    assert reward == "rm.accuracy"
    assert found.remarks[0] == (
        "rm.accuracy is taken for the reward, and rm.format may be one too: --reward rm.format takes another, "
        "--reward rm.accuracy=1 --reward rm.format=0.5 adds two up with weights."
    )
    assert main(["plan", str(path), "--budget", "64", "--reward", "rm.accuracy=1", "--reward", "rm.format=0.5"]) == 0
    assert "0.5 * rm.format" in capsys.readouterr().out, "what the remark recommends is read"


@pytest.mark.parametrize(
    "row",
    [
        lambda q, i, a, m: {"prompt_id": q, "reward": a, "kl": 0.1, "length": i},
        lambda q, i, a, m: {"prompt_id": q, "accuracy": a, "kl": 0.1, "entropy": m},
        lambda q, i, a, m: {"prompt_id": q, "reward": a, "score": m},
    ],
)
def test_nothing_is_said_where_one_column_is_the_reward(row, tmp_path):
    assert read(written(tmp_path, row))[1].remarks == ()


def test_a_reward_that_was_named_is_taken_without_a_word(tmp_path):
    reward, found = read(written(tmp_path, nested), reward="rm.accuracy")
    assert (reward, found.remarks) == ("rm.accuracy", ())


def test_a_name_without_its_path_is_answered_with_the_path(tmp_path):
    with pytest.raises(ValueError, match=r"got 'accuracy'; found .*; did you mean rm\.accuracy\?"):
        read(written(tmp_path, nested), reward="accuracy")


def test_columns_that_a_check_did_not_read_are_listed(tmp_path, capsys):
    path = written(tmp_path, lambda q, i, a, m: {"prompt_id": q, "reward": a, "advantage": a - 0.4, "kl": 0.1, "entropy": m})
    assert main(["check", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "columns: prompt = prompt_id, reward = reward, advantage = advantage; not read: kl, entropy." in out


@pytest.mark.parametrize("unscored", ["error", "leave", "zero"])
def test_an_infinite_reward_is_answered_with_what_helps(unscored, tmp_path):
    path = written(tmp_path, lambda q, i, a, m: {"prompt_id": q, "reward": float("inf") if (q, i) == (0, 3) else a})
    with pytest.raises(ValueError, match=r"row 4 \(inf\). No option reads these. Correct the rows, or leave their rewards empty"):
        read(path, unscored=unscored)


def test_an_id_of_responses_named_like_one_of_prompts_is_said_not_to_be_taken(tmp_path):
    _, found = read(written(tmp_path, lambda q, i, a, m: {"qid": f"{q}-{i}", "question": f"q{q}", "reward": a}))
    assert found.columns["prompt"] == "question"
    assert found.remarks == ("qid is another in each row, so it is no id of prompts: question is taken.",)


def test_ids_that_no_responses_share_are_refused_with_the_options(tmp_path):
    path = written(tmp_path, lambda q, i, a, m: {"qid": q * SIZE + i, "family": q, "reward": a})
    with pytest.raises(ValueError, match=r"prompt \(qid\) must be shared .*\(--prompt COLUMN\).*\(not read: family\)"):
        read(path)
    assert read(path, prompt="family")[1].sizes == {SIZE: PROMPTS}, "what the message recommends"


def test_a_run_is_planned_for_graded_rewards_and_for_the_column_of_successes_beside_them(tmp_path, capsys):
    path = written(tmp_path, lambda q, i, a, m: {"prompt_id": q, "reward": a + 0.2 * m, "correct": a})
    assert main(["plan", str(path), "--total", "96", "--max-group-size", "2"]) == 0
    assert "not read: correct" in capsys.readouterr().out
    assert main(["plan", str(path), "--total", "96", "--max-group-size", "2", "--reward", "correct"]) == 0


def test_a_check_weighs_rewards_as_a_plan_does(tmp_path):
    path = written(tmp_path, lambda q, i, a, m: {"prompt_id": q, "rm": {"accuracy": a, "format": m}, "advantage": a + 0.5 * m})
    assert (
        main(["check", str(path), "--reward", "rm.accuracy=1", "--reward", "rm.format=0.5", "--json", str(tmp_path / "o")]) == 0
    )
    assert json.loads((tmp_path / "o").read_text())["columns"]["reward"] == "rm.accuracy + 0.5 * rm.format"
