"""The time of a training step by stage and by operator, on small images and on a timm backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from rankgrad import losses
from rankgrad_papers.timing.results import Cell, Options, Result, ResultTable

STAGES = ("batch", "forward", "loss", "loss backward", "model backward", "update")
OPERATORS = 10


def step_profile(options: Options) -> Result:
    """Stages and operators of a training step with ROADMAP, on a convnet and on a timm backbone."""
    data = ["data=glyphs"] if options.data_root is None else ["data=omniglot", f"data.root={options.data_root}"]
    if options.quick:
        data += ["sampler.classes_per_batch=4", "sampler.samples_per_class=2"]
    networks = {
        "convnet": ((), options.pick(quick=1, cpu=20, gpu=20)),
        "resnet18 of timm": (
            ("model=timm", "model.name=resnet18", "model.embedding_size=512"),
            options.pick(quick=1, cpu=4, gpu=20),
        ),
    }
    tables = []
    for name, (settings, steps) in networks.items():
        tables += _profiled(name, [*data, *settings], losses.ROADMAPLoss(), steps)
    return Result(tables)


def _profiled(name: str, settings: Sequence[str], loss: nn.Module, steps: int) -> list[ResultTable]:
    """Mean of each stage over the steps after the first two, and the operators that take the most time themselves."""
    from rankgrad_workbench.models.build import build_model
    from rankgrad_workbench.settings import compose, make
    from rankgrad_workbench.training.data import TrainingData

    config = compose(settings)
    table = make(config.data.load, slot="data").select("train")
    labels = torch.unique(table.label, return_inverse=True)[1]
    wanted = dict(config.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_model(wanted.pop("kind"), in_channels=table.channels, **wanted).train()
    sampler = {**config.sampler, "batches_per_epoch": steps + 2}
    data = TrainingData(table, labels, make(config.data.train_transform, slot="transform"), sampler, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = iter(data.train_dataloader())

    def step() -> torch.Size:
        with record_function("batch"):
            images, classes, _ = next(batches)
        with record_function("forward"):
            embeddings = model(images)
        leaf = embeddings.detach().requires_grad_()  # between the two backward passes
        with record_function("loss"):
            value = loss(leaf, classes)
        with record_function("loss backward"):
            value.backward()
        with record_function("model backward"):
            optimizer.zero_grad()
            embeddings.backward(leaf.grad)
        with record_function("update"):
            optimizer.step()
        shape: torch.Size = images.shape[1:]
        return shape

    for _ in range(2):
        shape = step()
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for _ in range(steps):
            step()
    events = trace.key_averages()
    spent = {event.key: event.cpu_time_total / 1e3 / steps for event in events if event.key in STAGES}
    whole = sum(spent.values())
    stages: list[list[Cell]] = [[stage, spent[stage], 100 * spent[stage] / whole] for stage in STAGES]
    batch = f"{sampler['classes_per_batch']} x {sampler['samples_per_class']}"
    note = f"{table.name}, batches of {batch} images of {' x '.join(map(str, shape))}; {steps} steps."
    inside = sorted((e for e in events if e.key not in STAGES), key=lambda e: -e.self_cpu_time_total)[:OPERATORS]
    rows: list[list[Cell]] = [
        [e.key, e.count / steps, e.self_cpu_time_total / 1e3 / steps, e.self_cpu_time_total / 10 / steps / whole]
        for e in inside
    ]
    alone = f"Time of an operator without those that it calls; the {OPERATORS} largest. Calls and time are of one step."
    return [
        ResultTable(f"{name}: stages of a step", ("stage", "ms", "%"), [*stages, ["step", whole, 100.0]], note),
        ResultTable(f"{name}: operators of a step", ("operator", "calls", "ms in itself", "%"), rows, alone),
    ]
