"""Arrow without pandas, for a process that has no use for it.

Arrow asks whether a list that it is given is a pandas object, and imports pandas for that where it is installed: 0.3 s
of processor time and 70 MB, for a question whose answer is no. It asks once.

Invariant: `to_pandas` still works afterwards; Arrow imports pandas then.
"""

import sys
from collections.abc import Sequence


class _Hidden:
    """A finder that says that pandas is not installed."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        """Refuse pandas; leave all other modules to the other finders."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not asked for here", name=name)


def let_arrow_skip_pandas() -> None:
    """Let Arrow find no pandas at its first look; nothing changes where either was imported already."""
    if "pyarrow" in sys.modules and "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        import pyarrow as pa  # noqa: PLC0415 - while pandas is hidden

        pa.array([0])
    finally:
        sys.meta_path.remove(_Hidden)
