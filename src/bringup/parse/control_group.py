"""Lines "LEVEL FILE VALUE" of the control groups of a process to what they allow and what is used of it.

Level 0 is the process's own group, each next one stands above it and limits it too.

Source: cgroups(7), `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst` and `sched-bwc.rst`.
"""

from collections.abc import Iterable, Mapping

from bringup.parse.proc import whole_number
from bringup.values.host import ControlGroupUse

_NO_LIMIT = 2**62  # version 1 prints the largest number of pages for "none"


def read_control_group(lines: Iterable[str]) -> ControlGroupUse | None:
    """The tightest limits with their use; None when nothing was told.

    >>> use = read_control_group(("0 memory.max max", "1 memory.max 1000", "1 memory.current 900",
    ...                           "1 inactive_file 200", "1 active_file 100",
    ...                           "0 cpu.max 400000 100000", "0 oom_kill 2"))
    >>> use.memory_limit, use.memory_used, use.processor_limit, use.oom_kills
    (1000, 600, 4.0, 2)
    """
    levels = _levels(lines)
    if not levels:
        return None
    memory = _tightest(_memory(level) for level in levels)
    tasks = _tightest(_tasks(level) for level in levels)
    quotas = [(quota, level) for level in levels if (quota := _quota(level)) is not None]
    # The quota that is used up first is the smallest one.
    quota, counted = min(quotas, key=_quota_of) if quotas else (None, levels[0])
    return ControlGroupUse(
        memory_limit=memory[0],
        memory_used=memory[1],
        oom_kills=whole_number(levels[0].get("oom_kill")),
        processor_limit=quota,
        periods=whole_number(counted.get("nr_periods")),
        throttled_periods=whole_number(counted.get("nr_throttled")),
        task_limit=tasks[0],
        tasks=tasks[1],
    )


def _levels(lines: Iterable[str]) -> list[Mapping[str, str]]:
    levels: dict[int, dict[str, str]] = {}
    for line in lines:
        number, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        level = whole_number(number)
        if level is not None and name and value:
            levels.setdefault(level, {})[name] = value.strip()
    return [level for _, level in sorted(levels.items())]


def _tightest(pairs: Iterable[tuple[int, int | None] | None]) -> tuple[int | None, int | None]:
    """The smallest limit with its use; no limit and no use when there is none."""
    return min(filter(None, pairs), key=_limit_of, default=(None, None))


def _limit_of(pair: tuple[int, int | None]) -> int:
    return pair[0]


def _quota_of(pair: tuple[float, Mapping[str, str]]) -> float:
    return pair[0]


def _memory(level: Mapping[str, str]) -> tuple[int, int | None] | None:
    limit = _limit(level.get("memory.max") or level.get("memory.limit_in_bytes"))
    if limit is None:
        return None
    current = whole_number(level.get("memory.current") or level.get("memory.usage_in_bytes"))
    caches = [
        whole_number(level.get(f"total_{kind}_file") or level.get(f"{kind}_file"))
        for kind in ("active", "inactive")
    ]
    # Without the share that can be dropped the figure is mostly page cache, and says nothing.
    if current is None or None in caches:
        return limit, None
    return limit, max(current - sum(cache or 0 for cache in caches), 0)


def _tasks(level: Mapping[str, str]) -> tuple[int, int | None] | None:
    limit = _limit(level.get("pids.max"))
    return None if limit is None else (limit, whole_number(level.get("pids.current")))


def _limit(text: str | None) -> int | None:
    limit = whole_number(text)  # "max" is no number
    return limit if limit is not None and 0 < limit < _NO_LIMIT else None


def _quota(level: Mapping[str, str]) -> float | None:
    quota, _, period = level.get("cpu.max", "").partition(" ")
    if not period:
        quota, period = level.get("cpu.cfs_quota_us", ""), level.get("cpu.cfs_period_us", "")
    share, whole = whole_number(quota), whole_number(period)
    return share / whole if share is not None and whole and share > 0 else None
