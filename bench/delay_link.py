"""A ProxyCommand for ssh: passes bytes between standard input and output and HOST PORT, each way late.

usage: delay_link.py HOST PORT SECONDS (one way)
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable


async def pass_on(
    read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]], delay_s: float
) -> None:
    """Copy until the end, every piece `delay_s` after it came; pieces do not wait for one another."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await write(data)
            if not data:
                return

    delivery = asyncio.create_task(deliver())
    while True:
        data = await read()
        pieces.put_nowait((loop.time() + delay_s, data))
        if not data:
            break
    await delivery


async def main(host: str, port: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(host, port)
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin.buffer)

    async def to_host(data: bytes) -> None:
        if data:
            writer.write(data)
            await writer.drain()
        elif writer.can_write_eof():
            writer.write_eof()

    async def to_client(data: bytes) -> None:
        await asyncio.to_thread(_write_all, data)

    there = asyncio.create_task(pass_on(lambda: stdin.read(65_536), to_host, delay_s))
    back = asyncio.create_task(pass_on(lambda: reader.read(65_536), to_client, delay_s))
    await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(f"delay_link: {error}")
    finally:
        os._exit(0)  # a read of standard input may still be pending
