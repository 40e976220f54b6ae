"""Random words to prompts and to how often each response came with each reward.

At a fixed policy `counting` counts outcomes from few bits of an `outcome_law`, and `order` finds them in the order drawn.  While
the policy moves `policy_draw` makes probabilities of logits, and counts.  `responses` draws response by response, for pilots.
"""
