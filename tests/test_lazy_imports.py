"""Imports at first use: each public name of a package is its module's, and no other name is there."""

import importlib
from pathlib import Path

import pytest

import strandline
from strandline.lazy_imports import deferred, lazy_names

PACKAGE = Path(strandline.__file__).parent
LAZY = sorted(
    ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    for path in PACKAGE.rglob("__init__.py")
    if "_lazy_names" in path.read_text()
)


@pytest.mark.parametrize("name", LAZY)
def test_every_public_name_of_a_lazy_package_is_found(name: str) -> None:
    package = importlib.import_module(name)
    assert not [one for one in package.__all__ if not hasattr(package, one)]
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - that is the test


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    get = lazy_names("strandline", {"version": ("__version__",), "no_such_module": ("Nothing",)})
    assert get("__version__") == strandline.__version__
    with pytest.raises(ModuleNotFoundError):
        get("Nothing")


def test_a_deferred_module_is_imported_when_something_is_taken_from_it() -> None:
    version = deferred("strandline.version")
    assert version.__version__ == strandline.__version__
    with pytest.raises(ModuleNotFoundError):
        deferred("no_such_module").anything  # noqa: B018 - that is the test
