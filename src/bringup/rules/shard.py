"""The model cannot be cut over that many GPUs: heads, quantisation blocks, groups, or a bug of the cut.

Source: vLLM 0.1 to 0.33 `config/model.py` (`verify_with_parallel_config`), `quantization/fp8.py`,
`quantization/utils/fp8_utils.py`, `quantization/utils/marlin_utils.py`, `quantization/awq.py`, `gptq.py`,
`distributed/utils.py` (`ensure_divisibility`); SGLang 0.4 to 0.5.23 the same files and `server_args.py`.
"""

import re
from collections.abc import Callable

from bringup.parse.log_message import Message, Said, literals_of
from bringup.planner.fitting import cut_that_keeps_blocks, cuts_that_fit, divisors
from bringup.rules import Rule, read_messages
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, is_uncut, package_of, tensor_parallel_of

_COST = "fewer GPUs per layer: less room for the cache"
_MESSAGES = (
    Message(
        kind="shard.heads",
        sure=0.95,
        pattern=r"must be divisible by `?num_shards`? \(got `?num_heads`?: (?P<heads>\d+) and "
        r"`?num_shards`?: (?P<cuts>\d+)",
        literals=("num_shards",),
        summary="{heads} attention heads cannot be cut over {cuts} GPUs",
    ),
    Message(
        kind="shard.heads",
        sure=0.96,
        pattern=r"[Nn]um(?:ber)?[ _]of[ _](?:\w+ )?(?:attention )?heads \(?(?P<heads>\d+)\)? (?:must be"
        r"|is not|should be)"
        r" (?:evenly )?divisible by (?:the )?(?:tensor[ _-]parallel[ _-](?:size|degree)|tp_size|TP size"
        r"|number of)\D*\(?"
        r"(?P<cuts>\d+)",
        literals=("divisible by",),
        summary="{heads} attention heads cannot be cut over {cuts} GPUs",
    ),
    Message(
        kind="shard.heads",
        sure=0.9,
        pattern=r"(?:num_(?:attention_|key_value_|kv_)?heads|attention heads"
        r"|(?i:heads))\D{0,30}(?P<heads>\d+)?\D{0,40}"
        r"(?:not divisible by|(?:must|should) be (?:evenly )?divisible by|% (?:self\.)?tp_size)"
        r"[^\d\n]{0,60}(?P<cuts>\d+)?",
        literals=("divisible by", "% tp_size", "% self.tp_size"),
        summary="{heads} attention heads cannot be cut over {cuts} GPUs",
        unless=r"(?i:number) of attention heads \(\d+\)",
    ),
    Message(  # in whatever words
        kind="shard.heads",
        sure=0.85,
        pattern=r"(?i:heads?\b)[^\n]{0,60}(?:(?:cannot|can't|could not) be "
        r"(?:evenly )?(?:split|divided|sharded"
        r"|distributed)|(?:must|should|has to) be a multiple of|not (?:evenly divided|a multiple of))",
        literals=(
            "be split",
            "be evenly",
            "be divided",
            "be sharded",
            "be distributed",
            "a multiple of",
            "not evenly",
        ),
        summary="the attention heads cannot be cut over that many GPUs",
    ),
    Message(
        kind="shard.heads",
        sure=0.85,
        pattern=r"Error: (?P<heads>\d+) is not divisible by (?P<cuts>\d+)",
        literals=("is not divisible by",),
        summary="a size of {heads} cannot be cut over {cuts} GPUs",
    ),
    Message(
        kind="shard.heads",
        sure=0.85,
        pattern=r"assert (?:self\.)?(?:total_)?num_(?:kv_|attention_)?heads % (?:self\.)?(?:tp"
        r"|tensor)\w* == 0"
        r"|assert (?:self\.)?total_num_(?:kv_)?heads % ",
        literals=("_heads %",),
        summary="the number of heads cannot be cut over that many GPUs",
    ),
    Message(
        kind="shard.heads",
        sure=0.55,
        pattern=r"number of GPUs per node is not divisible by the number of tensor parallelism",
        literals=("divisible by the number of tensor parallelism",),
        summary="the GPUs of a node cannot be shared out in groups of that size",
    ),
    Message(
        kind="shard.heads",
        sure=0.88,
        pattern=r"[Nn]umber of (?:hidden )?layers \((?P<layers>\d+)\) must be divisible by (?:the"
        r" )?pipeline[ _]parallel"
        r"[ _]size \((?P<stages>\d+)\)"
        r"|Tensor parallel size (?P<parts>\d+) is greater than the number of experts (?P<experts>\d+)",
        literals=("must be divisible by", "greater than the number of experts"),
        summary="{layers}{experts} layers or experts cannot be shared out over {stages}{parts}",
    ),
    Message(
        kind="shard.quant_block",
        sure=0.75,
        pattern=r"assert \(?\w+\.shape\[0\] % (?P<block>16) == 0 and \w+\.shape\[1\] % 16 == 0"
        r"|in features size is not multiple of (?P<multiple>16)|[Tt]railing dimension of mat\d (?:to"
        r"|must) be divisible by (?P<unit>16)",
        literals=("% 16 == 0", "is not multiple of 16", "railing dimension of mat"),
        summary="each GPU would get a part of an FP8 matrix that is no multiple of {block}{unit}{multiple}",
    ),
    Message(
        kind="shard.quant_block",
        sure=0.96,
        pattern=r"(?:(?:output|input)_size\w*(?: of (?P<of>.{1,40}?) weight)?|output_partition_size"
        r"|input_partition_size)"
        r" ?= ?(?P<part>\d+) is not divisible by (?:the )?weight quantization block_(?P<side>[nk]) ?= "
        r"?(?P<block>\d+)",
        literals=("weight quantization block",),
        summary="each GPU would get {part} columns of {of}, which are not whole blocks of {block}",
    ),
    Message(
        kind="shard.quant_block",
        sure=0.96,
        pattern=r"\((?:moe_)?intermediate_size ?= ?(?P<whole>\d+) ?/ ?(?:moe_)?tp_size ?= "
        r"?(?P<cuts>\d+)\) ?% ?"
        r"weight_block_size_[nk] ?= ?(?P<block>\d+)",
        literals=("weight_block_size_",),
        summary="{whole} columns of an expert over {cuts} GPUs are not whole blocks of {block}",
    ),
    Message(
        kind="shard.quant_block",
        sure=0.8,
        pattern=r"(?:not (?:divisible|a multiple)|must be (?:divisible|a multiple)).{0,40}(?:block_size"
        r"|weight_block_size|"
        r"quantization block)\D{0,20}(?P<block>\d+)?",
        literals=("block_size", "quantization block"),
        summary="each GPU would get a part that is not whole blocks of {block}",
        unless=r"weight quantization block_[nk] ?=|kv.?cache|page_size|BLOCK_SIZE_K",
    ),
    Message(
        kind="shard.quant_group",
        sure=0.94,
        pattern=r"(?P<side>(?i:input)|(?i:output)) size is not aligned with the quantized weight shape",
        literals=("not aligned with the quantized weight shape",),
        summary="the packed weight cannot be cut over that many GPUs on whole groups",
    ),
    Message(
        kind="shard.quant_group",
        sure=0.95,
        pattern=r"(?P<what>(?:out|in)put_size(?:_per_partition)?) ?= ?(?P<part>\d+) is not divisible by"
        r"\s+(?P<unit>min_thread_[nk]|min_[nk]_threads|group_size|pack_factor|tile\w*) ?= ?(?P<block>\d+)",
        literals=("_size_per_partition", "put_size ="),
        summary="each GPU would get {part}, not a multiple of {unit} = {block}",
    ),
    Message(
        kind="shard.quant_group",
        sure=0.9,
        pattern=r"(?:size_[kn]|b_q_weight\.size\(\d\)"
        r"|intermediate_size_per_partition)(?: ?=? ?(?P<part>\d+))? (?:must|is not)"
        r" (?:be )?divisible by (?P<unit>BLOCK_SIZE_[KN]|tile_[kn]_size"
        r"|[a-zA-Z]\w*)?(?: ?=? ?(?P<block>\d+))?"
        r"|Shape mismatch: b_q_weight\.size\(0\) = \d+, size_k = (?P<size>\d+), (?P<tile>tile_size) = \d+"
        r"|assert \S*(?:intermediate|size_per_partition|hidden_size\w*|input_size\w*)\S* % \S+ == 0"
        r"|intermediate_size_per_partition % \d+ == 0"
        r"|cannot implement due to: [^\n]*(?:divid|divisib|multiple of)"
        r"|[Ii]ntermediate size per partition must be (?:a multiple of|divisible by)"
        r"|Invalid thread config: thread_[mkn]|(?:group_size|group size"
        r"|pack_factor)\D{0,40}(?:not divisible|divide)",
        literals=(
            "divisible by",
            "Invalid thread config",
            "group_size",
            "group size",
            "pack_factor",
            "b_q_weight.size(0)",
            "per_partition % ",
            " == 0",
            "size per partition must be",
            "cannot implement due to",
        ),
        summary="the part of one GPU does not fit the kernel's groups ({unit})",
        unless=r"weight quantization block",
    ),
    Message(
        kind="shard.model_bug",
        sure=0.86,
        pattern=r"size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)",
        literals=("must match the size of tensor b",),
        summary="a tensor of {b} meets a part of {a}: the engine cuts one of the two",
    ),
    Message(
        kind="shard.model_bug",
        sure=0.7,
        pattern=r"start \((?P<start>\d+)\) \+ length \((?P<length>\d+)\) exceeds dimension size "
        r"\((?P<size>\d+)\)",
        literals=("exceeds dimension size",),
        summary="the part {start} to +{length} lies outside a tensor of {size}: the engine cuts it wrongly",
    ),
    Message(
        kind="shard.gguf_tp",
        sure=0.6,
        pattern=r"!{8,}",
        literals=("!!!!!!!!",),
        summary="answers of exclamation marks from a GGUF file cut over several GPUs",
    ),
)


