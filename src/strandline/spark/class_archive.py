"""Class-data sharing: Spark's classes, loaded and checked once and mapped from a file at every later start.

Invariants: an archive is named by all that decides whether it fits (Java, Spark, where its jars are); it is renamed
into place whole; Java itself checks it against the jars, and starts without it where it does not fit.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from strandline.cache import cache_folder
from strandline.spark.java import Java
from strandline.spark.package import pyspark_version

_FORMAT = 1
_KEPT_S = 30 * 86_400


def format_archive_name(java: Java, home: Path) -> str:
    """Return the name of the archive for this Java and this Spark."""
    fits = "\0".join([str(_FORMAT), java.version, os.path.realpath(java.home), pyspark_version(), str(home)])
    return f"classes-{hashlib.sha256(os.fsencode(fits)).hexdigest()[:16]}.jsa"


def archive_path(java: Java, home: Path) -> Path:
    """Return where the archive for this Java and this Spark is, or would be."""
    return cache_folder() / format_archive_name(java, home)


def archive_options(java: Java, home: Path) -> list[str]:
    """Return the Java options that use the archive; none where there is no archive."""
    archive = archive_path(java, home)
    try:
        os.utime(archive)  # so that `forget_unused` sees that it is in use
    except OSError:
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def forget_unused(now_s: float) -> None:
    """Remove archives that no session has used for a month: those of a Java or a Spark that is gone."""
    for archive in cache_folder().glob("classes-*"):
        with contextlib.suppress(OSError):
            if now_s - archive.stat().st_mtime > _KEPT_S:
                archive.unlink()
