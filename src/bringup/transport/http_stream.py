"""HTTP/1.1 client that keeps the time of every read: the clock is looked at before anything else.

Bytes and times are stored as they arrive and parsed afterwards. Answers are bounded in bytes and in time, and
whatever a server does ends in an `Answer`, never in an exception.
"""

import asyncio
import base64
import errno
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

import httptools

from bringup.errors import UsageError
from bringup.parse.redact import redact
from bringup.values.exchange import Answer, Ask, Problem

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCHEME_ALONE = re.compile(r"https?:(?!//)", re.IGNORECASE)  # a slash was forgotten
_WANTED = (
    "wanted http(s)://HOST:PORT[/BASE], with or without /v1, or :PORT; IPv6 in brackets: http://[::1]:8000"
)
_DEFAULT_PORT = {"http": 80, "https": 443}
_KEPT_OF_TOO_LARGE = 65_536  # bytes: the beginning shows what it is, and a run has some hundred answers
_MOST_ARRIVALS = 65_536  # per answer: a server that sends single bytes must not fill the memory with times
_MAX_OVERHEAD = 262_144  # bytes of headers, chunk sizes and trailers; servers allow 8 to 64 kB of headers
_FIRST_FINAL_STATUS = 200
_STALE_S = 0.25  # a kept connection that breaks within this was closed before our request arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the endpoint is and how it is reached."""

    scheme: str
    host: str
    port: int
    base: str = ""  # path prefix without a trailing slash and without /v1
    api_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    verify_tls: bool = True
    connect_limit_s: float = 10.0

    @property
    def authority(self) -> str:
        """`host:port` as it stands in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The normalised base URL."""
        return f"{self.scheme}://{self.authority}{self.base}"


def target_of(
    url: str, *, api_key: str | None = None, ca_file: str | None = None, verify_tls: bool = True
) -> Target:
    """The target that `url` names: with or without scheme, `/v1` and base path, IPv6 in brackets.

    Raises:
        UsageError: not a URL of an HTTP endpoint.
    """
    text, shown = url.strip(), redact(url)
    if text.isdecimal() or _SCHEME_ALONE.match(text):
        raise UsageError(f"`{shown}` is not an HTTP endpoint", hint=_WANTED)
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"`{shown}` is not a URL: {error}", hint=_WANTED) from None
    port = _port_in(parts, shown)
    if parts.scheme not in _DEFAULT_PORT or not parts.hostname or not _is_plain(text):
        raise UsageError(f"`{shown}` is not an HTTP endpoint", hint=_WANTED)
    key = (api_key or _key_in(parts) or "").strip() or None
    if key is not None and not _is_plain(key):
        raise UsageError(
            "the API key holds blanks, line ends or other characters that no HTTP header takes",
            hint="was a whole file or line given in place of the key?",
        )
    base = parts.path.rstrip("/")
    for suffix in ("/chat/completions", "/completions", "/models"):
        base = base.removesuffix(suffix)
    return Target(
        scheme=parts.scheme,
        host=parts.hostname.replace("%25", "%"),  # the zone of an IPv6 address
        port=port or _DEFAULT_PORT[parts.scheme],
        base=base.removesuffix("/v1"),
        api_key=key,
        ca_file=ca_file,
        verify_tls=verify_tls,
    )


def _port_in(parts: SplitResult, shown: str) -> int | None:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise UsageError(f"the port of `{shown}` is not a number from 1 to 65535", hint=_WANTED)
    return port


def _key_in(parts: SplitResult) -> str | None:
    """The key of `http://:KEY@host`, as some write it."""
    return unquote(parts.password) if parts.password else None


def _is_plain(text: str) -> bool:
    """Whether the text can stand in one line of a request."""
    return text.isprintable() and " " not in text


