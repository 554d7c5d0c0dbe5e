"""Text without its secrets: what follows a secret's name, what only a secret looks like, what is known.

Pure, linear in the text, and unchanged when applied twice.
"""

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from bringup.parse.secret_names import Kind, secret_kind

REDACTED = "[redacted]"

Span = tuple[int, int]

_PLAIN_WORD = (
    8  # a known key of letters or of digits only, shorter than this, is a word that stands everywhere
)

# Forms that nothing but a secret has: what to look for first, and the whole.
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (literal, re.compile(r"(?<![A-Za-z0-9])" + pattern))
    for literal, pattern in (
        ("hf_", r"hf_[A-Za-z0-9]{20,}"),
        ("hf_oauth_", r"hf_oauth_[\w.-]{20,}"),
        ("api_org_", r"api_org_[A-Za-z0-9]{20,}"),
        ("sk-", r"sk-[A-Za-z0-9]{20,}"),
        ("sk-", r"sk-(?:proj|ant|or|svcacct|admin|lf|None)-[\w-]{16,}"),
        ("sk-", r"(?<![\w-])sk-(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[a-z])(?=[\w-]{0,200}[A-Z])[\w-]{20,}"),
        ("k_live_", r"[sr]k_live_[A-Za-z0-9]{10,}"),
        ("k_test_", r"[sr]k_test_[A-Za-z0-9]{10,}"),
        ("gh", r"gh[pousr]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"github_pat_\w{22,}"),
        ("gl", r"gl(?:pat|dt|rt|ptt|cbt|agent|soat)-[\w-]{16,}"),
        ("A", r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("AIza", r"AIza[\w-]{30,}"),
        ("ya29.", r"ya29\.[\w-]{20,}"),
        ("GOCSPX-", r"GOCSPX-[\w-]{20,}"),
        ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
        ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/[\w/-]{16,}"),
        ("npm_", r"npm_[A-Za-z0-9]{30,}"),
        ("pypi-", r"pypi-[\w-]{40,}"),
        ("dckr_", r"dckr_[op]at_[\w-]{16,}"),
        ("nvapi-", r"nvapi-[\w-]{20,}"),
        ("dop_v1_", r"dop_v1_[a-f0-9]{32,}"),
        ("SG.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
        ("gsk_", r"gsk_[A-Za-z0-9]{30,}"),
        ("r8_", r"r8_[A-Za-z0-9]{30,}"),
        ("pplx-", r"pplx-[A-Za-z0-9]{30,}"),
        ("xai-", r"xai-[A-Za-z0-9]{40,}"),
        ("tgp_v1_", r"tgp_v1_[\w-]{20,}"),
        ("wandb_v1_", r"wandb_v1_[\w-]{20,}"),
        ("dapi", r"dapi[a-f0-9]{32}"),
        ("tskey-", r"tskey-[a-z]+-[\w-]{10,}"),
        ("hvs.", r"hv[sb]\.[\w-]{20,}"),
        ("AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}"),
        ("eyJ", r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"),
        ("eyJ", r"eyJ[\w-]{8,}\.[\w-]*\.[\w-]+\.[\w-]+\.[\w-]+"),
    )
)

_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_CUT = re.compile(r"[A-Za-z0-9+/=\s\\]*")  # of a block whose end was cut off
_KEY_BLOCK_LIMIT = 20_000

# Forms of which only the group `secret` is one.
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "://",
        re.compile(
            r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/?#@:\"'\\]{0,200}:(?P<secret>[^\s/?#\"'\\]{1,500})@"
        ),
    ),
    ("earer", re.compile(r"(?i)\bbearer[ \t]+(?P<secret>(?=\S*\d|\S{24})[\w.~+/=-]{6,})")),
    (
        "ignature=",
        re.compile(r"[?&](?:X-(?:Amz|Goog)-)?Signature=(?P<secret>[^\s&\"'\\]{8,})"),
    ),
    ("sig=", re.compile(r"[?&]sig=(?P<secret>[^\s&\"'\\]{8,})")),
    ("key=", re.compile(r"[?&]key=(?P<secret>[^\s&\"'\\]{8,})")),
    ("AccountKey=", re.compile(r"AccountKey=(?P<secret>[^\s;\"']{8,})")),
    ("SetCredential", re.compile(r"SetCredential(?:Encrypted)?=[^:\s]{1,200}:(?P<secret>[^\n\0]+)")),
    (
        "curl",
        re.compile(
            r"\bcurl\b[^\n]{0,400}?[\s\0](?:-u|--user|--proxy-user|-U)[\s\0=]*[\"']?"
            r"[^\s:\"'\0]{1,100}:(?P<secret>[^\s\"'\0]+)"
        ),
    ),
    (
        "-p",
        re.compile(
            r"\b(?:sshpass|(?:docker|podman|nerdctl|registry)[\s\0]login)\b[^\n]{0,200}?[\s\0]-p[\s\0]*"
            r"[\"']?(?P<secret>[^\s\"'\0]+)"
        ),
    ),
    (" -p", re.compile(r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n]{0,200}? -p(?P<secret>[^\s\"'\0]+)")),
)

_ANCHORS = re.compile(r"token|passw|passphrase|passcode|pass|pwd|secret|credential|key|auth|cookie|bearer")
_NAME_LIMIT = 80
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_.-]*\Z")
_NAME_AFTER = re.compile(r"[A-Za-z0-9_.-]*")
_QUOTE_BEFORE = re.compile(r"\\*[\"']\Z")
_WORD_BEFORE = re.compile(r"(?:api|access|secret|auth|private|encryption) \Z", re.IGNORECASE)
_ASSIGN = re.compile(
    r"(?P<close>\\*[\"'])?(?P<sign>[ \t]*(?:=(?![=~>])|=>|:=|:(?![:/]))[ \t]*)(?:\n[ \t]*-[ \t]+)?"
)
_AFTER_FLAG = re.compile(
    r"(?P<close>\\*[\"'])?(?:=|\s*,\s*(?=\\*[\"'])|[ \t\0]+(?:\\\n\s*)?|\s*\n\s*-[ \t]+)"
)
_NAMED_VALUE = re.compile(
    r"(?i)\bname\\*[\"']?\s*[:=]\s*\\*[\"']?(?P<name>[A-Za-z0-9_.-]{2,80})\\*[\"']?\s*,?\s*"
    r"\\*[\"']?value\\*[\"']?\s*[:=]\s*"
)
_OPEN_QUOTE = re.compile(r"\\*[\"']")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.){0,8000})\"|'((?:[^'\\]|\\.){0,8000})'")
_BARE = re.compile(r"[^\s\0\"'`,;&|(){}\[\]\\]+")
_BARE_WORD = re.compile(r"[^\s\0\"'`\\]+")
_BARE_ARGUMENT = re.compile(r"[^\0]+")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]+")
_MORE_KEYS = re.compile(r"[ \0](?![-&|;>])(?P<secret>[^\s\0\"'`\\/]+)(?=[\s\0]|\Z)")
_ENVIRONMENT_ITEM = re.compile(r"(?:\A|(?<=\0))(?P<name>[A-Za-z_]\w{0,100})=(?P<value>[^\0]*)")
_ENVIRONMENT_LINE = re.compile(r"^(?P<name>[A-Za-z_]\w{0,100})=(?P<value>[^\n]*)", re.MULTILINE)

