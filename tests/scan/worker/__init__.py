"""Tests of `strandline.scan.worker`."""
