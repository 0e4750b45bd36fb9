"""Bare environments without a package index: virtual environments that link what an extra asks for, and nothing more.

Invariants: an environment holds the wheel and the distributions that the wheel's own metadata names for its extra, with
all that those need. They are linked out of the environment that runs the tests. Nothing is fetched.
"""

import subprocess
import sys
import venv
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def install_wheel(folder: Path) -> PathDistribution:
    """Build the wheel of this project and install it, without its dependencies, into a folder of its own."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheel")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (folder / "wheel").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-index", "--no-deps", "--no-compile", "--target", str(folder / "installed")]
    subprocess.run([*pip, *options, str(wheel)], check=True, capture_output=True)
    [info] = (folder / "installed").glob("strandline-*.dist-info")
    return PathDistribution(info)


def requirements(project: Distribution, extras: Iterable[str]) -> list[Requirement]:
    """Return what a distribution asks for on this machine, with some of its extras."""
    wanted = [Requirement(text) for text in project.requires or []]
    chosen = ("", *extras)
    return [each for each in wanted if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in chosen)]


def closure(project: Distribution, extra: str) -> dict[str, Distribution]:
    """Return the distributions that an installation of a project with an extra holds, the project left out, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = requirements(project, [extra])
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        found[name] = distribution(name)
        waiting += requirements(found[name], wanted.extras)
    return found


def modules(found: Distribution) -> set[str]:
    """Return the top-level modules of a distribution."""
    tops = {path.parts[0] for path in found.files or [] if _is_inside(path)}
    return {top.split(".")[0] for top in tops if not top.endswith((".dist-info", ".libs", ".pth", ".data"))}


def make_environment(folder: Path, installed: PathDistribution, extra: str) -> Path:
    """Make a bare environment and return its interpreter."""
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    parts = [installed, *closure(installed, extra).values()]
    owners: dict[str, set[int]] = defaultdict(set)
    for number, part in enumerate(parts):
        for path in part.files or []:
            owners[path.parts[0]].add(number)
    for part in parts:
        for linked in {_linked(path, owners) for path in part.files or [] if _is_inside(path)}:
            (site / linked).parent.mkdir(parents=True, exist_ok=True)
            if not (site / linked).exists():
                (site / linked).symlink_to(str(part.locate_file(linked)))
    return folder / "bin" / "python"


def _is_inside(path: PurePath) -> bool:
    return path.parts[0] not in ("..", "bin", "__pycache__")


def _linked(path: PurePath, owners: dict[str, set[int]]) -> PurePath:
    """Return what is linked for a file: its top-level folder, or the one below where several share that."""
    return PurePath(*path.parts[: 1 if len(owners[path.parts[0]]) == 1 else 2])
