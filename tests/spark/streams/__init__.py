"""Tests that mirror `strandline.spark.streams`."""
