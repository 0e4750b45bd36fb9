"""`/metrics`: the process and its parts, for Prometheus, which sends the token as a bearer."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from strandline.config.passwords import masked
from strandline.extras import needs
from strandline.metrics import Metric, Sample
from strandline.metrics.expositions import exposition, registry_of
from strandline.web.site_state import Site

with needs("web"):
    from starlette.requests import Request
    from starlette.responses import Response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def part_metrics(site: Site) -> Iterable[Metric]:
    """Return which parts can be read."""
    samples = [
        Sample(part.problem is not None, {"kind": part.kind, "part": str(masked(part.name))})
        for part in site.parts.polled()
    ]
    return [Metric("strandline_ui_part_failing", "gauge", "1 while a part of the pages cannot be read.", samples)]


def metrics_page(site: Site) -> Callable[[Request], Response]:
    """Return the page of a site; the extra `metrics` is needed where it is asked for."""
    made: list[CollectorRegistry] = []

    def show(request: Request) -> Response:
        if not made:
            made.append(registry_of([lambda: part_metrics(site)]))
        page = exposition(made[0], request.headers.get("accept", ""))
        return Response(page.body, headers={"content-type": page.content_type})

    return show
