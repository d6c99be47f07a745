"""Stage 4, evaluate: the model on the evaluation split."""
