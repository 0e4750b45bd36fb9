"""Rules that an earlier process parsed are those that parsing gives, or they are parsed again."""

import pickle
from dataclasses import fields
from pathlib import Path

import pytest
from blake3 import blake3

from strandline.cache import cache_folder
from strandline.detect import RuleSet, load_builtin, load_rules
from strandline.detect.rules import gitleaks, rules_cache
from strandline.detect.rules.rule import Rule
from strandline.detect.rules.rules_cache import format_cached, parse_cached

TEXT = """
[[rules]]
id = "alpha"
regex = '''alpha_[0-9]{8}'''
keywords = ["alpha_"]
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the texts that are parsed."""
    names: list[str] = []
    parse = gitleaks._parse  # noqa: SLF001 - to see who calls it

    def seen(text: str, name: str, folder: Path | None, depth: int) -> object:
        names.append(Path(name).name)
        return parse(text, name, folder, depth)

    monkeypatch.setattr(gitleaks, "_parse", seen)
    return names


def everything(rules: RuleSet) -> list[tuple[object, ...]]:
    """Return all values of rules: those that decide nothing too."""
    return [tuple(getattr(rule, field.name) for field in fields(Rule)) for rule in rules.rules]


def test_the_built_in_rules_come_back_whole_with_their_fingerprints() -> None:
    made = load_builtin.__wrapped__()
    back = parse_cached(format_cached(made))
    assert back is not None
    assert (everything(back), back.allowlists) == (everything(made), made.allowlists)
    fresh = RuleSet(made.rules, made.allowlists)
    assert back.policy().fingerprints == fresh.policy().fingerprints
    assert back.policy().hash == fresh.policy().hash


def test_a_file_is_parsed_once_and_again_when_it_changed(tmp_path: Path, parsed: list[str]) -> None:
    file = tmp_path / "rules.toml"
    for text, times in ((TEXT, 1), (TEXT, 1), (TEXT.replace("{8}", "{9}"), 2), (TEXT, 2)):
        file.write_text(text)
        assert load_rules(file).rules[0].regex == ("alpha_[0-9]{9}" if "{9}" in text else "alpha_[0-9]{8}")
        assert parsed.count("rules.toml") == times


def test_a_file_that_extends_another_is_parsed_each_time(tmp_path: Path, parsed: list[str]) -> None:
    (tmp_path / "base.toml").write_text(TEXT)
    (tmp_path / "rules.toml").write_text('[extend]\npath = "base.toml"\n')
    for regex in ("alpha_[0-9]{8}", "alpha_[0-9]{9}"):
        (tmp_path / "base.toml").write_text(TEXT.replace("alpha_[0-9]{8}", regex))
        assert load_rules(tmp_path / "rules.toml").rules[0].regex == regex
    assert parsed.count("base.toml") == 2


def test_other_code_parses_again(tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.toml").write_text(TEXT)
    load_rules(tmp_path / "rules.toml")
    monkeypatch.setattr(rules_cache, "_code_digest", lambda: b"another")
    load_rules(tmp_path / "rules.toml")
    assert parsed == ["rules.toml"] * 2


def test_a_broken_file_is_a_miss(tmp_path: Path, parsed: list[str]) -> None:
    (tmp_path / "rules.toml").write_text(TEXT)
    rules = load_rules(tmp_path / "rules.toml")
    (file,) = (cache_folder() / "rules").iterdir()
    whole = file.read_bytes()
    for broken in (b"", whole[:-1], whole[:40] + b"x" + whole[41:]):
        file.write_bytes(broken)
        assert load_rules(tmp_path / "rules.toml") == rules
    assert len(parsed) == 4


def test_nothing_but_rules_is_made_from_a_file(tmp_path: Path) -> None:
    class Planted:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "run",))

    head = format_cached(RuleSet(()))[: len(b"strandline rules 1\n")]
    body = pickle.dumps((Planted(), (), {}))
    assert parse_cached(head + blake3(body).digest() + body) is None
    assert not (tmp_path / "run").exists()
