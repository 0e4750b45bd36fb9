"""What is said of an error: to clients without the server's paths, in the log with what to do about it.

Invariants: pure; of a path a client hears the last part only, which says what it is.
"""

import re

_PATH = re.compile(r"(?:[^\s:'\"(]*/)+")


def for_clients(problem: object) -> str:
    """Return an error's text without the folders that it names."""
    return _PATH.sub("", str(problem)) or type(problem).__name__


def for_log(error: BaseException, advice: str = "") -> str:
    """Return an error's text, then what can be done: what the caller knows of it, and what the error itself does."""
    hints = [text for text in (advice, getattr(error, "hint", None)) if text]
    return "; ".join([str(error) or type(error).__name__, *hints])
