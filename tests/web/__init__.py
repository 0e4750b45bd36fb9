"""Tests of `strandline.web`."""
