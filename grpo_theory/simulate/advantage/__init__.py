"""Here a response's reward becomes an advantage: by a table, by coefficients, or by a call of the kernel.

`route` chooses between them.  At a fixed policy, `response_sums` sums the advantages of each response, for gradients.  While the
policy moves, `rollout` sums the advantages of each outcome, for training.  Both look up `tables`, use the coefficients of
`affine`, or call the kernel by `kernel_call`.  `rewards` computes what a kernel sees of a policy that moves.
"""
