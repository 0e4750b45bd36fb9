"""Tests that mirror `strandline.spark.folds`."""
