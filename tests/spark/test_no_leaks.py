"""No secret leaks: planted everywhere, with everything run and much going wrong, no byte of one is left anywhere."""

import base64
import gzip
import io
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from strandline.cache import cache_folder
from strandline.journal import Journal
from tests.cli.runs import run_command
from tests.spark.leaks import Search, Secrets, written_down
from tests.spark.lives import ROOT, living, wait_for

FORMATS = ("jsonl", "csv", "sarif", "html", "baseline", "gitleaks")
SEED = 20_260
RULES = """
[[rules]]
id = "leak"
description = "a made-up secret"
regex = '''leak_[0-9A-Za-z]{24}'''
keywords = ["leak_"]
[[rules]]
id = "slow"
description = "a rule that only the slow matcher takes"
regex = '''of (?:([a-z]+)+)+\n'''
keywords = ["token"]
"""
# Runs in every Python that the scan starts: errors that quote what is scanned, and a worker that dies over it.
TROUBLE = """
import os, pathlib, signal
from strandline.detect import Engine
from strandline.scan.worker.page_writer import PageWriter

once = pathlib.Path(os.environ["TROUBLE"])
engine_scan, page_add = Engine.scan, PageWriter.add

def scan(self, data, *more, **named):
    if b"the engine fails here" in data:
        raise ValueError(f"cannot scan {data!r}")
    return engine_scan(self, data, *more, **named)

def first_time(name):
    try:
        (once / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def add(self, entry):
    parts = entry.content.parts if entry.content else ()
    data = b"".join(part.data for part in parts) if isinstance(parts, list) else b""
    if b"the worker fails here" in data and first_time("failed"):
        raise KeyError(data)
    if b"the worker dies here" in data and first_time("died"):
        os.kill(os.getpid(), signal.SIGKILL)
    return page_add(self, entry)

Engine.scan, PageWriter.add = scan, add
"""


@dataclass(frozen=True)
class Place:
    """Where everything of this test is; `left` is all that is searched, and that nobody planted."""

    folder: Path
    secrets: Secrets

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    @property
    def left(self) -> Path:
        return self.folder / "left"

    @property
    def once(self) -> Path:
        return self.corpus / "once"

    @property
    def inputs(self) -> list[object]:
        corpus = self.corpus
        files = [corpus / "files", "--table", f"parquet:{corpus / 'tables'}", "--table-key", "id"]
        return [*files, "--journal", corpus / "journal"]

    def arguments(self, *inputs: object) -> list[str]:
        """Return the arguments of a scan."""
        rules = self.corpus / "rules.toml"
        return list(map(str, ["scan", *inputs, "--rules", rules, "--state", self.left / "state", "--lease-s", 1]))

    def say(self, name: str, *texts: str) -> None:
        """Keep what a command said, to be searched."""
        (self.left / "said" / name).write_text("\n".join(texts))


@pytest.fixture
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="leaks-", dir="/tmp"))
    for name in ("said", "events", "cache", "tmp"):
        (folder / "left" / name).mkdir(parents=True)
    place = Place(folder, Secrets(SEED))
    plant(place)
    yield place
    shutil.rmtree(folder)


