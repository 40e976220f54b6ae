"""What a user can say of a log, and for what it is refused: the row and option are named, and nothing is written."""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pytest
from own_logs import lines

import grpo_theory as gt
from grpo_theory.page import check_command, plan_command, watch_command
from grpo_theory.page.command import main
from grpo_theory.page.row_options import rewards_of, wanted_of
from grpo_theory.samples.reward_counts import filtered, levels

ROWS = [
    {
        "q": f"q{k // 4}",
        "part": {"right": k % 2, "form": 1.0},
        "split": "a" if k < 8 else "b",
        "turns": [{"reward": 1}, {"reward": k % 2}],
    }
    for k in range(16)
]


def read(tmp_path, rows, **options):
    """Write rows, read them in both ways, and return the log."""
    path = lines(tmp_path / "log.jsonl", rows)
    log = gt.read_rollouts(path, **options)
    counts, _ = gt.read_reward_counts(path, **{name: one for name, one in options.items() if name not in ("length", "scores")})
    assert np.array_equal(counts.counts.toarray(), log.rollouts.counts.counts.toarray())
    return log


def test_paths_and_weights(tmp_path):
    log = read(tmp_path, ROWS, prompt="q", reward={"part.right": 1.0, "part.form": 0.2})
    assert log.rollouts.rewards.tolist() == pytest.approx([k % 2 + 0.2 for k in range(16)])
    assert log.findings.columns["reward"] == "part.right + 0.2 * part.form"
    log = read(tmp_path, ROWS, prompt="q", reward="turns.reward.sum")
    assert log.rollouts.rewards.tolist() == [1 + k % 2 for k in range(16)]
    log = read(tmp_path, ROWS, prompt=["split", "q"], reward="turns.reward.-1")
    assert log.rollouts.rewards.tolist() == [k % 2 for k in range(16)]
    assert log.findings.columns["prompt"] == "split and q"


def test_a_weight_may_be_negative(tmp_path):
    """A penalty is subtracted, and of a column of mistakes the response without one is the success."""
    rows = [{"q": f"p{k // 4}", "right": int(k % 3 == 0), "wrong": int(k % 3 != 0), "tokens": 10 + k} for k in range(16)]
    log = read(tmp_path, rows, prompt="q", reward=rewards_of(["right", "tokens=-0.01"]))
    assert log.rollouts.rewards.tolist() == pytest.approx([(k % 3 == 0) - 0.01 * (10 + k) for k in range(16)], abs=1e-15)
    assert log.findings.columns["reward"] == "right - 0.01 * tokens"
    log = read(tmp_path, rows, prompt="q", reward=rewards_of(["wrong=-1"]))
    assert log.findings.columns["reward"] == "-wrong"
    assert log.rollouts.counts.successes.tolist() == [2, 1, 1, 2]
    expected = read(tmp_path, rows, prompt="q", reward="right").rollouts.counts
    assert log.rollouts.counts.successes.tolist() == expected.successes.tolist()


def test_rows_asked_for(tmp_path):
    log = read(tmp_path, ROWS, prompt="q", reward="part.right", where={"split": "b"})
    assert (log.findings.rows, log.findings.kept) == (16, 8)
    assert "8 rows not asked for (where)" in str(log.findings)
    assert read(tmp_path, ROWS, prompt="q", reward="part.right", where={"split": ["a", "b"]}).findings.kept == 16
    with pytest.raises(ValueError, match=r"where must name columns of the log, got 'splt'; found the columns q, part"):
        read(tmp_path, ROWS, prompt="q", reward="part.right", where={"splt": "b"})
    with pytest.raises(ValueError, match="the log has no row left"):
        read(tmp_path, ROWS, prompt="q", reward="part.right", where={"split": "c"})


def test_files_asked_for(tmp_path):
    for seed in (0, 1):
        for step in (1, 2):
            rows = [{"prompt": f"p{step}{k // 3}", "reward": (k + seed) % 2} for k in range(12)]
            lines(tmp_path / f"seed_{seed}" / f"step_{step}.jsonl", rows)
    with pytest.raises(ValueError, match=r"several \(seed = 0, 1\): choose one, as where=\{'seed': 0\} or --where seed=0"):
        gt.read_rollouts(tmp_path)
    found = gt.read_rollouts(tmp_path, where={"seed": 1}).findings
    assert (found.files, found.steps, found.groups) == (2, (1, 2), 8)
    assert "seed_0/step_1.jsonl, seed_0/step_2.jsonl (not seed=1)" in str(found)
    assert gt.read_rollouts(tmp_path, where={"path": "*_1/*_2*"}).findings.files == 1


