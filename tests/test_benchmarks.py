"""The benchmarks: their table, floors counted by hand, rivals that give the right answer."""

from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import __main__ as command_line
from benchmarks import numpy_counts, numpy_training
from benchmarks.numpy_rivals import textbook, tuned
from benchmarks.rivalry import seeing
from benchmarks.scaling import ROUTES
from benchmarks.simulator import simulate
from benchmarks.table import Row, at_least, at_most, circumstances, markdown
from benchmarks.task import Task
from benchmarks.timing import Contender, Cost, Timed, costs_of, fastest
from benchmarks.training_task import TrainingTask
from benchmarks.words import CountedLaw, covectors_of_counts
from grpo_theory import Harmonic

TINY = Task("tabular", 2, 4)
HEAD = Task("lm-few-shot", 2, 4)
GRADED = Task("graded of 3", 2, 4)


class TestRow:
    @pytest.mark.parametrize(("row", "met"), [(at_least("", 2.0, 2.0, ""), True), (at_most("", 2.0, 1.0, ""), False)])
    def test_target(self, row, met):
        assert row.met is met

    def test_nothing_is_met_without_a_target_or_a_number(self):
        assert at_least("", 2.0, None, "").met is None
        assert Row("", None, "", "lower", 1.0).met is None

    def test_cells(self):
        assert at_least("a", 1.234, 2.0, "b").cells == ("a", "1.23 (b)", "at least 2", "no")
        assert Row("a", None, "not measured", "higher", 3.0).cells == ("a", "not measured", "at least 3", "")


class TestTable:
    def test_lines_are_aligned_below_the_circumstances(self):
        rows = [at_least("speed", 2.5, 2.0, "a detail"), at_most("seconds", 1.5, 1.0, ""), Row("absent", None, "not measured")]
        where, _, *lines = markdown(rows).splitlines()
        assert where == circumstances()
        assert len({len(line) for line in lines}) == 1
        cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
        assert cells[0] == ("name", "value", "target", "met")
        assert cells[2:] == [row.cells for row in rows]

    def test_circumstances_name_what_is_not_installed_too(self, monkeypatch):
        monkeypatch.setattr("benchmarks.table.PACKAGES", ("numpy", "no-such-package"))
        assert circumstances().endswith(f"numpy {np.__version__}, no no-such-package")


class TestCommandLine:
    def test_measures_and_writes(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setitem(command_line.PARTS, "study", lambda: [Row("a", 1.0)])
        assert command_line.main(["--only", "study", "--out", str(tmp_path / "RESULTS.md")]) == 0
        assert (tmp_path / "RESULTS.md").read_text() == markdown([Row("a", 1.0)])
        assert [path.name for path in tmp_path.iterdir()] == ["RESULTS.md"]
        assert "| a    | 1     |" in capsys.readouterr().out

    def test_folder_that_does_not_exist(self, tmp_path, capsys):
        assert command_line.main(["--out", str(tmp_path / "none" / "RESULTS.md")]) == 2
        assert "folder that exists" in capsys.readouterr().err


class TestRivals:
    @pytest.fixture
    def checked(self, monkeypatch):
        """The names of the contenders whose answers have been checked."""
        names, check = [], Task.check

        def spy(task, name, estimate):
            check(task, name, estimate)
            names.append(name)

        monkeypatch.setattr(Task, "check", spy)
        return names

    @pytest.mark.parametrize("task", [TINY, HEAD, GRADED, Task("tabular", 1, 300)])
    def test_numpy(self, task, checked):
        contenders = [textbook(task), tuned(task), *numpy_counts.rivals(task)]
        for contender in contenders:
            contender.run(1)
        assert len(set(checked)) == len(checked) == len(contenders)

    @pytest.mark.parametrize("task", [TINY, GRADED, *(Task(one.problem, 2, 4, one.estimator) for one in ROUTES)])
    def test_simulator(self, task):
        task.check("simulate_gradients", simulate(task, 10**6))

    @pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
    @pytest.mark.parametrize("task", [TINY, HEAD, GRADED, Task("tabular", 1, 21), Task("tabular", 1, 300)])
    def test_jax(self, task, checked):
        from benchmarks import jax_counts

        for contender in jax_counts.rivals(task)[:2]:
            contender.run(1)
        assert len(set(checked)) == len(checked) == 2

    def test_a_wrong_answer_is_noticed(self):
        found = simulate(TINY, 10**6)
        with pytest.raises(RuntimeError, match="standard errors"):
            TINY.check("wrong", found._replace(mse=1.02 * found.mse))

    @pytest.mark.parametrize("task", [TINY, HEAD, GRADED, Task("graded of 4", 1, 5)])
    def test_covectors_are_those_of_the_formula(self, task):
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
        assert covectors_of_counts(law, task, counts, right) == pytest.approx(expected)


class TestTiming:
    def test_everyone_is_given_enough_work(self):
        rounds = []
        (cost,) = costs_of([Contender("sum", lambda n: rounds.append(sum(range(1000 * n))), 10)], 0.001, 3)
        assert 0.0 < cost.least <= cost.median
        assert len(rounds) >= 5

    def test_fastest(self):
        assert fastest([Timed("a", Cost(2.0, 1.0)), Timed("b", Cost(1.5, 1.4))]).name == "b"
        assert Timed.read(["a", [2.0, 1.0]]) == Timed("a", Cost(2.0, 1.0))

    @pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
    @pytest.mark.parametrize("task", [TINY, HEAD])
    def test_rivals_that_count_are_told_from_those_that_see_every_response(self, task):
        def names(contenders):
            return [each.name for each in contenders]

        training = TrainingTask("kl-tabular", 1, 4, Harmonic(5.0, 10), 10, 4096)
        counting, others = names(numpy_counts.rivals(task)), names([tuned(task)])
        steps = names(numpy_training.rivals(training))
        if find_spec("jax") is not None:
            from benchmarks import jax_counts, jax_rivals, jax_training

            counting += names(jax_counts.rivals(task))
            others += names(jax_rivals.rivals(task))
            steps += names(jax_training.rivals(training))
        found = [each.name for each in seeing([Timed(name, Cost(1.0, 1.0)) for name in (*counting, *others, *steps)])]
        assert found == others + [name for name in steps if "uniforms" in name]
        assert len(found) > len(others)
