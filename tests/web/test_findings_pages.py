"""The pages of findings, coverage and runs show what the command line shows, over SQLite and PostgreSQL."""

import csv
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from blake3 import blake3
from psycopg import sql

from strandline.clock import SystemClock
from strandline.detect.locations import Location
from strandline.findings import FindingIndex, FindingQuery, build_index
from strandline.findings.finding_rows import FindingRows
from strandline.findings.index_columns import VALUES
from strandline.findings.reports.values import Report, ReportCoverage, ReportFinding
from strandline.pipeline import HeldShard, claim
from strandline.pipeline.identity import SecretHash
from strandline.protocol import InitialShard, RunKey, ShardSpec
from strandline.protocol.shards import ParkReason, ShardStatus
from strandline.scan.state import State, open_state
from strandline.web import Parts
from strandline.web.parts.scans import ScanPart
from tests.cli.findings_runs import done, rows
from tests.cli.scanned import FakeSource, hit, scan
from tests.servers_postgres import PostgresServer
from tests.servers_seaweed import SeaweedServer
from tests.waiting import PATIENCE_S, eventually
from tests.web.sites import HOSTILE, RULE_IDS, Client, plant, serve_parts, serve_state


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pages") / "state"
    plant(found, 120)
    return found


@pytest.fixture(scope="module")
def client(where: Path) -> Iterator[Client]:
    with serve_state(where) as found:
        yield found


def scans_of(client: Client) -> ScanPart:
    assert client.site.parts.scans is not None
    return client.site.parts.scans


def ids(client: Client, address: str) -> list[str]:
    """Return the findings that a page lists."""
    return re.findall(r'href="/findings/([0-9a-f]{64})"', client.get(address).text)


class TestFilters:
    @pytest.mark.parametrize(
        ("address", "arguments"),
        [
            ("/findings?per=1000", ()),
            ("/findings?per=1000&rule=github-pat", ("--rule", "github-pat")),
            ("/findings?per=1000&rule=github-pat&rule=private-key", ("--rule", "github-pat", "--rule", "private-key")),
            ("/findings?per=1000&confidence=high", ("--confidence", "high")),
            ("/findings?per=1000&source=service.git", ("--source", "service.git")),
            ("/findings?per=1000&place=services/api/*", ("--path", "services/api/**")),
            ("/findings?per=1000&new=1", ("--is", "new")),
            ("/findings?per=1000&state=open&confidence=medium", ("--is", "open", "--confidence", "medium")),
        ],
    )
    def test_a_page_lists_what_the_command_lists(
        self, client: Client, where: Path, address: str, arguments: tuple[str, ...]
    ) -> None:
        listed = [row["finding_id"] for row in rows("list", *arguments, state=where)]
        assert listed
        assert ids(client, address) == listed

    def test_words_are_looked_for_in_places_rules_and_sources(self, client: Client) -> None:
        index = scans_of(client).index
        found = index.page(FindingQuery(text="AUTH github"), limit=1000)
        assert found
        assert all("/auth/" in one.display and one.finding.rule_id == "github-pat" for one in found)
        assert not index.page(FindingQuery(text="100%_"))

    def test_counts_of_filters_add_up(self, client: Client) -> None:
        index = scans_of(client).index
        facets = index.facets(FindingQuery(rules=("github-pat",)))
        assert facets.matching == facets.rules["github-pat"] == len(index.ids(FindingQuery(rules=("github-pat",))))
        assert sum(facets.rules.values()) == index.current
        assert sum(facets.sources.values()) == facets.matching

    @pytest.mark.parametrize("sort", ["place", "newest", "confidence", "rule"])
    def test_pages_follow_one_another(self, client: Client, sort: str) -> None:
        whole = ids(client, f"/findings?per=1000&sort={sort}")
        parts = [
            one for first in range(0, 200, 50) for one in ids(client, f"/findings?per=50&first={first}&sort={sort}")
        ]
        assert parts == whole

    @pytest.mark.parametrize("address", ["/findings?state=lost", "/findings?confidence=sure"])
    def test_an_unknown_filter_is_refused_and_never_an_empty_page(self, client: Client, address: str) -> None:
        assert client.get(address).status == 400

    def test_every_word_must_be_there_and_no_character_of_a_place_is_special_but_a_star(self, client: Client) -> None:
        index = scans_of(client).index
        every = index.page(FindingQuery(), limit=1000)

        def displays(text: str = "", place: str = "") -> list[str]:
            return [one.display for one in index.page(FindingQuery(text=text, place=place), limit=1000)]

        words = displays(text="services github Billing")
        assert words == [
            one.display for one in every if "services/billing" in one.display and one.finding.rule_id == "github-pat"
        ]
        assert displays(place="SERVICES/*/0001?.env") == []
        assert displays(place="services/_pi/*") == displays(place="services/%/*") == displays(place="services\\*") == []
        assert displays(place="pi/config/0000") == [
            one.display for one in every if "pi/config/0000" in one.finding.path
        ]