class _Connection(asyncio.Protocol):
    """One connection; carries one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.exchange: _Exchange | None = None
        self.lost: BaseException | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self.exchange is None:
            self.abort()  # nobody asked: not to be trusted with the next request
        else:
            self.exchange.received(now, data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost, self.lost = True, exc
        if self.exchange is not None:
            self.exchange.connection_lost(exc)

    def abort(self) -> None:
        self.is_lost = True
        if self.transport is not None:
            self.transport.abort()


class _Exchange:
    """One request on one connection: callbacks of the parser, bytes, times."""

    def __init__(self, ask: Ask, connection: _Connection) -> None:
        self.ask = ask
        self.connection = connection
        self.parser = httptools.HttpResponseParser(self)
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.chunks: list[bytes] = []
        self.size = 0
        self.raw_size = 0
        self.head_size = 0
        self.events = 0
        self.arrivals: list[tuple[int, int]] = []
        self.sent = 0
        self.first_byte: int | None = None
        self.ended: int | None = None
        self.problem: Problem | None = None
        self.detail = ""
        self.keep_alive = False
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.headers_done: asyncio.Future[None] = loop.create_future()
        self._tail = b"\n"  # the end of the last line but its last byte: where "\\ndata:" may have begun

    @property
    def is_stale(self) -> bool:
        """Whether the server had closed a kept connection before the request arrived: that says nothing."""
        if self.problem is not Problem.RESET or self.first_byte is not None or self.ended is None:
            return False
        return self.ended - self.sent < _STALE_S * 1e9

    # what the connection calls
    def received(self, now: int, data: bytes) -> None:
        if self.done.done():
            self.keep_alive = False  # more than one answer to one request
            return
        if self.first_byte is None:
            self.first_byte = now
        before = self.size
        self.raw_size += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(Problem.MALFORMED, str(error) or type(error).__name__)
            return
        if self.size > before:
            self.arrivals.append((now, self.size))
            if len(self.arrivals) > _MOST_ARRIVALS:  # the rest tells it a little later
                del self.arrivals[:-1:2]
        if self.done.done():
            self.ended = now
        elif self.raw_size - self.size > _MAX_OVERHEAD + 8 * self.size:  # a byte per chunk costs five more
            self.fail(Problem.MALFORMED, f"headers without end: {self.raw_size} bytes and no more body")

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.done.done():
            return
        if exc is None and self.status is not None and not self._has_frame():
            self.finish()  # body delimited by the end of the connection
        elif exc is not None:
            self.fail(Problem.RESET, str(exc) or type(exc).__name__)
        elif self.status is None:
            self.fail(Problem.RESET, "the connection was closed before an answer came")
        else:
            self.fail(Problem.TRUNCATED, "the connection was closed before the body was whole")

    def _has_frame(self) -> bool:
        names = {name for name, _ in self.headers}
        return "content-length" in names or "transfer-encoding" in names

    # what the parser calls
    def on_header(self, name: bytes, value: bytes) -> None:
        if self.done.done():
            return
        self.head_size += len(name) + len(value)
        if self.head_size <= _KEPT_OF_TOO_LARGE:
            self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if self.done.done() or status < _FIRST_FINAL_STATUS:
            return
        self.status = status
        self.keep_alive = self.parser.should_keep_alive()
        if not self.headers_done.done():
            self.headers_done.set_result(None)
        if self.ask.method == "HEAD":
            self.finish()  # the parser would wait for the body that Content-Length speaks of

    def on_body(self, body: bytes) -> None:
        if self.done.done():
            return
        room = self.ask.max_bytes - self.size
        if len(body) > room:
            self.fail(Problem.TOO_LARGE, f"more than {self.ask.max_bytes} bytes")
            self.chunks = [b"".join((*self.chunks, body))[:_KEPT_OF_TOO_LARGE]]
            self.size += max(0, room)
            return
        self.chunks.append(body)
        self.size += len(body)
        if self.ask.abort_after_events is not None:
            joined = self._tail + body
            self.events += joined.count(b"\ndata:")
            self._tail = joined[-5:]
            if self.events >= self.ask.abort_after_events:
                self.fail(Problem.ABORTED, f"hung up after {self.events} events, as asked")

    def on_message_begin(self) -> None:
        if self.done.done():
            self.keep_alive = False  # more than one answer to one request

    def on_message_complete(self) -> None:
        if self.status is None:
            self.headers.clear()  # of an interim answer (1xx)
            self.head_size = 0
        else:
            self.finish()

    def finish(self) -> None:
        if not self.done.done():
            self.ended = time.monotonic_ns()
            self.done.set_result(None)

    def fail(self, problem: Problem, detail: str) -> None:
        if not self.done.done():
            self.problem, self.detail, self.keep_alive = problem, detail, False
            self.ended = time.monotonic_ns()
            self.done.set_result(None)
            self.connection.abort()


class _ProxyRefused(Exception):  # noqa: N818 - a word for a state, never leaves this module
    """The proxy would not connect us."""


class HttpEndpoint:
    """Sends asks to one target; reuses idle connections; proxies from the environment apply."""

    def __init__(self, target: Target, *, environment_proxies: bool = True) -> None:
        self.target = target
        self._idle: list[_Connection] = []
        self._tls = tls_context(target) if target.scheme == "https" else None
        self._proxy = _proxy_for(target) if environment_proxies else None

    async def send(self, ask: Ask) -> Answer:
        """The answer to `ask`: whole, or with its problem. Never raises for what the server does."""
        sent_at = time.time()
        begun = time.monotonic_ns()
        deadline = begun + round(ask.time_limit_s * 1e9)
        while True:
            try:
                connection, connect_ns = await self._connection(deadline)
            except TimeoutError:
                detail = f"no connection within {min(ask.time_limit_s, self.target.connect_limit_s):g} s"
                return _no_answer(ask, sent_at, begun, Problem.TIME_LIMIT, detail)
            except ConnectionRefusedError as error:
                return _no_answer(ask, sent_at, begun, Problem.REFUSED, _words(error))
            except (OSError, ValueError, _ProxyRefused) as error:
                return _no_answer(ask, sent_at, begun, Problem.UNREACHABLE, _words(error))
            exchange = await self._exchange(ask, connection, deadline)
            if connect_ns is not None or not exchange.is_stale:
                return _answer(exchange, sent_at, begun, connect_ns)

    async def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # lets the transports run their closing callbacks

    async def _exchange(self, ask: Ask, connection: _Connection, deadline: int) -> _Exchange:
        exchange = _Exchange(ask, connection)
        connection.exchange = exchange
        exchange.sent = time.monotonic_ns()
        try:
            if connection.transport is None or connection.is_lost:
                exchange.fail(Problem.RESET, "the kept connection was closed by the server")
            else:
                connection.transport.write(self._request_bytes(ask))
            remaining = max(0.0, (deadline - time.monotonic_ns()) / 1e9)
            await asyncio.wait({exchange.done}, timeout=remaining)
            exchange.fail(Problem.TIME_LIMIT, f"not finished within {ask.time_limit_s:g} s")
        finally:
            connection.exchange = None
            if exchange.keep_alive and exchange.done.done() and not connection.is_lost:
                self._idle.append(connection)
            else:
                connection.abort()
        return exchange

    async def _connection(self, deadline: int) -> tuple[_Connection, int | None]:
        """A live connection and the nanoseconds it took to open; None for one that was kept."""
        while self._idle:
            kept = self._idle.pop()
            if not kept.is_lost:
                return kept, None
        begun = time.monotonic_ns()
        limit = min(self.target.connect_limit_s, max(0.0, (deadline - begun) / 1e9))
        async with asyncio.timeout(limit):
            connection = await self._open()
        return connection, time.monotonic_ns() - begun

    async def _open(self) -> _Connection:
        target = self.target
        if self._proxy is None:
            return await _connected(target.host, target.port, self._tls)
        try:
            connection = await _connected(self._proxy.host, self._proxy.port, None)
        except TimeoutError:
            raise
        except OSError as error:
            raise _ProxyRefused(f"proxy {self._proxy.authority}: {_words(error)}") from None
        if self._tls is None:
            return connection
        try:
            return await self._tunnel(connection, self._proxy, self._tls)
        except BaseException:
            connection.abort()
            raise

    async def _tunnel(self, connection: _Connection, proxy: Target, tls: ssl.SSLContext) -> _Connection:
        """A TLS connection to the target through the proxy's CONNECT."""
        ask = Ask(key="connect", method="CONNECT", path=self.target.authority, max_bytes=65_536)
        exchange = _Exchange(ask, connection)
        connection.exchange = exchange
        lines = [f"CONNECT {self.target.authority} HTTP/1.1", f"Host: {self.target.authority}"]
        if proxy.api_key is not None:
            lines.append(f"Proxy-Authorization: Basic {proxy.api_key}")
        if connection.transport is None:
            raise _ProxyRefused(f"proxy {proxy.authority} closed the connection")
        # httptools takes a 2xx to CONNECT for an answer without end: only its headers count
        connection.transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await asyncio.wait({exchange.headers_done, exchange.done}, return_when=asyncio.FIRST_COMPLETED)
        if exchange.status is None or exchange.status // 100 != 2:
            said = exchange.status or exchange.detail
            raise _ProxyRefused(f"proxy {proxy.authority} answered CONNECT with {said}")
        connection.exchange = None
        upgraded = _Connection()
        transport = await asyncio.get_running_loop().start_tls(
            connection.transport, upgraded, tls, server_hostname=self.target.host
        )
        if transport is None:
            raise _ProxyRefused("TLS through the proxy failed")
        upgraded.connection_made(transport)
        return upgraded

    def _request_bytes(self, ask: Ask) -> bytes:
        target = self.target
        path = f"{target.base}{ask.path}"
        is_usual = target.port == _DEFAULT_PORT[target.scheme]
        host = target.authority.rpartition(":")[0] if is_usual else target.authority
        head = [f"{ask.method} {path} HTTP/1.1", f"Host: {host}"]
        if self._proxy is not None and target.scheme == "http":
            head[0] = f"{ask.method} {target.scheme}://{target.authority}{path} HTTP/1.1"
            if self._proxy.api_key is not None:
                head.append(f"Proxy-Authorization: Basic {self._proxy.api_key}")
        body = ask.body.encode("utf-8", "surrogateescape")
        head += ["Accept: application/json, text/event-stream, */*", "User-Agent: bringup"]
        given = {name.lower() for name, _ in ask.headers}
        if body and "content-type" not in given:
            head.append("Content-Type: application/json")
        if body or ask.method == "POST":
            head.append(f"Content-Length: {len(body)}")
        if ask.authorize and target.api_key and "authorization" not in given:
            head.append(f"Authorization: Bearer {target.api_key}")
        head += [f"{name}: {value}" for name, value in ask.headers]
        return ("\r\n".join(head) + "\r\n\r\n").encode("utf-8") + body


