"""Prompts of filler text with exact lengths and a chosen shared share."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from bringup.errors import UsageError
from bringup.values.bench import LoadRequest
from bringup.workload.calibration import UNASKED, Calibration
from bringup.workload.filler import Filler, filler, filler_text
from bringup.workload.lengths import Lengths
from bringup.workload.request_body import BodyShape, body_pieces, whole_body

_PREFIX_NUMBERS = 10**12  # where the openings of shared prefixes begin: any place far from most others
_BLOCK_NUMBERS = 10**10  # where the openings begin of blocks that no hash names


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Requests of drawn lengths, without end.

    The lengths depend on the seed alone; the prompts on seed and salt. Give every rung and every run a salt
    of its own: prompts that an engine has seen come from its prefix cache. Shared prefixes depend on the seed
    alone: that they are in the cache is what they are for.
    """

    shape: BodyShape
    input_lengths: Lengths
    output_lengths: Lengths
    seed: int = 0
    salt: int = 0
    prefix_share: float = 0.0  # of each prompt, 0..1
    prefix_groups: int = 1  # different shared prefixes
    calibration: Calibration = UNASKED

    @property
    def words(self) -> str:
        """The workload in words."""
        said = [
            "synthetic",
            f"{self.input_lengths.words} in ({self.calibration.words})",
            f"{self.output_lengths.words} out",
        ]
        if self.prefix_share:
            groups = f", {self.prefix_groups} different" if self.prefix_groups > 1 else ""
            said.append(f"{self.prefix_share:.0%} shared prefix{groups}")
        return ", ".join([*said, f"seed {self.seed}"])

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The requests of one generator, without end."""
        lengths = length_source(self.input_lengths, self.output_lengths, self.seed)
        pieces = body_pieces(self.shape)
        text = TextSource(self)
        index = generator
        while True:
            input_tokens, output_tokens = lengths(index)
            yield LoadRequest(
                index=index,
                body=whole_body(pieces, text.prompt(index, input_tokens), output_tokens),
                output_tokens=output_tokens,
                input_tokens=self.calibration.meant(input_tokens),
            )
            index += generators

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:  # noqa: ARG002 - the protocol's
        """Never another turn."""
        return None


def require_room(calibration: Calibration, lengths: Lengths, *, option: str) -> None:
    """Raises unless the shortest prompt has room for a word beside the template.

    Raises:
        UsageError: it has not.
    """
    least = calibration.overhead + 1
    if lengths.least < least:
        raise UsageError(
            f"the chat template alone takes {calibration.overhead} tokens, "
            f"`{option} {lengths.words}` asks for prompts of {lengths.least}",
            hint=f"`{option} {least}` is the least",
        )


def length_source(
    input_lengths: Lengths, output_lengths: Lengths, seed: int
) -> Callable[[int], tuple[int, int]]:
    """What gives a request's two lengths by its number."""
    fixed_in, fixed_out = input_lengths.fixed, output_lengths.fixed
    if fixed_in is not None and fixed_out is not None:
        both = (fixed_in, fixed_out)
        return lambda _: both
    source = Random()  # noqa: S311 - reproducible on purpose

    def drawn(index: int) -> tuple[int, int]:
        source.seed(seed * (1 << 64) + index)
        return input_lengths.draw(source), output_lengths.draw(source)

    return drawn


class TextSource:
    """Makes the prompts of one synthetic workload."""

    __slots__ = ("_filler", "_groups", "_number", "_of", "_salted", "_seed", "_share")

    def __init__(self, of: Synthetic) -> None:
        self._of = of.calibration
        self._filler: Filler = filler(of.calibration.vocabulary)
        self._share = of.prefix_share
        self._groups = max(1, of.prefix_groups)
        self._seed = b"%d" % of.seed
        self._salted = b"%d/%d/" % (of.seed, of.salt)
        drawn = hashlib.blake2b(self._salted, digest_size=6).digest()
        self._number = int.from_bytes(drawn, "big")

    def prompt(self, index: int, tokens: int, tail: str | None = None) -> bytes:
        """The prompt of request `index` that the server counts as `tokens`, less the text `tail` after it."""
        count = self._of.words_for(tokens, tail)
        shared = round(self._share * count) if self._share else 0
        if not shared:
            return self.own(index, count)
        prefix = self._prefix(index, shared)
        return prefix if shared == count else b"%b %b" % (prefix, self.own(index, count - shared))

    def blocks(self, ids: tuple[int, ...], block_words: int, count: int) -> bytes:
        """`count` words in blocks, each the same wherever its number stands."""
        whole, part = divmod(count, block_words)
        sizes = [block_words] * whole + ([part] if part else [])
        parts: list[bytes] = []
        for place, size in enumerate(sizes):
            number = ids[place] if place < len(ids) else ids[-1] + _BLOCK_NUMBERS + place
            key = b"%b block %d" % (self._salted, number)
            parts.append(filler_text(self._filler, size, number=self._number + number, key=key))
        return b" ".join(parts)

    def own(self, index: int, count: int) -> bytes:
        """`count` words of this request alone."""
        return filler_text(
            self._filler, count, number=self._number + index, key=b"%b%d" % (self._salted, index)
        )

    def _prefix(self, index: int, count: int) -> bytes:
        """`count` words that the requests of one group share."""
        drawn = hashlib.blake2b(b"%b group %d" % (self._seed, index), digest_size=8).digest()
        group = int.from_bytes(drawn, "big") % self._groups
        return filler_text(
            self._filler, count, number=_PREFIX_NUMBERS + group, key=b"%b prefix %d" % (self._seed, group)
        )
