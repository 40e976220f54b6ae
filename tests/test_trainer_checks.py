"""Checks of a trainer: the convention of logged advantages, groups that contradict it, ratios, direction, and what is missing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_trainers import ADVANTAGES, transcriptions

import grpo_theory as gt
from grpo_theory.checks.contradictions import EXPLANATIONS
from grpo_theory.checks.importance import effective_share
from grpo_theory.page.command import main

PROMPTS, SIZE = 24, 8
SAME = {
    **dict.fromkeys(("trl_grpo_none", "verl_dr_grpo", "openrlhf_dr_grpo", "prime_rl", "tinker"), "trl_grpo_none"),
    **dict.fromkeys(("trl_rloo", "verl_rloo", "openrlhf_rloo"), "trl_rloo"),
}
"""Conventions that are one formula for groups of two or more."""
ALIKE = {
    "verl_grpo": ("openrlhf_group_norm",),
    "openrlhf_group_norm": ("verl_grpo",),
    "trl_grpo_none": ("verl_gpg",),
    "verl_gpg": ("trl_grpo_none",),
}
"""What these rewards do not tell apart: epsilons of 1e-6 and 1e-9 beside deviations of 1 in float32, and gpg if none is 0."""


def rollouts(kind="graded", seed=0):
    """Return rewards (B, G) and lengths (B, G)."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 0.9, (PROMPTS, 1))
    rewards = rng.random((PROMPTS, SIZE)) < rates if kind == "binary" else rng.normal(size=(PROMPTS, SIZE)).round(3)
    return rewards.astype(float), rng.integers(5, 60, (PROMPTS, SIZE))


def table(rewards, advantages, lengths=None, step=1):
    """Return a log's rows, prompt by prompt, with advantages as a trainer's float32."""
    size = np.shape(rewards)[1]
    rows = {"prompt_id": np.repeat(np.arange(len(rewards)), size), "reward": np.ravel(rewards), "step": step}
    rows["advantage"] = np.ravel(advantages).astype(np.float32).astype(float)
    if lengths is not None:
        rows["length"] = np.ravel(lengths)
    return pd.DataFrame(rows)


def checked(log, folder, /, **options):
    path = folder / "log.parquet"
    log.to_parquet(path)
    return gt.checks.check_log(path, **options)


def names(check):
    return {name for one in check.fits for name in one.candidate.names}


@pytest.mark.parametrize("kind", ["binary", "graded"])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_every_convention_is_found_from_what_its_source_says(name, kind, tmp_path):
    rewards, lengths = rollouts(kind)
    check = checked(table(rewards, transcriptions(rewards, lengths)[name], lengths), tmp_path)
    assert check.followed
    assert check.fits[0].share == 1.0
    assert check.contradictions.total == check.contradictions.unequal == 0
    found = names(check)
    assert name in found
    others = {SAME.get(one, one) for one in found & set(ADVANTAGES)}
    if kind == "graded":
        assert others <= {SAME.get(name, name), *ALIKE.get(SAME.get(name, name), ())}


def test_numbers_of_a_convention_are_told_apart(tmp_path):
    rewards, lengths = rollouts()
    expected = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True) + 1e-4)
    check = checked(table(rewards, expected, lengths), tmp_path)
    assert not names(check), "no trainer has ddof 0 and epsilon 1e-4"
    parameters = check.fits[0].candidate.estimator.advantage.parameters
    assert parameters["ddof"] == 0.0
    assert {one.candidate.estimator.advantage.parameters["epsilon"] for one in check.fits} == {1e-4}


@pytest.mark.parametrize("decimals", [3, 4])
def test_rounded_logs_are_read_to_their_last_digit(decimals, tmp_path):
    rewards, _ = rollouts("binary")
    rows = table(rewards, standard(rewards))
    rows["advantage"] = rows["advantage"].round(decimals)
    check = checked(rows, tmp_path)
    assert check.fits[0].share == 1.0
    assert "trl_grpo" in names(check)
    assert "rllm" not in names(check)


