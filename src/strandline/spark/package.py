"""The installed PySpark: its folder and its version, found without importing it, which takes long."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def package_folder() -> Path:
    """Return the folder of the package; `ModuleNotFoundError` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return Path(spec.origin).resolve().parent


def pyspark_version() -> str:
    """Return what tells one version from another, also of a package that came with a Spark and was not installed."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return (package_folder() / "version.py").read_text()
