"""The files of a checkpoint against its index: what is missing, cut off, double or only a pointer."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from bringup.parse.safetensors import Shard, ShardIndex
from bringup.units import bytes_text
from bringup.values.finding import Evidence, Finding, Fix, Severity

_NUMBERED = re.compile(r"^(?P<series>.*?)-?(?P<number>\d+)-of-(?P<count>\d+)\.safetensors$")
_SMALLEST = 1024  # bytes: a git-lfs pointer has about 130, no shard so few


def shard_findings(
    shards: Sequence[Shard], sizes: Mapping[str, int], index: ShardIndex | None = None
) -> tuple[Finding, ...]:
    """All that is wrong with the files.

    `sizes` holds the bytes of every weight file in the folder, `shards` the headers of those that could be
    read; `index` is None where a checkpoint has none.
    """
    wanted = set(index.files) if index else _series(sizes)
    found = [
        *_missing(wanted, sizes),
        *_pointers(sizes),
        *_cut(shards, sizes),
        *_double(shards, index),
        *_extra(wanted if index else set(), sizes),
    ]
    if index is not None:
        found += _misplaced(index, shards)
    return tuple(found)


def _finding(what: str, summary: str, files: Sequence[str], action: str, **more: Severity) -> Finding:
    return Finding(
        id=f"weights.{what}",
        severity=more.get("severity", Severity.FAILURE),
        summary=summary,
        action=action,
        evidence=tuple(Evidence(source="model folder", text=file) for file in files[:10]),
        fixes=(Fix(type="file", name="download", new="again"),) if what != "extra_files" else (),
    )


def _series(sizes: Mapping[str, int]) -> set[str]:
    """The files that the numbers in the names promise: `-of-00004` means four."""
    wanted: set[str] = set()
    for file in sizes:
        if match := _NUMBERED.match(file):
            count = int(match["count"])
            width = len(match["number"])
            if count <= 10_000:
                name = file[: match.start("number")] + "{}" + file[match.end("number") :]
                wanted.update(name.format(str(number).zfill(width)) for number in range(1, count + 1))
    return wanted


def _missing(wanted: set[str], sizes: Mapping[str, int]) -> list[Finding]:
    missing = sorted(wanted - set(sizes))
    if not missing:
        return []
    summary = f"{len(missing)} of {len(wanted)} shards are missing: {missing[0]}"
    return [_finding("missing_shard", summary, missing, "download the missing files")]


def _pointers(sizes: Mapping[str, int]) -> list[Finding]:
    small = sorted(file for file, size in sizes.items() if size < _SMALLEST and file.endswith(".safetensors"))
    if not small:
        return []
    summary = f"{len(small)} shards have under {_SMALLEST} bytes: empty, or git-lfs pointers"
    return [_finding("lfs_pointer", summary, small, "run `git lfs pull`, or download the files again")]


def _cut(shards: Sequence[Shard], sizes: Mapping[str, int]) -> list[Finding]:
    cut = [
        f"{shard.file}: {bytes_text(sizes[shard.file])} of {bytes_text(shard.needed)}"
        for shard in shards
        if sizes.get(shard.file, shard.needed) < shard.needed
    ]
    if not cut:
        return []
    return [
        _finding("truncated", f"{len(cut)} shards are cut off: {cut[0]}", cut, "download the files again")
    ]


def _double(shards: Sequence[Shard], index: ShardIndex | None) -> list[Finding]:
    """The same tensors in two sets of files: without an index an engine may load both."""
    counts = Counter(tensor.name for shard in shards for tensor in shard.tensors)
    double = sorted(name for name, count in counts.items() if count > 1)
    if double:
        severity = Severity.FAILURE if index is None else Severity.WARNING
        summary = f"{len(double)} tensors are in more than one file, the first `{double[0]}`"
        return [_finding("double", summary, double, "keep one set of weight files", severity=severity)]
    schemes = {_scheme(shard.file) for shard in shards}
    if index is None and len(schemes) > 1:
        summary = f"weight files of {len(schemes)} naming schemes lie side by side"
        files = sorted(shard.file for shard in shards)
        action = "keep one set of weight files"
        return [_finding("naming_schemes", summary, files, action, severity=Severity.WARNING)]
    return []


def _scheme(file: str) -> str:
    return re.sub(r"\d+", "#", file)


def _extra(wanted: set[str], sizes: Mapping[str, int]) -> list[Finding]:
    extra = sorted(set(sizes) - wanted) if wanted else []
    if not extra:
        return []
    taken = bytes_text(sum(sizes[file] for file in extra))
    summary = f"{len(extra)} weight files are not in the index ({taken}): the engine does not load them"
    action = "nothing, or remove them"
    return [_finding("extra_files", summary, extra, action, severity=Severity.NOTE)]


def _misplaced(index: ShardIndex, shards: Sequence[Shard]) -> list[Finding]:
    """Tensors that the index promises in a file whose header has none of that name."""
    there = {shard.file: {tensor.name for tensor in shard.tensors} for shard in shards}
    lost = [name for name, file in index.places if file in there and name not in there[file]]
    if not lost:
        return []
    summary = f"{len(lost)} tensors of the index are not in their files, the first `{lost[0]}`"
    return [_finding("index_mismatch", summary, lost, "download index and files of the same revision")]