def test_noise_follows_nothing(tmp_path):
    rewards, _ = rollouts()
    noise = np.random.default_rng(5).normal(size=rewards.shape)
    check = checked(table(rewards, noise), tmp_path)
    assert not check.followed
    assert check.regrouping is None
    assert "No registered convention" in gt.page.check_to_text(check)


def standard(rewards):
    return (rewards - rewards.mean(axis=-1, keepdims=True)) / (rewards.std(axis=-1, ddof=1, keepdims=True) + 1e-4)


def test_advantages_over_the_wrong_axis_are_named(tmp_path):
    rewards, _ = rollouts()
    check = checked(table(rewards, standard(rewards.T).T), tmp_path)
    assert not check.followed
    assert check.regrouping.name == "strided"
    assert "wrong axis" in gt.page.check_to_text(check)


def test_advantages_over_the_whole_batch_are_named(tmp_path):
    rewards, _ = rollouts()
    check = checked(table(rewards, standard(rewards.reshape(1, -1)).reshape(rewards.shape)), tmp_path)
    assert check.regrouping.name == "whole batch"


@pytest.mark.parametrize("kind", ["binary", "graded"])
def test_reversed_signs_of_all_advantages_are_named(kind, tmp_path):
    rewards, _ = rollouts(kind)
    check = checked(table(rewards, -standard(rewards)), tmp_path)
    assert not check.followed
    assert check.regrouping is None
    assert "trl_grpo" in {name for one in check.negated for name in one.candidate.names}
    assert check.negated[0].share == 1.0
    text = " ".join(gt.page.check_to_text(check).split())
    assert "Wrong sign: with the signs of all advantages reversed, they follow" in text
    assert gt.page.check_to_dict(check)["negated"][0]["share"] == 1.0


@pytest.mark.parametrize("reversed_share", [0.0, 0.3])
def test_signs_of_few_groups_are_no_reversed_sign_of_all(reversed_share, tmp_path):
    """The control: with the right signs in most groups the convention is followed, and the others are named one by one."""
    rewards, _ = rollouts()
    signs = np.where(np.arange(PROMPTS) < reversed_share * PROMPTS, -1.0, 1.0)[:, None]
    check = checked(table(rewards, signs * standard(rewards)), tmp_path)
    assert check.followed
    assert check.negated == ()
    assert set(check.contradictions.counts) <= {"wrong sign"}


@pytest.mark.parametrize("advantages", [lambda r: np.random.default_rng(5).normal(size=r.shape), lambda r: standard(r.T).T])
def test_noise_and_wrong_groups_are_no_reversed_sign(advantages, tmp_path):
    rewards, _ = rollouts()
    assert checked(table(rewards, advantages(rewards)), tmp_path).negated == ()


def test_groups_of_neighbouring_rows_where_prompts_alternate_are_named(tmp_path):
    rewards, _ = rollouts()
    rows = table(rewards, rewards)
    rows = rows.sort_index(key=lambda k: k % SIZE, kind="stable").reset_index(drop=True)  # prompt after prompt, eight times
    rows["advantage"] = standard(rows["reward"].to_numpy().reshape(-1, SIZE)).ravel()
    check = checked(rows, tmp_path)
    assert check.regrouping.name == "consecutive"
    assert not check.followed


def test_a_prompt_that_was_sampled_twice_in_every_step_is_read_as_two_groups(tmp_path):
    """The logged advantages tell the reader where one ends, so that nothing contradicts the convention; the check says so."""
    rewards, _ = rollouts()
    rows = table(rewards, standard(rewards))
    rows["prompt_id"] //= 2
    check = checked(rows, tmp_path)
    assert check.regrouping is None
    assert "trl_grpo" in names(check)
    assert set(check.log.rollouts.sizes.tolist()) == {SIZE}
    assert check.log.findings.remarks
    assert check.log.findings.remarks[0][:40] in gt.page.check_to_text(check)


