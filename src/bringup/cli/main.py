"""The `bringup` command: a table of names, modules and one-line helps; a command is imported when it is run."""


def main() -> None:
    """Run the command line."""
