"""All suites by name, and their cases that are measured in a new process."""

from __future__ import annotations

from collections.abc import Callable

from rankgrad_papers.timing import long_list, memory
from rankgrad_papers.timing.results import Options, Result

from . import (
    allocator,
    bank,
    command_step,
    corpus,
    csv_files,
    detection,
    evaluator,
    growth,
    in_batch,
    launches,
    lists,
    mining,
    pipeline,
    resnet_step,
    scaling,
    soft_ranks,
    step_profile,
    sub_batch,
    texts,
    tiles,
    training,
)

Suite = Callable[[Options], Result]

SUITES: dict[str, Suite] = {
    "in_batch": in_batch.in_batch,
    "scaling": scaling.scaling,
    "growth": growth.growth,
    "long_list": long_list.long_list,
    "bank": bank.bank,
    "evaluator": evaluator.evaluator,
    "detection": detection.detection,
    "training": training.training,
    "command_step": command_step.command_step,
    "sub_batch": sub_batch.sub_batch,
    "step_profile": step_profile.step_profile,
    "pipeline": pipeline.pipeline,
    "allocator": allocator.allocator,
    "texts": texts.texts,
    "launches": launches.launches,
    "lists": lists.lists,
    "large_batch": tiles.large_batch,
    "csv_files": csv_files.csv_files,
    "corpus": corpus.corpus,
    "soft_ranks": soft_ranks.soft_ranks,
    "mining": mining.mining,
}
GPU_SUITES: dict[str, Suite] = {
    "long_list": long_list.long_list,
    "in_batch": in_batch.in_batch,
    "launches": launches.launches,
    "scaling": scaling.scaling,
    "growth": growth.growth,
    "bank": bank.bank,
    "evaluator": evaluator.evaluator,
    "detection": detection.detection,
    "resnet_step": resnet_step.resnet_step,
    "sub_batch": sub_batch.sub_batch,
    "lists": lists.lists,
    "large_batch": tiles.large_batch,
    "mining": mining.mining,
}

_OF_SUITES = (scaling, growth, long_list, bank, evaluator, detection, sub_batch, tiles, mining)
CASES: memory.Cases = {name: case for suite in _OF_SUITES for name, case in suite.CASES.items()}
if len(CASES) < sum(len(suite.CASES) for suite in _OF_SUITES):
    raise RuntimeError("two suites have a case of the same name, and one would be measured for the other")
