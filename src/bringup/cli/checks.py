"""`bringup checks`."""

from collections.abc import Mapping
from typing import cast

import click
import msgspec

from bringup import registry
from bringup.checks import Check
from bringup.cli.terminal import write_json


@click.command("checks")
@click.option("--json", "is_json", is_flag=True, help="The list as JSON on standard output.")
def command(*, is_json: bool) -> None:
    """List the checks that `verify` makes: name, least depth, what it shows.

    \b
    Examples:
      bringup checks
      bringup checks --json
    """
    checks = cast("dict[str, Check]", registry.load("bringup.checks", "CHECK"))
    if is_json:
        write_json(_as_json(checks))
        return
    width = max(map(len, checks))
    for name, check in checks.items():
        click.echo(f"{name:{width}}  {check.depth.name.lower():7}  {check.title}")


def _as_json(checks: Mapping[str, Check]) -> str:
    rows = [
        {
            "name": name,
            "title": check.title,
            "section": check.section,
            "depth": check.depth.name.lower(),
        }
        for name, check in checks.items()
    ]
    encoded = msgspec.json.encode({"schema": "bringup/checks/1", "checks": rows})
    return msgspec.json.format(encoded, indent=2).decode() + "\n"
