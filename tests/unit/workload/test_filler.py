from hypothesis import given
from hypothesis import strategies as st

from bringup.workload.filler import OPENING_WORDS, WORDS, filler, filler_text

COUNTS = st.integers(min_value=1, max_value=700)


@given(count=COUNTS, number=st.integers(min_value=0, max_value=2**60))
def test_a_text_has_the_asked_words_and_one_space_between_them(count, number):
    text = filler_text(filler(), count, number=number, key=b"%d" % number).decode()
    assert text == " ".join(text.split())
    assert len(text.split()) == count
    assert set(text.split()) <= set(WORDS)


@given(shorter=COUNTS, longer=COUNTS, number=st.integers(min_value=0, max_value=2**60))
def test_a_shorter_text_is_the_beginning_of_a_longer_one(shorter, longer, number):
    shorter, longer = sorted((shorter, longer))
    short, long = (filler_text(filler(), count, number=number, key=b"key") for count in (shorter, longer))
    assert long.split()[:shorter] == short.split()


@given(start=st.integers(min_value=0, max_value=2**48 - 1))
def test_neighbouring_numbers_differ_in_their_first_word(start):
    firsts = [filler_text(filler(), 8, number=start + step, key=b"").split()[0] for step in range(64)]
    assert len(set(firsts)) == 64  # as far apart as the words allow


def test_every_number_has_another_opening():
    openings = {filler_text(filler(), OPENING_WORDS, number=number, key=b"") for number in range(50_000)}
    assert len(openings) == 50_000


def test_a_smaller_vocabulary_will_do():
    source = filler(WORDS[:32])
    openings = {filler_text(source, OPENING_WORDS, number=number, key=b"") for number in range(5_000)}
    assert len(openings) == 5_000
    assert set(filler_text(source, 500, number=3, key=b"k").decode().split()) <= set(WORDS[:32])


def test_no_word_stands_in_the_list_twice():
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isalpha() and word.islower() and word.isascii() for word in WORDS)
