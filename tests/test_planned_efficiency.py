"""The plan by efficiency: its law, choice, signal and gains against exact efficiencies, the constants of RLOO, and a control."""

import numpy as np
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.estimation.code import plain_python
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.intervals.rollout_intervals import prompt_gradients
from grpo_theory.plan import Limits
from grpo_theory.plan.efficiency import OTHERS, RewardClasses, StepLaw, baseline_of, choose_by_efficiency, logged_size, product_of
from grpo_theory.plan.group_size import pilot_terms

LIMITS = Limits(budget=256)
SIZES = np.arange(2, 9)
BATCHES = np.array([LIMITS.prompts(int(size)) for size in SIZES])
SURE = 1.0 - 1e-4


def draw(prompts, seed):
    """Draw a log with eight responses to each prompt."""
    pilot = gt.Pilot(prompts, 8)
    return pilot.take(pilot.sample(gt.gallery.problem("linear"), np.random.default_rng(seed), 1), 0)


def law_of(rollouts, name):
    return StepLaw.of_subgroups(RewardClasses.of(rollouts), prompt_gradients(rollouts), find(name), SIZES)


def exact(estimator, batch=None, size=None):
    """Return the exact efficiency at a batch, or those at all sizes."""
    problem = gt.gallery.problem("linear")
    pairs = [(batch, size)] if size else zip(BATCHES.tolist(), SIZES.tolist(), strict=True)
    return np.array([gt.efficiency(problem, problem.theta, estimator, batch_size=b, group_size=g) for b, g in pairs])


@pytest.fixture(scope="module")
def log():
    return draw(3000, 20261125)


@pytest.mark.parametrize("name", ["rloo", "trl_grpo", "nemo_rl", "max_rl"])
def test_limits_hold_the_exact_efficiencies_and_losses(name, log):
    truth, law = exact(name), law_of(log, name)
    choice, best = choose_by_efficiency(law, BATCHES, SURE), int(np.argmax(truth))
    for i, one in enumerate(truth):
        assert law.signal(i, int(BATCHES[i]), SURE).covers(one / (1.0 - one))
    assert choice.candidates[best]
    assert choice.loss.covers(truth[best] / truth - 1.0).all()
    assert choice.efficiency == pytest.approx(truth, rel=0.2)
    assert choice.loss.estimate == pytest.approx(choice.efficiency[choice.best] / choice.efficiency - 1.0)
    assert truth[best] / truth[choice.best] - 1.0 <= min(choice.risk, 0.02)
    if name in ("rloo", "max_rl"):  # 3,000 prompts tell these apart: the law of one does not hold the other's losses
        other = exact({"rloo": "max_rl", "max_rl": "rloo"}[name])
        assert not choice.loss.covers(other.max() / other - 1.0).all()


@pytest.mark.parametrize("name", ["rloo", "max_rl"])
def test_gains_of_another_estimator_hold_the_exact_ones(name, log):
    scores = gt.plan.advise(log, LIMITS, estimator=name, level=SURE).scores
    own = exact(name, scores.choice.batch_size, scores.choice.group_size)[0]
    others = {one.name: one for one in scores.others}
    assert len(others) == 3
    for one in others.values():
        assert one.gain.level == pytest.approx(1.0 - (1.0 - SURE) / 3.0), "all limits hold at once"
        assert one.gain.covers(exact(one.name, one.batch_size, one.group_size)[0] / own - 1.0)
    assert not others["max_rl" if name == "rloo" else "rloo"].gain.covers(0.0)


def test_of_rloo_it_is_the_plan_by_squared_error(log):
    """The best size by its constants; and by subgroups, whose numbers are others and near."""
    found = gt.plan.choose_group_size(log, LIMITS)
    law = StepLaw.of_unbiased(pilot_terms(log), found.group_sizes)
    choice, by_subgroups = choose_by_efficiency(law, found.batch_sizes), choose_by_efficiency(law_of(log, "rloo"), BATCHES)
    assert choice.group_size == by_subgroups.group_size == found.group_size
    assert by_subgroups.efficiency == pytest.approx(choice.efficiency[: SIZES.size], rel=0.02)


def test_a_factor_on_the_advantages_changes_nothing(log):
    """Dr. GRPO's estimate is RLOO's times 1 - 1/G, which the learning rate undoes."""
    one, other = (choose_by_efficiency(law_of(log, name), BATCHES) for name in ("rloo", "dr_grpo"))
    assert (other.candidates == one.candidates).all()
    assert other.efficiency == pytest.approx(one.efficiency, rel=1e-9)


