"""The site: its parts, its pages and their addresses, behind the guard.

Invariants: every address is listed here; files are served from a table that was read at the start, so that no address
becomes a path; a page never reaches a browser but through the guard.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.errors import StrandlineError
from strandline.extras import needs
from strandline.web.guard import Guard
from strandline.web.pages import coverage, findings, health, metrics, overview, runs, stores
from strandline.web.pages import findings_changes as changes
from strandline.web.rendering import static_files
from strandline.web.requests import error_page, missing_page
from strandline.web.site_state import Site

with needs("web"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_app(site: Site) -> "ASGIApp":
    """Return the application: all pages, behind the guard."""
    statics = static_files()

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in statics:
            return missing_page(request, HTTPException(404))
        kind = _TYPES.get("." + name.rpartition(".")[2], "text/plain")
        return Response(statics[name], media_type=kind, headers={"cache-control": "max-age=3600"})

    async def events(_: Request) -> Response:
        return StreamingResponse(site.live.events(), media_type="text/event-stream")

    app = Starlette(
        routes=[
            Route("/", overview.show),
            Route("/findings", findings.listed),
            Route("/findings/secrets", findings.grouped),
            Route("/findings/export", findings.export),
            Route("/findings/triage", changes.triage, methods=["POST"]),
            Route("/findings/undo", changes.undo_changes, methods=["POST"]),
            Route("/findings/{finding}", findings.detail),
            Route("/coverage", coverage.show),
            Route("/runs", runs.listed),
            Route("/runs/{run}", runs.detail),
            Route("/runs/{run}/unpark", runs.unpark, methods=["POST"]),
            Route("/streams", stores.streams),
            Route("/streams/{number}/{stream}", stores.stream),
            Route("/journals", stores.journals),
            Route("/journals/{number}", stores.journal),
            Route("/folds", stores.folds),
            Route("/folds/{number}", stores.fold),
            Route("/replicas", stores.replicas),
            Route("/replicas/{number}", stores.replica),
            Route("/live", events),
            Route("/static/{name}", static),
            Route("/metrics", metrics.metrics_page(site)),
            Route("/healthz", health.alive),
            Route("/readyz", health.ready),
        ],
        exception_handlers={StrandlineError: error_page, 404: missing_page, 405: missing_page},
    )
    app.state.site = site
    return Guard(app, site.access)


@contextmanager
def polling(site: Site) -> Iterator[None]:
    """Read all parts again and again, each in a thread of its own, for the block."""
    ending = threading.Event()
    threads = [
        threading.Thread(target=part.run, args=(ending, site.live.changed), name=f"web-{part.kind}", daemon=True)
        for part in site.parts.polled()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        site.live.close()
        for thread in threads:
            thread.join()
