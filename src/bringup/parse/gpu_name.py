"""What a user calls some GPUs, against a catalogue of cards: `8x RTX PRO 6000 Blackwell` -> `Gpus`.

The catalogue is `data/gpus.json`, one row per card with the source of each figure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from bringup.errors import UsageError
from bringup.parse.json_value import Json, at, bool_at, float_at, int_at, list_at, text_at
from bringup.units import GIB, mib
from bringup.values.plan import Card, Gpus

_COUNT_FIRST = re.compile(r"^(?P<count>\d{1,4})\s*(?:[x×*]\s*|\s+(?=[a-z]))(?P<name>.*\S)$", re.IGNORECASE)
_COUNT_LAST = re.compile(r"^(?P<name>.*\S)\s+[x×*]\s*(?P<count>\d{1,4})$", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+")
_GLUED = re.compile(r"\b(rtx|gtx|pro|rx|gb)[\s_-]?(?=\d)")  # rtx5090, pro6000
_MEMORY_WORD = re.compile(r"^(\d+)(?:gb?|gib)$")
# Words that name the maker or a line of products, not the card.
_MAKERS = frozenset({"nvidia", "geforce", "tesla", "amd", "intel", "instinct"})
_FILLERS = _MAKERS | {"gpu", "graphics", "generation", "edition", "rtx", "gtx", "rx"}
_UNKNOWN = frozenset({"unknown", "any", "other"})
# How close a memory size in a name must come to a card's: 80 GB against 79.6 GiB, 141 against 140.4.
_SIZE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueCard:
    """One row of the catalogue: the card and the other names it goes by."""

    card: Card
    aliases: tuple[str, ...] = ()
    memory_gb: int | None = None  # the figure it is sold with


def read_catalogue(rows: Json) -> tuple[CatalogueCard, ...]:
    """The cards of `data/gpus.json`."""
    return tuple(_row(row) for row in list_at(rows, "gpus"))


def _row(row: Json) -> CatalogueCard:
    nominal, reported = int_at(row, "memory_gb"), int_at(row, "memory_mib")
    # guess: a card whose report nobody has seen shows half a per cent less than it is sold with.
    total = mib(reported) if reported is not None else round((nominal or 0) * GIB * 0.995)
    said = int_at(row, "reserved_mib")
    reserved = mib(said) if said is not None else _reserved(total)
    formats = at(row, "formats")
    named = cast("dict[str, Json]", formats) if isinstance(formats, dict) else {}
    card = Card(
        name=text_at(row, "name") or "",
        memory_total=total,
        cuda_total=total - reserved,
        reserved=reserved,
        compute_capability=text_at(row, "compute_capability"),
        architecture=text_at(row, "architecture"),
        power_limit=float_at(row, "power_w"),
        formats=tuple((name, str(how)) for name, how in named.items()),
        source="; ".join(
            part for key in ("memory_source", "reserved_source", "source") if (part := text_at(row, key))
        ),
        is_cuda_total_measured=said is not None and bool_at(row, "memory_seen") is True,
    )
    aliases = tuple(word for word in list_at(row, "aliases") if isinstance(word, str))
    return CatalogueCard(card=card, aliases=aliases, memory_gb=nominal)


def _reserved(total: int) -> int:
    """What the driver keeps of a card nobody has measured.

    guess: 400 MiB and 2.5 MiB per GiB, at most 640. Seen: 316 to 453 on 24 and 32 GB, 609 and 625 on 40 and
    48 GB, 479 on 80, 636 on 96, 614 on 141 GB. Of little effect: 0.2 % of the card.
    """
    return mib(min(640.0, 400 + 2.5 * total / GIB))


def read_gpus(
    text: str,
    catalogue: Sequence[CatalogueCard],
    *,
    memory_mib: float | None = None,
    cuda_mib: float | None = None,
    used_mib: float = 0,
) -> Gpus:
    """The GPUs that `text` names, with their memory as the catalogue or the caller gives it.

    `memory_mib` is nvidia-smi's total, `cuda_mib` the smaller total that CUDA sees; with either, a name that
    is in no catalogue will do.

    Raises:
        UsageError: no such card, several that differ, no memory known of it, or an impossible number.
    """
    count, name = _count(text)
    if any(size is not None and size <= 0 for size in (memory_mib, cuda_mib)) or used_mib < 0:
        raise UsageError("the memory of a GPU is a positive number of MiB")
    has_memory = memory_mib is not None or cuda_mib is not None
    card = _sized(_find(name, catalogue, has_memory=has_memory), memory_mib, cuda_mib)
    if card.cuda_total <= 0:
        raise UsageError(f"{memory_mib:g} MiB is less than the driver keeps: no such GPU")
    used = mib(used_mib)
    if used >= card.cuda_total:
        raise UsageError(f"{used_mib:,} MiB used by others is all that `{card.name}` has")
    return Gpus(card=card, count=count, used_by_others=used)


def _count(text: str) -> tuple[int, str]:
    stripped = text.strip()
    match = _COUNT_FIRST.match(stripped) or _COUNT_LAST.match(stripped)
    count, name = (int(match["count"]), match["name"].strip()) if match else (1, stripped)
    if not name:
        raise UsageError("no GPU named", hint='write it like `--gpus "4x RTX PRO 6000 Blackwell"`')
    if count == 0:
        raise UsageError(f"`{text}` names no GPUs", hint='write it like `--gpus "4x H100 SXM"`')
    return count, name


def _sized(card: Card, memory_mib: float | None, cuda_mib: float | None) -> Card:
    if memory_mib is None and cuda_mib is None:
        return card
    if memory_mib is not None and cuda_mib is not None:
        total, cuda = mib(memory_mib), mib(cuda_mib)
        if cuda > total:
            raise UsageError(
                f"CUDA cannot see more ({cuda_mib:g} MiB) than the card has ({memory_mib:g} MiB)"
            )
    elif cuda_mib is not None:
        cuda = mib(cuda_mib)
        total = cuda + (card.reserved if card.memory_total else _reserved(cuda))
    else:
        total = mib(memory_mib or 0)
        cuda = total - (card.reserved if card.memory_total else _reserved(total))
    return replace(
        card,
        memory_total=total,
        cuda_total=cuda,
        reserved=total - cuda,
        is_cuda_total_measured=cuda_mib is not None
        or (card.is_cuda_total_measured and total == card.memory_total),
        source=f"memory as given; {card.source}" if card.source else "memory as given",
    )


def _find(name: str, catalogue: Sequence[CatalogueCard], *, has_memory: bool) -> Card:
    words = _words(name)
    found = _matches(words, catalogue)
    if found and len({_plan_key(row.card) for row in found}) == 1:
        return _joined([row.card for row in found], name)
    if found:
        names = ", ".join(row.card.name for row in found)
        raise UsageError(f"`{name}` can be {names}", hint="name one of them in full")
    if has_memory:
        return Card(name=name, memory_total=0, cuda_total=0, reserved=0)
    near = [row.card.name for row in catalogue if words & _words(row.card.name)][:6]
    hint = "give its memory as nvidia-smi shows it with `--gpu-memory-mib N`"
    if near and not words <= _UNKNOWN:
        hint = f"near it: {', '.join(near)}; of another card {hint}"
    raise UsageError(f"`{name}` is in no catalogue of GPUs", hint=hint)


def power_limit_of(name: str, catalogue: Sequence[CatalogueCard]) -> float | None:
    """Watts of the one kind of card that has this name; None when it is not known or several differ."""
    limits = {row.card.power_limit for row in _matches(_words(name), catalogue)}
    return limits.pop() if len(limits) == 1 else None


def _words(name: str) -> frozenset[str]:
    """What tells one card from another in a name: `RTX5090`, `rtx 5090` and `GeForce RTX-5090` are one."""
    spaced = _GLUED.sub(lambda match: f"{match[1]} ", name.lower())
    found = {word for word in _WORD.findall(spaced) if word not in _FILLERS}
    return frozenset(found or set(_WORD.findall(spaced)))


def _matches(words: frozenset[str], catalogue: Sequence[CatalogueCard]) -> list[CatalogueCard]:
    """Rows whose name has all the words; those with no word more come before the rest."""
    sizes = {int(match[1]) for word in words if (match := _MEMORY_WORD.match(word))}
    plain = frozenset(word for word in words if not _MEMORY_WORD.match(word))
    if not words or words <= _UNKNOWN:
        return []
    exact = [row for row in catalogue if any(words == known for known in _names(row))]
    if exact:
        return exact
    sized = [row for row in catalogue if _has_size(row, sizes)]
    for is_match in (_is_all, _is_part):
        if found := [row for row in sized if any(is_match(plain, known) for known in _names(row))]:
            return found
    return []


def _names(row: CatalogueCard) -> list[frozenset[str]]:
    return [_words(name) for name in (row.card.name, *row.aliases)]


def _is_all(words: frozenset[str], known: frozenset[str]) -> bool:
    return words == frozenset(word for word in known if not _MEMORY_WORD.match(word))


def _is_part(words: frozenset[str], known: frozenset[str]) -> bool:
    return bool(words) and words <= known


def _has_size(row: CatalogueCard, sizes: set[int]) -> bool:
    """Whether each size in the user's words is one the card goes by."""
    held = [size for size in (row.memory_gb, row.card.memory_total / GIB) if size]
    return all(any(abs(size - one) <= _SIZE_TOLERANCE * one for one in held) for size in sizes)


def _plan_key(card: Card) -> tuple[object, ...]:
    """What a memory plan depends on. Cards of one key may be planned for without asking which."""
    return (card.memory_total, card.compute_capability, card.formats)


def _joined(cards: Sequence[Card], said: str) -> Card:
    """One card for several that a memory plan cannot tell apart: the best measured, under the common name."""
    best = max(cards, key=lambda card: card.is_cuda_total_measured)
    if len(cards) == 1:
        return best
    shared = _shared_words([card.name.split() for card in cards])
    limits = {card.power_limit for card in cards}
    return replace(
        best,
        name=" ".join(shared) if len(shared) > 1 else said,
        power_limit=best.power_limit if len(limits) == 1 else None,
    )


def _shared_words(names: Sequence[Sequence[str]]) -> list[str]:
    """The words that all names begin with."""
    shared: list[str] = []
    for words in zip(*names, strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return shared
