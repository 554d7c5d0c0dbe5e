"""Where a report goes: text or JSON or Markdown on standard output, files where they were asked for."""

import sys
from dataclasses import dataclass
from pathlib import Path

from bringup.cli.streams import forsake_output
from bringup.cli.terminal import terminal_width, use_color, write_json
from bringup.report.json import render_json
from bringup.report.junit import render_junit
from bringup.report.markdown import render_markdown
from bringup.transport.files import require_writable, write_file
from bringup.transport.recording import require_savable, save
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


def require_places(options: OutputOptions) -> None:
    """Raises when a file that was asked for cannot be written: said before the work, not after it.

    Raises:
        UsageError: it cannot.
    """
    for path in (options.junit, options.svg):
        if path is not None:
            require_writable(path)
    if options.record is not None:
        require_savable(options.record)


def emit(report: Report, recording: Recording | None, options: OutputOptions) -> None:
    """Write everything that was asked for; the files first: who reads the output may leave early."""
    if options.junit is not None:
        write_file(options.junit, render_junit(report).encode())
    if options.svg is not None:
        from bringup.report.text import render_svg  # noqa: PLC0415 - rich costs start-up time

        write_file(options.svg, render_svg(report, title="bringup verify").encode())
    if options.record is not None and recording is not None:
        save(options.record, recording)
    try:
        _print(report, options)
        sys.stdout.flush()
    except BrokenPipeError:
        forsake_output()  # `| head` has seen enough: the exit code still tells the verdict


def _print(report: Report, options: OutputOptions) -> None:
    if options.format == "json":
        write_json(render_json(report))
    elif options.format == "markdown":
        sys.stdout.write(render_markdown(report))
    else:
        from bringup.report.text import render_text  # noqa: PLC0415 - rich costs start-up time

        color = use_color(is_plain=options.is_plain)
        sys.stdout.write(render_text(report, width=terminal_width(), color=color, show_all=options.show_all))
