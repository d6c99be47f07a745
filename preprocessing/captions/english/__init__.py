"""The English pipeline that ships with the package: how it is trained, and the trained model."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "model"
"""The folder of the spaCy pipeline that ships with the package."""
