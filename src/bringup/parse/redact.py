"""Command lines and environments without their secrets."""

import re
from collections.abc import Collection

REDACTED = "[redacted]"

# The whole last word: `--max-num-batched-tokens` and TOKENIZERS_PARALLELISM are no secrets.
_SECRET_NAME = re.compile(
    r"(^|_)(API_?KEYS?|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?|AUTHORIZATION|COOKIE)(_ID)?$",
    re.IGNORECASE,
)


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """`text` with every secret replaced by `[redacted]`; `secrets` are values known to be secret."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, REDACTED)
    return text


def redact_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same arguments with the values of secret flags replaced.

    >>> redact_argv(("vllm", "--api-key", "abc", "def", "--port", "1", "--hf-token=x", "m"))
    ('vllm', '--api-key', '[redacted]', '[redacted]', '--port', '1', '--hf-token=[redacted]', 'm')
    """
    shown: list[str] = []
    is_secret = False
    for argument in argv:
        if argument.startswith("-"):
            name, sign, _ = argument.partition("=")
            names_secret = _is_secret(name.lstrip("-").replace("-", "_"))
            shown.append(f"{name}={REDACTED}" if names_secret and sign else argument)
            is_secret = names_secret and not sign
        else:
            shown.append(REDACTED if is_secret else argument)
    return tuple(shown)


def redact_environment(environment: dict[str, str]) -> dict[str, str]:
    """The same variables with secret values replaced.

    >>> redact_environment({"HF_TOKEN": "hf_x", "TOKENIZERS_PARALLELISM": "false"})
    {'HF_TOKEN': '[redacted]', 'TOKENIZERS_PARALLELISM': 'false'}
    """
    return {name: REDACTED if _is_secret(name) else value for name, value in environment.items()}


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
