"""The file descriptors of the process, divided among connections and files."""

import resource
from typing import NamedTuple

DESCRIPTORS_MAX = 1 << 30
REFUSED_MAX = 64
MONITORS_MAX = 256
FILES_MIN = 8


class DescriptorBudget(NamedTuple):
    """How many connections and files of each kind fit into the descriptor limit of the process."""

    clients: int
    refused: int
    """Clients beyond the limit: they get an error, some after a handshake."""
    monitors: int
    files: int
    """Files of streams and consumers that may be open at once; the remainder is for files open for a moment."""


def descriptor_budget() -> DescriptorBudget:
    """Divide three quarters of the descriptors among connections; streams need the rest for their files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft if soft != resource.RLIM_INFINITY else DESCRIPTORS_MAX
    few = max(1, limit // 16)
    refused, monitors = min(REFUSED_MAX, few), min(MONITORS_MAX, few)
    files = max(FILES_MIN, limit // 4 - few)
    return DescriptorBudget(max(1, limit - limit // 4 - refused - monitors), refused, monitors, files)
