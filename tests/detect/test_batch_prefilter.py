"""Values that are scanned together give what each gives alone."""

import base64
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect import batch_prefilter
from strandline.detect.engine import Engine
from strandline.detect.limits import Limits
from strandline.detect.matching.databases import Database
from strandline.detect.results import ItemResult
from strandline.detect.rules.rule import Allowlist, Rule, RuleSet
from strandline.detect.views import decoders
from strandline.detect.views.decoders import hints
from strandline.errors import InvalidInput
from tests.detect.fakes import KEY, TOKEN, engine
from tests.detect.packing import ARCHIVES, TEXTS, VIEWS, Packed, in_percent, in_zip
from tests.effort import examples

SECRET = b"tok_abcdef0123456789"
RULES = (
    TOKEN,
    Rule("begins", r"^key-[a-z]{4}"),
    Rule("text-begins", r"\Alock-[a-z]{4}"),
    Rule("ends", r"pin-[0-9]{4}$"),
    Rule("text-ends", r"(?:pass|word)-[0-9]{2,4}(?:;|\z)"),
    Rule("whole", r"^safe-[0-9]{4}$"),
    Rule("line", r"(?m)^env-[a-z]{3}$"),
    Rule("word", r"\bcode[0-9]{3}\b"),
    Rule("inner", r"\Bdoor[0-9]{3}"),
    Rule("far", r"[0-9a-f]{12}", keywords=("mailer",)),
    Rule("wide", r"open(?:.|\n){0,300}?close[0-9]"),
    Rule("path", r"sesame", path=r"\.env$"),
)
HIDDEN = [pack(Packed(b"the secret: " + SECRET, (16, 32))).data for pack in (*VIEWS, *TEXTS, *ARCHIVES)]
PIECES = [
    *b"key-abcd lock-abcd pin-1234 pass-12 word-1234; safe-1234 env-abc code123 door123 sesame open close1".split(),
    *b"mailer 0123456789ab gitleaks:allow x _ % %74%6f%6b%5fabcdef0123456789 %2574%6f".split(),
    *(b'"tok_abcdef" + "0123456789"', b"\\/", b"tok_abcdef012345\\u0036789", b"id,password\n1,", b"|--|\n"),
    *(b"\n", b" ", b"\0", b"\xff\xfe", b"PK\x03\x04", b"\x1f\x8b\x08", b"a" * 40, SECRET, SECRET[:10], SECRET[10:]),
    *HIDDEN,
]
CELLS = st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map(b"".join) | st.binary(max_size=40), max_size=12)
ENGINE = engine(*RULES)
TIGHT = engine(*RULES, limits=Limits(decode_depth=1, view_spans_max=1, view_bytes_max=24, findings_max=1))
BLIND = engine(*RULES, limits=Limits(decode_depth=0))


def alone(with_: Engine, values: Sequence[bytes], path: str = "") -> dict[int, ItemResult]:
    results = {number: with_.scan(value, path) for number, value in enumerate(values)}
    return {number: result for number, result in results.items() if result.findings or not result.coverage.is_whole}


@given(CELLS, st.sampled_from([ENGINE, TIGHT, BLIND]), st.sampled_from(["", "a.env"]))
@examples(100)
def test_values_together_give_what_each_gives_alone(values: list[bytes], with_: Engine, path: str) -> None:
    assert with_.scan_many(values, path) == alone(with_, values, path)


@given(CELLS, st.sampled_from([ENGINE, TIGHT, BLIND]), st.sampled_from(["", "a.env"]))
@examples(100)
def test_a_quick_look_passes_over_nothing_that_a_scan_finds(values: list[bytes], with_: Engine, path: str) -> None:
    named = {number for number, value in enumerate(values) if with_.may_find(value, path)}
    assert alone(with_, values, path).keys() <= named


@pytest.mark.parametrize("packed", [SECRET, *HIDDEN], ids=map(str, range(len(HIDDEN) + 1)))
def test_a_quick_look_names_what_is_packed_and_encoded(packed: bytes) -> None:
    assert engine().scan(packed).findings
    assert engine().may_find(packed)
    behind = b"a line of text\n" * 200 + b"x" * 40 + b"\n" + packed
    assert engine().may_find(behind) == bool(engine().scan(behind).findings)


