"""CRC-32C, the checksum of every format, taken from the extension of the package `crc32c` itself.

The package around it reads its own metadata when it is imported, for which it imports sixty modules: a twentieth of the
time in which a server starts.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c
else:
    _package = find_spec("crc32c")
    _found = PathFinder.find_spec("crc32c._crc32c", _package.submodule_search_locations if _package else [])
    if _found is None or _found.loader is None:
        from crc32c import crc32c
    else:
        _extension = module_from_spec(_found)
        _found.loader.exec_module(_extension)
        crc32c = _extension.crc32c

__all__ = ["crc32c"]
