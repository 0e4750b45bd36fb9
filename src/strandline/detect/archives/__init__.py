"""Archives: what is packed in a buffer, unpacked within bounds.

unpacking    which kind a buffer is, its members, and what may still be unpacked
zips, tars   where members stand
streams      gzip, bzip2, xz, zstd and the methods of zip
"""

from strandline.detect.archives.unpacking import Member, Unpacking, kind_of, members

__all__ = ["Member", "Unpacking", "kind_of", "members"]
