"""Models that score rows, and the file of a model: layers, weights, and the encoding of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankgrad._version import __version__
from rankgrad.scores.network import build_ranker

from ...models.embedding_model import evaluating
from ...models.state_dicts import (
    DIVERGED,
    is_state_dict,
    misfits,
    no_larger_than,
    not_finite,
    one_line,
    read_plain,
    sample,
    write_plain,
)
from ...settings import typed
from .encoding import Encoding
from .settings import GIVEN, Model
from .table import ScoreTable

FORMAT = "rankgrad-scores-1"
PART = 2**16  # number of rows that are scored at once
NUMBERS = 2**26  # of encoded rows that are in memory at once


def build_model(settings: Model, width: int) -> nn.Module:
    """A new model, [row, width] -> [row].

    Args:
        settings: kind and layers.
        width: width of the encoded rows.

    >>> build_model(Model("linear"), 3)(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    hidden = settings.hidden if settings.kind == "mlp" else ()
    return build_ranker(width, hidden, dropout=settings.dropout, batch_norm=settings.batch_norm)


def score_rows(model: nn.Module, inputs: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Scores of encoded rows, on the CPU. The mode of the model is restored.

    Args:
        model: [row, width] -> [row].
        inputs: [row, width] float.
        device: where to compute.

    Returns:
        [row] float32.

    Raises:
        ValueError: the output of the model is not one number per row.

    >>> score_rows(build_model(Model("linear"), 3), torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    with evaluating(model, device) as (where, _):
        parts = [model(part.to(where)).float().cpu() for part in torch.split(inputs, PART)]
    scores = torch.cat(parts)
    if scores.shape != inputs.shape[:1]:
        raise ValueError(f"the model must give a score for each row, [{len(inputs)}]; got {list(scores.shape)}")
    return scores.clone()  # a tensor of inference mode cannot be used in training


@dataclass(frozen=True, eq=False)
class Ranker:
    """A trained model, and the encoding of its input columns.

    Attributes:
        model: a module [row, width] -> [row], in evaluation mode.
        encoding: the encoding, fitted on the training rows.
    """

    model: nn.Module
    encoding: Encoding

    def encoded(self, table: ScoreTable) -> Iterator[Tensor]:
        """The encoded rows of a table, some at a time: [row, width] float32."""
        part = max(NUMBERS // self.encoding.width, 1)
        for start in range(0, len(table), part):
            yield self.encoding.encode(table.subset(range(start, min(start + part, len(table)))))

    def score(self, table: ScoreTable, device: torch.device | str = "cpu") -> Tensor:
        """Scores of the rows of a table, [row] float32; higher is more relevant.

        Args:
            table: the rows.
            device: where to compute.

        Raises:
            ValueError: the table lacks a column of the training, or a score is NaN or infinite.
        """
        scores = torch.cat([score_rows(self.model, rows, device) for rows in self.encoded(table)])
        for row in (~scores.isfinite()).nonzero().flatten().tolist()[:1]:
            raise ValueError(
                f"{table.place(row)}: the score is {scores[row]:g}; the numbers of this row are too large for the model"
            )
        return scores


def save_ranker(path: Path, model: nn.Module, encoding: Encoding, settings: Model) -> None:
    """Write model, encoding and settings as one file of tensors and plain values, see `load_ranker`.

    >>> import tempfile
    >>> table, settings = ScoreTable.of(torch.tensor([[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]])), Model("linear")
    >>> encoding = Encoding.fitted(table)
    >>> ranker = Ranker(build_model(settings, encoding.width), encoding)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ranker(Path(folder, "model.pt"), ranker.model, encoding, settings)
    ...     again = load_ranker(Path(folder, "model.pt"))
    >>> again.score(table).equal(ranker.score(table))
    True
    """
    content = {
        "format": FORMAT,
        "model": {**asdict(settings), "hidden": list(settings.hidden)},
        "encoding": encoding.to_plain(),
        "state": {name: value.detach().cpu() for name, value in model.state_dict().items()},
        "version": __version__,
    }
    write_plain(path, content)


def load_ranker(path: Path, model: nn.Module | None = None) -> Ranker:
    """Load the model from a file of `save_ranker`. No code in the file is run.

    Args:
        path: the file, `model.pt` of a run.
        model: your own module, if such a module was trained. The weights are loaded into it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is another file or damaged; or it has the weights of your own module, and `model` is None.

    >>> import tempfile
    >>> table = ScoreTable.of(torch.tensor([[1.0], [2.0], [3.0]]))
    >>> encoding = Encoding.fitted(table)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.pt")
    ...     save_ranker(path, build_model(Model("linear"), encoding.width), encoding, Model("linear"))
    ...     ranker = load_ranker(path)
    >>> ranker.score(table).shape
    torch.Size([3])
    """
    saved = _read(path)
    try:
        encoding = Encoding.from_plain(saved["encoding"])
        own = typed(Model, saved["model"])
        if own.kind != GIVEN:
            with torch.device("meta"), no_larger_than(saved["state"]):  # takes no memory
                model = build_model(own, encoding.width)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} describes a model that cannot be built: {one_line(error)}") from None
    if model is None:
        raise ValueError(
            f"{path} has the weights of your own module: load them in Python with load_ranker(path, module)"
        )
    wrong = misfits(model.state_dict(), saved["state"])
    if wrong:
        raise ValueError(f"{path} does not fit the model that it describes: {'; '.join(wrong)}")
    broken = not_finite(saved["state"])
    if broken:
        raise ValueError(f"{path}: the weights {sample(broken)} have NaN or infinity, {DIVERGED}")
    if own.kind != GIVEN:
        model = model.to_empty(device="cpu")
    model.load_state_dict(saved["state"])
    return Ranker(model.eval(), encoding)


def _read(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a finished run, or its model.pt")
    saved = read_plain(path)
    if not isinstance(saved, dict) or str(saved.get("format")) != FORMAT:
        raise ValueError(f"{path} is not a model of rankgrad train task=scores")
    wrong = [name for name in ("model", "encoding", "state") if not isinstance(saved.get(name), dict)]
    if wrong or not is_state_dict(saved["state"]):
        raise ValueError(f"{path} is damaged: {', '.join(wrong) or 'state'} not as rankgrad writes it")
    return saved


__all__ = ["Ranker", "build_ranker", "load_ranker", "save_ranker", "score_rows"]
