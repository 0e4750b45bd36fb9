"""Overview: what runs, what is behind, and what needs a person."""

from strandline.extras import needs
from strandline.web.requests import page, site_of

with needs("web"):
    from starlette.requests import Request
    from starlette.responses import Response


def show(request: Request) -> Response:
    """Show the first page."""
    parts = site_of(request).parts
    return page(request, "overview.html", needs=parts.needs(), live="*")