def test_binaries_without_a_window_need_no_scan_of_their_own() -> None:
    values = [b"\0\1 some words \0", b"w\0o\0r\0d\0s\0" * 20, b"\0 and more \0" * 2_000]
    assert not engine().suspects(values, ["a", "b", "c"])
    hidden = [value + SECRET.decode().encode("utf-16-le") for value in values]
    found = [number for number, value in enumerate(hidden) if engine().scan(value).findings]
    assert found
    assert found == list(engine().suspects(hidden, ["a", "b", "c"]))


def test_a_quick_look_names_what_is_found_by_its_path_everywhere_or_in_a_large_item() -> None:
    text = b"a line of text, and another_word_that_is_longer_than_32_digits;\n" * 200
    assert not engine().may_find(text, "id.key")
    assert engine(Rule("keys", path=r"\.key$")).may_find(text, "id.key")
    assert not engine(Rule("keys", path=r"\.key$")).may_find(text, "key.id")
    assert engine(Rule("all", "(foo)?")).may_find(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.detect.matching.prefilter.CHUNK_BYTES", 16)
        split = b"." * 10 + SECRET
        assert engine().scan(split).findings
        assert engine().may_find(split)


@given(CELLS)
@examples(100)
def test_a_value_that_is_not_named_has_no_finding(values: list[bytes]) -> None:
    named = set(batch_prefilter.suspects(values, ENGINE._prefilter, ENGINE.limits))  # noqa: SLF001
    assert alone(ENGINE, values).keys() <= named


@pytest.mark.parametrize("packed", HIDDEN, ids=map(str, range(len(HIDDEN))))
def test_packed_and_encoded_values_are_found_among_others(packed: bytes) -> None:
    found = engine().scan_many([b"nothing"] * 50 + [packed] + [b"nothing"] * 50)
    assert found == {50: engine().scan(packed)}
    assert found[50].findings


def tar_without_nul() -> bytes:
    numbers = (b"0000644 ", b"0000000 ", b"0000000 ", b"00000000040 ", b"00000000000 ", b" " * 8, b"0")
    header = b"".join((b"id_rsa".rjust(100, b"/"), *numbers)).ljust(512)
    return header[:148] + b"%06o  " % sum(header) + header[156:] + b" " * 512


HARD = {
    "two literals": b'key = "tok_abcdef" + "0123456789"',
    "two literals in escapes": b"%22tok_abcdef%22%20%2b%20%220123456789%22",
    "two literals in base64": b'"' + base64.b64encode(b'and this: key = "tok_abcdef" + "0123456789"') + b'"',
    "escaped twice": b"url=%2574ok_abcdef0123456789",
    "an archive in escapes": in_percent(in_zip(Packed(SECRET, (4, 20)))).data,
    "a word at the edge of a text": b'"key-abcd%20and%20so%20on"',
}


@pytest.mark.parametrize("name", HARD)
def test_hard_values_are_found_among_others(name: str) -> None:
    found = ENGINE.scan_many([b"nothing", HARD[name], b"nothing"])
    assert found == {1: ENGINE.scan(HARD[name])}
    assert found[1].findings


@pytest.mark.parametrize(
    ("limits", "value"),
    [
        (Limits(view_bytes_max=24), b"%20" + b"abc_" * 7),
        (Limits(views_total_max=24), b"%20" + b"abc_" * 7),
        (Limits(view_spans_max=1), b"words%20of%20sixteen again%20of%20sixteen"),
        (Limits(decode_depth=0), b"words%20of%20sixteen"),
    ],
)
def test_escapes_over_a_limit_are_counted_as_they_are_alone(limits: Limits, value: bytes) -> None:
    tight = engine(limits=limits)
    found = tight.scan_many([b"nothing", value, b"nothing"])
    assert found == {1: tight.scan(value)}
    assert found[1].coverage.decodes_skipped


def test_members_of_a_tar_without_nul_are_found_by_their_paths() -> None:
    value, finder = tar_without_nul(), engine(Rule("file", path=r"id_rsa$"))
    found = finder.scan_many([b"nothing", value, b"nothing"])
    assert found == {1: finder.scan(value)}
    assert found[1].findings
    assert finder.may_find(value)


def test_a_broken_archive_in_escapes_is_counted_as_it_is_alone() -> None:
    value = b"%1f%8b%08abcdefgh"
    found = ENGINE.scan_many([b"nothing", value, b"nothing"])
    assert found == {1: ENGINE.scan(value)}
    assert found[1].coverage.members_skipped


def test_few_of_many_values_need_a_scan() -> None:
    values = [b"order 66 of https://shop.example/a%20b%20c for 6ba7b810-9dad-11d1-80b4-00c04fd430c8, paid"] * 1_000
    values[500] = SECRET
    assert batch_prefilter.suspects(values, ENGINE._prefilter, ENGINE.limits) == {500: None}  # noqa: SLF001


HARMLESS = {
    "escapes": b'{"url": "https:\\/\\/example.org\\/a", "text": "a \\u003c b"}',
    "two literals": b'text = "some_words" + "and_more_words"',
    "percent escapes in a long value": b"see https://example.org/a%20b%20c and on\n" * 40,
    "base64": b'"' + base64.b64encode(b"words that mean nothing, and more of them") + b'"',
    "a table": b"id,password\n1,abcdefgh\n2,ijklmnop\n",
    "escapes in escapes": b'{"url": "https:\\/\\/example.org\\/a%20b%20c%20d%20e%20f"}',
    "base64 in base64": b'"' + base64.b64encode(base64.b64encode(b"words that mean nothing, and more")) + b'"',
}


@pytest.mark.parametrize("least", [0, 1 << 20], ids=["alone", "joined"])
@pytest.mark.parametrize("name", HARMLESS)
def test_values_whose_views_hold_nothing_need_no_scan(name: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_prefilter, "ALONE_BYTES_MIN", least)
    values = [b"nothing", HARMLESS[name], b"nothing"]
    assert BLIND.scan(HARMLESS[name]).coverage.decodes_skipped, "it has a view"
    assert BLIND.suspects(values, [""] * 3).keys() == {1}
    assert not alone(ENGINE, values)
    assert ENGINE.suspects(values, [""] * 3) == {}


def test_views_inside_views_share_the_bounds_of_their_value() -> None:
    value = HARMLESS["base64 in base64"]
    sizes = len(base64.b64encode(b"words that mean nothing, and more")), len(b"words that mean nothing, and more")
    for limits in (Limits(views_total_max=sum(sizes) - 1), Limits(decode_depth=1)):
        tight = engine(*RULES, limits=limits)
        assert tight.scan(value).coverage.decodes_skipped == 1
        assert tight.suspects([b"nothing", value], [""] * 2) == {1: None}
    assert engine(*RULES, limits=Limits(views_total_max=sum(sizes))).suspects([value], [""]) == {}


def test_views_that_are_many_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_prefilter, "JOINED_BYTES_MAX", 100)
    monkeypatch.setattr(batch_prefilter, "ALONE_BYTES_MIN", 0)
    values = [HARMLESS["escapes"], HARD["two literals"]] * 10
    assert list(ENGINE.suspects(values, [""] * 20)) == list(range(1, 20, 2))


