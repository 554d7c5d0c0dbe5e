"""Whether the models endpoint names the expected model, with the context length that was configured.

Source: `/v1/models` of vLLM (`max_model_len`, `root`), SGLang (`max_model_len`) and llama.cpp (`meta.n_ctx`,
`aliases`), whose context is split over its slots.
"""

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, fault_finding, reply_or_fault
from bringup.parse.chat import read_reply
from bringup.parse.json_value import json_or_none, list_at
from bringup.parse.models_list import is_models_list, read_models
from bringup.values.deployment import Deployment, Depth
from bringup.values.engine import ServedModel
from bringup.values.exchange import Answer, Ask
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity

_OTHER_MODELS_ASKED = frozenset({"bad_requests"})
_SOURCE = "answer models_endpoint/list"
_NAME_FLAGS = {"vllm": "--served-model-name", "sglang": "--served-model-name", "llama_cpp": "--alias"}
_CONTEXT_FLAGS = {"vllm": "--max-model-len", "sglang": "--context-length", "llama_cpp": "--ctx-size"}


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    del deployment
    return () if replies.answers else (Ask(key="list", path="/v1/models", method="GET", time_limit_s=20.0),)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    answer = replies.answers.get("list")
    if trouble := _trouble(answer):
        return Judgement(findings=(trouble,))
    body = answer.body if answer else ""
    models = read_models(body)
    aliases = _aliases(body)
    findings = (
        *_identity(deployment, models, aliases),
        *_context(deployment, models),
        *_answering(deployment, aliases, replies),
    )
    return Judgement(findings=findings)


def _trouble(answer: Answer | None) -> Finding | None:
    """Why there is no list of models; None when there is one."""
    expected = "GET /v1/models lists at least one model"
    fault = reply_or_fault(answer)
    if isinstance(fault, Fault) and (answer is None or answer.problem is not None or answer.status != 200):
        if answer is not None and answer.status in (404, 405, 501):
            return _without_endpoint(answer, expected)
        return fault_finding("models_endpoint", fault, source=_SOURCE, expected=expected)
    if answer is not None and read_models(answer.body):
        return None
    is_list = answer is not None and is_models_list(answer.body)
    return Finding(
        id="models_endpoint",
        severity=Severity.FAILURE,
        summary="the list of models is empty"
        if is_list
        else "the models endpoint answers with something else",
        expected=expected,
        explanation="clients look there for the name that requests must use",
        action="check that the URL leads to the engine and that it was started with a model",
        evidence=(Evidence(source=_SOURCE, text=(answer.body if answer else "")[:200]),),
    )


def _without_endpoint(answer: Answer, expected: str) -> Finding:
    return Finding(
        id="models_endpoint",
        severity=Severity.NOTE,
        summary=f"not supported: HTTP {answer.status} for the list of models",
        expected=expected,
        explanation="clients must know the model's name beforehand, and the context length is not told",
        action="check that the URL is the engine's base address, with or without `/v1`",
        evidence=(Evidence(source=_SOURCE, text=answer.body[:200]),),
    )


def _identity(
    deployment: Deployment, models: tuple[ServedModel, ...], aliases: frozenset[str]
) -> tuple[Finding, ...]:
    """The finding on the model's name."""
    names = tuple(model.id for model in models)
    listed = ", ".join(f"`{name}`" for name in names)
    quote = (Evidence(source=_SOURCE, text=", ".join(names)),)
    spec = deployment.spec
    configured = spec.served_names or ((spec.model,) if spec.model else ()) if spec else ()
    wanted = (deployment.wanted.model,) if deployment.wanted.model else configured
    if not wanted or set(wanted) & (set(names) | aliases):
        what = f"serves {listed}" + ("" if wanted else ", no particular name was expected")
        expected = f"a model named {_either(wanted)}" if wanted else "at least one model"
        return (
            Finding(
                id="models_endpoint", severity=Severity.OK, summary=what, expected=expected, evidence=quote
            ),
        )
    behind = next((model for model in models if model.root in wanted), None)
    if behind is not None:
        return (_other_name(behind, wanted, quote),)
    return (
        Finding(
            id="models_endpoint",
            severity=Severity.FAILURE if deployment.wanted.model else Severity.WARNING,
            summary=f"serves {listed}, not {_either(wanted)}",
            expected=f"a model named {_either(wanted)}",
            explanation=(
                "either another model is running, or it has another name: requests for the expected name are"
                " refused, or answered by whatever runs"
            ),
            action="look at the engine's command line, or ask for the served name",
            evidence=quote,
            fixes=_name_fix(deployment.engine.engine, wanted[0]),
        ),
    )


def _other_name(model: ServedModel, wanted: tuple[str, ...], quote: tuple[Evidence, ...]) -> Finding:
    return Finding(
        id="models_endpoint",
        severity=Severity.NOTE,
        summary=f"{_either(wanted)} is served under the name `{model.id}`",
        expected=f"a model named {_either(wanted)}",
        explanation="it is the expected model, but requests must use the served name",
        action=f"put `{model.id}` into requests, or change the served name",
        evidence=quote,
    )


