"""The answers of the identification probes, by path, to what engines read out of them."""

from collections.abc import Mapping

from bringup.parse.json_value import Json, json_or_none
from bringup.parse.prometheus import Sample, read_samples
from bringup.values.exchange import Answer


def body_at(answers: Mapping[str, Answer], *paths: str) -> str:
    """The whole body of the first of `paths` that was answered with 200; empty when none was."""
    for path in paths:
        answer = answers.get(path)
        if answer is not None and answer.status == 200 and answer.problem is None:
            return answer.body
    return ""


def json_at(answers: Mapping[str, Answer], *paths: str) -> Json:
    """The JSON value of the first of `paths` that was answered with 200, or None."""
    return json_or_none(body_at(answers, *paths))


def has_metrics(answers: Mapping[str, Answer], path: str, prefix: str) -> bool:
    """Whether the metrics served at `path` have names that begin with `prefix`."""
    body = body_at(answers, path)
    return body.startswith(prefix) or f"\n{prefix}" in body


def samples_at(answers: Mapping[str, Answer], path: str, prefix: str) -> tuple[Sample, ...]:
    """The metrics at `path` whose names begin with `prefix`, without histogram buckets.

    Buckets are nine tenths of a page, and nothing here reads them.
    """
    lines = body_at(answers, path).split("\n")
    return read_samples(
        "\n".join(line for line in lines if line.startswith(prefix) and "_bucket{" not in line)
    )


def header_of(answer: Answer, name: str) -> str:
    """The value of one header (name in lower case), or an empty text."""
    return next((value for key, value in answer.headers if key == name), "")


def servers_in(answers: Mapping[str, Answer]) -> frozenset[str]:
    """What the `Server` headers name, in lower case."""
    return frozenset(header_of(answer, "server").lower() for answer in answers.values()) - {""}


def share_of(part: float | None, whole: float | None) -> float | None:
    """`part` of `whole`, 0..1; None when one is not known or the two cannot be such."""
    if part is None or whole is None or not 0 <= part <= whole or whole == 0:
        return None
    try:
        return part / whole
    except OverflowError:  # whole numbers beyond any float
        return None


def is_healthy(answers: Mapping[str, Answer], path: str) -> bool | None:
    """What the health endpoint says: 200 or a 5xx. None when it was not asked or does not exist there."""
    answer = answers.get(path)
    if answer is None or answer.status is None or 300 <= answer.status < 500:
        return None
    return answer.status < 300
