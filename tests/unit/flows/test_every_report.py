"""What holds for every report: a measured value, its source and an action in each finding, nothing twice."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from broken_cases import CASES, verified
from captures import FOLDER, KINDS, cards

from bringup import registry
from bringup.checks import Check, Replies
from bringup.flows.account import deployment_account
from bringup.report.text import render_text
from bringup.values.deployment import Deployment
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.finding import Finding, Severity
from bringup.values.host import HostSnapshot

_MEASURED = re.compile(r"\d|`[^`]+`|'[^']+'|\"[^\"]+\"")  # a figure, or words quoted
_REASON = re.compile(r"(?:not measured|left out|no pictures were shown): \S+")
_NOTHING = re.compile(r"(?:none|nothing)?")


def check_findings(findings: Sequence[Finding]) -> None:
    """All that is not good is measured or says why not, with its source, and says what to do."""
    bad = [one for one in findings if one.severity is not Severity.OK]
    for one in bad:
        has_reason = _REASON.match(one.summary) is not None
        told = (one.summary, *(line.text for line in one.evidence))
        assert has_reason or any(_MEASURED.search(text) for text in told), one
        assert has_reason or one.evidence, one
        assert one.explanation, one
        assert not _NOTHING.fullmatch(one.action), one
    assert len({one.id for one in findings}) == len(findings)
    assert len({one.summary for one in findings}) == len(findings)
    quoted = [{(line.source, line.text) for line in one.evidence} for one in bad]
    assert len(set[tuple[str, str]]().union(*quoted)) == sum(map(len, quoted)), bad


@pytest.mark.parametrize("name", CASES)
def test_of_every_touchstone(tmp_path: Path, name: str) -> None:
    build, wanted = CASES[name]
    check_findings(verified(build(), tmp_path, **wanted).findings)


CHECKS = {
    name: check for name, check in registry.load("bringup.checks", "CHECK").items() if check.phase == "judge"
}


def judged(host: HostSnapshot, after: HostSnapshot | None) -> list[Finding]:
    """What all checks that send nothing say of a host."""
    deployment = Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine="vllm"),
        model=ServedModel(id="m"),
        host=host,
        host_after=after,
    )
    account = deployment_account(deployment, None, why_no_model="the model's config was not found")
    nothing = Replies(answers={}, programs={}, everyone={})
    findings: list[Finding] = []
    for check in CHECKS.values():
        assert isinstance(check, Check)
        findings += check.judge(replace(deployment, account=account), nothing).findings
    return findings


@pytest.mark.skipif(not KINDS, reason=f"no captures in {FOLDER}")
def test_of_every_captured_host() -> None:
    named = {name: gpus for name in KINDS if (gpus := cards(name))}
    assert len(named) > 50
    for gpus in named.values():
        host = HostSnapshot(taken_at=1e6, host="captured", gpus=gpus)
        check_findings(judged(host, None))
        findings = judged(host, host)
        check_findings(findings)
        assert "rank_balance" not in {one.id for one in findings}  # nothing says that they are ranks
        assert not [one for one in findings if one.severity is Severity.FAILURE]


def test_case_a_can_be_read_out_from_one_screen(tmp_path: Path) -> None:
    build, wanted = CASES["a"]
    text = render_text(verified(build(), tmp_path, **wanted), width=80, color=False)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    paragraph = " ".join(lines[1 : lines.index("")])
    for words in (
        "GPUs 0-3 carry the model, GPUs 4-7 are idle",
        "96,721 MiB per GPU are by design",
        "573,440 tokens of KV cache hold 4.4 requests of 131,072 tokens at once",
        "530 MiB are really left on GPUs 0-3, tight",
        "4 x 83.3 W with the model at rest + 4 x 33.5 W idle = 467 W (limit 600 W)",
    ):
        assert words in paragraph
