"""The planner knows whose error its numbers are: leave-one-out's and its multiples', and says so of any other estimator."""

import numpy as np
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.compilation import plain
from grpo_theory.estimation.kernel import PROMPT_FIELDS, Batch
from grpo_theory.plan.command import main
from grpo_theory.plan.convention import is_leave_one_out

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
        plain(estimator.advantage.function)(Batch._make([*fields, estimator.advantage.parameter_array]), found)
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
    return [" ".join(part.split()) for part in capsys.readouterr().out.split("\n\n")]


@pytest.mark.parametrize("estimator", ["reinforce", "trl_grpo"])
def test_an_estimator_that_is_another_is_named_where_the_numbers_stand(capsys, table, estimator):
    found = sections(capsys, table, estimator)
    assert f"You named {estimator}, whose error this is not" in found[0]
    assert "Yours, 32" not in found[0]
    assert "With rewards less the mean of the others, your size, 32, has" in found[0]
    (assumed,) = (part for part in found if part.startswith("ASSUMED"))
    assert f"This is known not to hold: {estimator}, which you named, is another." in assumed
    (rewards,) = (part for part in found if part.startswith("FROM THE REWARDS"))
    assert "once the group's mean is subtracted, only these give a gradient" in rewards


@pytest.mark.parametrize("estimator", ["rloo", "dr_grpo", "trl_dr_grpo_loss"])
def test_a_multiple_of_leave_one_out_is_not_called_another(capsys, table, estimator):
    found = sections(capsys, table, estimator)
    assert "Yours, 32, has" in found[0]
    assert "which you named" not in " ".join(found)
