"""What the OpenSSH client said, turned into what a person can do about it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from bringup.errors import HostError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    """One way in which ssh fails: how it is recognised, what it means, what to do."""

    seen: re.Pattern[str]
    found: str
    hint: Callable[[str, re.Match[str], str], str]  # (destination, match, all that ssh said)


def _changed_key(destination: str, _match: re.Match[str], text: str) -> str:
    offending = re.search(r"Offending (?:\S+ )?key in (?P<where>\S+:\d+)", text)
    where = f" (`{offending['where']}`)" if offending else ""
    return (
        f"if the machine was reinstalled, forget the old key with `ssh-keygen -R HOST`{where}, run "
        f"`ssh {destination}` once and compare the new fingerprint; if it was not, somebody may stand "
        "between you and it: do not connect"
    )


def _unknown_host(destination: str, _match: re.Match[str], _text: str) -> str:
    return f"run `ssh {destination}` once, compare the fingerprint with the machine's and accept it"


def _refused_key(destination: str, _match: re.Match[str], _text: str) -> str:
    return (
        f"`ssh {destination} true` must work without typing anything: load the key (`ssh-add`), install it "
        f"(`ssh-copy-id {destination}`), or name the right user (USER@HOST)"
    )


def _says(text: str) -> Callable[[str, re.Match[str], str], str]:
    return lambda destination, _match, _text: text.replace("DEST", destination)


_TROUBLES = (
    _Trouble(
        seen=re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for \S+ has changed"),
        found="the host's key is not the one that was accepted before",
        hint=_changed_key,
    ),
    _Trouble(
        seen=re.compile(r"Host key verification failed|No \S+ host key is known for"),
        found="the host's key is unknown and nobody can be asked to accept it",
        hint=_unknown_host,
    ),
    _Trouble(
        seen=re.compile(
            r"Permission denied \(|Too many authentication failures|No more authentication methods"
        ),
        found="the host refused every key that was offered",
        hint=_refused_key,
    ),
    _Trouble(
        seen=re.compile(r"Could not resolve hostname (?P<name>\S+?):"),
        found="the host's name is not known",
        hint=_says(
            "check the spelling, `~/.ssh/config` and the DNS: `ssh -G DEST` shows what ssh makes of it"
        ),
    ),
    _Trouble(
        seen=re.compile(r"Connection refused"),
        found="nothing listens for ssh there",
        hint=_says("is sshd running, and on this port? A port that is not 22 belongs into `~/.ssh/config`"),
    ),
    _Trouble(
        seen=re.compile(r"timed out|Timeout, server .* not responding|did not answer within"),
        found="no answer in time",
        hint=_says("is the machine up and reachable from here (VPN, firewall, jump host)? Try `ssh -v DEST`"),
    ),
    _Trouble(
        seen=re.compile(r"No route to host|Network is unreachable|Host is down"),
        found="no way to the host from here",
        hint=_says("is the machine up and this network connected to it (VPN, jump host)?"),
    ),
    _Trouble(
        seen=re.compile(r"Unable to negotiate with .*"),
        found="the two sides have no algorithm in common",
        hint=_says("the host's sshd is very old or very strict: `ssh -v DEST` shows what it offers"),
    ),
    _Trouble(
        seen=re.compile(
            r"Bad owner or permissions on \S+|Bad configuration option.*|terminating, .* bad configuration"
        ),
        found="ssh refuses its own configuration",
        hint=_says("repair the named file; `ssh -G DEST` must work"),
    ),
    _Trouble(
        seen=re.compile(r"open failed|session request failed|Session open refused"),
        found="the host lets us in and allows no session",
        hint=_says("raise `MaxSessions` in the host's sshd_config to at least 1"),
    ),
    _Trouble(
        seen=re.compile(r"Connection closed|Connection reset|kex_exchange_identification|Broken pipe"),
        found="the connection was closed",
        hint=_says(
            "the host, a firewall or a jump host hung up (fail2ban, MaxStartups, no ssh behind that port): "
            "`ssh -v DEST` shows when"
        ),
    ),
)


def explain(destination: str, said: str, *, doing: str) -> HostError:
    """The error for a failed `doing`, from what ssh said."""
    lines = [line.strip() for line in said.splitlines() if line.strip(" @\r\t")]
    for trouble in _TROUBLES:
        if match := trouble.seen.search(said):
            quoted = next((line for line in lines if match[0] in line), match[0])
            return HostError(
                f"cannot {doing} `{destination}`: {trouble.found} (ssh: {quoted})",
                hint=trouble.hint(destination, match, said),
            )
    last = lines[-1] if lines else "ssh ended without a word"
    return HostError(
        f"cannot {doing} `{destination}`: {last}", hint=f"`ssh -v {destination} true` shows where it stops"
    )
