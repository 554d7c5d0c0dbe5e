"""What is said of the host's memory where the processor carries the model."""

from dataclasses import replace

import pytest

from bringup.checks import headroom, kv_capacity, memory_by_design
from bringup.units import GIB, mib
from bringup.values.account import Account, AccountLine, HostAccount, Source
from bringup.values.deployment import Wanted
from bringup.values.plan import HostPlan, LedgerLine, Origin


def planned(name: str, size: int, high: int | None = None) -> LedgerLine:
    return LedgerLine(
        name=name, bytes=mib(size), low=mib(size), high=mib(high or size), origin=Origin.RULE, formula="f"
    )


PLAN = HostPlan(
    ledger=(planned("weights", 94), planned("kv_pool", 180), planned("program", 60, 300)),
    tokens=8192,
    bytes_per_token=23_040.0,
    flag="--ctx-size",
    value="8192",
    growth_bytes=8 * GIB,
    growth_words="kept prompts",
    growth_flag="--cache-ram",
)


def account(*, beyond: int | None = 0, left: int = 12 * GIB, plan: HostPlan | None = PLAN, **more) -> Account:
    lines = (
        AccountLine(name="weights", bytes=mib(94), source=Source.RULE),
        AccountLine(name="program", bytes=mib(246), source=Source.REST),
        AccountLine(name="free", bytes=left, source=Source.KERNEL),
    )
    host = HostAccount(
        memory_total=mib(340) + left, resident=mib(340), lines=lines, plan=plan, unexplained=beyond, **more
    )
    return Account(gpus=(), host=host)


def judged(make, check, **more):
    wanted = more.pop("wanted", Wanted())
    return make.judge(check.CHECK, make.deployment(account=account(**more), wanted=wanted))


def found(make, check, **more):
    return make.found(judged(make, check, **more))


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [
        (0, {"memory_by_design": "ok"}),
        (mib(500), {"memory_by_design.more": "warning"}),
        (-mib(50), {"memory_by_design.less": "note"}),
        (None, {}),
    ],
)
def test_by_design_or_not(make, beyond, expected):
    assert found(make, memory_by_design, beyond=beyond) == expected


def test_without_a_rule_nothing_is_said(make):
    for check in (memory_by_design, headroom):
        assert found(make, check, plan=None) == {}


def test_what_is_held_and_planned_is_measured(make):
    values = {one.name: one.value for one in judged(make, memory_by_design).measurements}
    assert values == {
        "host memory of the engine by its rules": mib(334),
        "host memory of the engine": mib(340),
    }


def test_room_for_what_may_come(make):
    assert found(make, headroom) == {"headroom": "ok"}
    tight = judged(make, headroom, left=4 * GIB).findings[0]
    assert (tight.id, tight.severity) == ("headroom", "note")
    assert "4.0 GiB of the host's memory are left" in tight.summary
    assert "kept prompts" in tight.summary
    (fix,) = tight.fixes
    assert fix.name == "--cache-ram"
    assert 3000 < int(fix.new) < 4096  # MiB: what is left, less what the program may take


def test_a_limit_is_named(make):
    summary = judged(make, headroom, is_limited=True).findings[0].summary
    assert "of its memory limit of 12.3 GiB" in summary


def test_without_growth_the_cache_is_what_to_lower(make):
    plan = replace(PLAN, growth_bytes=0, growth_words="", growth_flag="")
    (finding,) = judged(make, headroom, plan=plan, left=mib(90)).findings
    assert (finding.id, finding.severity) == ("headroom.tight", "note")
    assert finding.action.startswith("lower --ctx-size")
    assert finding.fixes == ()


def test_the_cache_of_the_rules_where_the_engine_does_not_tell(make):
    (finding,) = judged(make, kv_capacity).findings
    assert finding.summary.startswith("8,192 tokens of KV cache hold 4.0 requests of 2,048 tokens")


def test_what_a_larger_cache_needs(make):
    (finding,) = judged(make, kv_capacity, wanted=Wanted(need_context=2048, need_concurrency=8)).findings
    assert finding.id == "kv_capacity.concurrency"
    assert "180.0 MiB more of host memory" in finding.expected
    assert "--ctx-size" in finding.action
