"""Typed access to a config.json whose families use different names for the same thing."""

from collections.abc import Mapping
from dataclasses import dataclass

from bringup.parse.json_value import Json, at


@dataclass(frozen=True, slots=True)
class Fields:
    """The language part of a config, and what its family assumes where the config is silent.

    Every accessor takes several names and returns the first that is given and not null; then the first
    that the family assumes; then None. 0 is a value here: callers decide what it means.
    """

    given: Mapping[str, Json]
    assumed: Mapping[str, Json]

    def value(self, *names: str) -> Json:
        """Whatever stands under the first name that has something."""
        for source in (self.given, self.assumed):
            for name in names:
                if (found := source.get(name)) is not None:
                    return found
        return None

    def number(self, *names: str) -> int | None:
        """A whole number; of a list (one per layer) the largest."""
        for source in (self.given, self.assumed):
            for name in names:
                if (found := _whole(source.get(name))) is not None:
                    return found
        return None

    def count(self, *names: str) -> int:
        """A whole number, 0 where there is none: for parts that a model may lack."""
        return self.number(*names) or 0

    def share(self, *names: str) -> float | None:
        """A number that need not be whole."""
        found = self.value(*names)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def flag(self, *names: str) -> bool | None:
        """A boolean."""
        for source in (self.given, self.assumed):
            for name in names:
                if isinstance(found := source.get(name), bool):
                    return found
        return None

    def text(self, *names: str) -> str | None:
        """A string."""
        found = self.value(*names)
        return found if isinstance(found, str) else None

    def items(self, *names: str) -> list[Json]:
        """A list; empty where there is none."""
        found = self.value(*names)
        return found if isinstance(found, list) else []

    def part(self, *names: str) -> Mapping[str, Json]:
        """A nested object; empty where there is none."""
        found = self.value(*names)
        return found if isinstance(found, dict) else {}

    def per_layer(self, name: str, index: int) -> int | None:
        """The number for one layer, of a list with one entry per layer or of a plain number."""
        found = self.value(name)
        return _whole(at(found, index)) if isinstance(found, list) else _whole(found)

    def names(self, name: str) -> tuple[str, ...]:
        """A list of words."""
        return tuple(word for word in self.items(name) if isinstance(word, str))

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(number for item in self.items(name) if (number := _whole(item)) is not None)


def _whole(value: Json) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        numbers = [number for item in value if (number := _whole(item)) is not None]
        return max(numbers) if numbers else None
    return value if isinstance(value, int) else None
