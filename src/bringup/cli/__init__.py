"""The command line: argv in, a flow called, text out. No logic."""
