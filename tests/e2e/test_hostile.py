"""Verdicts about sick servers: the right finding, no exception, a bounded end, a recording that replays.

The table says, from what each fault does to users, which findings must speak and how loudly; it is not taken
from what the checks happen to say.
"""

import asyncio
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bringup.errors import EXIT_FINDINGS, EXIT_UNKNOWN, HostError, UnreadableAnswer
from bringup.flows.reach import replayed
from bringup.flows.verify import Verification, VerifyRequest, World, verify
from bringup.report.json import render_json
from bringup.report.text import render_text
from bringup.transport.http_stream import HttpEndpoint, target_of
from bringup.transport.recording import save
from bringup.values.deployment import Depth, Wanted
from bringup.values.exchange import Program, ProgramResult
from bringup.values.finding import WORST_FIRST, Finding, Severity
from capable_model import MODEL
from faults import FAULTS
from server import HostileServer

NOTE, UNKNOWN, WARNING, FAILURE = Severity.NOTE, Severity.UNKNOWN, Severity.WARNING, Severity.FAILURE
KEY = "sk-of-the-test"
# No host is read here (the verdict would depend on the machine that tests), so these two are never measured
# and the best exit code is 7; tests/e2e/test_hostile_cli.py runs the whole command.
ROOM = 3_000_000_000  # bytes of address space on top of what the tests hold already
HOSTLESS = {"exposure", "gpu_memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a verdict must hold: for each check the least severity of its worst finding.

    `only`: every check that is not named stays without warning or failure: the blame lies where it belongs.
    """

    speaks: Mapping[str, Severity] = field(default_factory=dict)
    only: bool = False
    budget_s: float = 60.0
    api_key: str | None = None
    exit_code: int = EXIT_FINDINGS
    model: str | None = None  # that the user wants


NOTHING_ASKED = Expected(
    speaks={"fact": FAILURE, "arithmetic": FAILURE, "streaming": FAILURE, "stopping": FAILURE}
)

TABLE: dict[str, Expected] = {
    # sound
    "healthy": Expected(only=True, exit_code=EXIT_UNKNOWN),
    "reasoning_content": Expected(only=True, exit_code=EXIT_UNKNOWN),
    "bytewise": Expected(only=True, exit_code=EXIT_UNKNOWN),
    # what it says
    "garbage": Expected(speaks={"garble": FAILURE, "fact": FAILURE, "arithmetic": FAILURE}),
    "repeated_tokens": Expected(speaks={"garble": FAILURE, "fact": FAILURE, "stopping": FAILURE}),
    "exclamation_marks": Expected(speaks={"garble": FAILURE, "fact": FAILURE, "stopping": FAILURE}),
    "garbled_concurrent": Expected(speaks={"determinism": FAILURE, "garble": FAILURE}),
    "empty": Expected(speaks={"garble": FAILURE, "fact": FAILURE}),
    "replacement_characters": Expected(speaks={"garble": FAILURE}),
    "nul_bytes": Expected(speaks={"garble": WARNING}),
    "half_characters": Expected(speaks={"garble": WARNING}),
    "terminal_escapes": Expected(speaks={"garble": WARNING}),
    "nondeterministic": Expected(speaks={"determinism": WARNING}),
    "think_leak": Expected(speaks={"arithmetic": WARNING}),
    "think_leak_unopened": Expected(speaks={"arithmetic": WARNING}),
    "tools_as_text": Expected(speaks={"tool_call": WARNING}, only=True),
    "endless": Expected(speaks={"stopping": FAILURE}),
    "stop_ignored": Expected(speaks={"stopping": FAILURE}, only=True),
    "max_tokens_ignored": Expected(speaks={"stopping": FAILURE}),
    "schema_ignored": Expected(speaks={"json_schema": WARNING}, only=True),
    # how it says it
    "truncated_sse": Expected(speaks={"streaming": FAILURE}),
    "reset_midstream": Expected(speaks={"streaming": FAILURE}),
    "no_done": Expected(speaks={"streaming": WARNING}, only=True),
    "no_usage": Expected(
        speaks={"streaming": NOTE, "long_context": UNKNOWN}, only=True, exit_code=EXIT_UNKNOWN
    ),
    "wrong_usage": Expected(speaks={"streaming": WARNING}),
    "wrong_model": Expected(speaks={"models_endpoint": WARNING}, only=True),
    "wrong_model_listed": Expected(speaks={"models_endpoint": FAILURE}, model=MODEL),
    "no_finish_reason": Expected(speaks={"streaming": WARNING}),
    "logprobs_positive": Expected(speaks={"logprobs": WARNING}, only=True),
    "logprobs_nan": Expected(speaks={"logprobs": FAILURE}, only=True),
    "buffering": Expected(speaks={"streaming": WARNING, "speed": UNKNOWN}, only=True),
    "wrong_content_type": Expected(speaks={"streaming": WARNING}),
    "invalid_utf8": Expected(speaks={"garble": FAILURE}),
    "deep_json": Expected(speaks={"fact": FAILURE, "streaming": FAILURE}),
    "gzip": Expected(speaks={"fact": FAILURE, "streaming": FAILURE}),
    "slow_drip": Expected(speaks={"fact": WARNING}, budget_s=6.0),
    # instead of saying it
    "error_500": NOTHING_ASKED,
    "error_500_sometimes": Expected(speaks={"arithmetic": FAILURE}),
    "error_500_streaming": Expected(speaks={"streaming": FAILURE, "stopping": FAILURE}),
    "error_500_concurrent": Expected(speaks={"determinism": FAILURE}),
    "html_page": NOTHING_ASKED,
    "never_answers": Expected(speaks={"fact": FAILURE}, budget_s=5.0),
    "gigabyte_body": NOTHING_ASKED,
    "malformed_http": NOTHING_ASKED,
    "malformed_chunks": NOTHING_ASKED,
    "huge_headers": NOTHING_ASKED,
    "redirect_301": NOTHING_ASKED,
    "redirect_307": NOTHING_ASKED,
    "unsupported_400": Expected(
        speaks={"json_schema": NOTE, "tool_call": NOTE, "logprobs": NOTE}, only=True, exit_code=EXIT_UNKNOWN
    ),
    "dies_long_prompt": Expected(speaks={"context_limit": FAILURE}),
    "dies_bad_json": Expected(speaks={"bad_requests": FAILURE}),
    "slot_leak": Expected(speaks={"cancel": WARNING}, only=True),
    # keys
    "unauthorized": Expected(speaks={"fact": UNKNOWN, "models_endpoint": UNKNOWN}, exit_code=EXIT_UNKNOWN),
    "key_unchecked": Expected(speaks={"exposure.key": NOTE}, only=True, api_key=KEY, exit_code=EXIT_UNKNOWN),
    # over loopback nobody else can read them: no finding is due
    "metrics_open": Expected(only=True, api_key=KEY, exit_code=EXIT_UNKNOWN),
}
UNREACHABLE = ("malformed_everywhere", "silent_everywhere")  # nothing there speaks HTTP: said so, exit 3


class TrustingSandbox:
    """Gives every program the results of a run: the rules' functions are known to be right."""

    async def run(self, program: Program) -> ProgramResult:
        space: dict[str, object] = {}
        try:
            exec(program.source, space)  # written by tests/hostile/capable_model.py
        except (SyntaxError, ValueError) as error:  # what a fault did to it
            return ProgramResult(key=program.key, problem=str(error))
        return ProgramResult(
            key=program.key, results=tuple(repr(eval(call, space)) for call in program.calls)
        )


async def verified(name: str, expected: Expected) -> Verification:
    async with HostileServer.with_fault(name, api_key=expected.api_key) as server:
        endpoint = HttpEndpoint(target_of(server.url, api_key=expected.api_key))
        request = VerifyRequest(
            url=server.url,
            depth=Depth.FULL,
            wanted=Wanted(model=expected.model),
            has_api_key=expected.api_key is not None,
            budget_s=expected.budget_s,
        )
        try:
            return await verify(request, World(runner=None, endpoint=endpoint, sandbox=TrustingSandbox()))
        finally:
            await endpoint.close()


def worst_of(check: str, findings: tuple[Finding, ...]) -> Severity | None:
    """The worst finding of one check; None when it said nothing."""
    own = {one.severity for one in findings if one.id == check or one.id.startswith(f"{check}.")}
    return next((severity for severity in WORST_FIRST if severity in own), None)


def is_better(severity: Severity, other: Severity) -> bool:
    """Whether the first is less bad than the second."""
    return WORST_FIRST.index(severity) > WORST_FIRST.index(other)


def blamed_as_well(expected: Expected, findings: tuple[Finding, ...]) -> list[str]:
    """Findings of checks that the fault does not concern; none unless the table forbids them."""
    named = {check.partition(".")[0] for check in expected.speaks}
    others = [one for one in findings if one.id.partition(".")[0] not in named]
    bad = [one.id for one in others if one.severity in (WARNING, FAILURE)]
    unknown = [one.id for one in others if one.severity is UNKNOWN and one.id not in HOSTLESS]
    return bad + unknown if expected.only else []


def said(findings: tuple[Finding, ...]) -> str:
    """The findings that are not OK, for a person who reads a failed test."""
    return "\n".join(f"  {one.severity} {one.id}: {one.summary}" for one in findings if one.severity != "ok")


def test_the_table_covers_every_fault():
    assert {*TABLE, *UNREACHABLE, "html_everywhere"} == set(FAULTS)


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """A server that makes the client hoard memory fails its test, not the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("name", TABLE)
def test_verdict(name: str, tmp_path: Path):
    expected = TABLE[name]
    found = asyncio.run(verified(name, expected))
    report = found.report
    listing = said(report.findings)
    for check, least in expected.speaks.items():
        worst = worst_of(check, report.findings)
        assert worst is not None, f"{check} said nothing\n{listing}"
        assert not is_better(worst, least), f"{check}: {worst}, not {least}\n{listing}"
    assert not blamed_as_well(expected, report.findings), listing
    assert report.exit_code == expected.exit_code, listing
    text = render_text(report, width=80, color=False, show_all=True)
    assert report.verdict in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    path = tmp_path / "run.json.gz"
    save(path, found.recording, secrets=(KEY,))
    request, world = replayed(path)
    replay = asyncio.run(verify(request, world))
    assert render_json(replay.report) == render_json(report)


@pytest.mark.parametrize("name", UNREACHABLE)
def test_what_speaks_no_http_is_no_endpoint(name: str):
    with pytest.raises(HostError):
        asyncio.run(verified(name, Expected(budget_s=3.0)))


def test_a_web_server_is_no_inference_server():
    with pytest.raises(UnreadableAnswer, match=r"found another server: .* gave HTTP 200: `<!DOCTYPE html>"):
        asyncio.run(verified("html_everywhere", Expected(budget_s=10.0)))
