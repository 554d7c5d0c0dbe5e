"""Frozen records that travel between the packages. Nothing here fetches, formats or decides."""
