"""Text or bytes to records, one file per source format. A reader raises `UnreadableAnswer` or returns a value."""
