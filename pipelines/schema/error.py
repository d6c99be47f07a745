"""The error of a configuration."""


class ConfigError(Exception):
    """A configuration that cannot be used: one message with the key, the value met, and what to change."""
