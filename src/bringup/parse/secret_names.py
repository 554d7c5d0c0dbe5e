"""Which names stand for secrets: `HF_TOKEN` and `--api-key` do, `max_tokens` and `eos_token` do not."""

import re
from enum import StrEnum


class Kind(StrEnum):
    """What the value behind a name is, by the name alone."""

    HEADER = "header"  # authorization and cookies: everything up to the end of the line
    STRONG = "strong"  # passwords and keys: any value
    TOKEN = "token"  # noqa: S105 - a kind of name; a token of some service: any value that is not a number or a tokenizer's token
    WEAK = "weak"  # the bare word `token`, `secret`, `auth`: only a value that looks random


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPLIT = re.compile(r"[-_.\s]+")
_HEADERS = {"authorization", "proxy-authorization", "cookie", "set-cookie", "cookie2"}

# Last words of names that speak about a secret without holding it.
_ABOUT = _words(
    """
    file files path paths dir directory folder id ids name names type types url uri host port endpoint ref
    refs count counts length len limit limits size max min budget enabled enable disabled disable required
    policy expiry expires expiration ttl timeout env var vars algorithm alg map mapping provider providers
    rotation field fields header headers prefix suffix hint status usage set sets mode backend parser dim
    version exists valid source location manager store helper parallel rate throughput latency seconds ms
    total sum bucket index indices embedding embeddings logprob logprobs pattern regex format class error
    errors mismatch needed used checks prompt created str spans mask masks ratio factor position positions
    """
)
_WHICH = re.compile(
    r"read|write|prod|dev|staging|old|new|value|default|b64|base64|plain|primary|secondary|\d+"
)
_STRONG = _words(
    """
    password passwords passwd passphrase passcode pwd secret secrets credential credentials apikey apikeys
    accesskey secretkey privatekey accesstoken authtoken authkey
    """
)
_KEY_OF = _words(
    """
    api access secret private auth encryption signing master account subscription shared admin service
    deploy webhook hmac aes license salt session openai anthropic wandb tailscale user root storage
    """
)
# What stands before `token` in the names of engines, tokenizers and benchmarks.
_NO_SECRET_TOKEN = _words(
    """
    max min num n eos bos pad unk sep cls mask stop start end begin first last next prev previous per output
    input prompt completion generated image video audio vision special added think thinking reasoning tool
    call draft accepted bonus target ignore prefix suffix middle fim decoder encoder new cached total avg
    mean inter dist placeholder context patch newline text by of to single one each multi every any the a
    this invalid unexpected unknown missing sampled chosen top role delimiter separator kv implicit pre post
    byte padding sink additional language lang eot eom eod extra class boi eoi speculative wrong bad final
    control mm
    """
)
_TOKENS_OF = _words("api access auth bearer hf secret")
_ENDINGS = ("password", "passwd", "passphrase", "apikey")  # run together with another word: PGPASSWORD
_NO_SECRETS = {"pwd", "oldpwd", "setcredential", "setcredentialencrypted", "loadcredential"}


def secret_kind(name: str) -> Kind | None:
    """What kind of secret a value of this name is; None when it is none.

    >>> secret_kind("HF_TOKEN"), secret_kind("--api-key"), secret_kind("clientSecret")
    (<Kind.TOKEN: 'token'>, <Kind.STRONG: 'strong'>, <Kind.STRONG: 'strong'>)
    >>> [secret_kind(name) for name in ("max_tokens", "--tokenizer", "eos_token", "HF_TOKEN_PATH", "PWD")]
    [None, None, None, None, None]
    """
    bare = name.strip("-_. ")
    if bare.lower() in _HEADERS:
        return Kind.HEADER
    if bare.lower() in _NO_SECRETS:
        return None
    words = [word for word in _SPLIT.split(_CAMEL.sub("_", bare).lower()) if word]
    if not words or words[-1] in _ABOUT:
        return None
    while len(words) > 1 and _WHICH.fullmatch(words[-1]):
        words.pop()
    return _kind_of_words(words, is_constant=bare.isupper())


def _kind_of_words(words: list[str], *, is_constant: bool) -> Kind | None:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if _STRONG.intersection(words) or last.endswith(_ENDINGS):
        is_alone = len(words) == 1 and last.startswith(("secret", "credential"))
        return Kind.WEAK if is_alone and not is_constant else Kind.STRONG
    if last in {"key", "keys"}:
        return Kind.STRONG if before in _KEY_OF else None
    if last == "pass":
        return Kind.STRONG if before and is_constant else None
    if last == "tokens":
        return Kind.TOKEN if before in _TOKENS_OF else None
    if last == "token":
        return _token_kind(before, is_constant=is_constant)
    return Kind.WEAK if last in {"auth", "bearer", "identitytoken"} else None


def _token_kind(before: str, *, is_constant: bool) -> Kind | None:
    if before in _NO_SECRET_TOKEN:
        return None
    return Kind.TOKEN if before or is_constant else Kind.WEAK
