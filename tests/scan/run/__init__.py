"""Tests of `strandline.scan.run`."""
