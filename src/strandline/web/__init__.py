"""Pages over everything that Strandline keeps: findings, coverage, runs, journals, streams, folds and replicas.

**Promise.** Pages show what the stores hold, and nothing else: no byte of a secret exists to be shown, and names out of
scanned data are text, whatever they contain. Only who has the token sees them; nothing is changed unless changes were
allowed, and then only by a page of this site.

**How.** A `Site` is its parts, and `Access`, which says who may see it. Each part is read again and again by a thread
of its own (`polling`), so that pages never wait for a store; a change is told to browsers (`live`), which load again
what they show. `guard` stands before all pages and decides by `access`; `site` has every address; `pages` has a module
for each page, `rendering` and `charts` make text of values; `server` listens.

**Trade-offs.** Pages are rendered here, with a small script of our own in the browser (`static/app.js`) and no build
step; what works without the script: everything but live updates and keys. Findings are laid into columns
in memory (`strandline.findings.index`), about 1.5 KiB each, which answer every question in milliseconds and are built
again when the stores have changed; the old ones answer until then, and before the first ones a page says that it waits.
"""

from strandline.extras import require as _require

_require("web", "starlette")
_require("web", "uvicorn")
_require("web", "jinja2")

from strandline.web.access import Access  # noqa: E402 - after the check
from strandline.web.parts.collection import Parts  # noqa: E402 - after the check
from strandline.web.server import Listening, access_of, bind, serving  # noqa: E402 - after the check
from strandline.web.site_state import Site  # noqa: E402 - after the check

__all__ = ["Access", "Listening", "Parts", "Site", "access_of", "bind", "serving"]