_NO_VALUE = re.compile(
    r"(?i)(?:none|null|nil|true|false|yes|no|on|off|undefined|unset|required|optional|missing|invalid|files|compat"
    r"|str|string|int|bytes|bool|dict|list|object|any|secretstr|optional\[.*|str\b.*|\*+|x{4,}|\.{3}|<[^>]*>"
    r"|\$[A-Z_]\w*|\$\{[A-Za-z_]\w*[^}]*\}?|\$\(.*|%\w+%|%\(\w+\)s|\{\{.*|.*\[redacted\].*)"
)
_NUMBER = re.compile(r"[-+]?[\d.,:]+(?:e[-+]?\d+)?(?:%|[a-zA-Z]{1,3}(?:/\w{1,6})?)?")
_SPECIAL_TOKEN = re.compile(r"<.*|\[[A-Z_0-9]*\]?|\|.*")


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """`text` with every secret replaced by `[redacted]`; `secrets` are values known to be secret.

    >>> redact("HF_TOKEN=abc123 vllm serve m --api-key k1 --max-num-batched-tokens 8192")
    'HF_TOKEN=[redacted] vllm serve m --api-key [redacted] --max-num-batched-tokens 8192'
    """
    return replace_spans(text, secret_spans(text, secrets))


def redact_answer(text: str, secrets: Collection[str] = ()) -> str:
    """The same for what a model wrote: unmistakable forms only, `password = "x"` in its code stays."""
    return replace_spans(text, answer_spans(text, secrets))


