"""Tests that mirror `strandline.spark.logs`."""
