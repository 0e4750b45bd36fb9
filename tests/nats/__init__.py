"""Tests of reading in bulk."""
