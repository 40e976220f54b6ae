"""Advice while training runs: numbers by hand and by enumeration, what it may cost, and that it never ends a run."""

import logging
from itertools import product

import numpy as np
import pytest
from pages import DOCS, blocks
from scipy import stats

import grpo_theory as gt
from grpo_theory.live.allowance import Allowance
from grpo_theory.live.groups import SketchPool, StepGroups
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


# ---- clips


def test_clipped_shares_by_hand():
    ratios = [[1.3, 1.1, 0.7], [0.7, 1.3, 0.9]]
    assert gt.live.clipped_shares(ratios, [1.0, -1.0]) == gt.live.ClippedShares(low=1 / 6, high=1 / 6)
    assert gt.live.clipped_shares(ratios, [[1.0], [-1.0]], high=0.05) == gt.live.ClippedShares(low=1 / 6, high=2 / 6)
    assert gt.live.clipped_shares(ratios, [1.0, -1.0], mask=[[0, 1, 1], [1, 0, 0]]) == gt.live.ClippedShares(low=1 / 3, high=0.0)
    by_token = [[-1.0, 1.0, -1.0], [1.0, 1.0, 0.0]]
    assert gt.live.clipped_shares(ratios, by_token) == gt.live.ClippedShares(low=1 / 6, high=1 / 6)


def test_what_is_clipped_is_where_the_loss_has_no_slope():
    """The slope of min(r A, clip(r) A) by a difference, at ratios on all sides of both clips."""
    low, high, near = 0.2, 0.28, 1e-6

    def loss(r, a):
        return min(r * a, min(max(r, 1.0 - low), 1.0 + high) * a)

    for r, a in product((0.5, 0.79, 0.81, 1.0, 1.27, 1.29, 3.0), (-2.0, 1.0)):
        flat = loss(r + near, a) == loss(r - near, a)
        shares = gt.live.clipped_shares([[r]], [a], low=low, high=high)
        assert shares.low + shares.high == flat, (r, a)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0]), r"ratios must have shape \(N, T\)"),
        (([[1.0, 1.0]], [1.0, 1.0, 1.0]), "advantages must have shape"),
        (([[np.nan, 1.0]], [1.0]), "ratios must be numbers where"),
    ],
)
def test_clips_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        gt.live.clipped_shares(*arguments)
    with pytest.raises(ValueError, match="mask must have the ratios' shape"):
        gt.live.clipped_shares([[1.0, 1.0]], [1.0], mask=[[0, 0]])


def test_a_ratio_that_does_not_count_need_not_be_a_number():
    assert gt.live.clipped_shares([[np.nan, 2.0]], [1.0], mask=[[0, 1]]) == gt.live.ClippedShares(low=0.0, high=1.0)


# ---- groups


def test_groups_of_a_step_are_those_of_ragged_rollouts():
    rng = np.random.default_rng(3)
    ids, rewards = rng.integers(0, 7, 60).tolist(), rng.integers(0, 3, 60) / 2.0
    groups, rollouts = StepGroups(rewards, ids), gt.RaggedRollouts(ids, rewards)
    assert groups.prompts == rollouts.prompts.tolist()
    assert groups.index.tolist() == rollouts.index.tolist()
    assert groups.sizes.tolist() == rollouts.sizes.tolist()
    assert groups.signal.tolist() == (~rollouts.counts.uniform).tolist()


