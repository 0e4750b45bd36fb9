"""Tests that mirror `strandline.spark.sink`."""
