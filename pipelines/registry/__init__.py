"""Registered models in MLflow and their cards."""
