"""Writes what the user asked for to files: whole or not at all, and never in place of a device or a link."""

import os
import stat
import tempfile
from pathlib import Path

from bringup.errors import UsageError

_OUTPUTS = (Path("/dev/stdout"), Path("/dev/stderr"))  # a link to whatever file they were sent to
_PRIVATE, _SHARED = 0o600, 0o666  # less what the umask takes


def write_file(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Write a file whole or not at all, with the folders above it; into a pipe or a device it is streamed.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        place = path.resolve()  # a link stays and its target is replaced
        if not _is_replaceable(path):
            with path.open("ab") as stream:
                stream.write(data)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            mode = _PRIVATE if is_private else _SHARED
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            partial.replace(place)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def require_writable(path: Path) -> None:
    """Raises unless `path` can be written, before the work is done whose result it shall take.

    Raises:
        UsageError: it cannot.
    """
    if str(path) == "-":
        raise UsageError(
            "`-` is no file name here", hint="name a file; `/dev/stdout` writes to standard output"
        )
    try:
        place = path.resolve()
        if place.is_dir():
            raise _unwritable(path, "it is a folder")
        if not _is_replaceable(path):
            if not os.access(path, os.W_OK):
                raise _unwritable(path, "no permission")
            return
        above = next(folder for folder in place.parents if folder.exists())
        tempfile.TemporaryFile(dir=above).close()
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def _is_replaceable(path: Path) -> bool:
    """Whether nothing or a regular file is there: a device, a pipe or an open output must be written into."""
    if path.is_relative_to("/dev/fd") or path in _OUTPUTS:
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


def _unwritable(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"cannot write `{path}`: {reason}", hint="name a file in a folder that you may write to"
    )
