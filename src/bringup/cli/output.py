"""Where a report goes: text or JSON or Markdown on standard output, files where they were asked for."""

import io
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import UsageError
from bringup.report.json import render_json
from bringup.report.junit import render_junit
from bringup.report.markdown import render_markdown
from bringup.transport.recording import save
from bringup.values.recording import Recording
from bringup.values.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What the user asked to get."""

    format: str = "text"  # text, json, markdown
    junit: Path | None = None
    svg: Path | None = None
    record: Path | None = None
    is_plain: bool = False  # no colour
    show_all: bool = False


def use_color(*, is_plain: bool) -> bool:
    """Whether to colour standard output: a terminal, and nobody said no."""
    return sys.stdout.isatty() and not is_plain and "NO_COLOR" not in os.environ


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(20, shutil.get_terminal_size((100, 24)).columns)


def emit(report: Report, recording: Recording | None, options: OutputOptions) -> None:
    """Write everything that was asked for."""
    if options.format == "json":
        write_json(render_json(report))
    elif options.format == "markdown":
        sys.stdout.write(render_markdown(report))
    else:
        from bringup.report.text import render_text  # noqa: PLC0415 - rich costs start-up time

        color = use_color(is_plain=options.is_plain)
        sys.stdout.write(render_text(report, width=terminal_width(), color=color, show_all=options.show_all))
    if options.junit is not None:
        write(options.junit, render_junit(report))
    if options.svg is not None:
        from bringup.report.text import render_svg  # noqa: PLC0415

        write(options.svg, render_svg(report, title="bringup verify"))
    if options.record is not None and recording is not None:
        save(options.record, recording)


def write_json(text: str) -> None:
    """JSON on standard output: UTF-8, whatever the terminal speaks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
