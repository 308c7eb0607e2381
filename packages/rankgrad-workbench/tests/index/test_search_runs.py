"""`rankgrad search RUN QUERY`: a run is asked without an index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_runs import make_photos, make_texts, small, small_texts, train

from rankgrad_workbench.cli import main
from rankgrad_workbench.index.gallery import index_of_run
from rankgrad_workbench.runs.folder import Run


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("texts")
    return train(*small_texts(make_texts(folder / "mine.csv"), "loggers=[]"), f"out={folder / 'run'}")


def test_a_run_on_texts_is_asked_with_a_sentence(texts, capsys):
    with np.load(texts.embeddings) as file:
        sentences = file["texts"].tolist()
    assert main(["search", str(texts.folder), sentences[3], "-k", "2", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["query"] == sentences[3] and len(answer["hits"]) == 2
    assert answer["hits"][0]["text"] == sentences[3] and answer["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert main(["search", sentences[3], "--index", str(texts.folder), "-k", "2"]) == 0
    assert sentences[3] in capsys.readouterr().out


def test_a_run_on_images_is_asked_with_a_file_that_does_not_find_itself(tmp_path, capsys):
    photos = make_photos(tmp_path / "photos")
    run = train(*small(photos, "loggers=[]"), f"out={tmp_path / 'run'}")
    index = index_of_run(run.folder)
    query = photos / index.names[0]
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["search", str(run.folder), str(query), "-k", "3", "--json", "--html", str(page)]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    paths = [Path(hit["path"]) for hit in answer["hits"]]
    assert len(paths) == 3 and query not in paths and all(path.is_file() for path in paths)
    assert page.read_text(encoding="utf-8").count("data:image/") >= 4


@pytest.mark.slow
def test_a_run_on_a_list_of_images_finds_their_files(tmp_path, capsys):
    photos = make_photos(tmp_path / "photos")
    rows = [f"{file.relative_to(photos)},{file.parent.name}" for file in sorted(photos.rglob("*.png"))]
    for place, more in ((photos, []), (tmp_path, [f"data.load.images={photos}"])):
        (place / "list.csv").write_text("\n".join(["path,label", *rows]))
        listed = ["data=manifest", f"data.root={place / 'list.csv'}", *more]
        run = train(*small(photos, "loggers=[]", *listed), f"out={tmp_path / 'run' / place.name}")
        query = photos / index_of_run(run.folder).names[0]
        capsys.readouterr()
        assert main(["search", str(run.folder), str(query), "-k", "3", "--json"]) == 0
        output = capsys.readouterr()
        paths = [Path(hit["path"]) for hit in json.loads(output.out)[0]["hits"]]
        assert len(paths) == 3 and query not in paths and all(path.is_file() for path in paths) and not output.err


def test_who_does_not_say_where_to_search_is_told_how(texts, tmp_path, capsys):
    lean = train(*small_texts(texts.folder.parent / "mine.csv", "lean=true"), f"out={tmp_path / 'lean'}")
    for words, said in (
        (["search", "my card"], "To search your own: rankgrad embed RUN DIR_OR_FILE"),
        (["search", str(texts.folder)], "there is no query for"),
        (["search", str(lean.folder), "my card"], "holds no embeddings.npz and no model.pt: finish the run"),
    ):
        capsys.readouterr()
        assert main(words) == 2
        assert said in capsys.readouterr().err