def _holds(case: Case, one: Said) -> bool:
    """Whether what a message needs beside itself is there."""
    if one.message.kind == "shard.gguf_tp":
        cuts = tensor_parallel_of(case, engine_of(case)) or 1
        return case.says(r"(?i)gguf") and (cuts > 1 or case.says(r"tensor-parallel-size [2-9]"))
    if "a" in one.values:
        if is_uncut(case):
            return False  # nothing is cut: the files are of another shape than config.json says
        a, b = one.count("a") or 0, one.count("b") or 0
        small, large = sorted((a, b))
        loads = any(trace.passes(r"load_weights|weight_loader|load_model") for trace in case.tracebacks)
        return (
            small > 1 and large % small == 0 and (loads or case.says(r"load_weights|weight_loader|copy_\("))
        )
    return True


def _explanation(one: Said) -> str:
    if one.values.get("of") and one.message.kind == "shard.quant_block":
        return "Scales belong to whole blocks: a block cannot lie on two GPUs."
    return ""


def _fewer_gpus(case: Case, new: int | None, old: int | None, times: int | None = None) -> tuple[Fix, ...]:
    """Fewer GPUs per layer; `times` fewer where the log does not tell how many there are."""
    name = flag_of(engine_of(case), "tensor_parallel")
    if name is None:
        return ()
    fewer = f"1/{times} of" if times else "fewer than"
    then = str(new) if new else f"{fewer} the present number, which the log does not tell"
    return (Fix(type="flag", name=name, old=str(old) if old else None, new=then, cost=_COST),)