def test_the_pool_has_the_newest_group_of_each_prompt_and_forgets_old_ones():
    pool = SketchPool(most=2, oldest=10)
    for step, prompt in ((1, "a"), (2, "b"), (3, "a"), (4, "c")):
        pool.add(step, prompt, np.array([0.0, step]), np.full((2, 3), step))
    kept = pool.rollouts(5)
    assert kept.rewards.tolist() == [0.0, 3.0, 0.0, 4.0]
    assert kept.scores[:, 0].tolist() == [3.0, 3.0, 4.0, 4.0]
    assert pool.rollouts(13).rewards.tolist() == [0.0, 4.0]
    assert pool.rollouts(14) is None
    pool.add(20, "d", np.array([1.0, 1.0]), None)
    assert pool.rollouts(20) is None
    pool.add(20, "e", np.array([0.0, 1.0]), np.ones((2, 3)))
    assert pool.rollouts(20).scores.tolist() == [[0.0] * 3] * 2 + [[1.0] * 3] * 2
    pool.add(21, "f", np.array([0.0, 1.0]), np.ones((2, 4)))
    with pytest.raises(ValueError, match="sketches must have one width, got 3 and 4"):
        pool.rollouts(21)


# ---- numbers


def test_the_share_with_signal_by_hand_and_its_limits():
    monitor = gt.live.Monitor(every=3, overhead=None)
    rewards = [1, 0, 1, 1, 0, 0]
    assert monitor.step(1, rewards, list("aabbcc")).numbers == {}
    assert monitor.step(2, rewards, list("aabbcc")).numbers == {}
    found = monitor.step(3, rewards, list("abcabc")).numbers  # groups (1, 1), (0, 0) and (1, 0)
    assert found["groups_with_signal"] == 3 / 9
    law = stats.binomtest(3, 9).proportion_ci(0.95)
    assert [found["groups_with_signal_low"], found["groups_with_signal_high"]] == pytest.approx([law.low, law.high], abs=1e-12)
    assert monitor.step(4, [0, 1], ["a", "a"]).numbers == {}
    assert monitor.step(6, [0, 1], ["a", "a"]).numbers["groups_with_signal"] == 1.0


def test_the_share_with_signal_is_that_of_all_groups_by_enumeration():
    """All 2^3 groups of three, weighted by their chance at success rate 0.3: 1 - p^3 - (1 - p)^3."""
    p, share = 0.3, 0.0
    for rewards in product((0, 1), repeat=3):
        found = gt.live.Monitor(every=1, overhead=None).step(1, rewards, ["a"] * 3).numbers["groups_with_signal"]
        share += found * p ** sum(rewards) * (1 - p) ** (3 - sum(rewards))
    assert share == pytest.approx(1 - p**3 - (1 - p) ** 3, abs=1e-12)


def test_clips_are_averaged_between_readings():
    monitor = gt.live.Monitor(every=2, overhead=None)
    monitor.step(1, [0, 1], ["a", "a"], clipped=gt.live.ClippedShares(0.0, 0.5))
    found = monitor.step(2, [0, 1], ["a", "a"], clipped=gt.live.ClippedShares(0.25, 0.0)).numbers
    assert (found["clipped_low"], found["clipped_high"]) == (0.125, 0.25)
    monitor.step(3, [0, 1], ["a", "a"])
    assert "clipped_low" not in monitor.step(4, [0, 1], ["a", "a"]).numbers


@pytest.mark.parametrize("estimator", ["trl_grpo", "nemo_rl", "rloo", "reinforce"])
def test_a_step_is_advised_on_as_the_planner_does(estimator):
    ids, rewards, scores = drawn(60, 6)
    rollouts = gt.RaggedRollouts(ids, rewards, scores)
    found = gt.live.advise_step(rollouts, 360, estimator=estimator)
    advice = gt.plan.advise(rollouts, gt.plan.Limits(budget=360, max_group_size=360), group_size=6, estimator=estimator).scores
    assert found.prompts == 60
    assert found.group_size == 6
    assert found.best == advice.choice.group_size
    if advice.own is not None:
        at = advice.own.at(6)
        assert found.efficiency == advice.own.efficiency[at]
        assert (found.low, found.high) == (advice.own.low, advice.own.high)
        assert found.loss == advice.own.loss.estimate[at]
        assert found.may_be_best == advice.own.candidates[at]


