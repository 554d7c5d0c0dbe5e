"""The deployment under test: all that a check may know. Assembled once, before the first exercise."""

from dataclasses import dataclass
from enum import IntEnum

from bringup.values.engine import EngineSpec, EngineStatus, ServedModel
from bringup.values.host import HostSnapshot


class Depth(IntEnum):
    """How much is asked."""

    QUICK = 0  # under 10 s of requests on a small model
    DEFAULT = 1
    FULL = 2


class Ability(IntEnum):
    """What a model of this size is expected to manage: a wrong answer means *broken* or only *weak*."""

    UNKNOWN = 0  # size not known
    TINY = 1  # under 1.0e9 parameters: one-word facts at best
    SMALL = 2  # 1e9 to 7e9: facts, easy code, short arithmetic mostly
    CAPABLE = 3  # 7e9 and more: 7 x 13, a short function


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user says should be true."""

    model: str | None = None  # expected model id
    context_tokens: int | None = None
    long_context_tokens: int | None = None  # how long the needle exercise is
    gpus: tuple[str, ...] = ()  # indices, UUIDs or PCI bus ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One endpoint, the engine behind it, the host under it and what is wanted of it."""

    url: str  # as normalised: scheme://host:port/base, without /v1
    engine: EngineStatus
    model: ServedModel  # the one that is exercised
    ability: Ability = Ability.UNKNOWN
    depth: Depth = Depth.DEFAULT
    wanted: Wanted = Wanted()
    spec: EngineSpec | None = None
    host: HostSnapshot | None = None  # before the exercises
    host_after: HostSnapshot | None = None  # after them
    has_api_key: bool = False
    is_tls: bool = False
