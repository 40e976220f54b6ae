"""U6, U9, N9, N11 on SmolLM2's sampled answers: the gradient of all parameters, and the head's.

Nothing is drawn: the shipped answers, rewards and sketches are read. Noise is that of one group about its own prompt's gradient,
as in `quality_path`.

Numbers about the shipped prompts themselves have the error of these prompts' 32 responses and of the sketch (`response_error`,
`sketch_error`). Claims rest on it, as other problems' prompts are fixed too. Numbers about all prompts of these kinds have
`standard_error`, by deleting one prompt at a time, and the limits `low` and `high`. Cosines are among these, because a pair
consists of two prompts.

In the controls V is added to the reward instead of subtracted, leave-one-out has groups of 2, or the curvature is another
prompt's. Squared norms of right answers are multiplied by ten; all gradients, or the head's scores, have a part in common.
"""

import numpy as np
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.data import sampled_answers
from grpo_theory.harness import check, rows, run
from grpo_theory.harness.study import EXACT
from simulations.gradient import baseline_statements as baselines
from simulations.gradient import sampled_statistics as read
from simulations.gradient.sampled_statistics import ALL, BLOCKS, BOTH, EVERY, HEAD, UNCENTRED, WRONG_SIGN, scores_of
from simulations.gradient.sampled_terms import TENFOLD, Sample, mean_of_pairs, means_of_others
from simulations.jackknife import jackknife_error
from simulations.normalisation.measured_statements import ORTHOGONAL_GRADIENTS, WITHIN
from simulations.statements import stated

ASSUMPTION, BY_HEAD = stated("U6/assumption, measured", "U9/head")
POWERLESS = {
    (WITHIN.id, f"SmolLM2, sampled answers, *, {questions}"): "129 questions cannot tell another question's curvature from the "
    "printed correlation"
    for questions in (EVERY, "small sum", "sum", "larger")
}
WHERE = "SmolLM2, sampled answers"
ABOUT = WHERE + ", {gradient}"
RELIABLE = 0.8
"""Cosines are of prompts of whose estimated squared gradient at most a fifth is noise."""
SMALL, PRINTED, PRINTED_NEAR = 0.1, 0.34, 0.977
"""A correlation below the first is called none; the correlation of N9; the share of N11 at the start."""
ROOT_2 = float(np.log(2.0)) / 2.0
EDGES, LEVEL = np.linspace(-1.0, 1.0, 41), 0.95
LOO, SIGN, OF_PAIRS = "leave-one-out against", f"{WRONG_SIGN} against", "means of pairs against value"
COMPARED = {
    baselines.VANILLA_4: (0.0, (f"{LOO} none", 4), (f"{SIGN} none", 0)),
    baselines.VANILLA_64: (0.0, (f"{LOO} none", 64), (f"{SIGN} none", 0)),
    baselines.NEAR: (baselines.FIFTH, (f"{LOO} value", 8), (OF_PAIRS, 8)),
    baselines.SAME: (baselines.LINE, (f"{LOO} value", 32), (OF_PAIRS, 32)),
    baselines.CORRELATED: (0.0, ("value against optimal", 0), (f"{SIGN} optimal", 0)),
    baselines.STRICT_CORRELATED: (0.0, ("value against none", 0), (f"{SIGN} none", 0)),
}
"""Of each statement about one gradient the bound, and of what it is one: quantity and group size, right and broken."""


def of_questions(quick):
    """All questions, and each kind by itself; the data are what they are, so quick is no different."""
    data = sampled_answers()
    return [{"data": data.provenance["sha256"], "questions": which} for which in (EVERY, *data.kind_names)]


def of_both(quick):
    """The same for the gradient of all parameters, and the head's."""
    return [{**case, "gradient": name} for case in of_questions(quick) for name in (ALL, HEAD)]


def of_gradients(quick):
    """Those on all questions."""
    return of_both(quick)[:2]


@run()
def measured(data, questions):
    """Read everything off the data, with its errors; and what the figure shows of prompts and of pairs."""
    of_means = read.statistics if questions == EVERY else read.proxies
    scores = {name: scores_of(name, questions) for name in (ALL, HEAD, UNCENTRED)}
    samples = {name: Sample.of(own) for name, own in scores.items()}
    by_prompt = of_means({name: sample.without_prompt() for name, sample in samples.items()})
    by_response = of_means({name: sample.without_response(scores[name]) for name, sample in samples.items()})
    means = {name: sample.means() for name, sample in samples.items()}
    by_block = [of_means(means | {ALL: Sample.of(scores_of(ALL, questions, i)).means()}) for i in range(BLOCKS)]
    found = [
        row_of(key, estimate, jackknife_error(by_prompt[key]), len(by_prompt[key]), [block[key] for block in by_block])
        | read.of_responses(by_response[key])
        for key, estimate in of_means(means).items()
    ]
    return {"rows": found + (list(of_everything(samples)) if questions == EVERY else [])}


