"""What was asked of a rung, in words; rungs of one load have the same words."""

from collections.abc import Sequence

from bringup.values.bench import Rung
from bringup.values.finding import Evidence


def load_words(rung: Rung) -> str:
    """The load of `rung`.

    >>> load_words(Rung(concurrency=1)), load_words(Rung(rate=2.5))
    ('1 stream', '2.5 requests/s')
    """
    if rung.concurrency is not None:
        return f"{rung.concurrency} {'stream' if rung.concurrency == 1 else 'streams'}"
    return f"{rung.rate:g} requests/s" if rung.rate is not None else "the load of the trace"


def loads_words(rungs: Sequence[Rung]) -> str:
    """The loads of several rungs in one phrase.

    >>> loads_words([Rung(concurrency=1), Rung(concurrency=2)])
    '1 stream and 2 streams'
    """
    words = list(dict.fromkeys(map(load_words, rungs)))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def told(rung: Rung, text: str, *, source: str = "records") -> Evidence:
    """Evidence from one rung: its load and `text`."""
    return Evidence(source=source, text=f"{load_words(rung)}: {text}")
