"""`bringup checks`."""

from typing import cast

import click

from bringup import registry
from bringup.checks import Check


@click.command("checks")
def command() -> None:
    """List the checks that `verify` makes: name, least depth, what it shows."""
    checks = cast("dict[str, Check]", registry.load("bringup.checks", "CHECK"))
    width = max(map(len, checks))
    for name, check in checks.items():
        click.echo(f"{name:{width}}  {check.depth.name.lower():7}  {check.title}")
