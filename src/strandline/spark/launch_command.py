"""The command of Spark's Java process, without the shell and the second Java that print it at each start.

`spark-submit` is a script that runs a small Java program, which prints the command to run. What it printed is learned
from the process that it became, kept in the cache, and filled in with the options of the next session.

Invariants: only what follows from Java, Spark and its home is kept, never a setting or a variable of a user. Where
something else could change what `spark-submit` would run (a home of the user's own, a variable of Spark's, a setting of
the driver's Java, a script in place of Java), it runs as ever. A command that does not start is forgotten.
"""

import contextlib
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from strandline.cache import cache_folder, read_cached, write_cached
from strandline.spark.java import Java, wrapped_home
from strandline.spark.package import pyspark_version
from strandline.spark.settings import JAVA_OPTIONS

MAIN = "org.apache.spark.deploy.SparkSubmit"
APPLICATION = "pyspark-shell"
_FORMAT = 2
_FOLDER = "launch-commands"
_KEPT = 8
_FOREIGN = ("SPARK_", "_SPARK_", "HADOOP_", "YARN_")
"""Variables that begin so may change what `spark-submit` runs, but for these."""
_HARMLESS = ("SPARK_LOCAL_IP",)
_LAUNCHED_BY = ("spark.driver.", "spark.submit.", "spark.remote", "spark.api.")
"""Settings that begin so may do that too, but for the first two of these; the third is filled in."""
_NO_MATTER = ("spark.driver.host", "spark.driver.bindAddress", JAVA_OPTIONS)
_QUOTES = "\"'\\"
_REFUSED = ("-Xmx", "-Dspark")
"""Options of Java that `spark-submit` refuses."""
_SCRIPT_ENVIRONMENT = "PYTHONHASHSEED"
"""The one variable without Spark's prefix that the scripts set, whatever it was."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """What stands before and after the Java options, up to the main class, and the scripts' additions to variables."""

    head: list[str]
    tail: list[str]
    environment: dict[str, str]

    def command(self, settings: Mapping[str, str]) -> list[str]:
        """Return the command for some settings."""
        return [*self.head, *_options(settings), *self.tail, MAIN, *arguments(settings)]


def arguments(settings: Mapping[str, str]) -> list[str]:
    """Return the arguments of `spark-submit`, which it passes on to its main class."""
    return [*(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")), APPLICATION]


def is_learnable(java: Java, home: Path, settings: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Tell whether the command follows from Java, Spark and the Java options alone."""
    options = settings.get(JAVA_OPTIONS, "")
    foreign = any(name.startswith(_FOREIGN) and name not in _HARMLESS for name in environ)
    other = any(name.startswith(_LAUNCHED_BY) and name not in _NO_MATTER for name in settings)
    odd = any(part in options for part in (*_QUOTES, *_REFUSED))
    return not (foreign or other or odd or (home / "conf").exists() or _is_foreign_script(java))


def read_command(java: Java, home: Path) -> LaunchCommand | None:
    """Return what was learned for this Java and this Spark; None if nothing was."""
    data = read_cached(_path(java, home))
    try:
        known = None if data is None else LaunchCommand(**json.loads(data))
    except (ValueError, TypeError):
        return None
    return known if known is not None and _is_text(known) else None


def forget_command(java: Java, home: Path) -> None:
    """Remove what was learned, for it does not start; the next start learns it anew."""
    with contextlib.suppress(OSError):
        _path(java, home).unlink(missing_ok=True)


def learn_command(java: Java, home: Path, settings: Mapping[str, str], given: Mapping[str, str], pid: int) -> None:
    """Keep the command that `spark-submit` became; `given` is the environment that it was started with."""
    try:
        words = _words(pid, "cmdline")
        environ = dict(word.partition("=")[::2] for word in _words(pid, "environ"))
    except OSError:  # a system without /proc, or the process is gone
        return
    options = _options(settings)
    before = words[: words.index(MAIN)] if MAIN in words else []
    starts = [at for at in range(len(before)) if before[at : at + len(options)] == options]
    if len(starts) != 1 or not options:
        return
    added = {name: value for name, value in environ.items() if _is_set_by_scripts(name, value, given)}
    learned = LaunchCommand(before[: starts[0]], before[starts[0] + len(options) :], added)
    write_cached(_path(java, home), json.dumps(asdict(learned)).encode(), _KEPT)


def _is_set_by_scripts(name: str, value: str, given: Mapping[str, str]) -> bool:
    return name == _SCRIPT_ENVIRONMENT or (name.startswith("SPARK_") and given.get(name) != value)


def _is_text(known: LaunchCommand) -> bool:
    """Tell whether all parts of a command are what they should be; a file may hold anything."""
    lists, variables = (known.head, known.tail), known.environment
    if not (all(isinstance(words, list) for words in lists) and isinstance(variables, dict)):
        return False
    return all(isinstance(word, str) for word in (*known.head, *known.tail, *variables, *variables.values()))


def _is_foreign_script(java: Java) -> bool:
    """Tell whether a script of the user's stands in for Java: it may decide by anything; ours decides nothing."""
    if java.home == wrapped_home():
        return False
    try:
        with (java.home / "bin" / "java").open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def _options(settings: Mapping[str, str]) -> list[str]:
    return shlex.split(settings.get(JAVA_OPTIONS, ""))


def _words(pid: int, name: str) -> list[str]:
    return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes()).split("\0")[:-1]


def _path(java: Java, home: Path) -> Path:
    # A name that leads to this Java today may lead to another one tomorrow, so the name counts, and not where it leads.
    fits = "\0".join([str(_FORMAT), java.version, str(java.home), pyspark_version(), str(home)])
    names = f"{sys.getfilesystemencoding()}\0".encode()  # in which the words are read and written
    return cache_folder() / _FOLDER / f"{hashlib.sha256(names + os.fsencode(fits)).hexdigest()[:16]}.json"
