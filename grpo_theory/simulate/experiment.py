"""A gradient simulation with everything tabulated: what blocks need but their numbers."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from grpo_theory.arrays import Array, Integers, cached_array
from grpo_theory.compiler.lanes import zeros
from grpo_theory.estimation import Estimator
from grpo_theory.simulate.covector.own_routes import OwnRoute
from grpo_theory.simulate.covector.routes import Route
from grpo_theory.simulate.draw.batches import Panel, Scratch
from grpo_theory.simulate.draw.counting import (
    CountingRoom,
    Counts,
    Sheet,
    compiled_fill_counts,
    make_counting_room,
    make_counts,
    make_sheet,
)
from grpo_theory.simulate.draw.generator import LANES, Streams, begin_streams, make_streams
from grpo_theory.simulate.draw.order import compiled_fill_ordered
from grpo_theory.simulate.draw.outcome_law import OutcomeLaw
from grpo_theory.simulate.gradient_simulation import pairs_of
from grpo_theory.simulate.observe.errors import ErrorRoom, compiled_errors, make_error_room
from grpo_theory.simulate.observe.geometry import Geometry
from grpo_theory.simulate.observe.moments import Moments, compiled_fill_moments, compiled_merge_moments, make_moments, set_of
from grpo_theory.simulate.workers import borrowed, check_wanted

PANEL_NUMBERS = 1 << 18
"""The numbers that the parts of a panel's estimates take, unless one strip has more: few enough for a cache, many for a call."""
SHEAF_STRIPS = 127
"""The strips of which observations are summarised at once: few enough for a cache, and an odd number, because rows that lie a
power of two apart push one another out of it.  A fixed number, so that an estimator's moments are the same alone and in company.
"""


