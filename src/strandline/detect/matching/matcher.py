r"""The matcher of one rule: decides exactly whether a window holds a secret, and with which confidence.

A match counts if a keyword of its rule is near, its secret has the rule's characters and entropy, no allowlist,
comment or stop-word allows it, and the rule's validator does not refute it. Its confidence is the sum, 0 to 10, of

    +1  the rule asks for entropy, and the secret has it
    +2  a keyword of the rule stands in the match or close to it, or the file's name is what the rule asks for
    +2  the secret is assigned to something: after `=`, `:` or the like, quoted or not
    +5  the checksum of the secret is correct

but at most 2 for a generic rule's match near a NUL, because names and values of a binary are neighbours by chance; and
at most 4 for a generic rule's match that is short, follows an order or has signs as code has, because a name alone
makes it a secret; and at most 2 for words in the place of a password, which a person may have chosen or which may be a
label. So 5 (high) means a provider's form, a valid structure, or a long random value behind a name of a secret.

Invariants: expressions match the whole buffer, not a copy of the window, so that assertions (`^`, `\b`, `$`) see the
bytes around it; the confidence depends on the bytes around the secret alone; a hit holds a span, a keyed hash and a
confidence, and no byte of the secret.
"""

import math
import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from strandline.detect.expressions.linear import Spans, Work
from strandline.detect.expressions.nodes import Chars, Node, Repeat, Seq, members
from strandline.detect.expressions.patterns import Pattern
from strandline.detect.frames import Frame, Span
from strandline.detect.limits import Limits
from strandline.detect.matching.allowlists import CompiledAllowlist, Subject, path_pattern
from strandline.detect.matching.heads import head_of
from strandline.detect.matching.prefilter import keyword_forms
from strandline.detect.results import CONFIDENCE_MAX
from strandline.detect.rules.rule import Rule, parse_regex
from strandline.detect.tokens.encodings import from_base64
from strandline.detect.tokens.examples import CHARSETS
from strandline.detect.tokens.validators import Verdict, validate
from strandline.pipeline.identity import SecretHash, TenantSecretKey, norm_hash, secret_hash

CLOSE_BYTES = 32
_ASSIGNED = re.compile(rb"(?:=|:|=>|:=|<-|->|,|\()[ \t]{0,8}[a-zA-Z]{0,2}[\"'`]{0,3}\Z")
_BEFORE_BYTES = 16
_BINARY_MAX, _WEAK_MAX, _NAMED_MAX, _DOUBTFUL_MAX = 2, 2, 4, 1
_LOOSE = frozenset(
    {
        *("generic-token", "generic-password", "header-token", "uri-password", "command-password", "stored-secret"),
        *("chosen-password", "weak-password", "config-password", "setting-key"),
        *("argument-password", "state-secret", "weak-passphrase", "weak-variable"),
        "quoted-password",
    }
)
"""Validators of values that only their place makes secrets."""
_WORDS = frozenset({"weak-password", "config-password", "weak-passphrase", "weak-variable"})
"""Validators of words in the place of a password."""
_SIGNED = frozenset({"quoted-password"})
"""Validators of values that have signs as code has, so that none counts as a generated one."""
_RANDOM_BYTES = 24
_HEX = re.compile(rb"[0-9a-f-]+|[0-9A-F-]+")
_HEX_BITS, _RANDOM_BITS = 3.2, 3.9
_TEXT = re.compile(rb"[\x20-\x7e]+")


class Check(Enum):
    """The checks of a match, in their order."""

    LENGTH = "length"
    CHARACTERS = "characters"
    ENTROPY = "entropy"
    KEYWORD = "keyword"
    ALLOWLIST = "allow-list"
    VALIDATOR = "validator"


class Refusal(NamedTuple):
    """A match of a rule's expression that a check refused; `allowlist` is the number of the list that did."""

    rule: int
    start: int
    end: int
    match: Span
    check: Check
    allowlist: int = -1


class Hit(NamedTuple):
    """A confirmed secret in a buffer."""

    rule: int
    start: int
    end: int
    secret: SecretHash
    confidence: int


