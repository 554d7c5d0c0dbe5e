"""Every engine is known by what it serves: recorded and synthetic cases, mixed-up ones, and garbled ones."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup import registry
from bringup.engines import KEYLESS, Engine, probe_asks, probe_paths, surest
from bringup.values.engine import EngineStatus
from bringup.values.exchange import Answer, Problem

CASES = Path(__file__).parents[2] / "golden" / "engines"
ENGINES = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
UNKNOWN = "openai_compatible"


@dataclass(frozen=True)
class Case:
    folder: str
    name: str
    answers: dict[str, Answer]
    expected: dict[str, object]


def read_case(path: Path) -> Case:
    data = json.loads(path.read_text())
    answers = {
        key: Answer(
            key=key,
            status=row["status"],
            headers=tuple(row["headers"].items()),
            body=row["body"],
            total_s=row.get("total_s"),
        )
        for key, row in data["answers"].items()
    }
    assert data["source"], "a case says where it comes from"
    return Case(path.parent.name, path.stem, answers, data["expected"])


ALL = [read_case(path) for path in sorted(CASES.glob("*/*.json"))]
BY_NAME = {f"{case.folder}/{case.name}": case for case in ALL}


def part(status: EngineStatus, path: str) -> object:
    """The field that a dotted path names; `models.0.id`, `flags.tp_size`."""
    value: object = status
    for step in path.split(".", 1) if path.startswith("flags.") else path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, tuple):
            value = value[int(step)]
        else:
            value = getattr(value, step)
    return list(value) if isinstance(value, tuple) else value


def status_of(name: str, **changed: Answer | None) -> EngineStatus:
    answers = dict(BY_NAME[name].answers)
    for path, answer in changed.items():
        if answer is None:
            del answers[path]
        else:
            answers[path] = answer
    return surest(ENGINES, answers)


@pytest.mark.parametrize("case", ALL, ids=list(BY_NAME))
def test_a_case_reads_as_expected(case: Case) -> None:
    status = surest(ENGINES, case.answers)
    assert {path: part(status, path) for path in case.expected} == case.expected
    assert status.evidence


@pytest.mark.parametrize("case", ALL, ids=list(BY_NAME))
def test_no_other_engine_wins_on_a_case(case: Case) -> None:
    sure = {name: read[0] for name, engine in ENGINES.items() if (read := engine.identify(case.answers))}
    assert max(sure, key=sure.__getitem__) == case.folder
    others = [value for name, value in sure.items() if name != case.folder]
    assert all(value < sure[case.folder] for value in others)


@pytest.mark.parametrize("case", ALL, ids=list(BY_NAME))
def test_only_the_right_engine_and_the_unknown_one_speak_up(case: Case) -> None:
    speaking = {name for name, engine in ENGINES.items() if engine.identify(case.answers) is not None}
    assert speaking <= {case.folder, UNKNOWN}


@pytest.mark.parametrize("name", list(ENGINES))
def test_every_engine_folder_is_whole(name: str) -> None:
    module = importlib.import_module(f"bringup.engines.{name}")
    engine = ENGINES[name]
    assert isinstance(engine, Engine)
    assert "Source:" in (module.__doc__ or "")
    assert "Source:" in (importlib.import_module(f"bringup.engines.{name}.endpoints").__doc__ or "")
    assert any(case.folder == name for case in ALL), "an engine needs a case"
    assert set(engine.probes) == {path for path in engine.probes if path.startswith("/")}
    assert engine.health_path.startswith("/")
    assert engine.health_meaning
    assert engine.metrics_path is None or engine.metrics_path in engine.probes
    assert engine.identify({}) is None


@pytest.mark.parametrize("name", [name for name in ENGINES if name != UNKNOWN])
def test_a_status_names_the_folder_it_comes_from(name: str) -> None:
    case = next(case for case in ALL if case.folder == name)
    status = surest(ENGINES, case.answers)
    assert (status.engine, status.display_name) == (name, ENGINES[name].display_name)


def test_every_path_is_asked_once_and_only_read() -> None:
    asks = probe_asks(ENGINES)
    assert [ask.key for ask in asks] == list(probe_paths(ENGINES))
    assert {(ask.method, ask.body) for ask in asks} == {("GET", "")}
    assert next(ask for ask in asks if ask.path == "/health").time_limit_s >= 25  # SGLang's takes 20 s


def test_generating_paths_are_not_probed() -> None:
    assert "/health_generate" not in probe_paths(ENGINES)


def test_with_a_key_the_metrics_are_asked_without_it_too() -> None:
    extra = [ask for ask in probe_asks(ENGINES, has_api_key=True) if ask.key.endswith(KEYLESS)]
    assert [(ask.path, ask.authorize) for ask in extra] == [("/metrics", False)]


def test_metrics_that_need_the_key_are_read_but_not_open() -> None:
    refused = Answer(key="", status=401)
    status = status_of("vllm/recorded-0.32.0-cpu", **{f"/metrics{KEYLESS}": refused})
    assert status.metrics_open is False
    assert status.kv.tokens == 46592


def test_nothing_listens() -> None:
    answers = {path: Answer(key=path, problem=Problem.REFUSED) for path in probe_paths(ENGINES)}
    status = surest(ENGINES, answers)
    assert (status.engine, status.is_healthy, status.needs_key) == ("unknown", None, False)
    assert status.evidence == ("nothing listens on this port",)


def test_all_time_limits() -> None:
    answers = {
        path: Answer(key=path, problem=Problem.TIME_LIMIT, detail="not finished within 10 s")
        for path in probe_paths(ENGINES)
    }
    assert surest(ENGINES, answers).evidence == ("no answer: not finished within 10 s",)


@pytest.mark.parametrize("status", [401, 403])
def test_everything_closed_says_it_needs_a_key(status: int) -> None:
    answers = {path: Answer(key=path, status=status, body="") for path in probe_paths(ENGINES)}
    found = surest(ENGINES, answers)
    assert found.needs_key
    assert found.metrics_open in (False, None)
    assert any("needs a key" in words for words in found.evidence)


def test_a_web_site_is_no_engine() -> None:
    page = "<!DOCTYPE html><html><title>Open WebUI</title></html>"
    answers = {path: Answer(key=path, status=200, body=page) for path in probe_paths(ENGINES)}
    status = surest(ENGINES, answers)
    assert status.engine == "unknown"
    assert status.evidence == ("it serves web pages, not an inference interface",)
    assert status.proxy == "open-webui"
    assert status.models == ()
    assert status.is_healthy is None


def test_a_front_end_with_ollamas_version_path_is_not_ollama() -> None:
    page = Answer(key="", status=200, body="<!doctype html><html><title>Open WebUI</title></html>")
    answers = dict.fromkeys(probe_paths(ENGINES), page) | {
        "/api/version": Answer(key="", status=200, body='{"version":"0.6.30","deployment_id":""}'),
        "/health": Answer(key="", status=200, body='{"status":true}'),
    }
    status = surest(ENGINES, answers)
    assert (status.engine, status.proxy, status.models) == ("unknown", "open-webui", ())


def test_a_proxy_without_anything_behind_it() -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"
    answers = {path: Answer(key=path, status=502, body=page) for path in probe_paths(ENGINES)}
    status = surest(ENGINES, answers)
    assert (status.engine, status.proxy) == ("unknown", "nginx")
    assert "nothing behind it" in status.evidence[0]


def test_an_engine_is_still_known_without_its_metrics() -> None:
    for name in ("vllm/recorded-0.32.0-cpu", "sglang/recorded-0.5.23-cpu", "llama_cpp/recorded-11549"):
        status = status_of(name, **{"/metrics": None})
        assert status.engine == BY_NAME[name].folder
        assert status.metrics_open is None


def test_an_engine_is_still_known_when_unknown_paths_give_pages() -> None:
    page = Answer(key="", status=200, body="<html>single-page app</html>")
    for case in ALL:
        known = {"/v1/models", *ENGINES[case.folder].probes}
        mixed = {path: page for path in probe_paths(ENGINES) if path not in known} | case.answers
        assert surest(ENGINES, mixed).engine == surest(ENGINES, case.answers).engine


def test_foreign_metrics_do_not_outvote_the_server() -> None:
    """A page of all pods' metrics names vLLM; everything else here says llama.cpp."""
    metrics = BY_NAME["vllm/recorded-0.32.0-cpu"].answers["/metrics"]
    assert status_of("llama_cpp/recorded-11549", **{"/metrics": metrics}).engine == "llama_cpp"


