"""What pages share: the site behind a request, its answer, and errors as pages."""

import time
from typing import Any
from urllib.parse import parse_qs

from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.extras import needs
from strandline.web.rendering import render
from strandline.web.site_state import Site

with needs("web"):
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse, Response

NOT_FOUND = 404
MENU = (
    ("/", "Overview", "o"),
    ("/findings", "Findings", "f"),
    ("/coverage", "Coverage", "c"),
    ("/runs", "Runs", "r"),
    ("/streams", "Streams", "s"),
    ("/journals", "Journals", "j"),
    ("/folds", "Folds", "b"),
    ("/replicas", "Replicas", "l"),
)
"""The pages of the menu: address, name, and the key that opens it after `g`."""


class NotFound(InvalidInput):
    """There is nothing at this address."""


def site_of(request: Request) -> Site:
    """Return the site that a request is for."""
    site: Site = request.app.state.site
    return site


def page(request: Request, template: str, *, code: int = 200, **values: Any) -> Response:  # noqa: ANN401 - a template's
    """Return a rendered page."""
    site = site_of(request)
    common = {
        "access": site.access,
        "base": site.access.prefix,
        "parts": site.parts,
        "path": request.url.path,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "menu": MENU,
        "now_s": time.time(),
        "version": site.version,
    }
    return HTMLResponse(render(template, {**common, **values}), status_code=code)


def error_page(request: Request, error: Exception) -> Response:
    """Return an error as a page: what happened, and what to do."""
    status = NOT_FOUND if isinstance(error, NotFound) else 503 if isinstance(error, Unavailable) else 400
    hint = error.hint if isinstance(error, StrandlineError) else None
    return page(request, "error.html", code=status, title="Not possible", message=str(error), hint=hint)


def missing_page(request: Request, _: Exception) -> Response:
    """Return the page of an address that is not known."""
    return page(request, "error.html", code=NOT_FOUND, title="Not found", message="There is no such page.", hint=None)


async def form_of(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form, which the guard has let through."""
    body = await request.body()
    return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)


def back(request: Request, form: dict[str, list[str]], default: str, **more: str) -> Response:
    """Return to the page that a form was on: a path of this site, and nothing else."""
    place = form.get("back", [default])[0]
    if not place.startswith("/") or place.startswith(("//", "/\\")) or any(ord(one) < ord(" ") for one in place):
        place = default
    path, _, rest = place.partition("?")
    fields = [f for f in rest.split("&") if f and f.partition("=")[0] not in more]
    fields += [f"{name}={value}" for name, value in more.items()]
    prefix = site_of(request).access.prefix
    return RedirectResponse(prefix + path + ("?" + "&".join(fields) if fields else ""), status_code=303)