def test_the_efficiency_is_the_exact_one_on_many_groups():
    """5,000 prompts of a problem whose law is known: the estimate is within 4.9 of its standard errors by 20 such logs."""
    success = np.array([[0.2, 0.7, 0.5], [0.6, 0.1, 0.3]])
    problem, theta = gt.Problem(gt.Bandit(success), gt.TabularSoftmax(2, 3)), np.array([0.3, -0.2, 0.1, 0.0, 0.4, -0.5])
    policy = np.exp(theta.reshape(2, 3)) / np.exp(theta.reshape(2, 3)).sum(axis=1, keepdims=True)
    size, prompts = 4, 5000
    exact = gt.efficiency(problem, theta, "trl_grpo", batch_size=8, group_size=size)
    estimates = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        which = np.repeat(rng.integers(0, 2, prompts), size)
        cumulated = policy[which].cumsum(axis=1)
        actions = (rng.random(which.size)[:, None] > cumulated).sum(axis=1).clip(max=2)
        rewards = (rng.random(which.size) < success[which, actions]) * 1.0
        scores = np.zeros((which.size, 6))
        for action in range(3):
            scores[np.arange(which.size), 3 * which + action] = (actions == action) - policy[which, action]
        rollouts = gt.RaggedRollouts(np.repeat(np.arange(prompts), size), rewards, scores)
        estimates.append(gt.live.advise_step(rollouts, 8 * size, estimator="trl_grpo").efficiency)
    error = np.std(estimates, ddof=1) / np.sqrt(20)
    assert abs(np.mean(estimates) - exact) < 4.9 * error
    other = gt.efficiency(problem, theta, "trl_grpo", batch_size=12, group_size=size)
    assert abs(np.mean(estimates) - other) > 4.9 * error, "the test has no power against half as many prompts more"


@pytest.mark.parametrize("estimator", ["trl_grpo", "rloo", "max_rl"])
def test_groups_of_equal_rewards_need_no_sketches(estimator):
    ids, rewards, scores = drawn(40, 5, seed=1)
    uniform = ~StepGroups(rewards, ids).signal[ids]
    assert 10 < uniform.sum() < 150
    without = np.where(uniform[:, None], 0.0, scores)
    found, other = (
        gt.live.advise_step(gt.RaggedRollouts(ids, rewards, one), 200, estimator=estimator) for one in (scores, without)
    )
    assert found == other


def test_without_a_baseline_all_groups_are_sketched():
    for estimator, everything in (("rloo", False), ("reinforce", True)):
        asked = []
        monitor = gt.live.Monitor(every=1, estimator=estimator, overhead=None)

        def sketch(rows, asked=asked):
            asked += rows.tolist()
            return np.ones((rows.size, 2))

        monitor.step(1, [1, 1, 1, 1, 0, 1, 0, 1], ["a"] * 4 + ["b"] * 4, sketch=sketch)
        assert asked == list(range(8) if everything else range(4, 8))


def test_sketches_of_several_readings_are_put_together():
    ids, rewards, scores = drawn(30, 6, seed=2)
    monitor = gt.live.Monitor(every=1, estimator="trl_grpo", responses=180, overhead=None)
    for step in range(3):
        rows = slice(60 * step, 60 * (step + 1))
        found = monitor.step(step, rewards[rows], ids[rows], sketch=scores[rows].__getitem__).numbers
    whole = gt.live.advise_step(gt.RaggedRollouts(ids, rewards, scores), 180, estimator="trl_grpo")
    assert found["efficiency"] == pytest.approx(whole.efficiency, abs=1e-12)
    assert [found[f"best_group_size{end}"] for end in ("", "_low", "_high")] == [whole.best, whole.low, whole.high]
    assert found["sketched_prompts"] == 30


def test_only_whole_groups_at_hand_are_sketched():
    asked = []
    monitor = gt.live.Monitor(every=1, overhead=None)
    monitor.step(
        1,
        [0, 1] * 6,
        ["a"] * 4 + ["b"] * 4 + ["c"] * 4,
        sketch=lambda rows: asked.append(rows) or np.ones((rows.size, 1)),
        at_hand=6,
    )
    assert asked[0].tolist() == [0, 1, 2, 3]


