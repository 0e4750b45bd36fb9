"""`strandline scan --verify` and `strandline findings verify`, against a server that speaks providers' answers."""

import base64
import gzip
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.findings.report_builder import observations
from strandline.pipeline.identity import PolicyHash
from strandline.pipeline.reads import Observed
from strandline.pipeline.verifications import Liveness
from strandline.scan.state import State
from strandline.verify import PROVIDERS
from strandline.verify.host_limits import HostLimits
from tests.cli.runs import Ran, run_command
from tests.verify.provider_server import EXAMPLES, LIMITED, ProviderServer, example, provider_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    # All providers are one host here; the pace has tests of its own.
    monkeypatch.setattr("strandline.cli.verification.HostLimits", partial(HostLimits, interval_s=0.0))
    with provider_server() as running:
        yield running


class Shop:
    """A folder with secrets, and a state."""

    def __init__(self, folder: Path, server: ProviderServer) -> None:
        self.files, self.state, self.server = folder / "files", folder / "state", server
        self.files.mkdir()

    def plant(self, name: str, provider: str, *, live: bool = False, limited: bool = False) -> str:
        """Write a secret into a file of its own."""
        text, secret = example(provider, f"{name} {provider}")
        (self.files / name).write_text(text)
        if live:
            self.server.live.add(f"{text.split()[2]} {secret}" if provider == "aws" else secret)
        if limited:
            self.server.limited.add(secret)
        return secret

    def scan(self, *words: str | Path, hosts: bool = True) -> Ran:
        given = self.server.options if hosts else []
        return run_command("scan", self.files, "--rules", "builtin", "--state", self.state, *given, *words)

    def findings(self, *words: str) -> Ran:
        return run_command("findings", *words, "--state", self.state)

    def states(self) -> dict[str, str | None]:
        """Return the state of the finding in each path, and check that each answer has its time and host."""
        found: dict[str, str | None] = {}
        for row in map(json.loads, self.findings("list", "--json").out.splitlines()):
            answer = row["verification"]
            assert answer is None or (answer["when"].startswith("20") and answer["host"] and answer["reason"])
            found[f"{row['path']} {row['rule_id']}"] = answer and answer["state"]
        return found


@pytest.fixture
def shop(tmp_path: Path, server: ProviderServer) -> Shop:
    return Shop(tmp_path, server)


def summary(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran.out.splitlines()[-1])["summary"]
    return found


def test_every_provider_is_asked_once_and_its_answers_are_kept(shop: Shop) -> None:
    for provider in EXAMPLES:
        shop.plant(f"live-{provider}", provider, live=True)
        shop.plant(f"revoked-{provider}", provider)
    for provider in LIMITED:
        shop.plant(f"limited-{provider}", provider, limited=True)
    (shop.files / "other").write_text(example("github", "x")[0].replace("ghp_", "gxp_") + "password = 'aB3$kd8Zq1xW'\n")
    ran = shop.scan("--verify", "--json")
    assert ran.code == 1, ran.err
    states = shop.states()
    named = {key: state for key, state in states.items() if not key.startswith("other")}
    assert {
        key for key, state in named.items() if state != ("revoked" if key.startswith("revoked") else "live")
    } == set()
    assert {key.split()[0] for key in named} == {path.name for path in shop.files.iterdir()} - {"other"}
    asked = shop.server.names()
    secrets = {one.name: 2 + (one.name in LIMITED) + 2 * (one.name == "aws") for one in PROVIDERS}
    assert {name: asked.count(name) for name in secrets} == secrets, "AWS has two findings for each key"
    counts = summary(ran)["verification"]
    assert counts["asked"] == len(asked)
    assert counts["unknown"] == 0
    assert counts["without_provider"] >= 1
    again = summary(shop.scan("--verify", "--json"))["verification"]
    assert again == {**counts, "asked": 0}
    assert len(shop.server.asked) == len(asked), "recent answers are taken as they are"


def test_nobody_is_asked_unless_that_is_wanted(shop: Shop) -> None:
    shop.plant("a", "github", live=True)
    shop.scan()
    assert shop.server.asked == []
    assert set(shop.states().values()) == {None}


@pytest.mark.parametrize("mode", ["500", "403", "garbage", "portal", "portal 401", "redirect"])
def test_what_is_no_documented_answer_is_unknown_and_is_asked_again_sooner(shop: Shop, mode: str) -> None:
    shop.plant("a", "github", live=True)
    shop.server.modes["github"] = [mode]
    shop.scan("--verify")
    assert shop.states() == {"a github-pat": "unknown"}
    assert shop.server.names() == ["github"], "a redirect is not followed"
    shop.server.modes.clear()
    shop.findings("verify", *shop.server.options)
    assert shop.states() == {"a github-pat": "unknown"}, "an answer of less than 15 minutes ago"
    assert shop.findings("verify", "--again", *shop.server.options).code == 0
    assert shop.states() == {"a github-pat": "live"}