def _heads(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    if one.values.get("stages"):
        return _stages(engine, one)
    cuts = one.count("cuts") or one.count("parts") or tensor_parallel_of(case, engine)
    heads = one.count("experts") or one.count("heads") or case.shape.heads
    if heads is None or cuts is None:
        fewer = 1 << max(0, (cuts or 2).bit_length() - 1) if cuts else None
        fewer = fewer // 2 if fewer is not None and fewer == cuts else fewer
        return (*_fewer_gpus(case, fewer, cuts), _fewer_devices(cuts, fewer))
    fewer = _known_fit(case, cuts, heads) or divisors(heads, cuts)[0]
    fixes = [*_fewer_gpus(case, fewer, cuts)]
    able = set(divisors(heads, 2 * cuts)) & set(cuts_that_fit(case.shape, 2 * cuts) or range(2 * cuts + 1))
    more = min((size for size in able if size > cuts), default=None)
    if more is not None and fixes:
        fixes.append(Fix(type="flag", name=fixes[0].name, old=str(cuts), new=str(more), cost=f"{more} GPUs"))
    return (*fixes, *_in_stages(case, cuts, heads), _fewer_devices(cuts, fewer))


def _in_stages(case: Case, cuts: int, heads: int) -> tuple[Fix, ...]:
    """The same GPUs one after the other, in stages that each can be cut."""
    name = flag_of(engine_of(case), "pipeline_parallel")
    able = set(divisors(heads, cuts)) & set(cuts_that_fit(case.shape, cuts) or range(cuts + 1))
    each = max((size for size in able if size < cuts and cuts % size == 0), default=None)
    if name is None or each is None:
        return ()
    gpus = f"with {each} GPU{'s' if each > 1 else ''} per stage: a single request is no faster"
    return (Fix(type="flag", name=name, old="1", new=str(cuts // each), cost=gpus),)


def _stages(engine: str | None, one: Said) -> tuple[Fix, ...]:
    layers, stages = one.count("layers") or 1, one.count("stages") or 1
    name = flag_of(engine, "pipeline_parallel") or "--pipeline-parallel-size"
    fits = divisors(layers, stages - 1)[0] if stages > 1 else 1
    return (
        Fix(type="flag", name=name, old=str(stages), new=str(fits), cost="fewer GPUs, or more per stage"),
    )


def _fewer_devices(cuts: int | None, fewer: int | None) -> Fix:
    old = ",".join(str(index) for index in range(cuts)) if cuts else None
    new = ",".join(str(index) for index in range(fewer or 1))
    return Fix(
        type="env",
        name="CUDA_VISIBLE_DEVICES",
        old=old,
        new=new,
        kind="workaround",
        cost="the others are idle",
    )


def _known_fit(case: Case, cuts: int | None, heads: int = 0) -> int | None:
    """The largest smaller number of GPUs that gives each whole heads, blocks and groups of this model."""
    sizes = cuts_that_fit(case.shape, cuts - 1) if cuts else ()
    return next((size for size in sizes if heads % size == 0), None)


def _whole_parts(case: Case, cuts: int | None, part: int | None, block: int | None) -> int | None:
    """The same where the message tells of a part that holds no whole blocks."""
    sizes = cuts_that_fit(case.shape, cuts - 1) if cuts else ()
    if cuts and part and block:
        return next((size for size in sizes if part * cuts % (size * block) == 0), None)
    is_told = case.shape.block is not None or case.shape.group is not None
    return sizes[0] if sizes and is_told else None


def _cuts_of(case: Case, part: int | None) -> int | None:
    """Over how many GPUs a size of the model is cut where one gets `part` of it; None: not to tell."""
    widths = (case.shape.expert_intermediate, case.shape.intermediate)
    found = {width // part for width in widths if part and width and width % part == 0}
    return found.pop() if len(found) == 1 else None


def _block(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    cuts = one.count("cuts") or tensor_parallel_of(case, engine)
    part, block, whole = one.count("part"), one.count("block") or 128, one.count("whole")
    if part is None and whole and cuts:
        part = whole // cuts
    cuts = cuts or _cuts_of(case, part)
    fits = cut_that_keeps_blocks(part, block, cuts) if part else None
    told = fits[1] if fits and fits[1] else (1 if cuts else None)
    fewer = _whole_parts(case, cuts, part, block) or told
    fixes = [*_fewer_gpus(case, fewer, cuts, fits[0] if fits else None)]
    fixes.extend(_whole_experts(engine, cuts))
    if one.message.kind == "shard.quant_block" and "partition_size" in one.text:
        # A matrix that is not cut at all is too narrow at every size: weights that hold no blocks any more.
        fixes.append(
            Fix(type="file", name="config.json quantization_config", old="present", new="removed, when "
            "the weights are "
                "not block-quantised (converted to bf16, AWQ)", kind="workaround")
        )  # fmt: skip
        fixes.extend(
            Fix(
                type="flag",
                name=fix.name,
                old=fix.old,
                new=str(2 * cuts),
                kind="workaround",
                cost="twice the GPUs",
            )
            for fix in fixes[:1]
            if cuts
        )
    return tuple(fixes)


def _whole_experts(engine: str | None, cuts: int | None) -> tuple[Fix, ...]:
    """Experts whole on one GPU each: nothing of them is cut."""
    name = flag_of(engine, "expert_parallel")
    if name is None:
        return ()
    is_switch = name.startswith("--enable")
    old = None if is_switch else "1"
    new = "true" if is_switch else str(cuts or "the tensor parallel size")
    return (Fix(type="flag", name=name, old=old, new=new, cost="experts whole: uneven load, more traffic"),)


def _group(case: Case, one: Said) -> tuple[Fix, ...]:
    cuts = tensor_parallel_of(case, engine_of(case))
    part, block = one.count("part"), one.count("block")
    fits = cut_that_keeps_blocks(part, block, cuts) if part and block else None
    fewer = fits[1] if fits and fits[1] else (cuts // 2 if cuts and cuts > 1 else None)
    return (
        *_fewer_gpus(case, _whole_parts(case, cuts, part, block) or fewer, cuts, fits[0] if fits else None),
        *_whole_experts(engine_of(case), cuts),
    )


def _bug(case: Case, one: Said) -> tuple[Fix, ...]:
    engine = engine_of(case)
    cuts = tensor_parallel_of(case, engine)
    if cuts is None and "a" in one.values:
        small, large = sorted((one.count("a") or 1, one.count("b") or 1))
        cuts = large // small
    package = Fix(type="package", name=package_of(engine), old=case.version, new="a later release")
    return (*_fewer_gpus(case, 1, cuts), package)


def _gguf(case: Case, _: Said) -> tuple[Fix, ...]:
    told = next((re.search(r"tensor-parallel-size (\d+)", line.text) for line in case.lines), None)
    cuts = tensor_parallel_of(case, engine_of(case)) or (int(told[1]) if told else None)
    return _fewer_gpus(case, cuts // 2 if cuts else None, cuts)


_FIXES: dict[str, Callable[[Case, Said], tuple[Fix, ...]]] = {
    "shard.heads": _heads,
    "shard.quant_block": _block,
    "shard.quant_group": _group,
    "shard.model_bug": _bug,
    "shard.gguf_tp": _gguf,
}

read = read_messages(_MESSAGES, _FIXES, explain=_explanation, holds=_holds)

RULE = Rule(
    kinds=tuple(_FIXES),
    title="the model cannot be cut over that many GPUs",
    literals=(*literals_of(_MESSAGES), "load_weights", "copy_("),
    read=read,
    meaning="Tensor parallelism cuts each matrix into equal parts. Heads must be whole, and so must the "
    "blocks or "
    "groups of weights that share a scale.",
    told_apart="`block_n`/`block_k` are FP8 blocks of 128; group_size, min_thread and packed weights are "
    "AWQ, GPTQ and "
    "their kernels; heads are named or are the bare `40 is not divisible by 3`; a size that is the "
    "tensor parallel "
    "size times another while weights are loaded is an error of the engine.",
    cure="The largest number of GPUs that divides heads, or leaves whole blocks, is computed from the "
    "message; experts "
    "whole on one GPU each (expert parallelism), or pipeline stages.",
    source="vLLM `config/model.py`, `quantization/utils/fp8_utils.py` (`validate_fp8_block_shape`), "
    "`quantization/utils/marlin_utils.py` (`verify_marlin_supports_shape`), `quantization/gptq.py`, "
    "`awq.py`; SGLang "
    "`server_args.py` and `layers/quantization/fp8.py`; reports in which TP 4 of a GGUF file answers `!!!!`.",
)
