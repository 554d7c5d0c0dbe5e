"""The command `bringup`, and `python -m bringup`."""

import signal


def start() -> None:
    """Load the program and run it.

    Until it is loaded an interruption ends it without words: nothing of it can say anything yet.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bringup.cli.main import main  # noqa: PLC0415 - what is loaded before may not take long

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    start()
