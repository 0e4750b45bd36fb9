"""Who may see the pages, and who may change something: every refusal, over a real socket."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from strandline.errors import InvalidInput
from strandline.findings import FindingQuery
from strandline.web import Listening, rendering
from strandline.web.access import Access, parse_public_address
from strandline.web.pages.metrics import part_metrics
from strandline.web.parts.collection import Parts
from strandline.web.parts.scans import ScanFacts
from strandline.web.rendering import static_path
from tests.metrics.scrapes import Scrapes
from tests.waiting import eventually
from tests.web.sites import Client, plant, serve_parts, serve_state

MISSING = (
    *("/findings/zz", "/findings/" + "0" * 64, "/runs/x", "/runs/99999", "/nothing"),
    *(f"/{kind}/{'1' * 5_000}" for kind in ("runs", "journals", "folds", "replicas", "streams")),
)
PAGES = (
    "/",
    "/findings",
    "/findings/secrets",
    "/findings/export",
    "/coverage",
    "/runs",
    "/live",
    "/static/app.js",
    "/metrics",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    where = tmp_path_factory.mktemp("guard") / "state"
    plant(where, 20)
    with serve_state(where) as found:
        yield found


@pytest.fixture(scope="module")
def reader() -> Iterator[Client]:
    with serve_parts(Parts(), allow_changes=False) as found:
        yield found


@pytest.fixture(scope="module")
def behind() -> Iterator[Client]:
    with serve_parts(Parts(), public_url="https://watch.example/strand") as found:
        yield found


def chosen(client: Client) -> dict[str, object]:
    scans = client.site.parts.scans
    assert scans is not None
    first = scans.index.page(FindingQuery())[0].finding
    return {"id": first.finding_id, "state": "confirmed", "why": "seen"}


class TestTheToken:
    @pytest.mark.parametrize("path", PAGES)
    def test_without_it_no_page_is_shown(self, client: Client, path: str) -> None:
        answer = client.send("GET", path)
        assert answer.status == 401
        assert "strandline ui" in answer.text
        assert "finding" not in answer.text

    @pytest.mark.parametrize("wrong", ["", "x", "x" * 32, "%00", "é"])
    def test_a_wrong_one_is_refused(self, client: Client, wrong: str) -> None:
        assert client.send("GET", f"/?token={wrong.encode().hex() if wrong == 'é' else wrong}").status == 401
        assert client.send("GET", "/", {"Authorization": "Bearer wrong"}).status == 401
        assert client.send("GET", "/", {"Cookie": f"{client.access.cookie_name}=wrong"}).status == 401

    def test_a_wrong_one_is_refused_even_with_the_cookie(self, client: Client) -> None:
        assert client.get("/?token=wrong").status == 401

    def test_the_right_one_gives_a_strict_cookie_and_an_address_without_it(self, client: Client) -> None:
        answer = client.send("GET", f"/findings?state=open&token={client.access.token}")
        assert answer.status == 303
        assert answer.headers["location"] == "/findings?state=open"
        cookie = answer.headers["set-cookie"]
        assert "SameSite=Strict" in cookie
        assert "HttpOnly" in cookie
        assert client.access.token not in cookie
        assert client.send("GET", "/findings", {"Cookie": cookie.partition(";")[0]}).status == 200

    def test_programs_send_it_as_a_bearer(self, client: Client) -> None:
        bearer = {"Authorization": f"Bearer {client.access.token}"}
        assert client.send("GET", "/findings", bearer).status == 200

    def test_prometheus_sends_it_as_a_bearer(self, client: Client) -> None:
        bearer = {"Authorization": f"Bearer {client.access.token}"}
        answer = client.send("GET", "/metrics", bearer)
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert 'strandline_ui_part_failing{kind="scans"' in answer.text
        asked = client.send("GET", "/metrics", {**bearer, "Accept": "application/openmetrics-text"})
        assert asked.headers["content-type"].startswith("application/openmetrics-text")
        assert asked.text.endswith("# EOF\n")

    def test_cookies_of_other_sites_of_the_host_lock_nobody_out(self, client: Client) -> None:
        cookies = 'other={"a": 1, "b": [2]}; ' + client.known["Cookie"] + "; last=ü"
        assert client.send("GET", "/", {"Cookie": cookies.encode().decode("latin-1")}).status == 200

    def test_the_right_one_sends_nobody_to_another_host(self, client: Client) -> None:
        for path in ("//evil.example/", "/\\evil.example"):
            place = client.send("GET", f"{path}?token={client.access.token}").headers["location"]
            assert place.startswith("/")
            assert not place.startswith(("//", "/\\"))

    @pytest.mark.parametrize("path", ["/%0d%0aSet-Cookie:%20a=b", "/caf%C3%A9%20%3Fx", "/a%25b"])
    def test_the_right_one_leads_to_the_same_address_whatever_is_in_it(self, client: Client, path: str) -> None:
        answer = client.send("GET", f"{path}?token={client.access.token}&q=%3Cb%3E")
        assert (answer.status, unquote(answer.headers["location"])) == (303, unquote(path) + "?q=<b>")
        assert answer.headers["set-cookie"].startswith("strandline-")

    def test_it_is_shown_in_no_page_and_no_repr(self, client: Client) -> None:
        assert client.access.token not in client.get("/").text
        assert client.access.token not in repr(client.site)


class TestTheHost:
    @pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.evil.example", ""])
    def test_another_name_is_refused_whatever_it_resolves_to(self, client: Client, host: str) -> None:
        assert client.get("/", Host=host).status == 403
        assert client.send("GET", f"/?token={client.access.token}", {"Host": host}).status == 403

    @pytest.mark.parametrize(
        ("host", "name"), [("2001:db8::7", "[2001:db8::7]:8443"), ("Scan.Example", "scan.example:8443")]
    )
    def test_the_name_is_as_browsers_write_it(self, host: str, name: str) -> None:
        assert Access(host, 8443, is_tls=True).is_for_us({"host": name})

    def test_localhost_is_this_site(self, client: Client) -> None:
        assert client.get("/", Host=f"localhost:{client.access.port}").status == 200

    def test_headers_of_a_proxy_are_not_believed(self, client: Client) -> None:
        forged = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
        assert "evil.example" not in client.get("/", **forged).text
        assert (
            client.get("/", Host="evil.example", **{"X-Forwarded-Host": f"127.0.0.1:{client.access.port}"}).status
            == 403
        )


class TestAProxy:
    def test_the_public_name_and_prefix_are_this_site(self, behind: Client) -> None:
        answer = behind.get("/strand/", Host="watch.example")
        assert answer.status == 200
        assert 'href="/strand/findings"' in answer.text

    def test_forwarded_headers_must_agree_with_the_public_address(self, behind: Client) -> None:
        local = f"127.0.0.1:{behind.access.port}"
        assert (
            behind.get("/", Host=local, **{"X-Forwarded-Host": "watch.example", "X-Forwarded-Proto": "https"}).status
            == 200
        )
        assert behind.get("/", Host=local, **{"X-Forwarded-Host": "evil.example"}).status == 403
        assert behind.get("/", Host=local, **{"X-Forwarded-Proto": "http"}).status == 403

    def test_the_cookie_is_kept_to_tls_and_to_the_prefix(self, behind: Client) -> None:
        answer = behind.send("GET", f"/strand/?token={behind.access.token}", {"Host": "watch.example"})
        assert "; Secure" in answer.headers["set-cookie"]
        assert "Path=/strand;" in answer.headers["set-cookie"]
        assert answer.headers["location"] == "/strand/"

    @pytest.mark.parametrize(
        "text", ["watch.example", "ftp://watch.example", "https://u:p@watch.example", "https://h/?q"]
    )
    def test_what_is_no_address_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidInput, match="--public-url"):
            parse_public_address(text)


class TestChanges:
    def test_a_form_of_this_site_changes_something(self, client: Client) -> None:
        answer = client.post("/findings/triage", chosen(client), Origin=f"http://127.0.0.1:{client.access.port}")
        assert answer.status == 303
        assert answer.headers["location"].startswith("/findings?done=")

    @pytest.mark.parametrize(
        "forged",
        [
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
        ids=str,
    )
    def test_a_page_of_another_site_changes_nothing(self, client: Client, forged: dict[str, str]) -> None:
        answer = client.post("/findings/triage", chosen(client), **forged)
        assert (answer.status, "another site" in answer.text) == (403, True)

    @pytest.mark.parametrize("csrf", ["", "wrong", "0" * 64])
    def test_a_form_without_the_right_value_changes_nothing(self, client: Client, csrf: str) -> None:
        answer = client.post("/findings/triage", chosen(client), csrf=csrf)
        assert (answer.status, "load the page again" in answer.text) == (403, True)

    def test_the_value_may_come_in_a_header(self, client: Client) -> None:
        header = {"X-Strandline-Csrf": client.access.csrf}
        assert client.post("/findings/triage", chosen(client), csrf="", **header).status == 303

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_other_methods_are_refused(self, client: Client, method: str) -> None:
        assert client.send(method, "/findings/triage", client.known).status == 405

    def test_reading_a_change_changes_nothing(self, client: Client) -> None:
        assert client.get("/findings/undo").status == 404

    def test_a_form_without_end_is_refused(self, client: Client) -> None:
        assert client.post("/findings/triage", {"why": "x" * 5_000_000}).status == 413

    @pytest.mark.parametrize("place", ["https://evil.example", "//evil.example", "/\\evil.example", "/a\r\nX: y"])
    def test_a_change_returns_to_pages_of_this_site_alone(self, client: Client, place: str) -> None:
        answer = client.post("/findings/triage", {**chosen(client), "back": place})
        assert answer.headers["location"].startswith("/findings?done=")

    @pytest.mark.parametrize("path", ["/findings/triage", "/findings/undo", "/runs/1/unpark"])
    def test_without_leave_nothing_changes(self, reader: Client, path: str) -> None:
        answer = reader.post(path, {"id": "00" * 32, "state": "confirmed"})
        assert (answer.status, "--allow-changes" in answer.text) == (403, True)


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "/static/../site.py",
            "/static/..%2fsite.py",
            "/static/%2e%2e/site.py",
            "/static//etc/passwd",
            "/static/..\\site.py",
            "/static/app.css%00.js",
            "/../../etc/passwd",
            "/findings/../static/app.js",
        ],
    )
    def test_no_address_becomes_a_path(self, client: Client, path: str) -> None:
        assert client.get(path).status == 404

    @pytest.mark.parametrize("path", MISSING)
    def test_what_is_not_there_is_a_page_that_says_so(self, client: Client, path: str) -> None:
        answer = client.get(path)
        assert answer.status == 404
        assert "<!doctype html>" in answer.text


class TestHeaders:
    @pytest.mark.parametrize("path", ["/", "/findings", "/nothing", "/static/app.js", "/healthz"])
    def test_every_answer_keeps_a_browser_from_running_framing_and_leaking(self, client: Client, path: str) -> None:
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "same-origin"

    def test_pages_are_not_kept(self, client: Client) -> None:
        assert client.get("/findings").headers["cache-control"] == "no-store"

    def test_a_file_that_browsers_keep_has_another_address_once_it_changes(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (path,) = re.findall(r'src="(/static/app\.js[^"]*)"', client.get("/nothing").text)
        answer = client.get(path)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "max-age=3600"
        assert static_path("app.js") == path
        monkeypatch.setattr(rendering, "static_files", lambda: {"app.js": b"another"})
        assert static_path("app.js") != path

    @pytest.mark.parametrize("path", ["/", "/findings", "/findings/secrets", "/coverage", "/runs"])
    def test_no_page_has_a_script_or_a_style_inside(self, client: Client, path: str) -> None:
        text = client.get(path).text
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick" not in text
        assert text.count("<script") == text.count("<script src=") + text.count('<script type="module" src=')


class TestHealth:
    def test_anyone_may_ask_and_learns_nothing(self, client: Client) -> None:
        for path in ("/healthz", "/readyz"):
            answer = client.send("GET", path, {"Host": "probe"})
            assert (answer.status, answer.text) == (200, "ok\n")

    def test_a_part_that_cannot_be_read_is_not_ready_and_is_shown(self, client: Client) -> None:
        scans = client.site.parts.scans
        assert scans is not None
        read = scans._read  # noqa: SLF001 - the store goes away
        scans._read = lambda: (_ for _ in ()).throw(InvalidInput("the disk is gone"))  # noqa: SLF001 - as above
        try:
            eventually(lambda: client.send("GET", "/readyz").status == 503, "a read that had begun is over")
            assert client.send("GET", "/healthz").status == 200
            assert "the disk is gone" in client.get("/").text
        finally:
            scans._read = read  # noqa: SLF001 - and comes back
        eventually(lambda: client.send("GET", "/readyz").status == 200, "it is read again")

    def test_a_part_that_fails_in_any_way_says_so_and_shows_no_password(self, client: Client) -> None:
        scans = client.site.parts.scans
        assert scans is not None
        read, scrapes = scans._read, Scrapes()  # noqa: SLF001 - it breaks
        scans._read = lambda: dict[str, ScanFacts]()["postgresql://u:s3cr3t@h/db"]  # noqa: SLF001 - as above
        try:
            eventually(lambda: client.send("GET", "/readyz").status == 503, "a read that had begun is over")
            text = client.get("/").text
            assert "KeyError" in text
            assert "s3cr3t" not in text
            told = client.get("/metrics").text
            assert re.search(r'^strandline_ui_part_failing\{kind="scans",[^}]*\} 1', told, re.MULTILINE)
            assert scrapes.take(lambda: part_metrics(client.site))["strandline_ui_part_failing"] == 1
        finally:
            scans._read = read  # noqa: SLF001 - and is mended
        eventually(lambda: client.send("GET", "/readyz").status == 200, "it is read again")
        assert scrapes.take(lambda: part_metrics(client.site))["strandline_ui_part_failing"] == 0
        scrapes.check_changed("strandline_ui_part_failing")


class TestListening:
    @pytest.mark.parametrize("host", ["192.0.2.7", "example.org"])
    def test_another_address_without_tls_says_what_is_at_stake(self, host: str) -> None:
        with pytest.raises(InvalidInput, match="unencrypted") as caught:
            Listening(host).check()
        assert "--tls-cert" in (caught.value.hint or "")
        Listening(host, allow_plain=True).check()

    def test_all_addresses_need_the_name_that_browsers_use(self) -> None:
        with pytest.raises(InvalidInput, match="no name"):
            Listening("0.0.0.0", allow_plain=True).check()  # noqa: S104 - refused

    def test_secrets_are_compared_in_constant_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compared: list[object] = []

        def compare(*pair: bytes) -> bool:
            compared.append(pair)
            return False

        monkeypatch.setattr("strandline.web.access.hmac.compare_digest", compare)
        access = Access("127.0.0.1", 80)
        for check in (access.is_token, access.is_cookie, access.is_csrf):
            assert not check("x")
        assert len(compared) == 3
