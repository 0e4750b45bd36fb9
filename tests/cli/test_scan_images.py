"""`strandline scan image:…`: what images have in common is found once, and none hides a finding of another."""

import json
from pathlib import Path

import pytest

from tests.cli.runs import run_command
from tests.cli.scan_command import RULES
from tests.scan.sources.image_builder import Built

BASE = {"etc/conf": b"beta_12345678"}


def test_findings_of_one_image_stay_when_another_has_the_same_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)

    def scan(name: str, env: bytes) -> list[str]:
        """Scan an image; return the paths of `findings list`."""
        layout = Built([BASE, {"app/.env": env}]).layout(tmp_path / name)
        words = ("--rules", rules, "--state", tmp_path / "state", "--without-spark", "--exit-zero")
        ran = run_command("scan", f"oci:{layout}", *words)
        assert ran.code == 0, ran.err
        ran = run_command("findings", "list", "--json", "--state", tmp_path / "state")
        return sorted(json.loads(line)["path"] for line in ran.out.splitlines())

    assert scan("one", b"alpha_12345678") == ["app/.env", "etc/conf"]
    assert scan("two", b"clean") == ["app/.env", "etc/conf"], "the finding of the first image is still in it"
    assert scan("one", b"cleaned") == ["etc/conf"]