class Draws:
    """The draws of one block after another, panel by panel."""

    def __init__(self, streams: Streams, law: OutcomeLaw, group_size: int, sheet: Sheet, room: CountingRoom) -> None:
        self.streams, self.law, self.group_size = streams, law, group_size
        self.sheet, self.room = sheet, room
        self.first = 0

    def begin(self, words: NDArray[np.uint64], block: int) -> None:
        """Begin a block, from the words of `stream_words`."""
        begin_streams(words, block, self.streams)
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
    """Estimators on the same draws, and what they are compared with.

    Attributes
    ----------
    routes : list of Route
        Those of E estimators, whose order is that of the rows of moments.
    law : OutcomeLaw
    geometry : Geometry
    n_directions : int
        The number J of directions.
    batch_size, group_size : int
    block_replications : int
        The replications of a block, unless it is the last.
    words : ndarray of uint64, shape (3,)
        Those of the seed, see `stream_words`.
    """

    routes: list[Route]
    law: OutcomeLaw
    geometry: Geometry
    n_directions: int
    batch_size: int
    group_size: int
    block_replications: int
    words: NDArray[np.uint64]
    _places: list["Workplace"] = field(default_factory=list)

    def compile(self) -> None:
        """Compile everything before the first thread starts."""
        _ = begin_streams.dispatcher
        compiled_fill_counts()
        compiled_errors(self.geometry.fill_errors)
        for route in self.routes:
            route.compile()
        if self.in_order:
            compiled_fill_ordered()
        compiled_fill_moments()
        compiled_merge_moments()

    @property
    def estimators(self) -> list[Estimator]:
        """The estimators, in the order of the routes."""
        return [estimator for route in self.routes for estimator in route.estimators]

    @property
    def in_order(self) -> bool:
        """Whether a kernel asks for the responses in the order drawn."""
        return any(route.in_order for route in self.routes)

    @property
    def panel_strips(self) -> int:
        """The most strips of a panel."""
        strip = self.batch_size * LANES
        largest = max(route.n_numbers for route in self.routes) * strip
        return max(1, PANEL_NUMBERS // largest)

    @cached_array
    def pairs(self) -> Integers:
        """The pairs of rows of which there are products, see `pairs_of`."""
        return pairs_of(len(self.estimators), self.n_directions)

    def make_moments(self, n_sets: int = 1) -> Moments:
        """Make room for moments of the estimators."""
        return make_moments(self.pairs, len(self.estimators) * (4 + self.n_directions), n_sets)

    def run(self, first: int, replications: int) -> Moments:
        """Simulate replications of blocks from the first on, and return the moments of each block."""
        size = self.block_replications
        moments = self.make_moments(-(-replications // size))
        with borrowed(self._places, lambda: Workplace(self)) as place:
            for i in range(len(moments.counts)):
                check_wanted()
                place.run(first + i, min(size, replications - i * size), i, moments)
        return moments


class Workplace:
    """What one thread works in, at one block after another: nothing that is in it before a block begins is read."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.scratch = Scratch()
        self.panel_strips = experiment.panel_strips
        law, group_size = experiment.law, experiment.group_size
        sheets = [make_sheet(law, group_size) for _ in range(1 + experiment.in_order)]  # as counts, and in the order drawn
        room = make_counting_room(law, sheets[0])
        self.draws = [Draws(make_streams(), law, group_size, sheet, room) for sheet in sheets]
        n_strips = min(SHEAF_STRIPS, -(-experiment.block_replications // LANES))
        self.moments = experiment.make_moments()
        observations = zeros(len(experiment.estimators), 4 + experiment.n_directions, n_strips, LANES)
        self.rows = observations.reshape(-1, n_strips * LANES)
        lengths = [len(route.estimators) for route in experiment.routes]
        self.found = np.split(observations, np.cumsum(lengths)[:-1])

    def run(self, block: int, replications: int, i: int, moments: Moments) -> None:
        """Simulate the first replications of a block, and fill in the i-th moments."""
        for draws in self.draws:
            draws.begin(self.experiment.words, block)
        total = set_of(moments, i)
        for done in range(0, replications, SHEAF_STRIPS * LANES):
            wanted = min(replications - done, SHEAF_STRIPS * LANES)
            self._run_sheaf(wanted)
            compiled_fill_moments()(self.rows, wanted, 0, self.moments)
            compiled_merge_moments()(total, self.moments)

    def _run_sheaf(self, replications: int) -> None:
        """Draw and observe the next replications of a block."""
        n_strips = -(-replications // LANES)
        for start in range(0, n_strips, self.panel_strips):
            panel = self._draw(min(self.panel_strips, n_strips - start))
            for route, found in zip(self.experiment.routes, self.found, strict=True):
                self._observe(route, panel, start, found)
                if isinstance(route, OwnRoute):
                    self._check(route, panel, found[0, 0, start:], replications - start * LANES)

    def _draw(self, n_strips: int) -> Panel:
        """Draw the next strips."""
        panel = self.scratch.made("panel", self._make_panel, n_strips)
        if panel.ordered is not None:
            self.draws[1].fill_ordered(panel.counts, panel.ordered)
        self.draws[0].fill(panel.counts)
        return panel

    def _make_panel(self, n_strips: int) -> Panel:
        """Make room for so many strips."""
        experiment, shape = self.experiment, (n_strips, self.experiment.batch_size)
        counts = make_counts(*shape, experiment.law.fine.shape[1])
        ordered = zeros(*shape, experiment.group_size, LANES, dtype=np.uint16) if experiment.in_order else None
        return Panel(counts, ordered)

    def _observe(self, route: Route, panel: Panel, start: int, found: Array) -> None:
        """Fill in the observations of a route's estimators, shape (E, 4 + J, S, LANES), from a strip on."""
        fill_errors, truth = self.experiment.geometry
        place = 0
        for parts in route.parts(panel, self.scratch):
            rows = found[place : place + len(parts.columns)]
            room = self.scratch.made("errors", self._make_error_room, parts.rows.shape, len(parts.owners), len(parts.columns))
            compiled_errors(fill_errors)(truth, panel.counts.prompts, parts, room, start, rows)
            place += len(rows)

    def _make_error_room(self, shape: tuple[int, ...], n_columns: int, n_estimators: int) -> ErrorRoom:
        """Make room for the errors of so many estimators, whose parts have rows of a shape, and so many columns."""
        experiment = self.experiment
        sizes = n_columns, n_estimators, experiment.batch_size, 4 + experiment.n_directions
        return make_error_room(experiment.geometry.fill_errors, experiment.geometry.truth, shape, *sizes)

    def _check(self, route: OwnRoute, panel: Panel, errors: Array, wanted: int) -> None:
        """Raise if a kernel has left an advantage that is not finite, in one of the wanted replications of a panel."""
        bad = ~np.isfinite(errors[: len(panel.counts.prompts)]).reshape(-1)[:wanted]
        if bad.any():
            strip, lane = divmod(int(np.argmax(bad)), LANES)
            counts, prompt = panel.counts.outcomes[strip, 0, :, lane], panel.counts.prompts[strip, 0, lane]
            raise ValueError(
                f"the kernel of estimator {route.estimators[0].name!r} must fill finite advantages, and does not for a batch "
                f"of {self.experiment.batch_size} x {self.experiment.group_size} responses, the first with rewards "
                f"{np.repeat(route.rewards[prompt], counts).tolist()}"
            )
