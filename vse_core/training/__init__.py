"""Training: the step, its optimiser and schedule, the collectives, and the state that makes a run resumable."""
