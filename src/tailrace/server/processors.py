"""The machine's processors, which are kept from going to sleep while somebody waits for each of many answers.

One that sleeps takes longer to be woken than a small request takes to be answered, above all in a virtual machine,
where its host has to do it. Who answers a client that waits pays for that, and so does who waits for a quick disk.
Linux has idle processors wait for work without sleeping for as long as somebody who has `/dev/cpu_dma_latency` open
wants to be woken within no time at all. A process that ends, however it does, wants nothing any more.

That goes for all processors of the machine, and costs power. So it begins when there were some moments that are the
better for it, one soon after the other, and ends when there were none for a hundredth of a second. Such a moment is a
commit that the loop waits for itself, or an answer to a client that asks again at once (`wakefulness`). Where
processors are many, or the device is not ours to write (it is root's, unless the operator says otherwise), they sleep
as ever.
"""

import os
import struct
from asyncio import AbstractEventLoop, TimerHandle

DEVICE = "/dev/cpu_dma_latency"
SOON_S = 0.002  # from one moment to the next
SOME = 8  # moments in a row, before it is worth it
KEPT_S = 0.01  # after the last of them, or up to twice that
_AWAKE = struct.pack("=i", 0)  # microseconds that waking up may take
_AS_EVER = struct.pack("=i", -1)  # no wish


class Processors:
    __slots__ = ("_device", "_kept", "_last", "_loop", "_soon")

    def __init__(self, loop: AbstractEventLoop, most: int) -> None:
        """Where the machine has more than so many, nothing is asked of them."""
        self._loop = loop
        self._device = _open() if (os.cpu_count() or 1) <= most else None
        self._kept: TimerHandle | None = None  # while they are kept awake
        self._last = 0.0
        self._soon = 0  # moments that came soon, in a row

    def are_needed(self, now: float) -> None:
        """This is a moment that is the better for it, by the performance counter."""
        is_soon = now - self._last < SOON_S
        self._last = now
        if self._kept is not None or self._device is None:
            return
        self._soon = self._soon + 1 if is_soon else 0
        if self._soon >= SOME:
            self._soon = 0
            os.write(self._device, _AWAKE)
            self._kept = self._loop.call_later(KEPT_S, self._let_sleep, self._device, now)

    def _let_sleep(self, device: int, last: float) -> None:
        """Unless there were further moments since the last."""
        if self._last > last:
            self._kept = self._loop.call_later(KEPT_S, self._let_sleep, device, self._last)
        else:
            self._kept = None
            os.write(device, _AS_EVER)

    def close(self) -> None:
        """They may sleep."""
        if self._kept is not None:
            self._kept.cancel()
            self._kept = None
        if self._device is not None:
            os.close(self._device)
            self._device = None


def _open() -> int | None:
    """None where they cannot be kept awake: it is found out here, and not when a client is waiting."""
    try:
        device = os.open(DEVICE, os.O_WRONLY)
    except OSError:
        return None
    try:
        os.write(device, _AS_EVER)
    except OSError:
        os.close(device)
        return None
    return device
