"""A lease in a folder."""

from pathlib import Path

from strandline.lease import Lease, open_lease_store

lease = Lease(open_lease_store(Path("bucket").absolute().as_uri(), "leader"), "node-a")
assert lease.acquire().epoch == 1
lease.release()
