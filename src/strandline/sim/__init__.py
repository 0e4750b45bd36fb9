"""Seeded twins of the outside world: a disk that loses power. Nothing in production imports this package.

`SimDisk` keeps two truths, what programs see and what stable storage holds, and `crash` decides from a seed which of
the writes, truncations, creations, renames and removals that were not yet synced survive, whole, torn or not at all.
"""

from strandline.sim.disk import Fault, SimDisk

__all__ = ["Fault", "SimDisk"]
