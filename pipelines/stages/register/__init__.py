"""Stage 6, register: the model in MLflow."""
