from dataclasses import replace

import pytest

from bringup.checks.exposure import CHECK
from bringup.values.deployment import Deployment
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer, Problem
from bringup.values.host import EngineProcess, HostSnapshot


def under_test(
    *, url="http://127.0.0.1:8000", address=None, key=False, engine="vllm", port=8000, tls=False
) -> Deployment:
    engines = (EngineProcess(pid=1, port=port, address=address),) if address else ()
    return Deployment(
        url=url,
        engine=EngineStatus(engine=engine),
        model=ServedModel(id="m"),
        host=HostSnapshot(taken_at=0.0, host="local", engines=engines),
        has_api_key=key,
        is_tls=tls,
    )


def respond(make, **statuses):
    """Answers by key: 200 or an error status; what is not named is let in."""

    def one(ask):
        status = statuses.get(ask.key, 200)
        return make.whole(ask.key, "Hi") if status == 200 else make.error(ask.key, status, "Unauthorized")

    return one


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_loopback_without_a_key_is_ok(make, address):
    ran = make.run(CHECK, under_test(address=address), respond(make))
    assert make.found(ran.judgement) == {"exposure": "ok"}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5"])
def test_open_addresses_without_a_key_are_a_warning_with_flags(make, address):
    ran = make.run(CHECK, under_test(address=address), respond(make))
    assert make.found(ran.judgement) == {"exposure": "warning", "exposure.metrics": "note"}
    finding = ran.judgement.findings[0]
    assert address in finding.summary
    assert [(fix.name, fix.old) for fix in finding.fixes] == [("--host", address), ("--api-key", None)]


def test_a_key_that_the_user_did_not_give_but_the_engine_wants_protects(make):
    ran = make.run(CHECK, under_test(address="0.0.0.0"), respond(make, chat_open=401))
    assert make.found(ran.judgement)["exposure"] == "ok"


def test_several_engines_are_told_apart_by_port(make):
    ran = make.run(CHECK, under_test(address="0.0.0.0", port=9000), respond(make))
    assert make.found(ran.judgement) == {"exposure": "unknown"}


def test_reached_over_the_network_without_a_key_needs_no_host(make):
    ran = make.run(CHECK, under_test(url="http://10.0.0.7:8000"), respond(make))
    assert make.found(ran.judgement) == {
        "exposure": "warning",
        "exposure.metrics": "note",
        "exposure.tls": "note",
    }


def test_a_key_that_is_asked_for_everywhere_is_ok(make):
    statuses = dict.fromkeys(
        ("chat_open", "chat_wrong_key", "native_open", "completions_open", "metrics_open"), 401
    )
    ran = make.run(CHECK, under_test(address="0.0.0.0", key=True), respond(make, **statuses, models_open=401))
    assert make.found(ran.judgement) == {"exposure": "ok", "exposure.key": "ok"}
    assert all(not ask.authorize for ask in ran.asked)
    wrong = next(ask for ask in ran.asked if ask.key == "chat_wrong_key")
    assert dict(wrong.headers)["authorization"] == "Bearer bringup-wrong-key"


def test_a_public_list_of_models_is_by_design_of_llama_cpp(make):
    statuses = dict.fromkeys(
        ("chat_open", "chat_wrong_key", "native_open", "completions_open", "metrics_open"), 401
    )
    ran = make.run(
        CHECK, under_test(address="0.0.0.0", key=True, engine="llama_cpp"), respond(make, **statuses)
    )
    assert make.found(ran.judgement) == {"exposure": "ok", "exposure.key": "ok"}
    assert "not to list it" in ran.judgement.findings[1].summary


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ({}, "without a key and with a wrong key"),
        ({"chat_open": 401, "native_open": 404}, "with a wrong key"),
        ({"chat_open": 401, "chat_wrong_key": 401}, "at `/invocations`"),
    ],
)
def test_a_key_that_is_not_asked_for_is_a_warning(make, statuses, said):
    ran = make.run(CHECK, under_test(address="0.0.0.0", key=True), respond(make, **statuses))
    assert make.found(ran.judgement)["exposure.key"] == "warning"
    assert said in ran.judgement.findings[1].summary


@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("vllm", "/invocations"),
        ("sglang", "/generate"),
        ("llama_cpp", "/completion"),
        ("tgi", "/generate"),
        ("unknown", "/v1/completions"),
    ],
)
def test_the_key_is_tried_at_every_path_that_runs_the_model(make, engine, path):
    key = "completions_open" if path == "/v1/completions" else "native_open"
    shut = dict.fromkeys({"chat_open", "chat_wrong_key", "native_open", "completions_open"} - {key}, 401)
    ran = make.run(CHECK, under_test(address="0.0.0.0", key=True, engine=engine), respond(make, **shut))
    assert next(ask.path for ask in ran.asked if ask.key == key) == path
    assert make.found(ran.judgement)["exposure.key"] == "warning"
    assert f"without a key at `{path}`" in ran.judgement.findings[1].summary


def test_a_web_page_at_such_a_path_does_not_run_the_model(make):
    def page(ask):
        if ask.key != "completions_open":
            return make.error(ask.key, 401, "Unauthorized")
        return replace(make.whole(ask.key, "Hi"), body="<html>It works!</html>")

    ran = make.run(CHECK, under_test(address="0.0.0.0", key=True), page)
    assert make.found(ran.judgement)["exposure.key"] == "ok"


def test_a_key_that_is_not_asked_for_harms_nobody_on_loopback(make):
    ran = make.run(CHECK, under_test(address="127.0.0.1", key=True), respond(make))
    assert make.found(ran.judgement) == {"exposure": "ok", "exposure.key": "note", "exposure.metrics": "note"}


@pytest.mark.parametrize(
    "answer",
    [Answer(key="chat_open", status=503), Answer(key="chat_open", problem=Problem.TIME_LIMIT, detail="30 s")],
)
def test_neither_let_in_nor_refused_is_unknown(make, answer):
    def one(ask):
        return answer if ask.key == "chat_open" else make.error(ask.key, 401)

    ran = make.run(CHECK, under_test(address="0.0.0.0", key=True), one)
    assert make.found(ran.judgement)["exposure.key"] == "unknown"


@pytest.mark.parametrize(
    ("url", "tls", "severity"),
    [
        ("http://127.0.0.1:8000", False, None),
        ("http://localhost:8000", False, None),
        ("http://[::1]:8000", False, None),
        ("http://192.168.1.5:8000", False, "note"),
        ("http://gpubox:8000", False, "note"),
        ("http://8.8.8.8:8000", False, "warning"),
        ("http://[2606:4700::1]:8000", False, "warning"),
        ("https://8.8.8.8:8000", True, "ok"),
    ],
)
def test_what_travels_in_the_clear(make, url, tls, severity):
    deployment = under_test(url=url, key=True, tls=tls)
    found = make.found(
        make.run(CHECK, deployment, respond(make, chat_open=401, chat_wrong_key=401)).judgement
    )
    assert found.get("exposure.tls") == severity
