"""Hyperparameter searches on Ray Tune: the search space, trials and results."""
