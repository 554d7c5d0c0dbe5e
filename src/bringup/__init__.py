"""Bring an open-weight model up on GPU machines and prove that it is up."""

__version__ = "26.12.0.dev0"
