"""Neighbouring results worth a row."""

from grpo_theory.evidence import Statement
from simulations.claims.u import DERIVED, OURS, PARTS

MEI, SMOOTHNESS = "arXiv 2005.06392", DERIVED(30)
BANDIT = "one prompt, a logit for each response, fixed rewards in [0, 1], exact gradients"
PRACTICE = "needs the studies of trainers' conventions and KL placements"
GREENSMITH = "Greensmith et al. 2004"
KL_PAPER, KL_DERIVED = "arXiv 2512.21852", DERIVED(19)

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
        "the expected update is h'(p) grad p, h' as in docs/derivations.md, 24, for every trainer's convention",
        "identity",
    ),
    Statement(
        "R1/limit", "arXiv 2510.13651", "GRPO: h'(p) tends to 1/sqrt(p(1-p)), the slope of 2 arcsin sqrt(p), as 1/G", "rate"
    ),
    Statement(
        "R1/greatest",
        DERIVED(24),
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
        DERIVED(24),
        "E[update | mixed group] = (1-1/G) g/[1 - (1-p)^G - p^G]: no direction is lost at a prompt",
        "identity",
        whose="ours",
    ),
    Statement("R4", "arXiv 2511.03710", "leave-one-out James-Stein baselines are unbiased and have lower MSE", PARTS),
    Statement("R4/unbiased", "arXiv 2511.03710", "the leave-one-out James-Stein baseline is unbiased", "identity"),
    Statement("R4/lower", "arXiv 2511.03710", "its gradient has a lower MSE than the leave-one-out mean's", "ordering"),
    Statement(
        "R5",
        KL_PAPER,
        "which gradient do k1, k2, k3 estimate, in the reward or in the loss, on and off policy?",
        PARTS,
    ),
    Statement("R5/k1 in reward", KL_PAPER, "on policy: the gradient of KL(pi || pi_ref)", "identity"),
    Statement("R5/k1 in loss", KL_PAPER, "on policy: 0", "identity"),
    *(
        Statement(f"R5/{name}", KL_DERIVED, text, "identity", whose="ours")
        for name, text in (
            ("k2 in reward", "on policy: the gradient of E_pi[(1/2) sum_t l_t^2] less its part through l_t = log(pi/pi_ref)"),
            ("k3 in reward", "on policy: the gradient of KL(pi || pi_ref) less that of KL(pi_ref || pi) at the prefixes of pi"),
            ("k2 in loss", "on policy: the gradient of KL(pi || pi_ref) with the prefixes held fixed"),
            ("k3 in loss", "on policy: the gradient of KL(pi_ref || pi) with the prefixes of pi held fixed"),
            ("k1 in reward/off policy", "trajectory ratio: the gradient of KL(pi || pi_ref) - KL(pi || pi_0)"),
            ("k1 in loss/off policy", "no ratio: the gradient of -KL(pi_0 || pi)"),
            ("k2 in loss/off policy", "no ratio: the gradient of E_0[(1/2) sum_t l_t^2]"),
            ("k3 in loss/off policy", "no ratio: the gradient of E_0[sum_t (exp(-l_t) - 1 + l_t)]"),
        )
    ),
    Statement(
        "R6",
        MEI,
        "softmax bandit: ||grad|| >= pi(a*) Delta, J is 5/2-smooth, step 2/5 from uniform gives Delta_t <= 5 K^2/t",
        PARTS,
        BANDIT,
    ),
    Statement("R6/slope", MEI, "pi(a*) Delta over ||grad|| is at most 1", "upper bound", BANDIT),
    Statement(
        "R6/slope, sharp",
        SMOOTHNESS,
        "||grad|| >= sqrt(K/(K-1)) pi(a*) Delta, attained where the other responses are alike",
        "upper bound",
        BANDIT,
        whose=OURS,
    ),
    Statement("R6/smoothness", MEI, "||Hess J|| over 5/2 is at most 1", "upper bound", BANDIT),
    Statement(
        "R6/smoothness, sharp",
        SMOOTHNESS,
        "||Hess J|| <= 1/(3 sqrt 3), a thirteenth of 5/2, attained by two responses",
        "upper bound",
        BANDIT,
        whose=OURS,
    ),
    Statement("R6/gap", MEI, "step 2/5 from uniform: t Delta_t over 5 K^2 is at most 1", "upper bound", BANDIT),
    Statement(
        "R6/gap, sharper",
        SMOOTHNESS,
        "step 2/5 from uniform: Delta_t <= 2.601 K (K-1)/t",
        "upper bound",
        BANDIT,
        whose=OURS,
    ),
    Statement(
        "R6/gap, linear",
        "question beside arXiv 2005.06392",
        "step 2/5 from uniform: Delta_t <= (5/2) K/t, linear in K; measured, not proved",
        "upper bound",
        BANDIT,
        whose=OURS,
    ),
    Statement("R6/rate", MEI, "Delta_t falls as 1/t", "rate", BANDIT),
    Statement(
        "R6/rate, constant",
        SMOOTHNESS,
        "Delta_t ~ (1 - 1/K)/(step t) whatever the rewards, one best response: off by at most 5%, t up to 10,000",
        "upper bound",
        BANDIT,
        whose=OURS,
    ),
    Statement(
        "R6/divided", SMOOTHNESS, "divided by the reward's standard deviation, Delta_t falls as 1/t^2", "rate", BANDIT, whose=OURS
    ),
    Statement(
        "R6/divided, constant",
        SMOOTHNESS,
        "divided, Delta_t ~ 4 (1 - 1/K)^2 (mean shortfall)/(step t)^2: off by at most 5%, t up to 10,000",
        "upper bound",
        BANDIT,
        whose=OURS,
    ),
    Statement(
        "R7",
        "arXiv 2509.24203",
        "a step on (1/K^2) sum_{i<j} (a_i - a_j)^2 at the sampling policy is 2 tau times the group-relative update, any samples",
        "identity",
    ),
    Statement(
        "R7/away",
        DERIVED(20),
        "at any other policy too, with a_i = r_i - tau log(pi/pi_0) in the place of the rewards",
        "identity",
        whose="ours",
    ),
)
