"""`bringup bench compare`."""

import sys
from pathlib import Path

import click

from bringup.cli.terminal import terminal_width, use_color, write_json
from bringup.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN
from bringup.flows.bench_files import read_result
from bringup.report.bench import TextStyle
from bringup.report.bench_compare import Sides, is_worse, render_comparison_json, render_comparison_text
from bringup.stats.compare import compare

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("bench compare")
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of the draws. [0]")
@click.option("--json", "is_json", is_flag=True, help="Comparison as JSON on standard output.")
@click.option("--no-color", is_flag=True, help="No colour (also: NO_COLOR).")
@click.pass_context
def command(
    ctx: click.Context, before: Path, after: Path, seed: int, *, is_json: bool, no_color: bool
) -> None:
    """Say what differs between two results of `bench`, load by load, and what may be chance.

    \b
    Examples:
      bringup bench compare monday.json tuesday.json
      bringup bench compare --json fp8.json nvfp4.json

    The results are those that `bench -o FILE` keeps: with every request, from which the intervals are
    drawn. `bench --json` has none of them, and so no intervals. The exit code is 1 where a figure is
    shown to be worse, 7 where nothing could be judged.
    """
    first, second = read_result(before), read_result(after)
    sides = Sides(
        before=first.run,
        after=second.run,
        before_name=str(before),
        after_name=str(after),
        comparison=compare(first.results, second.results, seed=seed),
    )
    if is_json:
        write_json(render_comparison_json(sides))
    else:
        style = TextStyle(width=terminal_width(), has_color=use_color(is_plain=no_color))
        sys.stdout.write(render_comparison_text(sides, style))
    if not sides.comparison.judged:
        ctx.exit(EXIT_UNKNOWN)
    ctx.exit(EXIT_FINDINGS if is_worse(sides.comparison) else EXIT_OK)
