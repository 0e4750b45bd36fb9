"""Scans of repositories leave no byte of a secret in states, caches, reports, messages, beside mirrors' objects."""

from pathlib import Path

import pytest

from tests.cli.git_shop import Shop
from tests.cli.runs import run_command
from tests.spark.leaks import Search, Secrets, written_down

RULE = """
[[rules]]
id = "leak"
regex = '''leak_[0-9A-Za-z]{24}'''
keywords = ["leak_"]
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "left" / "cache"))
    (tmp_path / "left").mkdir()
    shop = Shop(tmp_path)
    shop.rules.write_text(RULE)
    shop.state = tmp_path / "left" / "state"
    return shop


def test_no_byte_of_a_secret_is_left(shop: Shop, tmp_path: Path) -> None:
    secrets, left = Secrets(43), tmp_path / "left"
    shop.commit(app=f"{secrets.new('file')}\n", copy=f"{secrets.new('copied')}\n")
    shop.git("commit", "--quiet", "--allow-empty", "--message", f"uses {secrets.new('message')}")
    shop.commit(app=f"{secrets.new('next version')}\nmore\n")
    shop.git("clone", "--quiet", "--bare", ".", str(tmp_path / "remote.git"))
    shop.write(staged=f"{secrets.new('staged')}\n", loose=f"{secrets.new('untracked')}\n")
    shop.git("add", "staged")
    login = secrets.new("login")
    views = [("--git",), (), ("--since", "HEAD~1"), ("--staged",)]
    said = [shop.scan(*view, "--exit-zero", *more) for view in views for more in ((), ("--json",))]
    words = ("--rules", shop.rules, "--state", shop.state, "--without-spark", "--exit-zero")
    said.append(run_command("scan", f"file://{tmp_path}/remote.git", *words))
    said.append(run_command("scan", f"https://ada:{login}@127.0.0.1:1/shop.git", *words))
    said += [run_command("findings", "show", row["finding_id"], "--state", shop.state) for row in shop.listed()]
    for form in ("jsonl", "csv", "sarif", "html", "baseline", "gitleaks"):
        shop.scan("--git", "--exit-zero", "--format", form, "--output", left / f"report.{form}")
    assert len(shop.listed()) == 5, "what is planted in files is found"
    (left / "said").write_text("\n".join(one.out + one.err for one in said))
    search = Search(secrets)
    objects = [path for path in left.rglob("objects") if path.parent.parent.name == "mirrors"]
    assert objects, "a mirror is the repository itself, and its objects hold what is in it"
    for path in objects:
        path.rename(tmp_path / f"objects of {path.parent.name}")
    assert search.folder(left) == []
    assert search.bytes > 100_000
    for name, data in written_down(login).items():
        (left / "planted").write_bytes(data)
        assert search.folder(left), f"the search does not find what is written as {name}"
