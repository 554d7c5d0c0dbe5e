import gzip
import pickle

import pytest

from bringup.errors import UsageError
from bringup.transport.data_file import DataFile


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_read_again_and_again_packed_or_not(tmp_path, pack):
    path = tmp_path / "p.jsonl"
    text = '{"prompt": "é€😀"}\n' * 100_000
    path.write_bytes(pack(text.encode()))
    file = pickle.loads(pickle.dumps(DataFile(str(path))))
    assert "".join(file) == "".join(file) == text
    assert file.name == str(path)


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "p.bin"
    path.write_bytes(b"abc\xff\xfe def")
    with pytest.raises(UsageError, match=r"p.bin` is no UTF-8 text: .* near byte 3"):
        list(DataFile(str(path)))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*none.jsonl"):
        list(DataFile(str(tmp_path / "none.jsonl")))
