"""What a model's file is that does not begin as its loader expects.

Source: llama.cpp 2023-08 to b11434 `ggml/src/gguf.cpp` ("invalid magic characters"; before 2025
"invalid magic number", in hexadecimal), gguf-py `gguf_reader.py` ("GGUF magic invalid"), ollama `fs/ggml`
("invalid file magic"), llama-cpp-python 0.1 ("unknown (magic, version) combination"), safetensors
`src/tensor.rs` (header length).
"""

import re
from collections.abc import Iterator

from bringup.parse.file_beginning import Beginning, beginning_of, beginning_of_length
from bringup.rules import Match, Rule
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Fix

_MAGIC = re.compile(
    r"(?i:invalid|bad|unknown|wrong|unexpected|incorrect|not a valid|unsupported)[^\n:]{0,30}?"
    r"(?i:magic(?: number| characters| bytes| value)?)"
    r"(?:, version\) combination)?[:=]?\s*\(?(?:got |is |found |was )?[`'\"]?"
    r"(?P<found>0x[0-9a-fA-F]{6,16}|[0-9a-fA-F]{8}|[^\s'\"`,;)]{2,8})"
)
_LENGTH = re.compile(
    r"(?i:header (?:size|length)|header(?: is)? too (?:large|big)|HeaderTooLarge)\D{0,24}"
    r"(?P<length>\d{10,20})"
)
_UNTOLD = re.compile(
    r"(?i:invalid file magic|gguf magic invalid|invalid gguf magic|\(bad magic\)"
    r"|not a (?:valid )?gguf(?: model)?(?: file)?\b|missing gguf magic|not in gguf format)"
)
_KINDS = {
    Beginning.LFS_POINTER: "file.lfs_pointer",
    Beginning.WEB_PAGE: "gguf.wrong_file",
    Beginning.GGUF: "gguf.arch",
    Beginning.ZEROS: "file.corrupt",
}
_FIXES = {
    "file.lfs_pointer": (
        Fix(
            type="file",
            name="model file",
            old="a pointer",
            new="git lfs pull, or `hf download`",
            cost="the download",
        ),
    ),
    "file.corrupt": (
        Fix(
            type="file",
            name="model file",
            old="broken",
            new="downloaded again, its sha256 compared",
            cost="the download",
        ),
    ),
    "gguf.wrong_file": (
        Fix(type="file", name="model file", old="another file", new="the GGUF file itself, by `hf download`"),
    ),
    "gguf.arch": (
        Fix(
            type="package",
            name="llama.cpp",
            old="older than GGUF",
            new="a newer build, with whatever holds it",
        ),
    ),
}
_NEXT = "head -c 64 FILE | xxd; ls -lL FILE"


def read(case: Case) -> tuple[Match, ...]:
    """What the file is by the bytes that the message prints; that it is none where it prints none."""
    told = list(_told(case))
    if told:
        line, what, is_gguf = told[0]
        return (_match(line, what, is_gguf=is_gguf),)
    lines = tuple(line for line, _ in case.matches(_UNTOLD))[:4]
    if not lines:
        return ()
    says = "the file does not begin as a GGUF file: a pointer, a web page or another format"
    return (
        Match(kind="file.lfs_pointer", sure=0.6, lines=lines, summary=says, fixes=_FIXES["file.lfs_pointer"],
              explanation="About 130 bytes are a Git LFS pointer; some kilobytes a web page.",
              next_measurement=_NEXT),
        Match(kind="gguf.wrong_file", sure=0.55, lines=lines, summary=says, fixes=_FIXES["gguf.wrong_file"],
              next_measurement=_NEXT),
        Match(kind="file.corrupt", sure=0.5, lines=lines, summary=says, fixes=_FIXES["file.corrupt"],
              next_measurement=_NEXT),
    )  # fmt: skip


def _told(case: Case) -> Iterator[tuple[CaseLine, Beginning, bool]]:
    for line, found in case.matches(_MAGIC):
        what = beginning_of(found["found"])
        if what is not None:
            yield line, what, True
    for line, found in case.matches(_LENGTH):
        what = beginning_of_length(int(found["length"]))
        if what is not None:
            yield line, what, False


def _match(line: CaseLine, what: Beginning, *, is_gguf: bool) -> Match:
    kind = _KINDS.get(what, "gguf.wrong_file")
    if not is_gguf and kind == "gguf.wrong_file":
        kind = "file.corrupt"
    return Match(
        kind=kind,
        sure=0.97,
        lines=(line,),
        summary=f"the file given as the model is {what} by its first bytes",
        explanation="The file is newer than the program that reads it."
        if kind == "gguf.arch"
        else "The loader prints the bytes that it found where it expected those of its own format.",
        fixes=_FIXES[kind],
        next_measurement=_NEXT,
    )


RULE = Rule(
    kinds=("file.lfs_pointer", "gguf.wrong_file", "gguf.arch", "file.corrupt"),
    title="what the file is",
    literals=(
        "magic", "Magic", "eader size", "eader length", "eader too", "eader is too", "HeaderTooLarge",
        "a GGUF", "a gguf", "a valid GGUF", "a valid gguf", "in GGUF format",
        "in gguf format", "GGUF",
    ),
    read=read,
    meaning="A loader found other bytes than those that its format begins with, and prints them.",
    told_apart="By those bytes, as text or as a number in either order: `vers` (73726576) is a Git LFS "
    "pointer, "
    "`<!DO` or `<htm` a web page, `PK` an archive, `tjgg` an older ggml format.",
    cure="Download the file itself, not its page or its pointer; convert an older format anew.",
    source="llama.cpp `ggml/src/gguf.cpp`; gguf-py; ollama `fs/ggml`; safetensors `src/tensor.rs`.",
)  # fmt: skip
