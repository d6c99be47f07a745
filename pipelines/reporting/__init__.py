"""The report of a pipeline run: one HTML page, put together from what its stages have left behind."""
