import pytest

from bringup.parse.short_answer import gives_number, says_word


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Paris", True),
        ("paris.", True),
        ("The capital is **Paris**!", True),
        ("PARIS", True),
        ("Pàris", True),
        ("Comparison", False),
        ("Parisian", False),
        ("", False),
    ],
)
def test_a_word_of_its_own(text, says):
    assert says_word(text, "Paris") is says


@pytest.mark.parametrize(
    ("text", "gives"),
    [
        ("91", True),
        ("91.", True),
        ("**91**", True),
        ("7 x 13 = 91", True),
        ("The result is 91.", True),
        ("\\boxed{91}", True),
        ("7 x 13 = 7 x 10 + 7 x 3 = 70 + 21 = 91", True),
        ("91, as 70 + 21 shows", True),
        ("It equals 91 because 7 x 13 is what we want", True),
        ("77", False),
        ("7 x 13 is 77", False),
        ("7 x 13 = 77, which is not 91 but 77", False),
        ("191", False),
        ("91.5", False),
        ("9 1", False),
        ("-91", False),
        ("", False),
        ("no idea", False),
    ],
)
def test_a_number_as_the_result(text, gives):
    assert gives_number(text, 91) is gives


def test_thousands_may_be_separated():
    assert gives_number("1,024", 1024)
    assert gives_number("It is 1024.", 1024)
