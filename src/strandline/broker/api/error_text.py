"""Texts of errors: for clients without the server's paths, for the log with hints.

Invariants: pure; a client sees only the last part of a path.
"""

import re

_PATH = re.compile(r"(?:[^\s:'\"(]*/)+")


def for_clients(problem: object) -> str:
    """Return an error's text without folders of paths."""
    return _PATH.sub("", str(problem)) or type(problem).__name__


def for_log(error: BaseException, advice: str = "") -> str:
    """Return an error's text with the caller's advice and the error's own hint."""
    hints = [text for text in (advice, getattr(error, "hint", None)) if text]
    return "; ".join([str(error) or type(error).__name__, *hints])
