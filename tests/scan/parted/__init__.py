"""Tests of `strandline.scan.parted`."""
