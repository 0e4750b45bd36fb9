"""Precedence: every level against every other, in the library and through commands."""

import json
from itertools import combinations
from pathlib import Path

import pytest

from strandline.config import ConfigFile, FileValue, Setting, Source, declared, read_file, resolve
from tests.cli.runs import run_command

LEVELS = ("flag", "environment", "own variable", "section", "top", "default")
SUBSETS = [chosen for size in range(len(LEVELS)) for chosen in combinations(LEVELS[:-1], size)]


class _Told(Exception):
    """The tenant that a scan was asked for."""


def _tell_tenant(_where: str, *, tenant: str, **_: object) -> None:
    raise _Told(tenant)


def prepare(chosen: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give a tenant of the level's name at each chosen level; return the flags."""
    monkeypatch.chdir(folder)
    for name, level in (("STRANDLINE_SCAN_TENANT", "environment"), ("STRANDLINE_TENANT", "own variable")):
        if level in chosen:
            monkeypatch.setenv(name, level)
        else:
            monkeypatch.delenv(name, raising=False)
    top = 'tenant = "top"\n' if "top" in chosen else ""
    section = '[scan]\ntenant = "section"\n' if "section" in chosen else ""
    (folder / "strandline.toml").write_text(top + section)
    return ["--tenant", "flag"] if "flag" in chosen else []


@pytest.mark.parametrize("chosen", SUBSETS, ids="+".join)
def test_the_first_level_that_gives_a_value_wins(
    chosen: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = prepare(chosen, tmp_path, monkeypatch)
    wins = next((level for level in LEVELS if level in chosen), "default")
    monkeypatch.setattr("strandline.cli.scan.open_state", _tell_tenant)
    with pytest.raises(_Told, match=f"^{wins}$"):
        run_command("scan", "--without-spark", *flags, ".")
    if "flag" not in chosen:
        shown = run_command("config", "show", "scan", "--json").out.splitlines()
        [tenant] = [row for row in map(json.loads, shown) if row["key"] == "scan.tenant"]
        assert tenant["value"] == wins


def test_a_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "strandline.toml"
    path.write_text("[scan]\ngit = true\n")
    found = resolve("scan", {"STRANDLINE_SCAN_MASTER": "local[2]", "STRANDLINE_STATE": ""}, read_file(path, {}))
    assert (found["git"].value, found["git"].source, found["git"].place) == (True, Source.FILE, f"{path}:2")
    assert (found["master"].source, found["master"].place) == (Source.ENVIRONMENT, "STRANDLINE_SCAN_MASTER")
    assert (found["state"].value, found["state"].source) == (".strandline", Source.DEFAULT)


def test_no_secret_is_shown() -> None:
    key = declared()["scan"]["state"]
    assert Setting(key, "postgresql://me:hush@db/x", Source.ENVIRONMENT, "X").shown == "postgresql://me:***@db/x"
    assert Setting(key, "hush", Source.FILE, "x:1", is_hidden=True).shown == "(hidden)"
    file = ConfigFile(Path("x"), {("serve", "pass"): FileValue("hush", 1)})
    assert resolve("serve", {}, file)["pass"].shown == "(hidden)"
    assert resolve("serve", {"STRANDLINE_SERVE_AUTH": "hush"}, None)["auth"].shown == "(hidden)"
