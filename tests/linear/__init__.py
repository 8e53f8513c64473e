"""Tests of windward.linear; a package, so that its file names may repeat those of other folders."""
