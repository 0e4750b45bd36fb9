"""Keep pandas out of the command line's process: pyarrow imports it to recognise pandas values, which takes 0.4 s.

pyarrow looks for it once, at the first value that it is given, and remembers the answer. No command makes a pandas
object. This is for a process that is a command line and nothing else: in a notebook `to_pandas()` is wanted.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def leave_pandas_out() -> None:
    """Let pyarrow, if it is imported, think that there is no pandas; others find it as ever."""
    if "pyarrow" not in sys.modules or "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - it is imported already, or no command needs it

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(1)
    finally:
        sys.meta_path.remove(finder)
