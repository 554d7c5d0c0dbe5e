"""`bringup completion`."""

import click
from click.shell_completion import get_completion_class

from bringup.cli.main import bringup


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      bringup completion bash > ~/.local/share/bash-completion/completions/bringup
      bringup completion zsh > "${fpath[1]}/_bringup"
      bringup completion fish > ~/.config/fish/completions/bringup.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(bringup, {}, "bringup", "_BRINGUP_COMPLETE").source())
