"""Stage 5, index: the gallery of the evaluated model."""
