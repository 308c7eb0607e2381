"""Let the C library keep memory that a training step will want again at once."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's numbers, from malloc.h of glibc
KEPT = 2**30  # bytes: blocks below come from memory that stays with the process
OWN_WORDS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_large_blocks(environment: Mapping[str, str] = os.environ) -> bool:
    """Serve large blocks from the heap, and keep the heap: returns whether this was done.

    glibc gives a block of more than a few MB back to the system as soon as it is freed. The activations of the next
    step then come as fresh pages, which the kernel fills with zeros one by one: a third to a half of a training step on
    a CPU (benchmarks/README.md). Here they come from memory that the process already has. It then holds on to the
    most that it ever needed.

    The commands call this; importing rankgrad changes nothing. Nothing happens under another C library, or where the
    user has settings or an allocator of their own (MALLOC_..., GLIBC_TUNABLES, LD_PRELOAD).

    >>> keep_large_blocks({"MALLOC_ARENA_MAX": "2"})
    False
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith(OWN_WORDS) for name in environment):
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(MMAP_THRESHOLD, KEPT)) and bool(libc.mallopt(TRIM_THRESHOLD, 2**31 - 1))
