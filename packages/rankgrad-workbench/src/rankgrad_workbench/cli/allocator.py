"""Let the C library keep freed memory, because the next training step needs it again."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's numbers, from malloc.h of glibc
KEPT = 2**30  # bytes: smaller blocks come from the heap
OWN_WORDS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_large_blocks(environment: Mapping[str, str] = os.environ) -> bool:
    """Serve large blocks from the heap, and never shrink the heap. Return whether the C library accepted this.

    By default, glibc returns a block of more than a few MB to the system as soon as it is freed. The next step then
    gets new pages for its activations, and the kernel fills each page with zeros. On a CPU this takes a third to a half
    of a training step (benchmarks/README.md). With this setting the process reuses its own memory. Its memory then
    stays as large as it ever was.

    The commands call this function. Importing rankgrad does not. The function does nothing with another C library, or
    if the user has set MALLOC_..., GLIBC_TUNABLES or LD_PRELOAD.

    >>> keep_large_blocks({"MALLOC_ARENA_MAX": "2"})
    False
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith(OWN_WORDS) for name in environment):
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(MMAP_THRESHOLD, KEPT)) and bool(libc.mallopt(TRIM_THRESHOLD, 2**31 - 1))
