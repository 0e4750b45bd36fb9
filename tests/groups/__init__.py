"""Tests of `strandline.groups`."""
