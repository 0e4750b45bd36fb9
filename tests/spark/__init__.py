"""Tests of the package that runs on Spark."""
