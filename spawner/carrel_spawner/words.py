"""Amounts and times as people read them: ``2 GPUs``, ``2 GiB``, ``3 h 05 min``."""


def plain(amount: float) -> str:
    """A number as one would type it: ``2``, ``0.5``."""
    return f"{amount:g}"


def gpus(amount: float) -> str:
    """``1 GPU``, ``0.5 GPU``, ``2 GPUs``."""
    return f"{amount:g} GPU" if 0 < amount <= 1 else f"{amount:g} GPUs"


def gib(amount_bytes: float) -> str:
    """Bytes in GiB, one decimal at most."""
    return f"{round(amount_bytes / 1024**3, 1):g} GiB"


def cores(millicores: float) -> str:
    """``0.5 cores``, ``1 core``."""
    amount = round(millicores / 1000, 2)
    return f"{amount:g} core" if amount == 1 else f"{amount:g} cores"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def amount(resource: str, quantity: float) -> str:
    """A holder's amount in the unit of the reason: thousandths of a GPU, millicores, MiB."""
    if resource == "cpu":
        return cores(quantity)
    if resource == "memory":
        return gib(quantity * 1024**2)
    return gpus(quantity / 1000)
