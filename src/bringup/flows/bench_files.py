"""Reads the results that `bench` kept."""

from pathlib import Path

from bringup.errors import UsageError
from bringup.parse.bench_result import read_bench_result
from bringup.values.bench import BenchResult


def read_result(path: Path) -> BenchResult:
    """The result in a file.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read `{path}`: {error}") from None
    return read_bench_result(text, name=str(path))
