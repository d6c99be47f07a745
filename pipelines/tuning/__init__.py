"""Hyperparameter searches on Ray Tune: the search space, trials, results and plots."""
