"""Training on Ray Train: the loop of one process, its group of workers, checkpoints and schedules."""
