"""Evaluations of models, alone, as ensembles and against each other. The names are those of the outputs."""

NAME = "evaluate"
# Raised when the same model and data would give other outputs.
VERSION = 7
# Raised when the same model and training split would give another hub correction.
CORRECTION_VERSION = 1
GALLERY, PICTURES = "gallery", "pictures"
