"""Neighbouring results worth a row."""

from grpo_theory.evidence import Statement

PRACTICE = "needs the studies of trainers' conventions and KL placements"
GREENSMITH = "Greensmith et al. 2004"

STATEMENTS = (
    Statement(
        "R1",
        "arXiv 2510.13651",
        "binary reward: the expected update of a group estimator is h'(p) grad p; as G grows h is 2 arcsin sqrt(p) for GRPO",
        "identity",
        open=PRACTICE,
    ),
    Statement("R2", GREENSMITH, "b* at most the value baseline, G = 64", "upper bound"),
    Statement("R2/plug-in, G=4", "measured", "leave-one-out b* at most leave-one-out mean, G = 4", "upper bound", whose="ours"),
    Statement("R2/plug-in, G=64", "measured", "leave-one-out b* at most leave-one-out mean, G = 64", "upper bound", whose="ours"),
    Statement(
        "R3",
        "arXiv 2601.08521",
        "given a mixed group, A - E[Ahat|S] = [p(1-p)^G + p^{G+1} - p^G]/[1 - (1-p)^G - p^G]",
        "identity",
        open=PRACTICE,
    ),
    Statement(
        "R4", "arXiv 2511.03710", "leave-one-out James-Stein baselines are unbiased and have lower MSE", "ordering", open=PRACTICE
    ),
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
