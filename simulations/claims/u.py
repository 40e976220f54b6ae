"""The statements of "Demystifying GRPO: Its Policy Gradient is a U-Statistic", and what the package derives beside them."""

from grpo_theory.evidence import Statement

PAPER = "arXiv 2603.01162"
DERIVED = "docs/derivations.md, {}".format
PARTS = "parts"
"""The kind of a statement that is decided by its parts, which have ids of their own."""
PRACTICE = "needs the studies of token ratios, KL placements and several updates for each rollout"
CORRECTION, OURS = "correction", "ours"
UNCORRELATED = "Assumption 2: ||W||^2 and Z are uncorrelated given X"

STATEMENTS = (
    Statement("U1", f"{PAPER}, Lemma 1", "leave-one-out gradient = mean over pairs of (1/2)(W_i-W_j)(Z_i-Z_j)", "identity"),
    Statement(
        "U1/own-mean", f"{PAPER}, Lemma 1", "own sample in the group mean: (1-1/G) times the leave-one-out gradient", "identity"
    ),
    Statement("U2", f"{PAPER}, Hoeffding projection", "the projection of the U-statistic's kernel is W (z - V)", PARTS),
    Statement("U2/printed", f"{PAPER}, Hoeffding projection", "2 h_1 = W (z - V)", "identity"),
    Statement("U2/corrected", DERIVED(1), "2 h_1 = W (z - V) + g", "identity", whose=CORRECTION),
    Statement("U3", f"{PAPER}, Theorem 2", "MSE(x) = trace Sigma_oracle(x)/G + O(E||W||^2/G^2)", PARTS, "Z bounded"),
    Statement("U3/printed", f"{PAPER}, Theorem 2", "MSE(x) - trace Sigma_oracle/G <= (range Z)^2 E||W||^2/G^2", "upper bound"),
    Statement(
        "U3/corrected",
        DERIVED(2),
        "MSE(x) = trace Sigma_oracle/G + [Var(Z) E||W||^2 + ||g||^2]/(G(G-1)), every G >= 2",
        "identity",
        whose=CORRECTION,
    ),
    Statement("U3/rate", f"{PAPER}, Theorem 2", "MSE(x) - trace Sigma_oracle/G falls as G^-2", "rate"),
    Statement("U3/simulated", f"{PAPER}, Theorem 2", "simulated E MSE(x) = exact law, G = 4", "equality", whose=OURS),
    Statement("U4", f"{PAPER}, Proposition 3", "MSE = c1/B + c2/(BG) + O(E||W||^2/(BG^2))", PARTS),
    Statement("U4/printed", f"{PAPER}, Proposition 3", "MSE - c1/B - c2/(BG) <= (range Z)^2 E||W||^2/(BG^2)", "upper bound"),
    Statement(
        "U4/term",
        f"question beside {PAPER}, Theorem 7",
        "the third term is c3/(BG^2) with one c3 for all G: G^2 (B MSE - c1 - c2/G) is the same at G = 2 and at 64",
        "identity",
        whose=OURS,
    ),
    Statement("U4/corrected", DERIVED(2), "MSE = c1/B + c2/(BG) + c3/(BG(G-1)), every G >= 2", "identity", whose=CORRECTION),
    Statement("U4/simulated", f"{PAPER}, Proposition 3", "simulated MSE = exact law, G = 4", "equality", whose=OURS),
    Statement("U5", f"{PAPER}, Corollary 4", "without terms of higher order in G, MSE(GRPO) = MSE(oracle)", PARTS),
    Statement("U5/prompt", f"{PAPER}, Corollary 4", "for each prompt, MSE(leave-one-out)/MSE(oracle) - 1 falls as G^-1", "rate"),
    Statement(
        "U5/batch", f"{PAPER}, Corollary 4", "for a batch, MSE(leave-one-out) - MSE(oracle) falls as G^-2, not G^-1", "rate"
    ),
    Statement(
        "U5/simulated",
        f"{PAPER}, Corollary 4",
        "simulated MSE(leave-one-out) - MSE(oracle) = c3/(BG(G-1)), G = 4",
        "equality",
        whose=OURS,
    ),
    Statement(
        "U6",
        f"{PAPER}, Corollary 5",
        "GRPO's MSE is at most that of every prompt-only baseline, below vanilla if V != 0",
        PARTS,
        UNCORRELATED,
    ),
    Statement(
        "U6/assumption",
        f"{PAPER}, Assumption 2",
        "||W||^2 and Z are uncorrelated given X: the largest |correlation| is 0",
        "identity",
    ),
    Statement(
        "U6/printed",
        f"{PAPER}, Corollary 5",
        "as G grows, leave-one-out is at most as noisy as the best of all prompt-only baselines: the limit of their ratio less 1",
        "upper bound",
        UNCORRELATED,
    ),
    Statement(
        "U6/strict",
        f"{PAPER}, Corollary 5",
        "as G grows, leave-one-out is less noisy than no baseline, V != 0: the limit of their ratio less 1",
        "ordering",
        UNCORRELATED,
    ),
    Statement(
        "U6/correlated",
        f"beyond {PAPER}, Corollary 5",
        "the same as printed, where ||W||^2 and Z are correlated",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U6/strict, correlated",
        f"beyond {PAPER}, Corollary 5",
        "leave-one-out less noisy than no baseline as G grows, where ||W||^2 and Z are correlated",
        "ordering",
        whose=OURS,
    ),
    Statement("U6/vanilla, G=4", f"{PAPER}, Fig. 4", "leave-one-out below no baseline, G = 4", "ordering"),
    Statement("U6/vanilla, G=64", f"{PAPER}, Fig. 4", "leave-one-out below no baseline, G = 64", "ordering"),
    Statement(
        "U6/vanilla, trained",
        f"{PAPER}, Fig. 4",
        "leave-one-out below no baseline at G = 4, 8, 16, 32, 64, for policies of rising quality",
        "ordering",
    ),
    Statement(
        "U6/near, G=8", f"{PAPER}, Fig. 4", "leave-one-out is near the oracle: within 20% of its error at G = 8", "upper bound"
    ),
    Statement(
        "U6/same, G=32",
        f"{PAPER}, Fig. 4",
        "leave-one-out is indistinguishable from the oracle: within 5% of its error at G = 32 and at 64",
        "upper bound",
    ),
    Statement("U6/quality", f"{PAPER}, Fig. 4", "the error falls as the policy gets better, G = 64", "ordering"),
    Statement(
        "U6/corrected",
        DERIVED(3),
        "trace Sigma_C - trace Sigma_V = E||W||^2 [(C-b*)^2 - (V-b*)^2]: C beats V iff it is nearer to b*",
        "identity",
        whose=CORRECTION,
    ),
    Statement(
        "U7",
        f"{PAPER}, Lemma 6(a)",
        "E Delta_n <= (1 - 2 mu beta + L mu beta^2)^n E Delta_0 + L beta^2 M/(4 mu beta - 2 L mu beta^2), every n",
        "upper bound",
        "J is L-smooth and PL with constant mu; beta < 1/(2L)",
    ),
    Statement(
        "U7/sharp",
        DERIVED(7),
        "E Delta_n = trace(diag(lambda) C_n)/2, C_n by the exact linear recursion, constant steps",
        "equality",
        whose=OURS,
    ),
    Statement(
        "U8",
        f"{PAPER}, Lemma 6(b)",
        "steps beta/(i + i0), m = n + 1 + i0: E Delta_n <= max{ (1 + eps) L beta^2 M/((4 mu beta - 2) m), a n_0/m }, every n",
        "upper bound",
        "J is L-smooth and PL with constant mu; beta > 1/(2 mu)",
    ),
    Statement(
        "U8/printed",
        f"{PAPER}, Lemma 6(b)",
        "steps beta/i as printed: E Delta_n <= max{ (1 + eps) L beta^2 M/((4 mu beta - 2) n), c/n }, c = a n_0, every n",
        "upper bound",
        "J is L-smooth and PL with constant mu; beta > 1/(2 mu)",
    ),
    Statement(
        "U8/sharp",
        DERIVED(7),
        "E Delta_n = trace(diag(lambda) C_n)/2, C_n by the exact linear recursion, harmonic steps",
        "equality",
        whose=OURS,
    ),
    Statement(
        "U8/lemma/printed", f"{PAPER}, Lemma 14", "a_n <= max{ (1 + eps) C/((A - 1) n), a n_0/n }, n_0 as printed", "upper bound"
    ),
    Statement(
        "U8/lemma/used",
        f"{PAPER}, Lemma 14",
        "a_n <= max{ (1 + eps) C/((A - 1) n), a n_0/n }, n_0 as printed, B >= A^2/4 as in Lemma 6",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U8/lemma/corrected",
        DERIVED(7),
        "a_n <= max{ (1 + eps) C/((A - 1) n), a n_0/n }, n_0 at least A",
        "upper bound",
        whose=CORRECTION,
    ),
    Statement(
        "U9", f"{PAPER}, Theorem 7", "the best group size is G* = sqrt(c3/c1) for every budget, iterations and schedule", PARTS
    ),
    Statement(
        "U9/best/printed",
        f"{PAPER}, Theorem 7",
        "the whole group size of least error at fixed BG is that of c1/B + c2/(BG) + c3/(BG^2), next to sqrt(c3/c1)",
        "identity",
    ),
    Statement(
        "U9/best/remainder",
        f"{PAPER}, Theorem 7 and Proposition 3",
        "the same with E||W||^2, which Proposition 3 prints in its remainder, in the place of c3",
        "identity",
    ),
    Statement(
        "U9/best/corrected",
        DERIVED(2),
        "the whole group size of least error at fixed BG is that of c1/B + c2/(BG) + c3/(BG(G-1)), next to 1 + sqrt(c3/c1)",
        "identity",
        whose=CORRECTION,
    ),
    Statement(
        "U9/bound/printed",
        f"{PAPER}, Theorem 7",
        "Lemma 6's bound, M the largest error over a region, is least at the whole G next to sqrt(C3/C1), suprema of c3 and c1",
        "identity",
        "BG is fixed; or nBG is, and B = N/(nG) is free",
    ),
    Statement(
        "U9/bound/corrected",
        DERIVED(14),
        "the same with 1 + sqrt(C3/C1), the minimiser of C1/B + C2/(BG) + C3/(BG(G-1))",
        "identity",
        "BG is fixed; or nBG is, and B = N/(nG) is free",
        whose=CORRECTION,
    ),
    Statement(
        "U9/bound/universal",
        f"{PAPER}, Theorem 7",
        "that bound is least at the same whole G for both budgets, two sizes of each, both step schedules",
        "identity",
        "BG is fixed; or nBG is, and B = N/(nG) is free",
    ),
    Statement(
        "U9/stays",
        f"question beside {PAPER}, Theorem 7 (its constants are suprema, which do not move)",
        "G* of the gradient's least error stays within a factor of sqrt(2) of that of the start while the policy learns",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U9/kept",
        f"question beside {PAPER}, Theorem 7",
        "kept from the start, G* has at most sqrt(2) times the least error of the gradient while the policy learns",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U9/schedules",
        f"{PAPER}, Theorem 7",
        "the G that trains best with one schedule loses at most sqrt(2) times what any other does with another, n = 32",
        "upper bound",
    ),
    Statement(
        "U9/printed",
        f"{PAPER}, Theorem 7",
        "G = sqrt(c3/c1) of the start, on the grid, trains a better policy than the law's best G",
        "ordering",
    ),
    Statement(
        "U9/policy-law",
        DERIVED(14),
        "loss(G) is within 20% of (c1 G + c2 + c3/(G-1))/N with the policy's own constants, n = 32, at each G",
        "upper bound",
        "the law's own second order is at most a tenth of the loss",
        whose=OURS,
    ),
    Statement(
        "U9/policy-law, beyond",
        DERIVED(14),
        "the same where the second order is more than a tenth of the loss",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U9/second order",
        DERIVED(14),
        "loss(G) is within 20% of the first two orders in 1/N, n = 32, at each G",
        "upper bound",
        "the second order is at most 40% of the first",
        whose=OURS,
    ),
    Statement(
        "U9/noise-costs",
        f"premise of {PAPER}, Theorem 7",
        "noise only costs: E J(theta_n) is at most J of the noise-free run, n = 16",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U9/budgets",
        f"{PAPER}, Theorem 7",
        "the G that trains best at the smallest budget loses at most sqrt(2) times what any other does at the largest, n = 32",
        "upper bound",
    ),
    Statement(
        "U9/one curve",
        DERIVED(14),
        "N loss(G) is the same at the smallest and the largest budget, n = 32, within 20% at each G",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U9/reported",
        f"question beside {PAPER}, Figure 5",
        "G = 32 trains a better policy than the group size of the gradient's least error",
        "ordering",
        whose=OURS,
    ),
    Statement(
        "U9/trace",
        f"{PAPER}, Theorem 7",
        "at the maximiser the group size of the gradient's least error (4) beats 10",
        "ordering",
        whose=OURS,
    ),
    Statement(
        "U9/curvature",
        DERIVED(14),
        "at the maximiser the group size of the curvature-weighted law beats the other",
        "ordering",
        whose=OURS,
    ),
    Statement(
        "U9/gap", DERIVED(14), "mean gap = (c1 G + c2 + c3/(G-1))/N with curvature-weighted constants", "equality", whose=OURS
    ),
    Statement(
        "U9/follow",
        DERIVED(14),
        "the group size of the gradient's least error at the current policy beats that at the start, kept",
        "ordering",
        whose=OURS,
    ),
    Statement(
        "U9/hindsight",
        DERIVED(14),
        "following the policy loses as much as the best fixed group size, known in hindsight (to 15%)",
        "equality",
        whose=OURS,
    ),
    Statement(
        "U10", f"{PAPER}, Theorem 8", "d(theta_n, Theta*) -> 0: E Delta_n falls as 1/n", "rate", "steps beta/i, Theta compact"
    ),
    Statement(
        "U10/distance",
        f"{PAPER}, Theorem 8",
        "d(theta_n, Theta*) -> 0 in probability: E d(theta_n, Theta*)^2 falls as 1/n",
        "rate",
        "steps beta/i, Theta compact",
    ),
    Statement("U11", f"{PAPER}, Theorem 8", "n Delta(theta_n) -> sum w_k chi^2_1, sqrt(n) Q'(theta_n - theta*) is normal", PARTS),
    Statement("U11/printed", f"{PAPER}, Theorem 8", "n Delta(theta_n) -> sum w_k chi^2_1, S as printed", "law"),
    Statement(
        "U11/corrected", DERIVED(6), "n Delta(theta_n) -> sum w_k chi^2_1, S with the factor beta^2", "law", whose=CORRECTION
    ),
    Statement(
        "U11/normal", f"{PAPER}, Theorem 8", "sqrt(n) Q'(theta_n - theta*) is normal: its Mahalanobis distance is chi^2_r", "law"
    ),
    Statement("U11/mean", DERIVED(6), "E n Delta(theta_n) = sum w_k", "equality", whose=OURS),
    Statement(
        "U11/normal gap",
        f"question beside {PAPER}, Theorem 8",
        "n Delta(theta_n) is normal, with 32 comparable weights",
        "law",
        whose=OURS,
    ),
    Statement(
        "U11/finite",
        DERIVED(6),
        "E n Delta(theta_n) at finite n, by the exact recursion, beta just above 1/(2 lambda_min)",
        "equality",
        whose=OURS,
    ),
    Statement(
        "U11/transient",
        DERIVED(6),
        "the slowest part of E n Delta falls short of its limit by a multiple of n^-(2 beta lambda_min - 1)",
        "rate",
        whose=OURS,
    ),
    Statement(
        "U11/skewness",
        DERIVED(6),
        "distance of the standardised gap from the normal = skewness/(6 sqrt(2 pi)) within 1%",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U11/comparable", DERIVED(6), "the distance of the standardised gap from the normal falls as M^-1/2", "rate", whose=OURS
    ),
    Statement("U12", f"{PAPER}, Corollary 9", "w_k(leave-one-out) - w_k(oracle) = O(G^-2), B fixed", "rate"),
    Statement(
        "U13",
        f"{PAPER}, Corollary 10",
        "no prompt-only baseline has smaller weights than the oracle: max over k and baselines of w_k(oracle)/w_k(baseline) <= 1",
        "upper bound",
        "Q'WW'Q and Z are uncorrelated given X",
    ),
    Statement(
        "U13/estimated",
        f"{PAPER}, Corollary 10",
        "nor than leave-one-out, up to O(G^-2): max over k and baselines of w_k(leave-one-out) - w_k(baseline), B fixed",
        "rate",
        "Q'WW'Q and Z are uncorrelated given X",
    ),
    Statement(
        "U13/correlated",
        f"beyond {PAPER}, Corollary 10",
        "no prompt-only baseline has smaller weights than the oracle, though Q'WW'Q and Z are correlated",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "U14",
        f"{PAPER}, Lemma 11",
        "with standardised advantages, token ratios and a KL term the estimator tends, as G grows, to the printed U-statistic",
        "identity",
        open=PRACTICE,
    ),
    Statement(
        "U15",
        f"{PAPER}, Theorem 12",
        "MSE about the sequential-ratio gradient = O(m^2 eta^2/eps + kappa^2 m^2 eta^2/eps^3) + trace Sigma_1/G + O(1/(eps G^2))",
        "rate",
        open=PRACTICE,
    ),
    Statement(
        "U16",
        f"{PAPER}, Proposition 13",
        "the algorithm is consistent for argmax E[2 arcsin sqrt(V(X))] - kappa KL(pi || pi_ref)",
        "equality",
        "binary Z, V bounded away from 0 and 1, B, G, kappa, m fixed",
        open=PRACTICE,
    ),
    Statement(
        "U17",
        f"{PAPER}, K3 term",
        "r - log r - 1 with r = pi_ref/pi is unbiased for KL(pi || pi_ref); its gradient estimator is sum_t W_t (1 - pi/pi_ref)",
        "identity",
        open=PRACTICE,
    ),
    Statement("U18", f"{PAPER}, Lemma 16", "mu <= every positive eigenvalue of -H", "upper bound"),
    Statement("U18/order", f"{PAPER}, Lemma 16", "mu <= L", "upper bound"),
)
