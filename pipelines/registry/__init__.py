"""Registered models in MLflow."""
