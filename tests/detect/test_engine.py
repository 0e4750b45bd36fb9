"""What counts as a finding, where it is, and what is said of it."""

import math
import pickle
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.engine import Engine
from strandline.detect.errors import RegexInvalid, RulesInvalid
from strandline.detect.expressions.nodes import Node
from strandline.detect.limits import Limits
from strandline.detect.matching.matcher import Hit, entropy_bits
from strandline.detect.rules.rule import Allowlist, Required, Rule, RuleSet, parse_regex
from strandline.errors import InvalidInput
from strandline.pipeline.policy import delta
from tests.detect.fakes import KEY, TOKEN, engine, engine_of, hashed, only, spans
from tests.effort import examples

SECRET = b"abcdef0123456789"
TEXT = b"first\nx = tok_" + SECRET + b"\n"


def test_a_finding_says_where_and_what_without_the_bytes() -> None:
    found = only(engine().scan(TEXT, "a/b.txt"))
    assert (found.rule_id, found.start, found.end, found.line, found.column) == ("token", 14, 30, 2, 9)
    assert found.secret == hashed(SECRET)
    assert (found.via, found.path, found.comment) == ((), "a/b.txt", "")
    assert found.fingerprint == engine().policy.fingerprints["token"]


@pytest.mark.parametrize("data", [TEXT, bytearray(TEXT), memoryview(TEXT)])
def test_any_buffer_is_scanned(data: bytes) -> None:
    assert len(engine().scan(data).findings) == 1


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(InvalidInput):
        engine().scan("text")  # type: ignore[arg-type]


def test_the_first_group_that_is_not_empty_is_the_secret_unless_another_is_named() -> None:
    text = b"id=ab key=cd"
    assert spans(engine(Rule("r", "id=(x?)(?:[a-z]+) key=([a-z]+)")).scan(text)) == [("r", 10, 12)]
    assert spans(engine(Rule("r", "id=([a-z]+) key=([a-z]+)", secret_group=2)).scan(text)) == [("r", 10, 12)]
    assert spans(engine(Rule("r", "id=[a-z]+ key=[a-z]+")).scan(text)) == [("r", 0, 12)]


def test_entropy_is_asked_for_and_must_be_exceeded() -> None:
    assert entropy_bits(b"aaaa") == 0
    assert entropy_bits(b"abcd") == 2
    assert entropy_bits(b"") == 0
    rule = Rule("r", "key=([a-z]{8})", entropy=2.0)
    assert spans(engine(rule).scan(b"key=abcdabcd key=abcdefgh")) == [("r", 17, 25)]


def test_a_keyword_stands_near_the_match_in_any_case() -> None:
    rule = Rule("r", "[0-9a-f]{32}", keywords=("mailer",))
    digits = b"0123456789abcdef" * 2
    scan = engine(rule).scan
    assert spans(scan(b"MAILER " + digits)) == [("r", 7, 39)]
    assert spans(scan(digits + b" mailer")) == [("r", 0, 32)]
    assert not scan(b"mail " + digits).findings
    assert scan(b"mailer" + b" " * 1_018 + digits).findings
    assert not scan(b"mailer" + b" " * 1_019 + digits).findings


@pytest.mark.parametrize("regex", ["[0-9a-f]{32}", "(?i:klíč|hasło|ключ): [0-9a-f]{32}"])
@pytest.mark.parametrize("word", ["hasło", "Hasło", "HASŁO", "ключ", "Ключ", "КЛЮЧ", "klíč", "KLÍČ"])
def test_a_keyword_beyond_ascii_stands_there_in_any_case(regex: str, word: str) -> None:
    scanner = engine(Rule("r", regex, keywords=("hasło", "ключ", "klíč")))
    data = f"{word}: {'0123456789abcdef' * 2}".encode()
    assert scanner.may_find(data)
    assert len(scanner.scan(data).findings) == 1


def test_a_charset_holds_for_every_byte() -> None:
    rule = Rule("r", r"key=(\S{8})", charset="hex")
    assert spans(engine(rule).scan(b"key=0123abcd key=0123gbcd")) == [("r", 4, 12)]


@pytest.mark.parametrize("rule", [Rule("r", "abc", charset="nope"), Rule("r", "abc", validator="nope")])
def test_unknown_charsets_and_validators_are_refused(rule: Rule) -> None:
    with pytest.raises(RulesInvalid, match="nope"):
        engine(rule)


