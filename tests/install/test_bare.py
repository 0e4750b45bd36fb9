"""The wheel in bare environments: a part works with its extra alone, and without it names the extra.

An environment holds the wheel and what an extra asks for (`environments`). `PARTS` is the table of parts: what they are
imported as, which extra they need, and a quickstart. A part that loads a package of an extra that it does not need
fails where that package is missing, and where all of them are there it is seen.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from strandline.broker import ServerSettings, running
from tests.install.environments import closure, install_wheel, make_environment, modules
from tests.waiting import PATIENCE_S

HERE = Path(__file__).resolve().parent
BASE = ""


@dataclass(frozen=True)
class Part:
    """A part of the library: the modules that users import, the extra that they need, and its quickstart."""

    name: str
    extra: str
    imports: str
    missing: str = ""
    """The package that is said to be missing without the extra."""
    named: str = ""
    """The extra that is named then, where it is one that this part's extra includes."""


PARTS = (
    Part("journal", BASE, "strandline,strandline.journal"),
    Part("queue", BASE, "strandline.queue,strandline.groups"),
    Part("wire", BASE, "strandline.wire,strandline.protocol"),
    Part("objects", BASE, "strandline.objects"),
    Part("lease", BASE, "strandline.lease"),
    Part("fold", BASE, "strandline.fold,strandline.kv"),
    Part("artifacts", BASE, "strandline.artifacts"),
    Part("alarms", BASE, "strandline.alarms,strandline.config,strandline.verify"),
    Part("testing", BASE, "strandline.testing,strandline.sim"),
    Part("nats", BASE, "strandline.nats,strandline.kv.nats"),
    Part("nkeys", "nats", "strandline.nats", missing="nacl"),
    Part("s3", "s3", "strandline.objects", missing="obstore"),
    Part("encryption", "encryption", "strandline.objects", missing="nacl"),
    Part("metrics", "metrics", "strandline.metrics", missing="prometheus_client"),
    Part("fold_sqlite", "sqlite", "strandline.fold", missing="apsw"),
    Part("pipeline", "sqlite", "strandline.pipeline,strandline.pipeline.stores", missing="apsw"),
    Part("fold_rocksdb", "rocksdb", "strandline.fold", missing="rocksdict"),
    Part("postgres", "postgres", "strandline.pipeline.stores", missing="psycopg"),
    Part("etcd", "etcd", "strandline.pipeline.stores", missing="grpc"),
    Part("detect", "scan", "strandline.detect", missing="hyperscan"),
    Part("scan", "scan", "strandline.scan,strandline.findings", missing="apsw", named="sqlite"),
    Part("replica", "replica", "strandline.replica", missing="apsw"),
    Part("routing", "replica", "strandline.replica.routing", missing="h11"),
    Part("spark", "spark", "strandline.spark", missing="pyspark"),
    Part("broker", "broker", "strandline.broker.server", missing="bcrypt"),
    Part("web", "web", "strandline.web", missing="starlette"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> PathDistribution:
    """Build the wheel and install it, without any dependency."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(installed: PathDistribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment without any extra."""
    return make_environment(tmp_path_factory.mktemp("base") / "bare", installed, BASE)


@pytest.fixture(scope="module")
def nats_url() -> Iterator[str]:
    """Run a server of this environment's broker, for the quickstarts of others."""
    with running(ServerSettings(port=0)) as url:
        yield url


def probe(python: Path, parts: list[Part], *, use: bool, **environ: str) -> dict[str, dict[str, list[str]]]:
    """Import parts in an environment, each in a process of its own, and run their quickstarts."""
    scripts = {part.name: f":{HERE}/quickstarts/use_{part.name}.py" if use else "" for part in parts}
    arguments = [f"{part.name}={part.imports}{scripts[part.name]}" for part in parts]
    command = [str(python), "-I", str(HERE / "probe.py"), *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STRANDLINE", "COV"))}
    ran = subprocess.run(
        command, env=kept | environ, capture_output=True, text=True, check=True, timeout=5 * PATIENCE_S
    )
    told = [line.split(" ", 1) for line in ran.stdout.splitlines() if " {" in line]
    return {name: json.loads(text) for name, text in told if name in scripts}


def packages(found: dict[str, Distribution]) -> set[str]:
    """Return the top-level modules of distributions."""
    return {name for each in found.values() for name in modules(each)}


EXTRAS = sorted({part.extra for part in PARTS})


@pytest.mark.parametrize(
    ("extra", "use"),
    # A Java that starts without its archive of classes takes as long as all other quickstarts together.
    [*((extra, extra != "spark") for extra in EXTRAS), pytest.param("spark", True, marks=pytest.mark.long)],
)
def test_a_part_works_with_its_extra_alone(
    installed: PathDistribution, base: Path, tmp_path: Path, nats_url: str, extra: str, use: bool
) -> None:
    python = base if extra == BASE else make_environment(tmp_path / "bare", installed, extra)
    parts = [part for part in PARTS if part.extra == extra]
    told = probe(python, parts, use=use, NATS_URL=nats_url)
    assert {part.name: told[part.name] for part in parts if "modules" not in told[part.name]} == {}


def test_a_part_without_its_extra_names_it_and_the_command_that_installs_it(base: Path) -> None:
    parts = [part for part in PARTS if part.extra != BASE]
    told = probe(base, parts, use=True, NATS_URL="nats://127.0.0.1:1")
    for part in parts:
        named = part.named or part.extra
        hint = f'pip install "strandline[{named}]"'
        assert told[part.name] == {"missing": [part.missing, named, hint]}, part.name


def test_importing_a_part_loads_no_package_of_another_extra(installed: PathDistribution) -> None:
    extras = [extra for extra in EXTRAS if extra != BASE]
    base = packages(closure(installed, BASE))
    brought = {extra: packages(closure(installed, extra)) - base for extra in extras}
    different = list({part.imports: part for part in PARTS}.values())
    told = probe(Path(sys.executable), different, use=False)
    for part in different:
        others = set().union(*brought.values()) - brought.get(part.extra, set())
        assert not set(told[part.name]["modules"]) & others, part.name


GROUPS = {
    "scan": ("scan", ["scan", "."]),
    "findings": ("sqlite", ["findings", "list"]),
    "fold": ("sqlite", ["fold", "get", "prices.db", "key"]),
    "serve": ("broker", ["serve", "-p", "-1"]),
    "lease": ("s3", ["lease", "show", "s3://bucket", "leader"]),
    "pipeline": ("sqlite", ["pipeline", "init"]),
    "demo": ("scan", ["demo"]),
    "replica": ("replica", ["replica", "run", "prices.db", "memory://copy"]),
    "rules": ("scan", ["rules", "test", "prices.db"]),
    "ui": ("web", ["ui"]),
}
"""Groups of commands whose work needs an extra, and a command of each."""


def strandline(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment, with a home of its own."""
    command = [str(python), "-I", "-c", "from strandline.cli.entry import main; main()", *arguments]
    environ = {"HOME": str(folder), "PATH": os.defpath}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environ
    )


EVERY_HELP = """
from typer.main import get_command
from typer.testing import CliRunner
from strandline.cli.app import COMMANDS, app
from strandline.cli.lazy_commands import load

run = CliRunner().invoke
for entry in COMMANDS:
    for name in getattr(load(entry), "commands", None) or [None]:
        words = [entry.name] if name is None else [entry.name, name]
        shown = run(app, [*words, "--help"])
        print(*words, shown.exit_code, "Usage" in shown.output or "usage" in shown.output, repr(shown.exception))
"""


def test_every_command_shows_its_help_without_any_extra(base: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [base, "-I", "-c", EVERY_HELP], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    lines = ran.stdout.splitlines()
    assert len(lines) > 40, ran.stderr
    assert [line for line in lines if not line.endswith(" 0 True None")] == []


def test_commands_of_the_base_need_no_extra(base: Path, tmp_path: Path) -> None:
    assert "scan" in strandline(base, tmp_path, "--help").stdout
    for arguments in (["config", "show"], ["journal", "bench", "--seconds", "0.01"], ["fold", "--help"]):
        ran = strandline(base, tmp_path, *arguments)
        assert (ran.returncode, ran.stderr) == (0, ""), arguments


@pytest.mark.parametrize("group", GROUPS)
def test_a_command_without_its_extra_says_which_to_install(base: Path, tmp_path: Path, group: str) -> None:
    extra, arguments = GROUPS[group]
    (tmp_path / ".strandline").mkdir()
    for name in ("prices.db", ".strandline/pipeline.db"):
        (tmp_path / name).write_bytes(b"SQLite format 3\0")
    ran = strandline(base, tmp_path, *arguments)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(f'hint: pip install "strandline[{extra}]"'), ran.stderr
    assert "Traceback" not in ran.stderr
