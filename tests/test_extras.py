"""Extras: a package that is not installed is reported with the extra that brings it."""

import pytest

from strandline.errors import MissingExtra
from strandline.extras import needs


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(MissingExtra, match="no_such_package") as caught, needs("rocksdb"):
        __import__("no_such_package.part")
    assert (caught.value.package, caught.value.extra) == ("no_such_package", "rocksdb")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_missing_module_of_strandline_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, needs("rocksdb"):
        __import__("strandline.no_such_module")
    assert not isinstance(caught.value, MissingExtra)


def test_the_innermost_extra_is_named() -> None:
    with pytest.raises(MissingExtra) as caught, needs("scan"), needs("sqlite"):
        __import__("no_such_package")
    assert caught.value.extra == "sqlite"


def test_what_is_installed_is_imported() -> None:
    with needs("sqlite"):
        import apsw  # noqa: PLC0415 - that is the test
    assert apsw.apsw_version()