def test_a_rule_is_for_paths_and_a_path_alone_can_be_found() -> None:
    rules = (Rule("r", "key=([a-z]+)", path=r"\.env$"), Rule("file", path=r"(?i)id_rsa$"))
    scan = engine(*rules).scan
    assert spans(scan(b"key=abc", "x/.env")) == [("r", 4, 7)]
    assert not scan(b"key=abc", "x/.envrc").findings
    assert spans(scan(b"anything", "home/ID_RSA")) == [("file", 0, 0)]


def test_a_rule_without_keywords_reads_all_of_the_files_that_its_path_names_and_no_other() -> None:
    named = Rule("named", r"^([0-9]{4})$", path=r"\.pin$", secret_group=1)
    scanner = engine(TOKEN, named)
    assert spans(scanner.scan(b"1234", "a/.pin")) == [("named", 0, 4)]
    assert only(scanner.scan(b"1234", "a/.pin")).confidence == 2
    assert spans(scanner.scan(b"1234", "a/pin.txt")) == []
    assert scanner.notes == ()
    assert scanner.may_find(b"1234", ".pin")
    assert not scanner.may_find(b"1234", "other")
    assert scanner.suspects([b"1234", b"1234"], ["x", ".pin"]) == {1: None}
    assert set(scanner.scan_many([b"12", b"1234"], ".pin")) == {1}
    assert scanner.scan_many([b"12", b"1234"], "x") == {}


def test_a_path_that_no_database_takes_names_its_files_all_the_same() -> None:
    anywhere = Rule("anywhere", r"^([0-9]{4})$", path=r".*", secret_group=1)
    named = Rule("named", r"^([0-9]{4})$", path=r"\.pin$", secret_group=1)
    scanner = engine(anywhere, named)
    assert spans(scanner.scan(b"1234", "x")) == [("anywhere", 0, 4)]
    assert spans(engine(named).scan(b"1234", "a/.pin")) == [("named", 0, 4)]


@pytest.mark.parametrize(
    ("allowlist", "text", "path", "is_allowed"),
    [
        (Allowlist(regexes=("^exa",)), b"key=example", "", True),
        (Allowlist(regexes=("^key",)), b"key=example", "", False),
        (Allowlist(regexes=("^my_key=",), regex_target="match"), b"my_key=example", "", True),
        (Allowlist(regexes=("^a = my_key",), regex_target="line"), b"\na = my_key=example\n", "", True),
        (Allowlist(stopwords=("xamp",)), b"key=EXAMPLE", "", True),
        (Allowlist(paths=("test",)), b"key=example", "a/test/b", True),
        (Allowlist(commits=("abc123",)), b"key=example", "", True),
        (Allowlist(commits=("abc124",)), b"key=example", "", False),
        (Allowlist(paths=("test",), stopwords=("xamp",), all_of=True), b"key=example", "a/test", True),
        (Allowlist(paths=("test",), stopwords=("xamp",), all_of=True), b"key=example", "a", False),
        (Allowlist(paths=("test",), stopwords=("xamp",)), b"key=example", "a", True),
    ],
)
def test_an_allowlist_of_a_rule_or_of_all_allows(
    allowlist: Allowlist, text: bytes, path: str, is_allowed: bool
) -> None:
    rule = Rule("r", r"(?i)[\w.]{0,20}?key=([a-z]+)")
    of_rule = engine(Rule("r", rule.regex, allowlists=(allowlist,)))
    of_all = Engine(RuleSet((rule,), (allowlist,)), key=KEY)
    for each in (of_rule, of_all):
        assert (not each.scan(text, path, commit="ABC123").findings) is is_allowed


@pytest.mark.parametrize("comment", ["gitleaks:allow", "strandline:allow"])
def test_a_comment_on_the_line_marks_the_finding(comment: str) -> None:
    found = engine().scan(TEXT.rstrip() + f"  # {comment}\n".encode() + TEXT).findings
    assert [each.comment for each in found] == [comment, ""]


def test_a_validator_drops_what_it_refutes() -> None:
    valid_only = engine_of(
        """
        [[rules]]
        id = "jwt"
        regex = '''(ey[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]{4,}\\.[A-Za-z0-9_-]{4,})'''
        validator = "jwt"
        """
    )
    assert not valid_only.scan(b"eyAAAAAAAAAA.AAAA.AAAA").findings


