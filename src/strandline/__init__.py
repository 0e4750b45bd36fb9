"""Strandline: durable progress over logs.

One promise runs through everything: a cursor never names work that is not durable. Each package keeps it in its own
terms; the table in ``ARCHITECTURE.md`` lists them, and ``docs/guarantees.md`` names the test behind each promise.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names
from strandline.version import __version__

if _TYPE_CHECKING:
    from strandline.artifacts.followed import follow
    from strandline.fold.followed_fold import FollowedFold

__all__ = ["FollowedFold", "__version__", "follow"]

# Import what `strandline` itself offers when it is first asked for, so that importing it stays cheap.
__getattr__ = _lazy_names(
    __name__,
    {
        "artifacts.followed": ("follow",),
        "fold.followed_fold": ("FollowedFold",),
    },
)
