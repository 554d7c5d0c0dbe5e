"""The deployment under test: all that a check may know. Assembled once, before the first exercise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from bringup.values.account import Account, Role
from bringup.values.engine import EngineSpec, EngineStatus, ServedModel
from bringup.values.host import EngineProcess, Gpu, HostSnapshot
from bringup.values.known_bug import KnownBug
from bringup.values.load import LoadTrace

_USUAL_PORTS = {"http": 80, "https": 443}


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
    load: bool = False  # a burst of requests, sized to the deployment
    need_context: int | None = None  # tokens of a request that the cache must hold
    need_concurrency: int | None = None  # requests of that length at once


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
    load: LoadTrace | None = None  # what was sampled beside the burst; None: there was none
    account: Account | None = None  # of the GPUs; None: none was seen
    has_encoder: bool = False  # the config of the model, where it was read, names a part for pictures
    has_api_key: bool = False
    is_tls: bool = False
    known_bugs: tuple[KnownBug, ...] = ()  # of all engines; which of them apply is judged
    card_power: Mapping[str, float] = field(default_factory=dict[str, float])  # name -> watts of its kind
    price_per_kwh: float | None = None  # in whatever currency the user thinks

    @property
    def port(self) -> int | None:
        """The port of `url`, the scheme's own where it names none."""
        scheme, _, rest = self.url.partition("://")
        named = rest.partition("/")[0].rpartition(":")[2]
        return int(named) if named.isdigit() else _USUAL_PORTS.get(scheme)

    @property
    def process(self) -> EngineProcess | None:
        """The process that listens on the endpoint's port, where it was seen."""
        return self.host.engine_on(self.port) if self.host is not None else None

    @property
    def process_after(self) -> EngineProcess | None:
        """The same after the exercises."""
        return self.host_after.engine_on(self.port) if self.host_after is not None else None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that are meant: those the user named, else the host's main ones."""
        return self.host.gpus_named(self.wanted.gpus) if self.host is not None else ()

    @property
    def carriers(self) -> tuple[Gpu, ...]:
        """The GPUs that carry the model: as the account has found them, else as the driver says."""
        if self.account is not None:
            found = tuple(one.gpu for one in self.account.gpus if one.role is Role.MODEL)
            if found:
                return found
        host, process = self.host, self.process
        return host.gpus_of(process) if host is not None and process is not None else ()

    @property
    def ranks(self) -> int:
        """How many GPUs or processes share the model, as far as it is known; 0: not known."""
        wanted = self.spec.tensor_parallel_size if self.spec is not None else None
        return max(len(self.carriers), wanted or 0)
