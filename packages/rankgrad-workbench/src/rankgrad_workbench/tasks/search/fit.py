"""Train a search on your own documents: `rankgrad.fit_search`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runs.folder import Run
from ...settings import GROUPS, ConfigError, compose, replaced
from ...settings.spelling import as_word
from ...training import runner
from ...training.runner import begun, own_settings
from .task import TASK, summary

OWN = ("task", "data", "data.root", "model", "loss", "out", "resume")  # settings that are arguments


@runner.undisturbed()
def fit_search(
    root: str | Path,
    model: str = "ngrams",
    loss: str | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    r"""Train encoders of queries and documents like `rankgrad train task=search`, and judge them beside BM25.

    The folder of the run gets the model, the lists of each system as files of TREC, the numbers and report.html.
    `tasks.search.encoders.load_encoders` reads the model.

    Args:
        root: folder of BEIR or MTEB, or a table of queries and documents; see docs/search-documents.md.
        model: ngrams or sentence_transformer (settings={"model.name": FOLDER}).
        loss: a name that the command takes, with its settings (settings={"loss.tau": 0.05}); None: the default for
            documents.
        out: folder of the run; None: a new one in runs/.
        resume: continue the run in `out`, if there is one, with the same settings.
        settings: settings of the command by name: {"trainer.max_epochs": 5, "mining.by": "bm25"}.
        quiet: show no progress bars, and print no table of the result.

    Returns:
        The folder: `read_values()` has the metrics, and `page` is the path of the page.

    Raises:
        ConfigError: a setting does not exist or does not fit, or the folder holds another run.
        FileNotFoundError: there is no file or folder `root`.
        ValueError: a file is damaged, or has no queries and documents.

    >>> import json, tempfile, rankgrad
    >>> rows = [{"query": f"which {w} one", "document": f"a {w} thing"} for w in "red blue green grey pink".split()]
    >>> few = {"model.dim": 8, "model.buckets": 64, "trainer.max_epochs": 1, "evaluation.bootstrap": 0}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pairs.jsonl")
    ...     _ = file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ...     run = rankgrad.fit_search(file, out=Path(folder, "run"), settings=few, quiet=True)
    ...     print(sorted(run.read_values()), run.page.name)
    pairs: 5 documents ...
    ['MRR@10', 'NDCG@10', 'Recall@100'] report.html
    """
    own = own_settings(settings)
    for name in {*own} & {*OWN}:
        raise ConfigError(f"settings: {name} is an argument of fit_search")
    words = [f"model={model}", *([] if loss is None else [f"loss={loss}"])]
    words += [f"{name}={as_word(value)}" for name, value in sorted(own.items(), key=lambda each: each[0] not in GROUPS)]
    words += ["trainer.enable_progress_bar=false"] if quiet else []
    config = compose(["task=search", "data.root=given", *words])
    config = replaced(config, {"data.root": str(root), "out": None if out is None else str(out)})
    config, changes = begun(config, out, resume, left_out=("data.root", "loss.highest", "optimizer.average"))
    run = runner.train(TASK, config, changes=changes, quiet=quiet)
    if not quiet:
        print(summary(run))
    return run


__all__ = ["fit_search"]
