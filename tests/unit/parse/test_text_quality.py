"""Garbage is recognised, and language, code, tables, JSON and numbers are not taken for it."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.text_quality import garble_signs, is_salad


def names(text):
    return {sign.name for sign in garble_signs(text)}


@pytest.mark.parametrize(
    ("text", "name", "is_hard"),
    [
        ("!" * 40, "one character", True),
        ("The sea " + "!" * 64, "one character", True),
        ("?" * 200, "one character", True),
        ("0" * 64, "one character", False),
        ("Th\ufffd c\ufffdp\ufffdtal is P\ufffdris", "replacement characters", True),
        ("one \ufffd in a long and otherwise sound answer about the sea", "replacement characters", False),
        ("a\x00b\x01c\x02d\x03 text", "control characters", True),
        ("the sea and the sea and " * 10, "loop", False),
        ("Hello. " + "no no no no " * 20, "loop", False),
        ("Sure!\n" + "def f():\n    return 1\n" * 30, "loop", False),
        ("海海海海海海" * 12, "one character", False),
        ("我不知道" * 20, "loop", False),
        ("the что 的 ing Хот der 数 wird это and 中 los тот", "mixed scripts", False),
        ("xqzjf kwrtp bnmsd plkjh grtwq zxcvb nmlkj hgfds qwrtp vbnmk lkjhg fdsrt", "no words", False),
        ("Paris.<|im_end|>\n<|im_start|>user", "template tokens", False),
        ("Paris.</s>", "template tokens", False),
    ],
)
def test_garbage(text, name, is_hard):
    signs = {sign.name: sign.is_hard for sign in garble_signs(text)}
    assert signs.get(name) is is_hard
    assert all(sign.words for sign in garble_signs(text))


def test_few_words_in_another_order_each_time():
    draw = random.Random(7)
    text = " ".join(draw.choice(("sea", "ship", "storm", "wind")) for _ in range(200))
    assert "few words" in names(text)


PROSE = {
    "english": "The quick brown fox jumps over the lazy dog, and nobody in the village was surprised by it.",
    "german": "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz war ein Gesetz.",
    "french": "Dès Noël, où un zéphyr haï me vêt de glaçons würmiens, je dîne d'exquis rôtis de bœuf.",
    "spanish": "El niño comió piña, ¿verdad? ¡Qué sorpresa tan grande para todos nosotros aquí!",
    "polish": "W Szczebrzeszynie chrząszcz brzmi w trzcinie i Szczebrzeszyn z tego słynie.",
    "czech": "Strč prst skrz krk. Příliš žluťoučký kůň úpěl ďábelské ódy, a pak čtvrt hodiny mlčel.",
    "finnish": "Järjestelmällistyttämättömyydelläänsäkäänköhän he olivat niin ylpeitä tästä asiasta.",
    "turkish": "Pijamalı hasta yağız şoföre çabucak güvendi ve ışığı söndürüp gitti.",
    "vietnamese": "Tiếng Việt là ngôn ngữ chính thức của nước này và được nói bởi nhiều người.",
    "welsh": "Cwm fjord bank glyphs vext quiz; y mae'r gwynt yn chwythu dros y mynydd hwn.",
    "russian": "Съешь же ещё этих мягких французских булок, да выпей чаю, и ни о чём не думай.",
    "greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, είπε ο καπετάνιος κοιτώντας τη θάλασσα.",
    "arabic": "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت يَحظى الضَجيعُ بِها نَجلاءَ مِعطارِ",
    "hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה איך הקליטה.",
    "hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले।",
    "thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "korean": "다람쥐 헌 쳇바퀴에 타고파. GPU 메모리(記憶)가 모자라면 vLLM 서버가 죽습니다.",
    "japanese": "いろはにほへと。GPUメモリが足りないとvLLMサーバーは落ちます。東京は日本の首都です。",
    "chinese": "天地玄黄,宇宙洪荒。请使用Python编写一个函数,把两个数字相加,然后用pytest测试它。",
    "mixed list": "Hello, Привет, 你好, こんにちは, 안녕하세요, مرحبا, שלום, Γειά σου, नमस्ते.",
    "physics": "The energy E = ħω with α ≈ 1/137, λ = h/p, and Δx·Δp ≥ ħ/2; μ and π are in β decay, φ too.",
    "emoji": "Great job! 🎉🎉🎉 You did it! 👍👍 See you 👋🏽 in 2027 🇫🇷.",
    "laughter": "Hahahahahahaha, that is so funny!!! Nooooooo way!!!",
}
CODE = [
    "def add(a, b):\n    return a + b\n\n\nassert add(1, 2) == 3\n",
    'int main(void) {\n    for (int i = 0; i < 10; i++) {\n        printf("%d", i);\n    }\n}\n',
    "SELECT a.id, b.name FROM a JOIN b ON a.id = b.id WHERE a.x > 10 ORDER BY b.name;",
    "<html><body><table><tr><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table></body></html>",
    "| name | size |\n|------|------|\n| a    | 1    |\n| b    | 2    |\n| c    | 3    |\n",
    "# Title\n\n" + "=" * 60 + "\n\nSome text below a rule.\n\n" + "-" * 60 + "\n",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26",
    "1. 1\n2. 2\n3. 3\n4. 4\n5. 5\n",
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798",
    "[[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]",
    "10000000000000000000 is ten to the nineteenth.",
    "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQgdGV4dA== decodes to a greeting.",
    "Paris",
    "",
    "   \n",
]


@pytest.mark.parametrize("text", [*PROSE.values(), *CODE])
def test_sound_texts(text):
    assert garble_signs(text) == ()


WORDS = {language: text.replace(",", " ").replace(".", " ").split() for language, text in PROSE.items()}


@given(
    st.sampled_from([language for language in WORDS if language != "mixed list"]).flatmap(
        lambda language: st.lists(
            st.permutations(WORDS[language]).map(lambda words: " ".join(words) + ".\n"),
            min_size=1,
            max_size=6,
        )
    )
)
def test_shuffled_prose_of_any_language_is_no_garbage(sentences):
    assert not is_salad("".join(sentences))
    assert not names("".join(sentences)) & {"one character", "mixed scripts", "no words", "template tokens"}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="ascii")),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text("abcdefgh_", min_size=1), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(json_values, st.sampled_from([None, 1, 4]))
def test_json_is_no_salad(value, indent):
    assert not is_salad(json.dumps(value, indent=indent).replace("!", "."))


@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=80),
    st.sampled_from([", ", "\n", " | ", "\t"]),
)
def test_numbers_are_no_salad(numbers, between):
    assert not is_salad(between.join(map(str, numbers)))


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from(["-", "=", "─"]))
def test_tables_are_no_garbage(columns, rows, rule):
    head = "| " + " | ".join(f"column {number}" for number in range(columns)) + " |\n"
    line = "|" + "|".join(rule * 12 for _ in range(columns)) + "|\n"
    body = "".join(
        "| " + " | ".join(str(row * column) for column in range(columns)) + " |\n" for row in range(rows)
    )
    assert not is_salad(head + line + body)


@given(st.text(max_size=400))
def test_never_raises(text):
    garble_signs(text)


@pytest.mark.parametrize("character", ["!", "?", "$", "@"])
@given(length=st.integers(24, 5000))
def test_a_run_of_one_sign_is_always_hard(character, length):
    assert is_salad(character * length)


def test_replacement_characters_all_the_way_are_hard():
    assert is_salad("\ufffd" * 40)


def test_large_texts_take_no_time_to_speak_of():
    assert "loop" in names("the cat sat on the mat " * 300_000)
    assert garble_signs(" ".join(map(str, range(200_000)))) == ()


def test_random_letters_are_no_words():
    draw = random.Random(3)
    words = ("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(60))
    assert "no words" in names(" ".join(words))