def test_a_standard_deviation_over_the_batch_is_a_convention_of_its_own(tmp_path):
    rewards, _ = rollouts()
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    check = checked(table(rewards, centred / (rewards.std(ddof=1) + 1e-4)), tmp_path)
    assert names(check) == {"trl_grpo_batch"}


def corrupted(how):
    """Return rows of which the first group, or two, are not what the convention says."""
    rewards, _ = rollouts()
    rows = table(rewards, standard(rewards))
    if how == "missing rows":
        return rows.drop(index=[1, 4])
    if how == "repeated rows":
        return pd.concat([rows, rows.iloc[[2]]])
    if how == "several groups in one":
        rows.loc[rows["prompt_id"] == 1, "prompt_id"] = 0
    if how == "other order":
        rows.loc[:7, "advantage"] = np.roll(rows.loc[:7, "advantage"], 3)
    if how == "wrong sign":
        rows.loc[:7, "advantage"] *= -1.0
    if how == "unexplained":
        rows.loc[3, "advantage"] += 0.5
    return rows


@pytest.mark.parametrize(
    "how", ["missing rows", "repeated rows", "several groups in one", "other order", "wrong sign", "unexplained"]
)
def test_a_group_that_contradicts_is_explained(how, tmp_path):
    check = checked(corrupted(how), tmp_path)
    assert check.followed
    assert names(check) >= {"trl_grpo", "grpo"}
    assert check.contradictions.counts == {how: 1}
    assert check.contradictions.groups == (0,)
    assert how in gt.page.check_to_text(check)


def test_the_control_contradicts_nowhere(tmp_path):
    assert checked(corrupted("nothing"), tmp_path).contradictions.counts == {}
    assert set(EXPLANATIONS) == {
        *("missing rows", "repeated rows", "several groups in one", "other order", "wrong sign", "rounded deviation")
    }


def with_logprobs(seed=0, by_token=True):
    """Return rows with log-probabilities of three policies, and the ratios of the first two pairs."""
    rng = np.random.default_rng(seed)
    rewards, lengths = rollouts("binary", seed)
    rows = table(rewards, rewards - rewards.mean(axis=1, keepdims=True), lengths)
    sampled = [rng.normal(-1.0, 0.3, n) for n in lengths.ravel()]
    old = [one + rng.normal(0.0, 0.1, one.size) for one in sampled]
    new = [one + rng.normal(0.0, 0.2, one.size) for one in old]
    for name, values in (("rollout_log_probs", sampled), ("old_log_probs", old), ("logprobs", new)):
        rows[name] = values if by_token else [one.sum() for one in values]
    return rows, new, old, sampled


def test_ratios_are_what_their_definitions_say(tmp_path):
    rows, new, old, sampled = with_logprobs()
    check = checked(rows, tmp_path, clip=(0.2, 0.3))
    stale, mismatch = check.ratios
    assert (stale.name, mismatch.name) == ("staleness", "mismatch")
    ratios = np.exp(np.concatenate(new) - np.concatenate(old))
    signs = np.repeat(rows["advantage"], [one.size for one in new]).to_numpy()
    assert stale.outside == (pytest.approx((ratios < 0.8).mean()), pytest.approx((ratios > 1.3).mean()))
    assert stale.clipped == pytest.approx(np.where(signs > 0, ratios > 1.3, (ratios < 0.8) & (signs < 0)).mean())
    assert stale.mean == pytest.approx(ratios.mean())
    whole = np.array([np.exp((a - b).sum()) for a, b in zip(old, sampled, strict=True)])
    assert mismatch.effective == pytest.approx(whole.sum() ** 2 / (whole.size * (whole**2).sum()))
    means = np.array([np.exp((a - b).mean()) for a, b in zip(old, sampled, strict=True)])
    assert mismatch.geometric == pytest.approx(means.sum() ** 2 / (means.size * (means**2).sum()))
    between = np.concatenate(old) - np.concatenate(sampled)
    assert mismatch.k3 == pytest.approx((np.exp(between) - 1.0 - between).mean())
    assert mismatch.k1 == pytest.approx(-between.mean())
    assert mismatch.capped[2.0] == pytest.approx((np.exp(between) > 2.0).mean())


