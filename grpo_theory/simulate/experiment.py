"""A gradient simulation with everything tabulated: what a block needs but its number."""

from dataclasses import dataclass, field

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation import Estimator
from grpo_theory.lanes import zeros
from grpo_theory.simulate.counting import CountingRoom, Counts, Sheet, compiled_fill_counts, make_counting_room, make_sheet
from grpo_theory.simulate.errors import compiled_errors, error_room_sizes, make_error_room
from grpo_theory.simulate.generator import Streams, block_streams
from grpo_theory.simulate.geometry import Geometry
from grpo_theory.simulate.ordering import compiled_fill_ordered
from grpo_theory.simulate.outcome_law import OutcomeLaw
from grpo_theory.simulate.routes import Panel, PushRoute, Route, Scratch
from grpo_theory.simulate.strip import STRIP
from grpo_theory.simulate.summary import GradientSimulation

PANEL_NUMBERS = 1 << 18
"""The numbers that the covectors of a panel take, unless one strip has more: few enough for a cache, and many for each call."""


class Draws:
    """The draws of one block, panel by panel."""

    def __init__(self, streams: Streams, law: OutcomeLaw, group_size: int, sheet: Sheet, room: CountingRoom) -> None:
        self.streams, self.law, self.group_size = streams, law, group_size
        self.sheet, self.room = sheet, room
        self.first = 0

    def fill(self, counts: Counts) -> None:
        """Draw the next strips as counts."""
        compiled_fill_counts()(self.streams, self.law, self.sheet, self.room, self.first, self.group_size, counts)
        self._pass_on(counts)

    def fill_ordered(self, counts: Counts, outcomes: np.ndarray) -> None:
        """Draw the next strips as outcomes in the order drawn."""
        compiled_fill_ordered()(self.streams, self.law, self.sheet, self.room, self.first, counts.prompts, outcomes)
        self._pass_on(counts)

    def _pass_on(self, counts: Counts) -> None:
        n_strips, batch_size, _ = counts.prompts.shape
        self.first += n_strips * batch_size


@dataclass(frozen=True, eq=False)
class Experiment:
    """Estimators on the same draws, and what they are compared with."""

    estimators: list[Estimator]
    routes: list[Route]
    law: OutcomeLaw
    geometry: Geometry
    n_directions: int
    batch_size: int
    group_size: int
    seed: np.random.SeedSequence
    _scratches: list[Scratch] = field(default_factory=list)

    def compile(self) -> None:
        """Compile everything before the first thread starts."""
        compiled_fill_counts()
        compiled_errors(self.geometry.fill_errors)
        for route in self.routes:
            route.compile()
        if self.in_order:
            compiled_fill_ordered()

    @property
    def in_order(self) -> bool:
        """Whether a kernel asks for the responses in the order drawn."""
        return any(route.in_order for route in self.routes)

    def run(self, block: int, replications: int) -> GradientSimulation:
        """Simulate the first replications of a block."""
        try:
            scratch = self._scratches.pop()
        except IndexError:
            scratch = Scratch()
        draws = [self._draws(block, name, scratch) for name in ("counted", "in order")[: 1 + self.in_order]]
        n_strips = -(-replications // STRIP)
        step = self._panel_strips()
        order = [estimator for route in self.routes for estimator in route.estimators]
        observations = zeros(len(order), 2 + self.n_directions, n_strips, STRIP)
        for start in range(0, n_strips, step):
            panel = self._draw(draws, min(step, n_strips - start), scratch)
            first = 0
            for route in self.routes:
                found = observations[first : first + len(route.estimators)]
                self._observe(route, panel, scratch, start, found)
                self._check(route, found[0, 0, start:], panel, replications - start * STRIP)
                first += len(route.estimators)
        self._scratches.append(scratch)
        if order != self.estimators:
            observations = observations[[order.index(estimator) for estimator in self.estimators]]
        rows = observations.reshape(*observations.shape[:2], -1)[:, :, :replications]
        return GradientSimulation.of([estimator.name for estimator in self.estimators], rows.transpose(0, 2, 1))

    def _draws(self, block: int, name: str, scratch: Scratch) -> Draws:
        sheet = scratch.made(f"sheet, {name}", make_sheet, self.group_size)
        room = scratch.made("counting", make_counting_room, self.law.thresholds.shape[1])
        return Draws(block_streams(self.seed, block), self.law, self.group_size, sheet, room)

    def _panel_strips(self) -> int:
        strip = self.batch_size * STRIP
        largest = max(len(route.estimators) * route.n_logits for route in self.routes) * strip
        return max(1, PANEL_NUMBERS // largest)

    def _draw(self, draws: list[Draws], n_strips: int, scratch: Scratch) -> Panel:
        shape = n_strips, self.batch_size
        counts = Counts(
            scratch.array("prompts", *shape, STRIP, dtype=np.int64),
            scratch.array("outcomes", *shape, self.law.residual.shape[1], STRIP, dtype=np.uint16),
        )
        ordered = None
        if self.in_order:
            ordered = scratch.array("ordered", *shape, self.group_size, STRIP, dtype=np.uint16)
            draws[1].fill_ordered(counts, ordered)
        draws[0].fill(counts)
        return Panel(counts, ordered, self.group_size)

    def _observe(self, route: Route, panel: Panel, scratch: Scratch, start: int, found: Array) -> None:
        """Fill in the observations of a route's estimators, shape (E, 2 + J, S, STRIP), from a strip on."""
        covectors = route.covectors(panel, scratch)
        fill_errors, truth = self.geometry
        room = scratch.made("errors", make_error_room, *error_room_sizes(fill_errors, truth, covectors.shape))
        compiled_errors(fill_errors)(truth, panel.counts.prompts, covectors, room, start, found)

    def _check(self, route: Route, errors: Array, panel: Panel, wanted: int) -> None:
        """Raise if a kernel has left an advantage that is not finite, in one of the wanted replications of a panel."""
        if not isinstance(route, PushRoute):
            return
        bad = ~np.isfinite(errors[: len(panel.counts.prompts)]).reshape(-1)[:wanted]
        if bad.any():
            strip, lane = divmod(int(np.argmax(bad)), STRIP)
            counts, prompt = panel.counts.outcomes[strip, 0, :, lane], panel.counts.prompts[strip, 0, lane]
            raise ValueError(
                f"the kernel of estimator {route.estimators[0].name!r} must fill finite advantages, and does not for a batch "
                f"of {self.batch_size} x {self.group_size} responses, the first with rewards "
                f"{np.repeat(route.shown.rewards[prompt], counts).tolist()}"
            )
