"""A lease and its candidates: they look, claim, renew and release, are paused, restarted, and told too late.

A request goes out and is done, lost, or done later, at any time; its answer comes, comes late, or never. No candidate
has to do anything, so every pause is among the explored. Time passes for all at once, but for a clock that stands still
or is quicker for a tick (`drift_max`, at most the margin). The first two candidates share a name. An operator revokes
the lease, or deletes the record by hand; with `floor` the data tells every epoch that was used.

All decisions are those of `strandline.protocol.leadership`. What must hold: no two hold the lease at once, every
tenure begins under a greater epoch than any before, and who sees the record of another does not hold it.

In a state the present is time 0, and what happened lies below it, so that worlds that differ in their age alone are
one. A version is what a store makes of a record's bytes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import leadership
from strandline.protocol.leadership import Attempt, Candidate, LeaseRecord
from strandline.sim.explore import Step

SESSIONS = "abcdefghijklmnopqrstuvwxyz"
OPERATOR = "operator"


class LeadershipBounds(NamedTuple):
    """How large the world is; times are in ticks. `epoch_max` and `writes_max` (of a session) bound it."""

    nodes: int = 2
    epoch_max: int = 2
    writes_max: int = 3
    ttl: int = 3
    margin: int = 1
    drift_max: int = 1
    sent_max: int = 1
    restarts: int = 0
    revocations: int = 0
    deletions: int = 0
    floor: bool = True
    """Whether the data tells the epochs that were used, so that a candidate without a memory learns of them."""
    conditions: bool = True
    """Whether the store honours the conditions of writes."""


CAMPAIGN = LeadershipBounds(nodes=3, epoch_max=3, writes_max=3, sent_max=2, restarts=1, revocations=1)
"""More than ten million states: tens of minutes of a core and three gigabytes for the first ten million."""


class Request(NamedTuple):
    """A write on its way."""

    node: int
    record: LeaseRecord
    expected: str | None


class Node(NamedTuple):
    """A candidate, and the answers that are on their way to it."""

    candidate: Candidate
    answers: tuple[Attempt, ...] = ()


class LeadershipState(NamedTuple):
    """The record, what is on its way, the candidates, the highest epoch of any tenure, and what happened so far."""

    record: LeaseRecord | None
    requests: tuple[Request, ...]
    nodes: tuple[Node, ...]
    top: int = 0
    drift: int = 0
    restarts: int = 0
    revocations: int = 0
    deletions: int = 0


class _Move(NamedTuple):
    action: str
    node: Node
    request: Request | None
    began: int
    """The epoch of a tenure that begins, or 0."""
    problem: str | None = None


class LeadershipModel:
    """The model. What a node can do with a record is decided once, since many states share both."""

    def __init__(self, bounds: LeadershipBounds | None = None) -> None:
        self.bounds = bounds or LeadershipBounds()
        self._moves: dict[tuple[int, Node, LeaseRecord | None, int], tuple[_Move, ...]] = {}
        self._aged: dict[tuple[Node, int], Node] = {}
        self._shared: dict[Node, Node] = {}

    def initial(self) -> list[LeadershipState]:
        """Return candidates that have just started, and no record; where it may be deleted, there are data already."""
        nodes = tuple(self._started(number, 0) for number in range(self.bounds.nodes))
        return [LeadershipState(None, (), nodes, top=1 if self.bounds.deletions and self.bounds.floor else 0)]

    def place(self, state: LeadershipState) -> tuple[Node, ...]:
        """Return the nodes, by which moves are kept."""
        return state.nodes

    def steps(self, state: LeadershipState) -> Iterator[Step[LeadershipState]]:
        """Yield what time, the network, the operator and the candidates can do."""
        yield from self._ticks(state)
        yield from self._deliveries(state)
        yield from self._operator(state)
        for number, node in enumerate(state.nodes):
            for move in self._find_moves(number, node, state.record, state.top):
                requests = state.requests
                if move.request is not None:
                    if len(requests) == self.bounds.sent_max:
                        continue
                    requests = tuple(sorted({*requests, move.request}, key=_order))
                top = max(state.top, move.began)
                after = state._replace(requests=requests, nodes=_with(state.nodes, number, move.node), top=top)
                is_repeated = 0 < move.began <= state.top and not self.broken(after)
                yield move.action, after, "an epoch was there before" if is_repeated else move.problem
            if state.restarts < self.bounds.restarts:
                fresh = self._started(number, state.restarts + 1)
                nodes = _with(state.nodes, number, fresh)
                yield f"{number} restarts", state._replace(nodes=nodes, restarts=state.restarts + 1), None

    def broken(self, state: LeadershipState) -> str | None:
        """Return whether two hold the lease."""
        held = sum(node.candidate.tenure is not None for node in state.nodes)
        return "two hold the lease at once" if held > 1 else None

    def show(self, state: LeadershipState) -> str:
        """Return the record, and who believes what."""
        nodes = " ".join(f"[{_shown(node)}]" for node in state.nodes)
        sent = " ".join(_brief(request.record) for request in state.requests)
        return f"{_brief(state.record)} {nodes} sent: {sent or '-'}"

    def _started(self, number: int, restarts: int) -> Node:
        session = SESSIONS[number + self.bounds.nodes * restarts]
        holder = "same" if number < 2 else session
        return Node(Candidate(holder, "", session, self.bounds.ttl, self.bounds.margin))

    def _find_moves(self, number: int, node: Node, record: LeaseRecord | None, top: int) -> tuple[_Move, ...]:
        floor = top if self.bounds.floor else 0
        key = (number, node, record, floor)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = tuple(self._node_moves(number, node, record, floor))
        return moves

    def _node_moves(self, number: int, node: Node, record: LeaseRecord | None, floor: int) -> Iterator[_Move]:
        candidate = node.candidate
        for asked in (0, -1):
            after = leadership.after_read(candidate, record, version_of(record), asked, 0)
            after = self._capped(after)
            if after != candidate and (asked == 0 or after != self._looked(candidate, record)):
                yield self._moved(f"{number} looks", node, after)
            if after.tenure is not None and after.tenure.version != version_of(record):
                yield _Move(f"{number} looks", node, None, 0, "it holds what it has seen to be another's")
        for attempt in node.answers:
            left = tuple(answer for answer in node.answers if answer != attempt)
            after = leadership.after_write(candidate, attempt, str(version_of(attempt.record)), 0)
            yield self._moved(f"{number} is told", node._replace(answers=left), self._capped(after))
        known = leadership.after_epoch(candidate, floor, 0)
        if known != candidate:
            yield self._moved(f"{number} reads the data", node, known)
        for action, sent in (("claims", leadership.claim(known, 0)), ("renews", leadership.renew(candidate, 0))):
            if sent is not None and self._in_bounds(sent[1].record):
                request = Request(number, sent[1].record, sent[1].expected)
                yield self._moved(f"{number} {action}", node, self._capped(sent[0]), request)
        given_back = leadership.release(candidate)
        if given_back is not None and self._in_bounds(given_back[1]):
            request = Request(number, given_back[1], given_back[2])
            yield self._moved(f"{number} releases", node, given_back[0], request)

    def _looked(self, candidate: Candidate, record: LeaseRecord | None) -> Candidate:
        return self._capped(leadership.after_read(candidate, record, version_of(record), 0, 0))

    def _in_bounds(self, record: LeaseRecord) -> bool:
        return record.epoch <= self.bounds.epoch_max and record.nonce <= self.bounds.writes_max

    def _moved(self, action: str, before: Node, after: Candidate, request: Request | None = None) -> _Move:
        tenure, earlier = after.tenure, before.candidate.tenure
        is_new = tenure is not None and (earlier is None or earlier.record.epoch != tenure.record.epoch)
        # Answers to writes that the candidate has given up change nothing.
        answers = tuple(answer for answer in before.answers if answer in after.attempts)
        node = self._share(Node(after, answers))
        return _Move(action, node, request, tenure.record.epoch if tenure is not None and is_new else 0)

    def _deliveries(self, state: LeadershipState) -> Iterator[Step[LeadershipState]]:
        for index, request in enumerate(state.requests):
            left = (*state.requests[:index], *state.requests[index + 1 :])
            name = f"{request.node}'s {_brief(request.record)}"
            yield f"{name} is lost", state._replace(requests=left), None
            if self.bounds.conditions and request.expected != version_of(state.record):
                continue  # refused, which is as good as lost: the candidate looks
            node = state.nodes[request.node]
            answers = tuple(sent for sent in node.candidate.attempts if sent.record == request.record)
            answered = self._share(node._replace(answers=(*node.answers, *answers)))
            nodes = _with(state.nodes, request.node, answered)
            yield f"{name} is done", state._replace(record=request.record, requests=left, nodes=nodes), None

    def _operator(self, state: LeadershipState) -> Iterator[Step[LeadershipState]]:
        if state.record is None:
            return
        # A claim that is on its way when the record goes cannot be told from others: absence has no version.
        is_quiet = not state.requests and not any(node.candidate.attempts for node in state.nodes)
        if state.deletions < self.bounds.deletions and is_quiet:
            yield "the record is deleted", state._replace(record=None, deletions=state.deletions + 1), None
        if state.revocations < self.bounds.revocations and not state.record.released:
            record = leadership.revoked(state.record, OPERATOR)
            yield "it is revoked", state._replace(record=record, revocations=state.revocations + 1), None

    def _ticks(self, state: LeadershipState) -> Iterator[Step[LeadershipState]]:
        nodes = tuple(self._age(node, 1) for node in state.nodes)
        yield "tick", state._replace(nodes=nodes), None
        if state.drift < self.bounds.drift_max:
            for number, node in enumerate(state.nodes):
                drifted = state._replace(drift=state.drift + 1)
                yield f"tick, not for {number}", drifted._replace(nodes=_with(nodes, number, node)), None
                quick = _with(nodes, number, self._age(node, 2))
                yield f"tick, two for {number}", drifted._replace(nodes=quick), None

    def _age(self, node: Node, ticks: int) -> Node:
        aged = self._aged.get((node, ticks))
        if aged is None:
            aged = self._aged[node, ticks] = self._share(self._older(node, ticks))
        return aged

    def _older(self, node: Node, ticks: int) -> Node:
        candidate = node.candidate
        tenure, sighting = candidate.tenure, candidate.sighting
        older = candidate._replace(
            sighting=sighting and sighting._replace(since_ns=sighting.since_ns - ticks),
            attempts=tuple(_sent_before(attempt, ticks, self.bounds.ttl) for attempt in candidate.attempts),
            tenure=tenure and tenure._replace(deadline_ns=tenure.deadline_ns - ticks),
        )
        older = self._capped(leadership.after_deadline(older, 0))
        return Node(older, tuple(_sent_before(attempt, ticks, self.bounds.ttl) for attempt in node.answers))

    def _capped(self, candidate: Candidate) -> Candidate:
        """Return the candidate with ages beyond a lease cut off: they decide nothing more."""
        sighting = candidate.sighting
        if sighting is None or sighting.since_ns >= -self.bounds.ttl:
            return candidate
        return candidate._replace(sighting=sighting._replace(since_ns=-self.bounds.ttl))

    def _share(self, node: Node) -> Node:
        return self._shared.setdefault(node, node)


def version_of(record: LeaseRecord | None) -> str | None:
    """Return the version of a record: equal bytes have equal versions, as in S3."""
    return None if record is None else f"{record.epoch}{record.session}{record.nonce}{record.released}"


def _order(request: Request) -> tuple[int, int, int]:
    return request.node, request.record.nonce, request.record.epoch


def _sent_before(attempt: Attempt, ticks: int, ttl: int) -> Attempt:
    return attempt._replace(sent_ns=max(-ttl, attempt.sent_ns - ticks))


def _with(nodes: tuple[Node, ...], number: int, node: Node) -> tuple[Node, ...]:
    return (*nodes[:number], node, *nodes[number + 1 :])


def _brief(record: LeaseRecord | None) -> str:
    if record is None:
        return "nothing"
    return f"{record.epoch}{record.session}{record.nonce}" + (" released" if record.released else "")


def _shown(node: Node) -> str:
    candidate = node.candidate
    tenure, sighting = candidate.tenure, candidate.sighting
    held = f"holds {_brief(tenure.record)} for {tenure.deadline_ns}" if tenure else "-"
    seen = "" if sighting is None else f", sees {_brief(sighting.record)} for {-sighting.since_ns}"
    return f"{candidate.session}: {held}{seen}, {len(candidate.attempts)} unknown"
