"""What can go wrong, and the exit code of each.

BringupError                       exit
├── UsageError                       2   the command line or a file of the user's is wrong
├── HostError                        3   could not ask: ssh, time limit, permission, endpoint not reachable
│   └── CommandError                     asked, the command failed (argv, exit status, stderr kept)
├── UnreadableAnswer                 4   answered, but not in a shape we know (the text is saved for a report)
├── EngineError                      5   the engine did not start or stopped
└── NoFit                            6   a proper answer: nothing fits (never a traceback)
findings: 0 all OK or NOTE · 1 WARNING or FAILURE · 7 something UNKNOWN and nothing worse · 130 interrupted
"""

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_HOST = 3
EXIT_UNREADABLE = 4
EXIT_ENGINE = 5
EXIT_NO_FIT = 6
EXIT_UNKNOWN = 7
EXIT_INTERRUPTED = 130


class BringupError(Exception):
    """Base of all errors that a user is told about without a traceback.

    The message says what was wanted, what was found and where; `hint` says what to do and is printed on a
    line of its own.
    """

    exit_code = EXIT_FINDINGS

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(BringupError):
    """The command line or a file of the user's is wrong."""

    exit_code = EXIT_USAGE


class HostError(BringupError):
    """The host or the endpoint could not be asked."""

    exit_code = EXIT_HOST


class CommandError(HostError):
    """The host was asked and the command failed.

    Attributes:
        argv: the command as it was given to the host.
        status: its exit status.
        stderr: what it printed to standard error.
    """

    def __init__(
        self, message: str, *, argv: tuple[str, ...], status: int, stderr: str, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.argv = argv
        self.status = status
        self.stderr = stderr


class UnreadableAnswer(BringupError):  # noqa: N818 - the contract's name
    """An answer came, in a shape that no reader knows. `text` keeps it for a report."""

    exit_code = EXIT_UNREADABLE

    def __init__(self, message: str, *, text: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.text = text


class EngineError(BringupError):
    """The engine did not start, or stopped."""

    exit_code = EXIT_ENGINE


class NoFit(BringupError):  # noqa: N818 - an answer more than an error
    """Nothing fits: a proper answer."""

    exit_code = EXIT_NO_FIT
