"""Advantages to the covectors of groups' estimates, in the logits.

At a fixed policy `estimator_covectors` decides how those of each estimator are found, and which go together: by `contrasts`,
`tabulated` or `token_weights`, as `combinations`.  While the policy moves `ratios` weighs each token anew.
"""
