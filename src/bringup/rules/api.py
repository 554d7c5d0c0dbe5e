"""The server runs, and one kind of request is refused or answered wrongly: template, tools, reasoning.

Seen in: transformers 4.44 and newer `tokenization_utils_base.py`, vLLM 0.6 to 0.32
`entrypoints/openai/serving_chat.py` and `serving_engine.py`, SGLang `function_call`, llama.cpp
`common/chat.cpp` and `tools/server` ("requires --jinja flag").
"""

import re

from bringup.parse.case_facts import spelled
from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_FAMILIES = (  # of a model's name -> the parser's name in vLLM, in SGLang
    ("deepseek-v3.2", "deepseek_v32", "deepseekv32"),
    ("deepseek-v3.1", "deepseek_v31", "deepseekv31"),
    ("deepseek", "deepseek_v3", "deepseekv3"),
    ("qwen3-coder", "qwen3_coder", "qwen3_coder"),
    ("qwen", "hermes", "qwen25"),
    ("llama-4", "llama4_pythonic", "pythonic"),
    ("llama", "llama3_json", "llama3"),
    ("mistral", "mistral", "mistral"),
    ("glm-4", "glm45", "glm45"),
    ("kimi", "kimi_k2", "kimi_k2"),
    ("gpt-oss", "openai", "gpt-oss"),
    ("minimax", "minimax_m2", "minimax-m2"),
    ("granite", "granite", "granite"),
)


def _name(case: Case) -> str:
    model = case.facts.model if case.facts else None
    return (model or case.flags.get("--model") or case.flags.get("--model-path") or "").lower()


def _parser(case: Case) -> str:
    model = _name(case)
    column = 2 if case.engine == "sglang" else 1
    return next(
        (row[column] for row in _FAMILIES if row[0] in model), "hermes (or the one of the model's family)"
    )


