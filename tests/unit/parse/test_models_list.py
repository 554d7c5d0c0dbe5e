import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.parse.models_list import is_models_list, owners_in, read_models


def listing(*rows: object) -> str:
    return json.dumps({"object": "list", "data": list(rows)})


@pytest.mark.parametrize(
    "fields",
    [
        {"max_model_len": 4096},
        {"meta": {"n_ctx": 4096, "n_ctx_train": 8192}},
        {"loaded_context_length": 4096, "max_context_length": 131072},
        {"context_length": 4096},
        {"max_model_len": 4096.0},
    ],
)
def test_the_context_by_any_name(fields: dict[str, object]) -> None:
    assert read_models(listing({"id": "m", **fields}))[0].context_tokens == 4096


@pytest.mark.parametrize("value", [0, -1, None, "4096", True, [4096], 1.5])
def test_what_is_no_context_length_is_none(value: object) -> None:
    assert read_models(listing({"id": "m", "max_model_len": value}))[0].context_tokens is None


def test_an_adapter_is_known_by_its_parent() -> None:
    base, adapter = read_models(listing({"id": "base", "parent": None}, {"id": "sql", "parent": "base"}))
    assert (base.is_adapter, adapter.is_adapter) == (False, True)


def test_entries_without_a_name_are_left_out_and_the_order_kept() -> None:
    rows = ({"id": "b"}, {"id": ""}, {"id": 7}, None, "x", {"name": "a"})
    assert [model.id for model in read_models(listing(*rows))] == ["b", "a"]


def test_ollamas_own_list() -> None:
    assert read_models('{"models": [{"name": "qwen2.5:7b", "size": 10}]}')[0].weights_bytes == 10


def test_an_empty_list_is_a_list_and_a_page_is_none() -> None:
    assert is_models_list('{"object": "list", "data": []}')
    assert not is_models_list("<html>")
    assert not is_models_list('{"error": "no"}')


def test_owners() -> None:
    assert owners_in({"data": [{"owned_by": "vLLM"}, {"owned_by": None}, {}]}) == {"vllm"}


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_crashes(body: str) -> None:
    assert isinstance(read_models(body), tuple)