def test_too_little_is_no_advice():
    ids, rewards, scores = drawn(2, 8)
    assert gt.live.advise_step(gt.RaggedRollouts(ids, rewards, scores), 16) is None
    assert gt.live.advise_step(gt.RaggedRollouts(*drawn(5, 3)), 15) is None
    assert gt.live.advise_step(gt.RaggedRollouts(drawn(5, 4)[0], np.ones(20), drawn(5, 4)[2]), 20) is None


# ---- time


def test_the_allowance_by_hand():
    clock = Clock()
    allowance = Allowance(0.1, clock)
    clock.now = 10.0
    assert allowance.left == pytest.approx(0.8)
    with allowance.spending():
        clock.now = 10.25
        with allowance.spending():
            clock.now = 10.5
    assert allowance.spent == pytest.approx(0.5)
    assert allowance.overhead == pytest.approx(0.05)
    assert allowance.left == pytest.approx(0.3)
    allowance.start()
    assert (allowance.spent, allowance.overhead, allowance.left) == (0.0, 0.0, 0.0)
    assert Allowance(None, clock).left == np.inf


def run(seconds, steps, every=20, **options):
    """Run steps of one second whose responses take so many seconds to sketch; return the overheads, and the sketched rows."""
    clock, asked, overheads = Clock(), [], []
    monitor = gt.live.Monitor(every=every, estimator="trl_grpo", clock=clock, **options)
    ids, rewards, scores = drawn(16, 4)

    def sketch(rows):
        clock.now += seconds * rows.size
        asked.append(rows)
        return scores[rows]

    for step in range(1, steps + 1):
        clock.now += 1.0
        monitor.step(step, rewards, ids, sketch=sketch)
        overheads.append(monitor.allowance.overhead)
    return overheads, asked


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.05, 0.2])
def test_the_overhead_is_at_most_what_is_allowed_at_every_step(seconds):
    """With a first group that fits into what 20 steps allow; costs are those of the clock, so that nothing is by chance."""
    overheads, asked = run(seconds, 400)
    assert max(overheads) <= 0.05
    assert len(asked) > 10


def test_a_sketch_that_is_too_slow_is_waited_for():
    """A group of four takes 40 seconds, what 1,000 steps allow: the first one is taken to learn that, and then hardly any."""
    overheads, asked = run(10.0, 3000)
    assert sum(rows.size for rows in asked) <= 4 * 3
    assert overheads[-1] <= 0.05
    assert max(overheads) > 0.05


def test_without_a_limit_the_overhead_is_what_it_is():
    overheads, asked = run(0.2, 60, overhead=None)
    assert overheads[-1] > 0.3
    assert len(asked) == 3


def test_how_many_groups_are_sketched_does_not_depend_on_their_rewards():
    """The one step that is compared comes after the same history."""
    counts = []
    for last in ([0.0, 1.0, 0.0, 1.0], [1.0] * 4):
        clock, taken = Clock(), []
        monitor = gt.live.Monitor(every=1, clock=clock, overhead=0.05)
        add = monitor._pool.add
        monitor._pool.add = lambda step, prompt, *rest, add=add, taken=taken: (taken.append(prompt), add(step, prompt, *rest))

        def sketch(rows, clock=clock):
            clock.now += 0.01 * rows.size
            return np.ones((rows.size, 1))

        clock.now = 10.0
        monitor.step(1, [0, 1, 0, 1] * 8, np.repeat(np.arange(8), 4), sketch=sketch)
        clock.now += 10.0
        monitor.step(2, last * 32, np.repeat(np.arange(32), 4), sketch=sketch)
        counts.append(len(taken))
    assert counts[0] == counts[1]
    assert 1 < counts[0] - 1 < 32


# ---- errors


