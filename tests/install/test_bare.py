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


PARTS = (
    Part("journal", BASE, "strandline,strandline.journal"),
    Part("queue", BASE, "strandline.queue,strandline.groups"),
    Part("wire", BASE, "strandline.wire,strandline.protocol"),
    Part("objects", BASE, "strandline.objects"),
    Part("s3", "s3", "strandline.objects", missing="obstore"),
    Part("broker", "broker", "strandline.broker.server", missing="bcrypt"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> PathDistribution:
    """Build the wheel and install it, without any dependency."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


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
    ran = subprocess.run(command, env=kept | environ, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    told = [line.split(" ", 1) for line in ran.stdout.splitlines() if " {" in line]
    return {name: json.loads(text) for name, text in told if name in scripts}


def packages(found: dict[str, Distribution]) -> set[str]:
    """Return the top-level modules of distributions."""
    return {name for each in found.values() for name in modules(each)}


@pytest.mark.parametrize("extra", sorted({part.extra for part in PARTS}))
def test_a_part_works_with_its_extra_alone(
    installed: PathDistribution, tmp_path: Path, nats_url: str, extra: str
) -> None:
    python = make_environment(tmp_path / "bare", installed, extra)
    parts = [part for part in PARTS if part.extra == extra]
    told = probe(python, parts, use=True, NATS_URL=nats_url)
    assert {part.name: told[part.name] for part in parts if "modules" not in told[part.name]} == {}


def test_a_part_without_its_extra_names_it_and_the_command_that_installs_it(
    installed: PathDistribution, tmp_path: Path
) -> None:
    python = make_environment(tmp_path / "bare", installed, BASE)
    parts = [part for part in PARTS if part.extra != BASE]
    told = probe(python, parts, use=True)
    for part in parts:
        hint = f'pip install "strandline[{part.extra}]"'
        assert told[part.name] == {"missing": [part.missing, part.extra, hint]}, part.name


def test_importing_a_part_loads_no_package_of_another_extra(installed: PathDistribution) -> None:
    extras = sorted({part.extra for part in PARTS} - {BASE})
    base = packages(closure(installed, BASE))
    brought = {extra: packages(closure(installed, extra)) - base for extra in extras}
    told = probe(Path(sys.executable), list(PARTS), use=False)
    for part in PARTS:
        others = set().union(*brought.values()) - brought.get(part.extra, set())
        assert not set(told[part.name]["modules"]) & others, part.name
