"""Results of a blob for all of its paths: what a group was searched for once is not searched for again."""

from typing import Any

import pytest

from strandline.detect import Engine, ItemResult, Limits
from strandline.detect.rules.rule import RuleSet
from strandline.scan.sources import Part
from strandline.scan.worker.shared_results import PathClasses, SharedResults
from tests.detect.fakes import TOKEN, engine

LARGE = b"tok_abcdef0123456789" + b" and more text" * 2_000


def test_matches_of_a_group_are_given_once_to_the_scan_of_their_own_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with_, given = engine(), list[bool]()
    plain = Engine.scan

    def spied(self: Engine, data: bytes, path: str, commit: str, **more: Any) -> ItemResult:  # noqa: ANN401
        given.append(more["matches"] is not None)
        return plain(self, data, path, commit, **more)

    monkeypatch.setattr(Engine, "scan", spied)
    shared = SharedResults(PathClasses(RuleSet((TOKEN,)), Limits()))
    part, other = Part(LARGE, "a"), Part(bytes(bytearray(LARGE)), "b")
    assert shared.clear(with_, [part, Part(b"nothing", "c")]) == [False, True]
    results = [shared.scan(with_, each) for each in (other, part, other)]
    assert given == [False, True, False]
    assert [len(result.findings) for result in results] == [1, 1, 1]


def test_empty_files_are_not_one_blob(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one object in memory, and asking whether all rules take their paths alike costs more than looking."""

    def refuse(*_: Any) -> bool:  # noqa: ANN401
        raise AssertionError("the paths of empty files were compared")

    monkeypatch.setattr(PathClasses, "are_same", refuse)
    shared = SharedResults(PathClasses(RuleSet((TOKEN,)), Limits()))
    for data in (b"", b"\n"):
        assert shared.clear(engine(), [Part(data, f"{at}/__init__.py") for at in range(3)]) == [True] * 3
    once = b"nothing in two paths"
    with pytest.raises(AssertionError, match="compared"):
        shared.clear(engine(), [Part(once, "a"), Part(once, "b")])
