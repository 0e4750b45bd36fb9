"""Tests that mirror `strandline.spark.replicas`."""
