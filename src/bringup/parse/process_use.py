"""What a process has used, and how its container is set up, as the question for the process tells it.

Source: proc(5), stat(1), docker-inspect(1).
"""

import re

from bringup.parse.proc import whole_number
from bringup.values.host import ContainerSettings


def read_room(text: str | None) -> tuple[int | None, int | None]:
    """Bytes in all and available, of "BLOCK BLOCKS AVAILABLE" of a file system.

    >>> read_room("4096 16384 16000"), read_room("4096 x")
    ((67108864, 65536000), (None, None))
    """
    match = re.fullmatch(r"([0-9]{1,9}) ([0-9]{1,15}) ([0-9]{1,15})", text or "")
    if match is None:
        return None, None
    block, blocks, available = (int(part) for part in match.groups())
    return block * blocks, block * available


def read_seconds(ticks: str | None, per_second: int | None) -> float | None:
    """Seconds of processor time.

    >>> read_seconds("250", 100), read_seconds("250", None)
    (2.5, None)
    """
    count = whole_number(ticks)
    return count / per_second if count is not None and count >= 0 and per_second else None


def read_container(text: str | None) -> ContainerSettings | None:
    """Settings of "TOOL KEY=VALUE ..".

    >>> read_container("docker restart=no restarts=0 rm=false ipc=private name=/vllm").restart_policy
    'no'
    """
    tool, _, rest = (text or "").partition(" ")
    pairs = dict(part.split("=", 1) for part in rest.split(" ") if "=" in part)
    if not pairs:
        return None
    # An empty policy is how older versions write "no".
    policy = pairs.get("restart")
    return ContainerSettings(
        tool=tool,
        name=pairs.get("name", "").lstrip("/") or None,
        restart_policy=None if policy is None else policy or "no",
        restarts=whole_number(pairs.get("restarts")),
        is_removed_at_end={"true": True, "false": False}.get(pairs.get("rm", "")),
        ipc_mode=pairs.get("ipc") or None,
    )