def test_rows_one_after_another_are_groups(tmp_path):
    rewards = np.arange(24) % 5 % 2
    log = read(tmp_path, [{"reward": float(r)} for r in rewards], group_of=6)
    assert log.findings.sizes == {6: 4}
    assert log.rollouts.counts.successes.tolist() == rewards.reshape(4, 6).sum(axis=1).tolist()
    twice = [{"prompt": "p", "reward": float(r)} for r in rewards]
    assert read(tmp_path, twice, group_of=6, batch_rows=5).findings.sizes == {6: 4}
    with pytest.raises(ValueError, match=r"prompt must name .* group_of=N \(--group-of N\) reads them without"):
        read(tmp_path, [{"reward": float(r)} for r in rewards])


def test_rows_without_a_part_of_the_reward_are_counted(tmp_path):
    rows = [{"prompt": f"p{k // 4}", "right": None if k in (5, 6) else float(k % 2), "format": 1.0} for k in range(16)]
    log = read(tmp_path, rows, reward={"right": 1.0, "format": 0.5})
    assert log.rollouts.rewards[[5, 7]].tolist() == [0.5, 1.5]
    assert "2 rows without a part of the reward, which counts as 0" in str(log.findings)


def test_rows_without_a_reward(tmp_path):
    rows = [{"prompt": f"p{k // 4}", "reward": None if k == 5 else float(k % 2)} for k in range(16)]
    with pytest.raises(
        ValueError, match=r"row 6 \(empty\)\. Choose unscored='leave' \(--unscored leave\) to leave rows without a reward out"
    ):
        read(tmp_path, rows)
    left = read(tmp_path, rows, unscored="leave")
    assert (left.findings.kept, left.findings.sizes) == (15, {3: 1, 4: 3})
    assert "1 row without a reward" in str(left.findings)
    zero = read(tmp_path, rows, unscored="zero")
    assert zero.rollouts.rewards[5] == 0.0
    assert "1 row counted as 0" in str(zero.findings)
    with pytest.raises(ValueError, match="unscored must be 'error', 'leave' or 'zero', got 'count'"):
        read(tmp_path, rows, unscored="count")


@pytest.mark.parametrize(
    ("command", "never_recommended"),
    [(plan_command, ()), (check_command, ("--reward-tolerance",)), (watch_command, ("--reward-tolerance", "--step"))],
)
def test_an_option_that_a_message_of_the_reader_recommends_is_one_of_the_command(command, never_recommended):
    """A check compares rewards as they are, and a watched file is one step."""
    parser = argparse.ArgumentParser()
    command.describe(parser)
    sources = [path.read_text(encoding="utf-8") for path in Path(gt.samples.__file__).parent.glob("*.py")]
    recommended = {found for text in sources for found in re.findall(r"(--[a-z][a-z-]+)", text)}
    assert {"--unscored", "--where", "--group-of"} <= recommended
    assert recommended - set(never_recommended) <= parser._option_string_actions.keys()


def test_rewards_of_turns_beside_one_response_are_refused_with_a_path_that_reads_them(tmp_path):
    rows = [{"prompt": f"p{k // 4}", "response": "r", "rewards": [0.0, float(k % 2)]} for k in range(16)]
    with pytest.raises(
        ValueError, match=r"row 1 of .* has 2 and one response\. Name reward='rewards\.sum' \(--reward rewards\.sum\)"
    ):
        read(tmp_path, rows)
    unlike = [{"input_prompt": f"p{k // 4}", "output_response": "r", "score": [0.0, 0.0, float(k % 2)]} for k in range(16)]
    with pytest.raises(ValueError, match=r"has 3 and one output_response\. Name reward='score\.sum'"):
        read(tmp_path, unlike)
    assert read(tmp_path, unlike, reward="score.-1").findings.sizes == {4: 4}
    assert read(tmp_path, rows, reward="rewards.sum").rollouts.rewards.tolist() == [k % 2 for k in range(16)]
    assert read(tmp_path, rows, response="").findings.sizes == {8: 4}
    uneven = [{"prompt": "p", "answers": ["a"] * (2 + (k == 250)), "rewards": [0.0, 1.0]} for k in range(6000)]
    with pytest.raises(ValueError, match="row 251 has 3 of answers beside 2 of rewards: lists that belong together"):
        read(tmp_path, uneven, response="answers")


def test_turns_are_added_up_where_their_rewards_differ_and_left_alone_where_told(tmp_path):
    rows = [
        {"task": f"t{t}", "episode_id": f"{t}{e}", "turn": turn, "reward": float(turn == e % 2)}
        for t in range(3)
        for e in range(4)
        for turn in range(2)
    ]
    log = read(tmp_path, rows)
    assert log.findings.sizes == {4: 3}
    assert log.rollouts.rewards.tolist() == [1.0] * 12
    assert "whose reward is the sum of theirs" in str(log.findings)
    assert read(tmp_path, rows, trajectory="").findings.sizes == {8: 3}


