"""The pipeline's stores in PostgreSQL: the driver is there, and says that nothing listens at this address."""

from strandline.errors import Unavailable
from strandline.pipeline.stores import open_stores

told = ""
try:
    open_stores("postgresql://nobody@127.0.0.1:1/none").close()
except Unavailable as error:
    told = str(error)
assert told
