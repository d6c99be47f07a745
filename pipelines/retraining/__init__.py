"""Scheduled retraining: the data that is new, the challenger, its promotion, and the journal."""
