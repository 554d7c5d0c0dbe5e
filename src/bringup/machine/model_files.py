"""The files of the model that runs: its config and what its weight files weigh. Never a weight.

The model is named as the engine's command line names it: a folder, a GGUF file, or a hub id that lies in the
hub's cache. Of a GGUF file the start of its header is read, where the model's shape stands.

Source: `huggingface_hub/constants.py` and the layout of its cache (`models--ORG--NAME/snapshots/REVISION`).
"""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

import msgspec

from bringup.errors import BringupError
from bringup.machine import Subject, Target
from bringup.parse.gguf_header import read_gguf_start
from bringup.parse.gguf_model import gguf_config
from bringup.parse.sections import read_sections, why_unanswered
from bringup.values.host import NOT_RECORDED, CommandResult, HostSnapshot, ModelFiles, Question

_KEY = "machine.model_files"
_TEXTS = ("config.json", "hf_quant_config.json", "params.json")
_GGUF_START = 12_288  # bytes: the model's shape comes before its vocabulary, within the first two thousand

# A config is some kB; one of 200 kB and more is something else and is left out.
_SCRIPT = r"""
limited() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }
usual=huggingface/hub
place= file=
look() { # PLACE: a folder, or a file in one
  if limited 2 test -d "$1"; then place=$1
  elif limited 2 test -f "$1"; then file=$1 place=$(dirname "$1"); fi
}
look "$model"
# In a container, or by a path that starts where the engine was started.
case "$model" in
  /*) [ -n "$place" ] || [ -z "$pid" ] || look "/proc/$pid/root$model" ;;
  *) [ -n "$place" ] || [ -z "$pid" ] || look "/proc/$pid/cwd/$model" ;;
esac
if [ -z "$place" ]; then
  named=models--$(printf '%s' "$model" | sed 's|/|--|g')
  for cache in "$hub_cache" "${HF_HUB_CACHE:-}" "${HUGGINGFACE_HUB_CACHE:-}" "${hf_home:+$hf_home/hub}" \
    "${HF_HOME:+$HF_HOME/hub}" "${XDG_CACHE_HOME:-${HOME:-}/.cache}/$usual" "$home/.cache/$usual"
  do
    [ -n "$cache" ] && limited 2 test -d "$cache/$named/snapshots" || continue
    revision=; read -r revision 2>/dev/null <"$cache/$named/refs/main"
    place=$cache/$named/snapshots/$revision
    [ -n "$revision" ] && [ -d "$place" ] ||
      place=$(ls -d "$cache/$named/snapshots"/*/ 2>/dev/null | head -n 1)
    break
  done
fi
[ -n "$place" ] || { echo "@@ end"; exit 0; }
echo "@@ folder"
case "$place" in
  /proc/*) if [ -n "$file" ]; then dirname "$model"; else printf '%s\n' "$model"; fi ;;
  *) printf '%s\n' "$place" ;;
esac
case "$file" in *.gguf) if [ -r "$file" ]; then
  echo "@@ gguf ${file##*/}"
  limited 3 head -c @START@ "$file" | base64 2>/dev/null
fi ;; esac
for text in @TEXTS@; do
  [ -z "$file" ] && [ -r "$place/$text" ] || continue
  [ "$(limited 2 head -c 200001 "$place/$text" | wc -c)" -le 200000 ] || continue
  echo "@@ text $text"
  limited 3 cat "$place/$text"
  echo
done
echo "@@ sizes"
limited 5 ls -lnL "$place" 2>/dev/null | awk '/\.(safetensors|gguf|bin)$/ {
  size = $5; for (i = 1; i < 9; i++) sub(/^[^ ]+ +/, ""); print size, $0 }'
echo "@@ end"
""".replace("@TEXTS@", " ".join(_TEXTS)).replace("@START@", str(_GGUF_START))


def _questions(target: Target) -> tuple[Question, ...]:
    if target.model is None:
        return ()
    environment = dict(target.model_places)
    settings = (
        f"model={quote(target.model)}",
        f"pid={target.model_reader or ''}",
        f"hub_cache={quote(environment.get('HF_HUB_CACHE', ''))}",
        f"hf_home={quote(environment.get('HF_HOME', ''))}",
        f"home={quote(environment.get('HOME', ''))}",
    )
    return (Question(key=_KEY, script="\n".join((*settings, _SCRIPT)), time_limit_s=15.0),)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    sections = read_sections(result.stdout) if result else {}
    folder = sections.get("folder", "").strip()
    if result is not None and "end" not in sections and result.skipped != NOT_RECORDED:
        snapshot = replace(
            snapshot, missing=(*snapshot.missing, f"the model's files: {why_unanswered(result)}")
        )
    if not folder:
        return snapshot
    texts = tuple((name, text) for name in _TEXTS if (text := sections.get(f"text {name}")))
    texts += tuple(
        (mark.partition(" ")[2], config)
        for mark, start in sections.items()
        if mark.startswith("gguf ") and (config := _config_of(start, mark.partition(" ")[2]))
    )
    sizes = tuple(
        (name.rpartition("/")[2], int(size))
        for size, _, name in (line.partition(" ") for line in sections.get("sizes", "").splitlines())
        if size.isdigit() and name
    )
    return replace(snapshot, model_files=ModelFiles(folder=folder, texts=texts, sizes=sizes))


def _config_of(start: str, name: str) -> str | None:
    """The start of a GGUF file as the text of a config; None where it does not say what it holds."""
    try:
        config = gguf_config(read_gguf_start(b64decode(start), file=name), file=name)
    except (BringupError, ValueError):
        return None
    return msgspec.json.encode(config).decode()


SUBJECT = Subject(questions=_questions, read=_read)
