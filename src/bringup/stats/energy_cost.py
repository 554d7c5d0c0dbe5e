"""What tokens cost: in energy, and in money at prices that the user names. No price is assumed."""

_JOULES_PER_KWH = 3_600_000.0
_SECONDS_PER_HOUR = 3600.0
_MILLION = 1_000_000.0


def joules_per_token(*, joules: float | None, tokens: int | None) -> float | None:
    """Joules of all GPUs for one token; None where one of the two is not known or there was no token.

    >>> joules_per_token(joules=1500.0, tokens=3000)
    0.5
    """
    return joules / tokens if joules is not None and tokens else None


def cost_per_million_tokens(
    *,
    tokens: int | None,
    seconds: float,
    gpus: int | None = None,
    joules: float | None = None,
    per_gpu_hour: float | None = None,
    per_kwh: float | None = None,
) -> float | None:
    """Money for a million tokens at this load, in the currency of the prices.

    A price per GPU-hour buys the GPUs for the time, used or not; a price per kWh buys the energy that they
    took (theirs alone: neither processor nor cooling). Both given, they add up. None where no price is given
    or one of the given prices meets something that was not measured.

    >>> round(cost_per_million_tokens(tokens=1_800_000, seconds=3600.0, gpus=4, per_gpu_hour=1.8), 9)
    4.0
    >>> round(cost_per_million_tokens(tokens=1_000_000, seconds=60.0, joules=7_200_000.0, per_kwh=0.3), 9)
    0.6
    """
    if not tokens:
        return None
    parts: list[float | None] = []
    if per_gpu_hour is not None:
        parts.append(per_gpu_hour * gpus * seconds / _SECONDS_PER_HOUR if gpus else None)
    if per_kwh is not None:
        parts.append(None if joules is None else per_kwh * joules / _JOULES_PER_KWH)
    known = [part for part in parts if part is not None]
    return sum(known) * _MILLION / tokens if known and len(known) == len(parts) else None
