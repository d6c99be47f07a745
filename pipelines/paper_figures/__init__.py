"""The figures of the papers by name, each from a registered model, from a recorded training or from a search."""
