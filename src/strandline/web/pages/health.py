"""`/healthz` and `/readyz`: whether the process answers, and whether its parts can be read.

They ask for no token, so they say nothing else.
"""

from strandline.extras import needs
from strandline.web.requests import site_of

with needs("web"):
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response


async def alive(_: Request) -> Response:
    """Answer: the process is there."""
    return PlainTextResponse("ok\n")


async def ready(request: Request) -> Response:
    """Answer whether every part was read, and the last read did not fail."""
    unready = site_of(request).parts.unready()
    return PlainTextResponse("not ready\n" if unready else "ok\n", status_code=503 if unready else 200)
