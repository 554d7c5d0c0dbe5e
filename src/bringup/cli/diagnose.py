"""`bringup diagnose`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import click

from bringup import __version__
from bringup.cli.progress import BytesLine
from bringup.errors import UsageError
from bringup.flows.diagnose import diagnose, load_rules, model_named, sift
from bringup.flows.log_text import LogPlace, open_log
from bringup.flows.probes import Observed
from bringup.parse.log_stream import KeptLines
from bringup.rules import Rule
from bringup.values.diagnosis import Diagnosis


@click.command("diagnose")
@click.argument("log", required=False, metavar="[LOG|-]", type=click.Path(path_type=Path))
@click.option("--unit", metavar="NAME", help="Read the journal of this systemd unit, this boot and the last.")
@click.option("--container", metavar="NAME", help="Read the log of this docker or podman container.")
@click.option(
    "--host",
    metavar="USER@HOST",
    help="The machine of unit or container, any OpenSSH destination; it is also asked about itself. "
    "`local` for this one.",
)
@click.option("--json", "format_", flag_value="json", help="The diagnosis as JSON on standard output.")
@click.option("--all", "show_all", is_flag=True, help="Quote every line that decides.")
@click.option("--no-color", is_flag=True, help="No colour (also: NO_COLOR).")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_context
def command(ctx: click.Context, log: Path | None, **options: object) -> None:
    """Name the cause of a failed or sick start, quote the lines that decide, and compute the cure.

    \b
    Examples:
      bringup diagnose vllm.log
      kubectl logs vllm-0 --previous | bringup diagnose -
      bringup diagnose --unit vllm --host gpubox
      bringup diagnose --container vllm --json
      bringup diagnose sglang.log --host root@gpubox

    The log may hold several runs, mixed ranks, and the prefixes of journald, docker, Kubernetes, Ray or a
    collector; gzip and zstd are unpacked.

    \b
    Exit codes: 0 nothing broken - 1 a cause was found - 2 usage - 3 host, unit or container not reachable -
    7 broken or unfinished, and the log does not settle why
    """
    rules = load_rules()
    place = _place(log, options)
    is_quiet = options["quiet"] is True
    kept = KeptLines(lines=(), total_lines=0, total_bytes=0)
    if place is not None:
        kept = _sifted(open_log(place), rules, is_quiet=is_quiet)
    found = diagnose(
        kept,
        rules,
        source=place.words if place else f"host {options['host']}",
        again=place.command if place else f"bringup diagnose --host {quote(str(options['host']))}",
        observed=_observed(_text(options["host"]), place, kept, is_quiet=is_quiet),
    )
    if options["format_"] == "json":
        from bringup.cli.terminal import write_json  # noqa: PLC0415 - only what is printed is loaded
        from bringup.report.diagnosis_json import render_diagnosis_json  # noqa: PLC0415 - the same

        write_json(render_diagnosis_json(found))
    else:
        _print_text(found, show_all=options["show_all"] is True, is_plain=options["no_color"] is True)
    ctx.exit(found.exit_code)


def _place(log: Path | None, options: dict[str, object]) -> LogPlace | None:
    """The log that is meant; None where only a host is asked.

    Raises:
        UsageError: none, or more than one.
    """
    unit, container, host = (_text(options[name]) for name in ("unit", "container", "host"))
    named = [one for one in (log, unit, container) if one is not None]
    if len(named) > 1:
        raise UsageError("more than one log is named", hint="give a file, `--unit` or `--container`")
    if not named:
        if host is not None:
            return None
        if sys.stdin.isatty():
            raise UsageError(
                "no log is named", hint="bringup diagnose FILE, `-` for standard input, --unit, --container"
            )
    path = None if log is None or os.fspath(log) == "-" else log
    return LogPlace(path=path, unit=unit, container=container, host=host)


def _sifted(pieces: Iterator[bytes], rules: dict[str, Rule], *, is_quiet: bool) -> KeptLines:
    with BytesLine(enabled=not is_quiet) as progress:
        return sift(pieces, rules, progress.read)


def _observed(host: str | None, place: LogPlace | None, kept: KeptLines, *, is_quiet: bool) -> Observed:
    if host is None:
        return Observed()
    from bringup.flows.probes import observe  # noqa: PLC0415 - only where a host is asked
    from bringup.machine import Target  # noqa: PLC0415 - the same

    if not is_quiet:
        click.echo(f"asking {host}, about 15 s", err=True)
    model, places = model_named(kept)
    target = Target(
        unit=place.unit if place else None,
        container=place.container if place else None,
        model=model,
        model_places=places,
    )
    return observe(host, target)


def _print_text(found: Diagnosis, *, show_all: bool, is_plain: bool) -> None:
    from bringup.cli.terminal import terminal_width, use_color  # noqa: PLC0415 - the same
    from bringup.report.diagnosis import build_diagnosis_report  # noqa: PLC0415 - the same
    from bringup.report.text import render_text  # noqa: PLC0415 - rich costs start-up time

    report = build_diagnosis_report(found, tool_version=__version__)
    text = render_text(report, width=terminal_width(), color=use_color(is_plain=is_plain), show_all=show_all)
    sys.stdout.write(text)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
