import asyncio
import contextlib
import shutil
import socket
import ssl
import struct
import subprocess
from dataclasses import dataclass, field

import pytest

from bringup.errors import UsageError
from bringup.transport.http_stream import HttpEndpoint, target_of
from bringup.values.exchange import Ask, Problem

from .conftest import free_port

GET = Ask(key="a", path="/x", method="GET", time_limit_s=20.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: 1\r\n\r\n"
)
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch):
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@dataclass
class Server:
    """Sends its replies in turn, one per request, and keeps what it was asked."""

    replies: list
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list = field(default_factory=list)

    async def serve(self, reader, writer):
        self.connections += 1
        self.tasks.append((asyncio.current_task(), writer))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.split(b"\r\n")
                        if line.startswith(b"Content-Length")
                    ),
                    0,
                )
                self.requests.append(head + await reader.readexactly(size))
                self.asked.set()
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                if callable(reply):
                    await reply(reader, writer)
                    break
                writer.write(reply)
                await writer.drain()
                if b"Connection: close" in reply:
                    break
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def running(server, host="127.0.0.1", tls=None):
    """The server, listening; at the end nothing of it is left."""
    listening = await asyncio.start_server(server.serve, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task, writer in server.tasks:
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*(task for task, _ in server.tasks), return_exceptions=True)
        await asyncio.sleep(0.01)  # closing callbacks


def exchange(replies, *asks, url="http://127.0.0.1:{port}", host="127.0.0.1", tls=None, **options):
    """The answers to `asks`, sent one after the other to a server that gives `replies`."""

    async def run():
        async with running(Server(replies=list(replies)), host, tls) as server:
            endpoint = HttpEndpoint(target_of(url.format(port=server.port), **options))
            try:
                answers = [await endpoint.send(ask) for ask in asks]
            finally:
                await endpoint.close()
        return server, answers

    return asyncio.run(run())


def one(reply, ask=GET, **options):
    _, (answer,) = exchange([reply], ask, **options)
    return answer


def test_a_plain_answer_with_all_its_times():
    answer = one(OK)
    assert (answer.key, answer.status, answer.body, answer.problem) == ("a", 200, "hello", None)
    assert answer.headers == (("content-length", "5"),)
    assert 0 <= answer.connect_s <= answer.first_byte_s <= answer.total_s
    assert answer.arrivals[-1][1] == 5


def test_a_chunked_answer():
    answer = one(CHUNKED)
    assert (answer.status, answer.body, answer.problem) == (200, "hello world", None)