def entropy_bits(secret: bytes) -> float:
    """Return the Shannon entropy of some bytes, in bits per byte."""
    size = len(secret)
    counts = [secret.count(byte) for byte in set(secret)]
    return math.log2(size) - sum(count * math.log2(count) for count in counts) / size if size else 0.0


def split_lead(node: Node) -> tuple[int, int, Node]:
    """Return the set and count of a lazy optional run at the beginning, and the rest.

    Such a run decides where a match begins and nothing else; trying it at every byte is most of a match's cost.
    """
    match node:
        case Seq(items=(Repeat(item=Chars(mask=mask), low=0, high=int(high), greedy=False), *rest)):
            return mask, high, Seq(tuple(rest))
        case _:
            return 0, 0, node


class Matcher:
    """A compiled rule; one that is known to have quick expressions alone spares the proof."""

    def __init__(
        self,
        rule: Rule,
        number: int,
        limits: Limits,
        shared: tuple[CompiledAllowlist, ...],
        *,
        is_known_quick: bool = False,
    ) -> None:
        self.rule = rule
        self.number = number
        where = f"rule {rule.id!r}"
        self._limits = limits
        self._charset = CHARSETS[rule.charset].encode() if rule.charset else None
        mask, self._lead_max, tree = split_lead(parse_regex(where, rule.regex or ""))
        self._lead = bytes(members(mask))
        self._pattern = Pattern(where, tree, limits.match_bytes_max, is_known_quick=is_known_quick)
        self._head = head_of(tree) if self._pattern.is_quick else None
        self._keywords = tuple(word.encode().lower() for word in keyword_forms(rule.keywords))
        own = (CompiledAllowlist(allowlist, is_known_quick=is_known_quick) for allowlist in rule.allowlists)
        self._own = tuple(own)
        self._allowlists = (*self._own, *shared)
        self._path = None if rule.path is None else path_pattern(where, rule.path, is_known_quick=is_known_quick)

    @property
    def is_slow(self) -> bool:
        """Return whether an expression of the rule needs the matcher without backtracking."""
        is_path_quick = self._path is None or self._path.is_quick
        return not (self._pattern.is_quick and is_path_quick and all(own.is_quick for own in self._own))

    def takes_path(self, path: str, work: Work) -> bool:
        """Return whether the rule applies to items of a path."""
        return self._path is None or self._path.is_in(path.encode(errors="surrogateescape"), work)

    def judged(self, frame: Frame, start: int, end: int, key: TenantSecretKey, work: Work) -> Iterator[Hit | Refusal]:
        """Yield the matches in a window, in order: secrets, and what a check refused.

        Raises `Exhausted` if the work is used up.
        """
        # One byte more than any match in the window can take, so that no match ends at the edge.
        stop = min(len(frame.data), end + 1)
        for spans in self._matches(frame.data, start, stop, work):
            first, last = self._secret_span(spans)
            if first < last and spans[0][1] - spans[0][0] <= self._limits.match_bytes_max:
                yield self._judged(frame, spans[0], (first, last), key, work)
            else:
                yield Refusal(self.number, first, last, spans[0], Check.LENGTH)

    def _matches(self, data: bytes, start: int, stop: int, work: Work) -> Iterator[Spans]:
        """Return the matches of the expression in a window, looked for where its head stands, if it has one."""
        starts = None if self._head is None else self._head.starts(data, start, stop)
        if starts is None:
            return self._pattern.finditer(data, start, stop, work)
        return self._pattern.at_starts(data, starts, stop)

    def _secret_span(self, spans: Spans) -> Span:
        if self.rule.secret_group:
            return spans[self.rule.secret_group]
        return next((span for span in spans[1:] if span[0] < span[1]), spans[0])

    def _judged(self, frame: Frame, match: Span, span: Span, key: TenantSecretKey, work: Work) -> Hit | Refusal:
        data = frame.data
        secret = data[span[0] : span[1]]
        if self._charset is not None and secret.translate(None, self._charset):
            return Refusal(self.number, *span, match, Check.CHARACTERS)
        entropy = entropy_bits(secret) if self.rule.entropy else 0.0
        if self.rule.entropy and entropy <= self.rule.entropy:
            return Refusal(self.number, *span, match, Check.ENTROPY)
        distance = self._keyword_distance(data, *match) if self._keywords else None
        if distance is None and self._keywords:
            return Refusal(self.number, *span, match, Check.KEYWORD)
        subject = Subject(data, secret, self._begin(data, match[0]), match[1], frame.path, frame.commit, work)
        for number, allowlist in enumerate(self._allowlists):
            if allowlist.allows(subject):
                return Refusal(self.number, *span, match, Check.ALLOWLIST, number)
        verdict = validate(self.rule.validator, secret) if self.rule.validator else Verdict.UNKNOWN
        if verdict is Verdict.INVALID:
            return Refusal(self.number, *span, match, Check.VALIDATOR)
        is_named = self.rule.is_for_named_files
        score = _confidence(
            data, span[0], 0 if is_named else distance, entropy=bool(self.rule.entropy), valid=verdict is Verdict.VALID
        )
        if self.rule.is_generic:
            is_loose = self.rule.validator in _LOOSE and verdict is not Verdict.VALID
            score = min(score, _generic_max(data, match, secret, is_loose=is_loose))
            score = min(score, _WEAK_MAX) if self.rule.validator in _WORDS else score
            score = min(score, _NAMED_MAX) if self.rule.validator in _SIGNED else score
        score = min(score, _DOUBTFUL_MAX) if verdict is Verdict.DOUBTFUL else score
        return Hit(self.number, *span, secret_hash(key, norm_hash(secret)), score)

    def _begin(self, data: bytes, start: int) -> int:
        """Return the start of the match with the run that `split_lead` removed."""
        least = max(0, start - self._lead_max)
        while start > least and data[start - 1] in self._lead:
            start -= 1
        return start

    def _keyword_distance(self, data: bytes, start: int, end: int) -> int | None:
        """Return the distance of the nearest keyword from the match, 0 within it, None if none is near."""
        match = data[start:end].lower()
        if any(keyword in match for keyword in self._keywords):
            return 0
        radius = self._limits.keyword_radius
        before = data[max(0, start - radius) : start].lower()
        after = data[end : end + radius].lower()
        distances = [len(before) - at - len(word) for word in self._keywords if (at := before.rfind(word)) >= 0]
        distances += [at for word in self._keywords if (at := after.find(word)) >= 0]
        return min(distances, default=None)


