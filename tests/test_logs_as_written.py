"""Logs as trainers and their users write them: each is read as its schema says, or refused with the option that reads it.

What is expected of those in tests/data/logs was computed from the schemas by others, and not by this package. Those whose
names begin with B are of our own making: the same groups in many nestings, which no schema has.
"""

from pathlib import Path

import pandas as pd
import pytest
from tables import write

import grpo_theory as gt
from grpo_theory.logs.schema import schemas

LOGS = Path(__file__).parent / "data" / "logs"

# Schema, groups of all steps, steps, size of all groups, mean reward, groups of equal rewards.
GIVEN = {
    "A01_scores_are_rubric_marks.jsonl.gz": ("plain", 12, 1, 6, 0.7222, 7),
    "A02_tinker": ("tinker", 16, 2, 8, 0.5078, 5),
    "A03_open_instruct": ("open-instruct", 18, 3, 8, 3.9583, 1),
    "A03_open_instruct_folder": ("open-instruct", 18, 3, 8, 3.9583, 1),
    "A04_prompt_idx_against_text.jsonl.gz": ("open-instruct", 18, 3, 8, 0.4167, 1),
    "A05_prime_rl_flat": ("verifiers", 30, 3, 8, 0.4958, 8),
    "A08_dynamic_sampling.jsonl.gz": ("verl", 40, 1, 4, 0.5, 0),
    "A09_uid_is_the_group.jsonl": ("verl", 8, 1, 8, 0.5781, 1),
    "A10_row_a_turn.jsonl.gz": ("verl-agent", 10, 1, 8, 0.5375, 0),
    "A13_verifiers": ("verifiers", 6, 1, 8, 0.5208, 0),
    "A15_prime_rl_traces": ("prime-rl", 6, 1, 8, 0.7625, 1),
    "A16_swift": ("ms-swift", 12, 2, 8, 0.5417, 0),
    "A18_openr1": ("openr1", 12, 1, 4, 0.4792, 1),
    "A20_n_correct_of_k.jsonl": ("n-of-k", 12, 1, 8, 0.5104, 0),
    "A21_pass_rate.jsonl": ("pass-rate", 12, 1, 8, 0.4688, 0),
    "A22_wandb.table.json": ("trl", 6, 1, 8, 0.5, 0),
    "A23_nemo_rl": ("nemo-rl", 6, 1, 8, 0.6042, 0),
    "A25_rl2": ("rl2", 6, 1, 8, 0.625, 0),
    "A26_tiny_differences.jsonl.gz": ("plain", 20, 1, 8, None, 0),
    "A31_easy_prompts.jsonl.gz": ("plain", 100, 1, 64, 0.9113, 70),
    "F02_atropos_groups.jsonl.gz": ("atropos", 60, 1, 8, 0.5104, 29),
    "F05_miles": ("slime", 16, 1, 8, None, 8),
    "F06_tunix": ("tunix", 15, 1, 4, None, 8),
    "F07_nemo_gym": ("nemo-gym", 20, 1, 5, None, 10),
    "F08_lightrft": ("lightrft", 10, 1, 4, None, 7),
    "F12_harbor": ("harbor", 2, 1, 5, 0.6, 1),
    "F20_verl_collapse": ("verl", 480, 60, 4, None, 173),
    "F22_groups_of_two.jsonl.gz": ("plain", 100, 1, 2, 0.5, 50),
    "F35_fanout_rows.jsonl.gz": ("slime", 30, 1, 4, None, 15),
}
OPTIONS = {
    "A07_trl_images": ({"group_of": 8}, "agree in blocks of 8 rows.*--group-of 8", (16, 8, 4)),
    "A30_trl_log_extra": ({"reward": "accuracy"}, "accuracy, n_tool_calls may be a reward function: --reward COLUMN", (6, 8, 0)),
    "F11_reward_function_log.jsonl.gz": ({"group_of": 2}, "--prompt COLUMN, or --group-of N", (536, 2, 369)),
    "F09_easyr1": ({}, "--reward COLUMN", None),
    "F30_metrics_only": ({}, "--prompt COLUMN", None),
}
"""Logs that are refused: the options that read them, what the message names, and groups, size and groups of equal rewards."""
IN_NAME = "in_path('iter([0-9]+)')"
OURS = {
    "B01_hive_parquet": {"prompt": "task_hash", "reward": "success", "files": "*split=train*"},
    "B02_arrow_on_disk": {"prompt": "item_id"},
    "B03_evaluation_between.jsonl": {"where": "phase == 'train'"},
    "B04_index_and_step_in_file_names": {"prompt": "(problem_index, file)", "reward": "grade", "step": IN_NAME},
    "B05_nested_objects.ndjson": {
        **{"prompt": "meta.problem.uid", "reward": "sample.eval.reward.total"},
        "step": "meta.global_step",
    },
    "B06_conversations.jsonl": {"prompt": "opening(messages)"},
    "B07_turns_of_episodes.jsonl": {"prompt": "instance_id", "rollout": "episode_id", "step": "iter", "turns": "last"},
    "B08_turns_under_the_name_of_steps.jsonl": {"prompt": "qid", "rollout": "session_id", "step": "epoch", "turns": "last"},
    "B09_lists_of_lists_a_step.jsonl": {"prompt": "each(questions)", "reward": "each(each(returns))"},
    "B10_samples_whose_reward_is_an_object.jsonl": {
        **{"prompt": "each(samples.prompt)", "reward": "each(samples.reward.score)"},
        "step": "rollout_step",
    },
    "B11_a_line_of_scores_a_group.jsonl": {"prompt": "row", "reward": "each(scores)", "step": "train_iter"},
    "B13_a_table_of_lists.csv": {"prompt": "instruction", "reward": "each(rewards)", "step": "update"},
    "B14_a_table_of_counts.csv": {"prompt": "problem_id", "reward": "successes(num_solved, num_attempts)"},
}
SUCCESSES = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4]
"""Of the groups of all logs of our own: they were made with these."""


