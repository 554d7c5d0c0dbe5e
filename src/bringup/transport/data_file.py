"""A data file of the user's as text, piece by piece; packed or not."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import UsageError
from bringup.transport.log_source import read_file


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that is opened anew each time it is read, so that only its name travels to other processes."""

    path: str

    @property
    def name(self) -> str:
        """Its name, as the user gave it."""
        return self.path

    def __iter__(self) -> Iterator[str]:
        """Its text.

        Raises:
            UsageError: it cannot be read, or is no UTF-8.
        """
        decoder = codecs.getincrementaldecoder("utf-8")()
        read = 0
        try:
            for piece in read_file(Path(self.path)):
                yield decoder.decode(piece)
                read += len(piece)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"`{self.path}` is no UTF-8 text: {error.reason} near byte {read + error.start}"
            ) from None
