"""Strandline: durable progress over logs.

One promise runs through everything: a cursor never names work that is not durable. Each package keeps it in its own
terms; the table in ``ARCHITECTURE.md`` lists them, and ``docs/guarantees.md`` names the test behind each promise.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.version import __version__

if _TYPE_CHECKING:
    from strandline.fold.followed_fold import FollowedFold, follow

__all__ = ["FollowedFold", "__version__", "follow"]


def __getattr__(name: str) -> object:
    """Import what `strandline` itself offers when it is first asked for, so that importing it stays cheap."""
    if name in ("FollowedFold", "follow"):
        from strandline.fold import followed_fold  # noqa: PLC0415 - that is the point

        return getattr(followed_fold, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
