"""Errors that a user can mend."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Unusable input. The message is one line: what, where, what to do. The command line exits with code 2."""
