"""Lines that terminals, forms and wrappers broke, put together again."""

import pytest

from bringup.parse.rejoined import rejoined

MESSAGE = (
    "ValueError: Weight input_size_per_partition = 64 is not divisible by weight quantization block_k = 128."
)


def _texts(text: str) -> list[str]:
    return [one.text for one in rejoined(text)]


def test_a_terminal_cuts_within_words() -> None:
    cut = "\n".join(MESSAGE[at : at + 41] for at in range(0, len(MESSAGE), 41))
    assert rejoined(f"{cut}\n")[0].is_wrapped
    assert f"{MESSAGE}\n" in _texts(f"{cut}\n")


def test_a_form_breaks_between_words() -> None:
    text = MESSAGE.replace(" by weight", " by\nweight")
    assert _texts(f"{text}\n")[0] == f"{MESSAGE}\n"


def test_numbers_are_those_of_the_input() -> None:
    (one, *_) = rejoined(
        "first line, which is short\n" + MESSAGE.replace(" by weight", " by\nweight") + "\nlast\n"
    )
    assert [list(span) for span in one.lines][:2] == [[1], [2, 3]]


def test_lines_with_prefixes_stay_lines_of_their_own() -> None:
    text = (
        "INFO 03-02 08:15:32 [utils.py:993] Found nccl from library libnccl.so.2\n"
        "INFO 03-02 08:15:32 [pynccl.py:69] vLLM is using nccl==2.26.2 and something more\n"
        "Traceback (most recent call last):\n"
        '  File "/x/vllm/v1/engine/core.py", line 144, in __init__\n'
        "    kv_cache_config = self._initialize_kv_caches(vllm_config)\n"
        "ValueError: no\n"
    )
    assert not rejoined(text)


def test_a_frame_without_its_end_goes_on_below() -> None:
    text = '  File "/venv/lib/python3/site-packages/vllm/v1/engine/core.py",\nline 305, in _init_caches\n'
    assert _texts(text)[0].splitlines() == [text.replace("\n", " ").strip().join(("  ", ""))]


@pytest.mark.parametrize("quote", ['"', "`", '\\"', "\u2019"])
def test_quotes_are_alike(quote: str) -> None:
    assert _texts(f"No module named {quote}vllm._C{quote}\n") == ["No module named 'vllm._C'\n"]


def test_a_message_passed_on_has_its_lines_again() -> None:
    text = r"failed: RuntimeError('Traceback (most recent):\n  File \"/x/a.py\", line 1, in f\nKeyError: 1')"
    (one,) = rejoined(f"{text}\n")
    assert one.text.splitlines()[1:] == ['  File "/x/a.py", line 1, in f', "KeyError: 1')"]
    assert {span.start for span in one.lines} == {1}


def test_a_table_of_equal_lines_is_not_wrapped() -> None:
    table = "+" + "-" * 89 + "+\n"
    row = "|" + " " * 89 + "|\n"
    assert not any(one.is_wrapped for one in rejoined((table + row) * 5))


def test_a_block_of_characters_is_no_log() -> None:
    assert not rejoined(("x" * 76 + "\n") * 500)
