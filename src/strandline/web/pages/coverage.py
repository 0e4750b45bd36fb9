"""Coverage: what was looked at under which policy, what was not, and why. Nothing is ever called clean."""

from itertools import islice

from strandline.extras import needs
from strandline.findings.reports.values import Status, reason_text
from strandline.web.requests import page, site_of

with needs("web"):
    from starlette.requests import Request
    from starlette.responses import Response

SHOWN = 500


def show(request: Request) -> Response:
    """Show the coverage of the last scans."""
    scans = site_of(request).parts.scans
    if scans is None or scans.value is None:
        return page(request, "coverage.html", scans=scans, facts=None, live="scans")
    facts = scans.value
    text = request.query_params.get("q", "")
    status = request.query_params.get("status", "")
    chosen = (
        one
        for one in facts.coverage.incomplete
        if (not status or one.status == status) and text.casefold() in one.path.casefold()
    )
    shown = list(islice(chosen, SHOWN))
    return page(
        request,
        "coverage.html",
        scans=scans,
        facts=facts,
        coverage=facts.coverage,
        incomplete=shown,
        more=len(shown) == SHOWN,
        statuses=list(Status),
        reason_text=reason_text,
        q=text,
        status=status,
        live="scans",
    )