def plant(place: Place) -> None:
    secrets, files = place.secrets, place.corpus / "files"
    files.mkdir(parents=True)
    for number in range(40):
        (files / f"harmless{number}.txt").write_text("nothing to see here\n" * 20)

    def line(name: str) -> bytes:
        return f'token = "{secrets.new(name)}" # of {name}\n'.encode()

    contents = {
        "plain.env": line("plain"),
        "base64.txt": base64.b64encode(line("base64")),
        "nested.txt": base64.b64encode(line("nested").hex().encode()),
        "hex.txt": line("hex").hex().encode(),
        "percent.txt": "".join(f"%{byte:02X}" for byte in line("percent")).encode(),
        "url.txt": b"https://host/?q=" + quote_from_bytes(line("url")).encode(),
        "utf16.txt": line("utf16").decode().encode("utf-16"),
        "packed.gz": gzip.compress(line("gzip")),
        "packed.zip": zipped({"inner.txt": line("zip"), "not-a-secret.txt": b"nothing"}),
        "packed.tar.zst": zstandard.compress(tarred({"a/b.txt": line("tar")})),
        "allowed.py": line("allowed").rstrip() + b" # strandline:allow\n",
        "engine.txt": b"the engine fails here " + line("engine error"),
        "failing.txt": b"the worker fails here " + line("worker error"),
        "dying.txt": b"the worker dies here " + line("worker death"),
        "broken.zip": zipped({"inner.txt": line("broken archive")}, zipfile.ZIP_STORED)[:-40],
        "broken.gz": gzip.compress(line("broken gzip"))[:-9],
        "next-to-a-name": line("next to a name"),
        "many.txt": b"".join(line(f"many {number}") for number in range(50)),
    }
    for name, data in contents.items():
        (files / name).write_bytes(data)
    os.mkfifo(files / "pipe")
    (files / "loop").symlink_to("loop")
    tables = place.corpus / "tables"
    tables.mkdir()
    notes = ["nothing", line("cell").decode(), "nothing"]
    packed = pa.array([[("k", line("map").decode())], [], []], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"id": [1, 2, 3], "notes": notes, "labels": packed}), tables / "good.parquet")
    (tables / "broken.parquet").write_bytes(b"PAR1" + line("broken table") + b"PAR1")
    with Journal.open(place.corpus / "journal") as journal:
        journal.append([b"nothing", line("record"), json.dumps({"text": line("json").decode()}).encode()])
    repository(place.corpus / "repository", {"settings.env": line("git"), "later.env": line("git, later")})
    (place.corpus / "rules.toml").write_text(RULES)
    hooks = place.corpus / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(TROUBLE)
    place.once.mkdir()


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def repository(folder: Path, files: dict[str, bytes]) -> None:
    """Commit files one after another, and remove them all."""
    folder.mkdir()
    git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid"]
    subprocess.run([*git, "init", "--quiet", "."], cwd=folder, check=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
        subprocess.run([*git, "add", name], cwd=folder, check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", "add it"], cwd=folder, check=True)
    subprocess.run([*git, "rm", "--quiet", *files], cwd=folder, check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "remove it"], cwd=folder, check=True)


def scan_with_trouble(place: Place, inputs: list[object], name: str) -> int:
    """Scan in a process of its own, with everything logged that can be; return the number of findings.

    Files are scanned on Spark, and the power goes meanwhile; the repository is scanned without Spark.
    """
    left = place.left
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (left / "events").as_uri(),
        "spark.eventLog.compress": "true",
        "spark.eventLog.logBlockUpdates.enabled": "true",
        "spark.eventLog.includeTaskMetricsAccumulators": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.executor.processTreeMetrics.enabled": "true",
        "spark.log.level": "DEBUG",
    }
    settings = [part for key, value in log.items() for part in ("--conf", f"{key}={value}")]
    environ = {
        "PYTHONPATH": os.pathsep.join([str(place.corpus / "hooks"), str(ROOT / "src"), str(ROOT)]),
        "TROUBLE": str(place.once),
        "STRANDLINE_SPARK_LOG": str(left / "said" / f"{name}-spark.log"),
        "PYTHONFAULTHANDLER": "1",
        "TMPDIR": str(left / "tmp"),
    }
    with living(place.arguments(*inputs), **environ) as lives:
        if name == "files":
            # Whatever Spark has in its folders when the power goes is left there.
            life = lives.start(*settings)
            assert wait_for((place.once / "failed").exists, life)
            life.lose_power()
            shutil.copytree(
                left / "tmp", left / "tmp-of-the-dead", ignore=shutil.ignore_patterns("*.sock", "connection")
            )
        life = lives.finish("--json", *(settings if name == "files" else ["--without-spark"]))
        place.say(f"{name}.out", life.out)
        place.say(f"{name}.err", life.err)
        findings: int = life.summary["findings"]
        if name == "files":
            assert life.summary["codes"].keys() >= {"SCAN_ERROR:ValueError", "BROKEN_TABLE", "NOT_A_FILE", "SYMLINK"}
    return findings


