"""The error of a configuration."""

from preprocessing.storage.redaction import RedactedError


class ConfigError(RedactedError):
    """A configuration that cannot be used: one message with the key, the value met, and what to change."""