def test_groups_cover_all_values_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_prefilter, "JOINED_BYTES_MAX", 10)
    values = [b"a" * size for size in (0, 3, 20, 4, 4, 9, 10, 0, 0)]
    groups = list(batch_prefilter.groups(values))
    assert [number for first, last in groups for number in range(first, last)] == list(range(len(values)))
    assert all(last - first == 1 or sum(map(len, values[first:last])) <= 10 for first, last in groups)
    assert engine().scan_many([SECRET, *values, SECRET]).keys() == {0, 10}


def test_rules_for_paths_find_each_value() -> None:
    found = engine(Rule("file", path=r"id_rsa$")).scan_many([b"", b"x"], "id_rsa")
    assert [len(result.findings) for result in found.values()] == [1, 1]
    assert not engine(Rule("file", path=r"id_rsa$")).scan_many([b"", b"x"], "other")


def test_what_is_allowed_by_path_or_commit_is_allowed_here() -> None:
    rules = RuleSet((TOKEN,), (Allowlist(paths=(r"\.lock$",), commits=("abcdef0",)),))
    with_ = Engine(rules, key=KEY)
    assert with_.scan_many([SECRET, b""]).keys() == {0}
    assert not with_.scan_many([SECRET], "a.lock")
    assert not with_.scan_many([SECRET], "a", "abcdef0")


