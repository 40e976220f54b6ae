"""The benchmarks: results and their comparison, floors counted by hand, rivals that give the right answer."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import __main__ as command_line
from benchmarks import numpy_counts, numpy_training
from benchmarks.comparison import comparison, is_worse
from benchmarks.numpy_rivals import textbook, tuned
from benchmarks.results import Results, ResultsError
from benchmarks.rivalry import seeing
from benchmarks.routes import ROUTES
from benchmarks.simulator import simulate
from benchmarks.table import Row, at_least, at_most
from benchmarks.task import Task
from benchmarks.timing import Contender, Cost, Timed, costs_of, fastest
from benchmarks.training_task import TrainingTask
from benchmarks.words import CountedLaw, covectors_of_counts
from benchmarks.work import Peaks, Work, gradient_work, training_work
from grpo_theory import Harmonic

WHERE = {"processors": 2, "machine": "abacus", "versions": {"python": "3.11", "jax": None}}
HEAD_OF_FILE = b'{"format": 1, "circumstances": {"processors": 2, "machine": "", "versions": {}}, "rows": '
TINY = Task("tabular", 2, 4)
HEAD = Task("lm-few-shot", 2, 4)
GRADED = Task("graded of 3", 2, 4)


def made(*numbers):
    rows = [at_least("speed", numbers[0], 2.0, "a detail"), at_most("seconds", numbers[1], 1.0, ""), Row("plain", numbers[2])]
    return Results(WHERE, [*rows, Row("absent", None, "not measured", "higher", 3.0)])


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


class TestResults:
    def test_are_read_as_they_were_written(self, tmp_path):
        results = made(2.5, 0.5, 7.0)
        results.write(tmp_path / "RESULTS.md")
        assert Results.read(tmp_path / "RESULTS.json") == results
        assert (tmp_path / "RESULTS.md").read_text() == results.markdown()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["RESULTS.json", "RESULTS.md"]

    def test_say_what_is_met(self, tmp_path):
        made(2.5, 1.5, 7.0).write(tmp_path / "RESULTS.md")
        rows = json.loads((tmp_path / "RESULTS.json").read_text())["rows"]
        assert [row["met"] for row in rows] == [True, False, None, None]
        assert rows[0]["detail"] == "a detail"

    def test_missing(self, tmp_path):
        with pytest.raises(ResultsError, match="cannot be read"):
            Results.read(tmp_path / "none.json")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\xff",
            b"[]",
            b"{}",
            b'{"format": 1, "circumstances": {}, "rows": []}',
            HEAD_OF_FILE + b'[{"name": "a"}]}',
            HEAD_OF_FILE + b'[{"name": 1, "number": 2}]}',
            b'{"format": 2}',
        ],
    )
    def test_damaged(self, body, tmp_path):
        (tmp_path / "RESULTS.json").write_bytes(body)
        with pytest.raises(ResultsError, match=r"damaged|format"):
            Results.read(tmp_path / "RESULTS.json")


class TestComparison:
    @pytest.mark.parametrize(
        ("better", "old", "new", "worse"),
        [
            ("higher", 10.0, 9.2, False),
            ("higher", 10.0, 9.0, True),
            ("higher", 10.0, 20.0, False),
            ("lower", 10.0, 10.9, False),
            ("lower", 10.0, 11.2, True),
            ("lower", 0.0, 1.0, True),
            ("", 10.0, 1.0, False),
            ("lower", None, 1.0, False),
        ],
    )
    def test_worse(self, better, old, new, worse):
        assert is_worse(Row("a", old, "", better), Row("a", new, "", better)) is worse

    def test_text(self):
        text = comparison(made(2.5, 0.5, 7.0), made(2.0, 0.5, 1.0))
        speed, seconds = text.splitlines()[2:4]
        assert [cell.strip() for cell in speed.split("|")] == ["", "speed", "2.5", "2", "0.80", "worse", ""]
        assert [cell.strip() for cell in seconds.split("|")] == ["", "seconds", "0.5", "0.5", "1.00", "", ""]
        assert text.endswith("1 of 4 rows are worse by more than 10%:\n- speed\n")

    def test_rows_that_come_and_go(self):
        old, new = Results(WHERE, [Row("a", 1.0)]), Results({**WHERE, "processors": 1}, [Row("b", 1.0)])
        text = comparison(old, new)
        assert text.startswith("The circumstances differ")
        assert "| gone" in text
        assert "| new" in text
        assert text.endswith("0 of 0 rows are worse by more than 10%\n")


class TestCommandLine:
    def test_compares_what_was_measured_before(self, tmp_path, capsys):
        made(2.5, 0.5, 7.0).write(tmp_path / "old.md")
        made(2.0, 0.5, 7.0).write(tmp_path / "new.md")
        assert command_line.main(["--measured", str(tmp_path / "new.json"), "--compare", str(tmp_path / "old.json")]) == 0
        assert "1 of 4 rows are worse" in capsys.readouterr().out

    def test_measures_and_writes(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setitem(command_line.PARTS, "study", lambda: [Row("a", 1.0)])
        assert command_line.main(["--only", "study", "--out", str(tmp_path / "RESULTS.md")]) == 0
        assert Results.read(tmp_path / "RESULTS.json").rows == [Row("a", 1.0)]

    @pytest.mark.parametrize("option", ["--compare", "--measured"])
    def test_missing_or_damaged_file(self, option, tmp_path, capsys):
        (tmp_path / "damaged.json").write_text("{")
        for name in ("none.json", "damaged.json"):
            assert command_line.main(["--only", "study", option, str(tmp_path / name)]) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert name in error

    def test_folder_that_does_not_exist(self, tmp_path, capsys):
        assert command_line.main(["--out", str(tmp_path / "none" / "RESULTS.md")]) == 2
        assert "folder that exists" in capsys.readouterr().err


class TestWork:
    def test_gradients_by_hand(self):
        """Tabular, K = 4 with two rewards, B = 8, G = 16: a group has 8 outcomes, 4 logits and 3.5 pairs."""
        operations = 4 * (1 + 3 + 3.5) + 3.5 + 6
        assert gradient_work(Task("tabular", 8, 16)) == pytest.approx((5 / 16, 8, operations / 16))

    def test_large_groups_draw_8_bits_and_some_again(self):
        """Tabular, 64 responses, 8 outcomes: words of 8 bits leave at most 5/256 open; there are four words of 16 bits."""
        found = gradient_work(Task("tabular", 8, 64))
        assert (found.words, found.comparisons) == pytest.approx(((1 + 64 / 8 + 4 / 4) / 64, 8 * (64 / 2 + 4) / 64))

    def test_more_rewards_by_hand(self):
        """K = 4 with three rewards, B = 8, G = 16: every estimator weighs 12 outcomes, adds up 4 logits and centres them."""
        operations = 12 + 4 + 4 + 4 * (3 + 3.5) + 3.5 + 6
        for count in (1, 6):
            found = gradient_work(Task("graded of 3", 8, 16), count)
            assert found == pytest.approx((5 / 16, 12, count * operations / 16))

    def test_certain_rewards_have_fewer_outcomes(self):
        assert gradient_work(Task("lm-few-shot", 8, 16)).comparisons == 10

    def test_six_estimators_draw_once(self):
        one, six = (gradient_work(Task("tabular", 8, 64), count) for count in (1, 6))
        assert six == pytest.approx((one.words, one.comparisons, one.operations + 5 * (3.5 + 6) / 64))

    def test_ways_of_adding_up_a_batch(self):
        """Six prompts and 32 groups of 2; 100 questions of 10 answers; features of 32 dimensions, 4 responses."""
        by_prompt = gradient_work(Task("tabular", 32, 2))
        assert by_prompt.operations == pytest.approx((4 + 4 * (5 + 36 / 32)) / 2)
        by_features = gradient_work(Task("linear of 32", 8, 2))
        assert by_features.operations == pytest.approx((4 + 4 + (4 + 3) * 32) / 2)

    def test_training_by_hand(self):
        """Tabular, K = 3 with two rewards, a penalty, B = 1, G = 4, d = 6."""
        task = TrainingTask("kl-tabular", 1, 4, Harmonic(5.0, 10), steps=10, runs=10)
        group = 3 * (13 + 3 + 4 + 2) + 2 * 6 + 3
        penalty = 19 + 3 * 3 + 3 * 6
        assert training_work(task) == pytest.approx((3 / 4, 10, (group + penalty + 4 * 6) / 4))

    def test_floor(self):
        assert Peaks(0.5, 0.25, 2.0).floor(Work(2.0, 4.0, 1.0)) == pytest.approx(4.0)


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

        for contender in jax_counts.rivals(task)[:3]:
            contender.run(1)
        assert len(set(checked)) == len(checked) == 3

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