def test_an_answer_that_ends_with_the_connection():
    async def reply(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nall of it")

    answer = one(reply)
    assert (answer.body, answer.problem) == ("all of it", None)


def test_interim_answers_are_passed_over():
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer = one(interim + OK)
    assert (answer.status, answer.body, answer.headers) == (200, "hello", (("content-length", "5"),))


def test_an_interim_answer_and_nothing_after_it_is_no_answer():
    async def reply(_, writer):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    answer = one(reply)
    assert (answer.status, answer.problem) == (None, Problem.RESET)


@pytest.mark.parametrize(
    "head", [b"204 No Content\r\n\r\n", b"304 Not Modified\r\nContent-Length: 5\r\n\r\n"]
)
def test_answers_without_a_body(head):
    answer = one(b"HTTP/1.1 " + head)
    assert (answer.problem, answer.body) == (None, "")


def test_the_answer_to_head_has_no_body():
    answer = one(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", Ask(key="h", path="/", method="HEAD"))
    assert (answer.status, answer.problem) == (200, None)


def test_bytes_that_are_no_text_are_marked():
    assert one(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na\xffb").body == "a\ufffdb"


def test_an_error_status_is_an_answer():
    answer = one(b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}")
    assert (answer.status, answer.body, answer.problem) == (500, "{}", None)


def test_a_connection_is_used_again_and_says_so():
    server, answers = exchange([OK, CHUNKED, OK], GET, GET, GET)
    assert server.connections == 1
    assert [answer.connect_s is None for answer in answers] == [False, True, True]
    assert [answer.body for answer in answers] == ["hello", "hello world", "hello"]


def test_a_connection_that_the_server_closes_is_not_used_again():
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    server, answers = exchange([closing], GET, GET)
    assert server.connections == 2
    assert all(answer.problem is None for answer in answers)


@pytest.mark.parametrize(
    "junk", [b"HTTP/1.1 500 Second\r\nContent-Length: 1\r\n\r\nx", b"junk", b"\r\n\r\nfoo"]
)
def test_what_comes_after_an_answer_belongs_to_no_other(junk):
    server, answers = exchange([OK + junk, OK], GET, GET)
    assert [(answer.status, answer.body) for answer in answers] == [(200, "hello")] * 2
    assert server.connections == 2


async def reset(_, writer):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_a_kept_connection_that_died_meanwhile_is_replaced():
    server, (first, second) = exchange([OK, reset, OK], GET, GET)
    assert (first.body, second.body) == ("hello", "hello")
    assert second.connect_s is not None
    assert (server.connections, len(server.requests)) == (2, 3)


def test_a_server_that_always_breaks_is_told_and_not_asked_for_ever():
    server, (first, second) = exchange([OK, reset], GET, GET)
    assert (first.problem, second.problem) == (None, Problem.RESET)
    assert len(server.requests) == 3


def test_a_server_that_dies_of_a_request_does_not_get_it_twice():
    async def die_slowly(reader, writer):
        await asyncio.sleep(0.6)
        await reset(reader, writer)

    server, (_, second) = exchange([OK, die_slowly], GET, GET)
    assert second.problem is Problem.RESET
    assert len(server.requests) == 2


@pytest.mark.parametrize("whole", [OK, CHUNKED], ids=["length", "chunked"])
def test_an_answer_cut_at_any_byte_is_not_whole(whole):
    def cut_after(size):
        async def reply(_, writer):
            writer.write(whole[:size])

        return reply

    _, answers = exchange([cut_after(size) for size in range(len(whole))], *[GET] * len(whole))
    head = whole.index(b"\r\n\r\n") + 4
    for size, answer in enumerate(answers):
        expected = Problem.RESET if size < head else Problem.TRUNCATED
        assert answer.problem is expected, f"cut after {size} bytes"
        assert "hello world".startswith(answer.body)


@pytest.mark.parametrize("whole", [OK, CHUNKED], ids=["length", "chunked"])
def test_an_answer_in_single_bytes_is_the_same(whole):
    async def reply(_, writer):
        for at in range(len(whole)):
            writer.write(whole[at : at + 1])
            await asyncio.sleep(0)

    answer = one(reply)
    assert answer.body in ("hello", "hello world")
    assert answer.problem is None


def test_a_reset_in_mid_body():
    async def reply(_, writer):
        writer.write(OK[:-1])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    answer = one(reply)
    assert (answer.status, answer.problem, answer.body) == (200, Problem.RESET, "hell")


def test_too_large_a_body_is_cut_at_the_limit():
    async def endless(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

    answer = one(endless, Ask(key="a", path="/", method="GET", max_bytes=50_000))
    assert (answer.problem, set(answer.body)) == (Problem.TOO_LARGE, {"x"})
    exact = one(OK, Ask(key="a", path="/", method="GET", max_bytes=5))
    assert (exact.problem, exact.body) == (None, "hello")


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: yes and more of it\r\n" * 1000),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65_536),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 65_536),
    ],
    ids=["headers", "one header", "interim answers", "a chunk extension"],
)
def test_endless_framing_is_bounded(start, more):
    async def endless(_, writer):
        writer.write(start)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(more)
                await writer.drain()

    assert one(endless).problem in (Problem.TOO_LARGE, Problem.MALFORMED)


def test_a_slow_drip_ends_at_the_time_limit():
    async def drip(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)

    answer = one(drip, Ask(key="a", path="/", method="GET", time_limit_s=0.5))
    assert (answer.status, answer.problem) == (200, Problem.TIME_LIMIT)
    assert set(answer.body) == {"x"}
    assert len(answer.arrivals) > 1


def test_silence_ends_at_the_time_limit():
    async def silence(reader, _):
        await reader.read()

    answer = one(silence, Ask(key="a", path="/", method="GET", time_limit_s=0.3))
    assert (answer.status, answer.problem, answer.first_byte_s) == (None, Problem.TIME_LIMIT, None)


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"<html>hello</html>\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"\x00" * 20,
    ],
)
def test_what_is_not_http_is_malformed(reply):
    answer = one(reply)
    assert answer.problem is Problem.MALFORMED
    assert answer.detail


