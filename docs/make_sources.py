"""Write docs/sources.md: where each setting of the papers' experiments comes from."""

from __future__ import annotations

from pathlib import Path

from rankgrad_papers.experiments import sources

HEAD = """\
# Sources of the settings

Where each value of the papers' experiments and tables comes from. `rankgrad reproduce ID --sources` prints the same
for one table. This page is made by `python docs/make_sources.py`. It reads three places in
`papers/src/rankgrad_papers`: the comments of `configs/experiment`, the `sources:` of `experiments/tables`, and
`experiments/sources.yaml`.
A test fails for a setting without a source, and for a place that a paper has not.

* **rambo, auc, pnp, roadmap** and a section, heading, table or figure: the paper says it there. RaMBO's appendix A is
  that of its supplement, too; table 9 is table 1 there. Of AUC the supplement alone is at hand.
* **code**: the text does not say it, the code that the authors published does.
* **ours**: neither does. Two sources in a row: the first says what, the second how much.
* `of`: the experiments that have this value, as in `experiment=PAPER/NAME`; `all`: all of the paper's. Where text and
  code differ the text is followed, and the comment of the experiment gives the code's value.

"""


def page() -> str:
    """The whole page."""
    return HEAD + sources.page()


if __name__ == "__main__":
    (Path(__file__).parent / "sources.md").write_text(page(), encoding="utf-8")
