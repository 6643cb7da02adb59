"""Sizes in bytes as people read them."""


def shown(size: int) -> str:
    """Formats a size for people: 1.5 GiB."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
