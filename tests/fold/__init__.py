"""Tests of `strandline.fold`."""
