"""Checks of a trainer: what its advantages follow, groups that contradict it, ratios, direction, and the command."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tables import said
from test_trainers import ADVANTAGES, transcriptions

import grpo_theory as gt
from grpo_theory.page.command import main

LOGS = Path(__file__).parent / "data" / "logs"
PROMPTS, SIZE = 24, 8


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
    log.to_parquet(folder / "log.parquet")
    return gt.checks.check_log(folder / "log.parquet", **options)


def names(check):
    return {name for one in check.advantages.fits for name in one.names}


def standard(rewards):
    return (rewards - rewards.mean(axis=-1, keepdims=True)) / (rewards.std(axis=-1, ddof=1, keepdims=True) + 1e-4)


# ---- conventions


@pytest.mark.parametrize("name", ADVANTAGES)
def test_every_convention_is_found_from_what_its_source_says(name, tmp_path):
    """And no other but those that say the same of these rewards: epsilons of 1e-6 and 1e-9 do, and gpg where no reward is 0."""
    rewards, lengths = rollouts()
    sources = transcriptions(rewards, lengths)
    check = checked(table(rewards, sources[name], lengths), tmp_path)
    assert (check.advantages.followed, check.advantages.fits[0].share) == (True, 1.0)
    assert check.contradictions.total == check.contradictions.unequal == 0
    alike = {one for one in ADVANTAGES if np.allclose(sources[one], sources[name], rtol=1e-5, atol=1e-6)}
    assert names(check) & set(ADVANTAGES) == alike


def test_numbers_of_a_convention_are_told_apart_and_rounded_logs_are_read_to_their_last_digit(tmp_path):
    rewards, _ = rollouts()
    deviation = rewards.std(axis=1, keepdims=True)
    check = checked(table(rewards, (rewards - rewards.mean(axis=1, keepdims=True)) / (deviation + 1e-4)), tmp_path)
    assert not names(check), "no trainer has ddof 0 and epsilon 1e-4"
    rewards, _ = rollouts("binary")
    for decimals in (3, 4):
        check = checked(table(rewards, standard(rewards)).round({"advantage": decimals}), tmp_path)
        assert (check.advantages.fits[0].share, names(check) & {"trl_grpo", "rllm"}) == (1.0, {"trl_grpo"})
    short = standard(rewards).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)  # bfloat16, cut
    assert "trl_grpo" in names(checked(table(rewards, short.view(np.float32)), tmp_path))


def neighbours(size, prompts=PROMPTS):
    """Rows in which prompts alternate, and advantages are those of so many neighbouring rows."""
    rewards, _ = rollouts()
    rows = table(rewards, rewards).sort_index(key=lambda k: k % prompts, kind="stable").reset_index(drop=True)
    rows["advantage"] = standard(rows["reward"].to_numpy().reshape(-1, size)).ravel()
    return rows


def of_graded(advantages, rows=lambda one: one, kind="graded"):
    """Return rows with advantages that are made from their rewards."""
    rewards, _ = rollouts(kind)
    return rows(table(rewards, advantages(rewards)))


def repeated(rows):
    """Return two to four rows a response, the turns of it, with the mean and the deviation taken over turns."""
    turns = np.random.default_rng(2).integers(2, 5, len(rows))
    rows = rows.assign(rollout_id=np.arange(len(rows))).loc[np.repeat(rows.index, turns)]
    inside = rows.groupby("prompt_id")["reward"]
    return rows.assign(advantage=(rows["reward"] - inside.transform("mean")) / (inside.transform("std") + 1e-4))


NAMED = {"group": "prompt_id"}
"""The user says that these are the groups; else the reader proposes others where equal rewards have different advantages."""
TWICE = of_graded(standard, lambda rows: rows.assign(prompt_id=rows["prompt_id"] // 2))
WRONG = {
    "noise": (of_graded(lambda r: np.random.default_rng(5).normal(size=r.shape)), NAMED, None, "no registered convention"),
    "the wrong axis": (of_graded(lambda r: standard(r.T).T), NAMED, "strided", "wrong axis"),
    "the whole step": (of_graded(lambda r: standard(r.reshape(1, -1)).reshape(r.shape)), {}, "batch", "of the whole step,"),
    "a constant baseline": (of_graded(lambda r: r - 0.5, kind="binary"), {}, "batch", "baseline (0.5) is subtracted"),
    "no baseline": (of_graded(lambda r: 0.3 * r), {}, "batch", "no baseline is subtracted"),
    "rows that follow each other": (neighbours(SIZE), NAMED, "consecutive", "8 neighbouring rows"),
    "rows cut at another stride": (neighbours(6), NAMED, "consecutive", "6 neighbouring rows"),
    "a prompt that was sampled twice": (TWICE, NAMED, "parts", "8 rows"),
    "turns": (repeated(of_graded(lambda r: r)), {}, "turns", "once per turn"),
    "half of a convention": (of_graded(lambda r: 0.5 * standard(r)), {}, "factor", "times 0.5"),
    "the other sign": (of_graded(lambda r: -standard(r)), {}, "sign", "Wrong sign"),
}  # fmt: skip
"""Advantages of no convention: rows, columns that are named, what explains them, and the words for it."""


@pytest.mark.parametrize("name", WRONG)
def test_advantages_that_follow_no_convention_are_explained(name, tmp_path):
    rows, columns, explanation, words = WRONG[name]
    check = checked(rows, tmp_path, **columns)
    found = check.advantages.explanation
    assert (check.advantages.followed, found and found.name) == (False, explanation)
    assert words in said(check.to_text()), check.advantages.wrong
    assert found is None or found.share == 1.0


THREADS = {
    "F14_slime_uneven.jsonl": "batch",
    "F15_turn_rows_advantage.jsonl.gz": "turns",
    "F16_turn_rows_right.jsonl.gz": None,
    "F27_unscored_trl.jsonl": None,
    "F37_reward_minus_half.jsonl": "batch",
    "F38_half_of_trl.jsonl.gz": "factor",
    "F39_one_short_batch.jsonl.gz": "batch",
}
"""What explains the advantages of logs of public threads."""


@pytest.mark.parametrize(("name", "explanation"), THREADS.items())
def test_logs_of_public_threads_are_read_right(name, explanation):
    check = gt.checks.check_log(LOGS / name)
    found = check.advantages.explanation
    assert (found and found.name, check.advantages.wrong is None) == (explanation, explanation is None)
    assert check.contradictions.total == 0


def test_rows_of_one_id_each_have_no_baseline():
    assert "no baseline is subtracted" in gt.checks.check_log(LOGS / "F23_lone_ids.jsonl.gz").advantages.wrong


# ---- groups that contradict


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
    if how == "unexplained":
        rows.loc[3, "advantage"] += 0.5
    return rows


@pytest.mark.parametrize("how", ["missing rows", "repeated rows", "several groups in one", "other order", "unexplained", None])
def test_a_group_that_contradicts_is_explained(how, tmp_path):
    check = checked(corrupted(how), tmp_path)
    assert names(check) >= {"trl_grpo", "grpo"}
    assert check.contradictions.counts == ({how: 1} if how else {})
    assert how is None or check.contradictions.groups == (0,)
    first = gt.checks.read_log(tmp_path / "log.parquet").advice[0]
    assert first == (check.advantages.wrong or "Nothing to change."), "what is wrong is what is to be done first"
    assert how is None or (how in first and said(first) in said(check.to_text()))


def test_of_many_groups_a_few_are_tried_first_and_all_are_judged(tmp_path):
    rewards = np.random.default_rng(7).integers(0, 2, (5000, 4)).astype(float)
    advantages = standard(rewards)
    mixed = np.flatnonzero(np.ptp(rewards, axis=1))
    advantages[mixed[:90]] *= -1.0
    check = checked(table(rewards, advantages), tmp_path)
    assert names(check) >= {"trl_grpo", "grpo"}
    assert check.contradictions.counts == {"wrong sign": 90}
    assert check.advantages.fits[0].share == pytest.approx(1.0 - 90 / mixed.size)


def test_a_convention_that_looks_at_the_whole_batch_is_found_in_one_large_step(tmp_path):
    """Of more than 500 groups some are tried first, and of such a convention these are whole steps."""
    rewards = np.random.default_rng(8).normal(size=(600, 4)).round(3)
    check = checked(table(rewards, gt.advantages(list(rewards), "trl_grpo_batch")), tmp_path)
    assert (check.advantages.wrong, "trl_grpo_batch" in names(check), check.contradictions.total) == (None, True, 0)


# ---- rows that lack something


def test_groups_with_gaps_are_left_out_and_the_others_are_judged(tmp_path):
    rewards, _ = rollouts()
    rows = table(rewards, standard(rewards))
    gaps = rows.copy()
    gaps.loc[[5, 6, 40], "advantage"] = np.nan
    found = checked(gaps, tmp_path)
    assert (found.contradictions.judged, found.contradictions.total, found.advantages.fits[0].share) == (PROMPTS - 2, 0, 1.0)
    assert "2 groups with a row without an advantage left out" in said(found.to_text())
    gaps.loc[60, "advantage"] = 9.0
    changed = checked(gaps, tmp_path)
    assert changed.contradictions.total == 1, "a wrong advantage beside a gap is still found"
    assert changed.to_dict()["contradictions"]["prompts"] == ["7"], "row 60 is of prompt 7, the gaps before it left out"
    rows.loc[::SIZE, "advantage"] = np.nan
    with pytest.raises(ValueError, match="in every row of a group at least"):
        checked(rows, tmp_path)


# ---- ratios and direction


def with_logprobs(seed=0, by_token=True):
    """Return rows with log-probabilities of three policies, and these."""
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
    assert stale.outside == pytest.approx(((ratios < 0.8).mean(), (ratios > 1.3).mean()))
    assert stale.clipped == pytest.approx(np.where(signs > 0, ratios > 1.3, (ratios < 0.8) & (signs < 0)).mean())
    for found, over in ((mismatch.effective, np.sum), (mismatch.geometric, np.mean)):
        one = np.array([np.exp(over(a - b)) for a, b in zip(old, sampled, strict=True)])
        assert found == pytest.approx(one.sum() ** 2 / (one.size * (one**2).sum()))
    between = np.concatenate(old) - np.concatenate(sampled)
    assert mismatch.k3 == pytest.approx((np.exp(between) - 1.0 - between).mean())
    assert mismatch.k1 == pytest.approx(-between.mean())
    assert mismatch.capped[2.0] == pytest.approx((np.exp(between) > 2.0).mean())
    for one, other in zip(check.ratios, checked(with_logprobs(by_token=False)[0], tmp_path).ratios, strict=True):
        assert (one.by_token, other.by_token) == (True, False)
        assert (other.effective, other.geometric) == (pytest.approx(one.effective), pytest.approx(one.geometric))
    assert [one.name for one in checked(rows.drop(columns="old_log_probs"), tmp_path).ratios] == ["both"]
    alone = checked(rows[["rollout_log_probs", "old_log_probs"]], tmp_path)
    assert (alone.advantages, alone.ratios[0].k3) == (None, pytest.approx(mismatch.k3)), "ratios need no rewards"
    assert alone.to_text().startswith("IMPORTANCE RATIOS")


def test_masked_tokens_count_for_nothing(tmp_path):
    rows, *_ = with_logprobs()
    plain = checked(rows, tmp_path)
    for name, filler in (("rollout_log_probs", 0.0), ("old_log_probs", -3.0), ("logprobs", 5.0)):
        rows[name] = [np.concatenate([[filler] * 4, one]) for one in rows[name]]
    rows["response_mask"] = [np.concatenate([np.zeros(4), np.ones(one.size - 4)]) for one in rows["logprobs"]]
    assert [one.k3 for one in checked(rows, tmp_path).ratios] == [one.k3 for one in plain.ratios]
    unmasked = checked(rows.drop(columns="response_mask"), tmp_path)
    assert unmasked.ratios[0].k3 > 10.0 * plain.ratios[0].k3, "the control: prompt tokens are not counted without effect"


@pytest.mark.parametrize("clip", [(0.1, 0.4), (0.4, 0.1)])
def test_the_direction_left_is_that_of_the_weighed_sum(clip, tmp_path):
    rows, new, old, sampled = with_logprobs()
    scores = np.random.default_rng(3).normal(size=(len(rows), 64))
    rows["sketch"] = list(scores)
    check = checked(rows, tmp_path, clip=clip, cap=1.1)
    plain = weighed = np.zeros(64)
    for a, w, *logs in zip(rows["advantage"], scores, new, old, sampled, strict=True):
        stale, mismatch = np.exp(logs[0] - logs[1]), np.minimum(np.exp(logs[1] - logs[2]), 1.1)
        kept = stale <= 1.0 + clip[1] if a > 0 else stale >= 1.0 - clip[0]
        plain, weighed = plain + a * w, weighed + a * np.mean(kept * stale * mismatch) * w
    norms = np.linalg.norm(plain), np.linalg.norm(weighed)
    assert check.direction.cosine == pytest.approx(plain @ weighed / np.prod(norms))
    assert check.direction.length == pytest.approx(norms[1] / norms[0])


def test_log_probabilities_above_0_are_remarked_on_with_their_column_and_row(tmp_path):
    """Densities, or numbers of tokens that do not count: the ratios are shown, and a section says not to trust them."""
    rows, *_ = with_logprobs()
    for name, most in (("old_log_probs", 0.0), ("rollout_log_probs", 0.0), ("logprobs", 5e-7)):
        rows[name] = [np.minimum(one, most) for one in rows[name]]
    assert checked(rows, tmp_path).remarks == (), "the control: what rounding leaves above 0 is no mistake"
    rows["old_log_probs"][3][1], rows["old_log_probs"][5][0] = 0.7, 0.2
    total = len(np.concatenate(rows["old_log_probs"]))
    words = f"behaviour has 2 of {total:,} numbers above 0, the first of them 0.7 in response 4. "
    assert words in said(checked(rows, tmp_path).to_text())


# ---- the command, and mistakes


def test_the_command_prints_and_writes(tmp_path, capsys):
    rewards, _ = rollouts()
    log, out = tmp_path / "log.csv", tmp_path / "out.json"
    table(rewards, standard(rewards)).assign(kl=0.1).to_csv(log, index=False)
    assert main(["check", str(log), "--json", str(out)]) == 0
    words = said(capsys.readouterr().out)
    assert "The advantages follow grpo or trl_grpo in 24 of 24 groups that tell." in words
    found = json.loads(out.read_text())
    assert "trl_grpo" in {name for one in found["conventions"] for name in one["names"]}


def test_columns_that_do_not_fit_are_refused(tmp_path, check_refused):
    rows, *_ = with_logprobs()
    endless, short = rows["advantage"].where(rows.index != 5, np.inf), [one[1:] for one in rows["old_log_probs"]]
    check_refused(
        (lambda: checked(rows.assign(advantage=endless), tmp_path), "advantage must be finite numbers, and has inf"),
        (lambda: checked(rows.assign(old_log_probs=short), tmp_path), "must have as many numbers in every row"),
        (lambda: checked(rows, tmp_path, clip=(-0.1, 0.2)), r"clip\[0\] must"),
    )
