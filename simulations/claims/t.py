"""The statements of "TIC-GRPO", and what the package derives beside them."""

from grpo_theory.evidence import Statement
from simulations.claims.u import CORRECTION, DERIVED, OURS, PARTS

PAPER = "arXiv 2508.02833"
RATIOS, BOUNDS, LENGTHS = DERIVED(25), DERIVED(26), DERIVED(27)
LINEAR = "logits linear in theta, every token's score Lipschitz with constant L"
MOST = "it fails for at most half of the problems"
TREES = "random problems on trees: two tokens to choose from, six features shared by all prefixes, rewards 0 and 1"
LIPSCHITZ = "every token's score is Lipschitz with constant L"
TRAINED = (
    "minibatch training on trees of two tokens, responses used once; the arm's best constant step, chosen on other seeds; "
    "updates that are not the first of their rollout"
)
PASSES = "training on trees of two tokens with several passes over a rollout; constant steps, chosen on other seeds"
RUNS = "minibatch training on trees of two tokens, responses used once; each arm's best constant step, chosen on other seeds"


def _while_training(part: str, text: str, kind: str = "upper bound", where: str = TRAINED) -> Statement:
    return Statement(part, f"question beside {PAPER}", text, kind, where, whose="ours")


POINTS_AWAY = "points away from grad J(theta_k) in at most 5% of the updates"
NO_RATIO_LAST = "without ratio and clip success ends at most a point below that with token ratios clipped by sign"
CLIP_LAST = "with token ratios clipped by sign success ends at most a point below that without ratio and clip"
WHILE_TRAINING = (
    _while_training("T6/trained", f"the mean update with token ratios clipped by sign at 0.8 and 1.2 {POINTS_AWAY}"),
    _while_training(
        "T6/trained, little clipped",
        f"the mean update with token ratios clipped by sign {POINTS_AWAY} of which at most 2% of the tokens are clipped",
    ),
    _while_training(
        "T6/unclipped, trained", f"in runs with the clip the mean update with token ratios that are not clipped {POINTS_AWAY}"
    ),
    _while_training("T7/trained", f"the mean update with the trajectory ratio, dropped above 1.2, {POINTS_AWAY}"),
    _while_training("T8/trained", f"the mean update without any ratio {POINTS_AWAY}"),
    _while_training(
        "T8/nearer, trained",
        "in runs with the clip the mean update without any ratio is nearer in direction to grad J(theta_k) than the clipped one",
        "ordering",
    ),
    _while_training("T8/dropped, trained", f"at its best step each: {NO_RATIO_LAST}", where=RUNS),
    _while_training("T8/dropped, twice the step", f"at twice its best step each: {NO_RATIO_LAST}", where=RUNS),
    _while_training("T8/dropped, four times the step", f"at four times its best step each: {NO_RATIO_LAST}", where=RUNS),
    _while_training(
        "T8/dropped, several passes", f"several passes over the responses, at its best step each: {NO_RATIO_LAST}", where=PASSES
    ),
    _while_training(
        "T8/dropped, several passes at the step of the clip",
        f"several passes over the responses, both at the best step of the clip: {NO_RATIO_LAST}",
        where=PASSES,
    ),
    _while_training("T8/clip, trained", f"at its best step each: {CLIP_LAST}", where=RUNS),
    _while_training("T8/clip, twice the step", f"at twice its best step each: {CLIP_LAST}", where=RUNS),
    _while_training("T8/clip, four times the step", f"at four times its best step each: {CLIP_LAST}", where=RUNS),
)


def _on_smollm2(part: str, text: str, kind: str) -> Statement:
    return Statement(part, f"question beside {PAPER}", f"SmolLM2: {text}", kind, whose="ours")