def _template(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    mode = "deepseek_v32" if "deepseek-v3.2" in _name(case) else "the model's own, where the engine has one"
    return (
        Fix(
            type="flag",
            name="--chat-template",
            new="file.jinja",
            cost="of this model only: another's makes answers wrong",
        ),
        Fix(
            type="flag",
            name="--tokenizer-mode",
            old="auto",
            new=mode,
            cost="for models that bring no template",
        ),
        Fix(
            type="flag", name="endpoint", old="/v1/chat/completions", new="/v1/completions", kind="workaround"
        ),
        Fix(
            type="package",
            name="model",
            old="base model",
            new="its instruct version",
            cost="another download",
        ),
    )


def _tools(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    parser = _parser(case)
    if case.engine == "llama_cpp":
        return (Fix(type="flag", name="--jinja", new="True"),)
    auto = (
        () if case.engine == "sglang" else (Fix(type="flag", name="--enable-auto-tool-choice", new="True"),)
    )
    return (
        *auto,
        Fix(
            type="flag",
            name=spelled(case, "tool parser"),
            new=parser,
            cost="none: requests without tools stay as they are",
        ),
    )


SIGNS = (
    Sign(
        kind="api.chat_template",
        pattern=re.compile(
            r"default chat template is no longer allowed|[Cc]hat template (?:is )?(?:not (?:set|found"
            r"|defined)|missing)"
            r"|tokenizer\.chat_template is not set|no chat template (?:is )?(?:defined|set)"
            r"|chat_template is not set|[Tt]emplate error: template not found|No chat template"
            r"|Cannot use chat template functions because|does not have a chat template"
            r"|Conversation roles must alternate"
            r"|this custom template is not supported|[Ff]ailed to parse (?:the )?chat template"
            r"|the supplied chat template is not supported"
            r"|jinja2\.exceptions\.\w+:|supplied chat template[^\n]*appears path-like"
            r"|multiple chat templates (?:but|with)|Cannot load chat template due to"
            r"|[Cc]hat template \S+ is (?:neither|not) a built-in"
            r"|Chat template (?:file )?\S+ (?:not found|does not exist)"
        ),
        sure=0.94,
        summary="chat requests fail: the model brings no chat template that the engine can use",
        explanation="A base model has none: a foreign template makes its answers wrong. The start itself is "
        "clean, only chat fails.",
        fixes=_template,
        next_measurement="grep -c chat_template tokenizer_config.json; ls *.jinja  # in its folder",
    ),
    Sign(
        kind="api.tool_parser",
        pattern=re.compile(r"[Ii]nvalid tool call parser:? '?(?P<name>[\w.-]+)"),
        sure=0.96,
        summary="{name} is no tool parser of this release",
        fixes=_tools,
    ),
    Sign(
        kind="api.tool_parser",
        pattern=re.compile(
            r"tool choice requires --enable-auto-tool-choice and --tool-call-parser"
            r"|requires --tool-call-parser"
            r"|tools? (?:param(?:eter)? )?requires? --jinja"
            r"|tool_choice.*requires.*parser"
            r"|Tool parser.*(?:not found|not been registered)|could not locate tool call start"
            r"|--tool-call-parser (?:is )?not set|(?:\S+:\S+|model) does not support tools"
            r"|tool_parser:? ?'?[\w.-]+'? (?:which has|not found in)"
            r"|could not locate[^\n]{0,30}\b(?:tool|bot token|<\|tool_call)"
            r"|Tool Call Parser Not Given|[Uu]nsupported (?:tool_call_parser|param: tools|tool parser)"
        ),
        sure=0.95,
        summary="requests with tools are refused: the engine was started without a tool parser",
        fixes=_tools,
        next_measurement="the same request with one tool, after the restart",
    ),
    Sign(
        kind="api.tool_parser_silent",
        pattern=re.compile(
            r"tool_choice=\"?(?:required|auto|named)\"?.*(?:plain text|ignored|no tool_calls)"
            r"|tool_calls (?:is )?(?:empty|null)"
        ),
        sure=0.75,
        summary="tools are ignored without an error: the answer is plain text",
        explanation="Without a parser some versions drop `tool_choice` silently; only a functional test "
        "shows it.",
        fixes=_tools,
        next_measurement="one request with tool_choice required: tool_calls must be there",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="api.reasoning_parser",
        pattern=re.compile(
            r"reasoning_content (?:is )?(?:empty|null|missing)|content (?:holds|contains"
            r"|starts with).*</?think>|\"content\": ?\"[^\"]{0,40}<think>"
            r"|[Rr]easoning parser.*(?:not found|not registered|not been registered|could not locate)"
            r"|could not locate think\b|reasoning (?:parser|extractor) could not locate"
            r"|invalid reasoning parser"
            r"|reasoning_parser\S* '?[\w.-]+'? not found in|think_(?:end|start)_token\b[^\n]*must encode"
            r"|[Uu]nsupported reasoning[_ ]parser"
        ),
        sure=0.8,
        summary="reasoning lands in the wrong field: parser and model do not fit",
        explanation="Models that do not open with <think> need a parser of their own family.",
        fixes=(
            Fix(type="flag", name="--reasoning-parser", new="the one of the model's family"),
            Fix(type="package", name="the engine", new="newer: later versions know later models"),
        ),
        next_measurement="one request: content and reasoning_content of its answer",
        severity=Severity.WARNING,
    ),
)

RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="requests that the server refuses or misreads",
    literals=(
        "hat template",
        "chat_template",
        "chat template functions",
        "Conversation roles",
        "custom template",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "--jinja",
        "tool call parser",
        "not support tools",
        "emplate not found",
        "Tool parser",
        "tool call start",
        "tool_choice",
        "tool_calls",
        "reasoning_content",
        "think>",
        "easoning parser",
        "think start",
        "think end",
        "jinja2.exceptions",
        "appears path-like",
        "hat templates",
        "tool_parser",
        "Tool Call Parser",
        "could not locate",
        "nsupported param",
        "tool_call_parser",
        "reasoning parser",
        "reasoning_parser",
        "think_end_token",
        "think_start_token",
    ),
    read=read_signs(SIGNS),
    meaning="The endpoint answers, but a feature of the request needs something that the engine was not "
    "started with.",
    told_apart="By the message. Models that loop or repeat are `out.*`.",
    cure="The template of this model, the tool parser and reasoning parser of its family.",
    source="transformers tokenization_utils_base.py; vllm/entrypoints/openai/serving_chat.py; llama.cpp "
    "common/chat.cpp",
)
