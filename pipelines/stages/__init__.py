"""The stages of the pipeline, one module each, the runner that wires them, and the checks before they start."""
