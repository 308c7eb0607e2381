"""Write the model of a run as one file that needs only torch (torch.export), or as a folder of sentence-transformers.

  rankgrad export runs/glyphs-... -o model.pt2
  rankgrad export runs/glyphs-... -o model.pt2 --images PHOTOS
  rankgrad export RUN -o model.onnx        for onnxruntime; a model of texts takes the tokens of its tokenizer
  rankgrad export RUN -o FOLDER            a model of texts: for SentenceTransformer("FOLDER")
                                           (of a search with two encoders: encode_query, encode_document)

Before the file is written, the exported model is compared with the original on real images. Their embeddings must agree
within 1e-4. The file also describes how to prepare an image for the model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_run, add_trust, require


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_run(parser)
    add = parser.add_argument
    add("-o", "--out", type=Path, help="what to write (default: model.pt2, of texts the folder model)")
    what = "embeddings of length 1, as those of rankgrad embed, so that inner product equals cosine (the default)"
    add("--normalize", action=argparse.BooleanOptionalAction, default=True, help=what)
    add("--images", type=Path, metavar="DIR", help="images for the comparison (default: images of the run)")
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the file, and print how to prepare an image."""
    require("the folder of a run, or its model.pt", arguments.model)
    from ..index.export import export, export_texts
    from ..models.build import taking
    from ..models.record import read_record
    from ..runs.folder import Run, check_kind
    from ..settings import packages
    from .outputs import check_output

    run, out = Run(arguments.model), arguments.out
    if run.kind != "search":
        check_kind(arguments.model, "retrieval")
    weights = run.weights if arguments.model.is_dir() else arguments.model
    record = read_record(weights)
    kind, onnx = record["model"]["kind"], out is not None and out.suffix.lower() == ".onnx"
    if not onnx and (run.kind == "search" or kind in taking("texts")):
        out = out or Path("model")
        difference = export_texts(arguments.model, out, normalize=arguments.normalize)
        trust_it = ", trust_remote_code=True" if kind == "ngrams" else ""
        print(f"wrote {out}: load it by SentenceTransformer({str(out)!r}{trust_it})")
        if record["config"].get("task") == "search":
            print("encode_query and encode_document put the prompts before the texts, and take the right encoder")
        print(f"largest difference from the model: {difference:.1e}")
        return
    out = out or Path("model.pt2")
    check_output(out, "-o", arguments.model, endings=(".pt2", ".onnx"))
    trust = packages(arguments.trust)
    about = export(arguments.model, out, images=arguments.images, normalize=arguments.normalize, trust=trust)
    taken, checked = about["input"], about["checked"]
    what = f"{taken['colour']} images" if taken["name"] == "images" else taken["name"]
    shape = ", ".join(map(str, taken["shape"]))
    print(f"wrote {out}: {what} {taken['dtype']} [{shape}] -> {about['output']['shape'][1]}-d")
    allowed = f"on {checked['images']} {taken['name']} ({checked['tolerance']:.0e} allowed)"
    print(f"largest difference from the model: {checked['largest_difference']:.1e} {allowed}")
    for step in about["preparation"]:
        print(f"to prepare an image: {step}")