async def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> _Connection:
    """An open connection, over whichever of the host's addresses takes it."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port, ssl=tls)
    except OSError as error:
        # several addresses, several errors in one text: refused by all is refused
        refused = f"[Errno {errno.ECONNREFUSED}]"
        if (
            error.errno is None
            and refused in str(error)
            and str(error).count("[Errno") == str(error).count(refused)
        ):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused") from None
        raise
    return connection


def tls_context(target: Target) -> ssl.SSLContext:
    """How the target's certificate is judged.

    Raises:
        UsageError: the CA file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:  # also what OpenSSL says of a file without certificates
        raise UsageError(
            f"cannot use the CA file `{target.ca_file}`: {_words(error)}",
            hint="wanted certificates in PEM form",
        ) from None
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy_for(target: Target) -> Target | None:
    """The proxy of the environment for this target; loopback is never sent through one."""
    if target.host in _LOOPBACK or target.host.startswith("127."):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - costs start-up time

    if proxy_bypass(target.host):
        return None
    proxies: Mapping[str, str] = getproxies()
    url = proxies.get(target.scheme) or proxies.get("all")
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or _DEFAULT_PORT["http"]
    except ValueError as error:
        raise UsageError(f"the proxy `{redact(url)}` of the environment is not a URL: {error}") from None
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(
            f"the proxy `{redact(url)}` of the environment is not an HTTP proxy",
            hint=f"set NO_PROXY={target.host} to reach the endpoint directly, or name a proxy http://HOST:PORT",
        )
    credentials = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode("ascii")
    return Target(scheme="http", host=parts.hostname, port=port, api_key=credentials)


def _answer(exchange: _Exchange, sent_at: float, begun: int, connect_ns: int | None) -> Answer:
    return Answer(
        key=exchange.ask.key,
        status=exchange.status,
        headers=tuple(exchange.headers),
        body=b"".join(exchange.chunks).decode("utf-8", "replace"),
        problem=exchange.problem,
        detail=exchange.detail,
        sent_at=sent_at,
        connect_s=None if connect_ns is None else connect_ns / 1e9,
        first_byte_s=None if exchange.first_byte is None else (exchange.first_byte - begun) / 1e9,
        total_s=((exchange.ended or time.monotonic_ns()) - begun) / 1e9,
        arrivals=tuple(((when - begun) / 1e9, size) for when, size in exchange.arrivals),
    )


def _no_answer(ask: Ask, sent_at: float, begun: int, problem: Problem, detail: str) -> Answer:
    total_s = (time.monotonic_ns() - begun) / 1e9
    return Answer(key=ask.key, problem=problem, detail=detail, sent_at=sent_at, total_s=total_s)


def _words(error: Exception) -> str:
    """The system's words for an error of its own, else the lower library's."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
