"""Cross-batch memory: against lists put together by hand, through saving and resuming, and through misuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import slow
from small_runs import make_photos, small, train

from rankgrad.batches.memory import CrossBatchMemory


@pytest.mark.parametrize(
    "settings",
    [("memory=sum", "memory.warmup=0", "memory.size=16"), ("memory=sum", "memory.warmup=1")],
    ids=str,
)
@pytest.mark.parametrize(("precision", "dtype"), [("64-true", torch.float64), *slow(("bf16-true", torch.bfloat16))])
def test_run_in_another_precision_trains_with_a_memory_of_that_precision(
    tmp_path, monkeypatch, precision, dtype, settings
) -> None:
    photos = make_photos(tmp_path / "photos")
    seen = []
    write = CrossBatchMemory._write

    def watched(self: CrossBatchMemory, *given: Any) -> None:
        write(self, *given)
        seen.append((self.filled, self.embeddings.dtype, bool(self.embeddings.isfinite().all())))

    monkeypatch.setattr(CrossBatchMemory, "_write", watched)
    words = (f"trainer.precision={precision}", "trainer.max_epochs=1", *settings)
    run = train(*small(photos, *words, f"out={tmp_path / 'run'}"))
    assert len(seen) == 3 and seen[-1][0] > 0 and all(kind == dtype and finite for _, kind, finite in seen)
    assert run.finished
