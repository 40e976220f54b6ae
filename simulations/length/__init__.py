"""Responses of up to 4,096 tokens: what of one-step advice survives them."""