def test_counts_that_are_none(tmp_path):
    for row, message in (
        ({"problem": "p", "n_correct": 5, "k": 4}, r"n_correct must be a number of the responses \(k\); .* row 2 \(5\)"),
        ({"problem": "p", "n_correct": 1, "k": 0}, r"k must be a whole number of responses, of at least 1; .* row 2 \(0\)"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, [{"problem": "o", "n_correct": 1, "k": 4}, row])
    rates = [{"problem": f"p{k}", "solve_rate": k / 4} for k in range(4)]
    assert read(tmp_path, rates, reward="solve_rate@4").rollouts.counts.successes.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"solve_rate must be a share of the 3 responses; .*row 2 \(0.25\)"):
        read(tmp_path, rates, reward="solve_rate@3")


def test_blocks_of_a_prompt_and_groups_of_twice_the_size_are_remarked_on(tmp_path):
    order = [0, 1, 2, 0, 3, 1]
    rows = [{"prompt": f"p{p}", "reward": float(k % 2)} for p in order for k in range(4)]
    assert "The rows of 2 of 4 groups come in several blocks of 4 rows" in str(read(tmp_path, rows).findings)
    assert read(tmp_path, rows, group_of=4).findings.sizes == {4: 6}
    rows = [{"prompt": f"p{p}", "reward": float(k % 2)} for p in (0, 0, 1, 2, 3, 4) for k in range(4)]
    assert "Most groups have 4 responses, and some a multiple of that (1 of 8)" in str(read(tmp_path, rows).findings)
    rows = [{"prompt": f"p{p}", "reward": float(k % 2)} for k in range(4) for p in range(4)]  # round about: nothing to remark on
    assert "block" not in str(read(tmp_path, rows).findings)


def test_a_filter_before_logging_is_found_and_no_log_without_one_is_suspected():
    """At 300 draws each: groups as they come are suspected hardly ever, and filtered ones of small size nearly always."""
    rng = np.random.default_rng(11)
    suspected = {False: 0, True: 0}
    for _ in range(300):
        rates = rng.beta(2.0, 2.0, 400)
        successes = rng.binomial(4, rates)
        for chosen in suspected:
            kept = successes[(successes > 0) & (successes < 4)] if chosen else successes[:60]
            rewards = (np.arange(4) < kept[:60, None]).astype(float)
            counts = gt.RewardCounts.from_rewards(np.repeat(np.arange(len(rewards)), 4), rewards.ravel())
            suspected[chosen] += filtered(counts) > 0.0
    assert suspected[False] == 0
    assert suspected[True] == 300


def test_of_filtered_groups_shares_have_limits_that_are_true_and_no_estimate(tmp_path, capsys):
    rows = [{"prompt": f"p{k // 4}", "reward": float(k % 4 < 1 + k // 4 % 3)} for k in range(240)]
    path = lines(tmp_path / "log.jsonl", rows)
    assert main(["plan", str(path), "--budget", "64", "--group-size", "4", "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)
    for row in record["uniform_groups"]:
        assert row["share"] is None
        assert (row["low"], row["high"]) == (2.0 ** (1 - row["group_size"]), 1.0)
    assert record["success_rates"] is record["prompt_weights"] is None
    assert record["evaluations"] == []
    assert "left out before logging" in record["rewards"]["missing"]


def test_levels_of_rewards():
    values = np.array([0.0, 0.0004, 0.001, 0.5, 0.9995, 1.0])
    assert levels(values, 0.0) is values
    assert levels(values, 0.001) == pytest.approx([0.0014 / 3] * 3 + [0.5] + [0.99975] * 2)
    assert np.unique(levels(values, 0.0005)).size == 4
    with pytest.raises(ValueError, match="reward_tolerance must be at least 0, got -1"):
        levels(values, -1.0)


def test_what_the_command_line_says(tmp_path, capsys):
    assert rewards_of(None) is None
    assert rewards_of(["a"]) == "a"
    assert rewards_of(["a", "b"]) == ["a", "b"]
    assert rewards_of(["a=1", "b=0.2", "c"]) == {"a": 1.0, "b": 0.2, "c": 1.0}
    assert rewards_of(["a=b"]) == "a=b"
    assert wanted_of(["split=train", "step=1", "step=2"]) == {"split": ["train"], "step": ["1", "2"]}
    path = lines(tmp_path / "log.jsonl", ROWS)
    before = path.read_bytes()
    asked = [
        "plan",
        str(path),
        "--budget",
        "64",
        "--prompt",
        "q",
        "--reward",
        "part.right=1",
        "--json",
        str(tmp_path / "out.json"),
    ]
    assert main([*asked, "--where", "split"]) == 2
    assert "--where must be KEY=VALUE, as split=train, got split" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
    assert main([*asked, "--where", "split=*", "--group-size", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "READ AS 16 rows in 1 file columns: prompt = q, reward = part.right; not read: split, turns 4 prompts, 4 groups"
    )
    assert "The groups of the log have 4 responses, and none the 2 of your group size (--group-size)." in said
    assert path.read_bytes() == before
    assert main([*asked[:-2], "--json", str(path)]) == 2
    assert path.read_bytes() == before