def test_an_error_is_logged_once_and_the_run_goes_on(caplog):
    monitor = gt.live.Monitor(every=1, overhead=None)
    with caplog.at_level(logging.WARNING, LOG):
        assert monitor.step(1, [0.0, np.nan], ["a", "a"]).numbers == {}
        assert monitor.step(2, [0.0, 1.0], ["a"]).numbers == {}
        assert monitor.step(3, "no rewards", ["a"]).numbers == {}
        assert monitor.step(4, [0.0, 1.0], ["a", "a"]).numbers["groups_with_signal"] == 1.0
    assert monitor.guard.errors == 3
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("monitoring step 1 failed (ValueError: rewards must be finite")
    assert caplog.records[0].getMessage().endswith("Training goes on; later errors there are not logged.")


def test_a_sketch_that_fails_is_not_asked_again_and_the_rewards_are_read(caplog):
    asked = []

    def sketch(rows):
        asked.append(rows)
        raise RuntimeError("out of memory\x1b[2J")

    monitor = gt.live.Monitor(every=1, overhead=None)
    for step in range(5):
        assert monitor.step(step, [0, 1, 0, 1], ["a"] * 4, sketch=sketch).numbers["groups_with_signal"] == 1.0
    assert len(asked) == len(caplog.records) == monitor.guard.errors == 1
    assert "out of memory\\x1b[2J" in caplog.text


def test_an_early_error_of_one_part_does_not_hide_that_another_fails(caplog):
    def sketch(rows):
        raise RuntimeError("out of memory")

    monitor = gt.live.Monitor(every=1, overhead=None)
    for step in (1, 2):
        assert monitor.step(step, [0.0, np.nan], ["a", "a"]).numbers == {}
    for step in (3, 4):
        monitor.step(step, [0, 1, 0, 1], ["a"] * 4, sketch=sketch)
    assert [record.getMessage().partition(" failed")[0] for record in caplog.records] == [
        "monitoring step 1",
        "sketching at step 3",
    ]
    assert monitor.guard.errors == 3


def test_sketches_that_cannot_be_judged_leave_the_signal(caplog):
    """Graded rewards of more than eight values have no law for an estimator that divides; rloo has one (the control)."""
    ids, rewards, sketches = np.repeat(np.arange(16), 8), np.arange(128) % 11 / 10, np.random.default_rng(0).normal(size=(128, 8))
    for estimator, errors in (("rloo", 0), ("verl_grpo", 1)):
        asked = []
        monitor = gt.live.Monitor(every=1, estimator=estimator, overhead=None)
        with caplog.at_level(logging.WARNING, LOG):
            found = [
                monitor.step(step, rewards, ids, sketch=lambda rows, asked=asked: (asked.append(rows), sketches[rows])[1]).numbers
                for step in (1, 2, 3)
            ]
        assert [one["groups_with_signal"] for one in found] == [1.0] * 3
        assert ["efficiency" in one for one in found] == [errors == 0] * 3
        assert len(asked) == (3 if errors == 0 else 1)
        assert monitor.guard.errors == len(caplog.records) == errors
    assert "have 11 different rewards" in caplog.text
    assert "Round the rewards" in caplog.text


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([None] * 4, "got None at index (0,)"),
        (["a", "a", None, None], "got None at index (2,)"),
        (["a", "b", "c", "d"], "each of the 4 ids has one response"),
    ],
)
def test_ids_that_make_no_groups_are_not_read(prompts, message, caplog):
    monitor = gt.live.Monitor(every=1, overhead=None)
    with caplog.at_level(logging.WARNING, LOG):
        assert monitor.step(1, [0, 1, 1, 0], prompts).numbers == {}
    assert message in caplog.text


