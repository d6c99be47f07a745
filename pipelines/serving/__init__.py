"""The search service: its application, limits and page; and the registered model that MLflow runs."""