def events(*parts):
    async def reply(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)
            await asyncio.sleep(20)

    return reply


@pytest.mark.parametrize(
    "parts",
    [
        [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n", b"data: 4\n\n"],
        [b"data: 1\r\n\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n", b"data: 4\r\n\r\n"],
        [b"da", b"ta", b": 1\n", b"\nd", b"ata: 2\n\n", b"data", b": 3\n\n", b"data: 4\n\n"],
        [b": ping\n\n", b"event: x\ndata: 1\n\n", b"data: 2\n\n", b"data: 3\n\n", b"data: 4\n\n"],
        [bytes([byte]) for byte in b"data: 1\n\ndata: 2\n\ndata: 3\n\n"] + [b"data: 4\n\n"],
    ],
    ids=["frames", "together", "cut", "comments", "bytes"],
)
def test_hanging_up_after_so_many_events(parts):
    answer = one(events(*parts), Ask(key="a", path="/", abort_after_events=3))
    assert answer.problem is Problem.ABORTED
    assert "1" in answer.body
    assert "2" in answer.body
    assert "data: 4" not in answer.body


def test_too_few_events_are_waited_for():
    answer = one(
        events(b": data: no\n\n", b"data: 1\n\n"),
        Ask(key="a", path="/", abort_after_events=2, time_limit_s=0.4),
    )
    assert answer.problem is Problem.TIME_LIMIT


def test_nothing_listens():
    for host in ("127.0.0.1", "localhost"):

        async def run(host=host):
            return await HttpEndpoint(target_of(f"http://{host}:{free_port()}")).send(GET)

        answer = asyncio.run(run())
        assert (answer.status, answer.problem) == (None, Problem.REFUSED)
        assert "refused" in answer.detail.lower()


def test_a_name_that_nobody_knows():
    async def run(host):
        return await HttpEndpoint(target_of(f"http://{host}:80")).send(GET)

    for host in ("no-such-host.invalid", "x" * 70 + ".invalid"):
        answer = asyncio.run(run(host))
        assert answer.problem is Problem.UNREACHABLE
        assert answer.detail


def test_a_connection_that_does_not_open_in_time():
    async def run():
        # a listener that accepts nobody and whose queue is full
        with socket.socket() as listener, contextlib.ExitStack() as stack:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
            await asyncio.sleep(0.05)
            target = target_of(f"http://127.0.0.1:{listener.getsockname()[1]}")
            return await HttpEndpoint(target).send(Ask(key="a", method="GET", path="/", time_limit_s=0.3))

    answer = asyncio.run(run())
    assert answer.problem is Problem.TIME_LIMIT
    assert "no connection" in answer.detail


def test_ipv6():
    if not socket.has_ipv6:
        pytest.skip("NOT TESTED: no IPv6 here")
    try:
        server, (answer,) = exchange([OK], GET, url="http://[::1]:{port}/v1", host="::1")
    except OSError as error:
        pytest.skip(f"NOT TESTED: no IPv6 loopback here: {error}")
    assert answer.body == "hello"
    assert f"Host: [::1]:{server.port}\r\n".encode() in server.requests[0]


def test_localhost_finds_the_address_that_listens():
    _, (answer,) = exchange([OK], GET, url="http://localhost:{port}", host="127.0.0.1")
    assert answer.body == "hello"


def test_what_is_sent():
    ask = Ask(key="a", path="/v1/chat/completions", body='{"é": 1}', headers=(("X-Own", "1"),))
    server, _ = exchange([OK], ask, url="http://127.0.0.1:{port}/base/v1/", api_key="key-1\n")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /base/v1/chat/completions HTTP/1.1"
    assert "Authorization: Bearer key-1" in lines
    assert "Content-Length: 9" in lines
    assert "Content-Type: application/json" in lines
    assert "X-Own: 1" in lines
    assert body == '{"é": 1}'.encode()


def test_the_key_is_sent_only_where_it_is_wanted():
    asks = [
        Ask(key="a", path="/", method="GET", authorize=False),
        Ask(key="b", path="/", method="GET", headers=(("authorization", "Bearer other"),)),
    ]
    server, _ = exchange([OK], *asks, api_key="key-1")
    assert b"key-1" not in b"".join(server.requests)
    assert server.requests[1].lower().count(b"authorization") == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("gpubox:8000", "http://gpubox:8000"),
        ("http://gpubox:8000/", "http://gpubox:8000"),
        ("http://gpubox:8000/v1", "http://gpubox:8000"),
        ("http://gpubox:8000/v1/chat/completions", "http://gpubox:8000"),
        ("http://gpubox:8000/v1/models/", "http://gpubox:8000"),
        ("https://gpubox/llm/v1", "https://gpubox:443/llm"),
        ("http://gpubox", "http://gpubox:80"),
        ("http://[fe80::1%25eth0]:8000", "http://[fe80::1%eth0]:8000"),
        (" http://user:secret@gpubox:8000 ", "http://gpubox:8000"),
    ],
)
def test_forms_of_a_url(url, expected):
    assert target_of(url).url == expected


