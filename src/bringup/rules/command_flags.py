"""The command line: flags and values that a release has not.

Source: Python `argparse.py`; click `exceptions.py`; pydantic; vLLM 0.3 to 0.33 `utils/__init__.py`
(`FlexibleArgumentParser`), `engine/arg_utils.py`; SGLang 0.4 to 0.5.23 `server_args.py`; llama.cpp
`common/arg.cpp`.
"""

import difflib
import re

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of, value_of

# What a flag of another engine or of another time is called now, where its name is not near.
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "vllm": {
        "--lora-path": "--enable-lora --lora-modules name=path",
        "--max-seq-len": "--max-model-len",
        "--context-length": "--max-model-len",
        "--mem-fraction-static": "--gpu-memory-utilization",
        "--model-path": "--model",
        "--tp-size": "--tensor-parallel-size",
        "--max-running-requests": "--max-num-seqs",
        "--chunked-prefill-size": "--max-num-batched-tokens",
        "--disable-log-requests": "--no-enable-log-requests",
        "--enable-reasoning": "--reasoning-parser NAME",
        "--guided-decoding-backend": "--structured-outputs-config.backend",
        "--swap-space": "--kv-offloading-size",
        "--num-scheduler-steps": "nothing: one step per schedule since 0.11",
    },
    "sglang": {
        "--max-model-len": "--context-length",
        "--gpu-memory-utilization": "--mem-fraction-static",
        "--max-num-seqs": "--max-running-requests",
        "--enable-ep-moe": "--ep-size",
        "--enable-flashinfer-mla": "--attention-backend flashinfer",
        "--enable-flashmla": "--attention-backend flashmla",
        "--enable-deepep-moe": "--moe-a2a-backend deepep",
        "--enforce-eager": "--disable-cuda-graph",
        "--max-num-batched-tokens": "--chunked-prefill-size",
    },
    "llama_cpp": {
        "--max-model-len": "--ctx-size",
        "--tensor-parallel-size": "--tensor-split",
        "--ngl": "--n-gpu-layers",
    },
}
_MESSAGES = (
    Message(
        kind="pkg.cli_flag",
        sure=0.96,
        pattern=r"error: (?:unrecognized|unknown|unexpected|invalid) arguments?:? "
        r"'?(?P<flag>--?[\w.-]+)(?P<rest>[^\n`']*)"
        r"|error: (?:unrecognized|invalid|unknown) arguments?: (?P<word>[^\s'(-][^\n']*)"
        r"|error: argument (?P<named>-[\w./, -]*?): (?P<why>invalid choice: '?(?P<value>[^'\n ]+)'?[^\n]*"
        r"|expected \w+ arguments?|invalid [^\n]*|not allowed[^\n]*|Value [^\n]*cannot be converted[^\n]*"
        r"|ignored explicit argument[^\n]*|[A-Z][^\n]{0,160})"
        r"|(?i:unknown|unrecogni[sz]ed|unsupported|no such|unexpected|invalid) (?i:command[- ]line )?"
        r"(?i:flag|option|switch|argument)s?:? ?[`'\"]?(?P<any>--[a-z][\w-]*)[^\n]*"
        r"|error: argument (?P<positional>\w+): (?P<choice>invalid choice: '[^\n]*)"
        r"|error: ambiguous option: (?P<short>--[\w-]+) could match (?P<candidates>[^\n]+)"
        r"|[Nn]o such option:? '?(?P<option>--?[\w-]+)",
        literals=("error: ", "o such option"),
        summary="the command line is not one of this release: {flag} {named} {option} {any} {word} {why}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.85,
        pattern=r"(?:EngineArgs|ServerArgs|LLM|LlmArgs|AsyncEngineArgs"
        r"|ModelConfig)\S*?\)? got an unexpected keyword argument '(?P<flag>\w+)'"
        r"|error: the following arguments are required: (?P<named>[^\n]+)"
        r"|Unknown quantization method: (?P<value>[\w-]+)|Invalid (?:value"
        r"|choice) for '?(?P<option>--?[\w-]+)"
        r"|(?i:invalid|unknown|unsupported) (?P<what>[\w ]{3,40}): '?(?P<other>[\w.-]+)'?[.,;]? "
        r"(?:[Mm]ust be one of|(?i:valid|allowed|available|known) (?:values|choices|options|backends"
        r"|methods|types"
        r"|names|ones)|(?i:supported))",
        literals=(
            "unexpected keyword argument",
            "arguments are required",
            "Unknown quantization method",
            "nvalid ",
            "Unknown ",
            "unknown ",
            "Unsupported ",
            "unsupported ",
        ),
        summary="the command line is not one of this release: {flag} {named} {option} {value} {other}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.94,
        pattern=r"(?:max_model_len|ValueError: (?:Warning: )?User-specified context_length) "
        r"\((?P<value>\d+)\) is greater than the derived (?:max_model_len|context_length) \(\D*(?P<most>\d+)",
        literals=("is greater than the derived",),  # a warning of SGLang where it is allowed
        summary="requests of {value} tokens are asked for, the model takes {most}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.9,
        pattern=r"SGLANG_CPU_OMP_THREADS_BIND is not set, in this case, the total number of ranks "
        r"\([^)]*= (?P<ranks>\d+)\)",
        literals=("SGLANG_CPU_OMP_THREADS_BIND is not set",),
        summary="{ranks} ranks are asked for on fewer memory nodes, and no cores are named for them",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.95,
        pattern=r"^(?:\S+: )?(?:error: |what\(\): +)?(?:the )?argument (?:(?P<flag>-\S+) )?has been removed"
        r"(?:[.;,] [Uu]se (?P<use>--?[\w-]+))?",  # --help says it in the middle of a line
        literals=("has been removed",),
        summary="a flag that earlier releases had: {flag}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.92,
        pattern=r"unknown value for (?P<option>--?[\w-]+): '?(?P<value>[^'\n]*)"
        r"|expected value for argument:? \"?(?P<flag>--?[\w-]+)"
        r"|error: invalid parameter for argument: (?P<named>--?[\w-]+)",
        literals=("unknown value for -", "expected value for argument", "invalid parameter for argument"),
        summary="{option}{flag}{named} has a value that this release does not take: {value}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.95,
        pattern=r"(?P<cache>(?i:quantized V cache (?:was requested|requires)"
        r"|V cache quantization requires)[^\n]*"
        r"(?i:flash.?att))",
        literals=("uantized V cache", "V cache quantization"),
        summary="a quantised V cache works with flash attention only",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.88,
        pattern=r"Extra inputs are not permitted \[type=extra_forbidden, input_value=(?P<given>[^,\n]+)"
        r"|Unexpected keyword argument \[type=unexpected_keyword_argument, input_value=(?P<other>[^,\n]+)",
        literals=("type=extra_forbidden", "type=unexpected_keyword_argument"),
        summary="the configuration has a field that this release has not",
        unless=r"body\.|'loc': ",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.9,
        pattern=r"error while handling argument \"(?P<option>--?[\w-]+)\": (?P<why>[^\n]+)",
        literals=("error while handling argument",),
        summary="the value of {option} is none of this release: {why}",
    ),
    Message(
        kind="pkg.cli_flag",
        sure=0.6,
        pattern=r"Value error, invalid literal for \w+\(\) with base 10: '(?P<other>[^']*)'",
        literals=("Value error, invalid literal for",),
        summary="a setting has the value {other}, which is no whole number",
    ),
)


