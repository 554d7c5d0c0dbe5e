"""Standard output as a face writes to it: how wide, in colour or not, and JSON always in UTF-8."""

import io
import os
import shutil
import sys


def use_color(*, is_plain: bool) -> bool:
    """Whether to colour standard output: a terminal, and nobody said no."""
    return sys.stdout.isatty() and not is_plain and not os.environ.get("NO_COLOR")


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(20, shutil.get_terminal_size((100, 24)).columns)


def write_json(text: str) -> None:
    """JSON on standard output: UTF-8, whatever the terminal speaks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)
