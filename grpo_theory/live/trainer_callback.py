"""A callback for TRL's trainers: advice while they run."""

import functools
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from grpo_theory.live.clips import ClippedShares
from grpo_theory.live.guard import LOG
from grpo_theory.live.monitor import Monitor, Reading
from grpo_theory.validation import Array, Integers, as_count

if TYPE_CHECKING:
    from collections.abc import Callable

SCORED = "_generate_and_score_completions"
"""The trainer's function that samples and scores a batch: after it, the policy still is the one that sampled."""
BLOCKS = 4
NEEDED = "gt.live.TRLCallback needs transformers, which comes with TRL: pip install trl (gt.live.Monitor serves any trainer)"
CLIPS = ("clip_ratio/low_mean", "clip_ratio/high_mean")
"""The trainer's own measures of what its clip leaves without a gradient, one per pass through a batch."""


@cache
def _with_events(own: type) -> type:
    """Return the class as one of transformers' callbacks, with all events that it does not use itself."""
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise ImportError(f"{NEEDED}: {error}") from None
    return type(own.__name__, (own, TrainerCallback), {"__module__": own.__module__, "__doc__": own.__doc__})


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
    ImportError
        If transformers is not installed.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> callback = gt.live.TRLCallback(trainer, every=20, sketches=True)  # doctest: +SKIP
    >>> trainer.add_callback(callback)  # doctest: +SKIP
    >>> trainer.train()  # it calls .on_train_begin(...), .on_step_end(...) and .on_log(...)  # doctest: +SKIP
    """

    def __new__(cls, *_: Any, **__: Any) -> "TRLCallback":
        """Make one that transformers knows for a callback."""
        return object.__new__(_with_events(cls))  # type: ignore[arg-type]  # classes are hashable

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
        self.trainer, self.sketches = trainer, sketches
        self.width = as_count("width", width)
        name = estimator_of(trainer.args) if estimator is None else estimator
        if name is None:
            name, self.sketches = "rloo", False
            if sketches:
                LOG.warning(
                    "no sketches are taken: the trainer scales advantages over the whole batch, and single groups do not tell "
                    "the efficiency of that. Name another estimator, as estimator='trl_grpo', to have the efficiency of that one"
                )
        responses = responses_of(trainer.args)
        self.monitor = Monitor(every=every, estimator=name, responses=responses, overhead=overhead)
        self._clips_seen = 0
        self._clipped: list[ClippedShares] = []
        if trainer.accelerator.is_main_process:
            setattr(trainer, SCORED, self._watching(getattr(trainer, SCORED)))

    def _watching(self, scored: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return the trainer's function, after which the batch is read."""

        @functools.wraps(scored)
        def watched(inputs: Any) -> Any:
            output = scored(inputs)
            with self.monitor.guard.held("reading the trainer's rollouts"):
                if self.trainer.model.training:  # not an evaluation
                    with self.monitor.allowance.spending():
                        self._read(output, len(inputs))
            return output

        return watched

    def _read(self, output: Any, local: int) -> None:
        """Give a scored batch, of which so many rows are this process's, to the monitor, and log what it says."""
        rewards, prompts = trainer_batch(self.trainer, local * self.trainer.accelerator.num_processes)
        scored = np.isfinite(rewards)
        rows = np.flatnonzero(scored)
        clipped = None
        if self._clipped:
            clipped = ClippedShares(*(float(np.mean([getattr(one, side) for one in self._clipped])) for side in ("low", "high")))
            self._clipped.clear()
        reading = self.monitor.step(
            self.trainer.state.global_step + 1,
            rewards[rows],
            [prompts[row] for row in rows],
            sketch=(lambda chosen: self._sketch(output, rows[chosen])) if self._can_sketch(output) else None,
            at_hand=int(scored[:local].sum()),
            clipped=clipped,
        )
        self._log(reading)

    def _can_sketch(self, output: Any) -> bool:
        """Return whether the gradients of a batch are those of its texts alone."""
        return self.sketches and "tool_mask" not in output and "pixel_values" not in output

    def _sketch(self, output: Any, rows: Integers) -> Array:
        """Return the sketches of some responses; zeros for one whose tokens are all masked, which the trainer leaves out."""
        from grpo_theory.language_model import sketch

        tokens = {
            part: [_unmasked(output[f"{part}_ids"][row], output[f"{part}_mask"][row]) for row in rows.tolist()]
            for part in ("prompt", "completion")
        }
        some = np.flatnonzero([bool(one) for one in tokens["completion"]])
        sketches = np.zeros((rows.size, self.width))
        if some.size:
            sketches[some] = sketch(
                self.trainer.accelerator.unwrap_model(self.trainer.model),
                [tokens["prompt"][one] for one in some],
                [tokens["completion"][one] for one in some],
                width=self.width,
                blocks=BLOCKS,
                temperature=self.trainer.temperature,
                progress=False,
            )
        return sketches

    def _log(self, reading: Reading) -> None:
        for name, value in reading.numbers.items():
            self.trainer._metrics["train"][f"live/{name}"].append(float(value))
        for remark in reading.remarks:
            LOG.warning("step %d: %s", reading.step, remark)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Import and compile what readings need, before the run's time counts."""
        with self.monitor.guard.held("the start of the callback"):
            if self.sketches:
                from grpo_theory.language_model import CountSketch

                CountSketch(self.width, BLOCKS)([np.zeros(1, dtype=np.float32)])
        self.monitor.start(self.trainer.num_generations)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take in what share of tokens the step's clip left without a gradient."""
        with self.monitor.guard.held("reading the trainer's clips"), self.monitor.allowance.spending():
            low, high = (list(self.trainer._metrics["train"].get(name, ())) for name in CLIPS)
            self._clipped += [ClippedShares(*pair) for pair in zip(low, high, strict=True)][self._clips_seen :]
            self._clips_seen = len(low)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer clears its numbers after it logged them."""
        self._clips_seen = 0


def _unmasked(tokens: Any, mask: Any) -> list[int]:
    return [token for token, kept in zip(tokens.tolist(), mask.tolist(), strict=True) if kept]


def estimator_of(arguments: Any) -> str | None:
    """Return the name of the advantages that a configuration of TRL asks for; None of those that couple groups."""
    if hasattr(arguments, "normalize_advantages"):
        return None if arguments.normalize_advantages else "trl_rloo"
    if getattr(arguments, "multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return None
    return {"group": "trl_grpo", "True": "trl_grpo", "none": "trl_grpo_none", "False": "trl_grpo_none"}.get(
        str(arguments.scale_rewards)
    )


def responses_of(arguments: Any) -> int:
    """Return how many responses one update has."""
    processes = arguments.generation_batch_size // (arguments.per_device_train_batch_size * arguments.steps_per_generation)
    return int(arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * processes)


def trainer_batch(trainer: Any, size: int) -> tuple[Array, list[tuple[str, int]]]:
    """Return the rewards (N,) of the batch that was just scored, NaN where no function gave one, and the group of each.

    A group is known by its prompt, and by its number among the groups of the same prompt.
    """
    columns = [np.array(trainer._logs["rewards"][name], dtype=np.float64)[-size:] for name in trainer.reward_func_names]
    parts, weights = np.stack(columns), np.array(trainer.reward_weights.tolist())
    rewards = np.where(np.isnan(parts).all(axis=0), np.nan, np.nansum(parts * weights[:, None], axis=0))
    prompts = list(trainer._logs["prompt"])[-size:]
    texts = [one if isinstance(one, str) else json.dumps(one, default=str) for one in prompts]
    seen: dict[str, int] = {}
    groups = []
    for first in range(0, size, trainer.num_generations):
        number = seen.get(texts[first], 0)
        seen[texts[first]] = number + 1
        groups += [(text, number) for text in texts[first : first + trainer.num_generations]]
    return rewards, groups
