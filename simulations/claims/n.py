"""The statements of "Why GRPO Needs Normalization"."""

from grpo_theory.evidence import Statement
from simulations.claims.u import DERIVED, OURS, PARTS

PAPER = "arXiv 2601.23135"
OPEN = "needs the studies of curvature and of division by the standard deviation"
LINEAR = "log-linear policy, binary reward, one correct answer, exact gradients"


def _open(number: int, where: str, text: str, kind: str, assumptions: str = LINEAR) -> Statement:
    return Statement(f"N{number}", f"{PAPER}, {where}" if where else PAPER, text, kind, assumptions, OPEN)


STATEMENTS = (
    _open(1, "", "||Hess J_i|| <= 4 X^2 V_i", "upper bound"),
    _open(2, "", "J_i is (X/2)-Lipschitz", "upper bound"),
    _open(3, "", "within radius sqrt(V_i)/X of theta, ||Hess J_i|| <= (5/2) X^2 sqrt(V_i(theta))", "upper bound"),
    _open(4, "", "X_i X_j' = 0 for all i != j: prompts do not interact", "identity"),
    _open(
        5,
        "Theorem 3.1",
        "eta = 1/X^2: one-step gain >= ||grad J_i||^2/(2 n X^2), sum_t E||grad J_i||^2 <= 2 n (1 - p_i(0)) X^2",
        "upper bound",
    ),
    _open(
        6,
        "Theorem 3.2",
        "eta = 1/(2X^2), C_t >= sqrt(V_i): gain >= 3||grad J_i||^2/(16 n X^2 C_t), sum <= 2 n (1 - p_i(0)) X^2 (8/(3T)) sum C_t",
        "upper bound",
    ),
    _open(
        7,
        "",
        "GRPO's rate is strictly better when the average over prompts and iterations of (8/3) sqrt(V) is below 1",
        "ordering",
    ),
    _open(
        8,
        "Theorems 3.3 and 3.4",
        "with weakly interacting prompts the same with max(1, M/2), and with max(R1, 5M/8) R2",
        "upper bound",
    ),
    Statement("N9", PAPER, "reward variance is a proxy of local curvature within an iteration, and not across iterations", PARTS),
    Statement(
        "N9/within",
        PAPER,
        "the correlation of V_i and curvature over the prompts of an iteration is 0.34, give or take 0.1",
        "equality",
    ),
    Statement(
        "N9/across", PAPER, "a prompt's correlation of V_i and curvature over iterations is 0, give or take 0.1", "upper bound"
    ),
    Statement(
        "N9/Hessian",
        DERIVED(32),
        "over the prompts of an iteration V_i and ||Hess J_i|| have a rank correlation of at least 0.9",
        "upper bound",
        whose=OURS,
    ),
    Statement("N10", PAPER, "prompts' representations are nearly orthogonal: |cos| mean 0.088, over 90% below 0.15", PARTS),
    Statement("N10/mean", PAPER, "the mean of |cos| over pairs of representations is 0.088, give or take a tenth", "equality"),
    Statement("N10/share", PAPER, "the share of |cos| >= 0.15 is at most 10%", "upper bound"),
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
    ),
    Statement("N11/drift", PAPER, "from start to end the share of |cos| < 0.1 falls by at least 10 points", "upper bound"),
    Statement(
        "N12", PAPER, "three phases: division accelerates, is stable, and no longer gains once orthogonality is lost", PARTS
    ),
    Statement(
        "N12/I",
        PAPER,
        "while prompts are near-orthogonal and deviations high, division gains: minus the increase of its advantage is below 0",
        "ordering",
    ),
    Statement(
        "N12/II",
        PAPER,
        "near-orthogonal, deviations no longer high: the advantage changes by at most a point of success",
        "upper bound",
    ),
    Statement(
        "N12/III",
        PAPER,
        "orthogonality is lost: at the end the share of |cos| < 0.1 is at most 2/3",
        "upper bound",
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