def test_log_probabilities_above_0_are_remarked_on_with_their_column_and_row(tmp_path):
    """Densities, or numbers of tokens that do not count: the ratios are shown, and a section says not to trust them."""
    rows, *_ = with_logprobs()
    rows["old_log_probs"] = [np.minimum(one, 0.0) for one in rows["old_log_probs"]]
    rows["rollout_log_probs"] = [np.minimum(one, 0.0) for one in rows["rollout_log_probs"]]
    rows["logprobs"] = [np.minimum(one, 5e-7) for one in rows["logprobs"]]
    clean = checked(rows, tmp_path)
    assert clean.log.remarks == (), "the control: what rounding leaves above 0 is no mistake"
    assert "LOG-PROBABILITIES ABOVE 0" not in gt.page.check_to_text(clean)
    rows.at[3, "old_log_probs"] = np.concatenate([[-1.0, 0.7], rows["old_log_probs"][3][2:]])
    rows.at[5, "old_log_probs"] = np.concatenate([[0.2], rows["old_log_probs"][5][1:]])
    check = checked(rows, tmp_path)
    total = sum(one.size for one in rows["old_log_probs"])
    (remark,) = check.log.remarks
    assert remark.startswith(f"old_logprobs (old_log_probs) has 2 of {total:,} numbers above 0, the first of them 0.7 in row 4. ")
    assert f"LOG-PROBABILITIES ABOVE 0 {remark}" in " ".join(gt.page.check_to_text(check).split())
    assert gt.page.check_to_dict(check)["remarks"] == [remark]


def test_rows_without_a_reward_are_left_out_of_every_column(tmp_path):
    rows, *_ = with_logprobs()
    whole = checked(rows, tmp_path)
    rows.loc[[2, 9], "reward"] = np.nan
    with pytest.raises(ValueError, match=r"unscored='leave' \(--unscored leave\)"):
        checked(rows, tmp_path)
    left = checked(rows, tmp_path, rows={"unscored": "leave"})
    kept = np.setdiff1d(np.arange(len(rows)), [2, 9])
    assert left.log.advantages.tolist() == whole.log.advantages[kept].tolist()
    assert left.log.logprobs["logprobs"].counts.tolist() == whole.log.logprobs["logprobs"].counts[kept].tolist()
    zero = checked(rows, tmp_path, rows={"unscored": "zero"})
    assert zero.log.advantages.tolist() == whole.log.advantages.tolist()
    with pytest.raises(ValueError, match="rows must be of where, group_of, unscored, got 'steps'"):
        checked(rows, tmp_path, rows={"steps": "last"})


