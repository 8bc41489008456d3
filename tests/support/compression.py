"""Compression and decompression as clients do it, without the service's own code."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": zstd.decompress,
}


def zstd_with_window(text: bytes, window_log: int) -> bytes:
    """Compresses with a window of two to the power of ``window_log`` bytes."""
    options: dict[int, int] = {zstd.CompressionParameter.window_log: window_log}
    return zstd.compress(text, options=options)
