"""Detection of a collapsed space: all embeddings the same, the hinge loss stuck at its plateau."""

_TOLERANCE = 0.02


class CollapseError(RuntimeError):
    """Training has collapsed; going on would waste the run."""


class CollapseDetector:
    """Raise once the hardest-negative hinge loss has stood still on the plateau for too long.

    When all embeddings coincide, each pair violates the margin by exactly the margin in both directions, and the summed
    loss is ``2 * B * margin`` (51.2 for B = 128 and 0.2). Gradients vanish there, so a run rarely leaves it.

    ``patience`` is the number of consecutive steps on the plateau before the run is called collapsed. Hardest negatives
    keep a stuck run one or two hundredths above the plateau.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.steps_on_plateau = 0

    def update(self, loss_per_pair: float, plateau: float) -> None:
        """Check a step's hardest-negative loss a pair; CollapseError after ``patience`` steps on the plateau.

        ``plateau`` is the loss per pair if all similarities are equal.
        """
        on_plateau = abs(loss_per_pair - plateau) <= _TOLERANCE * plateau
        self.steps_on_plateau = self.steps_on_plateau + 1 if on_plateau else 0
        if self.steps_on_plateau >= self.patience:
            raise CollapseError(
                f"the embeddings have collapsed to a point: for {self.patience} steps the loss per pair has stood at "
                f"{loss_per_pair:.4f}, its value when all similarities are equal ({plateau:g}; times B if the "
                "loss is summed). Start with all negatives for longer (loss.all_negatives), lower "
                "training.learning_rate or lengthen training.warmup"
            )
