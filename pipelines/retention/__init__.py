"""Retention: which versions of a model stay, and the removal of what the others have left."""
