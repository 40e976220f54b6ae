"""The callback for TRL with a stub of the trainer's interface; with the trainer itself in test_reference_live.py."""

import logging
from collections import defaultdict, deque
from types import SimpleNamespace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.live import trainer_callback

SIZE, GROUPS = 4, 3
LOCAL = SIZE * GROUPS


ARGUMENTS = {"per_device_train_batch_size": LOCAL, "gradient_accumulation_steps": 1, "steps_per_generation": 1}
ARGUMENTS |= {"generation_batch_size": LOCAL, "scale_rewards": "group"}


class Trainer:
    """What the callback needs of TRL 1.16's trainers: two reward functions, the second of weight 0.5."""

    def __init__(self, rewards, prompts=None, main=True, processes=1, **changed):
        size, self.args = LOCAL * processes, SimpleNamespace(**ARGUMENTS | changed)
        self.accelerator = SimpleNamespace(is_main_process=main, num_processes=processes, unwrap_model=lambda model: model)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=0)
        self.num_generations, self.temperature = SIZE, 0.7
        self.reward_func_names, self.reward_weights = ["right", "brief"], np.array([1.0, 0.5])
        self.rewards, self.prompts = rewards, prompts or [f"prompt {n // SIZE}" for n in range(size)]
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._logs = {"prompt": deque(maxlen=size), "rewards": defaultdict(lambda: deque(maxlen=size))}

    def _generate_and_score_completions(self, inputs):
        """Score a batch: prompts are token 5, a response is as many tokens as its number says, padded to three."""
        self._logs["prompt"].extend(self.prompts)
        for name, values in zip(self.reward_func_names, self.rewards, strict=True):
            self._logs["rewards"][name].extend(values)
        rows = np.arange(len(inputs))[:, None]
        prompts = {"prompt_ids": 0 * rows + [5, 5], "prompt_mask": 0 * rows + [0, 1]}
        return prompts | {"completion_ids": 3 * rows + np.arange(3), "completion_mask": (np.arange(3) < rows % 4).astype(int)}

    def steps(self, callback, count):
        """Go through steps as the trainer does, which calls all events of a callback, and log after each."""
        callback.on_train_begin(self.args, self.state, None, model=self.model)
        logged = []
        for _ in range(count):
            self._generate_and_score_completions([{}] * LOCAL)
            self._metrics["train"]["loss"].append(0.0)
            self.state.global_step += 1
            callback.on_step_end(self.args, self.state, None)
            logged.append({name: list(values) for name, values in self._metrics["train"].items()})
            callback.on_log(self.args, self.state, None, logs={})
            self._metrics["train"].clear()
        return logged


RIGHT = [1.0, 0.0, 1.0, 0.0] + [1.0] * 4 + [0.0] * 4
BRIEF = [np.nan] * 8 + [0.0, 1.0, 0.0, 0.0]


@pytest.fixture(autouse=True)
def _free(monkeypatch):
    """Let every reading have the time that it needs, whatever the machine does."""
    monkeypatch.setattr(trainer_callback, "Monitor", lambda **given: gt.live.Monitor(**{**given, "overhead": None}))


def test_numbers_are_logged_beside_the_trainers_own():
    trainer = Trainer([RIGHT, BRIEF])
    logged = trainer.steps(gt.live.TRLCallback(trainer, every=2), 4)
    assert [any(name.startswith("live/") for name in one) for one in logged] == [False, True, False, True]
    assert logged[1]["live/groups_with_signal"] == [2 / 3]
    assert (logged[1]["live/groups_all_right"], logged[1]["live/groups_all_wrong"]) == ([1 / 3], [0.0])
    assert logged[1]["live/overhead"][0] > 0.0


def test_it_answers_all_events_and_another_trainer_is_refused():
    callback = gt.live.TRLCallback(Trainer([RIGHT, BRIEF]))
    assert callback.on_an_event_of_the_future(None, None, None, model=None) is None
    assert not hasattr(callback, "control")
    with pytest.raises(TypeError, match="trainer must be TRL's GRPOTrainer or RLOOTrainer, got an object of type Simple"):
        gt.live.TRLCallback(SimpleNamespace())


def test_rewards_are_weighted_and_groups_are_known_by_prompt_and_number():
    talk = [{"role": "user", "content": "7"}]
    trainer = Trainer([RIGHT, BRIEF], prompts=["p"] * 4 + [talk] * 4 + ["p"] * 4)
    trainer._generate_and_score_completions([{}] * LOCAL)
    rewards, groups = trainer_callback.trainer_batch(trainer, LOCAL)
    assert rewards.tolist() == [*RIGHT[:8], 0.0, 0.5, 0.0, 0.0]
    assert (len(set(groups)), groups[0], groups[8]) == (GROUPS, ("p", 0), ("p", 1))


