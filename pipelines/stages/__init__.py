"""The stages of the pipeline, one folder each, the runner that wires them, and the checks before they start."""