def test_the_key_may_stand_in_the_url_and_is_not_shown():
    target = target_of("http://:k%401@gpubox:8000")
    assert target.api_key == "k@1"
    assert "k@1" not in repr(target)
    assert target_of("http://:other@gpubox", api_key="given").api_key == "given"


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://x", "http://x:99999", "http://x:abc", "http://[::1", "http://a b/"]
)
def test_what_is_no_endpoint(url):
    with pytest.raises(UsageError) as caught:
        target_of(url)
    assert "HOST:PORT" in caught.value.hint


def test_an_error_about_a_url_does_not_show_its_password():
    with pytest.raises(UsageError) as caught:
        target_of("http://:hunter2@x:abc")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("key", ["a b", "a\r\nX: y", "\x00", "é\n\n x"])
def test_a_key_that_no_header_takes(key):
    with pytest.raises(UsageError, match="API key"):
        target_of("http://x", api_key=key)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: no openssl here")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=own CA", "-days", "2")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=box")
    (folder / "names").write_text("subjectAltName=DNS:localhost,DNS:box.invalid\n")
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-out", "server.pem", "-days", "2", "-extfile", "names"),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context, str(folder / "ca.pem")


def test_tls_with_an_own_ca(certificates):
    context, ca_file = certificates
    url = "https://localhost:{port}"
    server, answers = exchange([OK, CHUNKED], GET, GET, url=url, tls=context, ca_file=ca_file)
    assert [answer.body for answer in answers] == ["hello", "hello world"]
    assert server.connections == 1


def test_tls_that_is_not_trusted_is_told_and_can_be_waved_through(certificates):
    context, ca_file = certificates
    strange = one(OK, url="https://localhost:{port}", tls=context)
    assert strange.problem is Problem.UNREACHABLE
    assert "certificate verify failed" in strange.detail
    other_name = one(OK, url="https://127.0.0.1:{port}", tls=context, ca_file=ca_file)
    assert other_name.problem is Problem.UNREACHABLE
    assert one(OK, url="https://127.0.0.1:{port}", tls=context, verify_tls=False).body == "hello"


def test_tls_to_a_server_without_it_and_the_other_way_round(certificates):
    context, _ = certificates
    ask = Ask(key="a", path="/", method="GET", time_limit_s=1.0)  # each side may wait for the other
    assert one(OK, ask, url="https://localhost:{port}", verify_tls=False).problem is not None
    assert one(OK, ask, url="http://localhost:{port}", tls=context).problem is not None


def test_a_ca_file_that_is_none(tmp_path):
    (tmp_path / "empty.pem").write_text("no certificate\n")
    for name in ("none.pem", "empty.pem"):
        target = target_of("https://x", ca_file=str(tmp_path / name))
        with pytest.raises(UsageError, match=name):
            HttpEndpoint(target)


def through_proxy(monkeypatch, reply, url, variable, credentials="", ask=GET, **options):
    """The proxy's view and the answer, for a target that only the proxy can reach."""

    async def run():
        async with running(Server(replies=[reply])) as proxy:
            monkeypatch.setenv(variable, f"http://{credentials}127.0.0.1:{proxy.port}")
            endpoint = HttpEndpoint(target_of(url, **options))
            answer = await endpoint.send(ask)
            await endpoint.close()
        return proxy, answer

    return asyncio.run(run())


