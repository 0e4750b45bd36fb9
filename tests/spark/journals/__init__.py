"""Tests of the Spark format over a journal."""
