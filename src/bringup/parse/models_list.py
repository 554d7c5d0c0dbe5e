"""The models endpoint of any engine to `ServedModel` records.

Source: vLLM 0.32.0, SGLang 0.5.23 and llama.cpp (recorded bodies), Ollama's `/api/tags`; fields that only
some servers send are taken where they are.
"""

from bringup.parse.json_value import Json, at, int_at, json_or_none, list_at, text_at
from bringup.values.engine import ServedModel

# the longest prompt + answer, as the servers call it: vLLM and SGLang; LM Studio; routers and clouds
_CONTEXT = (
    ("max_model_len",),
    ("meta", "n_ctx"),
    ("loaded_context_length",),
    ("max_context_length",),
    ("context_length",),
    ("context_window",),
    ("max_seq_len",),
)


def read_models(body: str) -> tuple[ServedModel, ...]:
    """The models that the body lists, in its order; empty when it lists none or is something else.

    >>> read_models('{"data": [{"id": "m", "max_model_len": 2048}]}')[0].context_tokens
    2048
    """
    return models_in(json_or_none(body))


def is_models_list(body: str) -> bool:
    """Whether the body has the form of a models list, even of an empty one."""
    value = json_or_none(body)
    return isinstance(at(value, "data"), list) or isinstance(at(value, "models"), list)


def models_in(value: Json) -> tuple[ServedModel, ...]:
    """The models of an already parsed body."""
    rows = list_at(value, "data") or list_at(value, "models") or (value if isinstance(value, list) else [])
    return tuple(model for row in rows if (model := _model(row)) is not None)


def owners_in(value: Json) -> frozenset[str]:
    """What the entries of a models list name as `owned_by`, in lower case: most engines name themselves."""
    owners = (text_at(row, "owned_by") for row in list_at(value, "data"))
    return frozenset(owner.lower() for owner in owners if owner)


def _model(row: Json) -> ServedModel | None:
    name = text_at(row, "id") or text_at(row, "name") or text_at(row, "model")
    if not name:
        return None
    return ServedModel(
        id=name,
        context_tokens=_first(row, _CONTEXT),
        training_context_tokens=_positive(int_at(row, "meta", "n_ctx_train")),
        parameters=_positive(int_at(row, "meta", "n_params")),
        weights_bytes=_positive(int_at(row, "meta", "size")) or _positive(int_at(row, "size")),
        vocabulary=_positive(int_at(row, "meta", "n_vocab")),
        root=text_at(row, "root") or None,
        owned_by=text_at(row, "owned_by") or None,
        is_adapter=bool(text_at(row, "parent")),
    )


def _first(row: Json, paths: tuple[tuple[str, ...], ...]) -> int | None:
    found = (_positive(int_at(row, *path)) for path in paths)
    return next((number for number in found if number is not None), None)


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None