def _confidence(data: bytes, start: int, keyword_distance: int | None, *, entropy: bool, valid: bool) -> int:
    """Return the confidence in a secret that begins at `start`."""
    assigned = _ASSIGNED.search(data[max(0, start - _BEFORE_BYTES) : start]) is not None
    is_close = keyword_distance is not None and keyword_distance <= CLOSE_BYTES
    return 1 * entropy + 2 * is_close + 2 * assigned + 5 * valid


def _generic_max(data: bytes, match: Span, secret: bytes, *, is_loose: bool) -> int:
    """Return the most that a generic rule's match can be worth."""
    if _is_in_binary(data, *match):
        return _BINARY_MAX
    return _NAMED_MAX if is_loose and not _is_random(secret) else CONFIDENCE_MAX


def _is_random(secret: bytes) -> bool:
    """Return whether a value is long and has as many different characters as a generated one of its length."""
    if len(secret) < _RANDOM_BYTES or not re.search(rb"[0-9].*[0-9].*[0-9]", secret, re.DOTALL):
        return False
    text = from_base64(secret) if secret.endswith(b"=") else None
    if text is not None and _TEXT.fullmatch(text):  # words, written as base64
        return False
    return entropy_bits(secret) >= (_HEX_BITS if _HEX.fullmatch(secret) else _RANDOM_BITS)


def _is_in_binary(data: bytes, start: int, end: int) -> bool:
    """Return whether a NUL stands near a span: there names and values are neighbours by chance."""
    return data.find(b"\0", max(0, start - CLOSE_BYTES), end + CLOSE_BYTES) >= 0
