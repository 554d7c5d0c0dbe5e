"""Filler text whose length in tokens is known without a tokenizer, and which no two requests share.

A text is an opening of a few words that spell a number, so that every number gives another text from its
first words on, and then pieces of words drawn by a key. It takes microseconds: pieces are joined, not words.

Source: each of the words is one token, after a space, after a line break and at the start of a text, in the
vocabularies of SmolLM2, Llama 2 and 3, Gemma 3, DeepSeek V4, Qwen 2 and 3.6, Mistral 7B v0.1 and v0.3, Tekken
and cl100k. A server is asked all the same before a length is called exact (see `calibration`).
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from random import Random

_WORD_LIST = """
air apple area arm around art bag ball bank base big bird blue board boat body book bottom box bridge
building built business car care cat center chair change character child children circle city class clean
clear clock close cloud color come common company complete copy country course dark date day deep design
direct dog door draw drive drop edge energy engine face fact fall family fast father field figure fill
film final find fire fish flat floor flow fly follow food foot force form free friend front full game
glass gold grand gray green ground half hall hand hat head high hill history hold home hot hour house
inch interest iron job join key land language large learn left leg length letter level life light line
love low machine main map mark market member method middle mile mind moment month mother move natural
night order pair paper park path pattern pay period person phone picture piece plain plan plane plant
play quality quick radio raise range real record region rest rich ride ring rise river road rock roll
room root rose round safe save school sea season second section shape share sheet ship shop short sign
simple size skin sky sleep small soft sound space special speed spring square star state step stone store
story strong student sun surface table tail team time tiny tool top touch town track train tree value
view visit voice wait walk wall watch water wave week weight west wheel wide wind window wood word work
world write yard year
"""
WORDS = tuple(_WORD_LIST.split())
PIECE_WORDS = 64
OPENING_WORDS = 6  # 256 words to the power of 6: 2.8e14 different openings
_PIECES = 256  # one byte of the key stream chooses one
_GOLDEN = 0.6180339887498949  # openings of neighbouring numbers lie as far apart as can be


@dataclass(frozen=True, slots=True, kw_only=True)
class Filler:
    """Ready pieces of text over one list of words."""

    words: tuple[bytes, ...]
    pieces: tuple[bytes, ...]
    cuts: tuple[tuple[int, ...], ...]  # per piece: where its first n words end
    openings: int  # how many different openings there are
    step: int  # coprime to `openings`


@lru_cache(maxsize=8)
def filler(words: tuple[str, ...] = WORDS) -> Filler:
    """The pieces over `words`, the same in every process.

    >>> len(filler().pieces), filler().pieces[0].count(b" ")
    (256, 63)
    """
    encoded = tuple(word.encode() for word in words)
    draw = Random(0)  # noqa: S311 - text, no secret
    pieces: list[bytes] = []
    cuts: list[tuple[int, ...]] = []
    for _ in range(_PIECES):
        chosen = draw.choices(encoded, k=PIECE_WORDS)
        pieces.append(b" ".join(chosen))
        ends = [-1]
        for word in chosen:
            ends.append(ends[-1] + 1 + len(word))
        cuts.append((0, *ends[1:]))
    openings = len(encoded) ** OPENING_WORDS
    return Filler(
        words=encoded,
        pieces=tuple(pieces),
        cuts=tuple(cuts),
        openings=openings,
        step=_coprime(int(openings * _GOLDEN), openings),
    )


def _coprime(wanted: int, to: int) -> int:
    """The first number from `wanted` on that shares no factor with `to`."""
    while _common_factor(wanted, to) != 1:
        wanted += 1
    return wanted


def _common_factor(one: int, other: int) -> int:
    while other:
        one, other = other, one % other
    return one


def filler_text(source: Filler, count: int, *, number: int, key: bytes) -> bytes:
    """`count` words: the opening of `number`, then words drawn by `key`.

    The text of a smaller count is the beginning of the text of a larger one. Numbers that differ by less than
    `source.openings` open differently.

    >>> filler_text(filler(), 8, number=1, key=b"1").count(b" ")
    7
    """
    opening = _opening(source, min(count, OPENING_WORDS), number)
    rest = count - OPENING_WORDS
    if rest <= 0:
        return opening
    whole, part = divmod(rest, PIECE_WORDS)
    draws = hashlib.shake_128(key).digest(whole + 1)
    parts = [opening, *map(source.pieces.__getitem__, draws[:whole])]
    if part:
        last = draws[whole]
        parts.append(source.pieces[last][: source.cuts[last][part]])
    return b" ".join(parts)


def _opening(source: Filler, count: int, number: int) -> bytes:
    """The first `count` of the words that spell `number`, the ones that differ most first."""
    rest = number * source.step % source.openings
    base = len(source.words)
    digits: list[bytes] = []
    for _ in range(OPENING_WORDS):
        rest, digit = divmod(rest, base)
        digits.append(source.words[digit])
    return b" ".join(digits[: -count - 1 : -1])