def test_an_interrupt_is_no_error():
    def sketch(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gt.live.Monitor(every=1, overhead=None).step(1, [0, 1, 0, 1], ["a"] * 4, sketch=sketch)


def test_mistakes_are_named_before_the_run():
    with pytest.raises(ValueError, match="every must be"):
        gt.live.Monitor(every=0)
    with pytest.raises(ValueError, match="overhead must lie strictly between 0 and 1"):
        gt.live.Monitor(overhead=1.5)
    with pytest.raises(ValueError, match="estimator"):
        gt.live.Monitor(estimator="trl_grpoo")
    with pytest.raises(ValueError, match="those of 'trl_grpo_batch' depend on the other groups"):
        gt.live.Monitor(estimator="trl_grpo_batch")


def test_a_start_compiles_and_counts_no_time():
    monitor = gt.live.Monitor(every=1, estimator="trl_grpo", overhead=None)
    monitor.start(4)
    assert (monitor.allowance.spent, monitor.guard.errors) == (0.0, 0)


# ---- remarks


def advice(best, low, high, group_size=8, bounded=True):
    return gt.live.StepAdvice("rloo", group_size, 0.5, best, low, high, bounded, 0.25, low <= group_size <= high, 40)


def test_a_remark_is_made_where_the_advice_changes_and_only_there():
    say = SizeRemarks()
    assert say(advice(4, 2, 32, bounded=False)) == []
    assert say(advice(4, 3, 9)) == ["the best group size for rloo is 4 (40 prompts: 3 to 9 may be best); yours, 8, may be best"]
    assert say(advice(5, 3, 10)) == []
    assert say(advice(4, 3, 6)) == [
        "the best group size for rloo is still 4 (40 prompts: 3 to 6 may be best); its efficiency is 25% above that of yours, 8"
    ]
    assert say(advice(5, 4, 6)) == []
    assert say(advice(6, 5, 6)) == [
        "the best group size for rloo is now 6, no longer 4 (40 prompts: 5 to 6 may be best); "
        "its efficiency is 25% above that of yours, 8"
    ]
    assert say(advice(8, 8, 8, bounded=False)) == [
        "the best group size for rloo is now 8, no longer 6 (40 prompts: no other size may be best, sizes above 8 were not "
        "considered); yours, 8, may be best"
    ]


def test_a_remark_on_signal_is_made_at_each_sure_crossing():
    say = SignalRemarks()
    assert say(0.45, 0.35, 0.55) == []
    assert len(say(0.4, 0.3, 0.49)) == 1
    assert say(0.3, 0.2, 0.4) == []
    assert say(0.55, 0.45, 0.65) == []
    assert say(0.6, 0.51, 0.7) == ["60% of the groups have signal again (51% to 70%)"]
    assert say(0.6, 0.51, 0.7) == []


def test_the_monitor_makes_the_remarks():
    monitor = gt.live.Monitor(every=1, overhead=None)
    reading = monitor.step(1, [1.0] * 80, np.repeat(np.arange(20), 4))
    assert reading.numbers["groups_with_signal"] == 0.0
    assert [remark.partition(". ")[0] for remark in reading.remarks] == ["0% of the groups have signal (0% to 17%)"]
    assert monitor.step(2, [1.0] * 80, np.repeat(np.arange(20), 4)).remarks == ()


# ---- the page


def test_the_programs_for_any_trainer_run_as_printed(monkeypatch, capsys):
    _, loop, sketching = blocks((DOCS / "live.md").read_text(encoding="utf-8"))
    ids, rewards, scores = drawn(16, 4)
    names = {"gt": gt, "steps": 20, "rewards": rewards, "prompts": ids, "step": 40, "model": None}
    exec(loop, names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert lines[:19] == ["{}"] * 19
    monkeypatch.setattr(gt, "sketch", lambda model, prompts, responses, **options: scores[[one[0] for one in responses]])
    names |= {"prompt_tokens": [[n] for n in ids], "response_tokens": [[n] for n in range(ids.size)]}
    names["monitor"] = gt.live.Monitor(every=1, estimator="verl_grpo", overhead=None)
    exec(sketching, names)
    assert names["reading"].numbers["sketched_prompts"] == 16