def _context(deployment: Deployment, models: tuple[ServedModel, ...]) -> tuple[Finding, ...]:
    """The finding on the context length; none when nothing was configured or wanted."""
    spec_tokens = deployment.spec.context_tokens if deployment.spec else None
    wanted = deployment.wanted.context_tokens or spec_tokens
    if wanted is None:
        return ()
    served = next((model.context_tokens for model in models if model.id == deployment.model.id), None)
    served = served or deployment.model.context_tokens
    expected = f"{wanted} tokens, as {'wanted' if deployment.wanted.context_tokens else 'configured'}"
    if served is None:
        return (
            Finding(
                id="models_endpoint.context",
                severity=Severity.UNKNOWN,
                summary="not measured: the endpoint does not say how long a context it takes",
                expected=expected,
                explanation="a shorter context than expected shows only when a long request is refused",
                action="run the check of long prompts with `--long-context`",
            ),
        )
    if served == wanted or (served > wanted and deployment.wanted.context_tokens):
        return (
            Finding(
                id="models_endpoint.context",
                severity=Severity.OK,
                summary=f"takes {served} tokens",
                expected=expected,
                evidence=(Evidence(source=_SOURCE, text=f"{served} tokens"),),
            ),
        )
    return (_other_length(deployment, served, wanted, expected),)


def _other_length(deployment: Deployment, served: int, wanted: int, expected: str) -> Finding:
    """The finding for a context length that is not the expected one."""
    slots = deployment.engine.kv.slots or deployment.engine.max_running
    is_split = deployment.engine.engine == "llama_cpp" and slots is not None and served * slots == wanted
    is_demanded = deployment.wanted.context_tokens is not None
    severity = Severity.FAILURE if is_demanded else Severity.NOTE if is_split else Severity.WARNING
    if is_split:
        explanation = (
            f"llama.cpp divides `--ctx-size` among its {slots} slots, so each request gets {served} tokens"
        )
        fix = Fix(
            type="flag",
            name="--ctx-size",
            old=str(wanted),
            new=str(wanted * (slots or 1)),
            cost=f"{slots} times the memory for the KV cache",
        )
    else:
        explanation = (
            "longer requests are refused or cut"
            if served < wanted
            else ("the engine was started with other settings than the ones given")
        )
        flag = _CONTEXT_FLAGS.get(deployment.engine.engine)
        fix = Fix(type="flag", name=flag, old=str(served), new=str(wanted)) if flag else None
    return Finding(
        id="models_endpoint.context",
        severity=severity,
        summary=f"takes {served} tokens, not {wanted}",
        expected=expected,
        explanation=explanation,
        action=f"start the engine with {fix.name} {fix.new}" if fix else "look at the engine's command line",
        evidence=(Evidence(source=_SOURCE, text=f"{served} tokens"),),
        fixes=(fix,) if fix else (),
    )


def _answering(deployment: Deployment, aliases: frozenset[str], replies: Replies) -> tuple[Finding, ...]:
    """The finding on answers that carry another model's name than the one that was asked."""
    model = deployment.model
    if not deployment.engine.models:
        return ()  # no name is known here, so any name may be its own
    own = {_plain(name) for name in (model.id, model.root, *aliases) if name}
    others: dict[str, str] = {}  # name -> where it was seen first
    for check, answers in sorted(replies.everyone.items()):
        for key, answer in sorted(answers.items()):
            name = _name_in(answer) if check not in _OTHER_MODELS_ASKED else None
            if name is not None and not any(_plain(name) in one or one in _plain(name) for one in own):
                others.setdefault(name, f"answer {check}/{key}")
    if not others:
        return ()
    return (
        Finding(
            id="models_endpoint.answers",
            severity=Severity.WARNING,
            summary=f"asked for `{model.id}`, {_either(tuple(others))} answers",
            expected=f"answers in the name of `{model.id}`",
            explanation="a router or a fallback may answer with another model than the one that is paid for",
            action="ask the engine itself, without the proxy, and compare",
            evidence=tuple(
                Evidence(source=source, text=f"model `{name}`") for name, source in others.items()
            ),
        ),
    )


def _name_in(answer: Answer) -> str | None:
    """The model's name in a chat or completion answer; None in any other."""
    if answer.status != 200 or answer.problem is not None:
        return None
    reply = read_reply(answer)
    return reply.model if reply.finish_reason is not None else None


def _plain(name: str) -> str:
    """The last part of a path, in lower case: `/models/Llama-3-8B/` and `meta/llama-3-8b` are one name."""
    return name.rstrip("/").rpartition("/")[2].lower()


def _aliases(body: str) -> frozenset[str]:
    """Other names that llama.cpp answers to."""
    rows = list_at(json_or_none(body), "data")
    return frozenset(alias for row in rows for alias in list_at(row, "aliases") if isinstance(alias, str))


def _name_fix(engine: str, name: str) -> tuple[Fix, ...]:
    flag = _NAME_FLAGS.get(engine)
    return (
        (Fix(type="flag", name=flag, new=name, kind="workaround", cost="only right when it is that model"),)
        if flag
        else ()
    )


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)


CHECK = Check(
    title="lists the expected model",
    depth=Depth.QUICK,
    asks=_asks,
    judge=_judge,
    reads_all=True,
    shows_model=False,
)
