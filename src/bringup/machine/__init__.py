"""Questions to the operating system of a host and their pure readers, one file per subject."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bringup.values.host import CommandResult, HostSnapshot, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the questions are about: the endpoint's port and what the user named."""

    port: int | None = None  # of the endpoint under test
    unit: str | None = None  # systemd unit the user named
    container: str | None = None  # container the user named
    folders: tuple[tuple[str, str], ...] = ()  # (purpose, path) of model and cache folders, where known
    log_unit: str | None = None  # unit and container of the process, whose log is read once they are known
    log_container: str | None = None
    model: str | None = None  # as the engine's command line names it, once that is known
    model_places: tuple[tuple[str, str], ...] = ()  # variables of its environment that say where models lie
    model_reader: int | None = None  # process that reads it: paths are as that process sees them


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One subject of a host: what to ask and how to add the answers to a snapshot.

    `read` returns the snapshot with its own fields filled; it touches no other field, except that it may
    append to `missing`.
    """

    questions: Callable[[Target], tuple[Question, ...]]
    read: Callable[[HostSnapshot, Mapping[str, CommandResult]], HostSnapshot]
