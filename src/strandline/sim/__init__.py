"""Seeded simulations of disk, objects and workers, and exhaustive exploration of models; for tests alone.

`SimDisk` keeps two states, the visible one and that of stable storage, and `crash` decides from a seed which of
the writes, truncations, creations, renames and removals that were not yet synced survive, whole, torn or not at all.

`SimObjects` is an object store whose requests are lost, late, repeated or unanswered, as the seed decides.

`strandline.sim.explore` visits every state that a model can reach, and shows a shortest path to one that breaks a
promise. `strandline.sim.explore_large` does so in bounded memory. The models in `tests.models` call the functions of
production, so results hold for production.

`strandline.sim.object_workers` runs many workers over coordination in objects, and counts requests and lost time.

`strandline.sim.coordination` runs many workers over a coordinator that fails, for as many steps as asked, from a seed.
"""

from strandline.sim.disk import Fault, SimDisk
from strandline.sim.objects import SimObjects

__all__ = ["Fault", "SimDisk", "SimObjects"]
