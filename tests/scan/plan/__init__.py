"""Tests of `strandline.scan.plan`."""
