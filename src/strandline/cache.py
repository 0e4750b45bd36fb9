"""Where caches are kept that can be built again: rules, compiled engines, class-data archives, Spark's home.

Invariants: the folder belongs to this user alone (what is read from it is trusted as code is); nothing in it is needed,
so a reader treats a missing, broken or foreign file as a miss and builds it anew.
"""

import contextlib
import os
import tempfile
from pathlib import Path

_PRIVATE = 0o700


def cache_folder() -> Path:
    """Return the folder of rebuildable caches, made if need be; without a home, under the temp folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    for folder in (home / "strandline", Path(tempfile.gettempdir()) / f"strandline-cache-{os.geteuid()}"):
        if _is_ours(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="strandline-cache-"))


def read_cached(path: Path) -> bytes | None:
    """Return a file of the cache, None if there is none; it counts as recently used."""
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return data


def write_cached(path: Path, data: bytes, files_max: int) -> None:
    """Write a file of the cache atomically, and remove the oldest beside it; what cannot be written is left out."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        file, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(data)
            os.replace(temporary, path)  # noqa: PTH105 - atomic, and the content vouches for itself
        except OSError:
            os.unlink(temporary)  # noqa: PTH108
            raise
        files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        for old in files[:-files_max]:
            old.unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        found = folder.stat()
    except OSError:
        return False
    # A folder that others may write to, such as one planted under /tmp, could hand us code of theirs.
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK)
