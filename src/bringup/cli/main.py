"""The `bringup` command: names, modules and one-line helps; a command is imported when it is run."""

import atexit
import gc
import importlib
import sys
from typing import NoReturn

import click

from bringup import __version__
from bringup.cli.streams import forsake_output, is_output_error, prepare_streams
from bringup.errors import EXIT_INTERRUPTED, EXIT_USAGE, BringupError, UsageError

# One line per command, so that `bringup --help` imports none of them.
COMMANDS = {
    "verify": "Verify a running model: does it work, what does it cost, what is left.",
    "plan": "Say what fits and how much memory it takes, before anything is started.",
    "diagnose": "Name what broke a start, from its log, and the change that cures it.",
    "bench": "Measure how fast a server is, and how much load it takes.",
    "bench compare": "Say what differs between two results of `bench`.",
    "demo": "Bring a small real model up on this machine, verify it, take it down.",
    "checks": "List the checks that `verify` makes.",
    "completion": "Print the shell completion script for bash, zsh or fish.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported by name when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return [name for name in COMMANDS if " " not in name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of two words, or of one."""
        name = " ".join(args[:2])
        if name in COMMANDS and " " in name:
            return name, self.get_command(ctx, name), args[2:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"bringup.cli.{cmd_name.replace(' ', '_')}")
        return module.command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bringup")
def bringup() -> None:
    """Bring an open-weight model up on GPU machines and prove that it is up.

    \b
    Examples:
      bringup demo                         a small model on this machine, no GPU
      bringup plan M --gpus "2x H100"      what fits, before anything is started
      bringup verify http://gpubox:8000    function checks over the network
      bringup verify :8000 --host gpubox   and its machine, over SSH
      bringup verify :8000 --full --json   everything, as JSON
      bringup bench http://gpubox:8000     how fast, and how much load it takes
      bringup diagnose vllm.log            why it did not start, what to change

    \b
    Exit codes:
      0 all good, or notes only     1 warnings or failures    2 usage
      3 not reachable               4 not understood          5 engine not started
      6 does not fit
      7 something could not be measured, nothing is worse     130 interrupted
    """


def split_engine_command(argv: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own arguments and, after `--`, the engine's command line as the user runs it.

    >>> split_engine_command(["verify", "--quick", "--", "vllm", "serve", "M", "--port", "8000"])
    (['verify', '--quick'], ('vllm', 'serve', 'M', '--port', '8000'))
    """
    if "--" not in argv:
        return argv, ()
    place = argv.index("--")
    return argv[:place], tuple(argv[place + 1 :])


def _clean(text: str) -> str:
    """A message without secrets that were typed."""
    from bringup.parse.redact import redact

    return redact(text)


def main() -> NoReturn:
    """Run the command line and exit with its documented code."""
    atexit.register(gc.freeze)  # else Python looks for garbage in all that was loaded: 17 ms before it ends
    prepare_streams()
    try:
        own, engine_command = split_engine_command(sys.argv[1:])
        if engine_command and not {"verify", "plan"} & set(own):
            raise UsageError(
                "only `bringup verify` and `bringup plan` take an engine's command line after `--`"
            )
        code = bringup.main(args=own, prog_name="bringup", standalone_mode=False, obj=engine_command)
        sys.stdout.flush()
    except click.exceptions.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        # it quotes what was typed
        click.UsageError(_clean(error.format_message()), getattr(error, "ctx", None)).show()
        sys.exit(EXIT_USAGE)
    except BringupError as error:
        print(f"error: {_clean(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {_clean(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        forsake_output()  # its reader is gone (`| head`): nothing to say
        sys.exit(0)
    except OSError as error:
        if not is_output_error(error):
            raise
        forsake_output()
        print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    sys.exit(code if isinstance(code, int) else 0)