LANGUAGE_MODEL = (
    _on_smollm2(
        "T3/language model",
        "E||grad log P(s_T)||^2 = E sum_t ||grad log P(s_t|s_{t-1})||^2, after k updates on one rollout",
        "identity",
    ),
    _on_smollm2(
        "T6/language model",
        "after k updates on one rollout the mean update with token ratios is nearer to grad J(theta_0) than to grad J(theta_k)",
        "ordering",
    ),
    _on_smollm2(
        "T7/language model",
        "after k updates on one rollout the mean update with the trajectory ratio, leave-one-out, no clip, = grad J(theta_k)",
        "identity",
    ),
    _on_smollm2(
        "T7/language model, TIC",
        "after k updates on one rollout T times TIC's mean update (own sample in the mean, clipped at 1.2) = grad J(theta_k)",
        "identity",
    ),
    _on_smollm2(
        "T7/language model, error",
        "B = 32, G = 8, no clip: the trajectory ratio's squared error about grad J(theta_k) is below that of token ratios",
        "ordering",
    ),
    _on_smollm2(
        "T8/language model",
        "after k updates on one rollout the cosine of the mean update without any ratio and grad J(theta_k) is at least 0.95",
        "upper bound",
    ),
    _on_smollm2(
        "T15/language model",
        "KL penalty on leaving the model: at the maximiser the update divided by own length is at most 1/20 of that at the model",
        "upper bound",
    ),
    _on_smollm2(
        "T15/language model, direction",
        "at the model itself, the cosine of the mean update divided by the own length and grad J is at least 0.95",
        "upper bound",
    ),
)
STATEMENTS = (
    Statement("T1", f"{PAPER}, decomposition", "GRPO's gradient at theta_k = (1/TT) ghat(theta_0) + X1 + X2 + X3 + X4", PARTS),
    Statement(
        "T1/printed",
        f"{PAPER}, decomposition",
        "as printed, with X3 = + sum zeta xi (1/TT) sum_t 1_{B^c} grad log P_0 (r - mu_0)",
        "identity",
    ),
    Statement(
        "T1/corrected",
        RATIOS,
        "X3 = - sum zeta xi (1/TT) sum_t 1_{B^c} grad log P_0 (r - mu_0), for any weights zeta, xi and any mu_c",
        "identity",
        whose=CORRECTION,
    ),
    Statement("T2", f"{PAPER}, decomposition", "TIC's gradient = (1/T) gtilde(theta_k) + Y1 + Y2", PARTS),
    Statement(
        "T2/printed",
        f"{PAPER}, decomposition",
        "as printed, with Y2 = + (1/T) sum zeta xi 1_{D^c} rho grad log P_k (r - mu_c)",
        "identity",
    ),
    Statement(
        "T2/sign", f"question beside {PAPER}, decomposition", "the same with the sign of Y2 turned", "identity", whose=OURS
    ),
    Statement(
        "T2/corrected",
        RATIOS,
        "Y2 = - (1/T) sum zeta xi 1_{D^c} rho grad log P_k (r - mu_k), for any weights zeta, xi and any mu_c",
        "identity",
        whose=CORRECTION,
    ),
    Statement("T3", f"{PAPER}, Property 4.1", "E||grad log P(s_T)||^2 = E sum_t ||grad log P(s_t|s_{t-1})||^2", "identity"),
    Statement("T4", PAPER, "E_0||min(rho,1+e) grad log P_k||^2 <= (1+e) E_k||grad log P_k||^2: left over right", "upper bound"),
    Statement(
        "T4/clipped",
        BOUNDS,
        "the second moment of the trajectory ratio, dropped above 1+e, is at most 1+e at every horizon",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "T4/curse",
        BOUNDS,
        "E_0 rho^2 <= exp(T L ||theta_k - theta_0||^2): log E_0 rho^2 over the exponent is at most 1",
        "upper bound",
        LINEAR,
        whose=OURS,
    ),
    Statement("T5", PAPER, "||grad J|| <= R sqrt(2 L T log|V|), and J is T R L (2 log|V| + 1)-smooth", PARTS, LIPSCHITZ),
    Statement("T5/gradient", PAPER, "||grad J|| over R sqrt(2 L T log|V|) is at most 1", "upper bound", LIPSCHITZ),
    Statement(
        "T5/gradient, sharp",
        BOUNDS,
        "||grad J|| <= R sqrt(L T): no log|V|, attained at T = 1",
        "upper bound",
        LIPSCHITZ,
        whose=OURS,
    ),
    Statement("T5/smoothness", PAPER, "||Hess J|| over T R L (2 log|V| + 1) is at most 1", "upper bound", LIPSCHITZ),
    Statement(
        "T5/smoothness, sharp", BOUNDS, "||Hess J|| <= 2 T R L: no log|V|, not attained", "upper bound", LIPSCHITZ, whose=OURS
    ),
    Statement("T6", PAPER, "GRPO's update estimates the gradient at the old policy, not at the current one", PARTS),
    Statement(
        "T6/printed", PAPER, "the mean update with token ratios is nearer to grad J(theta_0) than to grad J(theta_k)", "ordering"
    ),
    Statement(
        "T6/most",
        f"question beside {PAPER}",
        f"the mean update with token ratios is nearer to grad J(theta_0) than to grad J(theta_k); {MOST}",
        "upper bound",
        TREES,
        whose=OURS,
    ),
    Statement(
        "T6/corrected",
        RATIOS,
        "mean update with token ratios, leave-one-out, no clip = gradient at theta_k of J with old prefixes, current token, old "
        "continuations",
        "identity",
        whose=CORRECTION,
    ),
    Statement(
        "T6/no ratio",
        f"question beside {PAPER}",
        f"the mean update without any ratio is nearer to grad J(theta_0) than to grad J(theta_k); {MOST}",
        "upper bound",
        TREES,
        whose=OURS,
    ),
    Statement(
        "T6/clipped",
        f"question beside {PAPER}",
        f"the mean update with token ratios clipped by sign at 0.8 and 1.2 still climbs; {MOST}",
        "upper bound",
        f"{TREES} (200 where it is said); the policy has moved by one step, farther along the gradient than the clip lets it",
        whose=OURS,
    ),
    Statement("T7", PAPER, "TIC estimates the gradient at the current policy", PARTS),
    Statement(
        "T7/printed", PAPER, "T times TIC's mean update (own sample in the mean, clipped at 1.2) = grad J(theta_k)", "identity"
    ),
    Statement(
        "T7/leave-one-out",
        f"question beside {PAPER}",
        "the mean update with the trajectory ratio, leave-one-out, no clip, = grad J(theta_k)",
        "identity",
        whose=OURS,
    ),
    Statement(
        "T7/own mean",
        f"question beside {PAPER}",
        "T times TIC's mean update without its clip = (1 - 1/G) grad J(theta_k)",
        "identity",
        whose=OURS,
    ),
    Statement(
        "T7/corrected",
        RATIOS,
        "T times TIC's mean update = (1 - 1/G) E_k[1_D grad log P_k (r - mu_0)]",
        "identity",
        whose=CORRECTION,
    ),
    Statement(
        "T7/direction",
        f"question beside {PAPER}",
        f"TIC's mean update is nearer in direction to grad J(theta_k) than the mean update without any ratio; {MOST}",
        "upper bound",
        TREES,
        whose=OURS,
    ),
    Statement("T8", PAPER, "dropping importance sampling altogether costs nothing noticeable", PARTS),
    Statement(
        "T8/token",
        f"question beside {PAPER}",
        f"against token ratios: the cosine of mean update and grad J(theta_k) falls by at most 0.05; {MOST}",
        "upper bound",
        TREES,
        whose=OURS,
    ),
    Statement(
        "T8/gradient",
        f"question beside {PAPER}",
        f"against an unbiased update: the cosine of mean update and grad J(theta_k) is at least 0.95; {MOST}",
        "upper bound",
        TREES,
        whose=OURS,
    ),
    Statement(
        "T8/training",
        PAPER,
        "without ratio and clip GRPO needs at most 5% more updates to a level, each at its best step",
        "upper bound",
        measured=True,
    ),
    Statement(
        "T8/one token",
        DERIVED(28),
        "one token, advantages that add up to 0: m updates without ratio on a rollout are one of m times the step on all of it",
        "identity",
        whose="ours",
    ),
    Statement(
        "T9",
        f"{PAPER}, Theorem 4.1",
        "GRPO: average squared gradient <= O(T^{7/2} log|V|/sqrt N avg M_n^2 sigma_n^2) + O(T^2 log|V|/|G|)",
        PARTS,
    ),
    Statement(
        "T9/limit",
        f"{PAPER}, Theorem 4.1",
        "N, |G| -> inf: the right side tends to 0, and so does the left: the squared gradient where runs end is 0",
        "identity",
    ),
    Statement(
        "T9/G",
        f"{PAPER}, Theorem 4.1",
        "equal lengths, so sigma_n = 0: the right side falls as 1/|G| at any N, and so does the left: its slope is at most -0.9",
        "upper bound",
    ),
    Statement(
        "T9/corrected",
        LENGTHS,
        "own length, |G| -> inf: long runs end within 1% of the squared gradient at the zero of the mean update, which is not 0",
        "upper bound",
        whose=CORRECTION,
    ),
    Statement(
        "T10",
        f"{PAPER}, Theorem 4.2",
        "upper-only clip and 1/T: average squared gradient <= O(T^{5/2} log|V|/sqrt N) + O(T^2 log|V|/|G|)",
        PARTS,
    ),
    Statement(
        "T10/limit",
        f"{PAPER}, Theorem 4.2",
        "N, |G| -> inf: the right side tends to 0, and so does the left: the squared gradient where runs end is 0",
        "identity",
    ),
    Statement(
        "T10/N",
        f"{PAPER}, Theorem 4.2",
        "on policy, |G| -> inf: the left side falls as N^-1/2: slope at most -0.4",
        "upper bound",
    ),
    Statement(
        "T11",
        f"{PAPER}, Theorem 4.3",
        "TIC: average squared gradient <= O(T log|V|/sqrt N) + O(T log|V|/|G|), the last an intrinsic bias of the group mean",
        PARTS,
    ),
    Statement(
        "T11/N", LENGTHS, "on policy, |G| = 2: the left side falls as N^-1/2: slope at most -0.4", "upper bound", whose=CORRECTION
    ),
    Statement(
        "T11/T",
        f"{PAPER}, Theorem 4.3",
        "on policy, |G| -> inf: the left side grows at most as T: slope at most 1.1",
        "upper bound",
    ),
    Statement(
        "T11/floor",
        f"{PAPER}, Theorem 4.3",
        "the group mean's bias leaves a floor: at |G| = 2 the left side levels off in N: slope 0",
        "rate",
    ),
    Statement("T12", PAPER, "E||X2||^2 <= (2L/|G|) log|V| and E||Y1||^2 <= 2(1+e_hi) L log|V|/(T|G|)", PARTS, LIPSCHITZ),
    Statement("T12/X2", PAPER, "E||X2||^2 over (2L/G) log|V| is at most 1, rewards up to R = 10", "upper bound", LIPSCHITZ),
    Statement("T12/X2, R=1", PAPER, "E||X2||^2 over (2L/G) log|V| is at most 1, rewards up to 1", "upper bound", LIPSCHITZ),
    Statement(
        "T12/X2/corrected",
        BOUNDS,
        "E||X2||^2 <= R^2 ((G+3)/G^2) 2L (log|V| + 1 - 1/T), without 1 - 1/T where all lengths are equal",
        "upper bound",
        LIPSCHITZ,
        whose=CORRECTION,
    ),
    Statement(
        "T12/Y1", PAPER, "E||Y1||^2 over 2(1+e) L log|V|/(TG) is at most 1, rewards up to R = 10", "upper bound", LIPSCHITZ
    ),
    Statement(
        "T12/Y1, R=1", PAPER, "E||Y1||^2 over 2(1+e) L log|V|/(TG) is at most 1, rewards up to 1", "upper bound", LIPSCHITZ
    ),
    Statement(
        "T12/Y1/corrected",
        BOUNDS,
        "E||Y1||^2 <= [(|mu_k - mu_0| + 2R/G)^2 + R^2/G] 2(1+e) L log|V|/T: it does not fall with G where the clip bites",
        "upper bound",
        LIPSCHITZ,
        whose=CORRECTION,
    ),
    Statement(
        "T13",
        PAPER,
        "sum x_i log^2 x_i on the simplex of n points over log^2 n (n >= 8) or 28/e^2 (n <= 7) is at most 1",
        "upper bound",
    ),
    Statement("T14", PAPER, "TIC reaches a given level sooner than GRPO and GSPO at the same budget", PARTS),
    Statement(
        "T14/against GRPO",
        PAPER,
        "fewer updates to a level than GRPO as published, each at its best step size",
        "ordering",
        measured=True,
    ),
    Statement(
        "T14/against GSPO",
        PAPER,
        "fewer updates to a level than GSPO as published, each at its best step size",
        "ordering",
        measured=True,
    ),
    Statement(
        "T14/against GSPO, wide clip",
        f"question beside {PAPER}",
        "fewer updates to a level than GSPO with a clip of 0.2, each at its best step size",
        "ordering",
        whose="ours",
    ),
    Statement(
        "T14/ratio",
        f"{PAPER}, ablation",
        "the trajectory ratio in the place of the token ratio, nothing else changed, takes fewer updates",
        "ordering",
        measured=True,
    ),
    Statement(
        "T14/clip",
        f"{PAPER}, ablation",
        "the upper-only clip in the place of the clip by sign, nothing else changed, takes fewer updates",
        "ordering",
        measured=True,
    ),
    Statement("T14/both", f"{PAPER}, ablation", "both together take fewer updates than either alone", "ordering", measured=True),
    Statement(
        "T14/against no clip",
        f"question beside {PAPER}",
        "fewer updates to a level than the trajectory ratio without a clip, which is unbiased but for the own sample",
        "ordering",
        whose="ours",
    ),
    Statement(
        "T14/against no ratio",
        f"question beside {PAPER}",
        "fewer updates to a level than the same estimator without ratio and clip, each at its best step size",
        "ordering",
        whose="ours",
    ),
    Statement(
        "T15",
        f"{PAPER}, not claimed, but practised",
        "dividing by the response's own length leaves the optimum where it is",
        PARTS,
    ),
    Statement(
        "T15/optimum",
        f"question beside {PAPER}",
        "dividing by the response's own length leaves the optimum where it is: the mean update is 0 there",
        "identity",
        whose=OURS,
    ),
    Statement(
        "T15/cost",
        f"question beside {PAPER}",
        "where it moves, what is learned loses at most a twentieth of what there was to gain",
        "upper bound",
        whose=OURS,
    ),
    *LANGUAGE_MODEL,
    *WHILE_TRAINING,
)