class TestTheFirstIndex:
    @pytest.fixture
    def go_on(self, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """Keep the index from being built until a test lets it; `coverage` never ends."""
        found = threading.Event()

        def slow(state: State) -> FindingIndex:
            self.builds.append(state)
            assert found.wait(PATIENCE_S)
            return build_index(state)

        self.builds = list[State]()
        monkeypatch.setattr("strandline.web.parts.scans.build_index", slow)
        return found

    def test_the_first_findings_are_shown_while_the_index_is_built_and_the_others_when_it_is(
        self, where: Path, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told, after = list[str](), threading.Event()

        def coverage(*_: object) -> ReportCoverage:
            assert after.wait(PATIENCE_S)
            return ReportCoverage()

        monkeypatch.setattr("strandline.web.parts.scans.coverage_of", coverage)
        addresses = [
            f"/findings{more}" for more in ("", "?per=20&first=40", "?rule=github-pat&per=7", "?q=billing&per=5")
        ]
        with open_state(str(where)) as state, serve_parts(Parts(scans=ScanPart(state)), is_read=False) as client:
            monkeypatch.setattr(client.site.live, "changed", lambda *kinds: told.extend(kinds))
            scans_of(client)._changed = client.site.live.changed  # noqa: SLF001 - its thread may have begun
            eventually(lambda: self.builds, "the index is being built")
            early = {address: ids(client, address) for address in addresses}
            text = client.get("/findings").text
            assert ("data-partial" in text, "being counted" in text, "data-wait" in text) == (True, True, False)
            assert "data-wait" in client.get("/findings/secrets").text
            assert "data-wait" in client.get("/findings?sort=newest").text
            go_on.set()
            eventually(lambda: "data-partial" not in client.get("/findings").text, "the index is built")
            eventually(lambda: told == ["scans"], "the pages are told at once, before coverage is read")
            assert scans_of(client).value is None
            after.set()
            assert early == {address: ids(client, address) for address in addresses}
            assert all(early.values())
            assert len(self.builds) == 1

    def test_a_page_says_that_findings_are_being_read_where_the_stores_do_not_sort(
        self, tmp_path: Path, go_on: threading.Event
    ) -> None:
        lake, key_file = f"file://{tmp_path}/lake", tmp_path / "tenant.key"
        key_file.write_text("ab" * 32)
        key_file.chmod(0o600)
        plant(lake, 5, key_file=key_file)
        with (
            open_state(lake, key_file=key_file) as state,
            serve_parts(Parts(scans=ScanPart(state)), is_read=False) as client,
        ):
            eventually(lambda: self.builds, "the index is being built")
            assert "data-wait" in client.get("/findings").text
            go_on.set()
            eventually(lambda: ids(client, "/findings"), "the findings are shown")


def test_questions_cost_little_beside_one_that_makes_every_finding() -> None:
    """Measured in processor time of the same run: no question may pass over the findings one by one."""
    report = Report(
        [
            ReportFinding(
                finding_id=f"{number:064x}",
                rule_id=RULE_IDS[number % 3],
                secret=SecretHash(blake3(b"%d" % (number // 2)).digest()),
                locations=(Location("file", f"services/{number % 7}/{number:06}.env", 3, 7, 5),),
                first_seen_ns=number,
            )
            for number in range(20_000)
        ]
    )

    def cost(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    index = FindingIndex(FindingRows(report.facts, VALUES.empty_table(), report.findings))
    everything = FindingQuery()
    every = min(cost(lambda: index.report(everything)) for _ in range(3))
    assert index.groups(everything)[0] == 10_000
    assert index.facets(FindingQuery(rules=(RULE_IDS[0],))).matching == 6_667
    texts = iter(f"services/3/ {number}" for number in range(100))
    questions: list[Callable[[], object]] = [
        lambda: index.page(everything, first=19_000),
        lambda: index.page(replace(everything, sort="newest")),
        lambda: index.groups(everything),
        lambda: index.facets(replace(everything, rules=(RULE_IDS[0],))),
        lambda: index.page(replace(everything, text=next(texts))),
    ]
    for question in questions:
        assert min(cost(question) for _ in range(5)) < every / 10


class TestSecrets:
    def test_the_same_secret_across_sources_is_one_row(self, client: Client) -> None:
        total, groups = scans_of(client).index.groups(FindingQuery(), limit=1000)
        assert total == len(groups)
        shared = [one for one in groups if len(one.sources) > 1]
        assert shared
        assert sum(one.findings for one in groups) == scans_of(client).index.current
        assert len(ids(client, f"/findings?per=1000&group={shared[0].group}")) == shared[0].findings
        assert "in 2 sources" in client.get("/findings/secrets").text

    def test_no_page_holds_a_whole_hash_of_a_secret(self, client: Client) -> None:
        finding = scans_of(client).index.page(FindingQuery())[0].finding
        for address in ("/findings", "/findings/secrets", f"/findings/{finding.finding_id}"):
            assert finding.secret.hex() not in client.get(address).text


class TestTriage:
    def test_a_decision_shows_in_page_history_and_command_and_can_be_undone(self, client: Client, where: Path) -> None:
        chosen = ids(client, "/findings?rule=private-key&state=open")[:3]
        sent = client.post(
            "/findings/triage", {"id": chosen, "state": "revoked", "why": "rotated <b>today</b>", "back": "/findings"}
        )
        after = client.get(sent.headers["location"]).text
        assert "Decided about 3 findings." in after
        assert set(ids(client, "/findings?state=revoked")) >= set(chosen)
        listed = {row["finding_id"]: row for row in rows("list", "--is", "revoked", state=where)}
        assert set(listed) >= set(chosen)
        detail = client.get(f"/findings/{chosen[0]}").text
        assert "rotated &lt;b&gt;today&lt;/b&gt;" in detail
        assert "tester" in detail
        key = re.search(r'name="key" value="([0-9a-f]+)"', after)
        assert key is not None
        assert client.post("/findings/undo", {"key": key[1]}).status == 303
        assert not set(ids(client, "/findings?state=revoked")) & set(chosen)
        assert "(undo)" in client.get(f"/findings/{chosen[0]}").text

    def test_a_decision_that_is_made_while_the_index_is_built_anew_is_shown(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (chosen, *_), sent = ids(client, "/findings?rule=private-key&state=open"), list[int]()

        def slow(state: State) -> FindingIndex:
            fresh = build_index(state)
            if not sent:
                sent.append(client.post("/findings/triage", {"id": chosen, "state": "revoked"}).status)
            return fresh

        monkeypatch.setattr("strandline.web.parts.scans.build_index", slow)
        scans_of(client)._replace_index("a look before the decision")  # noqa: SLF001 - as its thread does
        assert sent == [303]
        assert chosen in ids(client, "/findings?per=1000&state=revoked")
        client.post("/findings/undo", {"id": chosen})

    def test_all_that_match_are_decided_about(self, client: Client) -> None:
        matching = ids(client, "/findings?per=1000&rule=github-pat&state=open")
        client.post("/findings/triage", {"filters": "rule=github-pat&state=open", "state": "confirmed"})
        assert set(ids(client, "/findings?per=1000&state=confirmed")) >= set(matching)
        client.post("/findings/undo", {"id": matching})
        assert ids(client, "/findings?per=1000&rule=github-pat&state=open") == matching

    def test_a_decision_about_a_secret_holds_wherever_it_is(self, client: Client) -> None:
        _, groups = scans_of(client).index.groups(FindingQuery())
        same = ids(client, f"/findings?group={groups[0].group}")
        assert len(same) > 1
        client.post("/findings/triage", {"id": same[0], "state": "revoked", "everywhere": "1"})
        assert set(ids(client, "/findings?per=1000&state=revoked")) >= set(same)
        client.post("/findings/undo", {"id": same[0]})
        assert set(ids(client, "/findings?per=1000&state=open")) >= set(same)

    def test_a_decision_made_elsewhere_shows_by_itself(self, client: Client, where: Path) -> None:
        [chosen, *_] = ids(client, "/findings?sort=newest&state=open")
        done("triage", chosen, "--as", "confirmed", state=where)
        eventually(lambda: chosen in ids(client, "/findings?per=1000&state=confirmed"), "the decision is shown")

    def test_nothing_chosen_is_an_error(self, client: Client) -> None:
        assert client.post("/findings/triage", {"state": "revoked"}).status == 404
        assert client.post("/findings/triage", {"id": "00" * 32, "state": "gone"}).status == 400


class TestExport:
    def test_what_is_shown_is_what_is_exported(self, client: Client) -> None:
        shown = ids(client, "/findings?per=1000&rule=github-pat&sort=confidence")
        address = "/findings/export?rule=github-pat&sort=confidence&format="
        table = client.get(address + "csv")
        assert [row["finding_id"] for row in csv.DictReader(io.StringIO(table.text))] == shown
        assert 'filename="findings.csv"' in table.headers["content-disposition"]
        lines = [json.loads(line) for line in client.get(address + "json").text.splitlines()]
        assert [one["finding_id"] for one in lines if "finding_id" in one] == shown
        [run] = json.loads(client.get(address + "sarif").text)["runs"]
        assert len(run["results"]) == len(shown)

    def test_an_unknown_format_is_not_found(self, client: Client) -> None:
        assert client.get("/findings/export?format=exe").status == 404


class TestHostileNames:
    def test_a_name_is_text_and_every_character_of_it_is_seen(self, client: Client) -> None:
        text = client.get("/findings?per=1000").text
        assert "<script>document" not in text
        assert "&lt;script&gt;document" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert r"\u202e" in text
        assert HOSTILE not in text


class TestChanges:
    def test_new_and_gone_findings_are_told_from_the_rest(self, tmp_path: Path) -> None:
        before = {"a.env": [hit("github-pat", "one", "a.env")], "b.env": [hit("github-pat", "two", "b.env")]}
        scan(tmp_path / "state", FakeSource("fs", "/srv/x", before))
        with serve_state(tmp_path / "state") as client:
            assert len(ids(client, "/findings")) == 2
            after = {"a.env": before["a.env"], "c.env": [hit("private-key", "three", "c.env")]}
            scan(tmp_path / "state", FakeSource("fs", "/srv/x", after), run=2)
            eventually(lambda: len(ids(client, "/findings?show=gone")) == 1, "the pages follow the stores")
            assert len(ids(client, "/findings")) == 2
            assert len(ids(client, "/findings?show=all")) == 3


class TestCoverage:
    def test_what_was_not_scanned_is_named_and_nothing_is_called_clean(self, client: Client) -> None:
        text = client.get("/coverage").text
        for words in ("private/</span>", "permission denied", "larger than the limit", "the scan did not reach it"):
            assert words in text
        assert "clean" not in text.lower()
        assert "film.mkv" not in client.get("/coverage?status=failed").text

    def test_the_overview_says_what_needs_a_person(self, client: Client) -> None:
        assert "items were not scanned in full" in client.get("/").text


def start_run(state: State, run: int, shards: int) -> RunKey:
    """Begin a run of shards, and hold, park and complete some of them."""
    key = RunKey(state.tenant, run)
    coordinator = state.stores.coordinator
    coordinator.create_run(SystemClock().now_ns(), key, op_id=1)
    specs = [ShardSpec(b"%06d" % n, b"%06d" % (n + 1)) for n in range(shards)]
    initial = [InitialShard(n, spec) for n, spec in enumerate(specs)]
    coordinator.register_shards(SystemClock().now_ns(), key, initial, op_id=2)
    return key


class TestRuns:
    def test_shards_are_a_map_and_a_parked_one_is_unparked(self, tmp_path: Path) -> None:
        plant(tmp_path / "state", 5)
        with open_state(str(tmp_path / "state")) as state, serve_state(tmp_path / "state") as client:
            key = start_run(state, 77, 12)
            held = claim(state.stores.coordinator, key, worker=3, clock=SystemClock())
            parked = claim(state.stores.coordinator, key, worker=4, clock=SystemClock())
            assert isinstance(held, HeldShard)
            assert isinstance(parked, HeldShard)
            parked.park(ParkReason.POISONED)
            eventually(lambda: "1 parked" in client.get("/runs/77").text, "the map follows the run")
            text = client.get("/runs/77").text
            assert text.count('class="cell ') == 12
            assert text.count('class="cell leased"') == text.count('class="cell parked"') == 1
            assert "poisoned" in text
            assert "shards of run" in client.get("/").text
            shard = re.search(r'name="shard" value="(\d+)"', text)
            assert shard is not None
            assert client.post("/runs/77/unpark", {"shard": shard[1]}).status == 303
            states = [one.status for one in scans_of(client).shards(77)]
            assert states.count(ShardStatus.PARKED) == 0
            held.complete()


def check_pages(where: str, key_file: Path) -> None:
    """Plant findings in a state, and look at every page about it."""
    key_file.write_text("ab" * 32)
    key_file.chmod(0o600)
    plant(where, 30, key_file=key_file)
    with serve_state(where, key_file=key_file) as client:
        shown = ids(client, "/findings?per=1000")
        assert len(shown) == 43
        client.post("/findings/triage", {"id": shown[:2], "state": "revoked"})
        assert ids(client, "/findings?state=revoked") == shown[:2]
        assert "permission denied" in client.get("/coverage").text
        assert 'href="/runs/1"' in client.get("/runs").text
        assert client.get("/runs/1").text.count('class="cell done"') == 1
    with serve_state(where, key_file=key_file) as client:
        assert ids(client, "/findings?state=revoked") == shown[:2], "the decision is in the stores"


def test_pages_are_the_same_over_postgresql(postgres_state: str, tmp_path: Path) -> None:
    check_pages(postgres_state, tmp_path / "tenant.key")


def test_a_postgresql_that_goes_away_is_said_and_what_was_read_stays(
    postgres_server: PostgresServer, postgres_schema: str, postgres_state: str, tmp_path: Path
) -> None:
    key_file, name = tmp_path / "tenant.key", sql.Identifier(postgres_schema)
    key_file.write_text("ab" * 32)
    key_file.chmod(0o600)
    plant(postgres_state, 30, key_file=key_file)
    with (
        psycopg.connect(postgres_server.dsn, autocommit=True) as server,
        serve_state(postgres_state, key_file=key_file) as client,
    ):
        shown = ids(client, "/findings")

        def allow(is_allowed: str) -> None:
            server.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}").format(name, sql.SQL(is_allowed)))

        allow("false")
        try:
            gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            assert server.execute(gone, [postgres_schema]).rowcount
            eventually(lambda: client.send("GET", "/readyz").status == 503, "a look fails")
            assert client.send("GET", "/healthz").status == 200
            assert ids(client, "/findings") == shown
            overview = client.get("/").text
            assert "cannot be read" in overview
            assert 'href="/findings?state=open"' in overview, "what was read last"
            assert client.get("/coverage").status == 200
            lost = client.get(f"/findings/{shown[0]}")
            assert (lost.status, "<!doctype html>" in lost.text) == (503, True)
            assert client.post("/findings/triage", {"id": shown[0], "state": "revoked"}).status == 503
        finally:
            allow("true")
        eventually(lambda: client.send("GET", "/readyz").status == 200, "it is read again")
        assert client.get(f"/findings/{shown[0]}").status == 200


def test_pages_are_the_same_over_a_lake_in_a_folder(tmp_path: Path) -> None:
    check_pages(f"file://{tmp_path}/lake", tmp_path / "tenant.key")


@pytest.mark.long
def test_pages_are_the_same_over_a_lake_in_a_bucket(
    seaweed_server: SeaweedServer, seaweed_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)
    check_pages(seaweed_address, tmp_path / "tenant.key")


class TestTheIndex:
    def test_a_report_out_of_the_index_is_the_report_that_went_in(self, where: Path) -> None:
        with open_state(str(where)) as state:
            part = ScanPart(state)
            report = part.index.report(FindingQuery())
            rows = FindingRows(report.facts, VALUES.empty_table(), report.findings)
            again = FindingIndex(rows).report(FindingQuery())
        assert [*map(str, again.findings)] == [*map(str, report.findings)]
