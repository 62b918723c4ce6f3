"""Errors that a user can mend."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Unusable input. The message is one line: what, where, what to do. The command line exits with code 2.

    Parameters
    ----------
    message : str
        What in it does not print is escaped: names in files and of files may hold line ends and terminal controls.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(sign if sign.isprintable() else _escaped(sign) for sign in message))


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
