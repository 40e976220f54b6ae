"""Here a response's reward becomes an advantage: by a table, by coefficients, or by a call of the kernel.

`route` chooses between them.  At a fixed policy `response_sums` sums the advantages of each response, for gradients; while the
policy moves `rollout` sums those of each outcome, for training.  Both look up `tables`, use the coefficients of `affine`, or call
the kernel by `kernel_call`; what a kernel sees of a policy that moves is found in `rewards`.
"""
