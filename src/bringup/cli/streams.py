"""Standard output and standard error as the command line finds them: closed, full, or of few letters."""

import errno
import io
import os
import sys

_CANNOT_TAKE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def prepare_streams() -> None:
    """Give both outputs a place to go, and let them replace letters that their encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us: `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - lives as long as we do
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def forsake_output() -> None:
    """Let standard output lead nowhere, so that nothing tries to write to it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_output_error(error: OSError) -> bool:
    """Whether an error is of an output that takes no more: a full disk."""
    return error.errno in _CANNOT_TAKE and error.filename is None
