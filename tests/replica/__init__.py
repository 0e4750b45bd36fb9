"""Tests of `strandline.replica`."""
