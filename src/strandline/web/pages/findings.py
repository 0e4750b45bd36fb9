"""Findings: searched, filtered and grouped, one in full, and exported as shown."""

from typing import Any

from strandline.errors import InvalidInput
from strandline.extras import needs
from strandline.findings.detail import find_detail, location_seen
from strandline.findings.filters import StateName
from strandline.findings.index import SORTS, FindingIndex
from strandline.findings.index_query import FindingQuery, Show
from strandline.findings.reports import ReportFormat, format_report
from strandline.findings.reports.values import HIGH, MEDIUM, Level, level_of, state_name
from strandline.pipeline.identity import DIGEST_BYTES, FindingId
from strandline.protocol.errors import shown
from strandline.web.parts.scans import ScanPart
from strandline.web.requests import NotFound, page, site_of

with needs("web"):
    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse

PER_PAGE, PER_PAGE_MAX = 100, 1_000
FIRST_WAIT_S = 0.4
"""A page waits so long for the first index; then it says that findings are being read, and follows."""
FORMATS = {
    "csv": (ReportFormat.CSV, "text/csv", "findings.csv"),
    "sarif": (ReportFormat.SARIF, "application/sarif+json", "findings.sarif"),
    "json": (ReportFormat.JSONL, "application/x-ndjson", "findings.jsonl"),
}
_LEAST = {Level.LOW.value: 0, Level.MEDIUM.value: MEDIUM, Level.HIGH.value: HIGH}
_SHOWN: dict[str, Show] = {"": "current", "gone": "gone", "all": "all"}


def query_of(params: QueryParams) -> FindingQuery:
    """Return the query of an address; what is unknown in it is refused."""
    states = tuple(params.getlist("state"))
    if unknown := [one for one in states if one not in set(StateName)]:
        raise InvalidInput(f"{unknown[0][:40]!r} is not a state", hint=f"one of {', '.join(StateName)}")
    confidence = params.get("confidence", "")
    if confidence and confidence not in _LEAST:
        raise InvalidInput(f"{confidence[:40]!r} is not a confidence", hint="low, medium or high")
    sort = params.get("sort", "place")
    return FindingQuery(
        text=params.get("q", "")[:500],
        place=params.get("place", "")[:500],
        rules=tuple(params.getlist("rule")),
        states=states,
        sources=tuple(params.getlist("source")),
        confidence=_LEAST.get(confidence, 0),
        is_new=params.get("new") == "1",
        group=params.get("group", "")[:12],
        show=_SHOWN.get(params.get("show", ""), "current"),
        sort=sort if sort in SORTS else "place",
    )


def listed(request: Request) -> Response:
    """List the findings that match, a page at a time."""
    scans = site_of(request).parts.scans
    if scans is None:
        return page(request, "findings.html", scans=None, live="")
    query = query_of(request.query_params)
    first, per = _paging(request)
    index, rows, facets = scans.index_soon(0.0), None, None
    if index is None:
        rows = scans.first_page(query, FIRST_WAIT_S, first=first, limit=per)
        index = None if rows is not None else scans.index_soon(FIRST_WAIT_S)
    if index is not None:
        rows, facets = index.page(query, first=first, limit=per), index.facets(query)
    if rows is None:
        return page(request, "findings_wait.html", scans=scans, live="scans")
    return page(
        request,
        "findings.html",
        scans=scans,
        query=query,
        fields=_fields(request),
        rows=rows,
        facets=facets,
        total=None if facets is None else facets.matching,
        first=first,
        per=per,
        states=list(StateName),
        levels=list(Level),
        sorts=list(SORTS),
        notice=notice_of(request),
        live="scans",
    )


def grouped(request: Request) -> Response:
    """List the secrets that match, each with where it is."""
    scans = site_of(request).parts.scans
    if scans is None:
        return page(request, "findings.html", scans=None, live="")
    query = query_of(request.query_params)
    index = scans.index_soon(FIRST_WAIT_S)
    if index is None:
        return page(request, "findings_wait.html", scans=scans, live="scans")
    first, per = _paging(request)
    total, groups = index.groups(query, first=first, limit=per)
    return page(
        request,
        "secrets.html",
        scans=scans,
        query=query,
        fields=_fields(request),
        groups=groups,
        facets=index.facets(query),
        total=total,
        first=first,
        per=per,
        states=list(StateName),
        levels=list(Level),
        level_of=level_of,
        live="scans",
    )


def detail(request: Request) -> Response:
    """Show a finding in full: its places, its history, and others of the same secret."""
    scans = site_of(request).parts.scans
    if scans is None:
        raise NotFound("no state of scans is shown here", hint="start `strandline ui` with --state")
    wanted = finding_id(request.path_params["finding"])
    known = scans.index.find(wanted.hex())
    if known is None:
        raise NotFound("there is no such finding", hint="it may be of another tenant")
    found = find_detail(scans.state, wanted)
    return page(
        request,
        "finding.html",
        scans=scans,
        known=known,
        found=found,
        others=[(one, scans.index.find(one.finding_id.hex())) for one in found.same_secret],
        location_seen=location_seen,
        runs={run.run for run in scans.value.runs} if scans.value is not None else set(),
        shown=shown,
        state_name=state_name,
        states=list(StateName),
        notice=notice_of(request),
        live="scans",
    )


def export(request: Request) -> Response:
    """Return what is shown as a file."""
    scans = site_of(request).parts.scans
    form = FORMATS.get(request.query_params.get("format", "csv"))
    if scans is None or form is None:
        raise NotFound("there is no such format", hint=f"one of {', '.join(FORMATS)}")
    kind, media, name = form
    report = scans.index.report(query_of(request.query_params))
    pieces = (piece.encode() for piece in format_report(report, kind))
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type=media, headers=headers)


def finding_id(text: str) -> FindingId:
    """Return an id from its hexadecimal digits."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != DIGEST_BYTES:
        raise NotFound("this is not the id of a finding", hint="an id has 64 hexadecimal digits")
    return FindingId(found)


def notice_of(request: Request) -> dict[str, Any] | None:
    """Return what a change did, for the page that follows it."""
    key = request.query_params.get("done", "")
    known = site_of(request).undo.get(key)
    if known is None:
        return None
    return {"key": key, "count": len(known)}


def index_of(scans: ScanPart | None) -> FindingIndex:
    """Return the index of findings; an error where there is none."""
    if scans is None:
        raise NotFound("no state of scans is shown here", hint="start `strandline ui` with --state")
    return scans.index


def _paging(request: Request) -> tuple[int, int]:
    params = request.query_params
    first, per = (params.get(name, "") for name in ("first", "per"))
    chosen = min(int(per), PER_PAGE_MAX) if per.isascii() and per.isdigit() and int(per) else PER_PAGE
    return (int(first) if first.isascii() and first.isdigit() and len(first) < 10 else 0), chosen  # noqa: PLR2004 - a plausible number


def _fields(request: Request) -> dict[str, list[str]]:
    """Return the fields of an address that say what is shown, without the place in it."""
    kept = (name for name in request.query_params if name not in ("first", "done"))
    return {name: request.query_params.getlist(name) for name in kept}
