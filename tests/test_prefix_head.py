"""A head over hidden states of prefixes: the same policy as dense features, without ever writing them out."""

import tracemalloc

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.problem.logits import LogitMap, PrefixHeadMap


def both(rng):
    """Make a tree with hidden states of its prefixes, and the same one with the dense features of its edges."""
    shape = {"n_prompts": 3, "vocabulary_size": 3, "horizon": 3, "end_token": 2}
    hidden = rng.normal(size=(3, 7, 4))
    features = np.einsum("mph,vw->mpvwh", hidden, np.eye(3)).reshape(3, 21, 12)
    return gt.TokenTree(**shape, hidden=hidden), gt.TokenTree(**shape, features=features)


def test_the_maps_agree_with_dense_features():
    rng = np.random.default_rng(0)
    trees = both(rng)
    head, dense = (tree.logit_map for tree in trees)
    assert type(head) is PrefixHeadMap
    assert head.dimension == dense.dimension == 12
    theta, logit_gradients, matrices = rng.normal(size=(5, 2, 12)), rng.normal(size=(3, 6, 21)), rng.normal(size=(3, 21, 21))
    np.testing.assert_allclose(head.logits(theta), dense.logits(theta), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        head.adjoint_by_prompt(logit_gradients[:, 0]), dense.adjoint_by_prompt(logit_gradients[:, 0]), atol=1e-13
    )
    np.testing.assert_allclose(head.adjoint(logit_gradients[:, 0]), dense.adjoint(logit_gradients[:, 0]), atol=1e-13)
    np.testing.assert_allclose(head.gram(), dense.gram(), atol=1e-13)
    np.testing.assert_allclose(head.congruence(matrices), dense.congruence(matrices), atol=1e-12)
    np.testing.assert_allclose(head.squared_norms(logit_gradients), dense.squared_norms(logit_gradients), rtol=1e-12)
    probabilities, paths = trees[0].paths.log_probabilities(head.logits(theta[0, 0])), trees[0].paths
    found = [one(paths, np.exp(probabilities)) for one in (head.token_products, dense.token_products)]
    np.testing.assert_allclose(*found, atol=1e-12)


@pytest.mark.parametrize("kind", ["hidden", "features"])
def test_products_of_token_scores_are_those_of_scores_written_out(kind):
    rng = np.random.default_rng(1)
    tree = both(rng)[("hidden", "features").index(kind)]
    theta, paths = rng.normal(size=12), tree.paths
    probabilities = np.exp(paths.log_probabilities(tree.logits(theta)))
    products = tree.logit_map.token_products(paths, probabilities)
    for k, response in enumerate(tree.responses):
        scores = []
        for t in range(len(response)):
            logit_gradient = np.zeros((3, 21))
            start = paths.edges[k, t] // 3 * 3
            logit_gradient[:, start : start + 3] = -probabilities[:, start : start + 3]
            logit_gradient[:, paths.edges[k, t]] += 1.0
            scores.append(tree.logit_map.adjoint_by_prompt(logit_gradient))
        for s, one in enumerate(scores):
            for t, other in enumerate(scores):
                np.testing.assert_allclose(products[:, k, s, t], (one * other).sum(axis=1), atol=1e-12)
        assert not products[:, k, len(response) :].any()
        assert not products[:, k, :, len(response) :].any()


def test_the_language_models_answers_are_never_written_out():
    """1,111 responses with 1,221 logits at 32 prompts: the scores' logit gradients alone would be 350 MB, the forms 380 MB."""
    problem = gt.gallery.problem("lm-answers")
    tracemalloc.start()
    law = gt.gradient_law(problem, 1.01 * problem.theta, "rloo", batch_size=8, group_size=4, behaviour=problem.theta)
    numbers = [law.mse, law.prompt_mse]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.isfinite(numbers).all()
    assert peak < 8 * 32 * 1111 * 1221 / 2


def test_a_map_of_ones_own_gets_products_from_its_norms():
    rng = np.random.default_rng(3)
    tree, _ = both(rng)
    probabilities = np.exp(tree.paths.log_probabilities(tree.logits(rng.normal(size=12))))
    general = LogitMap.token_products(tree.logit_map, tree.paths, probabilities)
    np.testing.assert_allclose(general, tree.logit_map.token_products(tree.paths, probabilities), atol=1e-11)
