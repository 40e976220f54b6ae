"""The statements of "Why GRPO Needs Normalization"."""

from grpo_theory.evidence import Statement
from simulations.claims.u import CORRECTION, DERIVED, OURS, PARTS

PAPER = "arXiv 2601.23135"
CURVATURE = DERIVED(30)
LINEAR = "log-linear policy, binary reward, one correct answer, exact gradients"


def _several(paper: str, text: str) -> Statement:
    return Statement(
        f"{paper}/several", f"question beside {PAPER}", f"several correct answers: {text}", "upper bound", whose=OURS
    )


ORTHOGONAL = f"{LINEAR}, X_i X_j' = 0 for i != j"
WEAK = f"{LINEAR}, M <grad J_i, grad J_j> >= ||X_i grad J_j||^2/||X_i||^2 for all i, j"
BOUNDED = f"{WEAK}; ||grad J_i|| <= R1 ||grad J_j||, sqrt(V_i) <= R2 sqrt(V_j)"
FLOWS = DERIVED(31)


def _ours(part: str, text: str, kind: str, assumptions: str = ORTHOGONAL, source: str = FLOWS, whose: str = OURS) -> Statement:
    return Statement(part, source, text, kind, assumptions, whose=whose)


RATES = (
    Statement(
        "N5",
        f"{PAPER}, Theorem 3.1",
        "eta = 1/X^2: one-step gain >= ||grad J_i||^2/(2 n X^2), sum_t E||grad J_i||^2 <= 2 n (1 - p_i(0)) X^2",
        PARTS,
        ORTHOGONAL,
    ),
    Statement(
        "N5/gain",
        f"{PAPER}, Theorem 3.1",
        "eta = 1/X^2, prompt i drawn: curvature takes at most 1/2 of the first-order gain eta ||grad J_i||^2",
        "upper bound",
        LINEAR,
    ),
    _ours(
        "N5/gain, sharp",
        "eta = 3 sqrt 3/X^2: curvature takes at most 1/2, so the gain is at least (3 sqrt 3/2) ||grad J_i||^2/X^2",
        "upper bound",
        LINEAR,
    ),
    Statement(
        "N5/sum",
        f"{PAPER}, Theorem 3.1",
        "sum_t E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
        ORTHOGONAL,
    ),
    Statement(
        "N5/minimum",
        f"{PAPER}, Theorem 3.1",
        "T min_{t<T} E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
        ORTHOGONAL,
    ),
    _ours(
        "N5/sum, sharp",
        "eta = 3 sqrt 3/X^2: sum_t E||grad J_i||^2 over (2/(3 sqrt 3)) n (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
    ),
    Statement(
        "N6",
        f"{PAPER}, Theorem 3.2",
        "eta = 1/(2X^2), C_t >= sqrt(V_i): gain >= 3||grad J_i||^2/(16 n X^2 C_t), sum <= 2 n (1 - p_i(0)) X^2 (8/(3T)) sum C_t",
        PARTS,
        ORTHOGONAL,
    ),
    Statement(
        "N6/gain",
        f"{PAPER}, Theorem 3.2",
        "eta = 1/(2X^2), prompt i drawn: curvature takes at most 5/8 of the first-order gain eta ||grad J_i||^2/sqrt(V_i)",
        "upper bound",
        LINEAR,
    ),
    _ours(
        "N6/gain, printed step",
        "eta = 1/(2X^2): the gain is at least 0.435 ||grad J_i||^2/(X^2 sqrt(V_i)): curvature takes at most 0.13",
        "upper bound",
        LINEAR,
    ),
    _ours(
        "N6/gain, sharp",
        "eta = 1.7/X^2: the gain is at least 0.889 ||grad J_i||^2/(X^2 sqrt(V_i)): curvature takes at most 0.48",
        "upper bound",
        LINEAR,
    ),
    Statement(
        "N6/printed",
        f"{PAPER}, Theorem 3.2",
        "sum_{t<T} E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 (8/(3T)) sum_t E sqrt(V_i) is at most 1",
        "upper bound",
        ORTHOGONAL,
    ),
    _ours(
        "N6/corrected",
        "[(1/T) sum_{t<T} E||grad J_i||]^2 over 2 n (1 - p_i(0)) X^2 (8/(3T)) (1/T) sum_t E sqrt(V_i) is at most 1",
        "upper bound",
        whose=CORRECTION,
    ),
    _ours(
        "N6/minimum",
        "min_{t<T} [E||grad J_i||]^2 sum_t 1/E sqrt(V_i) over (16/3) n (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
        whose=CORRECTION,
    ),
    _ours(
        "N6/weighted",
        "sum_t E[||grad J_i||^2/sqrt(V_i)] over (16/3) n (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
        whose=CORRECTION,
    ),
    _ours(
        "N6/weighted, sharp",
        "eta = 1.7/X^2: sum_t E[||grad J_i||^2/sqrt(V_i)] over n (1 - p_i(0)) X^2/0.889 is at most 1",
        "upper bound",
    ),
    Statement(
        "N7",
        PAPER,
        "GRPO's rate is strictly better when the average over prompts and iterations of (8/3) sqrt(V) is below 1",
        PARTS,
        ORTHOGONAL,
    ),
    Statement(
        "N7/printed",
        PAPER,
        "where the average of (8/3) sqrt(V) is below 1, mean success after T updates is higher with division, printed steps "
        "(the other side of the threshold is N7/converse)",
        "ordering",
        ORTHOGONAL,
    ),
    Statement(
        "N7/sum",
        PAPER,
        "where it is below 1, the sum of squared gradients over T updates is smaller with division, printed steps",
        "ordering",
        ORTHOGONAL,
    ),
    _ours(
        "N7/converse",
        "where it is not below 1, the plain update's mean success after T updates is higher, printed steps",
        "ordering",
        source=f"question beside {PAPER}",
    ),
    _ours(
        "N7/always",
        "tabular prompts, wrong answers equally likely: the divided update's success is higher at every T, printed steps",
        "ordering",
    ),
    _ours(
        "N7/best steps",
        "and at the steps of the best guarantees, 3 sqrt 3/X^2 and 1.7/X^2, the divided update's success is higher too",
        "ordering",
        source=f"question beside {PAPER}",
    ),
    _ours(
        "N7/flow, plain",
        "small steps: u + sinh u = k t/2 + const with u = logit p, K tabular answers, k = K/(K - 1)",
        "identity",
        "tabular, wrong answers equally likely",
    ),
    _ours(
        "N7/flow, divided",
        "small steps, divided by sqrt(V): 2 sinh(u/2) = k t/2 + const",
        "identity",
        "tabular, wrong answers equally likely",
    ),
    _ours(
        "N7/flow, finite group",
        "small steps, divided by the group's own deviation: du/dt = k V h'(p), by quadrature",
        "identity",
        "tabular, wrong answers equally likely",
    ),
    _ours("N7/escape, plain", "the time from p to 1/2 grows as 1/p without division", "rate", "tabular"),
    _ours("N7/escape, divided", "and as 1/sqrt(p) with division by the true deviation", "rate", "tabular"),
    _ours(
        "N7/escape, finite group",
        "with the group's own deviation it grows as 1/p again below p of about 1/G",
        "rate",
        "tabular",
    ),
    _ours(
        "N7/escape, crossover",
        "between p = 0.01 and 0.1 the time with groups of 1,024 is within 5% of that with the true deviation",
        "upper bound",
        "tabular",
    ),
    _ours(
        "N7/escape, simulated",
        "steps of 0.02: the simulated mean number of updates from p = 0.05 to 1/2 is within 2% of the time of the flow/eta",
        "upper bound",
        "two tabular answers, batches of 32 groups",
    ),
    Statement(
        "N8",
        f"{PAPER}, Theorems 3.3 and 3.4",
        "with weakly interacting prompts the same with max(1, M/2), and with max(R1, 5M/8) R2",
        PARTS,
        BOUNDED,
    ),
    Statement(
        "N8/plain gain",
        f"{PAPER}, Theorem 3.3",
        "eta = 1/(X^2 m), m = max(1, M/2): the mean gain of J_i is short of ||grad J_i||^2/(2 n X^2 m) by a share of at most 0",
        "upper bound",
        WEAK,
    ),
    Statement(
        "N8/plain sum",
        f"{PAPER}, Theorem 3.3",
        "eta = 1/(X^2 m), m = max(1, M/2): sum_t E||grad J_i||^2 over 2 n m (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
        f"{WEAK}, along the iterates",
    ),
    Statement(
        "N8/divided gain",
        f"{PAPER}, Theorem 3.4",
        "eta = 1/(2 X^2 S), S = max(R1, 5M/8) R2: the mean gain is short of 3||grad J_i||^2/(16 n X^2 S sqrt(V_i)) "
        "by a share of at most 0",
        "upper bound",
        BOUNDED,
    ),
    Statement(
        "N8/divided sum",
        f"{PAPER}, Theorem 3.4",
        "the same step: sum_{t<T} E||grad J_i||^2 over 2 n S (1 - p_i(0)) X^2 (8/(3T)) sum_t E sqrt(V_i) is at most 1",
        "upper bound",
        f"{BOUNDED}, along the iterates",
    ),
    _ours(
        "N8/divided sum, corrected",
        "[(1/T) sum_{t<T} E||grad J_i||]^2 over 2 n S (1 - p_i(0)) X^2 (8/(3T)) (1/T) sum_t E sqrt(V_i) is at most 1",
        "upper bound",
        f"{BOUNDED}, along the iterates",
        whose=CORRECTION,
    ),
    _ours(
        "N8/divided sum, weighted",
        "sum_t E[||grad J_i||^2/sqrt(V_i)] over (16/3) n S (1 - p_i(0)) X^2 is at most 1",
        "upper bound",
        f"{BOUNDED}, along the iterates",
        whose=CORRECTION,
    ),
    Statement(
        "N8/divided gain, appendix",
        f"{PAPER}, Theorem 3.4 as its appendix has it",
        "the gain of Theorem 3.4 with S = max(R1 R2, M/2) in the step and in the bound",
        "upper bound",
        BOUNDED,
    ),
    _ours(
        "N8/divided gain, without R1",
        "R1 is not needed: the gain of Theorem 3.4 with S = max(1, 5M/8) R2 in the step and in the bound",
        "upper bound",
        BOUNDED,
    ),
    _ours(
        "N8/divided gain, without R2",
        "R2 is not needed: the gain of Theorem 3.4 with S = max(R1, 5M/8) in the step and in the bound",
        "upper bound",
        BOUNDED,
        source=f"question beside {PAPER}",
    ),
    _ours(
        "N8/conflict",
        "different right answers, correlated features: a small step on prompt j lowers J_i, at every correlation above 0",
        "ordering",
        LINEAR,
    ),
    _ours(
        "N8/conflict, gain",
        "where no M exists, still the mean gain of J_i is short of ||grad J_i||^2/(2 n X^2) by at most 0",
        "upper bound",
        LINEAR,
        source=f"question beside {PAPER}",
    ),
    _ours(
        "N8/conflict, sum",
        "where no M exists, still sum_t E||grad J_i||^2 over 2 n (1 - p_i(0)) X^2 is at most 1 with eta = 1/X^2",
        "upper bound",
        LINEAR,
        source=f"question beside {PAPER}",
    ),
)

