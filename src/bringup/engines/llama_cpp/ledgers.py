"""llama.cpp's memory: weights, cache and compute buffer of every device, and what is done if it is too much.

Source: llama.cpp b11434, `common/fit.cpp`: shorter context first, then experts, then layers to the host.
"""

from collections.abc import Callable
from dataclasses import replace

from bringup.engines.llama_cpp.devices import Device, Spread, compute_buffer, spread
from bringup.engines.llama_cpp.findings import Account, findings_of
from bringup.engines.llama_cpp.settings import Settings, settings_of
from bringup.planner.ledger import line, settle
from bringup.planner.workspace import Estimate, context_memory, exact
from bringup.units import MIB, mib
from bringup.values.finding import Severity, worst
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, KvPlan, Layout, LayoutPlan, LedgerLine, Origin, PlanTask

_STEP = 256  # tokens: contexts are whole steps


def plan_layout(task: PlanTask) -> LayoutPlan:
    """The account of the fullest device."""
    wanted = settings_of(task.spec, task.model, task.gpus)
    settings = fitted(task.model, wanted, task.gpus)
    held = _as_logged(task, settings, spread(task.model, settings))
    device = max(held.devices, key=lambda one: one.weights + one.cache)
    ledger = _ledger(task, device)
    kv = _kv(task, settings, held, device)
    findings = findings_of(
        Account(task=task, wanted=wanted, settings=settings, held=held, kv=kv, ledger=ledger)
    )
    low = task.gpus.used_by_others + context_memory().low + device.weights + device.cache + device.compute.low
    high = low - device.compute.low + device.compute.high + context_memory().high - context_memory().low
    context = task.context or kv.longest_context or settings.context
    starts = worst(tuple(one for one in findings if not one.id.startswith("flags."))) is not Severity.FAILURE
    return LayoutPlan(
        layout=_layout(settings),
        fits=starts,
        weights_bytes=max(one.weights for one in held.devices),
        kv=kv,
        smi_used_low=low,
        smi_used_high=max(low, min(high, task.gpus.card.cuda_total)),
        ledger=ledger,
        findings=findings,
        command=task.spec.argv,
        context=context,
        requests=min(float(settings.slots), held.cells / context),
    )


def _as_logged(task: PlanTask, settings: Settings, held: Spread) -> Spread:
    """The compute buffers as an earlier start's log says, by rows and cells; as estimated without one."""
    start = task.measured
    told = [rank.activations for rank in start.ranks if rank.gpu is not None] if start else []
    largest = max((size for size in told if size), default=None)
    if start is None or start.spec is None or largest is None:
        return held
    then = settings_of(start.spec, task.model, task.gpus)
    before = compute_buffer(task.model, then, start.kv_tokens or then.context).bytes
    size = round(largest * compute_buffer(task.model, settings, held.cells).bytes / before)
    compute = exact(size, f"{largest / MIB:,.2f} MiB in the log, by rows and cells")
    return replace(held, devices=tuple(replace(device, compute=compute) for device in held.devices))


def fitted(model: ModelSpec, settings: Settings, gpus: Gpus) -> Settings:
    """The settings after the server made them fit, as far as it is allowed to."""

    def fits(one: Settings) -> bool:
        return holds(model, one, gpus)

    if not settings.may_fit or fits(settings):
        return settings
    if settings.may_shorten:
        shortest = min(settings.shortest, settings.context)
        if fits(replace(settings, context=shortest)):
            count = most(
                lambda steps: fits(replace(settings, context=steps * _STEP)), settings.context // _STEP
            )
            return replace(settings, context=max(shortest, count * _STEP))
        settings = replace(settings, context=shortest)
    layers = len(model.layers)
    if any(layer.mlp is not None and layer.mlp.experts for layer in model.layers):
        on_gpu = most(lambda kept: fits(replace(settings, host_experts=layers - kept)), layers)
        settings = replace(settings, host_experts=layers - on_gpu)
        if on_gpu or fits(settings):
            return settings
    return replace(
        settings, gpu_layers=most(lambda count: fits(replace(settings, gpu_layers=count)), layers + 1)
    )


def holds(model: ModelSpec, settings: Settings, gpus: Gpus) -> bool:
    """Whether every device has room for its part, with the margin kept free."""
    free = free_bytes(gpus) - mib(settings.margin_mib)
    return all(_need(device) <= free for device in spread(model, settings).devices)


def free_bytes(gpus: Gpus) -> int:
    """What is free on a device for weights, cache and compute buffer."""
    return gpus.card.cuda_total - gpus.used_by_others - context_memory().bytes


def _need(device: Device) -> int:
    return device.weights + device.cache + device.compute.bytes


def most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` for which it holds; 0 where it holds for none above.

    >>> most(lambda number: number <= 37, 100)
    37
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _layout(settings: Settings) -> Layout:
    """Layers one after the other are what others call pipeline stages."""
    count = len(settings.shares)
    if settings.split_mode in ("row", "tensor"):
        return Layout(tensor_parallel=count)
    return Layout(pipeline_parallel=count)


def _kv(task: PlanTask, settings: Settings, held: Spread, device: Device) -> KvPlan:
    tokens = held.cells
    each = tokens if settings.is_unified else tokens // settings.slots
    room = free_bytes(task.gpus) - device.weights - device.compute.bytes
    key, value = settings.key_type, settings.value_type
    return KvPlan(
        available_bytes=device.cache,  # no more than is asked for is ever taken
        bytes_per_token=held.cache / tokens if tokens else 0.0,
        tokens=tokens,
        max_concurrency=min(float(settings.slots), tokens / (task.context or each or 1)),
        low_tokens=tokens,
        high_tokens=tokens,
        block_tokens=1,
        blocks=tokens,
        bytes_per_block=round(held.cache / tokens) if tokens else None,
        cache_dtype=key if key == value else f"{key}, {value}",
        fits=device.cache <= room,
        needed_bytes=device.cache,
        longest_context=each,
    )


def _ledger(task: PlanTask, device: Device) -> tuple[LedgerLine, ...]:
    gpus, card = task.gpus, task.gpus.card
    reserved = exact(card.memory_total - card.cuda_total, "nvidia-smi's total - CUDA's total")
    lines = [
        line("reserved", reserved, Origin.MEASURED if card.is_cuda_total_measured else Origin.ESTIMATE),
        line("other_processes", exact(gpus.used_by_others, "as given"), Origin.MEASURED),
        line("context", context_memory()),
        line("weights", *_weights(task.model, device)),
        line(
            "kv_pool",
            exact(device.cache, f"cells of this device's layers, {device.cache / MIB:,.2f} MiB"),
            Origin.RULE,
        ),
        line("compute", device.compute),
    ]
    return settle(lines, card.memory_total)


def _weights(model: ModelSpec, device: Device) -> tuple[Estimate, Origin]:
    if model.tensors:
        return exact(device.weights, "stored bytes of this device's tensors"), Origin.HEADERS
    # The file may be of any number format: from 2.5 to 16 bits a weight.
    part = Estimate(
        bytes=device.weights,
        low=round(device.weights * 0.15),
        high=device.weights,
        formula="the config's number format, for want of the file",
    )
    return part, Origin.ESTIMATE
