"""Write papers/docs/sources.md: where each setting of the papers' experiments comes from."""

from __future__ import annotations

from pathlib import Path

from rankgrad_papers.experiments import sources

HEAD = """\
# Sources of the settings

This page says where each value of the papers' experiments and tables comes from. `rankgrad reproduce ID --sources`
prints the same for one table. `python papers/docs/make_sources.py` makes this page. It reads three places in
`papers/src/rankgrad_papers`: the comments of `configs/experiment`, the `sources:` of `experiments/tables`, and
`experiments/sources.yaml`. A test fails for a setting without a source, and for a place that a paper does not have.

* **rambo, auc, pnp, roadmap**, with a section, heading, table or figure: the paper says it there. RaMBO's appendix A is
  also that of its supplement; its table 9 is table 1 there. Of AUC only the supplement was available.
* **code**: the text does not say it, but the published code of the authors does.
* **ours**: neither says it.
* **Two sources in a row**: the first says what, the second how much.
* **`of`** lists the experiments with this value, as in `experiment=PAPER/NAME`. `all` means all experiments of the
  paper. If text and code differ, we follow the text, and the comment of the experiment gives the code's value.

"""


def page() -> str:
    """The whole page."""
    return HEAD + sources.page()


if __name__ == "__main__":
    Path(__file__).with_name("sources.md").write_text(page(), encoding="utf-8")
