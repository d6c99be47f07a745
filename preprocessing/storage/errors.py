"""Errors of a storage and of its locks."""

from preprocessing.storage.redaction import RedactedError


class StorageError(RedactedError):
    """A storage does not do what it is asked for; the message says what, where, and how to fix it."""


class UnconditionalError(StorageError):
    """The server has no conditional writes."""


class BusyError(Exception):
    """Another process holds a lock; the message says which one."""
