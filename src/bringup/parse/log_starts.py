"""The starts that stand one after the other in one file: restarts, crash loops, appended runs."""

from collections.abc import Callable, Sequence

from bringup.parse.log_line import LogLine
from bringup.values.start_log import StartLog


def split_starts(
    lines: Sequence[LogLine], begins: Callable[[LogLine], str | None]
) -> tuple[tuple[LogLine, ...], ...]:
    r"""The lines of each start. A mark that the same process wrote before begins a new one.

    Marks are what an engine writes once per process; what stands before the first mark belongs to it.

    >>> from bringup.parse.log_line import read_lines
    >>> lines = tuple(read_lines("args\nengine\nready\nargs\nengine"))
    >>> [len(one) for one in split_starts(lines, lambda line: {"args": "a", "engine": "e"}.get(line.text))]
    [3, 2]
    """
    firsts: list[int] = []
    seen: set[tuple[str, str, str]] = set()
    for place, line in enumerate(lines):
        mark = begins(line)
        if mark is None:
            continue
        key = (mark, line.rank or "", line.process or "")
        if key in seen or not firsts:
            firsts.append(place)
            seen.clear()
        seen.add(key)
    if not firsts:
        return (tuple(lines),) if lines else ()
    edges = [0, *firsts[1:], len(lines)]
    return tuple(tuple(lines[edges[index] : edges[index + 1]]) for index in range(len(edges) - 1))


def chosen_start(starts: Sequence[StartLog]) -> int:
    """Index of the start that is meant where none is named: the last that serves, else the fullest.

    Of those equally full the later one.
    """
    ready = [index for index, start in enumerate(starts) if start.is_ready]
    if ready:
        return ready[-1]
    return max(range(len(starts)), key=lambda index: (len(starts[index].cites), index))