def run_everything(place: Place) -> None:
    """Run every command that shows anything, over what the scans left."""
    state, scan = place.left / "state", place.arguments(*place.inputs)
    for name in ("--explain", "--json"):
        place.say(f"explained{name}", run_command(*scan, "--explain", name).out)
    # What the engine failed at is looked at again, by workers that are not wanted here.
    (place.corpus / "files" / "engine.txt").unlink()
    for form in FORMATS:
        to = place.left / "said" / f"report.{form}"
        ran = run_command(*scan, "--exit-zero", "--format", form, "--output", to)
        assert ran.code == 0, ran.err
        place.say(f"scan-{form}", ran.out, ran.err)
        assert to.stat().st_size > 1000
    for name, arguments in {
        "list": ["list"],
        "list-json": ["list", "--json"],
        "coverage": ["coverage"],
        "coverage-json": ["coverage", "--json"],
        "diff": ["diff", "--since", "1h"],
        **{f"export-{form}": ["export", "--format", form] for form in FORMATS},
    }.items():
        ran = run_command("findings", *arguments, "--state", state)
        place.say(name, ran.out, ran.err)
        assert ran.code == 0, ran.err
    listed = run_command("findings", "list", "--json", "--state", state).out.splitlines()
    ids = [json.loads(line)["finding_id"] for line in listed]
    for number, one in enumerate(ids[::8]):
        ran = run_command("findings", "show", one, "--state", state)
        assert ran.code == 0, ran.err
        more = run_command("findings", "show", one, "--json", "--state", state)
        place.say(f"show-{number}", ran.out, ran.err, more.out)
    for arguments in (["status"], ["verify"]):
        ran = run_command("pipeline", *arguments, str(state / "pipeline.db"))
        place.say(f"pipeline-{arguments[0]}", ran.out, ran.err)


def keep_new_caches(place: Place, since_s: float) -> None:
    """Copy what was put into the user's cache meanwhile, to be searched."""
    for folder, _, names in os.walk(cache_folder()):
        for path in (Path(folder) / name for name in names if not name.endswith(".jsa")):
            with suppress(FileNotFoundError):  # others use the cache, and put files in place of others
                if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since_s:
                    shutil.copy(path, place.left / "cache")


def test_no_byte_of_a_secret_is_left_anywhere(place: Place) -> None:
    began_s = time.time()
    found = scan_with_trouble(place, place.inputs, "files")
    found += scan_with_trouble(place, [place.corpus / "repository", "--git"], "git")
    assert {path.name for path in place.once.iterdir()} == {"failed", "died"}
    run_everything(place)
    keep_new_caches(place, began_s - 1)
    search = Search(place.secrets)
    assert search.folder(place.left) == []
    # Something was left, and the search has been through it.
    assert found > 60
    assert "DEBUG" in (place.left / "said" / "files-spark.log").read_text()
    assert any(path.stat().st_size > 10_000 for path in (place.left / "events").rglob("*") if path.is_file())
    assert search.bytes > 1_000_000


def test_the_search_finds_what_careless_programs_leave(tmp_path: Path) -> None:
    secrets = Secrets(SEED)
    secret = secrets.new("careless")
    for name, data in written_down(secret).items():
        (tmp_path / "log").write_bytes(b"something before " + data + b" something after")
        assert Search(secrets).folder(tmp_path), name
    (tmp_path / "log").unlink()
    assert Search(secrets).folder(tmp_path) == []


def test_the_search_finds_what_stands_in_a_row_or_a_name(tmp_path: Path) -> None:
    secrets = Secrets(SEED)
    secret = secrets.new("careless")
    with closing(sqlite3.connect(tmp_path / "pipeline.db")) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER, body BLOB)")
        connection.execute("INSERT INTO notes VALUES (1, ?)", [zstandard.compress(secret.encode() * 100)])
        connection.commit()
    assert any("table notes" in one for one in Search(secrets).folder(tmp_path))
    (tmp_path / "pipeline.db").unlink()
    (tmp_path / f"{secret}.txt").touch()
    assert any("in its name" in one for one in Search(secrets).folder(tmp_path))