def test_a_required_rule_must_match_near_by() -> None:
    helper = Rule("id", "user=([a-z]+)", skip_report=True)

    def scan(text: bytes, lines: int | None, columns: int | None) -> list[tuple[str, int, int]]:
        primary = Rule("key", "key=([a-z]+)", required=(Required("id", lines, columns),))
        return spans(engine(primary, helper).scan(text))

    text = b"key=aaa\n\nuser=bbb\n\n\n\n   key=ccc\n"
    assert scan(text, None, None) == [("key", 4, 7), ("key", 28, 31)]
    assert scan(text, 2, None) == [("key", 4, 7)]
    assert scan(text, 1, None) == []
    assert scan(text, None, 1) == [("key", 4, 7)]
    assert scan(text, 4, 2) == [("key", 4, 7), ("key", 28, 31)]
    assert scan(text, 4, 0) == []
    assert scan(b"key=aaa", None, None) == []


def test_a_rule_that_is_not_reported_is_not_reported() -> None:
    assert not engine(Rule("r", "key=([a-z]+)", skip_report=True)).scan(b"key=abc").findings


def test_the_rule_of_a_provider_speaks_before_a_generic_one() -> None:
    generic = Rule("a-generic", r"key=(\S+)")
    scan = engine(TOKEN, generic).scan
    assert spans(scan(b"key=tok_" + SECRET)) == [("token", 8, 24)]
    assert spans(scan(b"key=something tok_" + SECRET)) == [("a-generic", 4, 13), ("token", 18, 34)]


def test_of_two_rules_at_one_span_the_surer_speaks_and_then_the_first_by_name() -> None:
    sure = Rule("z", "key=([a-z]{4})", entropy=1.0)
    assert spans(engine(Rule("a", "key=([a-z]{4})"), sure).scan(b"key=abcd")) == [("z", 4, 8)]
    assert spans(engine(Rule("b", "key=([a-z]{4})"), Rule("a", "key=([a-z]{4})")).scan(b"key=abcd")) == [("a", 4, 8)]


def test_confidence_adds_up() -> None:
    rule = Rule("r", r"(?:t|tok_)([a-z0-9]{16})", entropy=2.0, keywords=("tok_",))
    assert only(engine(rule).scan(b"x = 'tok_" + SECRET)).confidence == 3
    rule = Rule("r", r"tok_=([a-z0-9]{16})", entropy=2.0, keywords=("tok_",))
    assert only(engine(rule).scan(b"tok_=" + SECRET)).confidence == 5
    rule = Rule("r", r"t([a-z0-9]{16})")
    assert only(engine(rule).scan(b" t" + SECRET)).confidence == 0


def test_findings_are_ordered_and_what_is_over_the_limit_is_counted() -> None:
    text = b" ".join(b"tok_%016d" % number for number in range(100))
    result = engine(limits=Limits(findings_max=10)).scan(text)
    assert [found.start for found in result.findings] == [4 + 21 * number for number in range(10)]
    assert result.coverage.findings_dropped == 90
    assert not result.coverage.is_whole


def test_findings_that_are_not_even_held_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b" ".join(b"tok_%016d" % number for number in range(1_000))
    held: list[Hit] = []

    def selected(hits: list[Hit], *_: object) -> list[Hit]:
        held.extend(hits)
        return hits

    monkeypatch.setattr("strandline.detect.engine.selected", selected)
    result = engine(limits=Limits(findings_max=10)).scan(text)
    assert result.coverage.findings_dropped == 990
    assert len(held) == 40


def test_a_match_is_at_most_as_long_as_the_limit() -> None:
    rule = Rule("r", r"BEGIN KEY ([a-z\s]+) END")
    scan = engine(rule, limits=Limits(match_bytes_max=64)).scan
    assert scan(b"BEGIN KEY " + b"a" * 50 + b" END").findings
    assert not scan(b"BEGIN KEY " + b"a" * 51 + b" END").findings
    rule = Rule("r", r"BEGIN KEY ([A-Za-z\s]+) END")
    scan = engine(rule, limits=Limits(match_bytes_max=64)).scan
    assert not scan(b"BEGIN KEY " + b"a" * 10 + b" END " + b"a" * 50 + b" END").findings


def test_the_edge_of_a_window_is_not_the_end_of_the_text() -> None:
    limits = Limits(match_bytes_max=64, keyword_radius=32)
    rules = (
        Rule("long", "tok_[a-z]*(?:;|$)"),
        Rule("weak", r"\b[0-9]{8}(?:;|$)", keywords=("pin",)),
        Rule("edge", r"end_[a-z]{4}\b"),
    )
    scan = engine(*rules, limits=limits).scan
    assert not scan(b"tok_" + b"a" * 300 + b"!").findings
    assert spans(scan(b"tok_" + b"a" * 30)) == [("long", 0, 34)]
    for gap in range(25, 45):
        assert not scan(b"pin" + b" " * gap + b"1" * 300).findings
    assert not scan(b"end_abcde").findings