@pytest.mark.parametrize(("name", "expected"), GIVEN.items())
def test_a_log_of_a_trainer_is_read_as_its_schema_says(name, expected):
    schema, groups, steps, size, mean, equal = expected
    log = gt.read_rollouts(LOGS / name, steps="all")
    found = log.findings
    assert (found.schema, found.groups, max(len(found.steps), 1), dict(found.sizes)) == (schema, groups, steps, {size: groups})
    assert (found.uniform, log.rows.groupby("group").size().tolist()) == (equal, [size] * groups)
    assert mean is None or log.rollouts.rewards.mean() == pytest.approx(mean, abs=5e-5)
    assert ("No group of" in str(found)) == (equal == 0 and name[:3] != "A26")
    assert gt.read_rollouts(LOGS / name, schema=schema).findings.schema == schema


@pytest.mark.parametrize(("name", "expected"), OPTIONS.items())
def test_what_no_schema_tells_is_refused_with_the_option_that_reads_it(name, expected):
    options, message, found = expected
    with pytest.raises(ValueError, match=message):
        gt.read_rollouts(LOGS / name)
    if found:
        log = gt.read_rollouts(LOGS / name, steps="all", **options)
        assert (log.findings.groups, *log.findings.sizes, log.findings.uniform) == found


@pytest.mark.parametrize(("name", "options"), OURS.items())
def test_expressions_read_other_nestings(name, options):
    with pytest.raises(ValueError, match=r"--(prompt|reward|where|files)"):
        gt.read_rollouts(LOGS / name)
    log = gt.read_rollouts(LOGS / name, steps="all", **options)
    assert sorted(log.rollouts.counts.successes) == SUCCESSES
    assert (log.findings.sizes, len(log.findings.steps)) == ({4: 15}, 3)
    assert gt.read_rollouts(LOGS / name, **options).findings.groups == 15, "prompts of different steps are different ones"


def test_what_a_trainer_logs_beside_rewards_is_read(tmp_path):
    nemo = gt.read_rollouts(LOGS / "A23_nemo_rl").rows
    assert {"advantage", "length", "sampled", "behaviour", "mask"} <= set(nemo)
    assert nemo["advantage"].groupby(nemo["group"]).sum().abs().max() < 1e-6
    agents = gt.read_rollouts(LOGS / "F15_turn_rows_advantage.jsonl.gz").rows
    assert (len(agents), agents["turns"].sum(), agents.groupby("group").size().unique()) == (100, 318, [4])
    assert gt.read_rollouts(LOGS / "A02_tinker").findings.prompts == 16, "ids that begin anew are of other prompts"
    unscored = gt.read_rollouts(LOGS / "F27_unscored_trl.jsonl")
    assert (unscored.findings.left_out, len(unscored.rows)) == ({"rows without a reward": 2}, 10)
    uneven = gt.read_rollouts(LOGS / "F14_slime_uneven.jsonl")
    assert (uneven.findings.sizes, uneven.lengths.min()) == ({2: 1, 3: 1, 4: 1}, 5.0)
    near = gt.read_rollouts(LOGS / "A26_tiny_differences.jsonl.gz", reward="round(reward, 2)").findings
    assert (len(near.rewards), near.uniform) == (2, 16)


def test_rewards_are_added_up_as_in_trl(tmp_path):
    right, form = [1.0, 0.0, None, 1.0], [0.5, 0.5, 1.0, None]
    columns = {"step": 1, "prompt": list("aabb"), "completion": list("wxyz"), "right": right, "reward/form": form}
    pd.DataFrame(columns).to_parquet(tmp_path / "completions_00001.parquet")
    message = r"right, `reward/form` may be a reward function: .* --reward 'right \+ 0.5 \* `reward/form`'"
    with pytest.raises(ValueError, match=message):
        gt.read_rollouts(tmp_path)
    for reward, found in (("right + `reward/form`", [1.5, 0.5, 1.0, 1.0]), ("2 * right - `reward/form`", [1.5, -0.5])):
        assert gt.read_rollouts(tmp_path, reward=reward, lone="keep").rows["reward"].tolist() == found


def test_two_schemas_that_fit_are_named(tmp_path):
    rows = [{"input": k // 4, "score": k % 2, "n_correct": 1, "k": 2} for k in range(8)]
    path = write(tmp_path / "log.jsonl", rows)
    with pytest.raises(ValueError, match=r"fits 2 schemas, verl and n-of-k: say which it is \(--schema verl\)"):
        gt.read_rollouts(path)
    assert gt.read_rollouts(path, schema="verl").findings.sizes == {4: 2}


def test_the_table_of_schemas_is_the_declared_one():
    text = (Path(__file__).parents[1] / "docs" / "planner.md").read_text()
    for one in schemas().values():
        assert f"\n| {one.name} | {one.about} |\n" in text