def test_rows_of_one_kind_are_checked_alone(tmp_path):
    rewards, _ = rollouts()
    rows = table(rewards, standard(rewards)).assign(split=np.arange(PROMPTS * SIZE) // SIZE % 2)
    check = checked(rows, tmp_path, rows={"where": {"split": 1}})
    assert check.log.advantages.tolist() == rows.loc[rows["split"] == 1, "advantage"].tolist()
    assert "trl_grpo" in names(check)


def test_sums_per_response_give_the_same_effective_sample_sizes(tmp_path):
    by_token = checked(with_logprobs()[0], tmp_path)
    sums = checked(with_logprobs(by_token=False)[0], tmp_path)
    for one, other in zip(by_token.ratios, sums.ratios, strict=True):
        assert one.by_token
        assert not other.by_token
        assert other.effective == pytest.approx(one.effective)
        assert other.geometric == pytest.approx(one.geometric)


def test_effective_sample_size_has_its_ends():
    assert effective_share(np.full(10, 300.0)) == 1.0
    assert effective_share(np.array([0.0, *np.full(9, -np.inf)])) == pytest.approx(0.1)


def test_masked_tokens_count_for_nothing(tmp_path):
    rows, *_ = with_logprobs()
    plain = checked(rows, tmp_path)
    for name, filler in (("rollout_log_probs", 0.0), ("old_log_probs", -3.0), ("logprobs", 5.0)):
        rows[name] = [np.concatenate([[filler] * 4, one]) for one in rows[name]]
    rows["response_mask"] = [np.concatenate([np.zeros(4), np.ones(one.size - 4)]) for one in rows["logprobs"]]
    masked = checked(rows, tmp_path)
    assert [one.k3 for one in masked.ratios] == [one.k3 for one in plain.ratios]
    unmasked = checked(rows.drop(columns="response_mask"), tmp_path)
    assert unmasked.ratios[0].k3 > 10.0 * plain.ratios[0].k3, "the control: prompt tokens are not counted without effect"


def test_advantages_per_token_are_one_number(tmp_path):
    rewards, lengths = rollouts()
    rows = table(rewards, standard(rewards), lengths)
    lists = [np.full(n, a) for n, a in zip(rows["length"], rows["advantage"], strict=True)]
    assert checked(rows.assign(advantage=lists), tmp_path).fits[0].share == 1.0
    lists[3] = lists[3] + np.arange(lists[3].size)
    with pytest.raises(ValueError, match="must be one number per response, the same for all its tokens, and those of response 4"):
        checked(rows.assign(advantage=lists), tmp_path)


def test_the_direction_left_is_that_of_the_weighed_sum(tmp_path):
    rows, new, old, sampled = with_logprobs()
    scores = np.random.default_rng(3).normal(size=(len(rows), 64))
    rows["sketch"] = list(scores)
    check = checked(rows, tmp_path, cap=1.1)
    a = rows["advantage"].to_numpy()
    weights = np.empty(len(rows))
    for k in range(len(rows)):
        stale, mismatch = np.exp(new[k] - old[k]), np.minimum(np.exp(old[k] - sampled[k]), 1.1)
        kept = stale <= 1.2 if a[k] > 0 else stale >= 0.8
        weights[k] = np.mean(kept * stale * mismatch)
    plain, weighed = a @ scores, (a * weights) @ scores
    norms = np.linalg.norm(plain), np.linalg.norm(weighed)
    assert check.direction.cosine == pytest.approx(plain @ weighed / np.prod(norms))
    assert check.direction.length == pytest.approx(norms[1] / norms[0])
    assert 0.9 < check.direction.cosine < 1.0 - 1e-6
    rows["old_log_probs"] = rows["rollout_log_probs"] = rows["logprobs"]
    assert checked(rows, tmp_path).direction.cosine == pytest.approx(1.0)


def test_what_is_missing_is_named_with_its_columns(tmp_path):
    rewards, _ = rollouts()
    bare = checked(table(rewards, rewards).drop(columns="advantage"), tmp_path)
    assert set(bare.missing) == {"advantages", "staleness", "mismatch", "direction"}
    words = gt.page.check_to_text(bare)
    assert all(column in words for column in ("advantage", "old_logprobs", "rollout_logprobs", "sketch"))
    rows, *_ = with_logprobs()
    assert set(checked(rows, tmp_path).missing) == {"direction"}
    both = checked(rows.drop(columns="old_log_probs"), tmp_path)
    assert [one.name for one in both.ratios] == ["both"]


def test_the_command_prints_and_writes(tmp_path, capsys):
    rewards, _ = rollouts()
    log, out = tmp_path / "log.csv", tmp_path / "out.json"
    table(rewards, standard(rewards)).to_csv(log, index=False)
    assert main(["check", str(log), "--json", str(out)]) == 0
    words = capsys.readouterr().out
    assert "The advantages follow grpo in 24 of 24 groups whose rewards differ." in " ".join(words.split())
    found = json.loads(out.read_text())
    assert "trl_grpo" in {name for one in found["conventions"] for name in one["names"]}
    assert found["contradictions"]["total"] == 0
    assert main(["check", str(log), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--advantage", "adv"], "advantage must be a column of the log, got 'adv'; found"),
        (["--clip-low", "-1"], "--clip-low must be finite and at least 0"),
        (["--cap", "0"], "--cap must be finite and above 0"),
        (["--reward", "r"], "reward must name columns of the log"),
    ],
)
def test_mistakes_are_one_line_and_status_2(options, why, tmp_path, capsys):
    rewards, _ = rollouts()
    log = tmp_path / "log.csv"
    table(rewards, rewards).to_csv(log, index=False)
    assert main(["check", str(log), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("grpo-theory check: ")
    assert why in captured.err
    assert captured.err.count("\n") == 1


def test_a_log_is_never_written_over(tmp_path, capsys):
    log = tmp_path / "log.csv"
    rewards, _ = rollouts()
    table(rewards, rewards).to_csv(log, index=False)
    before = log.read_bytes()
    assert main(["check", str(log), "--json", str(log)]) == 2
    assert "must not be the table itself" in capsys.readouterr().err
    assert log.read_bytes() == before


def test_columns_that_differ_in_length_or_hold_nothing_are_refused(tmp_path):
    rows, *_ = with_logprobs()
    shorter = rows.assign(old_log_probs=[one[1:] for one in rows["old_log_probs"]])
    with pytest.raises(ValueError, match="must have as many numbers in every row"):
        checked(shorter, tmp_path)
    rows.loc[5, "advantage"] = np.inf
    with pytest.raises(ValueError, match=r"advantage .* finite numbers in every row, and row 6 has inf; advantage='' reads none"):
        checked(rows, tmp_path)
    assert checked(rows, tmp_path, columns={"advantage": ""}).fits == ()
    with pytest.raises(ValueError, match="columns must be of prompt, reward"):
        checked(rows, tmp_path, columns={"rewards": "reward"})


def test_rows_of_a_repeated_step_are_left_out(tmp_path):
    rewards, _ = rollouts()
    rows = table(rewards, standard(rewards)).assign(completion=lambda t: np.arange(len(t)).astype(str))
    check = checked(pd.concat([rows, rows.assign(step=2)]), tmp_path)
    assert check.log.advantages.size == rewards.size
    assert check.contradictions.judged == PROMPTS


def test_rows_of_a_repeated_step_and_rows_without_a_reward_are_left_out_together(tmp_path):
    rewards, _ = rollouts()
    rows = table(rewards, standard(rewards)).assign(completion=lambda t: np.arange(len(t)).astype(str))
    rows.loc[[2, 9], "reward"] = np.nan
    left = checked(pd.concat([rows, rows.assign(step=2)]), tmp_path, rows={"unscored": "leave"})
    assert left.log.advantages.tolist() == rows["advantage"].drop(index=[2, 9]).tolist()


def test_of_many_groups_a_few_are_tried_first_and_all_are_judged(tmp_path):
    rng = np.random.default_rng(7)
    rewards = rng.integers(0, 2, (5000, 4)).astype(float)
    advantages = standard(rewards)
    mixed = np.flatnonzero(np.ptp(rewards, axis=1))
    advantages[mixed[:90]] *= -1.0
    check = checked(table(rewards, advantages), tmp_path)
    assert names(check) >= {"trl_grpo", "grpo"}
    assert check.contradictions.counts == {"wrong sign": 90}
    assert check.fits[0].share == pytest.approx(1.0 - 90 / mixed.size)


LOGS = Path(__file__).parent / "data" / "logs"


@pytest.mark.parametrize("name", sorted(one.name for one in LOGS.iterdir()))
def test_logs_that_are_read_are_checked(name):
    """With lists per step, documents and nested rows, where a row holds several responses, and evaluation beside training."""
    check = gt.checks.check_log(LOGS / name)
    responses = gt.read_rollouts(LOGS / name, steps="all").rollouts.rewards.size
    assert check.log.rollouts.rewards.size == responses
    assert check.log.advantages is None or check.log.advantages.size == responses


def test_there_are_logs_with_advantages_in_lists_and_documents():
    assert sum(gt.checks.check_log(one).log.advantages is not None for one in LOGS.iterdir()) >= 5
