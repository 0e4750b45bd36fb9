"""Imports at first use: of a package's public names, and of drivers that most commands never need.

    __getattr__ = _lazy_names(__name__, {"engine": ("Engine",)})    in an `__init__.py`
    psycopg = deferred("psycopg", "postgres")                       in a module

Beside each stands the plain import for the type checker, under `TYPE_CHECKING`.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module

from strandline.extras import Extra, needs


def lazy_names(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package; `homes` has the public names of each of its modules."""
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}

    def getter(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return getter


class deferred:  # noqa: N801 - it stands for a module, and reads like one
    """A module that is imported when something is first taken from it; of an `extra`, if it is not always there."""

    def __init__(self, name: str, extra: Extra | None = None) -> None:
        self._name = name
        self._extra = extra

    def __getattr__(self, name: str) -> object:
        with nullcontext() if self._extra is None else needs(self._extra):
            value: object = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> None:  # noqa: ARG004
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def leave_pandas_out() -> None:
    """Let pyarrow, if it is imported, think that there is no pandas; others find it as ever.

    pyarrow looks for pandas once, at the first value that it is given, to recognise values of it; importing it takes
    0.4 s. This is for a process that is a command or a worker and nothing else: in a notebook `to_pandas()` is wanted.
    """
    if "pyarrow" not in sys.modules or "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - it is imported already, or nothing here needs it

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(1)
    finally:
        sys.meta_path.remove(finder)