def test_the_order_of_engines_and_answers_does_not_matter() -> None:
    backwards = dict(reversed(list(ENGINES.items())))
    for case in ALL:
        turned = dict(reversed(list(case.answers.items())))
        assert surest(backwards, turned) == surest(ENGINES, case.answers)


def test_a_cut_body_is_not_read() -> None:
    """A models list that was cut off is no models list, even where what came is valid JSON."""
    whole = BY_NAME["vllm/recorded-0.32.0-cpu"].answers["/v1/models"]
    cut = replace(whole, problem=Problem.TRUNCATED)
    assert status_of("vllm/recorded-0.32.0-cpu", **{"/v1/models": cut}).models == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Answer]:
    """A case with some of its answers cut, garbled, replaced or of another type deep inside."""
    case = draw(st.sampled_from(ALL))
    answers = dict(case.answers)
    for path in draw(st.lists(st.sampled_from(sorted(answers)), min_size=1, max_size=4, unique=True)):
        answers[path] = replace(
            answers[path],
            status=draw(st.sampled_from([None, 200, 200, 200, 204, 301, 401, 404, 500, 503])),
            body=draw(bodies(answers[path].body)),
            headers=draw(st.sampled_from([(), (("server", "ngin\ufffdx"), ("", ""))])),
        )
    return answers


@st.composite
def bodies(draw: st.DrawFn, body: str) -> str:
    kind = draw(st.sampled_from(["cut", "garbled", "other", "deep", "text"]))
    if kind == "cut":
        return body[: draw(st.integers(0, len(body)))]
    if kind == "garbled":
        place = draw(st.integers(0, len(body)))
        return body[:place] + draw(st.text(max_size=5)) + body[place + 1 :]
    if kind == "deep":
        try:
            value = json.loads(body)
        except ValueError:
            return body
        if isinstance(value, dict) and value:
            value[draw(st.sampled_from(sorted(value)))] = draw(json_values)
        return json.dumps(value)
    return json.dumps(draw(json_values)) if kind == "other" else draw(st.text(max_size=200))


@settings(deadline=None)
@given(damaged())
def test_damaged_answers_never_crash(answers: dict[str, Answer]) -> None:
    status = surest(ENGINES, answers)
    assert status.engine == "unknown" or status.engine in ENGINES
    for count in (status.kv.tokens, status.kv.blocks, status.running, status.waiting):
        assert count is None or isinstance(count, int)