def redact_argv(argv: Sequence[str], secrets: Collection[str] = ()) -> tuple[str, ...]:
    """An argument list without secrets, each argument kept in its place.

    >>> redact_argv(("vllm", "serve", "--api-key", "k1", "--port", "8000"))
    ('vllm', 'serve', '--api-key', '[redacted]', '--port', '8000')
    """
    if any("\0" in argument for argument in argv):
        return tuple(redact(argument, secrets) for argument in argv)
    return tuple(redact("\0".join(argv), secrets).split("\0")) if argv else ()


def redact_environment(environment: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """Environment variables without secrets.

    >>> redact_environment({"HF_TOKEN": "abc123", "HF_HOME": "/data"})
    {'HF_TOKEN': '[redacted]', 'HF_HOME': '/data'}
    """
    return {name: redact_value(name, value, secrets) for name, value in environment.items()}


def redact_headers(
    headers: Iterable[tuple[str, str]], secrets: Collection[str] = ()
) -> tuple[tuple[str, str], ...]:
    """HTTP headers without secrets.

    >>> redact_headers([("authorization", "Bearer abc"), ("server", "uvicorn")])
    (('authorization', '[redacted]'), ('server', 'uvicorn'))
    """
    return tuple((name, redact_value(name, value, secrets)) for name, value in headers)


def redact_value(name: str, value: str, secrets: Collection[str] = ()) -> str:
    """The value of a named thing: `[redacted]` when the name says that it is secret."""
    kind = secret_kind(name)
    if kind is Kind.HEADER and value:
        return REDACTED
    if kind is not None and _is_secret(value, kind):
        return REDACTED
    return redact(value, secrets)


def replace_spans(text: str, spans: Sequence[Span]) -> str:
    """`text` with `[redacted]` in the place of each span; the spans are in order and do not overlap."""
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += (text[done:start], REDACTED)
        done = end
    return "".join([*parts, text[done:]])


def secret_spans(text: str, secrets: Collection[str] = ()) -> list[Span]:
    """Where the secrets of `text` stand: in order, not overlapping."""
    spans = [*_known(text, secrets), *_forms(text), *_parts(text), *_named(text), *_named_values(text)]
    spans += _environment_items(text)
    return _merged(text, spans)


def answer_spans(text: str, secrets: Collection[str] = ()) -> list[Span]:
    """The same for what a model wrote: known values, unmistakable forms, values of JSON keys."""
    return _merged(text, [*_known(text, secrets), *_forms(text), *_named(text, json_only=True)])


def _merged(text: str, spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if text[start:end].strip() in ("", REDACTED):
            continue
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _known(text: str, secrets: Collection[str]) -> Iterator[Span]:
    for secret in secrets:
        is_short = len(secret) < _PLAIN_WORD
        if not secret.strip() or (is_short and (secret.isalpha() or secret.isdigit())):
            continue  # "vllm" as a key: found by its name only, else the text would be riddled
        for form in _spellings(secret):
            pattern = re.escape(form)
            if is_short:
                pattern = rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])"
            if form in text:
                yield from (match.span() for match in re.finditer(pattern, text))


def _spellings(secret: str) -> set[str]:
    """A value as it stands in text, in JSON, in a URL and in base64."""
    quoted = "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-._~") else f"%{byte:02X}"
        for byte in secret.encode("utf-8", "surrogatepass")
    )
    spellings = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quoted}
    if len(secret) >= _PLAIN_WORD:
        spellings.add(base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("="))
    return spellings


def _forms(text: str) -> Iterator[Span]:
    for literal, pattern in _FORMS:
        if literal in text:
            yield from (match.span() for match in pattern.finditer(text))
    block = _KEY_BLOCK.search(text)
    while block is not None:
        limit = block.end() + _KEY_BLOCK_LIMIT
        end = _KEY_BLOCK_END.search(text, block.end(), limit) or _KEY_BLOCK_CUT.match(
            text, block.end(), limit
        )
        yield block.start(), end.end() if end else block.end()
        block = _KEY_BLOCK.search(text, end.end() if end else block.end())


