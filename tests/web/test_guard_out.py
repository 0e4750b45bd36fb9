"""Each attack is refused, and goes through once its guard is out: no test of a guard passes for another reason."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jinja2
import pytest
from starlette.routing import Route

from strandline.findings import FindingQuery
from strandline.web import guard, site
from strandline.web.access import Access
from strandline.web.guard import Guard
from strandline.web.rendering import environment
from tests.web.sites import HOSTILE, Client, plant, serve_state


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("guard-out") / "state"
    plant(found, 5)
    return found


@pytest.fixture(scope="module")
def client(where: Path) -> Iterator[Client]:
    with serve_state(where) as found:
        yield found


@pytest.fixture(scope="module")
def reader(where: Path) -> Iterator[Client]:
    with serve_state(where, allow_changes=False) as found:
        yield found


@pytest.fixture(scope="module")
def behind(where: Path) -> Iterator[Client]:
    with serve_state(where, public_url="https://watch.example/strand") as found:
        yield found


def form(client: Client) -> dict[str, object]:
    """Return what a page sends to decide about a finding."""
    assert client.site.parts.scans is not None
    first = client.site.parts.scans.index.page(FindingQuery())[0].finding
    return {"id": first.finding_id, "state": "confirmed"}


def yes(*_: object) -> bool:
    return True


def none(*_: object) -> None:
    return None


class Attack(NamedTuple):
    """A request, how it is refused, what it gets without the guard, and where that guard is."""

    status: Callable[[Client], int]
    refused: int
    through: int
    owner: object
    name: str
    without: object


def host_alone(access: Access, headers: dict[str, str]) -> bool:
    return headers["host"] in access.hosts


ATTACKS = {
    "no token": Attack(lambda c: c.send("GET", "/findings").status, 401, 200, Guard, "_is_known", yes),
    "a wrong token": Attack(lambda c: c.send("GET", "/?token=wrong").status, 401, 303, Access, "is_token", yes),
    "a wrong bearer": Attack(
        lambda c: c.send("GET", "/", {"Authorization": "Bearer wrong"}).status, 401, 200, Access, "is_token", yes
    ),
    "a wrong cookie": Attack(
        lambda c: c.send("GET", "/", {"Cookie": f"{c.access.cookie_name}=wrong"}).status,
        *(401, 200, Access, "is_cookie", yes),
    ),
    "a foreign host": Attack(lambda c: c.get("/", Host="evil.example").status, 403, 200, Access, "is_for_us", yes),
    "a foreign host that knows the token": Attack(
        lambda c: c.send("GET", f"/?token={c.access.token}", {"Host": "evil.example"}).status,
        *(403, 303, Access, "is_for_us", yes),
    ),
    "a page of another site": Attack(
        lambda c: c.post("/findings/triage", form(c), Origin="https://evil.example").status,
        *(403, 303, Access, "is_from_us", yes),
    ),
    "a form that another site made": Attack(
        lambda c: c.post("/findings/triage", form(c), csrf="guessed").status, 403, 303, Access, "is_csrf", yes
    ),
    "a method that is not known": Attack(
        lambda c: c.send("PUT", "/coverage", c.known).status, 405, 404, Guard, "_refused_change", none
    ),
    "a body without end": Attack(
        lambda c: c.post("/findings/triage", {**form(c), "why": "x" * 5_000_000}).status,
        *(413, 400, guard, "BODY_BYTES_MAX", 10**9),
    ),
    "fields without end": Attack(
        lambda c: c.send("POST", "/findings/triage", c.known, "a=1&" * 30_000).status,
        *(413, 403, guard, "FIELDS_MAX", 10**9),
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_and_goes_through_without_its_guard(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = ATTACKS[name]
    assert attack.status(client) == attack.refused
    monkeypatch.setattr(attack.owner, attack.name, attack.without)
    assert attack.status(client) == attack.through


def test_a_site_that_may_only_be_read_is_changed_without_its_guard(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reader.post("/findings/triage", form(reader)).status == 403
    monkeypatch.setattr(Guard, "_refused_change", none)
    assert reader.post("/findings/triage", form(reader)).status == 303


def test_headers_of_a_proxy_are_believed_without_their_guard(behind: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = {"Host": f"127.0.0.1:{behind.access.port}", "X-Forwarded-Host": "evil.example"}
    assert behind.get("/", **forged).status == 403
    monkeypatch.setattr(Access, "is_for_us", host_alone)
    assert behind.get("/", **forged).status == 200


def test_an_address_becomes_a_path_without_the_table_of_files(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(site.__file__).parent / "static"

    class Files(dict[str, bytes]):
        """The files of a folder, by whatever path is asked for."""

        def __contains__(self, name: object) -> bool:
            return (folder / str(name)).is_file()

        def __getitem__(self, name: str) -> bytes:
            return (folder / name).read_bytes()

    with serve_state(where) as client:
        assert client.get("/static/..%2fsite.py").status == 404
    monkeypatch.setattr(site, "static_files", Files)
    monkeypatch.setattr(
        site, "Route", lambda path, *rest, **more: Route(path.replace("{name}", "{name:path}"), *rest, **more)
    )
    with serve_state(where) as client:
        assert "def make_app" in client.get("/static/..%2fsite.py").text


def test_a_name_is_markup_without_the_escaping(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "/findings?q=script"
    assert "<script>document" not in client.get(address).text
    unsafe = environment().overlay(autoescape=False, cache_size=0)
    assert isinstance(unsafe, jinja2.Environment)
    monkeypatch.setattr("strandline.web.rendering.environment", lambda: unsafe)
    assert "<script>document" in client.get(address).text
    assert HOSTILE.startswith("<script>document")
