"""Where a log comes from: a file, standard input, a unit's journal, a container; here or on a host."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from bringup.errors import UsageError
from bringup.transport.log_source import read_command, read_file, read_input
from bringup.transport.ssh import checked_destination

LOCAL = "local"
# This boot and the last, oldest first. A user's own systemd has a journal too: it is asked when the system's
# holds nothing of that name. Without `--all` a line with a carriage return, as progress bars write, or with
# bytes that are no text is "[82B blob data]".
_JOURNAL = """
unit={unit}
one() {{ journalctl "$@" --all --no-pager --quiet --output=short-iso 2>/dev/null; }}
both() {{ one "$@" --boot=-1; one "$@" --boot=0 || one "$@"; }}
command -v journalctl >/dev/null 2>&1 || {{ echo "journalctl is not there" >&2; exit 69; }}
if one --unit="$unit" --lines=1 | grep -q .; then both --unit="$unit"; exit; fi
if one --user-unit="$unit" --lines=1 | grep -q .; then both --user-unit="$unit"; exit; fi
{{
  echo "the journal holds nothing of the unit $unit"
  journalctl --field=_SYSTEMD_UNIT 2>/dev/null | grep -i -F -e "${{unit%.service}}" | head -n 5 |
    sed 's/^/it has: /'
  journalctl --lines=1 --no-pager 2>&1 >/dev/null | grep -i -e permission -e "not seeing" -e "no journal f"
}} >&2
exit 66
"""
# A daemon that is not reached must not read as a container that is not there.
_CONTAINER = """
name={name}
for tool in docker podman nerdctl; do
  command -v $tool >/dev/null 2>&1 || continue
  if said=$($tool container inspect -- "$name" 2>&1 >/dev/null); then
    exec $tool logs --timestamps -- "$name" 2>&1
  fi
  found=1
  echo "$tool: $said" >&2
done
[ -n "$found" ] || echo "docker, podman and nerdctl are not there" >&2
exit 66
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Which log is meant."""

    path: Path | None = None  # None and nothing else: standard input
    unit: str | None = None
    container: str | None = None
    host: str | None = None  # where unit and container are; None and "local": here

    @property
    def is_far(self) -> bool:
        """Whether another machine holds it."""
        return self.host not in (None, LOCAL)

    @property
    def words(self) -> str:
        """What it is called in a report."""
        where = f" on {self.host}" if self.is_far else ""
        if self.unit:
            return f"unit {self.unit}{where}"
        if self.container:
            return f"container {self.container}{where}"
        return "standard input" if self.path is None else str(self.path)

    @property
    def command(self) -> str:
        """What reads it again and asks its machine too; of standard input only the machine is asked again."""
        host = f" --host {quote(self.host or LOCAL)}"
        if self.unit:
            return f"bringup diagnose --unit {quote(self.unit)}{host}"
        if self.container:
            return f"bringup diagnose --container {quote(self.container)}{host}"
        return f"bringup diagnose{f' {quote(str(self.path))}' if self.path else ''}{host}"


def open_log(place: LogPlace) -> Iterator[bytes]:
    """The log's bytes, piece by piece.

    Raises:
        UsageError: the file cannot be read, or a name is none.
        HostError: the host, the unit or the container could not be asked.
    """
    if place.unit or place.container:
        name = place.unit or place.container or ""
        if name.startswith("-") or not name.isprintable():
            raise UsageError(f"`{name}` is no name of a unit or container")
        script = (_JOURNAL if place.unit else _CONTAINER).format(unit=quote(name), name=quote(name))
        argv = (*_ssh(place.host), script) if place.is_far else ("sh", "-c", script)
        return read_command(argv, what=f"read the log of {place.words}", host=place.host)
    if place.path is None:
        return read_input()
    return read_file(place.path)


def _ssh(host: str | None) -> tuple[str, ...]:
    """The client with the user's own configuration, without a question, for one command."""
    config = os.environ.get("BRINGUP_SSH_CONFIG")
    options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR", "-T")
    own = ("-F", config) if config else ()
    return ("ssh", *own, *options, "--", checked_destination(host or ""))
