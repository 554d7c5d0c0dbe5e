"""Text to records, one file per source format. A reader returns a value or raises `UnreadableAnswer`."""
