"""A "capable model" made of rules: it answers the questions that a check asks, rightly and always the same.

Nothing here knows a check's name: it reads the request as a model would, so a check that changes its wording
within reason still gets its answer.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

CONTEXT_TOKENS = 8192
MODEL = "capable-8b-instruct"

_TOKEN = re.compile(r" ?[^\W\d_]{1,9}| ?\d{1,3}|\s+|[^\w\s]|_")

_CAPITALS = {
    "france": "Paris",
    "germany": "Berlin",
    "italy": "Rome",
    "spain": "Madrid",
    "japan": "Tokyo",
    "england": "London",
    "portugal": "Lisbon",
    "austria": "Vienna",
    "poland": "Warsaw",
    "greece": "Athens",
    "norway": "Oslo",
    "sweden": "Stockholm",
    "egypt": "Cairo",
    "china": "Beijing",
    "canada": "Ottawa",
    "russia": "Moscow",
}
_FACTS = {
    r"largest planet|biggest planet": "Jupiter",
    r"red planet": "Mars",
    r"chemical symbol (?:of|for) gold": "Au",
    r"colou?r .{0,20}(?:clear )?sky|sky .{0,20}colou?r": "Blue",
    r"days .{0,20}week": "7",
    r"legs .{0,20}spider": "8",
    r"months .{0,20}year": "12",
    r"water .{0,10}freeze|freezing point": "0",
    r"water .{0,10}boil|boiling point": "100",
    r"opposite of hot": "Cold",
    r"first man on the moon|first person .{0,20}moon": "Neil Armstrong",
    r"romeo and juliet": "Shakespeare",
    r"h2o": "Water",
}
_WORDS = (  # noqa: SIM905 - thirty-eight lines of one word each read worse
    "the keeper climbs the stairs and looks over a grey sea where small boats come home before the storm "
    "she writes the day into her book lights the lamp and waits until morning brings gulls salt wind old"
).split()
_CODE = {
    "fib": ("n", "a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"),
    "factorial": (
        "n",
        "result = 1\n    for k in range(2, n + 1):\n        result *= k\n    return result",
    ),
    "prime": (
        "n",
        "if n < 2:\n        return False\n    return all(n % k for k in range(2, int(n**0.5) + 1))",
    ),
    "palindrome": (
        "s",
        "t = [c.lower() for c in s if c.isalnum()]\n    return t == t[::-1]",
    ),
    "reverse": ("s", "return s[::-1]"),
    "gcd": ("a, b", "while b:\n        a, b = b, a % b\n    return a"),
    "vowel": ("s", "return sum(c in 'aeiouAEIOU' for c in s)"),
    "add": ("a, b", "return a + b"),
    "sum": ("a, b", "return a + b"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model says to one request."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = "stop"
    prompt_tokens: int = 0
    tokens: tuple[str, ...] = ()  # of reasoning and text together
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A request as the model sees it."""

    messages: tuple[tuple[str, str], ...]  # (role, text)
    max_tokens: int
    stop: tuple[str, ...] = ()
    schema: dict | None = None  # JSON schema that the text must follow
    tools: tuple[dict, ...] = ()
    must_call: str | None = None  # tool that must be called; "" = any
    body: dict = field(default_factory=dict)

    @property
    def last(self) -> str:
        """What was said last."""
        return self.messages[-1][1] if self.messages else ""

    @property
    def system(self) -> str:
        """All system prompts."""
        return "\n".join(text for role, text in self.messages if role in ("system", "developer"))

    @property
    def everything(self) -> str:
        """All that was said, oldest first."""
        return "\n".join(text for _, text in self.messages)


def tokens_of(text: str) -> list[str]:
    """`text` in pieces of about four characters, which join to it again."""
    pieces = [match[0] for match in _TOKEN.finditer(text)]
    return pieces if sum(map(len, pieces)) == len(text) else list(text)


def logprob_of(token: str) -> float:
    """A plausible log-probability, the same every time."""
    return -((zlib.crc32(token.encode("utf-8", "replace")) % 400) + 1) / 1000


