"""A recording without secrets: the one gate that everything recorded passes."""

from collections.abc import Collection

import msgspec

from bringup.parse.redact import redact
from bringup.values.recording import Recording


def scrub(recording: Recording, secrets: Collection[str] = ()) -> Recording:
    """The same recording with every string redacted."""

    def clean(value: object) -> object:
        if isinstance(value, str):
            return redact(value, secrets)
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items()}
        if isinstance(value, list):
            return [clean(item) for item in value]
        return value

    return msgspec.convert(clean(msgspec.to_builtins(recording)), Recording)
