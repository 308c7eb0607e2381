"""A rank loss, class batches and the report in a plain LightningModule, on one or several devices: seconds on a CPU."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from rankgrad import datasets, distributed, losses
from rankgrad.adapters.torchmetrics import RetrievalReport


class Embedder(lightning.LightningModule):  # noqa: D101
    def __init__(self) -> None:
        super().__init__()
        self.loss = distributed.GlobalBatch(losses.SmoothAPLoss(tau=0.05))  # ranks the batches of all devices as one
        self.network, self.metric = torch.nn.Linear(64, 16), RetrievalReport()

    def training_step(self, batch, _):  # noqa: D102
        return self.loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):  # noqa: D102
        self.metric.update(self.network(batch[0]), *batch[1:])  # by their ids, each row counts once

    def on_validation_epoch_end(self):  # noqa: D102
        print("mAP@R", float(self.metric.compute()["mAP@R"]))  # or self.log_dict(self.metric.compute())
        self.metric.reset()

    def configure_optimizers(self):  # noqa: D102
        return torch.optim.Adam(self.parameters(), 0.01)


noise, ids = torch.randn(320, 64, generator=torch.manual_seed(0)), torch.arange(320)  # the same on every device
data = TensorDataset(torch.randn(40, 64)[ids // 8] + 3 * noise, ids // 8, ids)
batches = DataLoader(data, batch_sampler=datasets.samplers.MPerClassBatchSampler(ids // 8, 8, samples_per_class=4))
lightning.Trainer(max_epochs=5, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  use_distributed_sampler=False).fit(Embedder(), batches, DataLoader(data, batch_size=64))  # fmt: skip
