"""`bringup demo`."""

import asyncio
from pathlib import Path

import click

from bringup.cli.output import OutputOptions, emit, require_places
from bringup.cli.progress import ProgressLine
from bringup.errors import EXIT_OK, EXIT_UNKNOWN
from bringup.flows.demo import DemoRequest, demo
from bringup.report.json import render_json
from bringup.report.markdown import render_markdown
from bringup.transport.files import write_file
from bringup.values.deployment import Depth


@click.command("demo")
@click.option("--quick", "depth", flag_value="quick", help="Only the quick checks.")
@click.option("--full", "depth", flag_value="full", help="Every check (the default).")
@click.option(
    "--weights", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Your own GGUF."
)
@click.option(
    "--threads", type=click.IntRange(1), default=2, show_default=True, help="Threads of the engine."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bringup-demo"),
    show_default=True,
    help="Folder for the reports and the recording.",
)
@click.option("--json", "is_json", is_flag=True, help="Report as JSON on standard output.")
@click.option("--all", "show_all", is_flag=True, help="Show the findings that are fine, too.")
@click.option("--no-color", is_flag=True, help="No colour (also: NO_COLOR).")
@click.pass_context
def command(  # noqa: PLR0917 - an option is a parameter
    ctx: click.Context,
    depth: str | None,
    weights: Path | None,
    threads: int,
    output: Path,
    is_json: bool,
    show_all: bool,
    no_color: bool,
) -> None:
    """Bring a small real model up on this machine, verify it in full, and take it down again.

    Needs no GPU. Fetches the weights once (93 MB) and works offline afterwards. Leaves nothing running.

    \b
    Examples:
      bringup demo
      bringup demo --quick --output reports
      bringup demo --weights model.gguf --threads 8 --json

    Exits with 0 also when something could not be measured here (in most containers the model's code cannot be
    isolated, so it is not run): that says nothing about the demo. `verify` exits with 7 then.
    """
    request = DemoRequest(depth=Depth[(depth or "full").upper()], weights=weights, threads=threads)
    places = OutputOptions(
        format="json" if is_json else "text",
        junit=output / "junit.xml",
        svg=output / "verdict.svg",
        record=output / "recording.json.gz",
        is_plain=no_color,
        show_all=show_all,
    )
    require_places(places)
    with ProgressLine() as progress:
        outcome = asyncio.run(demo(request, say=progress.say, on_step=progress.step))
    report = outcome.report
    write_file(output / "report.json", render_json(report).encode())
    write_file(output / "report.md", render_markdown(report).encode())
    emit(report, outcome.recording, places)
    click.echo(f"reports and recording: {output}/", err=True)
    ctx.exit(EXIT_OK if report.exit_code == EXIT_UNKNOWN else report.exit_code)