def speak(
    talk: Talk, *, ignores: frozenset[str] = frozenset(), alter: Callable[[str], str] | None = None
) -> Reply:
    """The reply to `talk`, cut at its stop sequences and its limit unless it `ignores` them."""
    prompt_tokens = 4 + sum(3 + len(tokens_of(text)) for _, text in talk.messages)
    calls = () if "tools" in ignores else tuple(_calls(talk))
    if calls:
        tokens = tuple(tokens_of("".join(call.arguments for call in calls)))
        return Reply(calls=calls, finish_reason="tool_calls", prompt_tokens=prompt_tokens, tokens=tokens)
    text = answer(talk, ignores=ignores)
    if alter is not None:
        text = alter(text)
    finish = "stop"
    if "stop" not in ignores:
        places = [place for word in talk.stop if word and (place := text.find(word)) >= 0]
        text = text[: min(places)] if places else text
    tokens = tokens_of(text)
    if len(tokens) > talk.max_tokens and "max_tokens" not in ignores:
        tokens, finish = tokens[: talk.max_tokens], "length"
    return Reply(
        text="".join(tokens),
        finish_reason=finish,
        prompt_tokens=prompt_tokens,
        tokens=tuple(tokens),
        logprobs=tuple(logprob_of(token) for token in tokens),
    )


def answer(talk: Talk, *, ignores: frozenset[str] = frozenset()) -> str:
    """The words of the answer, as long as they come."""
    if talk.schema is not None and "json_schema" not in ignores:
        return json.dumps(conforming(talk.schema, talk.schema, talk.everything))
    for rule in _RULES:
        said = rule(talk)
        if said is not None:
            return _styled(said, talk.system)
    return _styled("I am glad to help. Please tell me a little more about it.", talk.system)


# rules, most special first


def _tool_result(talk: Talk) -> str | None:
    results = [text for role, text in talk.messages if role == "tool"]
    return f"The tool says: {results[-1]}" if results else None


def _obeyed(talk: Talk) -> str | None:
    """A system prompt that dictates the whole answer."""
    pattern = (
        r"(?:reply|answer|respond)(?: to (?:everything|every \w+|any \w+|all \w+))?"
        r"[^.\n\"'`]{0,60}?(?:only |exactly |just )?"
        r"(?:with|by)(?: the)?(?: single| one| only| exact)?(?: word| words| text| token)?:? *"
        r"[\"'`]?([A-Z]{3,}[\w-]*)"
    )
    match = re.search(pattern, talk.system, re.IGNORECASE | re.DOTALL)
    return match[1] if match and match[1].isupper() else None


def _needle(talk: Talk) -> str | None:
    """Something hidden in a long text and asked for at its end."""
    text, question = talk.everything, talk.last[-400:]
    pairs = re.findall(
        r"\b(?:code|number|password|key|word|pass ?phrase|secret|id)\b[^.\n]{0,60}?"
        r"\b(?:of|for|to|in|at|named?|called)\b(?: the)? ([\w -]+?) is:? [\"'`]?([\w-]+)",
        text,
        re.IGNORECASE,
    )
    found = [value for name, value in pairs if name.strip().lower() in question.lower()]
    found += re.findall(r"\bthe secret word is (\w+)\.", question, re.IGNORECASE)
    asks = re.search(r"\bwh(?:at|ich)\b|\bname\b|\btell\b|\blist\b|\breply\b", question, re.IGNORECASE)
    if found and asks:
        return ", ".join(dict.fromkeys(found))
    return None


def _remembered(talk: Talk) -> str | None:
    """Something that the user said in an earlier turn."""
    before = "\n".join(text for role, text in talk.messages[:-1] if role == "user")
    match = re.search(r"\bmy ([\w ]+?)\b(?:'s name)? is (?:called )?([\w-]+)", before, re.IGNORECASE)
    if match and re.search(
        rf"\bmy {re.escape(match[1])}\b|\bI (?:say|tell|told|said)\b", talk.last, re.IGNORECASE
    ):
        return f"{match[2]}."
    match = re.search(
        r"\bremember (?:the |this )?(?:number|word|code)?:? *[\"'`]?([\w-]+)", before, re.IGNORECASE
    )
    if match and re.search(r"\bwh(?:at|ich)\b|\brepeat\b|\bremember", talk.last, re.IGNORECASE):
        return f"{match[1]}."
    return None


