"""The statements of "TIC-GRPO", typeset, and what stands beside them."""

ENDS = {
    "dropped": "without ratio and clip success ends at most a point below that with token ratios clipped by sign",
    "clip": "with token ratios clipped by sign success ends at most a point below that without ratio and clip",
}
STEPS = {"trained": "at", "twice the step": "at twice", "four times the step": "at four times"}
FORMS = {
    "T1": r"$$\nabla_{\mathrm{GRPO}}(\theta_k)=\frac1{\bar T}\hat g(\theta_0)+X_1+X_2+X_3+X_4,$$ $$"
    r"X_3=+\sum\zeta\,\xi\,\frac1{\bar T}\sum_t1_{B^c}\nabla\log P_0\,(r-\mu_0)$$",
    "T1/printed": r"As printed, with $X_3$ added.",
    "T1/corrected": r"The part that the clip leaves out is subtracted: $$X_3=-\sum\zeta\,\xi\,\frac1{\bar T}"
    r"\sum_t1_{B^c}\nabla\log "
    r"P_0\,(r-\mu_0)$$",
    "T2": r"$$\nabla_{\mathrm{TIC}}(\theta_k)=\frac1T\tilde g(\theta_k)+Y_1+Y_2,$$ $$"
    r"Y_2=+\frac1T\sum\zeta\,\xi\,1_{D^c}\,\rho\,\nabla\log P_k\,(r-\mu_c)$$",
    "T2/printed": r"As printed, with $Y_2$ added and $r-\mu_c$.",
    "T2/sign": r"The same with the sign of $Y_2$ turned, and nothing else.",
    "T2/corrected": r"The sign turns, and the reward is compared with the current policy's mean: "
    r"$$Y_2=-\frac1T\sum\zeta\,\xi\,1_{D^c}\,\rho\,\nabla\log P_k\,(r-\mu_k)$$",
    "T3": r"$$E\|\nabla\log P(s_T)\|^2=E\sum_t\|\nabla\log P(s_t\mid s_{t-1})\|^2$$",
    "T4": r"$$E_0\left\|\min(\rho,1+\varepsilon)\,\nabla\log P_k\right\|^2\le(1+\varepsilon)\,E_k\|\nabla\log P_k\|^2$$",
    "T4/clipped": r"Dropped above $1+\varepsilon$, the trajectory ratio has a second moment of at most $1+\varepsilon$ at "
    r"every horizon.",
    "T4/curse": r"$$E_0\rho^2\le\exp\left(TL\|\theta_k-\theta_0\|^2\right)$$",
    "T5": r"If every token's score is Lipschitz with constant $L$ and $\left|r\right|\le R$, $$\|\nabla J\|\le "
    r"R\sqrt{2LT\log\left|V\right|},\qquad \|\nabla^2J\|\le TRL\,(2\log\left|V\right|+1)$$",
    "T5/gradient": r"$\|\nabla J\|\le R\sqrt{2LT\log\left|V\right|}$.",
    "T5/gradient, sharp": r"Without the logarithm, and attained at $T=1$: $$\|\nabla J\|\le R\sqrt{LT}$$",
    "T5/smoothness": r"$\|\nabla^2J\|\le TRL\,(2\log\left|V\right|+1)$.",
    "T5/smoothness, sharp": r"$$\|\nabla^2J\|\le2TRL$$",
    "T6": r"GRPO's update estimates the gradient at the old policy, $\nabla J(\theta_0)$, and not that at the current one, "
    r"$\nabla J(\theta_k)$.",
    "T6/printed": r"The mean update with token ratios is nearer to $\nabla J(\theta_0)$ than to $\nabla J(\theta_k)$.",
    "T6/most": r"For most random problems the mean update with token ratios is nearer to $\nabla J(\theta_0)$ than to $\nabla "
    r"J(\theta_k)$.",
    "T6/corrected": r"The mean update with token ratios (leave-one-out, no clip) is the gradient at $\theta_k$ of the "
    r"objective whose prefixes and continuations are drawn from the old policy and whose token is drawn from the current one.",
    "T6/no ratio": r"The mean update without any ratio is nearer to $\nabla J(\theta_0)$ than to $\nabla J(\theta_k)$, "
    "for most random problems.",
    "T6/clipped": r"The mean update with token ratios clipped by sign at $0.8$ and $1.2$ still climbs: its cosine with $\nabla "
    r"J(\theta_k)$ is above $0$, for most random problems.",
    "T7": r"TIC estimates the gradient at the current policy: $$T\cdot E[\text{update}]=\nabla J(\theta_k)$$",
    "T7/printed": r"With the own sample in the mean and the clip at $1.2$, $T$ times the mean update is $\nabla J(\theta_k)$.",
    "T7/leave-one-out": r"With the trajectory ratio, leave-one-out and no clip, the mean update is $\nabla J(\theta_k)$.",
    "T7/own mean": r"Without its clip, $T$ times TIC's mean update is $(1-1/G)\,\nabla J(\theta_k)$.",
    "T7/corrected": r"$$T\cdot E[\text{update}]=\left(1-\frac1G\right)E_k\left[1_D\,\nabla\log P_k\,(r-\mu_0)\right]$$",
    "T7/direction": r"TIC's mean update is nearer in direction to $\nabla J(\theta_k)$ than the mean update without any ratio, "
    "for most random problems.",
    "T8": r"Dropping importance sampling altogether costs nothing noticeable.",
    "T8/token": r"Against token ratios: the cosine of mean update and $\nabla J(\theta_k)$ falls by at most $0.05$, "
    "for most random problems.",
    "T8/gradient": r"Against an unbiased update: the cosine of mean update and $\nabla J(\theta_k)$ is at least $0.95$, "
    "for most random problems.",
    "T9": r"GRPO's average squared gradient is at most $$O\!\left(\frac{T^{7/2}\log\left|V\right|}{\sqrt "
    r"N}\,\mathrm{avg}(M_n^2\sigma_n^2)\right)+O\!\left(\frac{T^2\log\left|V\right|}{\left|G\right|}\right)$$",
    "T9/limit": r"As $N$ and $\left|G\right|$ grow the right side tends to $0$, and so does the left: the squared gradient "
    r"where runs end is $0$.",
    "T9/G": r"With equal lengths, so $\sigma_n=0$, the right side falls as $1/\left|G\right|$ at any $N$, and so does the "
    r"left: its slope is at most $-0.9$.",
    "T9/corrected": r"Divided by their own lengths, long runs end within $1\%$ of the squared gradient at the zero of the mean "
    r"update, which is not $0$.",
    "T10": r"With the upper-only clip and division by $T$ the average squared gradient is at most "
    r"$$O\!\left(\frac{T^{5/2}\log\left|V\right|}{\sqrt N}\right)+O\!\left(\frac{T^2\log\left|V\right|}{\left|G\right|}\right)$$",
    "T10/limit": r"As $N$ and $\left|G\right|$ grow the right side tends to $0$, and so does the left: the squared gradient "
    r"where runs end is $0$.",
    "T10/N": r"On policy, $\left|G\right|\to\infty$: the left side falls as $N^{-1/2}$, its slope is at most $-0.4$.",
    "T11": r"TIC's average squared gradient is at most $$O\!\left(\frac{T\log\left|V\right|}{\sqrt "
    r"N}\right)+O\!\left(\frac{T\log\left|V\right|}{\left|G\right|}\right),$$ the last term an intrinsic bias of the group "
    r"mean.",
    "T11/N": r"On policy the left side falls as $N^{-1/2}$ already at $\left|G\right|=2$: there is no floor.",
    "T11/T": r"On policy, $\left|G\right|\to\infty$: the left side grows at most as $T$, its slope is at most $1.1$.",
    "T12": r"$$E\|X_2\|^2\le\frac{2L}{\left|G\right|}\log\left|V\right|,\qquad "
    r"E\|Y_1\|^2\le\frac{2(1+\varepsilon)L\log\left|V\right|}{T\,\left|G\right|}$$",
    "T12/X2": r"The bound of $E\|X_2\|^2$, rewards up to $R=10$.",
    "T12/X2, R=1": r"The bound of $E\|X_2\|^2$, rewards up to $1$.",
    "T12/X2/corrected": r"$$E\|X_2\|^2\le R^2\,\frac{G+3}{G^2}\,2L\left(\log\left|V\right|+1-\frac1T\right)$$"
    r" Where all lengths are equal, without $1-\tfrac1T$.",
    "T12/Y1": r"The bound of $E\|Y_1\|^2$, rewards up to $R=10$.",
    "T12/Y1, R=1": r"The bound of $E\|Y_1\|^2$, rewards up to $1$.",
    "T12/Y1/corrected": r"$$E\|Y_1\|^2\le\left[\left(\left|\mu_k-\mu_0\right|+\frac{2R}G\right)^2+\frac{R^2}G\right]"
    r"\frac{2(1+\varepsilon)L\log\left|V\right|}{T}$$"
    r" It does not fall with $G$ where the clip bites.",
    "T13": r"On the simplex of $n$ points, $$\sum_ix_i\log^2x_i\le\log^2 n\ \ (n\ge8),\qquad\le28/e^2\ \ (n\le7)$$",
    "T14": r"TIC reaches a given level sooner than GRPO and GSPO at the same budget.",
    "T15": r"Dividing by the response's own length leaves the optimum where it is.",
    "T15/optimum": r"Divided by the own length the mean update is $0$ at the optimum.",
    "T3/language model": r"The same on SmolLM2, after $k$ updates on one rollout.",
    "T6/language model": r"SmolLM2, after $k$ updates on one rollout: the mean update with token ratios is nearer to $\nabla "
    r"J(\theta_0)$ than to $\nabla J(\theta_k)$.",
    "T7/language model": r"SmolLM2, after $k$ updates on one rollout: with the trajectory ratio, leave-one-out and no clip, "
    r"the mean update is $\nabla J(\theta_k)$.",
    "T7/language model, TIC": r"SmolLM2, after $k$ updates on one rollout: $T$ times TIC's mean update is $\nabla J(\theta_k)$.",
    "T7/language model, error": r"SmolLM2, $B=32$, $G=8$, no clip: the squared error about $\nabla J(\theta_k)$ with the "
    r"trajectory ratio is below that with token ratios.",
    "T8/language model": r"SmolLM2, after $k$ updates on one rollout: the cosine of the mean update without any ratio and "
    r"$\nabla J(\theta_k)$ is at least $0.95$.",
    "T6/trained": r"Along minibatch training: the mean update with token ratios clipped by sign at $0.8$ and $1.2$ points away "
    r"from $\nabla J(\theta_k)$ in at most $5\%$ of the updates off policy.",
    "T6/trained, little clipped": r"The same, of the updates off policy in which at most $2\%$ of the tokens are clipped.",
    "T6/unclipped, trained": r"Along the same runs: the mean update with token ratios that are not clipped points away from "
    r"$\nabla J(\theta_k)$ in at most $5\%$ of the updates off policy.",
    "T7/trained": r"Along minibatch training: the mean update with the trajectory ratio, dropped above $1.2$, points away from "
    r"$\nabla J(\theta_k)$ in at most $5\%$ of the updates off policy.",
    "T8/trained": r"Along minibatch training: the mean update without any ratio points away from $\nabla J(\theta_k)$ in at most "
    r"$5\%$ of the updates off policy.",
    "T8/nearer, trained": r"In runs with the clip the mean update without any ratio is nearer in direction to $\nabla "
    r"J(\theta_k)$ than the clipped one.",
    "T8/dropped, several passes": f"Several passes over the responses, at its best step each: {ENDS['dropped']}.",
    "T8/dropped, several passes at the step of the clip": f"Several passes over the responses, both at the clip's best step: "
    f"{ENDS['dropped']}.",
    **{
        f"T8/{arm}, {ending}": rf"{at.capitalize()} its best constant step each: {words}."
        for arm, words in ENDS.items()
        for ending, at in STEPS.items()
    },
}