def test_a_copy_from_a_pickle_finds_the_same_and_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = engine(TOKEN, Rule("weak", "[0-9a-f]{32}", keywords=("mail",)))
    data = pickle.dumps(first)
    monkeypatch.setattr("strandline.detect.matching.prefilter._compiled", None)
    second: Engine = pickle.loads(data)  # noqa: S301
    assert second.scan(TEXT) == first.scan(TEXT)
    assert second.policy.hash == first.policy.hash


def test_a_copy_reads_the_expression_of_a_rule_at_its_first_window(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (TOKEN, Rule("weak", "[0-9a-f]{32}", keywords=("mail",)), Rule("slow", r"key=(?:([a-z]+)+)+!"))
    first = engine(*rules, Rule("long", "[a-z]{40}"))
    data, read = pickle.dumps(first), list[str]()

    def counted(where: str, text: str) -> Node:
        read.append(where)
        return parse_regex(where, text)

    monkeypatch.setattr("strandline.detect.matching.prefilter.parse_regex", counted)
    monkeypatch.setattr("strandline.detect.matching.matcher.parse_regex", counted)
    second: Engine = pickle.loads(data)  # noqa: S301
    assert (second.notes, second.slow_rules) == (first.notes, first.slow_rules)
    assert (len(second.notes), second.slow_rules) == (2, ("slow",))
    assert pickle.dumps(second) == data
    assert not second.scan(b"nothing to see").findings
    assert read == []
    for _ in range(2):
        assert second.scan(TEXT) == first.scan(TEXT)
        assert read == ["rule 'token'"]
    for text in (b"key=abc!", b"mail " + b"0123456789abcdef" * 2, b"z" * 40):
        assert second.scan(text) == first.scan(text)
        assert second.scan(text).findings


def test_what_another_engine_saved_is_taken_only_by_one_of_the_same_rules_limits_and_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = engine().saved()
    other = RuleSet((Rule("other", "key_([a-z]{4})"),))
    assert spans(Engine(other, key=KEY, saved=saved).scan(b"key_abcd")) == [("other", 4, 8)]
    with pytest.raises(RegexInvalid, match="repeats are too many"):
        Engine(RuleSet((Rule("huge", "(?:(?:a{1,900}){1,900}b){1,900}"),)), key=KEY, saved=saved)
    assert Engine(RuleSet((TOKEN,)), Limits(match_bytes_max=64), key=KEY, saved=saved).saved() != saved
    nonsense = saved._replace(layout=saved.layout._replace(reaches=()))
    monkeypatch.setattr("strandline.detect.matching.saved_engine._code_digest", lambda: b"of other code")
    assert Engine(RuleSet((TOKEN,)), key=KEY, saved=nonsense).scan(TEXT).findings


def test_the_policy_follows_rules_limits_and_allowlists() -> None:
    base = RuleSet((TOKEN,))
    again = RuleSet((Rule(**{**vars(TOKEN), "description": "words", "examples": ("x",)}),))
    assert base.policy().hash == again.policy().hash
    changed = RuleSet((TOKEN, Rule("more", "more_[a-z]{8}")))
    step = delta(base.policy().record, changed.policy().record)
    assert (len(step.added), len(step.removed), step.rescan_all) == (1, 0, False)
    assert delta(base.policy().record, base.policy(Limits(decode_depth=2)).record).rescan_all
    allowed = RuleSet((TOKEN,), (Allowlist(stopwords=("x",)),))
    assert delta(base.policy().record, allowed.policy().record).rescan_all


def test_a_change_of_a_required_rule_changes_the_rule_that_requires_it() -> None:
    def policy(regex: str) -> bytes:
        rules = (Rule("a", "key=([a-z]+)", required=(Required("b"),)), Rule("b", regex))
        return RuleSet(rules).policy().fingerprints["a"]

    assert policy("id=[a-z]") != policy("id=[0-9]")


@examples(60)
@given(
    secret=st.text("abcdefghijklmnop0123456789", min_size=16, max_size=16),
    before=st.binary(max_size=60),
    after=st.binary(max_size=60),
    path=st.text(max_size=10),
)
def test_no_byte_of_a_secret_is_in_what_a_scan_returns(secret: str, before: bytes, after: bytes, path: str) -> None:
    result = ENGINE.scan(before + b" tok_" + secret.encode() + b" " + after, path)
    assert result.findings
    shown = repr(result).encode() + str(result).encode() + pickle.dumps(result) + pickle.dumps(ENGINE)
    assert secret.encode() not in shown
    assert secret.encode().hex().encode() not in shown
    assert bytes(hashed(secret.encode())).hex() not in repr(result)


ENGINE = engine()


def test_threads_may_share_an_engine() -> None:
    texts = [TEXT * 400 + b"%d" % number for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(ENGINE.scan, texts))
    assert results == [ENGINE.scan(text) for text in texts]


@examples(50)
@given(data=st.binary(max_size=2_000), path=st.text(max_size=20))
def test_any_bytes_give_the_same_result_twice(data: bytes, path: str) -> None:
    assert ENGINE.scan(data, path) == ENGINE.scan(data, path)


def test_an_expression_that_could_explode_is_matched_in_bounded_work() -> None:
    slow = engine(Rule("slow", r"key=(?:([a-z]+)+)+!"), limits=Limits(slow_steps_max=200_000))
    assert slow.slow_rules == ("slow",)
    assert slow.notes == ("rule 'slow': its expression could backtrack without bound, so the slow matcher handles it",)
    assert spans(slow.scan(b"key=abc!")) == [("slow", 4, 7)]
    begin = time.process_time()
    assert slow.scan(b"key=" + b"a" * 5_000).coverage.is_whole
    apart = b" " * 40_000
    assert slow.scan((b"key=" + b"a" * 16_000 + b"!" + apart) * 5).coverage.findings_dropped == 5
    assert time.process_time() - begin < 20


def test_a_rule_is_slow_by_any_of_its_expressions() -> None:
    slow = r"(?:([a-z]+)+)+!"
    rules = (
        Rule("regex", "key=" + slow),
        Rule("path", "tok_[a-z]{8}", path=slow),
        Rule("allowed", "tik_[a-z]{8}", allowlists=(Allowlist(regexes=(slow,)),)),
        Rule("allowed-path", "tak_[a-z]{8}", allowlists=(Allowlist(paths=(slow,)),)),
        Rule("quick", "tek_[a-z]{8}", path="a+", allowlists=(Allowlist(regexes=("b+",), paths=("c+",)),)),
    )
    assert engine(*rules).slow_rules == ("allowed", "allowed-path", "path", "regex")


def growth(work: Callable[[bytes], object], unit: bytes, bytes_min: int) -> float:
    """Return how many times the processor time of a size it takes for eight times the size.

    Each is the least of several attempts, and small sizes count as a few milliseconds: on a busy machine a time is too
    long by chance, and never too short.
    """
    sizes = [bytes_min * (1 << step) for step in range(4)]
    data = {size: unit * (size // len(unit)) for size in sizes}
    least = dict.fromkeys(sizes, math.inf)
    grown = math.inf
    for _ in range(5):
        for size in sizes:
            begin = time.process_time()
            work(data[size])
            least[size] = min(least[size], max(time.process_time() - begin, LEAST_S))
        grown = max(least[large] / least[small] * 8 * small / large for small, large in combinations(sizes, 2))
        if grown < LINEAR:
            break
    return grown


LEAST_S = 0.005
LINEAR = 20.0
"""Eight times the size may take so many times as long: 8 if it is linear, 64 if it is quadratic."""


@pytest.mark.parametrize(
    "unit",
    [b"key=", b"a", b"tok_", b"%41", b"\0a", b"QUJD", b"\n", b"tok_abcdef0123456789", b"A" * 33 + b" "],
    ids=["keys", "one letter", "prefixes", "percent", "utf-16", "base64", "lines", "tokens", "runs"],
)
def test_hostile_bytes_take_time_linear_in_their_size(unit: bytes) -> None:
    hostile = engine(
        TOKEN, Rule("generic", r"(?i)[\w.-]{0,50}?key(?:[ \w.-]{0,20})[\s'\"]{0,3}=[\s'\"]{0,5}([\w.=-]{10,150})")
    )
    assert growth(hostile.scan, unit, 16_000 if len(unit) == 20 else 64_000) < LINEAR


def test_time_that_grows_faster_than_the_size_is_noticed() -> None:
    assert growth(re.compile(rb"a*b").search, b"a", 2_000) > LINEAR


@pytest.mark.parametrize(("path", "commit"), [("a.lock", ""), ("a", "abcdef0")])
def test_an_item_that_is_allowed_whole_is_not_looked_into(path: str, commit: str) -> None:
    rules = RuleSet((TOKEN,), (Allowlist(paths=(r"\.lock$",), commits=("abcdef0",)),))
    broken = b"\x1f\x8b\x08 no archive"
    assert Engine(rules, key=KEY).scan(broken, path, commit).coverage.is_whole
    assert not Engine(rules, key=KEY).scan(broken, "other").coverage.is_whole
