"""litestream, as the development extra installs it."""

import shutil
import sys
from pathlib import Path


def litestream() -> str:
    """Return the path of the program."""
    found = shutil.which("litestream", path=str(Path(sys.executable).parent))
    assert found is not None
    return found
