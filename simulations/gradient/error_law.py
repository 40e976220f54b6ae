"""U3 to U5: the exact error law by enumeration.

The error of the leave-one-out estimator is enumerated for each group size. It is compared with the printed laws, with the exact
ones and with the oracle's error. In the controls a part of the law's last term, 15% of it at G = 2, falls like 1/G and not like
1/G^2.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check, rows
from grpo_theory.theory import leave_one_out_traces, remainder_bound
from simulations.statements import stated

U3, U4, U5 = stated("U3", "U4", "U5")
LAWS = stated("U3/printed", "U4/printed", "U3/corrected", "U4/corrected", "U3/rate", "U5/prompt", "U5/batch")
GROUP_SIZES = (2, 4, 8, 16, 32, 64)
BATCH_SIZE = 4
CASES = [{"problem": name} for name in gt.gallery.names("gradient")]


def enumerated(problem, estimator):
    """Return the exact law of an estimator at each group size."""
    sizes = ({"batch_size": BATCH_SIZE, "group_size": size} for size in GROUP_SIZES)
    return [gt.gradient_law(problem, problem.theta, estimator, **one) for one in sizes]


@check(*LAWS, cases=CASES, broken={"slow": 0.15}, setting="{problem}")
def laws(problem, slow=0.0):
    """Remainders over their bounds, the exact law by prompt and batch, and slopes over G = 8 to 64."""
    found, sizes = gt.gallery.problem(problem), np.array(GROUP_SIZES)
    moments, law = gt.moments(found, found.theta), gt.group_size_law(found, found.theta)
    live, reward_range = moments.score_squared_norm > 0.0, float(np.ptp(found.bandit.values))
    late, large = slow / sizes, sizes >= 8
    loo, oracle = (enumerated(found, name) for name in ("rloo", "oracle"))
    traces = np.array([one.prompt_traces for one in loo]) + late[:, None] * moments.second_order
    prompt = np.array([one.prompt_mse for one in loo]) + late * law.c3
    batch = np.array([one.mse for one in loo]) + late * law.c3 / BATCH_SIZE
    bound = np.array([remainder_bound(moments, size, reward_range) for size in GROUP_SIZES])
    batch_bound = reward_range**2 * (moments.prompt_weights @ moments.score_squared_norm) / (BATCH_SIZE * sizes**2)
    closed = np.array([leave_one_out_traces(moments, size) for size in GROUP_SIZES])

    def slope(excess):
        return log_log_slope(sizes[large], excess[large])[0]

    return {
        "U3/printed": (((traces - moments.oracle_trace / sizes[:, None]) / bound)[:, live], 1.0),
        "U4/printed": ((batch - (law.c1 + law.c2 / sizes) / BATCH_SIZE) / batch_bound, 1.0),
        "U3/corrected": (np.abs(traces / closed - 1.0)[:, live], 0.0),
        "U4/corrected": (np.abs(batch / law.mse(BATCH_SIZE, sizes) - 1.0), 0.0),
        "U3/rate": (slope(prompt - law.c2 / sizes), -2.0),
        "U5/prompt": (slope(prompt / [one.prompt_mse for one in oracle] - 1.0), -1.0),
        "U5/batch": (slope(batch - [one.mse for one in oracle]), -2.0),
    }


@rows(cases=CASES)
def errors(problem):
    """The errors beside the law and its constants."""
    found = gt.gallery.problem(problem)
    law = gt.group_size_law(found, found.theta)
    constants = {name: getattr(law, name) for name in ("c1", "c2", "c3", "optimum", "paper_optimum")} | {"batch_size": BATCH_SIZE}
    for size, error in zip(GROUP_SIZES, enumerated(found, "rloo"), strict=True):
        yield constants | {"group_size": size, "estimate": error.mse, "prediction": law.mse(BATCH_SIZE, size)}