def _arithmetic(talk: Talk) -> str | None:
    power = re.search(r"(\d+) ?(?:to the power of|\^|\*\*) ?(\d+)", talk.last)
    if power:
        return str(int(power[1]) ** min(int(power[2]), 64))
    match = re.search(
        r"(-?\d+(?:\.\d+)?)\s*(x|×|\*|times|multiplied by|\+|plus|-|−|minus|/|÷|divided by)\s*(-?\d+)\b",
        talk.last,
    )
    if match is None:
        return None
    left, sign, right = float(match[1]), match[2], float(match[3])
    if sign in ("x", "×", "*", "times", "multiplied by"):
        value = left * right
    elif sign in ("+", "plus"):
        value = left + right
    elif sign in ("-", "−", "minus"):
        value = left - right
    else:
        value = left / right if right else 0.0
    return f"{value:g}" if abs(value) < 1e5 else f"{value:.0f}"


def _code(talk: Talk) -> str | None:
    if not re.search(r"\bpython\b|\bfunction\b|\bdef\b", talk.last, re.IGNORECASE):
        return None
    named = re.search(r"`?\b(?:def )?([a-z_][a-z_0-9]*)\(([^)]*)\)", talk.last)
    named = named or re.search(r"(?:named|called) `?([a-z_][a-z_0-9]*)`?()", talk.last)
    name = named[1] if named else ""
    text = f"{name} {talk.last}".lower()
    for word, (parameters, body) in _CODE.items():
        if word in text:
            given = ", ".join(re.findall(r"[a-z_]\w*(?=\s*(?:[:,]|$))", named[2])) if named else ""
            code, names = _renamed(body, parameters, given)
            return f"```python\ndef {name or word}({names}):\n    {code}\n```"
    return None


def _renamed(body: str, parameters: str, given: str) -> tuple[str, str]:
    """The function with the parameter names that were asked for."""
    old, new = parameters.split(", "), given.split(", ")
    if len(old) != len(new) or not given:
        return body, parameters
    for one, other in zip(old, new, strict=True):
        body = re.sub(rf"\b{one}\b", other, body)
    return body, given


def _counted(talk: Talk) -> str | None:
    match = re.search(r"count (?:up )?from (\d+) (?:up )?to (\d+)", talk.last, re.IGNORECASE)
    return ", ".join(map(str, range(int(match[1]), int(match[2]) + 1))) if match else None


def _fact(talk: Talk) -> str | None:
    text = talk.last.lower()
    match = re.search(r"capital(?: city)? of (\w+)", text)
    if match and match[1] in _CAPITALS:
        return f"{_CAPITALS[match[1]]}."
    return next((f"{fact}." for pattern, fact in _FACTS.items() if re.search(pattern, text)), None)


def _repeated(talk: Talk) -> str | None:
    match = re.search(
        r"(?:repeat|say|write|reply with|answer with|output)(?: exactly| only| just)?(?: the)?"
        r"(?: (?:word|words|text|sentence|following)(?: text| sentence| word)?)?(?: exactly)?:? "
        r"[\"'`“]([^\"'`”]+)[\"'`”]",
        talk.last,
        re.IGNORECASE,
    )
    return match[1] if match else None


def _greeting(talk: Talk) -> str | None:
    return (
        "Hello! How can I help?"
        if re.match(r"\s*(?:hi|hello|hey|ping)\b", talk.last, re.IGNORECASE)
        else None
    )


def _story(talk: Talk) -> str | None:
    if not re.search(
        r"\b(?:story|essay|describe|write|tell|explain|continue|poem|list)\b", talk.last, re.IGNORECASE
    ):
        return None
    return " ".join(_sentences(600))


def _sentences(words: int) -> Iterator[str]:
    """Sentences without an end in sight and without a loop in them."""
    state, said = 7, 0
    while said < words:
        length = 6 + state % 7
        picked = []
        for _ in range(length):
            state = (state * 1103515245 + 12345) % 2147483648
            picked.append(_WORDS[(state >> 8) % len(_WORDS)])
        said += length
        yield f"{' '.join(picked).capitalize()}."


