"""An advice from rollouts, as it is shown: one screen, what it rests on, JSON and a page; and the commands of the wing."""