def row_of(key, estimate, error, size, by_block=()):
    """Return an estimate as a row, with limits over prompts, and if it is known by blocks with the error of the sketch."""
    half = float(stdtrit(size - 1, (1.0 + LEVEL) / 2.0)) * error
    labels = dict(zip(("gradient", "quantity", "group_size"), key, strict=True))
    limits = {"low": estimate - half, "high": estimate + half}
    numbers = {"estimate": estimate, "standard_error": error, "replications": size, **limits}
    return labels | numbers | ({"sketch_error": np.std(by_block, ddof=1) / np.sqrt(BLOCKS)} if by_block else {})


def of_everything(samples):
    """Yield what is not a function of means: cosines, the best group sizes, and what the figure shows."""
    data = sampled_answers()
    samples = {name: samples[name] for name in (ALL, HEAD)}
    known = np.flatnonzero(np.all([s.terms["power"] > RELIABLE * np.diag(s.products) for s in samples.values()], axis=0))
    for name, sample in samples.items():
        scores, at = scores_of(name), {"gradient": name, **EXACT}
        matrices = read.cosines(scores, known)
        by_block = [read.cosines(scores_of(name, block=i), known) for i in range(BLOCKS)]
        for quantity, pairs in matrices.items():
            error = jackknife_error(means_of_others(pairs))
            blocks = [mean_of_pairs(block[quantity]) for block in by_block]
            yield row_of((name, quantity, 0), mean_of_pairs(pairs), error, len(known), blocks)
        power = sample.terms["P"] / sample.terms["P"].mean()
        for kind, variance, estimate in zip(data.kinds, sample.terms["variance"], power, strict=True):
            yield at | {"quantity": "prompt", "kind": data.kind_names[kind], "variance": variance, "estimate": estimate}
        cosine = matrices["cosine"]
        density, _ = np.histogram(cosine[np.triu_indices(len(cosine), 1)], EDGES, density=True)
        for middle, estimate in zip((EDGES[:-1] + EDGES[1:]) / 2.0, density, strict=True):
            yield at | {"quantity": "density", "cosine": middle, "estimate": estimate}
        best = gt.intervals.group_size_fieller(gt.Rollouts(*scores.of(scores.answers)), LEVEL)
        limits = {"low": best.low, "high": best.high}
        yield row_of((name, "G*", 0), best.estimate, best.standard_error, len(data.prompts)) | limits


def side(found, *key, over="response_error", size=False):
    """Return an estimate, or its size, with the error of responses or prompts and of the sketch."""
    (row,) = (one for one in found["rows"] if (one["gradient"], one["quantity"], one.get("group_size")) == key)
    error = float(np.hypot(row[over], row["sketch_error"]))
    replications = row["replications"] if over == "standard_error" else int(row["freedom"]) + 1
    return abs(row["estimate"]) if size else row["estimate"], error, replications if error > 0.0 else 0


@check(WITHIN, of=measured, cases=of_both, broken={"whose": ", another's"}, setting=ABOUT + ", Fisher, trace, {questions}")
def proxy(found, gradient, whose=""):
    """The correlation of the reward's variance and the curvature; broken, of another prompt's."""
    return side(found, gradient, f"Fisher, trace{whose}", 0), PRINTED


@check(*COMPARED, ASSUMPTION, of=measured, cases=of_gradients, broken={"suffix": TENFOLD}, setting=ABOUT)
def noise(found, gradient, suffix=""):
    """Noise by baseline, and Assumption 2; broken, V is added, groups are of 2, or right answers' norms are tenfold."""
    sides: dict = {ASSUMPTION.id: (side(found, gradient, f"correlation of ||W||^2 and Z{suffix}", 0, size=True), SMALL)}
    for one, (bound, right, wrong) in COMPARED.items():
        _, error, _ = side(found, gradient, *right, over="standard_error")
        sides[one.id] = side(found, gradient, *(wrong if suffix else right)), bound, {"standard error over prompts": error}
    return sides


@check(ORTHOGONAL_GRADIENTS, of=measured, cases=of_gradients, broken={"common": ", a common part"}, setting=ABOUT + ", start")
def orthogonal(found, gradient, common=""):
    """The share of pairs whose gradients are nearly orthogonal; broken, all have a part in common."""
    return side(found, gradient, f"share below 0.1{common}", 0, over="standard_error"), PRINTED_NEAR


@check(BY_HEAD, of=measured, cases=lambda quick: of_questions(quick)[:1], broken={"head": UNCENTRED}, setting=WHERE)
def by_head(found, head=HEAD):
    """The best group size by the head; broken, its scores have a part in common."""
    return side(found, BOTH, f"log (G* - 1), {head}", 0, size=True), ROOT_2


@rows(of=measured, cases=of_questions)
def shown(found):
    """Everything by gradient, quantity and group size, each prompt, and each bin of cosines."""
    yield from found["rows"]