_RULES: Sequence[Callable[[Talk], str | None]] = (
    _tool_result,
    _obeyed,
    _needle,
    _remembered,
    _code,
    _arithmetic,
    _counted,
    _fact,
    _repeated,
    _greeting,
    _story,
)


def _styled(said: str, system: str) -> str:
    """`said` the way the system prompt wants every answer."""
    match = re.search(
        r"(?:end|finish|close)[^.\n]*?(?:with|by)[^.\n]*?[\"'`]?\b([A-Z][A-Z0-9_-]{2,})\b", system
    )
    if match:
        return f"{said} {match[1]}"
    match = re.search(r"(?:begin|start)[^.\n]*?(?:with|by)[^.\n]*?[\"'`]?\b([A-Z][A-Z0-9_-]{2,})\b", system)
    if match:
        return f"{match[1]} {said}"
    if re.search(r"\b(?:upper ?case|capital letters|capitals)\b", system, re.IGNORECASE):
        return said.upper()
    if re.search(r"\blower ?case\b", system, re.IGNORECASE):
        return said.lower()
    return said


# JSON that follows a schema


def conforming(schema: object, root: dict, hint: str = "") -> object:
    """A value that `schema` allows, taken from the words of `hint` where they offer one."""
    if not isinstance(schema, dict):
        return "yes"
    if "$ref" in schema:
        part: object = root
        for step in str(schema["$ref"]).removeprefix("#/").split("/"):
            part = part[step] if isinstance(part, dict) else {}
        return conforming(part, root, hint)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        values = schema["enum"]
        return next((value for value in values if str(value).lower() in hint.lower()), values[0])
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return conforming(schema[word][0], root, hint)
    return _typed(schema, root, hint)


def _typed(schema: dict, root: dict, hint: str) -> object:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _property(name, part, root, hint) for name, part in properties.items()}
    if kind == "array":
        count = max(1, schema.get("minItems", 1))
        return [conforming(schema.get("items", {}), root, hint) for _ in range(count)]
    if kind in ("integer", "number"):
        found = [int(text) for text in re.findall(r"\b\d+\b", hint)]
        low, high = schema.get("minimum", 0), schema.get("maximum", 10**9)
        return next((value for value in found if low <= value <= high), low)
    if kind == "boolean":
        return True
    return None if kind == "null" else _string(schema, hint)


def _property(name: str, schema: object, root: dict, hint: str) -> object:
    """The value of one property; a number or a name that stands beside its word in the hint is taken."""
    if isinstance(schema, dict) and schema.get("type") == "string" and not {"enum", "const"} & set(schema):
        if match := re.search(rf"\b{re.escape(name)}\b(?: is| of|:)? ([A-Z]\w+)", hint):
            return match[1]
        for known in (*_CAPITALS.values(), *(country.capitalize() for country in _CAPITALS)):
            if re.search(rf"\b{known}\b", hint):
                return known
    return conforming(schema, root, hint)


def _string(schema: dict, hint: str) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 100)
    names = re.findall(r"(?<=[a-z] )[A-Z][a-z]+", hint)
    text = names[0] if names else "value"
    if schema.get("format") == "date":
        return "2026-01-31"
    return text[:most].ljust(least, "x")


def _calls(talk: Talk) -> Iterator[Call]:
    if not talk.tools or (talk.messages and talk.messages[-1][0] == "tool"):
        return
    functions = [tool.get("function", {}) for tool in talk.tools]
    named = [one for one in functions if talk.must_call and one.get("name") == talk.must_call]
    fitting = named or [one for one in functions if _concerns(one, talk.last)]
    if not fitting and talk.must_call is None:
        return
    function = (fitting or functions)[0]
    schema = function.get("parameters", {})
    value = conforming(schema, schema if isinstance(schema, dict) else {}, talk.last)
    yield Call(name=function.get("name", ""), arguments=json.dumps(value))


def _concerns(function: dict, text: str) -> bool:
    """Whether a word of the tool's name or description is in the question."""
    words = set(
        re.findall(r"[a-z]{4,}", f"{function.get('name', '')} {function.get('description', '')}".lower())
    )
    return bool(
        (words - {"this", "that", "with", "from", "given", "function"})
        & set(re.findall(r"[a-z]{4,}", text.lower()))
    )
