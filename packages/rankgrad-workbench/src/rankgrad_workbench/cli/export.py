"""Export a model for use without rankgrad."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .paths import require
from .trust import add_trust

HELP = """\
Write the model of a run as one file that needs only torch (torch.export), or as a folder of sentence-transformers.

  rankgrad export runs/glyphs-... -o model.pt2
  rankgrad export runs/glyphs-... -o model.pt2 --images PHOTOS
  rankgrad export RUN -o model.onnx        for onnxruntime; a model of texts takes the tokens of its tokenizer
  rankgrad export RUN -o FOLDER            a model of texts: for SentenceTransformer("FOLDER")
                                           (of a search with two encoders: encode_query, encode_document)

Before the file is written, the exported model is compared with the original on real images. Their embeddings must agree
within 1e-4. The file also describes how to prepare an image for the model.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run, or its model.pt")
    parser.add_argument("-o", "--out", type=Path, help="what to write (default: model.pt2, of texts the folder model)")
    parser.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="embeddings of length 1, as those of rankgrad embed, so that inner product equals cosine (the default)",
    )
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="images for the comparison (default: images of the run)"
    )
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the file, and print how to prepare an image."""
    require("the folder of a run, or its model.pt", arguments.model)
    from ..index.export import export
    from ..index.export_onnx import export_onnx
    from ..index.export_texts import export_texts
    from ..models.build import taking
    from ..models.record import read_record
    from ..runs.folder import Run, check_kind
    from ..settings import packages
    from .outputs import check_output

    run, out = Run(arguments.model), arguments.out
    if run.kind != "search":
        check_kind(arguments.model, "retrieval")
    weights = run.weights if arguments.model.is_dir() else arguments.model
    record = read_record(weights) if weights.is_file() else {"model": {"kind": ""}}
    kind, of_search = record["model"]["kind"], record.get("config", {}).get("task") == "search"
    if out is not None and out.suffix.lower() == ".onnx":
        write: Callable[..., dict[str, Any]] = export_onnx
    elif run.kind == "search" or kind in taking("texts"):
        out = out or Path("model")
        difference = export_texts(arguments.model, out, normalize=arguments.normalize)
        trust_it = ", trust_remote_code=True" if kind == "ngrams" else ""
        print(f"wrote {out}: load it by SentenceTransformer({str(out)!r}{trust_it})")
        if of_search:
            print(
                "encode_query and encode_document put the prompts before the texts, and take the right encoder of two"
            )
        print(f"largest difference from the model: {difference:.1e}")
        return
    else:
        write = export
    out = out or Path("model.pt2")
    check_output(out, "-o", arguments.model, endings=(".pt2", ".onnx"))
    trust = packages(arguments.trust)
    about = write(arguments.model, out, images=arguments.images, normalize=arguments.normalize, trust=trust)
    shape = "[" + ", ".join(map(str, about["input"]["shape"])) + "]"
    checked = about["checked"]
    takes = about["input"]["name"]
    what = f"{about['input']['colour']} images" if takes == "images" else takes
    print(f"wrote {out}: {what} {about['input']['dtype']} {shape} -> {about['output']['shape'][1]}-d")
    print(
        f"largest difference from the model: {checked['largest_difference']:.1e} on {checked['images']} {takes} "
        f"({checked['tolerance']:.0e} allowed)"
    )
    if about["preparation"]:
        print("to prepare an image:")
    for step in about["preparation"]:
        rest = ", ".join(f"{name} {value}" for name, value in step.items() if name != "step")
        print(f"  {step['step']}" + (f": {rest}" if rest else ""))
