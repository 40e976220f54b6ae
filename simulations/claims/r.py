"""Neighbouring results worth a row."""

from grpo_theory.evidence import Statement
from simulations.claims.u import PARTS

PRACTICE = "needs the studies of trainers' conventions and KL placements"
DERIVED = "docs/derivations.md, {}".format
GREENSMITH = "Greensmith et al. 2004"

STATEMENTS = (
    Statement(
        "R1",
        "arXiv 2510.13651",
        "binary reward: the expected update of a group estimator is h'(p) grad p; as G grows h is 2 arcsin sqrt(p) for GRPO",
        PARTS,
    ),
    Statement(
        "R1/update",
        "arXiv 2510.13651",
        "the expected update is h'(p) grad p, h' as in docs/derivations.md, 19, for every trainer's convention",
        "identity",
    ),
    Statement(
        "R1/limit", "arXiv 2510.13651", "GRPO: h'(p) tends to 1/sqrt(p(1-p)), the slope of 2 arcsin sqrt(p), as 1/G", "rate"
    ),
    Statement(
        "R1/greatest",
        DERIVED(19),
        "GRPO with ddof 1: h'(p) is at most (G-1)/sqrt(G), its value at p = 0 and 1",
        "upper bound",
        whose="ours",
    ),
    Statement("R2", GREENSMITH, "b* at most the value baseline, G = 64", "upper bound"),
    Statement("R2/plug-in, G=4", "measured", "leave-one-out b* at most leave-one-out mean, G = 4", "upper bound", whose="ours"),
    Statement("R2/plug-in, G=64", "measured", "leave-one-out b* at most leave-one-out mean, G = 64", "upper bound", whose="ours"),
    Statement(
        "R3",
        "arXiv 2601.08521",
        "given a mixed group, A - E[Ahat|S] = [p(1-p)^G + p^{G+1} - p^G]/[1 - (1-p)^G - p^G]",
        PARTS,
    ),
    Statement(
        "R3/printed",
        "arXiv 2601.08521",
        "E[group mean | mixed group] - p = [p(1-p)^G + p^{G+1} - p^G]/[1 - (1-p)^G - p^G]",
        "identity",
    ),
    Statement(
        "R3/own reward",
        "question beside arXiv 2601.08521",
        "and so it is if the response is known to be right, as the sign of its advantage says",
        "identity",
        whose="ours",
    ),
    Statement(
        "R3/gradient",
        DERIVED(19),
        "E[update | mixed group] = (1-1/G) g/[1 - (1-p)^G - p^G]: no direction is lost at a prompt",
        "identity",
        whose="ours",
    ),
    Statement("R4", "arXiv 2511.03710", "leave-one-out James-Stein baselines are unbiased and have lower MSE", PARTS),
    Statement("R4/unbiased", "arXiv 2511.03710", "the leave-one-out James-Stein baseline is unbiased", "identity"),
    Statement("R4/lower", "arXiv 2511.03710", "its gradient has a lower MSE than the leave-one-out mean's", "ordering"),
    Statement(
        "R5",
        "arXiv 2512.21852",
        "k1, k2, k3 in the reward or in the loss each estimate the gradient that is said",
        "identity",
        open=PRACTICE,
    ),
    Statement(
        "R6",
        "arXiv 2005.06392",
        "softmax bandit: ||grad|| >= pi(a*) Delta, J is 5/2-smooth, step 2/5 from uniform gives Delta_t <= 5 K^2/t",
        "upper bound",
        open="needs the studies of curvature and rates",
    ),
    Statement(
        "R7",
        "arXiv 2509.24203",
        "one step on (1/K^2) sum (a_i - a_j)^2 at the sampling policy is the group-relative update for any samples",
        "identity",
        open=PRACTICE,
    ),
)
