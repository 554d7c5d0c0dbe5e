"""Who can use the endpoint: on which addresses it listens, whether a key is asked for, everywhere, and TLS.

Asked without the key, and with a wrong one, at every path known to run the model.

Source: vLLM 0.32.0 guards only paths below `/v1`, so `/invocations` runs the model for everybody; SGLang
leaves `/health` and `/metrics` open; llama.cpp lists models and its health to everybody by design.
"""

import ipaddress
import json
import re

from bringup.checks import Batch, Check, Replies
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import Json, json_or_none
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Answer, Ask
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity

_URL = re.compile(r"^https?://(?:[^@/]*@)?(?P<host>\[[^\]]+\]|[^:/]+)")
_WRONG_KEY = "bringup-wrong-key"
_ALL_ADDRESSES = ("0.0.0.0", "::", "*", "[::]")  # noqa: S104 - what to look for
# The engine's own path that runs the model, and the least that it takes; empty: the same as for a chat.
_NATIVE: dict[str, tuple[str, dict[str, Json]]] = {
    "vllm": ("/invocations", {}),
    "sglang": ("/generate", {"text": "Hi", "sampling_params": {"max_new_tokens": 1}}),
    "llama_cpp": ("/completion", {"prompt": "Hi", "n_predict": 1}),
    "tgi": ("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}}),
}
_HOST_FLAGS = {"vllm": "--host", "sglang": "--host", "llama_cpp": "--host", "tensorrt_llm": "--host"}
_KEY_FLAGS = {"vllm": "--api-key", "sglang": "--api-key", "llama_cpp": "--api-key"}


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    if replies.answers:
        return ()
    model = deployment.model.id
    body = chat_body(model, "Hi", max_tokens=1)
    open_asks = (
        Ask(key="metrics_open", path="/metrics", method="GET", authorize=False, time_limit_s=20.0),
        Ask(key="chat_open", body=body, authorize=False, time_limit_s=30.0),
    )
    if not deployment.has_api_key:
        return open_asks
    wrong = (("authorization", f"Bearer {_WRONG_KEY}"),)
    asks = [
        *open_asks,
        Ask(key="chat_wrong_key", body=body, authorize=False, headers=wrong, time_limit_s=30.0),
        Ask(key="models_open", path="/v1/models", method="GET", authorize=False, time_limit_s=20.0),
    ]
    beside: list[tuple[str, str, dict[str, Json]]] = [
        ("completions_open", "/v1/completions", {"model": model, "prompt": "Hi", "max_tokens": 1})
    ]
    if deployment.engine.engine in _NATIVE:
        path, fields = _NATIVE[deployment.engine.engine]
        beside.append(("native_open", path, fields or json.loads(body)))
    asks += [
        Ask(key=key, path=path, body=json.dumps(fields), authorize=False, time_limit_s=30.0)
        for key, path, fields in beside
    ]
    return tuple(asks)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    findings = (
        _address(deployment, replies),
        *(_key(deployment, replies) if deployment.has_api_key else ()),
        *_metrics(deployment, replies),
        *_tls(deployment),
    )
    return Judgement(findings=findings)


# ---- where it listens


def _address(deployment: Deployment, replies: Replies) -> Finding:
    """The finding on who can reach the endpoint, and whether a key stops them."""
    process = deployment.process
    address = process.address if process else None
    expected = "loopback only, or an API key"
    reached = _host(deployment)
    if address is None and _is_loopback(reached):
        return Finding(
            id="exposure",
            severity=Severity.UNKNOWN,
            summary="not measured: on which addresses the engine listens was not seen",
            expected=expected,
            explanation="it was reached over loopback, which does not say who else can reach it",
            action="give the machine with --host, or look with `ss -ltn`",
        )
    where = f"listens on {address}" if address else f"was reached at {reached}"
    quote = (Evidence(source="listening socket" if address else "URL", text=address or deployment.url),)
    if address is not None and _is_loopback(address):
        summary = f"{where}: only this machine reaches it"
    elif _is_guarded(deployment, replies):
        summary = f"{where}, with an API key"
    else:
        return _open(deployment, where, address, quote)
    return Finding(id="exposure", severity=Severity.OK, summary=summary, expected=expected, evidence=quote)


def _open(deployment: Deployment, where: str, address: str | None, quote: tuple[Evidence, ...]) -> Finding:
    engine = deployment.engine.engine
    everywhere = " (every address of the machine)" if address in _ALL_ADDRESSES else ""
    fixes = tuple(
        Fix(type="flag", name=flag, old=old, new=new, cost=cost)
        for flag, old, new, cost in (
            (_HOST_FLAGS.get(engine), address, "127.0.0.1", "clients must come through a proxy or a tunnel"),
            (_KEY_FLAGS.get(engine), None, "<a secret>", "clients must send it"),
        )
        if flag is not None
    )
    return Finding(
        id="exposure",
        severity=Severity.WARNING,
        summary=f"{where}{everywhere} without an API key",
        expected="loopback only, or an API key",
        explanation="whoever reaches this port uses the GPUs, and reads what the server tells of itself",
        action="bind it to 127.0.0.1 behind a proxy, set an API key, or close the port with a firewall",
        evidence=quote,
        fixes=fixes,
    )


def _host(deployment: Deployment) -> str:
    match = _URL.match(deployment.url)
    return match["host"].strip("[]") if match else deployment.url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# ---- the key


def _is_guarded(deployment: Deployment, replies: Replies) -> bool:
    """Whether a key is needed: as the answer without one says, else as the endpoint was reached."""
    answer = replies.answers.get("chat_open")
    if _is_decided(answer):
        return not _lets_in(answer)
    return deployment.has_api_key or deployment.engine.needs_key


def _key(deployment: Deployment, replies: Replies) -> tuple[Finding, ...]:
    """Findings on the key: asked for, the right one asked for, and everywhere."""
    answers = replies.answers
    ways = (
        ("chat_open", "without a key"),
        ("chat_wrong_key", "with a wrong key"),
    )
    open_ways = [(key, way) for key, way in ways if _lets_in(answers.get(key))]
    native = _NATIVE.get(deployment.engine.engine, ("", {}))[0]
    for key, path in (("completions_open", "/v1/completions"), ("native_open", native)):
        answer = answers.get(key)
        if _lets_in(answer) and isinstance(json_or_none(answer.body if answer else ""), dict | list):
            open_ways.append((key, f"without a key at `{path}`"))
    unknown = [key for key in ("chat_open", "chat_wrong_key") if not _is_decided(answers.get(key))]
    expected = "requests without the right key are refused, whatever the path"
    if open_ways:
        return (_key_open(deployment, open_ways, answers[open_ways[0][0]], expected),)
    if unknown:
        answer = answers.get(unknown[0])
        what = (answer.detail or f"HTTP {answer.status}") if answer else "it was not asked"
        return (
            Finding(
                id="exposure.key",
                severity=Severity.UNKNOWN,
                summary=f"not measured: whether the key is needed ({what})",
                expected=expected,
                explanation="neither let in nor refused",
                action="run the check again on a quiet engine",
            ),
        )
    status = answers["chat_open"].status
    listed = _lets_in(answers.get("models_open"))
    return (
        Finding(
            id="exposure.key",
            severity=Severity.OK,
            summary="the key is needed to use the model" + (", not to list it" if listed else ""),
            expected=expected,
            evidence=(Evidence(source="answer exposure/chat_open", text=f"HTTP {status}"),),
        ),
    )


def _key_open(deployment: Deployment, ways: list[tuple[str, str]], answer: Answer, expected: str) -> Finding:
    guarded = all(key not in ("chat_open", "chat_wrong_key") for key, _ in ways)
    return Finding(
        id="exposure.key",
        severity=Severity.WARNING if _is_reachable(deployment) else Severity.NOTE,
        summary=f"the model answers {' and '.join(way for _, way in ways)}",
        expected=expected,
        explanation=(
            "the key guards the chat and not this path, which runs the model as well"
            if guarded
            else "a key that is not asked for protects nothing"
        ),
        action=(
            "let a proxy in front pass only what clients use, and ask for the key there"
            if guarded
            else "check that the engine was started with its key, and that no proxy adds it for everybody"
        ),
        evidence=(
            Evidence(source=f"answer exposure/{ways[0][0]}", text=f"HTTP {answer.status} {deployment.url}"),
        ),
    )


def _lets_in(answer: Answer | None) -> bool:
    return answer is not None and answer.problem is None and answer.status == 200


def _is_decided(answer: Answer | None) -> bool:
    """Whether an answer says that the key was looked at: let in, or refused for it."""
    if answer is None or answer.problem is not None:
        return False
    return answer.status in (200, 401, 403)


# ---- metrics and TLS


def _metrics(deployment: Deployment, replies: Replies) -> tuple[Finding, ...]:
    """A note when metrics are open that a key or the network should close; else nothing."""
    answer = replies.answers.get("metrics_open")
    if not _lets_in(answer) or not (deployment.has_api_key or _is_reachable(deployment)):
        return ()
    return (
        Finding(
            id="exposure.metrics",
            severity=Severity.NOTE,
            summary="the metrics are readable without a key",
            expected="metrics for those who run the server",
            explanation="they tell how much the server is used, and by which model names",
            action="nothing in a trusted network; else let a proxy in front close `/metrics`",
            evidence=(Evidence(source="answer exposure/metrics_open", text=_beginning(answer)),),
        ),
    )


def _beginning(answer: Answer | None) -> str:
    return answer.body[:120] if answer else ""


def _is_reachable(deployment: Deployment) -> bool:
    """Whether others than this machine reach the endpoint, as far as is known."""
    process = deployment.process
    if process is not None and process.address is not None:
        return not _is_loopback(process.address)
    return not _is_loopback(_host(deployment))


def _tls(deployment: Deployment) -> tuple[Finding, ...]:
    """What travels in the clear; nothing over loopback."""
    host = _host(deployment)
    if _is_loopback(host):
        return ()
    if deployment.is_tls:
        return (
            Finding(
                id="exposure.tls",
                severity=Severity.OK,
                summary="requests and answers are encrypted",
                expected="TLS outside of the machine",
                evidence=(Evidence(source="URL", text=deployment.url),),
            ),
        )
    is_public = _is_public(host)
    what = "prompts, answers and the key" if deployment.has_api_key else "prompts and answers"
    return (
        Finding(
            id="exposure.tls",
            severity=Severity.WARNING if is_public else Severity.NOTE,
            summary=f"no TLS: {what} travel readable",
            expected="TLS outside of the machine",
            explanation=(
                "this is a public address: anybody on the way can read along"
                if is_public
                else "anybody in this network can read along"
            ),
            action="put a proxy with a certificate in front, or come through an SSH tunnel",
            evidence=(Evidence(source="URL", text=deployment.url),),
        ),
    )


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return False  # a name says nothing about where it leads


CHECK = Check(
    title="is open to those it should be", depth=Depth.QUICK, asks=_asks, judge=_judge, shows_model=False
)