def _parts(text: str) -> Iterator[Span]:
    for literal, pattern in _PARTS:
        if literal in text:
            yield from (match.span("secret") for match in pattern.finditer(text))


def _environment_items(text: str) -> Iterator[Span]:
    """Whole values of an environment block, NUL-separated or one a line: they may hold blanks and quotes."""
    if "\0" not in text:
        lines = text.count("\n") + (not text.endswith("\n"))
        found = len(_ENVIRONMENT_LINE.findall(text))
        if found < 3 or found < 0.8 * lines:
            return
    pattern = _ENVIRONMENT_ITEM if "\0" in text else _ENVIRONMENT_LINE
    for match in pattern.finditer(text):
        kind = secret_kind(match["name"])
        if kind is not None and _is_secret(match["value"], kind):
            yield match.span("value")


def _named_values(text: str) -> Iterator[Span]:
    """`name: HF_TOKEN` with `value: ...` after it, as Kubernetes writes environments."""
    if "value" not in text.lower():
        return
    for match in _NAMED_VALUE.finditer(text):
        kind = secret_kind(match["name"])
        if kind is not None:
            yield from _value(text, match.end(), kind, "=")


def _named(text: str, *, json_only: bool = False) -> Iterator[Span]:
    """Values that follow a name: assignments, flags, JSON, YAML, headers."""
    lowered = text.lower()
    if len(lowered) != len(text):  # one letter in Unicode grows: offsets would be off
        lowered = re.sub(r"[A-Z]", lambda letter: letter[0].lower(), text)
    done = 0
    for anchor in _ANCHORS.finditer(lowered):
        if anchor.start() < done:
            continue
        before = _NAME_BEFORE.search(text[max(0, anchor.start() - _NAME_LIMIT) : anchor.start()])
        after = _NAME_AFTER.match(text, anchor.end(), anchor.end() + _NAME_LIMIT)
        start = anchor.start() - (len(before[0]) if before else 0)
        done = end = after.end() if after else anchor.end()
        name = text[start:end]
        if name.lower() == "key" and (word := _WORD_BEFORE.search(text[max(0, start - 12) : start])):
            name = word[0] + name
        kind = secret_kind(name)
        if kind is not None:
            yield from _after_name(text, start, end, kind, json_only=json_only)


def _after_name(text: str, start: int, end: int, kind: Kind, *, json_only: bool) -> Iterator[Span]:
    opening = _QUOTE_BEFORE.search(text[max(0, start - 8) : start])
    quote = opening[0] if opening else ""
    if json_only:
        sign = _ASSIGN.match(text, end)
        if quote == '"' and sign is not None and sign["close"] == '"' and kind is not Kind.WEAK:
            yield from _value(text, sign.end(), kind, ":quoted")
        return
    if text[start] == "-":
        yield from _after_flag(
            text, end, kind, quote, is_api_key=text[start:end].endswith(("api-key", "api-keys"))
        )
        return
    sign = _ASSIGN.match(text, end)
    if sign is None or (sign["close"] and sign["close"] != quote):
        return
    if kind is Kind.HEADER:
        yield from _header_value(text, sign.end(), quote if not sign["close"] else "")
        return
    style = sign["sign"].strip() + ("quoted" if sign["close"] else "")
    if quote and not sign["close"]:  # "NAME=value with blanks": the quote was opened before the name
        closing = text.find(quote, sign.end(), sign.end() + 8000)
        first = text[sign.end() : sign.end() + 1]
        if (
            closing > 0
            and first not in {"'", '"', "\\", "["}
            and _is_secret(text[sign.end() : closing], kind)
        ):
            yield sign.end(), closing
        return
    yield from _value(text, sign.end(), _judged(text, start, kind, style), style)


def _judged(text: str, start: int, kind: Kind, style: str) -> Kind:
    """In running text `token: word` is prose unless it starts its line or looks random."""
    if kind is Kind.WEAK and style == "=" and text[max(0, start - 1) : start] in {"?", "&"}:
        return Kind.TOKEN
    line = text[text.rfind("\n", max(0, start - 200), start) + 1 : start]
    if kind is Kind.TOKEN and style == ":" and line.strip(" \t-\"'") != "":
        return Kind.WEAK
    return kind


