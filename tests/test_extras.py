"""Extras: a package that is not installed is reported with the extra that brings it."""

import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from strandline.errors import MissingExtra
from strandline.extras import Extra, needs, require


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


def test_a_required_package_is_looked_for_and_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "unused_package.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    require("sqlite", "unused_package")
    assert "unused_package" not in sys.modules
    with pytest.raises(MissingExtra, match="no_such_package"):
        require("sqlite", "no_such_package")


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
    listed = set(project["optional-dependencies"]) - {"all", "dev"}
    assert set(get_args(Extra)) == listed
    assert project["optional-dependencies"]["all"] == [f"strandline[{','.join(get_args(Extra))}]"]