def test_influences_are_those_of_leaving_out_one_prompt():
    rng = np.random.default_rng(5)
    first, second, size = rng.normal(size=(12, 3)), rng.normal(size=(12, 3)), 12
    found, pairs = product_of(first, second), first @ second.T
    assert found.values == pytest.approx((pairs.sum() - np.trace(pairs)) / (size * (size - 1.0)))
    without = np.array([product_of(np.delete(first, b, 0), np.delete(second, b, 0)).values for b in range(size)])
    assert found.influences == pytest.approx((size - 1.0) * (without.mean() - without))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_logs_that_tell_little_say_so():
    small = choose_by_efficiency(law_of(draw(100, 1), "trl_grpo"), BATCHES)
    assert small.prompts_needed(0.01) > 100
    rng = np.random.default_rng(7)
    silent = law_of(gt.Rollouts(rng.integers(0, 2, size=(40, 8)).astype(float), rng.normal(size=(40, 8, 5))), "trl_grpo")
    choice = choose_by_efficiency(silent, BATCHES)
    assert choice.candidates.all()
    assert (choice.risk, silent.signal(0, 128, 0.95).low) == (np.inf, 0.0)
    for _ in range(5):  # few prompts with whole-numbered sketches: the estimate of a mean square is then often 0 or less
        rewards = np.tile([0.0, 1.0, 1.0, 0.0], 5)
        few = gt.RaggedRollouts(np.repeat(np.arange(5), 4), rewards, rng.integers(-1, 2, size=(20, 2)) * rewards[:, None])
        assert np.isfinite(gt.plan.advise(few, 64, estimator="trl_grpo").scores.own.efficiency).all()


# ---- which estimators are compared, and from which groups


def is_multiple(estimator, size):
    """Whether weights of tokens times advantages are one constant times Z - group mean, on batches of random numbers."""
    rng = np.random.default_rng(3)
    factors = []
    for zeros in range(4):
        rewards, lengths = rng.normal(size=(3, size)), rng.integers(1, 9, (3, size))
        rewards[0, :zeros] = 0.0  # what counts successes tells 0 from the rest
        lengths[0, 0] = 9  # the horizon
        fields = [rewards, 1.0 + rng.random(rewards.shape), lengths, -rewards, *rng.random((len(PROMPT_FIELDS), 3))]
        found = np.full(rewards.shape, np.nan)
        plain_python(estimator.advantage.function)(Batch(*fields, estimator.advantage.parameter_array), found)
        whole = {"": 1.0, "group": lengths.sum(axis=1, keepdims=True), "batch": lengths.sum()}[estimator.aggregation.pool]
        weights = estimator.aggregation.shares(lengths.ravel()).reshape(lengths.shape) / whole
        factors.append(weights * found / (rewards - rewards.mean(axis=1, keepdims=True)))
    return bool(np.ptp(factors) <= 1e-9 * np.abs(factors).max() and np.mean(factors) > 0.0)


def test_baselines_are_those_of_all_estimators_that_have_them_in_numbers():
    found = {name: baseline_of(one, 5) for name, one in gt.estimators().items()}
    multiples = {name for name, one in gt.estimators().items() if is_multiple(one, 5)}
    assert {name for name, one in found.items() if one == "leave-one-out mean"} == multiples
    assert {name for name, one in found.items() if one == "none"} == {"reinforce"}


def test_other_estimators_stand_beside_the_plan_and_do_not_change_its_numbers(tmp_path):
    log = gt.read_rollouts(write(tmp_path / "rollouts.jsonl", rows()))
    expected = gt.plan.choose_group_size(log.rollouts, Limits(budget=1024))
    gains = {}
    for name in (None, "rloo", "dr_grpo", "trl_grpo", "trl_grpo_loss", "grpo", "max_rl", "nemo_rl"):
        scores = gt.plan.advise(log, 1024, estimator=name).scores
        same = {None: "rloo", "dr_grpo": "rloo", "trl_grpo_loss": "trl_grpo", "grpo": "trl_grpo"}.get(name, name)
        gains[name] = {one.name: one.gain for one in scores.others}
        assert list(gains[name]) == [one for one in OTHERS if one != same]
        assert [one.level for one in gains[name].values()] == pytest.approx([1.0 - 0.05 / 3.0] * 3)
        if same == "rloo":
            assert (scores.own, scores.choice.group_size) == (None, expected.group_size)
            assert (scores.by_error.mse.estimate == expected.mse.estimate).all()
    forth, back = gains["max_rl"]["nemo_rl"].estimate, gains["nemo_rl"]["max_rl"].estimate
    assert (1.0 + forth) * (1.0 + back) == pytest.approx(1.0), "what one gains is what the other loses"


def test_groups_of_several_sizes_are_planned_up_to_what_half_of_them_have(tmp_path):
    assert [logged_size(np.array(sizes)) for sizes in ([4, 8, 8, 16], [4, 8, 16], [64] * 5 + [4] * 4)] == [8, 4, 64]
    found = [row for i, row in enumerate(rows()) if i // 8 % 3 or i % 8 < 5]
    scores = gt.plan.advise(gt.read_rollouts(write(tmp_path / "ragged.jsonl", found)), 1024, estimator="trl_grpo").scores
    assert (scores.laws.largest, scores.laws.rollouts.batch_size, scores.prompts) == (8, 32, 48)
