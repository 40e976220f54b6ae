"""A callback for TRL's trainers: advice while they run."""

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from grpo_theory.live.monitor import LOG, Monitor
from grpo_theory.validation import Array, Integers, as_count

SCORED = "_generate_and_score_completions"
"""The trainer's function that samples and scores a batch: after it, the policy still is the one that sampled."""
BLOCKS = 4
UNREAD = {"tool_mask", "pixel_values"}
SCALINGS = {"group": "trl_grpo", "True": "trl_grpo", "none": "trl_grpo_none", "False": "trl_grpo_none"}


class TRLCallback:
    """Callback for TRL's GRPO or RLOO trainer: reads its rollouts and logs advice beside the trainer's own numbers.

    Numbers appear as ``live/groups_with_signal`` and so on, in whatever the trainer logs to (`Monitor.step` has the list);
    remarks are warnings of the log ``grpo_theory.live``. The run goes on whatever happens here: the first error
    of each part is logged. With several processes, only the first one reads.

    Parameters
    ----------
    trainer : trl.GRPOTrainer or trl.RLOOTrainer
    every : int, default 20
        The number of steps from one reading to the next.
    sketches : bool, default False
        Sketch gradients of single responses (`gt.sketch`) for efficiency and the best group size, as many as there is time for.
        The model must be whole on the device: not with ZeRO-3 or FSDP.
    estimator : str, optional
        A name of `gt.estimators()`; that of the trainer's advantages, unless given.
    overhead : float or None, default 0.05
        The largest share of the run's other time that all this may take; None sets no limit.
    width : int, default 256
        Of a sketch, a multiple of 128.

    Attributes
    ----------
    monitor : Monitor

    Raises
    ------
    TypeError
        If the trainer is of another kind.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> callback = gt.live.TRLCallback(trainer, every=20, sketches=True)  # doctest: +SKIP
    >>> trainer.add_callback(callback)  # doctest: +SKIP
    >>> trainer.train()  # it calls .on_train_begin(...)  # doctest: +SKIP
    """

    def __init__(
        self,
        trainer: Any,
        *,
        every: int = 20,
        sketches: bool = False,
        estimator: str | None = None,
        overhead: float | None = 0.05,
        width: int = 256,
    ) -> None:
        if not callable(getattr(trainer, SCORED, None)):
            raise TypeError(f"trainer must be TRL's GRPOTrainer or RLOOTrainer, got an object of type {type(trainer).__name__}")
        name, scored = estimator or estimator_of(trainer.args), getattr(trainer, SCORED)
        self.trainer, self.sketches, self.width = trainer, sketches and name is not None, as_count("width", width)
        if sketches and name is None:
            told = "the trainer scales advantages over the whole batch, and single groups do not tell the efficiency of that"
            LOG.warning("no sketches are taken: %s. Name another estimator, as estimator='trl_grpo', to have that of it", told)
        args = trainer.args
        processes = args.generation_batch_size // (args.per_device_train_batch_size * args.steps_per_generation)
        updated = int(args.per_device_train_batch_size * args.gradient_accumulation_steps * processes)
        self.monitor = Monitor(every=every, estimator=name or "rloo", responses=updated, overhead=overhead)

        @functools.wraps(scored)
        def watched(inputs: Any) -> Any:
            output = scored(inputs)
            with self.monitor.working("reading the trainer's rollouts"):
                if self.trainer.model.training:  # not an evaluation
                    self._read(output, len(inputs))
            return output

        if trainer.accelerator.is_main_process:
            setattr(trainer, SCORED, watched)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return an event of transformers' callbacks that does nothing: those that are used are defined below."""
        if not name.startswith("on_"):
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        return lambda *_, **__: None

    def _read(self, output: Any, local: int) -> None:
        """Give a scored batch, of which so many rows are this process's, to the monitor, and log what it says."""
        rewards, prompts = trainer_batch(self.trainer, local * self.trainer.accelerator.num_processes)
        rows = np.flatnonzero(np.isfinite(rewards))
        reading = self.monitor.step(
            self.trainer.state.global_step + 1,
            rewards[rows],
            [prompts[row] for row in rows],
            # Gradients of a batch are those of its texts alone where it has no tools and no pictures.
            sketch=(lambda chosen: self._sketch(output, rows[chosen])) if self.sketches and not UNREAD & set(output) else None,
            at_hand=int((rows < local).sum()),
        )
        for name, value in reading.numbers.items():
            self.trainer._metrics["train"][f"live/{name}"].append(float(value))
        for remark in reading.remarks:
            LOG.warning("step %d: %s", reading.step, remark)

    def _sketch(self, output: Any, rows: Integers) -> Array:
        """Return the sketches of some responses; zeros for one whose tokens are all masked, which the trainer leaves out."""
        from grpo_theory.language_model import sketch

        prompts, responses = (
            [output[f"{part}_ids"][row][output[f"{part}_mask"][row] != 0].tolist() for row in rows.tolist()]
            for part in ("prompt", "completion")
        )
        some = [number for number, one in enumerate(responses) if one]
        sketches, model = np.zeros((rows.size, self.width)), self.trainer.accelerator.unwrap_model(self.trainer.model)
        if some:
            options = {"width": self.width, "blocks": BLOCKS, "temperature": self.trainer.temperature, "progress": False}
            sketches[some] = sketch(model, *([texts[number] for number in some] for texts in (prompts, responses)), **options)
        return sketches

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Import and compile what readings need, before the run's time counts."""
        with self.monitor.working("the start of the callback"):
            if self.sketches:
                from grpo_theory.language_model import CountSketch

                CountSketch(self.width, BLOCKS)([np.zeros(1, dtype=np.float32)])
        self.monitor.start(self.trainer.num_generations)


def estimator_of(arguments: Any) -> str | None:
    """Return the name of the advantages that a configuration of TRL asks for; None of those that couple groups."""
    if hasattr(arguments, "normalize_advantages"):
        return None if arguments.normalize_advantages else "trl_rloo"
    if getattr(arguments, "multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return None
    return SCALINGS.get(str(arguments.scale_rewards))


def trainer_batch(trainer: Any, size: int) -> tuple[Array, list[tuple[str, int]]]:
    """Return the rewards (N,) of the batch that was just scored, NaN where no function gave one, and the group of each.

    A group is known by its prompt, and by its number among the groups of the same prompt.
    """
    parts = np.array([list(trainer._logs["rewards"][name])[-size:] for name in trainer.reward_func_names], dtype=np.float64)
    weighed = np.nansum(parts * np.array(trainer.reward_weights.tolist())[:, None], axis=0)
    rewards = np.where(np.isnan(parts).all(axis=0), np.nan, weighed)
    prompts, count, seen = list(trainer._logs["prompt"])[-size:], trainer.num_generations, dict[str, int]()
    groups = []
    for one in prompts[::count]:
        text = one if isinstance(one, str) else json.dumps(one, default=str)
        seen[text] = seen.get(text, -1) + 1
        groups += [(text, seen[text])] * count
    return rewards, groups
