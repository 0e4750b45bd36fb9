"""A bucket's store is made by its address; nothing is asked of the network."""

from strandline.objects import open_objects

open_objects("s3://bucket/prefix").close()
