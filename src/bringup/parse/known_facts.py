"""Questions of one word that every chat model answers, and how their answers are told.

The wordings ask for one word: a bare "What is the capital of France?" sends a 135M model astray although
nothing is broken.

Seen in: SmolLM2-135M-Instruct Q4_1 at temperature 0, which answers all of them so.
"""

from dataclasses import dataclass

from bringup.parse.short_answer import says_word


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One question and the words of which one must be said."""

    key: str
    question: str
    words: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        """Whether `text` says it."""
        return any(says_word(text, word) for word in self.words)


CAPITAL = Fact(
    key="capital", question="What is the capital of France? Answer with one word.", words=("Paris",)
)
CAPITAL_NAMED = Fact(key="capital_named", question="Name the capital city of France.", words=("Paris",))
JAPAN = Fact(key="japan", question="What is the capital of Japan? Answer with one word.", words=("Tokyo",))
SKY = Fact(key="sky", question="What color is the sky on a clear day? Answer with one word.", words=("blue",))
SUM = Fact(key="sum", question="What is 2 + 2? Answer with the number only.", words=("4", "four"))
OPPOSITE = Fact(
    key="opposite", question="What is the opposite of hot? Answer with one word.", words=("cold",)
)
WEEK = Fact(
    key="week", question="How many days are in a week? Answer with the number only.", words=("7", "seven")
)