def test_http_through_a_proxy_names_the_whole_url(monkeypatch):
    proxy, answer = through_proxy(monkeypatch, OK, "http://box.invalid:8000/base", "http_proxy", "me:p%40ss@")
    assert answer.body == "hello"
    head = proxy.requests[0].decode()
    assert head.startswith("GET http://box.invalid:8000/base/x HTTP/1.1\r\nHost: box.invalid:8000\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head


def test_tls_through_a_proxy_is_a_tunnel(monkeypatch, certificates):
    context, ca_file = certificates

    async def tunnel(_, writer):
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
        await writer.start_tls(context)
        reader = writer._protocol._stream_reader
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()

    proxy, answer = through_proxy(
        monkeypatch, tunnel, "https://box.invalid", "https_proxy", "me:pass@", ca_file=ca_file
    )
    assert (answer.body, answer.problem) == ("hello", None)
    head = proxy.requests[0].decode()
    assert head.startswith("CONNECT box.invalid:443 HTTP/1.1\r\nHost: box.invalid:443\r\n")
    assert "Proxy-Authorization: Basic bWU6cGFzcw==\r\n" in head


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", b"nonsense\r\n\r\n"]
)
def test_a_proxy_that_refuses_is_named(monkeypatch, reply):
    _, answer = through_proxy(monkeypatch, reply, "https://box.invalid", "https_proxy")
    assert answer.problem is Problem.UNREACHABLE
    assert "proxy 127.0.0.1" in answer.detail


def test_a_proxy_that_keeps_silent_ends_at_the_time_limit(monkeypatch):
    async def silence(reader, _):
        await reader.read()

    ask = Ask(key="a", path="/", method="GET", time_limit_s=0.3)
    _, answer = through_proxy(monkeypatch, silence, "https://box.invalid", "https_proxy", ask=ask)
    assert answer.problem is Problem.TIME_LIMIT


def test_a_proxy_that_is_not_there_is_not_taken_for_the_endpoint(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    async def run():
        return await HttpEndpoint(target_of("http://box.invalid")).send(GET)

    answer = asyncio.run(run())
    assert answer.problem is Problem.UNREACHABLE
    assert "proxy" in answer.detail


def test_loopback_and_no_proxy_go_directly(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "box.invalid")
    assert one(OK).body == "hello"
    assert HttpEndpoint(target_of("http://127.0.0.2:1"))._proxy is None
    assert HttpEndpoint(target_of("http://box.invalid"))._proxy is None
    assert HttpEndpoint(target_of("http://other.invalid"))._proxy is not None


@pytest.mark.parametrize("proxy", ["socks5://me:hunter2@127.0.0.1:1080", "https://p:1", "http://p:abc"])
def test_a_proxy_of_another_kind_is_said_so(monkeypatch, proxy):
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(UsageError) as caught:
        HttpEndpoint(target_of("http://box.invalid"))
    assert "proxy" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_cancelling_closes_the_connection():
    async def run():
        gone = asyncio.Event()

        async def silence(reader, _):
            await reader.read()
            gone.set()

        async with running(Server(replies=[silence])) as server:
            endpoint = HttpEndpoint(target_of(f"127.0.0.1:{server.port}"))
            asking = asyncio.create_task(endpoint.send(GET))
            await server.asked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wait_for(gone.wait(), 20)
            await endpoint.close()

    asyncio.run(run())


def test_many_at_once_do_not_mix():
    class Echo(Server):
        async def serve(self, reader, writer):
            self.tasks.append((asyncio.current_task(), writer))
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
                    await asyncio.sleep(0.01)
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))

    async def run():
        async with running(Echo(replies=[])) as server:
            endpoint = HttpEndpoint(target_of(f"127.0.0.1:{server.port}"))
            asks = [Ask(key=str(number), path=f"/{number}", method="GET") for number in range(40)]
            first = await asyncio.gather(*map(endpoint.send, asks))
            second = await asyncio.gather(*map(endpoint.send, asks))
            await endpoint.close()
        return first + second

    answers = asyncio.run(run())
    assert all(answer.body == f"/{answer.key}" for answer in answers)


@pytest.mark.parametrize(
    "url", ["8000", "http:/gpubox:8000", "::1:8000", "http://gpubox:0", "http://gpubox:65536", "http://[::1"]
)
def test_a_url_that_means_nothing_is_told_what_is_wanted(url):
    with pytest.raises(UsageError) as refused:
        target_of(url)
    assert f"`{url}`" in refused.value.message
    assert "cast" not in refused.value.message  # Python's words
    assert "HOST:PORT" in (refused.value.hint or "")