def test_live_findings_come_first_and_can_be_asked_for(shop: Shop, tmp_path: Path) -> None:
    shop.plant("a", "stripe")
    shop.plant("b", "npm")
    shop.plant("z", "github", live=True)
    assert shop.scan("--verify", "--is", "live", "--exit-code").code == 1
    assert shop.scan("--is", "live", "--exit-code", hosts=False).code == 1
    shop.server.live.clear()
    rows = [json.loads(line) for line in shop.findings("list", "--json").out.splitlines()]
    assert [row["path"] for row in rows] == ["z", "a", "b"]
    assert [row["nth"] for row in rows] == [1, 1, 1]
    assert [json.loads(line)["path"] for line in shop.findings("list", "--is", "live", "--json").out.splitlines()] == [
        "z"
    ]
    table = shop.findings("list").out
    assert "verified" in table
    assert table.index("live 20") < table.index("revoked 20")
    for form in ("sarif", "csv", "jsonl", "html"):
        assert shop.findings("export", "--format", form, "--output", str(tmp_path / f"r.{form}")).code == 0
    sarif = json.loads((tmp_path / "r.sarif").read_text())["runs"][0]["results"]
    assert [one["properties"]["verification"]["state"] for one in sarif] == ["live", "revoked", "revoked"]
    assert "verified as live" in sarif[0]["message"]["text"]
    head, first, *_ = (tmp_path / "r.csv").read_text().splitlines()
    assert head.endswith("verification,verified")
    assert ",live,20" in first
    assert f"live at 127.0.0.1:{shop.server.port}: the provider accepts it" in (tmp_path / "r.html").read_text()
    said = shop.findings("show", rows[0]["finding_id"]).out
    assert "live, 20" in said
    assert f"127.0.0.1:{shop.server.port}: the provider accepts it" in said.replace("\n", " ")
    assert shop.findings("verify", "--again", "--rule", "github-pat", *shop.server.options).code == 0
    assert shop.scan("--is", "live", "--exit-code", hosts=False).code == 0


def test_an_answer_changes_no_number(shop: Shop, tmp_path: Path) -> None:
    made = [example("github", str(number)) for number in range(6)]
    pq.write_table(pa.table({"note": [text for text, _ in made]}), tmp_path / "notes.parquet")
    words = ("scan", "--table", f"parquet:{tmp_path / 'notes.parquet'}", "--rules", "builtin", "--state", shop.state)

    def numbers() -> list[tuple[int, str]]:
        rows = map(json.loads, shop.findings("list", "--json").out.splitlines())
        return [(row["nth"], row["finding_id"]) for row in rows]

    run_command(*words, "--without-spark")
    before = numbers()
    assert [nth for nth, _ in before] == [1, 2, 3, 4, 5, 6]
    rows = map(json.loads, shop.findings("list", "--json").out.splitlines())
    shop.server.live |= {made[int(row["row"])][1] for row in rows if row["nth"] in {4, 6}}
    run_command(*words, "--without-spark", "--verify", *shop.server.options)
    assert numbers() == [before[nth - 1] for nth in (4, 6, 1, 2, 3, 5)]


