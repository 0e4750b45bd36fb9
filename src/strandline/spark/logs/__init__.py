"""Shared parts of the sources over logs."""

from strandline.spark.logs.columns import Columns
from strandline.spark.logs.options import At, Given, Place

__all__ = ["At", "Columns", "Given", "Place"]
