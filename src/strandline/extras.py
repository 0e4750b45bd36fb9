"""The extras of the installation, and the one error for a package of an extra that is not installed.

A module that needs a package of an extra imports it after its other imports, so that the error names the extra:

    with needs("rocksdb"):
        import rocksdict

A package whose modules all need an extra, and which imports it late, asks in its `__init__.py` whether it is there:

    _require("spark", "pyspark")

Invariants: `Extra` lists the extras of `pyproject.toml`; a missing module of Strandline itself is never reported as a
missing extra.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from strandline.errors import MissingExtra

Extra = Literal[
    "nats",
    "broker",
    "sqlite",
    "rocksdb",
    "replica",
    "scan",
    "postgres",
    "etcd",
    "spark",
    "s3",
    "encryption",
    "metrics",
    "web",
    "lake",
]


@contextmanager
def needs(extra: Extra) -> Iterator[None]:
    """Turn the import of a package that is not installed into `MissingExtra`."""
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "strandline"):
            raise
        raise MissingExtra(package, extra) from error


def require(extra: Extra, package: str) -> None:
    """Raise `MissingExtra` if a package is not installed; it is not imported."""
    if find_spec(package) is None:
        raise MissingExtra(package, extra)
