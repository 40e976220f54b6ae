"""The sizes of a step that simulators draw: its prompts and responses stand in memory at once."""

from dataclasses import dataclass

from grpo_theory.validation import as_count

MOST_RESPONSES = 1 << 20
"""The most responses of a step: drawn for all lanes at once, each takes some 3 to 10 kB."""


def as_sizes(batch_size: int, group_size: int) -> tuple[int, int]:
    """Return the prompts and the responses to each of a step that is drawn; raise if these are too many to hold."""
    batch_size, group_size = as_count("batch_size", batch_size), as_count("group_size", group_size)
    if batch_size * group_size > MOST_RESPONSES:
        raise ValueError(
            f"batch_size times group_size must be at most {MOST_RESPONSES:,} to be drawn, got {batch_size} times {group_size}. "
            "Draw smaller batches, or ask an exact law, whose cost does not depend on batch_size (gradient_law, group_size_law)"
        )
    return batch_size, group_size


@dataclass(frozen=True)
class StepSizes:
    """B prompts and G responses each, in rollouts that serve M updates and were drawn some rollouts ago: `lag` of them."""

    batch_size: int
    group_size: int
    updates: int
    lag: int = 0

    @property
    def moves(self) -> bool:
        """Whether there are updates of a policy that is no longer the one that drew the rollout."""
        return self.updates > 1 or self.lag > 0

    @property
    def n_updated(self) -> int:
        """The prompts of an update, B/M."""
        return self.batch_size // self.updates

    @property
    def n_words(self) -> int:
        """The words of 64 bits that a rollout of a run takes: one for each prompt, and half of one for each response."""
        return self.batch_size + -(-self.batch_size * self.group_size // 2)
