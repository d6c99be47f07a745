"""The report of a pipeline run: one HTML page of the outputs of its stages."""