def test_a_secret_of_many_versions_is_read_from_the_last(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.verify.item_secrets.ITEMS_PER_SECRET_MAX", 1)
    shop.plant("a", "github", live=True)
    text = (shop.files / "a").read_text()
    for version in range(5):
        (shop.files / "a").write_text("# a line\n" * version + text)
        shop.scan()
        assert shop.findings("verify", "--again", *shop.server.options).code == 0
    assert shop.server.names() == ["github"] * 5


def test_findings_of_many_sources_are_read_from_the_stores_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def counted(state: State, policy: PolicyHash) -> Iterator[list[Observed]]:
        reads.append(policy)
        return observations(state, policy)

    for name in ("a", "b", "c"):
        shop.plant(name, "github", live=True)
        run_command("scan", shop.files / name, "--rules", "builtin", "--state", shop.state)
    monkeypatch.setattr("strandline.verify.item_secrets.observations", counted)
    assert shop.findings("verify", *shop.server.options).code == 0
    assert set(shop.states().values()) == {"live"}
    assert len(reads) == 1


def test_no_answer_does_not_replace_one(shop: Shop) -> None:
    shop.plant("a", "github", live=True)
    shop.scan("--verify")
    before = shop.findings("list", "--json").out
    for mode in ("500", "garbage", "portal"):
        shop.server.modes["github"] = [mode]
        assert shop.findings("verify", "--again", *shop.server.options).code == 0
        assert shop.findings("list", "--json").out == before
    shop.server.modes.clear()
    shop.server.live.clear()
    shop.findings("verify", "--again", *shop.server.options)
    assert shop.states() == {"a github-pat": "revoked"}


def test_repositories_of_a_list_are_not_verified_in_silence(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a\n")
    ran = run_command("scan", "--repos", tmp_path / "list", "--verify", "--state", shop.state)
    assert ran.code == 1
    assert "--repos excludes --verify" in ran.err
    assert "findings verify" in ran.err


def test_a_secret_that_changed_or_is_gone_is_not_sent(shop: Shop) -> None:
    shop.plant("a", "github", live=True)
    shop.plant("b", "npm", live=True)
    shop.scan()
    (shop.files / "b").unlink()
    shop.plant("a", "github")
    (shop.files / "a").write_text(example("github", "another")[0])
    shop.findings("verify", *shop.server.options)
    assert shop.server.asked == []
    assert shop.states() == {"a github-pat": "unknown", "b npm-token": "unknown"}


def test_another_folder_of_the_name_of_a_source_is_not_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.plant("a", "github", live=True)
    shop.scan("--source-name", "mine")
    shop.files.rename(shop.files.parent / "mine")
    monkeypatch.chdir(shop.files.parent)
    assert "mine cannot be opened from here" in shop.findings("verify", *shop.server.options).err
    assert shop.server.asked == []


def test_secrets_are_read_again_wherever_they_were_found(shop: Shop) -> None:
    text, secret = example("github", "packed")
    shop.server.live.add(secret)
    (shop.files / "a.gz").write_bytes(gzip.compress(text.encode()))
    text, secret = example("npm", "encoded")
    shop.server.live.add(secret)
    (shop.files / "b").write_bytes(b"data: " + base64.b64encode(b"the settings are\n" + text.encode()) + b"\n")
    shop.scan("--verify")
    assert set(shop.states().values()) == {Liveness.LIVE.value}


def test_a_part_without_its_other_part_is_unknown_and_nothing_is_sent(shop: Shop) -> None:
    key_id, secret = example("aws", "x")[0].splitlines()
    sid, token = example("twilio", "x")[0].splitlines()
    (shop.files / "id").write_text(key_id)
    (shop.files / "secret").write_text(secret)
    (shop.files / "far").write_text(sid + "\n" + "far away\n" * 500 + token)
    shop.scan("--verify")
    assert shop.server.asked == []
    assert set(shop.states().values()) == {"unknown"}
    (shop.files / "far").write_text(f"{sid}\n{sid[:-1]}e\n{token}\n")
    shop.scan("--verify")
    shop.findings("verify", "--again", "--rule", "twilio-auth-token", *shop.server.options)
    assert shop.server.names() == ["twilio"]
    assert shop.states()["far twilio-auth-token"] == "unknown", "refused, and another account could be the right one"


def test_a_hook_asks_nobody(shop: Shop) -> None:
    shop.plant("a", "github", live=True)
    for words in (["init", "--quiet"], ["add", "a"]):
        subprocess.run(["git", "-C", str(shop.files), *words], check=True)  # noqa: S607 - that of the path
    ran = shop.scan("--staged", "--verify")
    assert ran.code == 1
    assert "--verify is ignored with --staged" in ran.err
    assert shop.server.asked == []


def test_a_file_in_what_is_scanned_sends_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.plant("a", "github", live=True)
    monkeypatch.chdir(shop.files)
    for line in ("verify = true", f'verify-host = ["github=http://127.0.0.1:{shop.server.port}/github"]'):
        (shop.files / "strandline.toml").write_text(f"[scan]\n{line}\n")
        ran = shop.scan(hosts=False)
        assert ran.code == 1
        assert "there is no such key in [scan]" in ran.err
    (shop.files / "strandline.toml").unlink()
    # A rule of a foreign file does not make a provider of whoever it names.
    rule = "[[rules]]\nid = 'github-pat'\nregex = '''mine_[a-z]{8}'''\nkeywords = ['mine_']\n"
    (shop.files / ".gitleaks.toml").write_text(rule)
    (shop.files / "b").write_text("token = mine_abcdefgh\n")
    run_command("scan", shop.files, "--state", shop.state, "--verify", *shop.server.options)
    assert shop.server.asked == []


def test_rules_name_the_request() -> None:
    said = run_command("rules", "show", "github-pat", "--rules", "builtin").out
    assert "GET https://api.github.com/user" in said
    rows = map(json.loads, run_command("rules", "list", "--json", "--rules", "builtin").out.splitlines())
    asked = {row["rule"]: row for row in rows if row["verified_by"]}
    assert set(asked) == {rule for one in PROVIDERS for rule in one.rules}
    assert asked["aws-secret-access-key"]["verification_sends"].startswith("the access key id, and a signature")
    assert "api.anthropic.com/v1/models" in asked["anthropic-api-key"]["verified_by"]


def test_answers_survive_a_rotation_of_the_key(shop: Shop) -> None:
    shop.plant("a", "github", live=True)
    shop.scan("--verify")
    assert run_command("pipeline", "rotate-key", "--state", shop.state).code == 0
    assert shop.states() == {"a github-pat": "live"}
