"""Advice while training runs: numbers by hand and by enumeration, what it may cost, and that it never ends a run."""

import logging
from itertools import product

import numpy as np
import pytest
from pages import DOCS, blocks
from scipy import stats

import grpo_theory as gt
from grpo_theory.live.allowance import Allowance
from grpo_theory.live.groups import SketchPool
from grpo_theory.live.remarks import SignalRemarks, SizeRemarks

LOG = "grpo_theory.live"


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def drawn(prompts, size, seed=0, width=8):
    """Return ids, rewards and scores of responses whose prompts differ in success rate and gradient."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(prompts), size)
    rewards = (rng.random(ids.size) < np.repeat(rng.random(prompts), size)) * 1.0
    scores = rng.standard_normal((ids.size, width)) + rewards[:, None] * np.repeat(rng.standard_normal((prompts, width)), size, 0)
    return ids, rewards, scores


def test_clipped_shares_by_hand_and_where_the_loss_has_no_slope():
    """The slope of min(r A, clip(r) A) by a difference, at ratios on all sides of both clips."""
    shares, of = gt.live.clipped_shares, gt.live.ClippedShares
    ratios = [[1.3, 1.1, 0.7], [0.7, 1.3, 0.9]]
    assert shares(ratios, [1.0, -1.0]) == of(low=1 / 6, high=1 / 6)
    assert shares(ratios, [1.0, -1.0], mask=[[0, 1, 1], [1, 0, 0]]) == of(low=1 / 3, high=0.0)
    low, high, near = 0.2, 0.28, 1e-6

    def loss(r, a):
        return min(r * a, min(max(r, 1.0 - low), 1.0 + high) * a)

    for r, a in product((0.5, 0.79, 0.81, 1.0, 1.27, 1.29, 3.0), (-2.0, 1.0)):
        found = shares([[r]], [a], low=low, high=high)
        assert found.low + found.high == (loss(r + near, a) == loss(r - near, a)), (r, a)


def test_the_share_with_signal_by_hand_and_by_enumeration():
    monitor, rewards = gt.live.Monitor(every=3, overhead=None), [1, 0, 1, 1, 0, 0]
    assert [monitor.step(step, rewards, list("aabbcc")).numbers for step in (1, 2)] == [{}, {}]
    found = monitor.step(3, rewards, list("abcabc")).numbers  # groups (1, 1), (0, 0) and (1, 0)
    assert found["groups_with_signal"] == 3 / 9
    law = stats.binomtest(3, 9).proportion_ci(0.95)
    assert [found["groups_with_signal_low"], found["groups_with_signal_high"]] == pytest.approx([law.low, law.high], abs=1e-12)
    p, share = 0.3, 0.0
    for one in product((0, 1), repeat=3):
        signal = gt.live.Monitor(every=1, overhead=None).step(1, one, ["a"] * 3).numbers["groups_with_signal"]
        share += signal * p ** sum(one) * (1 - p) ** (3 - sum(one))
    assert share == pytest.approx(1 - p**3 - (1 - p) ** 3, abs=1e-12)
    monitor = gt.live.Monitor(every=2, overhead=None)  # clips are averaged between readings
    monitor.step(1, [0, 1], ["a", "a"], clipped=gt.live.ClippedShares(0.0, 0.5))
    found = monitor.step(2, [0, 1], ["a", "a"], clipped=gt.live.ClippedShares(0.25, 0.0)).numbers
    assert (found["clipped_low"], found["clipped_high"]) == (0.125, 0.25)


def test_the_pool_has_the_newest_group_of_each_prompt_and_forgets_old_ones():
    pool = SketchPool(most=2, oldest=10)
    for step, prompt in ((1, "a"), (2, "b"), (3, "a"), (4, "c")):
        pool.add(step, prompt, np.array([0.0, step]), np.full((2, 3), step))
    kept = pool.rollouts(5)
    assert kept.rewards.tolist() == [0.0, 3.0, 0.0, 4.0]
    assert pool.rollouts(13).rewards.tolist() == [0.0, 4.0]
    assert pool.rollouts(14) is None


@pytest.mark.parametrize("estimator", ["trl_grpo", "nemo_rl", "rloo", "reinforce"])
def test_a_step_is_advised_on_as_the_planner_does_and_uniform_groups_need_no_sketches(estimator):
    ids, rewards, scores = drawn(60, 6)
    found = gt.live.advise_step(gt.RaggedRollouts(ids, rewards, scores), 360, estimator=estimator)
    limits = gt.plan.Limits(budget=360, max_group_size=360)
    advice = gt.plan.advise(gt.RaggedRollouts(ids, rewards, scores), limits, group_size=6, estimator=estimator).scores
    assert (found.prompts, found.group_size, found.best) == (60, 6, advice.choice.group_size)
    if advice.own is not None:
        at = advice.own.at(6)
        assert (found.efficiency, found.low, found.high) == (advice.own.efficiency[at], advice.own.low, advice.own.high)
        assert (found.loss, found.may_be_best) == (advice.own.loss.estimate[at], advice.own.candidates[at])
    uniform = np.ptp(rewards.reshape(60, 6), axis=1)[ids] == 0.0
    without = gt.RaggedRollouts(ids, rewards, np.where(uniform[:, None], 0.0, scores))
    assert (gt.live.advise_step(without, 360, estimator=estimator) == found) is (estimator != "reinforce")
    asked = []
    monitor = gt.live.Monitor(every=1, estimator=estimator, overhead=None)
    monitor.step(1, [1] * 4 + [0, 1] * 4, ["a"] * 4 + ["b"] * 4 + ["c"] * 4,
                 sketch=lambda rows: asked.append(rows) or np.ones((rows.size, 2)), at_hand=10)  # fmt: skip
    assert asked[0].tolist() == list(range(0 if estimator == "reinforce" else 4, 8)), "groups with signal, whole at hand"


def test_sketches_of_several_readings_are_put_together_and_too_little_is_no_advice():
    ids, rewards, scores = drawn(30, 6, seed=2)
    monitor = gt.live.Monitor(every=1, estimator="trl_grpo", responses=180, overhead=None)
    for step in range(3):
        part = slice(60 * step, 60 * (step + 1))
        found = monitor.step(step, rewards[part], ids[part], sketch=scores[part].__getitem__).numbers
    whole = gt.live.advise_step(gt.RaggedRollouts(ids, rewards, scores), 180, estimator="trl_grpo")
    assert found["efficiency"] == pytest.approx(whole.efficiency, abs=1e-12)
    assert [found[f"best_group_size{end}"] for end in ("", "_low", "_high")] == [whole.best, whole.low, whole.high]
    assert found["sketched_prompts"] == 30
    equal = drawn(5, 4)
    for ids, rewards, scores in (drawn(2, 8), drawn(5, 3), (equal[0], np.ones(20), equal[2])):
        assert gt.live.advise_step(gt.RaggedRollouts(ids, rewards, scores), ids.size) is None


def test_the_allowance_by_hand():
    clock = Clock()
    allowance = Allowance(0.1, clock)
    clock.now = 10.0
    assert allowance.left == pytest.approx(0.8)
    with allowance.spending():
        clock.now = 10.25
        with allowance.spending():
            clock.now = 10.5
    assert (allowance.spent, allowance.overhead, allowance.left) == pytest.approx((0.5, 0.05, 0.3))
    assert Allowance(None, clock).left == np.inf


def run(seconds, steps, clock=None, every=20, **options):
    """Run steps of one second whose responses take so many seconds to sketch; return the overheads, and the sketched rows."""
    clock, asked, overheads = clock or Clock(), [], []
    monitor = gt.live.Monitor(every=every, estimator="trl_grpo", clock=clock, **options)
    ids, rewards, scores = drawn(16, 4)

    def sketch(rows):
        clock.now += seconds * rows.size
        asked.append(rows.size)
        return scores[rows]

    for step in range(1, steps + 1):
        clock.now += 1.0
        monitor.step(step, rewards, ids, sketch=sketch)
        overheads.append(monitor.allowance.overhead)
    return overheads, asked


@pytest.mark.parametrize(("seconds", "reading"), [(0.001, 0.0), (0.01, 0.0), (0.05, 0.0), (0.2, 0.0), (0.05, 0.6), (0.05, 0.7)])
def test_the_overhead_is_at_most_what_is_allowed_at_every_step(seconds, reading, monkeypatch):
    """With a first group that fits into what 20 steps allow. A reading may take time as sketches do."""
    clock = Clock()

    def read(*_, **__):
        clock.now += reading

    if reading:
        monkeypatch.setattr("grpo_theory.live.monitor.advise_step", read)
    overheads, asked = run(seconds, 400, clock)
    assert max(overheads) <= 0.05
    assert len(asked) > (2 if reading else 10)


def test_a_sketch_that_is_too_slow_is_waited_for():
    """A group of four takes 40 seconds, what 1,000 steps allow: the first one is taken to learn that, and then hardly any."""
    overheads, asked = run(10.0, 3000)
    assert sum(asked) <= 4 * 3
    assert overheads[-1] <= 0.05 < max(overheads)


def test_how_many_groups_are_sketched_does_not_depend_on_their_rewards():
    """The one step that is compared comes after the same history, and so are the prompts that the pool then has."""
    counts = []
    for last in ([0.0, 1.0, 0.0, 1.0], [1.0] * 4):
        clock = Clock()
        monitor = gt.live.Monitor(every=1, clock=clock, overhead=0.05)

        def sketch(rows, clock=clock):
            clock.now += 0.01 * rows.size
            return np.ones((rows.size, 1))

        for step, own, prompts in ((1, [0.0, 1.0, 0.0, 1.0], 8), (2, last, 32)):
            clock.now += 10.0
            monitor.step(step, own * prompts, np.repeat(np.arange(100 * step, 100 * step + prompts), 4), sketch=sketch)
        counts.append(len(monitor._pool))
    assert counts[0] == counts[1]
    assert 1 < counts[0] - 1 < 32


def broken(rows):
    raise RuntimeError("out of memory\x1b[2J")


def test_each_part_that_fails_is_logged_once_and_the_run_goes_on(caplog):
    """A sketch that failed is not asked again; the rewards are read."""
    monitor, asked = gt.live.Monitor(every=1, overhead=None), []
    with caplog.at_level(logging.WARNING, LOG):
        for step, rewards, prompts in ((1, [0.0, np.nan], ["a", "a"]), (2, [0.0, 1.0], ["a"]), (3, "no rewards", ["a"])):
            assert monitor.step(step, rewards, prompts).numbers == {}
        for step in (4, 5):
            found = monitor.step(step, [0, 1, 0, 1], ["a"] * 4, sketch=lambda rows: asked.append(1) or broken(rows)).numbers
            assert found["groups_with_signal"] == 1.0
    assert (len(asked), monitor.guard.errors) == (1, 4)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("monitoring step 1 failed (ValueError: rewards must be finite")
    assert first.endswith("Training goes on; later errors there are not logged.")
    assert second.startswith("sketching at step 4 failed (RuntimeError: out of memory\\x1b[2J")


def test_sketches_that_cannot_be_judged_leave_the_signal(caplog):
    """Graded rewards of more than eight values have no law for an estimator that divides; rloo has one (the control)."""
    ids, rewards, sketches = np.repeat(np.arange(16), 8), np.arange(128) % 11 / 10, np.random.default_rng(0).normal(size=(128, 8))
    for estimator, errors in (("rloo", 0), ("verl_grpo", 1)):
        monitor = gt.live.Monitor(every=1, estimator=estimator, overhead=None)
        found = monitor.step(1, rewards, ids, sketch=sketches.__getitem__)
        assert found.numbers["groups_with_signal"] == 1.0
        assert (("efficiency" in found.numbers), monitor.guard.errors) == (errors == 0, errors)
    assert "have 11 different rewards" in caplog.text


def test_an_interrupt_is_no_error():
    def sketch(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gt.live.Monitor(every=1, estimator="trl_grpo", overhead=None).step(1, [0, 1, 0, 1], ["a"] * 4, sketch=sketch)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gt.live.Monitor(overhead=1.5), "overhead must lie strictly between 0 and 1"),
        (lambda: gt.live.Monitor(estimator="trl_grpo_batch"), "those of 'trl_grpo_batch' depend on the other groups"),
        (lambda: gt.live.clipped_shares([[np.nan, 1.0]], [1.0]), "ratios must be numbers where"),
    ],
)
def test_mistakes_are_named_before_the_run(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def advice(best, low, high, group_size=8, bounded=True):
    return gt.live.StepAdvice("rloo", group_size, 0.5, best, low, high, bounded, 0.25, low <= group_size <= high, 40)


def test_a_remark_is_made_where_the_advice_changes_and_only_there():
    say = SizeRemarks()
    assert say(advice(4, 2, 32, bounded=False)) == []
    assert say(advice(4, 3, 9)) == ["the best group size for rloo is 4 (40 prompts: 3 to 9 may be best); yours, 8, may be best"]
    assert say(advice(5, 3, 10)) == []
    assert say(advice(4, 3, 6))[0].startswith("the best group size for rloo is still 4 (40 prompts: 3 to 6 may be best); its eff")
    assert say(advice(5, 4, 6)) == []
    assert say(advice(6, 5, 6))[0].startswith("the best group size for rloo is now 6, no longer 4")
    say = SignalRemarks()
    seen = ((0.45, 0.35, 0.55), (0.4, 0.3, 0.49), (0.3, 0.2, 0.4), (0.55, 0.45, 0.65), (0.6, 0.51, 0.7), (0.6, 0.51, 0.7))
    said = [say(*one) for one in seen]
    assert [len(one) for one in said] == [0, 1, 0, 0, 1, 0]
    assert said[4] == ["60% of the groups have signal again (51% to 70%)"]


def test_the_programs_for_any_trainer_run_as_printed(monkeypatch, capsys):
    _, loop, sketching = blocks((DOCS / "live.md").read_text(encoding="utf-8"))
    ids, rewards, scores = drawn(16, 4)
    names = {"gt": gt, "steps": 20, "rewards": rewards, "prompts": ids, "step": 40, "model": None}
    exec(loop, names)
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[:19]) == (20, ["{}"] * 19)
    monkeypatch.setattr(gt, "sketch", lambda model, prompts, responses, **options: scores[[one[0] for one in responses]])
    names |= {"prompt_tokens": [[n] for n in ids], "response_tokens": [[n] for n in range(ids.size)]}
    names["monitor"] = gt.live.Monitor(every=1, estimator="verl_grpo", overhead=None)
    exec(sketching, names)
    assert names["reading"].numbers["sketched_prompts"] == 16
