"""Everything one run observed, so that it replays to the same report without the machine."""

from dataclasses import dataclass, field

from bringup.values.exchange import Answer, ProgramResult
from bringup.values.host import CommandResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Raw answers by who asked. Secrets were redacted before anything came here."""

    schema: str = "bringup/recording/1"
    tool_version: str = ""
    taken_at: float = 0.0  # Unix time, seconds
    duration_s: float | None = None
    host: str = ""
    url: str = ""
    options: dict[str, object] = field(default_factory=dict[str, object])
    snapshots: dict[str, dict[str, CommandResult]] = field(
        default_factory=dict[str, dict[str, CommandResult]]
    )  # "before" and "after" -> question key -> result
    looked_at: dict[str, float] = field(default_factory=dict[str, float])  # the same -> Unix time, seconds
    probes: dict[str, Answer] = field(default_factory=dict[str, Answer])  # path -> answer
    answers: dict[str, dict[str, Answer]] = field(
        default_factory=dict[str, dict[str, Answer]]
    )  # check -> key
    programs: dict[str, dict[str, ProgramResult]] = field(default_factory=dict[str, dict[str, ProgramResult]])
