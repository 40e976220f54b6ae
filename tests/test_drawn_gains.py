"""What ratio and clip make of drawn responses, against the table of all of them."""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.parts import CLIPS, RATIOS
from grpo_theory.exact.score_moments import gains_of
from grpo_theory.simulate.covector.drawn_gains import fill_drawn_gains
from grpo_theory.simulate.covector.ratios import RatioFunctions
from grpo_theory.simulate.training_blocks import TrainingBlocks

LANES, WANTED, UNREAD = 8, 5, -7.0


def test_drawn_responses_have_the_gains_of_the_whole_table_and_others_are_left_alone():
    """Responses of one to three tokens; the trajectory ratio looks at a response's tokens together, the clip at the sign."""
    problem, rng = gt.gallery.problem("sequence-shared"), np.random.default_rng(0)
    paths = problem.policy.paths
    assert len(set(paths.lengths.tolist())) > 1
    for ratio, clip, aggregation in (("trajectory", "by sign", "own length"), ("token", "by sign", "sum")):
        estimator = gt.compose(f"drawn_{ratio}", advantage="rloo", ratio=ratio, clip=clip, aggregation=aggregation)
        rule = TrainingBlocks.of(problem, estimator, np.ones(2), (2, 2, 2), optimiser=gt.SGD()).rules.tokens
        log_ratios = 0.3 * rng.standard_normal((paths.n_logits, LANES))
        counts = rng.binomial(2, 0.15, size=(2 * paths.n_responses, LANES)).astype(np.int32)
        gains = np.full((paths.n_responses, 2, paths.horizon, LANES), UNREAD)
        functions = RatioFunctions(RATIOS[ratio].fill.function, CLIPS[clip].fill.function, None)
        fill_drawn_gains.py_func(functions, rule, log_ratios, counts, WANTED, gains)
        drawn = (counts.reshape(-1, 2, LANES).sum(axis=1) > 0) & (np.arange(LANES) < WANTED)
        read = drawn[:, None, None] & paths.taken[:, None, :, None] & np.ones((1, 2, 1, 1), dtype=bool)
        assert 0 < drawn.sum() < drawn[:, :WANTED].size
        np.testing.assert_allclose(gains[read], gains_of(estimator, paths, log_ratios)[read], rtol=1e-15)
        assert (gains[~read] == UNREAD).all()
