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
from contextlib import suppress

DEVICE = "/dev/cpu_dma_latency"
SOON_S = 0.002  # from one moment to the next
SOME = 8  # moments in a row, before it is worth it
KEPT_S = 0.01  # after the last of them, or up to twice that
_AWAKE = struct.pack("=i", 0)  # microseconds that waking up may take
_AS_EVER = struct.pack("=i", -1)  # no wish


class Processors:
    __slots__ = ("_device", "_kept", "_last", "_loop", "_most", "_soon")

    def __init__(self, loop: AbstractEventLoop, most: int) -> None:
        """Where the machine has more than so many, nothing is asked of them."""
        self._loop = loop
        self._most = most
        self._device: int | None = None
        self._kept: TimerHandle | None = None  # while they are kept awake
        self._last = 0.0
        self._soon = 0  # moments that came soon, in a row

    def open(self) -> None:
        """From now on they may be kept awake, if they can be."""
        if (os.cpu_count() or 1) <= self._most:
            with suppress(OSError):
                self._device = os.open(DEVICE, os.O_WRONLY)

    def are_needed(self, now: float) -> None:
        """This is a moment that is the better for it, by the performance counter."""
        if self._device is None:
            return
        is_soon = now - self._last < SOON_S
        self._last = now
        if self._kept is None:
            self._soon = self._soon + 1 if is_soon else 0
            if self._soon >= SOME:
                self._soon = 0
                self._wish(_AWAKE)
                self._kept = self._loop.call_later(KEPT_S, self._let_sleep, now)

    def _let_sleep(self, last: float) -> None:
        """Unless there were further moments since the last."""
        if self._last > last:
            self._kept = self._loop.call_later(KEPT_S, self._let_sleep, self._last)
        else:
            self._kept = None
            self._wish(_AS_EVER)

    def _wish(self, wish: bytes) -> None:
        """Where it is not taken, nothing is asked any more."""
        if self._device is not None:
            try:
                os.write(self._device, wish)
            except OSError:
                os.close(self._device)
                self._device = None

    def close(self) -> None:
        """They may sleep."""
        if self._kept is not None:
            self._kept.cancel()
            self._kept = None
            self._wish(_AS_EVER)  # somebody may have forked us, and have the device open as well
        if self._device is not None:
            os.close(self._device)
            self._device = None
