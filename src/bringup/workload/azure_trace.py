"""Azure's traces of language-model requests: when they came and how long they were.

Source: Azure/AzurePublicDataset, `AzureLLMInferenceTrace_{code,conv}.csv` of 2023 and the week of 2024:
`TIMESTAMP,ContextTokens,GeneratedTokens`, then `2023-11-16 18:17:03.9799600,4808,10` or
`2024-05-10 00:00:00.009930+00:00,2162,5`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from bringup.workload.sample import Format, Sample
from bringup.workload.source import Raw, Source, lines, unreadable

_HEADING = "timestamp,contexttokens,generatedtokens"
_WANTED = "2023-11-16 18:17:03.9799600,4808,10"


def _looks_like(text: str) -> bool:
    return text.lstrip()[: len(_HEADING)].lower() == _HEADING


def _cut(source: Source) -> Iterator[Raw]:
    return islice(lines(source), 1, None)


def _read(raw: Raw, name: str) -> Sample:
    try:
        time, context, generated, *_ = raw.text.strip().split(",")
        at = datetime.fromisoformat(time.strip())
        input_tokens, output_tokens = int(context), int(generated)
    except ValueError:
        raise unreadable(name, raw.line, f"`{_WANTED}`", raw.text.strip()) from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return Sample(input_tokens=max(1, input_tokens), output_tokens=max(1, output_tokens), at_s=at.timestamp())


FORMAT = Format(
    name="azure",
    words="an Azure trace",
    wanted=f"TIMESTAMP,ContextTokens,GeneratedTokens, then {_WANTED}",
    looks_like=_looks_like,
    cut=_cut,
    read=_read,
    has_times=True,
)
