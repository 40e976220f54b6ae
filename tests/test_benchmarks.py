"""The benchmarks: their table, fair timings, rivals that give the right answer."""

from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import __main__ as command_line
from benchmarks import numpy_rivals
from benchmarks.counts import CountedLaw, logit_gradients_of_counts
from benchmarks.table import Row
from benchmarks.tasks import Task, Training
from benchmarks.timing import Contender, Timed, timed
from grpo_theory import Harmonic

TINY = Task("tabular", 2, 4)
HEAD = Task("lm-few-shot", 2, 4)
GRADED = Task("graded of 3", 2, 4)
ROUTES = [Task(problem, 2, 4, estimator) for problem, estimator in command_line.ROUTES.values()]
TRAINED = [Training(name, 1, 4, schedule=Harmonic(5.0, 10), steps=10, runs=2048) for name in ("kl-tabular", "linear")]


def test_rows_and_command_line(capsys, monkeypatch):
    rows = [Row("a", 1.234, "b", least=2.0), Row("seconds", 1.5, most=2.0), Row("plain", 1000.4)]
    monkeypatch.setattr("benchmarks.table.PACKAGES", ("numpy", "no-such-package"))
    monkeypatch.setitem(command_line.PARTS, "slower", lambda: rows)
    assert command_line.main(["--only", "slower"]) == 0
    where, _, *lines = capsys.readouterr().out.splitlines()
    assert where.endswith(f"numpy {np.__version__}, no no-such-package")
    assert len({len(line) for line in lines}) == 1
    assert [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if "---" not in line] == [
        ("name", "value", "target", "met"),
        ("a", "1.23 (b)", "at least 2", "no"),
        ("seconds", "1.5", "at most 2", "yes"),
        ("plain", "1000", "", ""),
    ]


def test_everyone_is_given_enough_work_and_the_fastest_of_each_kind_is_shown():
    rounds = []
    (cost,) = timed([Contender("sum", lambda n: rounds.append(sum(range(1000 * n))), 10)], 0.001, 3)
    assert 0.0 < cost.least <= cost.median
    assert len(rounds) >= 5
    times = [Timed("own", 2.0, 1.0), Timed("scatter", 9.0, 8.0), Timed("masks", 8.0, 8.0), Timed("16-bit words", 6.0, 5.0)]
    seeing, fastest = command_line.rows_of("JAX", "1 thread", TINY, times, 3.5)
    assert (seeing.number, fastest.number) == (4.0, 3.0)
    assert "sees every response" in seeing.name
    assert (seeing.cells[-1], fastest.cells[-1]) == ("yes", "no")


@pytest.mark.parametrize("task", [TINY, HEAD, GRADED, Task("tabular", 1, 300), *TRAINED])
def test_answers_in_numpy_are_right(task):
    for contender in numpy_rivals.rivals(task):
        contender.run(1)


@pytest.mark.parametrize("task", [TINY, *ROUTES, TRAINED[0]])
def test_answers_of_the_simulators_are_right_and_a_wrong_one_is_noticed(task):
    task.simulator().run(1)
    if isinstance(task, Training):
        check, wrong = task.check_runs, (0.9 * task.reference,)
    else:
        check, wrong = task.check, (1.02 * task.exact_mse, 0.001 * task.exact_mse)
    with pytest.raises(RuntimeError, match="standard errors"):
        check("wrong", *wrong)


@pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("task", [TINY, HEAD, GRADED, Task("tabular", 1, 300), *TRAINED])
def test_answers_in_jax_are_right(task):
    from benchmarks import jax_rivals

    contenders = jax_rivals.rivals(task)
    names = [contender.name for contender in contenders]
    assert {command_line.COUNTING in name for name in names} == {True, False}
    for contender in contenders[:: 3 if isinstance(task, Training) else 1]:
        contender.run(1)


@pytest.mark.parametrize("task", [TINY, HEAD, GRADED, Task("graded of 4", 1, 5)])
def test_logit_gradients_of_counts_are_those_of_the_formula(task):
    law, generator = CountedLaw.of(task), np.random.default_rng(1)
    counts = generator.multinomial(task.group_size, law.probabilities[0])
    right = None if law.right is None else law.right[0]
    responses = np.repeat(np.arange(len(counts)), counts)
    if right is None:
        values = task.problem.bandit.values
        rewards, responses = values[responses % values.size], responses // values.size
    else:
        rewards = right[responses]
    advantages = rewards - (rewards.sum() - rewards) / (task.group_size - 1)
    expected = np.bincount(responses, advantages, task.problem.bandit.n_responses) / (task.batch_size * task.group_size)
    assert logit_gradients_of_counts(law, task, counts, right) == pytest.approx(expected)
