"""The driver's local file system, without a process for each file that it makes.

Without a native library, which PySpark does not have, Hadoop runs `chmod` for each file and folder: twice for each
batch of a stream. `LocalFiles.java` sets permissions by a system call. The compiler that Spark has for its own queries
compiles it; what it made is kept in the cache.

Invariants: Spark still sees a `LocalFileSystem`, which its RocksDB state store asks for; a permission comes out as
Hadoop's own would set it. Where the class cannot be made or loaded, Hadoop's own stays, and a warning says so.
"""

import hashlib
import logging
from pathlib import Path
from typing import Any

from strandline.cache import cache_folder, read_cached, write_cached

NAME = "strandline.LocalFiles"
SOURCE = Path(__file__).with_name("LocalFiles.java")
_FOLDER = "local-files"
_KEPT = 4
logger = logging.getLogger("strandline")


def spare_processes(jvm: Any, hadoop: Any) -> None:  # noqa: ANN401 - py4j has no types
    """Let the local file system of a driver's Java set permissions itself; `hadoop` is the session's configuration."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only a session needs it
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop)
    try:
        files = _load(jvm).getDeclaredConstructor(None).newInstance(None)
        files.initialize(local.getUri(), hadoop)
        field = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
        field.setAccessible(True)
        field.set(local, files)
    except (Py4JError, PySparkException, KeyError) as error:  # another Hadoop, or a Spark without the compiler
        logger.warning("each file of a checkpoint takes a process: %s", type(error).__name__)


def _load(jvm: Any) -> Any:  # noqa: ANN401 - a class of Java
    """Return the class, from the cache or compiled."""
    source = SOURCE.read_text()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    cached = cache_folder() / _FOLDER / f"{hashlib.sha256((version + source).encode()).hexdigest()[:16]}.class"
    code = read_cached(cached)
    if code is None:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        code = bytes(compiler.getBytecodes()[NAME])
        write_cached(cached, code, _KEPT)
    classes = jvm.java.util.HashMap()
    classes.put(NAME, code)
    return jvm.org.codehaus.commons.compiler.util.reflect.ByteArrayClassLoader(classes, loader).loadClass(NAME)
