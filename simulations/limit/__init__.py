"""The limit law of the suboptimality gap."""
