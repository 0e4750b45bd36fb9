"""The prefilter: one hyperscan database over all rules, which finds the few windows that may hold a match.

A rule's expression is cut to its selective part: optional parts at its ends, and everything after a wide gap, are left
to the confirmation. A rule without a literal is found by its keywords. A rule that hyperscan refuses falls back to its
keywords, or to the whole text; `Layout.notes` says so. A rule for named files has no part in it. The
edges of a text count as those of a line, so that many texts may be filtered as the lines of one (`Prefilter.ends`).

Invariants: every match of a rule, of at most `match_bytes_max` bytes, lies within one window of that rule; windows
of a rule do not overlap and come in order; they depend on the bytes alone. Work is linear in the bytes, and memory
in the chunk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from strandline.detect.errors import RulesInvalid
from strandline.detect.expressions.nodes import (
    EMPTY,
    Alt,
    At,
    Chars,
    Group,
    Node,
    Place,
    Repeat,
    Seq,
    children,
    literal,
    to_hyperscan,
    union,
    width,
)
from strandline.detect.limits import KIB, Limits
from strandline.detect.matching.databases import FIRST_ONLY, Database
from strandline.detect.matching.saved_engine import Layout, Reach, SavedEngine
from strandline.detect.rules.rule import Rule, parse_regex

CHUNK_BYTES = 512 * KIB
LITERAL_MIN = 3
GAP_MIN, OPEN_MIN = 256, 96
_WORDED_WIDTH_MAX = 256
SIZE_MAX = 4_000
"""Beyond this many states hyperscan takes minutes to refuse an expression."""
_ESCAPES = rb"[0-9A-Za-z+/=:]\\/[0-9A-Za-z+/\\]|\\u00[2-7][0-9A-Fa-f]|\\x22|&quot;|&#(?:3[49]|47|61|x2[27Ff]|x3[Dd]);"
_JOINS = rb"(?:\" ?[+.&] ?\"|' ?[+.&] ?'|[\"'] ?[+.&]\r?\n[ \t]{0,40}[\"']|[\"']\r?\n[ \t]{1,40}(?:[+.&] ?)?[\"'])"
STRING_MARK = _ESCAPES + rb"|[0-9A-Za-z_+/=-]{6}" + _JOINS + rb"[0-9A-Za-z_+/=-]{4}"
_STRING_HINT = _ESCAPES + rb"|\" [+.&]|\"[+.&]\"|' [+.&]|'[+.&]'|\"\r?\n    |'\r?\n    "
"""What a buffer with a `STRING_MARK` has; literals cost a scan of all bytes less than the classes of the mark."""
TITLE_MARK = (
    rb"(?i)(?:pass(?:word|wd|phrase|code|wort)?|pwd|secret|token|key|credentials?)"
    rb"[ _-]?(?:value|key|plain(?:text)?|[0-9])?[\"'`*]{0,2}[ \t]{0,40}(?:[,;|\t]|\r?\n)"
)
GRID_MARK = rb"-{2}:?[ \t]{0,4}[|+]"
INSERT_MARK, COPY_MARK = rb"(?i)insert\s{1,8}(?:ignore\s{1,8})?into\s", rb"(?i)\)\s{1,8}from\s{1,8}stdin"
_MARKS = (
    rb"[A-Za-z0-9+/_\-]{32}",
    rb"%[0-9A-Fa-f]{2}",
    _STRING_HINT,
    TITLE_MARK,
    GRID_MARK,
    b"%b|%b" % (INSERT_MARK, COPY_MARK),
)
RUN, PERCENT, STRING, CSV, GRID, SQL = range(6)
"""Marks of a buffer, with the end of the first: a long run of base64 or hexadecimal digits; a percent escape; an escape
in a string of JSON or a page, or a string of two literals; the name of a column of a CSV file; the line of dashes under
the names of a table; a statement of SQL that has rows."""
TABLES = frozenset({CSV, GRID, SQL})
TABLE_MARKS = {mark: _MARKS[mark] for mark in sorted(TABLES)}

_EDGES = {Place.TEXT_START: Place.LINE_START, Place.TEXT_END: Place.LINE_END}


Matches: TypeAlias = Sequence[tuple[int, int]]
"""The matches of the database in one buffer of at most `CHUNK_BYTES`: ends and numbers of expressions, sorted."""


class Window(NamedTuple):
    """A candidate span of the buffer, and the number of the rule that may match there."""

    rule: int
    start: int
    end: int


class SplitMatches(NamedTuple):
    """Matches of the database: the ends of those of rules' own expressions, those of keywords, and marks."""

    own: list[int]
    words: list[tuple[int, int]]
    marks: dict[int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """The database expression of a rule, and the distance that its matches may extend around a hit."""

    expression: bytes
    rules: tuple[int, ...]
    before: int
    after: int
    size: int = 0


def plan(rule: Rule, number: int, whole: Node, limits: Limits) -> Probe | None:
    """Return the probe of a rule's own expression, or None if its keywords are more selective."""
    head = trimmed_tail(cut_at_gap(joinable(whole)))
    core = trimmed_head(head)
    least, _ = width(core)
    if not least or _keywords_tell_more(rule, core, whole):
        return None
    after = _capped(width(whole)[1], limits) - min(least, limits.match_bytes_max)
    expression = to_hyperscan(loosened(unbounded(core)))
    return Probe(expression, (number,), _capped(width(head)[1], limits), after, size(core))


def _keywords_tell_more(rule: Rule, core: Node, whole: Node) -> bool:
    """Return whether the keywords of a rule stand in fewer places than the literals of its expression.

    A short literal is in most files, and each place of it starts an automaton; a word twice as long is rare. Windows
    of keywords all have the reach of the widest rule, so a wide one keeps its expression.
    """
    if not rule.keywords:
        return False
    shortest, known = min(map(len, rule.keywords)), literal(core)
    if known < LITERAL_MIN:
        return shortest >= LITERAL_MIN
    most = width(whole)[1]
    return known == LITERAL_MIN and shortest >= 2 * LITERAL_MIN and most is not None and most <= _WORDED_WIDTH_MAX


def unbounded(node: Node) -> Node:
    """Return a tree that matches more: gaps close to its beginning, in choices and repeats too, have no upper bound.

    Hyperscan 5.4.12 misses matches behind the first bytes of a text if such a gap is empty: `cfkey1` of
    `(?:cloudflare|cf)[a-z]{0,12}key[0-9]`. It looks back from the literal `key` by a bounded number of bytes.
    """
    old = node.items if isinstance(node, Seq) else (node,)
    items, is_open = list(old), False
    for at, item in enumerate(old):
        is_named = literal(Seq(old[:at])) >= LITERAL_MIN
        if is_open and is_named:
            break
        match item:
            case Repeat(item=Chars(), low=0, high=int()):
                items[at], is_open = Repeat(item.item, 0, None), True
            case Alt(options=options) if not is_named:
                items[at] = Alt(tuple(map(unbounded, options)))
            case Repeat(item=inner, low=low, high=high) if not is_named:
                items[at] = Repeat(unbounded(inner), low, high)
        if literal(item) >= LITERAL_MIN:
            break
    return Seq(tuple(items)) if isinstance(node, Seq) else items[0]


def loosened(node: Node, *, is_optional: bool = False) -> Node:
    """Return a tree that matches more with fewer states: in optional parts, runs of a class have no upper bound."""
    match node:
        case Repeat(item=Chars(), low=low, high=int(high)) if is_optional and low < high:
            return Repeat(node.item, low, None)
        case Repeat(item=item, low=low):
            return Repeat(loosened(item, is_optional=low == 0), low, node.high)
        case Seq(items=items):
            return Seq(tuple(loosened(item, is_optional=is_optional) for item in items))
        case Alt(options=options):
            return Alt(tuple(loosened(option, is_optional=is_optional) for option in options))
        case _:
            return node


def size(node: Node) -> int:
    """Return the approximate number of states of an expression, its repeats written out."""
    match node:
        case Repeat(item=item, low=low, high=high):
            most = low + 1 if high is None else high
            return min(most, 64) if isinstance(item, Chars) else size(item) * most
        case Chars() | At():
            return 1
        case _:
            return sum(map(size, children(node)))


def _capped(most: int | None, limits: Limits) -> int:
    return limits.match_bytes_max if most is None else min(most, limits.match_bytes_max)


def stripped(node: Node) -> Node:
    """Return a tree without its groups, sequences flattened."""
    match node:
        case Group(item=item):
            return stripped(item)
        case Seq(items=items):
            flat: list[Node] = []
            for item in map(stripped, items):
                flat.extend(item.items if isinstance(item, Seq) else (item,))
            return Seq(tuple(flat))
        case Alt(options=options):
            return Alt(tuple(map(stripped, options)))
        case Repeat(item=item):
            return Repeat(stripped(item), node.low, node.high)
        case _:
            return node


def joinable(node: Node) -> Node:
    """Return a tree without groups whose matches in a text of lines are those in each line alone."""
    match node:
        case At(place=place):
            return At(_EDGES.get(place, place))
        case Seq(items=items):
            return Seq(tuple(map(joinable, items)))
        case Alt(options=options):
            return Alt(tuple(map(joinable, options)))
        case Repeat(item=item):
            return Repeat(joinable(item), node.low, node.high)
        case _:
            return node


def cut_at_gap(node: Node) -> Node:
    """Return the part before the first wide gap of almost any bytes, if that part is selective enough alone."""
    if not isinstance(node, Seq):
        return node
    for at, item in enumerate(node.items):
        least, most = width(item)
        is_open = union(item).bit_count() >= OPEN_MIN
        if is_open and (most is None or most - least > GAP_MIN):
            head = Seq(node.items[:at])
            return head if literal(head) > LITERAL_MIN else node
    return node


def trimmed_tail(node: Node) -> Node:
    """Return the tree without its optional tail: it ends with a required part."""
    match node:
        case At():
            return EMPTY
        case Repeat(item=item, low=low, high=high):
            return node if low == high else Repeat(item, low, low) if low else EMPTY
        case Alt(options=options):
            return Alt(tuple(map(trimmed_tail, options))) if width(node)[0] else EMPTY
        case Seq(items=items):
            for at in range(len(items) - 1, -1, -1):
                tail = trimmed_tail(items[at])
                if width(tail)[0]:
                    return Seq((*items[:at], tail))
            return EMPTY
        case _:
            return node


def trimmed_head(node: Node) -> Node:
    """Return the tree without its optional head: it begins with a required part; a leading assertion stays."""
    match node:
        case Repeat(item=item, low=low, high=high):
            return node if low == high else Repeat(item, low, low) if low else EMPTY
        case Alt():
            return node if width(node)[0] else EMPTY
        case Seq(items=items):
            for at, item in enumerate(items):
                head = trimmed_head(item)
                if isinstance(item, At) or width(head)[0]:
                    return Seq((head, *items[at + 1 :]))
            return EMPTY
        case _:
            return node


class _Compiled:
    """The planned probes of a prefilter's rules, and their database."""

    def __init__(self, rules: Sequence[Rule], limits: Limits) -> None:
        self._rules = rules
        self._limits = limits
        searched = {number: rule for number, rule in enumerate(rules) if not rule.is_for_named_files}
        self._trees = {number: _tree(rule) for number, rule in searched.items() if rule.regex is not None}
        planned = [plan(rules[number], number, tree, limits) for number, tree in self._trees.items()]
        self._own = [probe for probe in planned if probe is not None]
        self._arrange(frozenset(probe.rules[0] for probe in self._own if probe.size > SIZE_MAX))
        self.database = self._compile()

    def _compile(self) -> Database:
        """Return the database; rules that hyperscan refuses are found by bisection and use their keywords."""
        database = _compiled(self._probes)
        if database is None:
            self._arrange(self._refused | _refused(self._own))
            database = _compiled(self._probes)
        if database is None:
            raise RulesInvalid("the rules", "hyperscan cannot compile all of them together", hint="use fewer rules")
        return database

    def _arrange(self, refused: frozenset[int]) -> None:
        self._refused = refused
        self._own = [probe for probe in self._own if probe.rules[0] not in refused]
        self._worded = frozenset(self._trees.keys() - {probe.rules[0] for probe in self._own})
        words = {number: keyword_forms(self._rules[number].keywords) for number in self._worded}
        self._whole = tuple(sorted(number for number, keywords in words.items() if not keywords))
        self._probes = self._own + _word_probes(words, self._trees, self._limits)

    def layout(self) -> Layout:
        """Return the meaning of the database's matches."""
        notes = (self._note(self._rules[number], number, tree) for number, tree in self._trees.items())
        reaches = tuple(Reach(probe.rules, probe.before, probe.after) for probe in self._probes)
        return Layout(reaches, self._whole, self._worded, tuple(note for note in notes if note))

    def _note(self, rule: Rule, number: int, tree: Node) -> str | None:
        """Return a note if a rule costs more than others."""
        if number in self._refused or number in self._whole:
            why = "is too large for the prefilter" if number in self._refused else "can match nothing"
            where = "around its keywords" if rule.keywords else "everywhere, which is slow"
            return f"rule {rule.id!r}: its expression {why}, so it is matched {where}"
        if number not in self._worded and literal(tree) < LITERAL_MIN:
            return f"rule {rule.id!r}: its expression has no selective literal, which slows every scan"
        return None


class Prefilter:
    """The database of some rules; `saved` spares planning and compiling them again."""

    def __init__(self, rules: Sequence[Rule], limits: Limits, saved: SavedEngine | None = None) -> None:
        self._rules = rules
        database = None if saved is None else Database.loaded(saved.database)
        if saved is None or database is None:
            compiled = _Compiled(rules, limits)
            self._database, self.layout = compiled.database, compiled.layout()
        else:
            self._database, self.layout = database, saved.layout
        reaches, worded = enumerate(self.layout.reaches, len(_MARKS)), self.layout.worded
        self._words = frozenset(number for number, reach in reaches if worded.issuperset(reach.rules))
        self.is_from_saved = database is not None
        self._overlap = max((reach.before for reach in self.layout.reaches), default=0) + 1
        self._saved_checks = dict(saved.checks if saved is not None and database is not None else ())
        self._checks: dict[int, Database | None] = {}

    def dumped(self) -> bytes:
        """Return the database as bytes that another process can load."""
        return self._database.dumped()

    def dumped_checks(self) -> tuple[tuple[int, bytes], ...]:
        """Return the databases of single rules, by their numbers; of a rule that hyperscan refuses, no bytes."""
        checks = [(number, self._check(number)) for number in sorted(self.layout.worded)]
        return tuple((number, b"" if check is None else check.dumped()) for number, check in checks)

    @property
    def is_everywhere(self) -> bool:
        """Return whether some rule is matched everywhere, regardless of the prefilter."""
        return bool(self.layout.whole)

    def split(self, matches: Matches) -> "SplitMatches":
        """Return matches by what they say."""
        marks, own, words = dict[int, int](), list[int](), list[tuple[int, int]]()
        for match in matches:
            end, number = match
            if number < len(_MARKS):
                marks.setdefault(number, end)
            elif number in self._words:
                words.append(match)
            else:
                own.append(end)
        return SplitMatches(own, words, marks)

    def has_window(self, data: bytes, matches: Matches) -> bool:
        """Return whether a buffer of at most `CHUNK_BYTES` has a window, by its matches."""
        return next(self.sweep(data, matches).windows(), None) is not None

    def matches(self, data: bytes) -> Matches:
        """Return the matches in a buffer."""
        return self._database.found(data)

    def sweep(self, data: bytes, matches: Matches | None = None) -> "Sweep":
        """Return a pass over a buffer; its `matches`, where they are known, spare reading it again."""
        known = matches if len(data) <= CHUNK_BYTES else None
        return Sweep(data, self._database, self.layout, self._overlap, self._check, known)

    def _check(self, number: int) -> Database | None:
        """Return the database of one rule alone, which is loaded or compiled for the rule's first keyword window."""
        if number not in self.layout.worded:
            return None
        if number not in self._checks:
            known = self._saved_checks.get(number)
            loaded = Database.loaded(known) if known else None
            is_refused = known == b""
            self._checks[number] = loaded if loaded or is_refused else _check(_tree(self._rules[number]))
        return self._checks[number]


class Sweep:
    """One pass over a buffer: its windows, and then its marks."""

    def __init__(
        self,
        data: bytes,
        database: Database,
        layout: Layout,
        overlap: int,
        check: Callable[[int], Database | None],
        matches: Matches | None,
    ) -> None:
        self.marks: dict[int, int] = {}
        self._data = data
        self._database = database
        self._layout = layout
        self._overlap = overlap
        self._check = check
        self._matches = matches

    def windows(self) -> Iterator[Window]:
        """Yield the windows; of one rule they come in order and do not overlap."""
        last = len(self._data)
        open_: dict[int, list[int]] = {rule: [0, last] for rule in self._layout.whole}
        for end, reach in self._hits():
            start, stop = max(0, end - reach.before), min(last, end + reach.after)
            for rule in reach.rules:
                window = open_.get(rule)
                if window is not None and start <= window[1]:
                    window[1] = max(window[1], stop)
                else:
                    if window is not None and self._holds(rule, *window):
                        yield Window(rule, *window)
                    open_[rule] = [start, stop]
        for rule in sorted(open_):
            if self._holds(rule, *open_[rule]):
                yield Window(rule, *open_[rule])

    def _holds(self, rule: int, start: int, end: int) -> bool:
        """Return whether a keyword window can hold a match of the rule's own expression."""
        check = self._check(rule)
        if check is None:
            return True
        return bool(check.found(memoryview(self._data)[start:end]))

    def _hits(self) -> Iterator[tuple[int, Reach]]:
        """Yield the matches of probes, sorted by end."""
        data, reaches = self._data, self._layout.reaches
        for at in range(0, len(data), CHUNK_BYTES):
            begin = max(0, at - self._overlap)
            chunk = data if len(data) <= CHUNK_BYTES else memoryview(data)[begin : at + CHUNK_BYTES]
            for end, number in self._database.found(chunk) if self._matches is None else self._matches:
                if number < len(_MARKS):
                    self.marks.setdefault(number, begin + end)
                elif begin + end > at:
                    yield begin + end, reaches[number - len(_MARKS)]


def _tree(rule: Rule) -> Node:
    return stripped(parse_regex(f"rule {rule.id!r}", rule.regex or ""))


def _check(tree: Node) -> Database | None:
    """Return a database of one rule alone, for keyword windows; None if hyperscan refuses it."""
    core = trimmed_head(trimmed_tail(tree))
    if not width(core)[0] or size(core) > SIZE_MAX:
        return None
    return Database.compiled([to_hyperscan(unbounded(core))], [FIRST_ONLY])


def keyword_forms(keywords: Iterable[str]) -> tuple[str, ...]:
    """Return keywords in the cases of their letters beyond ASCII: the case of bytes is that of ASCII alone."""
    forms = ((word,) if word.isascii() else (word, word.capitalize(), word.upper()) for word in keywords)
    return tuple(dict.fromkeys(chain.from_iterable(forms)))


def _word_probes(words_of: Mapping[int, Iterable[str]], trees: Mapping[int, Node], limits: Limits) -> list[Probe]:
    """Return a probe for each keyword; all have the same reach, so that windows come in order."""
    rules_of: dict[str, list[int]] = {}
    for number, words in sorted(words_of.items()):
        for word in words:
            rules_of.setdefault(word, []).append(number)
    reach = max((_capped(width(trees[number])[1], limits) for number in words_of), default=0)
    reach += limits.keyword_radius + max((len(word.encode()) for word in rules_of), default=0)
    return [
        Probe(b"(?i)" + b"".join(b"\\x%02x" % byte for byte in word.encode()), tuple(rules), reach, reach)
        for word, rules in sorted(rules_of.items())
    ]


def _refused(probes: Sequence[Probe]) -> frozenset[int]:
    """Return the rules whose expression does not compile, found by bisection."""
    if not probes or _compiled(probes) is not None:
        return frozenset()
    if len(probes) == 1:
        return frozenset(probes[0].rules)
    half = len(probes) // 2
    return _refused(probes[:half]) | _refused(probes[half:])


def _compiled(probes: Sequence[Probe]) -> Database | None:
    expressions = [*_MARKS, *(probe.expression for probe in probes)]
    return Database.compiled(expressions, [FIRST_ONLY] * len(_MARKS) + [0] * len(probes))
