"""Archives: members of a buffer, unpacked within bounds.

members      the kind of an archive, its members, and the budget for unpacking them
zips, tars   spans of members
streams      gzip, bzip2, xz, zstd and the methods of zip
"""

from strandline.detect.archives.members import Member, UnpackBudget, kind_of, members

__all__ = ["Member", "UnpackBudget", "kind_of", "members"]
