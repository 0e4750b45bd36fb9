"""The format of a replica."""

import strandline.replica

assert strandline.replica.__all__
