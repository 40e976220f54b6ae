"""The count sketch: inner products are right on average, with the stated variance; without its signs they are not."""

from itertools import product

import numpy as np
import pytest

from grpo_theory.language_model import CountSketch
from grpo_theory.language_model.scores import splitmix

LIMIT = 4.9
SEEDS = 4096


def variance(x, y, m):
    """Section 36: of the sketched inner product of vectors that come in chunks (R, m)."""
    inner = (x * y).sum()
    own = ((x**2).sum(axis=1) * (y**2).sum(axis=1) + (x * y).sum(axis=1) ** 2).sum()
    return ((x**2).sum() * (y**2).sum() + inner**2 - own) / m


def test_words_are_the_published_ones():
    """Of SplitMix64 with the seed 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [int(splitmix(np.uint64(1234567), np.uint64(i))) for i in range(5)] == published


def test_mean_and_variance_by_enumeration_of_all_signs_and_offsets():
    """Three chunks of two coordinates: 2^6 signs and 2^3 offsets."""
    x, y = np.random.default_rng(1).standard_normal((2, 3, 2))
    found = []
    for signs, offsets in product(product((-1.0, 1.0), repeat=6), product(range(2), repeat=3)):
        sums = [sum(np.roll(s * v, o) for s, v, o in zip(np.reshape(signs, (3, 2)), z, offsets, strict=True)) for z in (x, y)]
        found.append(sums[0] @ sums[1])
    assert np.mean(found) == pytest.approx((x * y).sum(), abs=1e-12)
    assert np.var(found) == pytest.approx(variance(x, y, 2), abs=1e-12)


def moments(make, blocks=1):
    """Return z values over seeds: of the mean of sketched products, of their variance, and of a variance a third greater.

    The vectors have a few coordinates that are much larger than the others.
    """
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((5, 32)) * rng.exponential(size=(5, 32)) ** 2 for _ in range(2))
    x, y = (z.astype(np.float32).astype(np.float64) for z in (x, y + 0.5 * x))
    found = np.array([make(x, seed) @ make(y, seed) for seed in range(SEEDS)])
    deviations = found - (x * y).sum()
    squares = deviations**2
    expected = variance(x, y, 32) / blocks
    error = squares.std() / np.sqrt(SEEDS)
    return (
        deviations.mean() / np.sqrt(expected / SEEDS),
        (squares.mean() - expected) / error,
        (squares.mean() - 4.0 / 3.0 * expected) / error,
    )


@pytest.mark.parametrize("blocks", [1, 3])
def test_mean_and_variance_over_seeds(blocks):
    mean, spread, elsewhere = moments(lambda vector, seed: CountSketch(32 * blocks, blocks, seed)([vector]), blocks)
    assert abs(mean) < LIMIT
    assert abs(spread) < LIMIT
    assert elsewhere < -LIMIT, "the check could not tell a variance that is a third greater"


def test_it_is_linear_and_its_pieces_are_chunks_of_one_vector():
    make, rng = CountSketch(256, 2, seed=4), np.random.default_rng(4)
    x, y = rng.standard_normal((2, 1024)).astype(np.float32)
    np.testing.assert_allclose(make([x]) + 2.0 * make([y]), make([x + 2.0 * y]), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(make([x[:512].reshape(4, 128), x[512:]]), make([x]))
    np.testing.assert_array_equal(make([x[:500], x[512:]]), make([np.concatenate([x[:500], np.zeros(12), x[512:]])]))
    assert not np.array_equal(make([x]), CountSketch(256, 2, seed=5)([x]))
    assert not np.array_equal(make([x])[:128], make([x])[128:])


def test_bad_input(check_refused):
    check_refused(
        (lambda: CountSketch(64, 4), "width must be a multiple of 32 numbers for each of the 4 blocks, got 64"),
        (lambda: CountSketch(64, 0), "blocks must be at least 1"),
        (lambda: CountSketch(32, 1)([np.ones(5), np.array([1.0, np.nan])]), "pieces must be finite"),
    )
