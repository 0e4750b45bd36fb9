"""A site over a state that was made by hand, and a client that sends exactly what a test says."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from strandline.pipeline import Failed, Skipped
from strandline.scan.state import open_state
from strandline.web import Access, Listening, Parts, Site, access_of, bind, serving
from strandline.web.parts.scans import ScanPart
from tests.cli.scanned import FakeSource, Items, hit, scan
from tests.waiting import PATIENCE_S, eventually

HOSTILE = "<script>document.title='owned'</script>/\u202egnp.exe\x1b[31m\"'&.env"
RULE_IDS = ("aws-access-key-id", "github-pat", "private-key")


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    text: str


class Client:
    """Requests to a site; the cookie and other headers are what a test gives."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.access: Access = site.access

    @property
    def known(self) -> dict[str, str]:
        """Return the header of a browser that has the cookie."""
        return {"Cookie": f"{self.access.cookie_name}={self.access.cookie}"}

    def send(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str | None = None) -> Answer:
        """Send a request as it is."""
        connection = HTTPConnection("127.0.0.1", self.access.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, told, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Load a page with the cookie."""
        return self.send("GET", path, {**self.known, **headers})

    def post(self, path: str, fields: Mapping[str, object], *, csrf: str | None = None, **headers: str) -> Answer:
        """Send a form as a page of the site does."""
        given = {"csrf": self.access.csrf if csrf is None else csrf, **fields}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, {**self.known, **kind, **headers}, urlencode(given, doseq=True))


def plant(where: Path | str, findings: int = 300, *, key_file: Path | None = None) -> None:
    """Leave what two scans leave: files and a history that share secrets, hostile names, and what was not scanned."""
    chosen = random.Random(7)
    items: dict[str, object] = {}
    for number in range(findings):
        path = f"services/{chosen.choice(('api', 'auth', 'billing', 'web'))}/config/{number:05}.env"
        rule, name = chosen.choice(RULE_IDS), f"secret {chosen.randrange(max(2, findings // 2))}"
        items[path] = [hit(rule, name, path, chosen.randrange(1, 200), confidence=chosen.choice((2, 4, 8)))]
    items[HOSTILE] = [hit("github-pat", "hostile", HOSTILE)]
    items |= {f"docs/{number:03}.md": [] for number in range(20)}
    items |= {
        "private/vault.key": Failed("PERMISSION_DENIED", retryable=False),
        "media/film.mkv": Skipped("TOO_LARGE"),
        "late.txt": None,
    }
    history = {
        f"deploy/{number}.yml": [
            hit("aws-access-key-id", f"secret {number}", f"deploy/{number}.yml", 3, source="git", commit="ab" * 20)
        ]
        for number in range(12)
    }
    files: Items = items  # type: ignore[assignment]
    scan(where, FakeSource("fs", "/srv/platform", files), FakeSource("git", "service.git", history), key_file=key_file)


@contextmanager
def serve_state(
    where: Path | str,
    *,
    allow_changes: bool = True,
    public_url: str | None = None,
    key_file: Path | None = None,
    every_s: float = 0.1,
) -> Iterator[Client]:
    """Serve the pages of a state for the block."""
    with open_state(str(where), key_file=key_file) as state:
        part = ScanPart(state, every_s=every_s)
        with serve_parts(Parts(scans=part), allow_changes=allow_changes, public_url=public_url) as client:
            yield client


@contextmanager
def serve_parts(
    parts: Parts, *, allow_changes: bool = True, public_url: str | None = None, is_read: bool = True
) -> Iterator[Client]:
    """Serve the pages of parts for the block, once all of them were read, or at once."""
    listening = Listening(public_url=public_url)
    bound = bind(listening)
    access = access_of(listening, bound.getsockname()[1], allow_changes=allow_changes)
    site = Site(access, parts, who="tester")
    with serving(site, listening, bound):
        client = Client(site)
        eventually(lambda: not is_read or all(part.reads for part in parts.polled()), "every part is read")
        yield client
