"""What llama-server takes after the flags that decide memory. Source: llama.cpp b11434, `common/arg.cpp`."""

import re
from collections.abc import Mapping

from bringup.parse.flag_values import WHOLE, Want, either, one_of

_SHARES = Want(
    "numbers between commas", lambda text: re.fullmatch(r"[\d.]+(\s*[,/]\s*[\d.]+)*", text) is not None
)
_LISTED = Want("a number of MiB", lambda text: re.fullmatch(r"\d+(,\d+)*", text) is not None)
_FLASH = one_of("on", "off", "auto", "", "1", "0", "true", "false", "enabled", "disabled", "-1")

WANTS: Mapping[str, Want] = {
    "--ctx-size": WHOLE,
    "--parallel": WHOLE,  # -1: its own choice
    "--batch-size": WHOLE,
    "--ubatch-size": WHOLE,
    "--n-gpu-layers": either(WHOLE, one_of("auto", "all")),
    "--n-cpu-moe": WHOLE,
    "--main-gpu": WHOLE,
    "--split-mode": one_of("none", "layer", "row", "tensor"),
    "--tensor-split": _SHARES,
    "--flash-attn": Want("`on`, `off` or `auto`", _FLASH.accepts),
    "--fit": one_of("on", "off"),
    "--fit-target": _LISTED,
    "--fit-ctx": WHOLE,
}
