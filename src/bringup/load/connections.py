"""Opens connections for the load: the address is looked up once, every failure has its kind."""

import asyncio
import errno
import os
import socket
import ssl
import time
from typing import cast

from bringup.load.wire import Owner, Stream
from bringup.transport.http_stream import Target, tls_context
from bringup.values.bench import Failed

_OF_ERRNO = {
    errno.ECONNREFUSED: Failed.REFUSED,
    errno.ECONNRESET: Failed.RESET,
    errno.EPIPE: Failed.RESET,
    errno.ECONNABORTED: Failed.RESET,
    errno.EMFILE: Failed.DESCRIPTORS,
    errno.ENFILE: Failed.DESCRIPTORS,
    errno.EADDRNOTAVAIL: Failed.PORTS,
    errno.ETIMEDOUT: Failed.TIME_LIMIT,
}


def failure_of(error: BaseException) -> tuple[Failed, str]:
    """The kind of a connection's failure, and its words."""
    if isinstance(error, ssl.SSLError):
        return Failed.TLS, str(error)
    if isinstance(error, TimeoutError):
        return Failed.TIME_LIMIT, "no connection within the limit"
    if isinstance(error, OSError) and error.errno in _OF_ERRNO:
        return _OF_ERRNO[error.errno], os.strerror(error.errno)
    return Failed.UNREACHABLE, str(error) or type(error).__name__


class Opener:
    """Opens connections to one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tls = tls_context(target) if target.scheme == "https" else None
        self._addresses: list[tuple[socket.AddressFamily, tuple[object, ...]]] = []

    async def open(self, owner: Owner) -> tuple[Stream, int]:
        """A connection and the nanoseconds it took.

        Raises:
            OSError: it could not be opened (`failure_of` says what kind that is).
        """
        begun = time.monotonic_ns()
        async with asyncio.timeout(self._target.connect_limit_s):
            stream = await self._open(owner)
        return stream, time.monotonic_ns() - begun

    async def _open(self, owner: Owner) -> Stream:
        loop = asyncio.get_running_loop()
        if not self._addresses:
            found = await loop.getaddrinfo(self._target.host, self._target.port, type=socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, _, _, _, address in found]
        failure: OSError | None = None
        for place, (family, address) in enumerate(self._addresses):
            plain = socket.socket(family, socket.SOCK_STREAM)
            try:
                plain.settimeout(0.0)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(plain, address)
                stream = await self._upon(plain, owner)
            except BaseException as error:
                plain.close()
                if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                    raise
                failure = error
                continue
            if place:  # the ones before do not answer: not to be tried again for every connection
                self._addresses = self._addresses[place:] + self._addresses[:place]
            return stream
        raise failure or OSError(errno.EADDRNOTAVAIL, "the name has no address")

    async def _upon(self, plain: socket.socket, owner: Owner) -> Stream:
        loop = asyncio.get_running_loop()
        tls = self._tls
        _, protocol = await loop.create_connection(
            lambda: Stream(owner, None if tls else plain),
            sock=plain,
            ssl=tls,
            server_hostname=self._target.host if tls else None,
        )
        return cast("Stream", protocol)
