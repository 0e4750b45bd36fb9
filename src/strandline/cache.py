"""Where caches are kept that can be built again: compiled engines, class-data archives, Spark's home.

Invariants: the folder belongs to this user alone (what is read from it is trusted as code is); nothing in it is needed,
so a reader treats a missing, broken or foreign file as a miss and builds it anew.
"""

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


def _is_ours(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        found = folder.stat()
    except OSError:
        return False
    # A folder that others may write to, such as one planted under /tmp, could hand us code of theirs.
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK)
