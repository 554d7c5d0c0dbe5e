"""How many words of filler make how many tokens for this server: asked, not assumed."""

from dataclasses import dataclass

from bringup.workload.filler import WORDS

_USUAL_OVERHEAD = 20  # guess: tokens of a chat template around one user message, until the server was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the server counts for a prompt of n words: `overhead` + n * `tokens_per_word`, off by `within`."""

    overhead: int = _USUAL_OVERHEAD
    tokens_per_word: float = 1.0
    within: int | None = None  # tokens; None: the server was not asked
    vocabulary: tuple[str, ...] = WORDS  # the words that may be used

    @property
    def is_exact(self) -> bool:
        """Whether a prompt has exactly the tokens that were asked for."""
        return self.within == 0

    @property
    def words(self) -> str:
        """The exactness in words."""
        if self.within is None:
            return "estimated"
        return "exact" if self.within == 0 else f"within {self.within}"

    def words_for(self, tokens: int) -> int:
        """How many words a prompt of `tokens` has."""
        return max(1, round((tokens - self.overhead) / self.tokens_per_word))

    def meant(self, tokens: int) -> int:
        """The tokens that the server will count for a prompt that was asked to have `tokens`."""
        return self.overhead + round(self.words_for(tokens) * self.tokens_per_word)


UNASKED = Calibration()
