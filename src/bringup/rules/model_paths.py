"""The model, its tokenizer or an adapter is not where the engine looks for it.

Source: transformers 4.20 to 5.x `utils/hub.py` (`cached_file`), `tokenization_utils_base.py`,
`modeling_utils.py`; huggingface_hub 0.16 to 1.x `utils/_validators.py`; vLLM 0.5 to 0.33
`transformers_utils/config.py`, `repo_utils.py`, `lora/worker_manager.py`; PyTorch
`c10/core/MapAllocator.cpp`; Python's FileNotFoundError.
"""

from bringup.parse.log_message import Message, Said, literals_of
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of

_KIND = "file.missing_shard"
_NEXT = "ls -lL the folder as the user of the engine, inside the container"
_FILE = (
    r"(?:(?:config|generation_config|tokenizer|tokenizer_config|preprocessor_config|processor_config|params"
    r"|special_tokens_map|adapter_config|model\.safetensors\.index|pytorch_model\.bin\.index"
    r"|quantize_config|hf_quant_config"
    r"|vocab)\.json|(?:tokenizer|tekken)\.\w+|merges\.txt|rank\d+\.engine|[\w.-]+\.engine"
    r"|[\w.-]+\.(?:safetensors|bin|pth?|gguf|model))"
)
_MESSAGES = (
    Message(
        kind=_KIND,
        sure=0.85,
        pattern=r"Repo id must be in the form [^\n]*: '(?P<file>/[^']+)'"
        r"|failed to open GGUF file '(?P<other>[^']+)' \(No such"
        r"|does not appear to have a file named (?P<name>config\.json)",
        literals=(
            "Repo id must be in the form",
            "failed to open GGUF file",
            "does not appear to have a file named",
        ),
        summary="{file}{other}{name} is not there: a wrong path, or a folder that the container does not see",
        unless=r"\d{5}-of-\d{5}\.gguf' \(No such",
    ),
    Message(
        kind=_KIND,
        sure=0.92,
        pattern=r"Invalid repository ID or local directory specified: '?(?P<file>[^'\n]+?)'?\.?(?:$| |\n)"
        r"|No supported config format found in (?P<other>\S+?)\.?(?:$| )"
        r"|Incorrect path_or_model_id: '(?P<third>[^'\n]+)'"
        r"|Could not detect config format for no config file found",
        literals=(
            "Invalid repository ID",
            "No supported config format",
            "Incorrect path_or_model_id",
            "no config file found",
        ),
        summary="{file}{other}{third} is no folder with a config.json: a wrong path, or one that the "
        "container does not see",
    ),
    Message(
        kind=_KIND,
        sure=0.85,
        pattern=r"Repo id must use alphanumeric chars[^\n]*:"
        r" '(?P<file>\.{0,2}[/\\][^'\n]+|[^'\n/]+/[^'\n/]+/[^'\n]+)'"
        r"|(?:^|[\s'\"])(?P<other>[./~]\S*) is not a local folder and is not a valid model identifier",
        literals=("Repo id must use", "is not a local folder"),
        summary="{file}{other} is not there, so its name was taken for one of the hub",
    ),
    Message(
        kind=_KIND,
        sure=0.8,
        pattern=r"Can'?t load (?P<what>tokenizer|image processor|feature extractor|processor"
        r"|the configuration|config\w*"
        r"|video processor|the model)\b[^\n']{0,20} (?:for|of) '(?P<file>[^'\n]+)'",
        literals=(
            "t load tokenizer",
            "t load image",
            "t load feature",
            "t load processor",
            "t load the",
            "t load config",
            "t load video",
        ),
        summary="the files of the {what} are not in {file}",
        unless=r"(?:401|403) Client Error|GatedRepo|couldn't connect to|outgoing traffic",
    ),
    Message(
        kind=_KIND,
        sure=0.85,
        pattern=r"does not appear to have a(?:ny)? files? named (?P<file>" + _FILE + r")",
        literals=("does not appear to have a",),
        summary="{file} is not in the model's folder",
        unless=r"PEFT|(?:401|403) Client Error|GatedRepo",
    ),
    Message(
        kind=_KIND,
        sure=0.86,
        pattern=r"(?:FileNotFoundError|OSError|No such file or directory|RuntimeError|cannot open"
        r"|unable to open|[Ff]ailed to open)"
        r"[^\n]*?['\"<(`: ](?P<file>[^'\"\s<>`]*?"
        + _FILE
        + r")['\">`)\s.,;]*(?:[^\n]*No such file or directory.*|does not exist.*)?$",
        literals=("No such file or directory", "does not exist"),
        summary="{file} is not there: a wrong path, an unfinished download, or a folder that the container "
        "does not see",
        unless=r"\.so['\"]?:? |/proc/|/sys/|torch_compile_cache|\d{5}-of-\d{5}\.",
    ),
    Message(
        kind=_KIND,
        sure=0.86,
        pattern=r"(?:Loading lora (?P<name>\S+) failed: )?No adapter found for (?P<file>\S+)"
        r"|(?P<other>\S+) doesn't contain tensors"
        r"|Can'?t find '?adapter_config\.json'? at '?(?P<third>[^'\n]+)",
        literals=("No adapter found", "doesn't contain tensors", "adapter_config.json"),
        summary="there is no adapter at {file}{other}{third}",
    ),
    Message(
        kind=_KIND,
        sure=0.7,
        pattern=r"^(?:main: )?(?:error: )?unable to open model file|^Error: [Ff]ailed to open model"
        r"|Could not find checkpoint files '(?P<file>[^']+)'",
        literals=("unable to open model file", "ailed to open model", "Could not find checkpoint files"),
        summary="the file of the model cannot be opened: a wrong path, or one that the container does not "
        "see",
    ),
)


def _fixes(case: Case, one: Said) -> tuple[Fix, ...]:
    values = one.values
    path = values.get("file") or values.get("other") or values.get("third")
    if "adapter" in one.text or "tensors" in one.text:
        return (
            Fix(
                type="flag",
                name="--lora-modules",
                old=path,
                new="name=FOLDER with adapter_config.json and its weights",
            ),
        )
    name = "--model-path" if engine_of(case) == "sglang" else "--model"
    return (
        Fix(
            type="flag", name=name, old=path, new="the folder as the process sees it, or the name on the hub"
        ),
        Fix(
            type="file",
            name=path or "the file",
            new="downloaded anew: `hf download MODEL --local-dir FOLDER`",
        ),
        Fix(type="docker", name="-v", new="HOST_FOLDER:FOLDER", cost="where a container runs the engine"),
    )


RULE = Rule(
    kinds=(_KIND,),
    title="the model is not where the engine looks",
    literals=literals_of(_MESSAGES),
    read=read_messages(_MESSAGES, {_KIND: _fixes}, next_measurements={_KIND: _NEXT}),
    meaning="A path names nothing: the folder is not mounted, the name is misspelt, or a file of it was not "
    "downloaded. "
    "A path that is not there is then taken for a name on the hub, with an error about the form of names.",
    told_apart="Shards that an index names are told by their numbers (`-00003-of-00008`); a hub that "
    "refuses says 401, "
    "403 or that it cannot be reached; a file that is there and broken is `file.corrupt`.",
    cure="The folder as the process sees it; the missing file downloaded.",
    source="transformers `utils/hub.py`; huggingface_hub `utils/_validators.py`; vLLM "
    "`transformers_utils/config.py`.",
)