def _after_flag(text: str, end: int, kind: Kind, quote: str, *, is_api_key: bool) -> Iterator[Span]:
    gap = _AFTER_FLAG.match(text, end)
    if gap is None or (gap["close"] and gap["close"] != quote):
        return
    at = gap.end()
    if kind is Kind.WEAK:
        kind = Kind.TOKEN
    if text[at : at + 1] == "-" and text[at - 1] != "=":
        return
    last = at
    for span in _value(text, at, kind, "flag"):
        last = span[1]
        yield span
    while is_api_key and last > at and (more := _MORE_KEYS.match(text, last)):  # vLLM takes several keys
        yield more.span("secret")
        last = more.end()


def _header_value(text: str, at: int, quote: str) -> Iterator[Span]:
    opening = _OPEN_QUOTE.match(text, at)
    if opening is not None:
        at, quote = opening.end(), opening[0]
    ends = [
        text.find(stop, at, at + 16_000) for stop in ([quote] if quote else []) + ["\n", "\r", "\0", "\\r\\n"]
    ]
    end = min([position for position in ends if position >= 0], default=min(len(text), at + 16_000))
    scheme = _SCHEME.match(text, at, end)
    if scheme is not None:
        at = scheme.end()
    if text[at : at + 1] not in {"{", "["} and _is_secret(text[at:end], Kind.STRONG):
        yield at, end


def _value(text: str, at: int, kind: Kind, style: str) -> Iterator[Span]:
    """The value that begins at `at`: a quoted string, a list of them, or a bare word."""
    if text[at : at + 1] == "[":
        yield from _strings_of_list(text, at, kind)
        return
    is_argument = style == "flag" and "\0" in (text[at - 1], text[-1])  # /proc/PID/cmdline
    span = None if is_argument else _quoted(text, at)
    if span is None and style == ":quoted":
        return  # a JSON number, object or null
    if span is None:
        match = _bare_pattern(text, at, style, is_argument=is_argument).match(text, at)
        span = match.span() if match else None
    if span is None or not _is_secret(text[slice(*span)], kind):
        return
    if kind is Kind.WEAK and "logprob" in text[span[1] : span[1] + 200]:
        return  # a token of a model's answer
    yield span


def _bare_pattern(text: str, at: int, style: str, *, is_argument: bool) -> re.Pattern[str]:
    if is_argument:
        return _BARE_ARGUMENT
    return _BARE_WORD if style == "flag" or _is_environment_name(text, at) else _BARE


def _is_environment_name(text: str, at: int) -> bool:
    """Whether `NAME=` in capitals ends at `at`: such a value ends only at a blank."""
    name = text[max(0, at - _NAME_LIMIT) : at].rpartition("=")[0]
    match = _NAME_BEFORE.search(name)
    return match is not None and match[0].isupper()


def _quoted(text: str, at: int) -> Span | None:
    """The inside of the string literal that begins at `at`."""
    match = _STRING.match(text, at)
    if match is not None:
        return match.span(1) if match[1] is not None else match.span(2)
    opening = _OPEN_QUOTE.match(text, at)
    if opening is None or opening[0][0] != "\\":
        return None
    end = text.find(opening[0], opening.end(), opening.end() + 8000)
    return (opening.end(), end) if end > 0 else None


def _strings_of_list(text: str, at: int, kind: Kind) -> Iterator[Span]:
    end = text.find("]", at, at + 8000)
    while 0 <= at < end:
        span = _quoted(text, at)
        if span is None:
            at += 1
            continue
        if _is_secret(text[slice(*span)], kind):
            yield span
        at = span[1] + 1


def _is_secret(value: str, kind: Kind) -> bool:
    value = value.strip()
    if not value or _NO_VALUE.fullmatch(value):
        return False
    if kind is Kind.STRONG:
        return True
    if _NUMBER.fullmatch(value) or _SPECIAL_TOKEN.fullmatch(value):
        return False
    if kind is Kind.TOKEN:
        return True
    has_digit = any(character.isdigit() for character in value)
    return len(value) >= 10 and has_digit and not re.search(r"\s", value)
