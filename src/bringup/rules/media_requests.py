"""Images, sound and text of a request do not come out at the same number of tokens, or cannot be read.

Source: vLLM 0.6 to 0.33 `multimodal/processing/`, `model_executor/models/utils.py`
(`_merge_multimodal_embeddings`);
SGLang 0.4 to 0.5.23 `srt/managers/mm_utils.py`, `srt/multimodal/processors/`.
"""

from bringup.parse.log_message import Message, literals_of, surest, with_frames
from bringup.rules import Match, Rule
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, package_of

_MESSAGES = (
    Message(
        kind="engine.bug_request",
        sure=0.8,
        pattern=r"Attempted to assign (?P<got>[\d +=]+) (?:multimodal|image|vision"
        r"|audio) tokens to (?P<places>\d+) placeholders"
        r"|Image features and image tokens do not match:? tokens: (?P<places2>\d+),? features:?"
        r" (?P<got2>\d+)",
        literals=("Attempted to assign", "tokens do not match"),
        summary="the encoder gave {got}{got2} tokens for {places}{places2} places in the prompt",
    ),
    Message(
        kind="engine.bug_request",
        sure=0.6,
        pattern=r"Expected there to be \d+ prompt (?:updates|placeholders"
        r"|replacements) corresponding to \d+ (?P<what>\w+) items"
        r"|(?:Number|number) of (?P<what2>image|video|audio)s? (?:tokens|placeholders) \S* ?(?:does not"
        r"|doesn't|do not) match",
        literals=("Expected there to be", "umber of "),
        summary="the prompt has not the places for its {what}{what2}s that the model's template gives",
    ),
    Message(
        kind="engine.bug_request",
        sure=0.5,
        pattern=r"Failed to apply (?P<what>\w*Processor\w*) on data=",
        literals=("Failed to apply ",),
        summary="{what} could not read this request; the cause stands in the traceback above",
    ),
)
_IN_START = (
    r":(?:profile_run|determine_available_memory|determine_num_available_blocks"
    r"|_?get_dummy_\w+)$"
)


def read(case: Case) -> tuple[Match, ...]:
    """The request that could not be taken; while starting, the processor that does not fit the engine."""
    found: list[Match] = []
    for one in surest(case, _MESSAGES):
        in_start = any(trace.passes(_IN_START) for trace in case.tracebacks)
        release = Fix(
            type="package", name=package_of(engine_of(case)), old=case.version, new="a later release"
        )
        library = Fix(
            type="package",
            name="transformers",
            old=case.versions.get("transformers"),
            new="the version that this release asks for",
        )
        found.append(
            Match(
                kind="model.arch_unknown" if in_start else one.message.kind,
                sure=one.message.sure,
                lines=with_frames(case, one.lines),
                summary=one.summary.replace("?", ""),
                explanation="The engine's own trial request fails: its processor and the model's are of "
                "different times."
                if in_start
                else "Processor, template and engine count the tokens of a picture apart.",
                fixes=(library, release),
                next_measurement=""
                if in_start
                else "the same request alone, with the model's own chat template",
            )
        )
    return tuple(found)


RULE = Rule(
    kinds=("engine.bug_request", "model.arch_unknown"),
    title="images or sound that a request brings",
    literals=literals_of(_MESSAGES),
    read=read,
    meaning="A picture, video or sound becomes a number of tokens, and the prompt must hold as many places. "
    "The two are "
    "counted by different code: the model's processor, its template, and the engine.",
    told_apart="In the trial run of the start no request is to blame: it is the release.",
    cure="The transformers release that the engine asks for; the model's own template; a later release.",
    source="vLLM `multimodal/processing/context.py`, `processor.py`, `model_executor/models/utils.py`.",
)