def test_a_rule_that_is_matched_everywhere_sees_every_value() -> None:
    with_ = engine(Rule("any", "z*"))
    assert with_.scan_many([b"zz", b"", b"yz"]).keys() == {0, 2}


def test_values_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(InvalidInput):
        engine().scan_many([b"", "text"])  # type: ignore[list-item]
    assert engine().scan_many([]) == {}


@given(CELLS, st.sampled_from([ENGINE, TIGHT, BLIND]), st.lists(st.sampled_from(["", "a.env"]), min_size=12))
@examples(100)
def test_items_that_are_no_suspects_have_nothing_that_a_scan_finds(
    values: list[bytes], with_: Engine, paths: list[str]
) -> None:
    named = with_.suspects(values, paths)
    results = [with_.scan(value, path) for value, path in zip(values, paths, strict=False)]
    for number, (value, result) in enumerate(zip(values, results, strict=True)):
        if number not in named:
            assert (result.findings, result.coverage.is_whole, result.coverage.bytes_seen) == ((), True, len(value))


def test_items_whose_paths_a_rule_finds_are_suspects() -> None:
    assert engine(Rule("file", path=r"id_rsa$")).suspects([b"x", b"x", b"x"], ["a", "id_rsa", "b"]) == {1: None}


def test_items_that_are_too_large_for_a_quick_look_are_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_prefilter, "CHUNK_BYTES", 300_000)
    sizes = [100, 299_999, 300_001, 100]
    assert engine().suspects([b"x" * size for size in sizes], [""] * 4) == {2: None}


@given(CELLS, st.sampled_from([ENGINE, TIGHT, BLIND]), st.sampled_from([0, 8, 32]))
@examples(100)
def test_matches_of_large_items_give_the_results_of_a_scan_without_them(
    values: list[bytes], with_: Engine, least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_prefilter, "ALONE_BYTES_MIN", least)
        patch.setattr(batch_prefilter, "_BYTES_PER_MATCH", 0)
        named = with_.suspects(values, [""] * len(values))
    assert list(named) == sorted(named)
    for number, value in enumerate(values):
        result = with_.scan(value)
        if number in named:
            assert (named[number] is not None) is (len(value) >= least)
            assert with_.scan(value, matches=named[number]) == result
        else:
            assert (result.findings, result.coverage.is_whole, result.coverage.bytes_seen) == ((), True, len(value))


def test_a_large_item_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    large = SECRET + b" and more text" * 2_000
    with_ = engine()
    named = with_.suspects([b"nothing", large], ["", ""])
    looks: list[bytes | memoryview] = []

    def seen(_: Database, data: bytes | memoryview) -> list[tuple[int, int]]:
        looks.append(data)
        return []

    monkeypatch.setattr(Database, "found", seen)
    assert with_.scan(large, matches=named[1]).findings
    assert large not in looks


def test_matches_that_are_close_together_are_not_kept() -> None:
    large = SECRET * 2_000
    assert engine().suspects([large], [""]) == {0: None}


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), st.integers(0, 9))
@examples(100)
def test_no_hint_in_a_run_that_may_have_a_view_is_passed_over(text: bytes, shift: int) -> None:
    text = b"." * shift + text
    picked, found = set(hints(text)), {(end, int(number >= 2)) for end, number in decoders._HINTS.found(text)}  # noqa: SLF001
    runs = [match.span() for match in re.finditer(rb"[A-Za-z0-9+/_-]{32,}", text)]
    assert {(end, at) for end, at in found if any(first < end <= last for first, last in runs)} <= picked <= found
