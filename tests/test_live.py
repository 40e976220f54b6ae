"""Advice while training runs: numbers by hand, what it may cost, and that it never ends a run."""

import logging

import numpy as np
import pytest
from pages import DOCS, blocks

import grpo_theory as gt
from grpo_theory.checks import sentences
from grpo_theory.checks.estimates import Estimate
from grpo_theory.live.monitor import FEWEST_PROMPTS, best_size

LOG = "grpo_theory.live"


@pytest.fixture(autouse=True)
def heard(monkeypatch):
    """Import Linter, which other tests call, turns off the loggers that there are."""
    monkeypatch.setattr(logging.getLogger(LOG), "disabled", False)


def drawn(prompts, size, seed=0, width=8):
    """Return ids, rewards and scores of responses whose prompts differ in success rate and gradient."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(prompts), size)
    rewards = (rng.random(ids.size) < np.repeat(rng.random(prompts), size)) * 1.0
    scores = rng.standard_normal((ids.size, width)) + rewards[:, None] * np.repeat(rng.standard_normal((prompts, width)), size, 0)
    return ids, rewards, scores


def free(every=1, estimator="trl_grpo", **options):
    return gt.live.Monitor(every=every, estimator=estimator, overhead=None, **options)


def test_shares_of_groups_by_hand():
    monitor, rewards = free(every=3), [1, 0, 1, 1, 0, 0]
    assert [monitor.step(step, rewards, list("aabbcc")).numbers for step in (1, 2)] == [{}, {}]
    found = monitor.step(3, rewards, list("abcabc")).numbers  # groups (1, 1), (0, 0) and (1, 0)
    assert [found[f"groups_{kind}"] for kind in ("with_signal", "all_right", "all_wrong")] == [3 / 9] * 3
    assert found["groups_all_wrong_low"] < 3 / 9 < found["groups_all_wrong_high"]
    found = free().step(1, [0, 1, 0.5, 0.5], list("aabb")).numbers  # a group between the two ends is neither
    assert [found[f"groups_{kind}"] for kind in ("with_signal", "all_right", "all_wrong")] == [0.5, 0, 0]


@pytest.mark.parametrize("reward", [-1.0, 0.0, 0.5])
def test_groups_of_a_run_with_one_reward_are_equal_and_neither_right_nor_wrong_until_another_comes(reward):
    monitor, ids = free(), np.repeat(np.arange(40), 4)
    first = monitor.step(1, np.full(160, reward), ids)
    assert {name for name in first.numbers if name.startswith("groups") and name.count("_") == 1} == {"groups_equal"}
    assert (first.numbers["groups_equal"], first.numbers["groups_equal_high"]) == (1.0, 1.0)
    assert first.remarks == [sentences.difficulty(Estimate(np.nan, 0.0, 1.0), Estimate(np.nan, 0.0, 1.0), 4)]
    assert monitor.step(2, np.full(160, reward), ids).remarks == [], "said once"
    second = monitor.step(3, [reward - 1.0] * 4 + [reward] * 156, ids)
    assert (second.numbers["groups_all_right"], second.numbers["groups_all_wrong"]) == (39 / 40, 1 / 40)
    assert second.remarks[0].startswith("Too easy")


@pytest.mark.parametrize("estimator", ["trl_grpo", "nemo_rl", "rloo", "reinforce"])
def test_a_step_is_advised_on_as_the_planner_does_and_uniform_groups_need_no_sketches(estimator):
    ids, rewards, scores = drawn(60, 6)
    uniform = np.ptp(rewards.reshape(60, 6), axis=1) == 0.0

    def found(given):
        choice, in_use = best_size(list(zip(rewards.reshape(60, 6), given, strict=True)), 360, gt.estimators()[estimator])
        assert in_use == 6
        return choice.group_size, choice.low, choice.high, *choice.efficiency.tolist(), *choice.loss.estimate.tolist()

    whole = found(scores.reshape(60, 6, 8))
    limits = gt.plan.Limits(budget=360, max_group_size=360)
    advice = gt.plan.advise(gt.RaggedRollouts(ids, rewards, scores), limits, group_size=6, estimator=estimator).scores
    assert whole[0] == advice.choice.group_size
    if advice.own is not None:
        assert whole[1:3] == (advice.own.low, advice.own.high)
        assert whole[3:8] == tuple(advice.own.efficiency), "groups of 2 to 6"
    without = found([None if equal else one for one, equal in zip(scores.reshape(60, 6, 8), uniform, strict=True)])
    assert (without == whole) is (estimator != "reinforce")
    asked = []
    free(estimator=estimator).step(1, [1] * 4 + [0, 1] * 4, ["a"] * 4 + ["b"] * 4 + ["c"] * 4,
                                   sketch=lambda rows: asked.append(rows) or np.ones((rows.size, 2)), at_hand=10)  # fmt: skip
    assert asked[0].tolist() == list(range(0 if estimator == "reinforce" else 4, 8)), "groups with signal, whole at hand"


def test_sketches_of_readings_are_put_together_and_few_prompts_name_no_size(monkeypatch):
    """Three prompts once gave a best size of 9 (2 to 32). The newest groups of 62 prompts count, and old ones are forgotten."""
    monkeypatch.setattr("grpo_theory.live.monitor.MOST_PROMPTS", 62)
    ids, rewards, scores = drawn(66, 6, seed=2)
    monitor, few, order = free(responses=180), [], [*range(11), 0]
    for step, part in enumerate(order):
        own = slice(36 * part, 36 * (part + 1)) if part else slice(0, 18)  # step 0 has 3 prompts, and the others 6
        found = monitor.step(step, rewards[own], ids[own], sketch=scores[own].__getitem__).numbers
        if found["sketched_prompts"] < FEWEST_PROMPTS:
            few.append([name for name in found if "size" in name or name in {"efficiency", "loss"}])
    assert few == [[]] * 5
    kept = [*range(7, 66), 0, 1, 2]
    groups = [(rewards.reshape(66, 6)[one], scores.reshape(66, 6, 8)[one]) for one in kept]
    choice, in_use = best_size(groups, 180, gt.estimators()["trl_grpo"])
    at = choice.at(in_use)
    assert found["sketched_prompts"] == len(kept)
    assert found["efficiency"] == pytest.approx(choice.efficiency[at], abs=1e-12)
    assert found["loss"] == pytest.approx(choice.loss.estimate[at], abs=1e-12)
    assert [found[f"best_group_size{end}"] for end in ("", "_low", "_high")] == [choice.group_size, choice.low, choice.high]
    assert monitor.step(30, [0.0, 1.0], ["x"] * 2).numbers["sketched_prompts"] == 3, "those of step 11 are 19 readings old"
    assert "sketched_prompts" in monitor.step(31, [0.0, 1.0], ["x"] * 2, sketch=scores.__getitem__).numbers
    equal = [(np.ones(4), None)] * 5
    for few in ([(one, None) for one in rewards.reshape(66, 6)[:, :3]], groups[:2], equal):
        assert best_size(few, 180, gt.estimators()["rloo"]) is None


def timed(seconds, steps, every=20, advice=0.0, **options):
    """Run steps of one second whose responses take so many seconds to sketch; return overheads, sketched rows and readings."""
    now, asked, overheads, read = [0.0], [], [], []
    monitor = gt.live.Monitor(every=every, estimator="trl_grpo", clock=lambda: now[0], **options)
    ids, rewards, scores = drawn(16, 4)

    def sketch(rows):
        now[0] += seconds * rows.size
        asked.append(rows.size)
        return scores[rows]

    def advise(*_):
        now[0] += advice

    monitor._best_size = advise
    for step in range(1, steps + 1):
        now[0] += 1.0
        read.append(bool(monitor.step(step, rewards, ids, sketch=sketch).numbers))
        overheads.append(monitor.overhead)
    return overheads, asked, read


@pytest.mark.parametrize(("seconds", "advice"), [(0.001, 0.0), (0.01, 0.0), (0.05, 0.0), (0.2, 0.0), (0.05, 0.6), (0.05, 0.7)])
def test_the_overhead_is_what_is_allowed_at_every_step_and_rewards_are_read_as_often_as_without_sketches(seconds, advice):
    """With a first group that fits into what 20 steps allow.  Advice may take time as sketches do."""
    overheads, asked, read = timed(seconds, 400, advice=advice)
    assert max(overheads) <= 0.05
    assert len(asked) > (2 if advice else 10)
    assert np.flatnonzero(read).tolist() == list(range(19, 400, 20))


def test_a_sketch_that_is_too_slow_is_waited_for():
    """A group of four takes 40 seconds, what 1,000 steps allow: the first one is taken to learn that, and then hardly any."""
    overheads, asked, read = timed(10.0, 3000)
    assert sum(asked) <= 4 * 3
    assert overheads[-1] <= 0.05 < max(overheads)
    assert sum(read) == 150


def test_how_many_groups_are_sketched_does_not_depend_on_their_rewards():
    """The one step that is compared comes after the same history, and so are the prompts that the pool then has."""
    counts = []
    for last in ([0.0, 1.0, 0.0, 1.0], [1.0] * 4):
        now = [0.0]
        monitor = gt.live.Monitor(every=1, clock=lambda now=now: now[0], overhead=0.05)

        def sketch(rows, now=now):
            now[0] += 0.01 * rows.size
            return np.ones((rows.size, 1))

        for step, own, prompts in ((1, [0.0, 1.0, 0.0, 1.0], 8), (2, last, 32)):
            now[0] += 10.0
            monitor.step(step, own * prompts, np.repeat(np.arange(100 * step, 100 * step + prompts), 4), sketch=sketch)
        counts.append(len(monitor._pool))
    assert counts[0] == counts[1]
    assert 1 < counts[0] - 1 < 32


class MuteError(Exception):
    """An error that cannot say what it is."""

    def __str__(self):
        raise RuntimeError("no words")


def broken(error):
    return lambda rows: (_ for _ in ()).throw(error)


def test_each_part_that_fails_is_logged_once_and_the_run_goes_on(caplog):
    """A sketch that failed is not asked again, even if its error has no words; the rewards are read."""
    monitor = free()
    with caplog.at_level(logging.WARNING, LOG):
        for step, rewards, prompts in ((1, [0.0, np.nan], ["a", "a"]), (2, [0.0, 1.0], ["a"]), (3, "no rewards", ["a"])):
            assert monitor.step(step, rewards, prompts).numbers == {}
        for step, error in ((4, RuntimeError("out of memory\x1b[2J")), (5, AssertionError("asked again"))):
            found = monitor.step(step, [0, 1, 0, 1], ["a"] * 4, sketch=broken(error)).numbers
            assert found["groups_with_signal"] == 1.0
        assert monitor.errors == 4
        assert free().step(6, [0, 1, 0, 1], ["a"] * 4, sketch=broken(MuteError())).numbers["groups_with_signal"] == 1.0
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.startswith("reading rewards at step 1 failed (ValueError: rewards must be finite")
    assert first.endswith("Training goes on; later errors there are not logged.")
    assert second.startswith("sketching at step 4 failed (RuntimeError: out of memory\\x1b[2J")
    assert third.startswith("sketching at step 6 failed (MuteError). Training goes on")


def test_sketches_that_cannot_be_judged_leave_the_signal(caplog):
    """Graded rewards of more than eight values have no law for an estimator that divides; rloo has one (the control)."""
    ids, rewards, sketches = np.repeat(np.arange(40), 8), np.arange(320) % 11 / 10, np.random.default_rng(0).normal(size=(320, 8))
    for estimator, errors in (("rloo", 0), ("verl_grpo", 1)):
        monitor = free(estimator=estimator)
        found = monitor.step(1, rewards, ids, sketch=sketches.__getitem__)
        assert found.numbers["groups_with_signal"] == 1.0
        assert (("efficiency" in found.numbers), monitor.errors) == (errors == 0, errors)
    assert "at most 8 different rewards" in caplog.text


def test_an_interrupt_is_no_error_and_mistakes_are_named_before_the_run():
    with pytest.raises(KeyboardInterrupt):
        free().step(1, [0, 1, 0, 1], ["a"] * 4, sketch=broken(KeyboardInterrupt()))
    with pytest.raises(ValueError, match="overhead must lie strictly between 0 and 1"):
        gt.live.Monitor(overhead=1.5)
    with pytest.raises(ValueError, match="those of 'trl_grpo_batch' depend on the other groups"):
        gt.live.Monitor(estimator="trl_grpo_batch")


def test_remarks_on_signal_are_made_where_the_advice_changes_in_the_words_of_read():
    monitor, said = free(), []
    for step, wrong in enumerate((10, 36, 36, 22, 10, 36)):
        rewards = np.where(np.arange(40)[:, None] < wrong, 0.0, np.array([0.0, 1.0, 1.0, 0.0])).ravel()
        reading = monitor.step(step, rewards, np.repeat(np.arange(40), 4))
        share = Estimate(*(reading.numbers[f"groups_all_wrong{end}"] for end in ("", "_low", "_high")))
        said.append(reading.remarks)
        if reading.remarks:
            assert reading.remarks == [sentences.difficulty(Estimate(0.0, 0.0, 0.0), share, 4)]
    assert [len(one) for one in said] == [0, 1, 0, 0, 0, 1]


def test_a_fall_is_said_once_and_a_run_that_goes_back_to_its_checkpoint_forgets_it():
    """The mean reward is 0.75 to step 60, and falls to 0.25 at step 80."""
    rng, monitor, said = np.random.default_rng(3), free(every=5), []
    levels = [*[0.75] * 60, *np.linspace(0.75, 0.25, 20), *[0.25] * 40]
    for step, level in [*enumerate(levels, 1), *((step, 0.75) for step in range(61, 121))]:
        reading = monitor.step(step, rng.random(256) < level, np.repeat(np.arange(32), 8))
        said += [(step, one) for one in reading.remarks if one.startswith("Go back to the checkpoint of step ")]
    ((step, sentence),) = said
    assert step == 80
    assert 55 <= float(sentence.split()[7].rstrip(":")) <= 65


def test_a_group_size_is_named_once_and_yours_again_where_it_may_be_best():
    monitor, reading = free(), gt.live.Reading(1, {}, [])
    for state, sentence in ((None, "yours"), (4, "4 is better"), (4, "4 is better"), (None, "yours again"), (None, "yours")):
        monitor._say(reading, "size", state, sentence)
    assert reading.remarks == ["4 is better", "yours again"]
    ids, rewards, _ = drawn(64, 16, seed=4)
    along = 1.0 + 3.0 * np.eye(64)[ids]  # prompts have little of their gradients in common: more of them help
    signal = (rewards - rewards.reshape(64, 16).mean(axis=1)[ids])[:, None] * along
    said = free(estimator="rloo").step(1, rewards, ids, sketch=signal.__getitem__)
    assert said.numbers["best_group_size_high"] < 16
    best, high = (round(said.numbers[f"best_group_size{end}"]) for end in ("", "_high"))
    start = f"A step with groups of {best} gains {said.numbers['loss']:.0%} more than with yours, 16, for rloo (64 prompts: "
    assert said.remarks[-1].startswith(start)
    assert said.remarks[-1].endswith(f" to {high} may be best).")


def test_the_programs_for_any_trainer_run_as_printed(monkeypatch, capsys):
    _, loop, sketching = blocks((DOCS / "trainer_checks.md").read_text(encoding="utf-8"))
    ids, rewards, scores = drawn(16, 4)
    names = {"gt": gt, "steps": 20, "rewards": rewards, "prompts": ids, "step": 40, "model": None}
    exec(loop, names)
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[:19]) == (20, ["{}"] * 19)
    monkeypatch.setattr(gt, "sketch", lambda model, prompts, responses, **options: scores[[one[0] for one in responses]])
    names |= {"prompt_tokens": [[n] for n in ids], "response_tokens": [[n] for n in range(ids.size)]}
    names["monitor"] = free(estimator="verl_grpo")
    exec(sketching, names)
    assert names["reading"].numbers["sketched_prompts"] == 16
