"""The scan of one item: prefilter, confirmation, views, members, and the selection of findings.

Invariants: the same bytes under the same policy give the same result, on any machine and in any order; an engine
holds no byte that it scanned; it pickles by its inputs. The first engine of a rule set refuses rules that cannot run;
an engine made from a `SavedEngine` compiles a rule at the rule's first window.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from strandline.detect.archives.members import UnpackBudget, kind_of, members
from strandline.detect.batch_prefilter import suspects
from strandline.detect.explanation import Explanation, Trace
from strandline.detect.expressions.linear import Exhausted, Work
from strandline.detect.frames import Frame, Span
from strandline.detect.limits import Limits
from strandline.detect.matching.allowlists import CompiledAllowlist, comment_on
from strandline.detect.matching.databases import dumped_fixed, keep_fixed
from strandline.detect.matching.matcher import Hit, Matcher
from strandline.detect.matching.named_files import NamedFiles
from strandline.detect.matching.prefilter import Matches, Prefilter, Sweep
from strandline.detect.matching.saved_engine import SavedEngine, maker_of
from strandline.detect.matching.selection import Known, news, selected
from strandline.detect.results import Coverage, Found, ItemResult
from strandline.detect.revealed import Revealed, RevealingTrace
from strandline.detect.rules.rule import RuleSet
from strandline.detect.views.decoders import DecodeBudget, views
from strandline.errors import InvalidInput
from strandline.pipeline.identity import SecretHash, TenantSecretKey, norm_hash, secret_hash
from strandline.pipeline.policy import Policy

_HELD_TIMES = 4
"""Candidates kept before selection, as a multiple of the findings that an item may have."""


class Engine:
    """Compiled rules; `notes` lists the rules that slow a scan down.

    `slow_rules` use the matcher without backtracking; all of them share one bound of work per item
    (`Limits.slow_steps_max`).
    """

    def __init__(
        self, rules: RuleSet, limits: Limits | None = None, *, key: TenantSecretKey, saved: SavedEngine | None = None
    ) -> None:
        self.rules = rules
        self.limits = limits or Limits()
        self.policy: Policy = rules.policy(self.limits)
        self._key = key
        self._maker = maker_of(self.policy.hash)
        known = saved if saved is not None and saved.maker == self._maker else None
        keep_fixed(known.fixed if known else ())
        self._shared = tuple(CompiledAllowlist(allowlist) for allowlist in rules.allowlists)
        self._for_files = [allowlist for allowlist in self._shared if allowlist.is_for_files]
        self._matchers: dict[int, Matcher] = {}
        self._known_slow = frozenset(known.slow_rules) if known else None
        numbers = range(len(rules.rules))
        self._named_numbers = [number for number in numbers if rules.rules[number].is_for_named_files]
        self._for_paths = [self._matcher(number) for number in numbers if rules.rules[number].regex is None]
        paths = [rules.rules[number].path or "" for number in self._named_numbers]
        self._named_files = NamedFiles(paths, known.paths if known else b"")
        slow = known.slow_rules if known else (each.rule.id for each in map(self._matcher, numbers) if each.is_slow)
        self.slow_rules: tuple[str, ...] = tuple(slow)
        self._prefilter = Prefilter(rules.rules, self.limits, known)
        self.is_from_saved: bool = self._prefilter.is_from_saved and self._named_files.is_from_saved
        """Whether `saved` was this engine's in full, and nothing was compiled."""
        self.notes: tuple[str, ...] = (*self._prefilter.layout.notes, *map(_slow_note, self.slow_rules))

    def _matcher(self, number: int) -> Matcher:
        """Return the matcher of a rule; threads that make one at once make the same."""
        matcher = self._matchers.get(number)
        if matcher is None:
            rule, slow = self.rules.rules[number], self._known_slow
            is_known_quick = slow is not None and rule.id not in slow
            matcher = Matcher(rule, number, self.limits, self._shared, is_known_quick=is_known_quick)
            self._matchers[number] = matcher
        return matcher

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.rules, self.limits, self._key, self.saved())

    def saved(self) -> SavedEngine:
        """Return the compiled form, which spares another engine of the same rules and limits the compilation."""
        prefilter = self._prefilter
        paths, checks = self._named_files.dumped(), prefilter.dumped_checks()
        databases = paths, checks, dumped_fixed()
        return SavedEngine(self._maker, prefilter.dumped(), prefilter.layout, self.slow_rules, *databases)

    def __repr__(self) -> str:
        return f"Engine({len(self.rules.rules)} rules)"

    def scan(
        self,
        data: bytes | bytearray | memoryview,
        path: str = "",
        commit: str = "",
        *,
        matches: Matches | None = None,
    ) -> ItemResult:
        """Return the findings and the coverage of an item.

        `commit` is for allowlists that name one; `matches`, what `suspects` found in these bytes, spares looking again.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput("an item is bytes")
        scan = _ItemScan(self.limits)
        self._scan_file(Frame(data if isinstance(data, bytes) else bytes(data), path, commit), scan, matches)
        return scan.result()

    def explain(self, data: bytes, path: str = "", commit: str = "") -> Explanation:
        """Return what `scan` returns, with the matches that it dismissed and why."""
        trace = Trace(self.rules, self.limits)
        scan = _ItemScan(self.limits, trace)
        self._scan_file(Frame(data, path, commit), scan)
        return trace.explanation(scan.result())

    def reveal(self, data: bytes, wanted: Container[SecretHash], path: str = "", commit: str = "") -> list[Revealed]:
        """Return the wanted secrets of an item with their bytes; see `strandline.detect.revealed`."""
        trace = RevealingTrace(self.rules, self.limits, wanted)
        self._scan_file(Frame(data, path, commit), _ItemScan(self.limits, trace))
        return trace.revealed

    def may_find(self, data: bytes, path: str = "") -> bool:
        """Return whether a scan of an item may find something or skip something, by the prefilter alone.

        False means that the item needs no scan.
        """
        return bool(self.suspects([data], [path]))

    def suspects(self, items: Sequence[bytes], paths: Sequence[str]) -> dict[int, Matches | None]:
        """Return the positions of the items that need a scan, by one pass of the prefilter over all of them.

        Large ones come with their matches, for `scan`. A scan of any other item finds nothing, and its coverage is
        complete.
        """
        named = suspects(items, self._prefilter, self.limits)
        some = range(len(paths)) if self._for_paths else self._named_files.positions(paths)
        more = [number for number in some if number not in named and self._takes_path(paths[number])]
        return dict(sorted((named | dict.fromkeys(more)).items())) if more else named

    def scan_many(self, cells: Sequence[bytes], path: str = "", commit: str = "") -> dict[int, ItemResult]:
        """Return the results of `scan` for many small values of one path, by position.

        A value without an entry has no finding and complete coverage.
        """
        if not all(issubclass(kind, bytes) for kind in set(map(type, cells))):
            raise InvalidInput("an item is bytes")
        numbers: dict[int, Matches | None] = dict.fromkeys(range(len(cells)))
        if not self._takes_path(path):
            numbers = suspects(cells, self._prefilter, self.limits)
        results = ((number, self.scan(cells[number], path, commit, matches=known)) for number, known in numbers.items())
        return {number: result for number, result in results if result.findings or not result.coverage.is_whole}

    def _takes_path(self, path: str) -> bool:
        """Return whether a rule finds an item by its path alone, or reads all of it because of its path."""
        work = Work(self.limits.slow_steps_max)
        return any(matcher.takes_path(path, work) for matcher in (*self._for_paths, *self._of_named(path)))

    def _of_named(self, path: str) -> list[Matcher]:
        """Return the rules for named files that a path may be for."""
        return [self._matcher(self._named_numbers[at]) for at in self._named_files.numbers(path)]

    def _scan_file(self, frame: Frame, scan: "_ItemScan", matches: Matches | None = None) -> None:
        """Scan the item or a member of it; its views share one decode budget."""
        budget = DecodeBudget(self.limits, self.limits.views_total_max)
        scan.bytes_seen += len(frame.data)
        self._scan(frame, scan, budget, matches=matches)
        scan.decodes_skipped += budget.skipped

    def _scan(
        self,
        frame: Frame,
        scan: "_ItemScan",
        budget: DecodeBudget,
        known: tuple[Known, ...] = (),
        matches: Matches | None = None,
    ) -> None:
        """Scan a frame and the frames inside it; for a view, `known` has the hits of its enclosing frames."""
        if any(allowlist.allows_file(frame.path, frame.commit, scan.work) for allowlist in self._for_files):
            if scan.trace is not None:
                scan.trace.allowed_file(frame)
            return
        rules, marks = self.rules.rules, dict[int, int]()
        all_hits = list(self._hits(frame, scan, self._prefilter.sweep(frame.data, matches), marks))
        hits = selected(all_hits, rules, lambda hit: frame.lines.locate(hit.start)) if all_hits else []
        if scan.trace is not None:
            scan.trace.unselected(frame, all_hits, hits)
        kind = kind_of(frame.data)
        if kind is not None:
            self._scan_members(kind, frame, scan)
        fresh = news(frame, hits, known, rules) if known else hits
        if scan.trace is not None:
            scan.trace.repeated(frame, hits, fresh)
        hits = fresh
        if hits:
            scan.add([self._found(frame, hit) for hit in hits], unless_known=kind is not None)
        if kind is None and (marks or b"\0" in frame.data):
            inside = (*known, Known(frame, hits))
            for view in views(frame.data, marks, budget, is_too_deep=frame.decodes >= self.limits.decode_depth):
                self._scan(frame.view(*view), scan, budget, inside)

    def _scan_members(self, kind: str, frame: Frame, scan: "_ItemScan") -> None:
        if frame.depth_of(kind) > self.limits.archive_depth:
            scan.unpack_budget.skipped += 1
            return
        for member in members(kind, frame.data, scan.unpack_budget):
            self._scan_file(frame.member(kind, *member), scan)

    def _hits(self, frame: Frame, scan: "_ItemScan", sweep: Sweep, marks: dict[int, int]) -> Iterator[Hit]:
        """Yield the hits that rules confirm in a frame, up to the bound, and collect the marks that views need."""
        held = self.limits.findings_max * _HELD_TIMES
        if frame.is_file:
            for matcher in self._for_paths:
                if matcher.takes_path(frame.path, scan.work):
                    yield Hit(matcher.number, 0, 0, secret_hash(self._key, norm_hash(b"")), 0)
        for matcher, start, end in self._windows(frame, sweep):
            try:
                for hit in self._confirmed(matcher, frame, (start, end), scan):
                    if held:
                        held -= 1
                        yield hit
                    else:
                        scan.dropped += 1
            except Exhausted:
                scan.dropped += 1
        marks.update(sweep.marks)

    def _confirmed(self, matcher: Matcher, frame: Frame, window: Span, scan: "_ItemScan") -> Iterator[Hit]:
        """Yield the hits of a rule in a window, and tell the trace, if there is one, what is none."""
        if not matcher.takes_path(frame.path, scan.work):
            if scan.trace is not None:  # with work of its own: a trace changes no result
                work = Work(self.limits.slow_steps_max)
                scan.trace.not_for_path(frame, matcher.judged(frame, *window, self._key, work))
            return
        for match in matcher.judged(frame, *window, self._key, scan.work):
            if isinstance(match, Hit):
                yield match
            elif scan.trace is not None:
                scan.trace.refused(frame, match)

    def _windows(self, frame: Frame, sweep: Sweep) -> Iterator[tuple[Matcher, int, int]]:
        """Yield the windows of a frame: all of it for the rules of named files, then those of the prefilter."""
        yield from ((matcher, 0, len(frame.data)) for matcher in self._of_named(frame.path))
        yield from ((self._matcher(number), start, end) for number, start, end in sweep.windows())

    def _found(self, frame: Frame, hit: Hit) -> Found:
        rule = self.rules.rules[hit.rule]
        start, end = frame.outer_span(hit.start, hit.end)
        file, first, last = frame.placed(hit.start, hit.end)
        line, column = file.lines.locate(first)
        return Found(
            rule_id=rule.id,
            fingerprint=self.policy.fingerprints[rule.id],
            start=start,
            end=end,
            line=line,
            column=column,
            secret=hit.secret,
            confidence=hit.confidence,
            via=frame.via,
            path=file.path,
            comment=self._comment(file, first, last) or self._comment(frame, hit.start, hit.end),
            inner=_inner(frame, hit, file),
        )

    def _comment(self, frame: Frame, start: int, end: int) -> str:
        return comment_on(frame.data, start, end) if self.limits.allow_comments else ""


def _slow_note(rule_id: str) -> str:
    return f"rule {rule_id!r}: its expression could backtrack without bound, so the slow matcher handles it"


def _rebuilt(rules: RuleSet, limits: Limits, key: TenantSecretKey, saved: SavedEngine) -> Engine:
    return Engine(rules, limits, key=key, saved=saved)


class _ItemScan:
    """The findings and the skipped parts of one item so far."""

    def __init__(self, limits: Limits, trace: Trace | None = None) -> None:
        self.limits = limits
        self.trace = trace
        self.bytes_seen = 0
        self.dropped = 0
        self.unpack_budget = UnpackBudget.of(limits)
        self.work = Work(limits.slow_steps_max)
        self.decodes_skipped = 0
        self._found: dict[tuple[int, int, str, bytes], Found] = {}
        self._secrets: set[tuple[str, bytes]] = set()

    def add(self, findings: Iterable[Found], *, unless_known: bool = False) -> None:
        """Keep findings; the same secret at the same place is one, with its shortest path.

        A finding in an archive's own bytes is dropped if a member has it, because the member's location says more.
        """
        for found in findings:
            secret = (found.rule_id, found.secret)
            if unless_known and secret in self._secrets:
                continue
            place = (found.start, found.end, *secret)
            known = self._found.get(place)
            if known is None and len(self._found) >= self.limits.findings_max * _HELD_TIMES:
                self.dropped += 1
            elif known is None or _order(found) < _order(known):
                self._found[place] = found
                self._secrets.add(secret)

    def result(self) -> ItemResult:
        """Return the findings up to the limit, and the coverage."""
        ordered = sorted(self._found.values(), key=lambda found: (found.start, found.end, found.rule_id, _order(found)))
        kept = tuple(ordered[: self.limits.findings_max])
        coverage = Coverage(
            bytes_seen=self.bytes_seen,
            members_skipped=self.unpack_budget.skipped,
            decodes_skipped=self.decodes_skipped,
            findings_dropped=self.dropped + len(ordered) - len(kept),
        )
        return ItemResult(kept, coverage)


def _inner(frame: Frame, hit: Hit, placed: Frame) -> str:
    """Return the place inside what encoded text holds, such as `2:14`; nothing if that is no file of its own."""
    file, start, _ = frame.in_file(hit.start, hit.end)
    if file is placed:
        return ""
    line, column = file.lines.locate(start)
    name = file.path.removeprefix(placed.path).removeprefix("!")
    return f"{name}:{line}:{column}" if name else f"{line}:{column}"


def _order(found: Found) -> tuple[int, int, tuple[str, ...], int, int]:
    """Return the sort key of paths to a secret: members first, because they have names, then fewer views."""
    return -found.path.count("!"), len(found.via), found.via, found.line, found.column