@pytest.fixture
def asked(monkeypatch):
    """What is asked of a stub of `gt.sketch`: prompts, responses and options."""
    calls = []

    def sketch(model, prompts, responses, **options):
        calls.append((prompts, responses, options))
        return np.ones((len(prompts), options["width"]))

    monkeypatch.setattr("grpo_theory.language_model.sketch", sketch)
    return calls


def test_tokens_that_count_are_sketched(asked):
    """Of the groups with signal; a response that is all masked has none, as in the trainer's loss."""
    trainer = Trainer([RIGHT, BRIEF])
    callback = gt.live.TRLCallback(trainer, every=1, sketches=True, width=128)
    logged = trainer.steps(callback, 1)
    assert callback.monitor.errors == 0
    ((prompts, responses, options),) = asked
    assert prompts == [[5]] * 6
    assert responses == [list(range(3 * row, 3 * row + row % 4)) for row in (1, 2, 3, 9, 10, 11)]
    assert options == {"width": 128, "blocks": 4, "temperature": 0.7, "progress": False}
    assert logged[0]["live/sketched_prompts"] == [3.0]


def test_rewards_of_other_processes_count_and_are_not_sketched(asked):
    trainer = Trainer([RIGHT + [0.0, 1.0] * 6, BRIEF + [0.0] * 12], processes=2, generation_batch_size=2 * LOCAL)
    callback = gt.live.TRLCallback(trainer, every=1, sketches=True)
    assert trainer.steps(callback, 1)[0]["live/groups_with_signal"] == [5 / 6]
    assert (len(asked[0][1]), callback.monitor.responses) == (6, 2 * LOCAL)
    split = {"gradient_accumulation_steps": 3, "steps_per_generation": 6, "generation_batch_size": 24}
    updated = gt.live.TRLCallback(Trainer([RIGHT, BRIEF], per_device_train_batch_size=2, **split)).monitor.responses
    assert updated == 12, "of an update's passes"
    gt.live.TRLCallback(other := Trainer([RIGHT, BRIEF], main=False))
    assert "_generate_and_score_completions" not in vars(other), "it is the class's, and not watched"


def test_evaluations_are_not_read():
    trainer = Trainer([RIGHT, BRIEF])
    gt.live.TRLCallback(trainer, every=1)
    for training in (False, True):
        trainer.model.training = training
        trainer._generate_and_score_completions([{}] * LOCAL)
        assert bool(trainer._metrics["train"]) == training


@pytest.mark.parametrize("broken", ["_logs", "_metrics", "state"])
def test_another_trainers_inside_is_said_once_and_training_ends(broken, caplog):
    trainer = Trainer([RIGHT, BRIEF])
    output = trainer._generate_and_score_completions([{}] * LOCAL)
    trainer._generate_and_score_completions = lambda inputs: output
    callback = gt.live.TRLCallback(trainer, every=1)
    with caplog.at_level(logging.WARNING, "grpo_theory.live"):
        for step in range(5):
            trainer.state = SimpleNamespace(global_step=step)
            setattr(trainer, broken, None)
            assert trainer._generate_and_score_completions([{}] * LOCAL) is output
    assert (len(caplog.records), callback.monitor.errors) == (1, 5)


def test_the_estimator_is_that_of_the_configuration():
    configured = [({}, "trl_grpo"), ({"scale_rewards": False}, "trl_grpo_none"), ({"scale_rewards": "batch"}, None)]
    configured += [({"normalize_advantages": False}, "trl_rloo"), ({"normalize_advantages": True}, None)]
    for changed, name in [*configured, ({"multi_objective_aggregation": "normalize_then_sum"}, None)]:
        assert trainer_callback.estimator_of(SimpleNamespace(**ARGUMENTS | changed)) == name


def test_what_couples_groups_or_has_tools_or_pictures_is_read_without_sketches(caplog, asked):
    callback = gt.live.TRLCallback(Trainer([RIGHT, BRIEF], scale_rewards="batch"), sketches=True)
    assert not callback.sketches
    assert "no sketches are taken" in caplog.text
    for part, sketched in (("more", 1), ("tool_mask", 0), ("pixel_values", 0)):
        trainer = Trainer([RIGHT, BRIEF])
        scored = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda inputs, part=part, scored=scored: scored(inputs) | {part: 1}
        del asked[:]
        trainer.steps(gt.live.TRLCallback(trainer, every=1, sketches=True), 1)
        assert len(asked) == sketched


def test_remarks_are_logged_as_warnings_and_an_error_of_the_trainer_is_the_trainers(caplog):
    trainer = Trainer([[1.0] * (4 * LOCAL - 1) + [0.0], [0.0] * 4 * LOCAL], processes=4, generation_batch_size=4 * LOCAL)
    trainer.steps(gt.live.TRLCallback(trainer, every=4), 4)
    (record,) = caplog.records
    assert record.getMessage().startswith("step 4: Too easy: 92% of the groups are all right. ")
    trainer.rewards = []
    with pytest.raises(ValueError, match="zip"):
        trainer._generate_and_score_completions([{}] * LOCAL)
