"""A rank loss, class batches and the report in a plain LightningModule: seconds on a CPU."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from rankgrad.adapters.torchmetrics import RetrievalReport
from rankgrad.datasets.samplers import MPerClassBatchSampler
from rankgrad.losses import SmoothAPLoss


class Embedder(lightning.LightningModule):  # noqa: D101
    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss, self.metric = torch.nn.Linear(64, 16), SmoothAPLoss(tau=0.05), RetrievalReport()

    def training_step(self, batch, _):  # noqa: D102
        return self.loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):  # noqa: D102
        self.metric.update(self.network(batch[0]), batch[1])

    def on_validation_epoch_end(self):  # noqa: D102
        print("mAP@R", float(self.metric.compute()["mAP@R"]))  # or self.log_dict(self.metric.compute())
        self.metric.reset()

    def configure_optimizers(self):  # noqa: D102
        return torch.optim.Adam(self.parameters(), 0.01)


data = TensorDataset(torch.randn(40, 64)[labels := torch.arange(320) // 8] + 3 * torch.randn(320, 64), labels)
batches = DataLoader(data, batch_sampler=MPerClassBatchSampler(labels, classes_per_batch=8, samples_per_class=4))
trainer = lightning.Trainer(max_epochs=5, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            use_distributed_sampler=False)  # fmt: skip
trainer.fit(Embedder(), batches, DataLoader(data, batch_size=64))
