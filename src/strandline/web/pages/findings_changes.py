"""Changes to findings: a decision about one or many, and its undo."""

import secrets

from strandline.errors import InvalidInput
from strandline.extras import needs
from strandline.findings.filters import StateName
from strandline.findings.triage import decide, decide_everywhere, undo
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import FindingId
from strandline.pipeline.triage import TriageState
from strandline.web.pages.findings import finding_id, index_of, query_of
from strandline.web.parts.scans import ScanPart
from strandline.web.requests import NotFound, back, form_of, site_of
from strandline.web.site_state import Site

with needs("web"):
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response


async def triage(request: Request) -> Response:
    """Decide about the chosen findings, or about all that the page's filters match."""
    form = await form_of(request)
    site = site_of(request)
    key = await run_in_threadpool(_decide, site, form)
    return back(request, form, "/findings", done=key)


async def undo_changes(request: Request) -> Response:
    """Take a decision back."""
    form = await form_of(request)
    site = site_of(request)
    await run_in_threadpool(_undo, site, form)
    return back(request, form, "/findings", done="")


def _decide(site: Site, form: dict[str, list[str]]) -> str:
    index = index_of(site.parts.scans)
    scans = site.parts.scans
    assert scans is not None  # noqa: S101 - `index_of` has seen to it
    chosen = _chosen(form, index.ids(query_of(QueryParams(form["filters"][0]))) if "filters" in form else None)
    text = form.get("state", [""])[0]
    if text not in set(StateName):
        raise InvalidInput("choose a state", hint=f"one of {', '.join(StateName)}")
    state = TriageState[StateName(text).name]
    why = form.get("why", [""])[0].strip()
    if form.get("everywhere", [""])[0] == "1":
        decide_everywhere(scans.state, chosen, state, who=site.who, why=why)
    else:
        decide(scans.state, chosen, state, who=site.who, why=why)
    return _settle(site, scans, chosen)


def _undo(site: Site, form: dict[str, list[str]]) -> None:
    index_of(site.parts.scans)
    scans = site.parts.scans
    assert scans is not None  # noqa: S101 - `index_of` has seen to it
    key = form.get("key", [""])[0]
    known = site.undo.pop(key, None) if key else None
    chosen = [FindingId(one) for one in known] if known is not None else _chosen(form, None)
    undo(scans.state, chosen, who=site.who)
    _settle(site, scans, chosen)


def _chosen(form: dict[str, list[str]], matching: list[FindingId] | None) -> list[FindingId]:
    chosen = [finding_id(text) for text in form.get("id", [])] if matching is None else matching
    if not chosen:
        raise NotFound("no finding was chosen", hint="tick some, or choose all that match")
    if len(chosen) > BATCH_ROWS_MAX:
        raise InvalidInput(f"a decision is about at most {BATCH_ROWS_MAX:,} findings", hint="narrow the filters")
    return chosen


def _settle(site: Site, scans: ScanPart, findings: list[FindingId]) -> str:
    """Let pages show a decision, and return the name by which it can be undone."""
    scans.decided(findings)
    key = secrets.token_hex(8)
    site.remember(key, [bytes(one) for one in findings])
    site.live.changed("scans")
    return key
