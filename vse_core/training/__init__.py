"""Training: the step, its optimiser and schedule, CUDA graphs, and the state that makes a run resumable."""