STATEMENTS = (
    Statement("N1", PAPER, "||Hess J_i|| <= 4 X^2 V_i: left over right is at most 1", "upper bound", LINEAR),
    _several("N1", "||Hess J_i|| <= 4 X^2 V_i"),
    Statement(
        "N1/sharp",
        CURVATURE,
        "||Hess J_i|| <= X^2 V max(1/2, 2|1 - 2p|), no 1/2 if K = 2; no better function of p; any number of correct answers",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N1/Hessian",
        CURVATURE,
        "Hess J_i = V {Cov+ - Cov- + (1 - 2p) m m'}, of the features given a correct and a wrong one, m their means apart",
        "identity",
        whose=OURS,
    ),
    Statement(
        "N1/two responses",
        CURVATURE,
        "two answers: ||Hess J_i|| = V |1 - 2p| ||x_1 - x_2||^2, which is 0 where V is largest",
        "identity",
        whose=OURS,
    ),
    Statement("N2", PAPER, "J_i is (X/2)-Lipschitz: ||grad J_i|| over X/2 is at most 1", "upper bound", LINEAR),
    _several("N2", "||grad J_i|| <= X/2"),
    Statement(
        "N2/sharp",
        CURVATURE,
        "||grad J_i|| <= sqrt(2) V X <= sqrt(2)/4 X, attained by two answers; any number of correct answers",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N3", PAPER, "within radius sqrt(V_i)/X of theta, ||Hess J_i|| <= (5/2) X^2 sqrt(V_i(theta))", "upper bound", LINEAR
    ),
    _several("N3", "within radius sqrt(V_i)/X, ||Hess J_i|| <= (5/2) X^2 sqrt(V_i(theta))"),
    Statement(
        "N3/sharp",
        CURVATURE,
        "within radius sqrt(V_i)/X, ||Hess J_i|| <= 0.5873 X^2 sqrt(V_i(theta)), attained by two answers at p = 0.1025",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N4",
        PAPER,
        "X_i X_j' = 0 for all i != j: no step at one prompt, divided or not, moves another's success probability",
        "identity",
        LINEAR,
    ),
    Statement(
        "N4/paths",
        CURVATURE,
        "and every prompt's success probability has the path that it has when it is trained alone, with as many of its own steps",
        "identity",
        whose=OURS,
    ),
    *RATES,
    Statement("N9", PAPER, "reward variance is a proxy of local curvature within an iteration, and not across iterations", PARTS),
    Statement(
        "N9/within",
        PAPER,
        "the correlation of V_i and curvature over the prompts of an iteration is 0.34, give or take 0.1",
        "equality",
        measured=True,
    ),
    Statement(
        "N9/across",
        PAPER,
        "a prompt's correlation of V_i and curvature over iterations is 0, give or take 0.1",
        "upper bound",
        measured=True,
    ),
    Statement(
        "N9/Hessian",
        DERIVED(32),
        "over the prompts of an iteration V_i and ||Hess J_i|| have a rank correlation of at least 0.9",
        "upper bound",
        whose=OURS,
    ),
    Statement("N10", PAPER, "prompts' representations are nearly orthogonal: |cos| mean 0.088, over 90% below 0.15", PARTS),
    Statement(
        "N10/mean",
        PAPER,
        "the mean of |cos| over pairs of representations is 0.088, give or take a tenth",
        "equality",
        measured=True,
    ),
    Statement("N10/share", PAPER, "the share of |cos| >= 0.15 is at most 10%", "upper bound", measured=True),
    Statement(
        "N10/whitened",
        f"question beside {PAPER}",
        "of hidden states that are whitened the share of |cos| >= 0.15 is at most 10%",
        "upper bound",
        whose=OURS,
    ),
    Statement("N11", PAPER, "gradient cosines drift: share |cos| < 0.1 is 97.7%, 80.3%, 52.4% at steps 0, 260, 500", PARTS),
    Statement(
        "N11/printed",
        PAPER,
        "at the start, half-way and at the end the share of |cos| < 0.1 is 97.7%, 80.3%, 52.4%, give or take a tenth",
        "equality",
        measured=True,
    ),
    Statement(
        "N11/drift", PAPER, "from start to end the share of |cos| < 0.1 falls by at least 10 points", "upper bound", measured=True
    ),
    Statement(
        "N12",
        PAPER,
        "three phases: division accelerates, is stable, and no longer gains once orthogonality is lost",
        PARTS,
    ),
    Statement(
        "N12/I",
        PAPER,
        "while prompts are near-orthogonal and deviations high, division gains: minus the increase of its advantage is below 0",
        "ordering",
        measured=True,
    ),
    Statement(
        "N12/II",
        PAPER,
        "near-orthogonal, deviations no longer high: the advantage changes by at most a point of success",
        "upper bound",
        measured=True,
    ),
    Statement(
        "N12/III",
        PAPER,
        "orthogonality is lost: at the end the share of |cos| < 0.1 is at most 2/3",
        "upper bound",
        measured=True,
    ),
    Statement(
        "N12/III, from the start",
        f"question beside {PAPER}",
        "where orthogonality is missing from the start, division gains at most a point of success",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N12/orthogonality",
        f"question beside {PAPER}",
        "from the same policies division gains less where prompts are less orthogonal",
        "ordering",
        whose=OURS,
    ),
    Statement(
        "N12/deviation",
        f"question beside {PAPER}",
        "where prompts are near-orthogonal, division gains less from a policy of lower mean deviation",
        "ordering",
        whose=OURS,
    ),
)
