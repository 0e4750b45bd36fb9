"""Tests of `strandline.lease`."""
