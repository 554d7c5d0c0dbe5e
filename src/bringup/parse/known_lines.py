"""Lines that decide nothing: wrappers around a cause, and what healthy starts print as well."""

import re
from dataclasses import dataclass

from bringup.parse.json_value import Json, at


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLines:
    """What is known of lines before a rule looks at them."""

    wrapper: re.Pattern[str]
    healthy: re.Pattern[str]
    mild: re.Pattern[str]
    followers: frozenset[str]  # kinds that come of another one where both are found

    def is_wrapper(self, text: str) -> bool:
        """Whether it only says that something else went wrong."""
        return self.wrapper.search(text) is not None

    def is_healthy(self, text: str) -> bool:
        """Whether starts that succeed print it too."""
        return self.healthy.search(text) is not None

    def is_mild(self, text: str) -> bool:
        """Whether it says itself that the engine goes on, in another way."""
        return self.mild.search(text) is not None


def read_known_lines(value: Json) -> KnownLines:
    """The lists of the data file."""
    return KnownLines(
        wrapper=_any(_texts(at(value, "wrappers"))),
        healthy=_any(_texts(at(value, "healthy"))),
        mild=_any(_texts(at(value, "mild"))),
        followers=frozenset(_texts(at(value, "followers"))),
    )


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")