def _too_long(_: Case, one: Said) -> tuple[Fix, ...]:
    """As many tokens as the model takes."""
    flag, variable = (
        ("--context-length", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
        if "context_length" in one.text
        else ("--max-model-len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    )
    return (
        Fix(type="flag", name=flag, old=one.values["value"], new=one.values["most"]),
        Fix(type="env", name=variable, new="1", kind="workaround", cost="wrong answers beyond"),
    )


def _needs_flash(_: Case, __: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="flag", name="--flash-attn", new="on"),
        Fix(type="flag", name="--cache-type-v", new="f16", kind="workaround", cost="a larger cache"),
    )


def _cores(_: Case, one: Said) -> tuple[Fix, ...]:
    return (
        Fix(type="env", name="SGLANG_CPU_OMP_THREADS_BIND", new="the cores of each rank: 0-15|16-31"),
        Fix(type="flag", name="--tensor-parallel-size", old=one.values["ranks"], new="1"),
    )


def _stray(_: Case, one: Said) -> tuple[Fix, ...]:
    """A value that no flag stands before."""
    word = one.values["word"].split()[0]
    return (Fix(type="flag", name="--model", old=word, new=f"before {word}, where it is the model"),)


_BY_VALUE = {"most": _too_long, "cache": _needs_flash, "ranks": _cores, "word": _stray}


def _flag(case: Case, one: Said) -> tuple[Fix, ...]:
    """What the value that the message names is for; else the flag's name of this release."""
    cure = next((cure for name, cure in _BY_VALUE.items() if name in one.values), _named)
    return cure(case, one)


def _named(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case) or "vllm"
    given = {**case.flags, **case.environment}
    wrong = next((key for key, value in given.items() if value == one.values.get("other")), None)
    if wrong is not None:
        return (
            Fix(
                type="flag" if wrong.startswith("-") else "env",
                name=wrong,
                old=given[wrong],
                new="a whole number",
            ),
        )
    name = next((one.values[key] for key in ("flag", "named", "option", "any") if key in one.values), "")
    name = name.split("/")[-1].split(",")[0].strip()
    if not name and "value" in one.values:
        name = "--quantization"
    if not name.startswith("-"):
        name = "--" + name.replace("_", "-")
    if "value" in one.values:
        return (Fix(type="flag", name=name, old=one.values["value"], new=_choice(case, one)),)
    if "handling argument" in one.text:
        given = one.values.get("why", "").rpartition(": ")[2]
        return (Fix(type="flag", name=name, old=given or None, new="one of the values that `--help` lists"),)
    new = one.values.get("use") or _OTHER_NAMES.get(engine, {}).get(name) or _near(name, engine, case)
    return (
        Fix(
            type="flag",
            name=name,
            old=value_of(case, name) or one.values.get("rest", "").strip() or None,
            new=new,
        ),
        Fix(
            type="package",
            name=package_of(engine),
            old=case.version,
            new="a release that has the flag",
            kind="workaround",
        ),
    )


def _choice(case: Case, one: Said) -> str | None:
    """The nearest of the choices that the message lists."""
    for line in one.lines or case.lines:
        listed = re.split(r"choose from|[Mm]ust be one of", line.text, maxsplit=1)[1:]
        choices = re.findall(r"[\w.-]+", listed[0]) if listed else []
        near = difflib.get_close_matches(one.values["value"], choices, n=1, cutoff=0.3)
        if choices:
            return near[0] if near else choices[0]
    return None


def _near(name: str, engine: str, case: Case) -> str | None:
    """The nearest flag of the engine; where the engine is not told, of those that the usage text names."""
    known = case.known_flags.get(engine) or {
        word
        for line in case.lines
        for word in re.findall(r"(?<![\w-])--[a-z][\w-]+", line.text)
        if word != name
    }
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return near[0] if near else None


_FIXES = {"pkg.cli_flag": _flag}

RULE = Rule(
    kinds=tuple(_FIXES),
    title="the command line",
    literals=literals_of(_MESSAGES),
    read=read_messages(_MESSAGES, _FIXES),
    meaning="The command line has a flag or a value that this release has not.",
    told_apart="By the parser's own line, which names the flag. A value that fits the release but not the "
    "model is told by the rules of the model.",
    cure="The nearest flag or value of the release.",
    source="Python `argparse.py`; llama.cpp `common/arg.cpp`; vLLM `engine/arg_utils.py`; SGLang "
    "`server_args.py`.",
)
