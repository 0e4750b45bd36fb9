"""What leaves a bucket leaves a mirror; what nobody deleted stays in an archive; neither before its time."""

from collections.abc import Callable
from typing import Any

import pytest

from strandline.protocol.fold_modes import FoldMode
from tests.exploring import explore
from tests.models import EvictionBounds, EvictionModel

GONE, STAYS, VANISHED = "a live key is gone", "a key that left stays", "a key that is there vanished"
MIRROR, ARCHIVE = EvictionBounds(FoldMode.MIRROR), EvictionBounds(FoldMode.ARCHIVE)
KINDS: dict[str, dict[str, Any]] = {
    "keeps": {},
    "drops": {"drops": True},
    "expires": {"expires": True},
    "expires and marks": {"expires": True, "marks": True},
    "drops and expires": {"drops": True, "expires": True},
}
SOUND = {
    f"{name}, {bounds.mode.name.lower()}": bounds._replace(**kind)
    for bounds in (MIRROR, ARCHIVE)
    for name, kind in KINDS.items()
}


def no_floor(mode: FoldMode, revision: int, expires_ns: int, *, first: int, now_ns: int, drops: bool) -> bool:
    _ = revision, first, drops
    return mode is FoldMode.MIRROR and 0 < expires_ns <= now_ns


def no_deadline(mode: FoldMode, revision: int, expires_ns: int, *, first: int, now_ns: int, drops: bool) -> bool:
    _ = now_ns
    return 0 < revision < first and (mode is FoldMode.MIRROR or (not drops and not expires_ns))


def floor_for_all(mode: FoldMode, revision: int, expires_ns: int, *, first: int, now_ns: int, drops: bool) -> bool:
    _ = drops
    return revision < first or (mode is FoldMode.MIRROR and 0 < expires_ns <= now_ns)


def floor_whatever_expires(
    mode: FoldMode, revision: int, expires_ns: int, *, first: int, now_ns: int, drops: bool
) -> bool:
    return (revision < first and not drops) or (mode is FoldMode.MIRROR and 0 < expires_ns <= now_ns)


def deadline_for_all(mode: FoldMode, revision: int, expires_ns: int, *, first: int, now_ns: int, drops: bool) -> bool:
    is_below = revision < first and (mode is FoldMode.MIRROR or not (drops or expires_ns))
    return is_below or 0 < expires_ns <= now_ns


def always(*_: object, **__: object) -> bool:
    return True


def never(*_: object, **__: object) -> bool:
    return False


MUTATIONS: list[tuple[str, Callable[..., object], EvictionBounds, str]] = [
    ("has_left", no_floor, MIRROR._replace(drops=True), STAYS),
    ("has_left", no_floor, MIRROR, STAYS),
    ("has_left", no_floor, ARCHIVE, STAYS),
    ("has_left", no_deadline, MIRROR._replace(expires=True), STAYS),
    ("has_left", floor_for_all, ARCHIVE._replace(drops=True), GONE),
    ("has_left", floor_whatever_expires, ARCHIVE._replace(expires=True), GONE),
    ("has_left", deadline_for_all, ARCHIVE._replace(expires=True), GONE),
    ("is_settled", always, MIRROR._replace(drops=True), VANISHED),
    ("follows_expiry", always, ARCHIVE._replace(expires=True, marks=True), GONE),
]


@pytest.mark.parametrize("bounds", SOUND.values(), ids=SOUND)
def test_what_left_leaves_and_nothing_else(bounds: EvictionBounds) -> None:
    found = explore(EvictionModel(bounds._replace(revisions=3)))
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.complete, found
    assert found.states > 100


@pytest.mark.parametrize(("name", "broken", "bounds", "problem"), MUTATIONS)
def test_without_a_rule_there_is_a_counterexample(
    name: str, broken: Callable[..., object], bounds: EvictionBounds, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"strandline.protocol.fold_modes.{name}", broken)
    found = explore(EvictionModel(bounds)).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert found.problem == problem, found


def test_a_value_that_expires_before_it_was_read_must_leave_a_marker() -> None:
    """What is taken for granted is needed: a value that came and went leaves no trace in where the log begins."""
    found = explore(EvictionModel(MIRROR._replace(expires=True, unread=True))).counterexample
    assert found is not None
    assert found.problem == STAYS, found


@pytest.mark.long
@pytest.mark.parametrize("bounds", SOUND.values(), ids=SOUND)
def test_what_left_leaves_and_nothing_else_in_a_longer_log(bounds: EvictionBounds) -> None:
    found = explore(EvictionModel(bounds._replace(revisions=4)))
    assert found.complete, found
