"""Whatever a secret is encoded and packed in, it is found, and its span is that of the bytes it was made from."""

import base64
import hashlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strandline.detect.limits import MIB, Limits
from strandline.detect.matching.prefilter import Prefilter
from strandline.detect.results import ItemResult
from strandline.detect.rules.rule import Rule
from strandline.detect.views.decoders import DecodeBudget, views
from tests.detect.fakes import engine, hashed, only
from tests.detect.packing import ARCHIVES, TEXTS, VIEWS, Packed, in_base64, in_hex, in_utf16
from tests.effort import examples

SECRET = b"zyxwvu9876543210"
ENGINE = engine(limits=Limits(view_bytes_max=4 * MIB, views_total_max=16 * MIB))


def planted(before: bytes = b"some words\nx = tok_", after: bytes = b" and more words\n") -> Packed:
    return Packed(before + SECRET + after, (len(before), len(before) + len(SECRET)))


@examples(100)
@given(
    layers=st.lists(st.sampled_from(VIEWS + TEXTS + ARCHIVES), max_size=5),
    before=st.text("abc xyz\n", max_size=30),
    after=st.text("abc xyz\n", max_size=200),
)
def test_a_secret_is_found_through_any_stack_at_the_span_it_was_made_from(
    layers: list[object], before: str, after: str
) -> None:
    assume(sum(layer not in ARCHIVES for layer in layers) <= 3)
    assume(sum(layer in ARCHIVES for layer in layers) <= 3)
    packed = planted(before.encode() + b" padding of a text tok_", b" " + after.encode())
    for layer in layers:
        if layer in TEXTS and (not packed.data.isascii() or b"\0" in packed.data):
            continue
        packed = layer(packed)  # type: ignore[operator]
    result = ENGINE.scan(packed.data, "item")
    assert [(found.rule_id, found.secret) for found in result.findings] == [("token", hashed(SECRET))]
    assert (result.findings[0].start, result.findings[0].end) == packed.span
    assert result.coverage.is_whole


@pytest.mark.parametrize("layer", [*VIEWS, *TEXTS])
@pytest.mark.parametrize("shift", range(5))
def test_every_alignment_leads_back_exactly(layer: object, shift: int) -> None:
    packed = layer(planted(b"some words, then: " + b"." * shift + b"tok_"))  # type: ignore[operator]
    found = only(ENGINE.scan(packed.data))
    assert (found.start, found.end) == packed.span


def test_the_way_is_named_from_the_outside_in() -> None:
    found = only(ENGINE.scan(in_base64(in_hex(in_utf16(planted()))).data))
    assert found.via == ("base64", "hex", "utf-16le")


def test_the_line_of_a_view_is_that_of_its_encoded_text() -> None:
    packed = in_base64(planted())
    found = only(ENGINE.scan(b"one\ntwo\n  " + packed.data))
    assert (found.line, found.column) == (3, packed.span[0] + 3)


def test_a_run_behind_a_word_of_the_same_letters_is_found() -> None:
    text = base64.b64encode(planted().data)
    for prefix in (b"/v1/", b"key-", b"a_", b"path/to/"):
        found = only(ENGINE.scan(prefix + text))
        assert found.via == ("base64",)


