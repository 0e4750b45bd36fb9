"""Where a fold is, beside its data: the name of its lock, and that there is one at all."""

from pathlib import Path

from strandline.errors import StorageRefused

LOCK_SUFFIX = ".lock"
COPY_NAME = "fold"
"""The name of a store's copy in the folder that a snapshot writes."""


def existing(path: Path | str) -> Path:
    """Return the path of a fold; `StorageRefused` if nothing is there."""
    path = Path(path)
    if not path.exists():
        raise StorageRefused(
            str(path), "there is no fold", "ENOENT", hint="give the path of a fold that was made before"
        )
    return path
