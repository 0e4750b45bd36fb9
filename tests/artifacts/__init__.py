"""Tests of `strandline.artifacts`."""