def test_the_padding_says_where_a_run_behind_a_word_begins() -> None:
    text = base64.b64encode(b"words and tok_" + SECRET + b" word")
    assert text.endswith(b"=")
    assert text.rstrip(b"=").isalnum()
    for prefix in (b"a", b"ab", b"abc", b"abcd"):
        found = only(ENGINE.scan(prefix + text))
        assert (found.start, found.end) == (14 * 4 // 3 + len(prefix), 30 * 4 // 3 + len(prefix))


def test_a_comment_beside_an_encoded_secret_counts() -> None:
    text = in_base64(planted()).data.rstrip(b"\n")
    assert only(ENGINE.scan(text + b" # gitleaks:allow\n")).comment == "gitleaks:allow"


def test_what_the_file_itself_shows_is_not_said_again_by_its_views() -> None:
    url = b"https://example.org/?a=%20%41&t=tok_" + SECRET
    found = only(ENGINE.scan(url))
    assert found.via == ()


def test_a_generic_rule_says_nothing_of_an_encoded_part_of_what_was_found() -> None:
    generic = Rule("generic", r"(?:pw|key)=([^\s&]{8,})")
    two = engine(Rule("url", r"https://u:([^@\s]{8,})@", tags=("provider:url",)), generic)
    assert [found.rule_id for found in two.scan(b"https://u:pw=%41bcdefgh@host/").findings] == ["url"]


def test_a_half_of_a_surrogate_pair_does_not_disturb_the_way_back() -> None:
    before = "x\ud800 \U0001f511 é tok_".encode("utf-16-le", "surrogatepass")
    data = b"\xff\xfe" + before + SECRET.decode().encode("utf-16-le") + b"\n\0\x41"
    found = only(ENGINE.scan(data))
    assert (found.start, found.end) == (2 + len(before), 2 + len(before) + 32)


def test_texts_within_other_bytes_are_found_in_either_order() -> None:
    text = "tok_" + SECRET.decode()
    for order in ("utf-16-le", "utf-16-be"):
        encoded = text.encode(order)
        data = bytes(range(256)) * 20 + b"\x01\x02\x03" + encoded + b"\xff\xfe\xfd" * 50
        found = only(ENGINE.scan(data))
        assert (found.start, found.end) == (5_123 + 8, 5_123 + len(encoded))


def test_a_long_text_in_utf16_leads_back_past_every_block() -> None:
    text = ("é\U0001f511x" * 3_000 + " tok_" + SECRET.decode() + "\n") * 3
    data = b"\xff\xfe" + text.encode("utf-16-le")
    spans = [(found.start, found.end) for found in ENGINE.scan(data).findings]
    needle = SECRET.decode().encode("utf-16-le")
    starts = [at for at in range(2, len(data), 2) if data.startswith(needle, at)]
    assert spans == [(start, start + 32) for start in starts]
    assert len(spans) == 3


def test_a_word_of_escapes_without_end_is_cut_and_counted() -> None:
    result = scan(b"%41" * 100_000, view_bytes_max=1_000)
    assert result.coverage.decodes_skipped == 1


def scan(data: bytes, **limits: int) -> ItemResult:
    return engine(limits=Limits(**limits)).scan(data)


def test_what_stands_too_deep_is_counted() -> None:
    twice = in_base64(in_hex(planted())).data
    assert scan(twice, decode_depth=2).findings
    shallow = scan(twice, decode_depth=1)
    assert not shallow.findings
    assert shallow.coverage.decodes_skipped == 1
    assert scan(twice, decode_depth=0).coverage.decodes_skipped == 1


def test_spans_over_the_limit_are_counted() -> None:
    data = b"".join(in_base64(planted(b"%d tok_" % number)).data for number in range(10))
    result = scan(data, view_spans_max=4)
    assert len(result.findings) == 4
    assert result.coverage.decodes_skipped == 6


def test_bytes_over_the_limit_are_counted_and_the_beginning_is_looked_at() -> None:
    text = planted().data
    size = len(text)
    long = in_base64(Packed(text + b"words " * 50, (0, 0))).data
    assert only(scan(long, view_bytes_max=size)).via == ("base64",)
    assert scan(long, view_bytes_max=size).coverage.decodes_skipped == 1
    both = in_base64(planted()).data + in_hex(planted()).data
    result = scan(both, views_total_max=size)
    assert len(result.findings) == 1
    assert result.coverage.decodes_skipped == 1


def test_runs_are_found_across_and_behind_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.detect.views.decoders.CHUNK_BYTES", 128)
    for gap in range(0, 140, 7):
        data, spans = b"", []
        for layer in (in_base64, in_hex, in_base64, in_hex):
            packed = layer(planted(b"words " * 20 + b"%d tok_" % len(data)))
            before = b"." * gap
            spans.append((len(data) + gap + packed.span[0], len(data) + gap + packed.span[1]))
            data += before + packed.data
        assert [(found.start, found.end) for found in ENGINE.scan(data).findings] == spans


def test_a_short_text_in_a_run_is_found_wherever_a_chunk_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.detect.views.decoders.CHUNK_BYTES", 128)
    run = base64.b64encode(b"\xff" * 30 + b"tok_" + SECRET + b"\xff" * 10)
    for gap in range(60, 90):
        found = only(ENGINE.scan(b"A" * 40 + b"." * (gap - 40) + run))
        assert found.start == gap + 34 * 4 // 3


def test_hashes_and_names_are_no_views_and_no_gaps() -> None:
    data = b"\n".join(
        [
            *(b"sha512-" + base64.b64encode(hashlib.sha512(b"%d" % number).digest()) for number in range(200)),
            b"0123456789abcdef" * 4,
            b"some_rather_long_name_of_a_function_in_a_module",
            b"SOME_RATHER_LONG_NAME_OF_A_CONSTANT_IN_A_MODULE",
            b"-" * 200,
            b"/" * 200,
        ]
    )
    result = scan(data, view_spans_max=0)
    assert result.coverage.is_whole


def marks_of(data: bytes) -> dict[int, int]:
    sweep = Prefilter([], Limits()).sweep(data)
    assert not list(sweep.windows())
    return sweep.marks


@examples(100)
@given(
    data=st.lists(
        st.sampled_from(
            [b"A", b"aB3_", b"=", b"\n", b"%4", b"%41", b"\0", b"t\0", b"-+/", b"QUJDREVG" * 6, b"6162" * 9]
        ),
        max_size=80,
    ).map(b"".join)
)
def test_any_view_leads_back_into_its_buffer(data: bytes) -> None:
    budget = DecodeBudget(Limits(), 1 << 20)
    for view in views(data, marks_of(data), budget):
        if view.data:
            last = (-1, -1)
            for at in range(len(view.data)):
                start, end = view.locate(at, at + 1)
                assert 0 <= start < end <= len(data)
                assert (start, end) >= last
                last = (start, end)
            assert view.locate(0, len(view.data))[1] == last[1]


@pytest.mark.parametrize("following", [b"cache_key: 1", b"end of it", b"<html>", b"next=1"])
def test_a_line_that_says_something_else_is_not_read_as_the_rest_of_a_run(following: bytes) -> None:
    rule = Rule("last", r"tok_[0-9a-f]{16}\z")
    text = b"a text before: tok_0123456789abcdef"
    data = b"  a: " + base64.b64encode(b"." * (-len(text) % 3) + text) + b"\n  " + following + b"\n"
    assert only(engine(rule).scan(data)).via == ("base64",)
