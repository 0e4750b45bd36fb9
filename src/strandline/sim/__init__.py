"""Seeded twins of the outside world, and every state of a small one. Nothing in production imports this package.

`SimDisk` keeps two truths, what programs see and what stable storage holds, and `crash` decides from a seed which of
the writes, truncations, creations, renames and removals that were not yet synced survive, whole, torn or not at all.

`SimObjects` is an object store whose requests are lost, late, repeated or unanswered, as the seed decides.

`strandline.sim.explore` visits every state that a model can reach, and shows the shortest way to one that breaks a
promise. Those of `tests.models` decide with the functions that production calls: what holds here holds there.

`strandline.sim.coordination` runs many workers over a coordinator that fails, for as many steps as asked, from a seed.
"""

from strandline.sim.disk import Fault, SimDisk
from strandline.sim.objects import SimObjects

__all__ = ["Fault", "SimDisk", "SimObjects"]
