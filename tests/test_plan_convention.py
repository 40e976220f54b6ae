"""The planner knows whose error its numbers are: leave-one-out's and its multiples', and says so of any other estimator."""

import numpy as np
import pytest
from tables import answer, rows, write

import grpo_theory as gt
from grpo_theory.compiler import plain_python
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.page.command import main
from grpo_theory.plan.convention import baseline_of, is_leave_one_out

SIZE = 5


def is_multiple(estimator):
    """Whether weights of tokens times advantages are one constant times Z - group mean, on batches of random numbers."""
    rng = np.random.default_rng(3)
    factors = []
    for zeros in range(4):
        rewards, lengths = rng.normal(size=(3, SIZE)), rng.integers(1, 9, (3, SIZE))
        rewards[0, :zeros] = 0.0  # what counts successes tells 0 from the rest
        lengths[0, 0] = 9  # the horizon
        fields = [rewards, 1.0 + rng.random(rewards.shape), lengths, *rng.random((len(PROMPT_FIELDS), 3))]
        found = np.full(rewards.shape, np.nan)
        plain_python(estimator.advantage.function)(Batch._make([*fields, estimator.advantage.parameter_array]), found)
        whole = {"": 1.0, "group": lengths.sum(axis=1, keepdims=True), "batch": lengths.sum()}[estimator.aggregation.pool]
        weights = estimator.aggregation.shares(lengths.ravel()).reshape(lengths.shape) / whole
        factors.append(weights * found / (rewards - rewards.mean(axis=1, keepdims=True)))
    return bool(np.ptp(factors) <= 1e-9 * np.abs(factors).max() and np.mean(factors) > 0.0)


def test_the_multiples_of_leave_one_out_are_those_of_all_estimators_that_are_so_in_numbers():
    found = {name for name, one in gt.estimators().items() if is_leave_one_out(one, SIZE)}
    assert found == {name for name, one in gt.estimators().items() if is_multiple(one)}
    assert {"rloo", "dr_grpo", "trl_rloo", "trl_dr_grpo_loss"} <= found
    assert not {"reinforce", "grpo", "trl_grpo", "trl_dapo_loss", "oracle", "james_stein"} & found


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plan") / "rollouts.jsonl", rows())


def sections(capsys, table, estimator):
    assert main(["plan", str(table), "--budget", "1024", "--group-size", "32", "--estimator", estimator]) == 0
    return [" ".join(part.split()) for part in answer(capsys.readouterr().out).split("\n\n")]


def test_no_baseline_is_that_of_estimators_whose_advantage_is_the_reward():
    assert {name for name, one in gt.estimators().items() if baseline_of(one, SIZE) == "none"} == {"reinforce"}
    assert baseline_of(gt.estimators()["oracle"], SIZE) is None


def test_an_estimator_that_is_another_is_planned_by_efficiency(capsys, table):
    found = sections(capsys, table, "trl_grpo")
    assert found[0].startswith("RECOMMENDATION Use trl_grpo with groups of")
    assert "You named trl_grpo. Its average update is not a multiple of the gradient" in found[1]
    assert "compared by efficiency" in found[1]
    (assumed,) = (part for part in found if part.startswith("ASSUMED"))
    assert "The step uses the advantages of trl_grpo" in assumed
    assert "known not to hold" not in assumed
    (rewards,) = (part for part in found if part.startswith("FROM THE REWARDS"))
    assert "Once the group's mean is subtracted, only these give a gradient" in rewards


@pytest.mark.parametrize(
    ("estimator", "baseline"),
    [("reinforce", "no baseline"), *((name, "the leave-one-out baseline") for name in ("rloo", "dr_grpo", "trl_dr_grpo_loss"))],
)
def test_the_baseline_of_the_users_estimator_is_kept(capsys, table, estimator, baseline):
    found = sections(capsys, table, estimator)
    assert found[0].startswith(f"RECOMMENDATION Use {baseline} and groups of")
    assert "your group size 32 has" in found[0]
    assert f"You named {estimator}, so the recommendation keeps its baseline: {baseline}." in found[1]
    assert "known not to hold" not in " ".join(found)
