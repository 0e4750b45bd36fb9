"""Journals, streams, folds and replicas: a list of each, one in full, and a look at what it holds."""

from collections.abc import Sequence
from typing import TypeVar

from strandline.errors import InvalidInput, StrandlineError
from strandline.extras import needs
from strandline.web.charts import Mark
from strandline.web.parts.journals import QueueFacts
from strandline.web.parts.replicas import ReplicaFacts, age_s
from strandline.web.requests import NotFound, page, site_of

with needs("web"):
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")
SHOWN_BYTES = 16_384
SEGMENTS_SHOWN = 200
MARKS_MAX = 400
DIGITS_MAX = 19
"""Digits of 64 bits; Python refuses to read numbers of thousands."""


def journals(request: Request) -> Response:
    """List the journals and queues."""
    return page(request, "journals.html", listed=site_of(request).parts.journals, is_queue=_is_queue, live="journals")


def journal(request: Request) -> Response:
    """Show a journal, or a queue with its groups; and one record, if one is asked for."""
    part = _chosen(site_of(request).parts.journals, request)
    facts = part.value
    offset, record, refused = request.query_params.get("offset", ""), None, None
    if offset:
        try:
            record = part.record(_whole(offset))
        except (StrandlineError, OSError) as error:
            refused = str(error)
    return page(
        request,
        "journal.html",
        part=part,
        facts=facts,
        journal=facts.messages if isinstance(facts, QueueFacts) else facts,
        queue=facts if isinstance(facts, QueueFacts) else None,
        letters=part.dead_letters() if isinstance(facts, QueueFacts) and facts.dead else [],
        offset=offset,
        record=record,
        refused=refused,
        text=text_of,
        segments_shown=SEGMENTS_SHOWN,
        live="journals",
    )


def streams(request: Request) -> Response:
    """List the streams of all servers."""
    return page(request, "streams.html", listed=site_of(request).parts.servers, live="streams")


def stream(request: Request) -> Response:
    """Show a stream with its consumers; and one message, if one is asked for."""
    part = _chosen(site_of(request).parts.servers, request)
    name = request.path_params["stream"]
    found = next((one for one in part.value or () if one.name == name), None)
    if found is None:
        raise NotFound("there is no such stream", hint="the list has those that the server names")
    sequence, message, refused = request.query_params.get("seq", ""), None, None
    if sequence:
        try:
            message = part.message(found.name, _whole(sequence))
        except StrandlineError as error:
            refused = str(error)
    return page(
        request,
        "stream.html",
        part=part,
        number=request.path_params["number"],
        stream=found,
        seq=sequence,
        message=message,
        refused=refused,
        text=text_of,
        live="streams",
    )


def folds(request: Request) -> Response:
    """List the folds."""
    return page(request, "folds.html", listed=site_of(request).parts.folds, live="folds")


def fold(request: Request) -> Response:
    """Show a fold; and the entry of a key, if one is asked for."""
    part = _chosen(site_of(request).parts.folds, request)
    key, entry, refused = request.query_params.get("key", ""), None, None
    if key:
        try:
            entry = part.get(key.encode(errors="replace"))
            refused = None if entry is not None else "There is no such key."
        except (StrandlineError, OSError) as error:
            refused = str(error)
    return page(
        request,
        "fold.html",
        part=part,
        facts=part.value,
        key=key,
        entry=entry,
        revision=int.from_bytes(entry.version, "big") if entry is not None and entry.version else None,
        refused=refused,
        text=text_of,
        live="folds",
    )


def replicas(request: Request) -> Response:
    """List the replicas."""
    return page(request, "replicas.html", listed=site_of(request).parts.replicas, age_s=age_s, live="replicas")


def replica(request: Request) -> Response:
    """Show a replica: its nodes, and its restore points on a timeline."""
    part = _chosen(site_of(request).parts.replicas, request)
    facts = part.value
    marks = [] if facts is None else marks_of(facts)
    return page(request, "replica.html", part=part, facts=facts, marks=marks, age_s=age_s, live="replicas")


def marks_of(facts: ReplicaFacts) -> list[Mark]:
    """Return the points of a timeline: whole databases, and the latest of the other files."""
    wholes = [Mark(at.timestamp(), "whole", f"whole database, transaction {txid:,}") for txid, at, _ in facts.wholes]
    others = [Mark(at.timestamp(), "change", f"up to transaction {txid:,}") for txid, at, _ in facts.others]
    return [*others[-MARKS_MAX:], *wholes[-MARKS_MAX:]]


def text_of(data: bytes | None) -> str:
    """Return bytes as text that can be shown: UTF-8 as it is, other bytes as codes, and no more than fits a page."""
    if not data:
        return ""
    cut = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return cut + (f"\n… and {len(data) - SHOWN_BYTES:,} bytes more" if len(data) > SHOWN_BYTES else "")


def _is_queue(facts: object) -> bool:
    return isinstance(facts, QueueFacts)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise InvalidInput(f"{text[:40]!r} is not a number")
    return int(text)


def _chosen(listed: Sequence[T], request: Request) -> T:
    text = request.path_params["number"]
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or int(text) >= len(listed):
        raise NotFound("there is nothing of this number", hint="the list has what is shown here")
    return listed[int(text)]
