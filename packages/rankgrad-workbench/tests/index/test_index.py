"""From a folder to search: embeddings that know where they came from, an index of them, and asking it with pictures."""

from __future__ import annotations

import io
import json
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import make_photos

from rankgrad import search
from rankgrad.ranks.normalize import unit_rows
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import load_table
from rankgrad_workbench.datasets.vectors import embedding_columns
from rankgrad_workbench.files import sha256_of
from rankgrad_workbench.index.embed import embed_folder
from rankgrad_workbench.index.embedder import Embedder
from rankgrad_workbench.index.gallery import Index, Origin
from rankgrad_workbench.index.query import Answer, Hit, as_text, find, query_files, write_answers
from rankgrad_workbench.models.build import build_model
from rankgrad_workbench.models.weights import save_weights
from rankgrad_workbench.settings import compose, plain


def some(rows: int = 200, dim: int = 12, seed: int = 0, origin: Origin | None = None) -> Index:
    """Random embeddings of 7 classes."""
    g = np.random.default_rng(seed)
    names = [f"c{row % 7}/{row}.png" for row in range(rows)]
    return Index.of(g.normal(size=(rows, dim)), names, [f"c{row % 7}" for row in range(rows)], origin)


@pytest.fixture(scope="module")
def made(photos: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the photos."""
    folder = tmp_path_factory.mktemp("made")
    embed_folder(weights, photos, folder / "photos.npz")
    return Index.load(folder / "photos.npz").save(folder / "photos.index")


# ------------------------------------------------------------------------------------------------------ what is found


def test_an_index_finds_what_exact_search_finds():
    rows = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)
    queries = torch.randn(9, 12, generator=torch.Generator().manual_seed(1))
    scores, items = some().topk(queries, 5)
    expected, expected_items = search.topk(unit_rows(queries), unit_rows(torch.from_numpy(rows)), 5)
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=0)
    assert torch.equal(items, expected_items)


def test_of_level_rows_the_lower_one_comes_first_and_a_list_is_no_longer_than_the_gallery():
    scores, items = Index.of(np.eye(2)[[1, 0, 0]], ["a", "b", "c"]).topk(torch.tensor([[1.0, 0.0]]), 9)
    assert items.tolist() == [[1, 2, 0]] and scores.tolist() == [[1.0, 1.0, 0.0]]


def test_a_gallery_of_one_image_can_be_asked():
    assert some(1).topk(torch.randn(2, 12), 3)[1].tolist() == [[0], [0]]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_a_gallery_of_nothing_is_refused(shape):
    with pytest.raises(ValueError, match=rf"\({shape[0]}, {shape[1]}\)"):
        Index.of(np.zeros(shape), list(map(str, range(shape[0]))))


def test_queries_may_be_arrays_and_lists():
    index = some()
    queries = torch.randn(3, 12)
    for given in (queries.numpy(), queries.tolist(), queries.double()):
        assert all(map(torch.equal, index.topk(given, np.int64(4)), index.topk(queries, 4)))


def test_an_index_says_what_it_can_be_asked_with():
    index = some()
    for queries, k, message in (
        (torch.zeros(2, 5), 1, r"needs float \[query, 12\]; got .* \(2, 5\)"),
        (torch.zeros(12), 1, "needs float"),
        (torch.zeros(1, 12, dtype=torch.long), 1, "needs float"),
        (torch.full((1, 12), torch.nan), 1, "must be finite"),
        (torch.zeros(1, 12), 0, "an integer >= 1; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            index.topk(queries, k)
    broken = np.ones((9, 2))
    broken[[3, 5], 1] = np.inf
    with pytest.raises(ValueError, match=r"that of 3 is not \(first of 2\)"):
        Index.of(broken, list(map(str, range(9))))


# ------------------------------------------------------------------------------------------------------------ on disk


@pytest.mark.parametrize("ending", ["", ".index", ".npz", ".NPZ", ".parquet", ".Parquet"])
def test_an_index_comes_back_from_its_file(tmp_path, ending):
    origin = Origin(Path("/photos"), Path("/runs/a/model.pt"), "0" * 64, invert=True)
    written = some(origin=origin)
    read = Index.load(written.save(tmp_path / f"x{ending}"))
    torch.testing.assert_close(read.embeddings, written.embeddings, atol=2e-7, rtol=0)
    for name in ("names", "classes", "origin", "texts", "dim"):
        assert getattr(read, name) == getattr(written, name)
    assert read.path(8) == Path("/photos/c1/8.png")


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_an_index_of_texts_without_classes_comes_back(tmp_path, ending):
    written = Index.of(np.eye(3), ["7", "http://a/../b", "c"], texts=["one", "", "two\nthree"])
    read = Index.load(written.save(tmp_path / f"x{ending}"))
    assert (read.names, read.texts, read.classes) == (written.names, written.texts, ("", "", ""))


def test_a_parquet_is_read_by_everything_that_reads_one(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    some().save(tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column_names == ["embeddings", "names", "labels"] and table.num_rows == 200
    lengths = np.linalg.norm(np.array(table["embeddings"].to_pylist()), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)
    assert load_table(tmp_path / "x.parquet").class_names == tuple(f"c{number}" for number in range(7))
    assert main(["evaluate", str(tmp_path / "x.parquet"), "--clusters", "none"]) == 0


def test_a_second_index_replaces_the_first(tmp_path):
    some(seed=1).save(tmp_path / "x.index")
    some(50, seed=2).save(tmp_path / "x.index")
    assert len(Index.load(tmp_path / "x.index")) == 50 and len([*tmp_path.iterdir()]) == 1


def test_an_index_is_written_where_its_ending_and_its_folder_allow_it(tmp_path, made, capsys):
    for name, message in (("x.csv", "ends in .csv"), ("x.faiss", "ends in .faiss"), ("no/x.npz", "folder")):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            some().save(tmp_path / name)
        assert main(["index", str(made), "-o", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    assert main(["index", str(made), "-o", str(made)]) == 2
    assert "is a file that this command reads" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


DAMAGES: list[tuple[dict[str, Any], str]] = [
    ({"origin": "{"}, "its origin is damaged"),
    ({"origin": "[" * 100000}, "its origin is damaged"),
    ({"origin": '{"root": 1, "model": "", "sha256": "", "invert": false}'}, "its origin is damaged"),
    ({"origin": "[1]"}, "its origin is damaged"),
    ({"origin": '{"root": "", "model": "", "sha256": ""}'}, "its origin is damaged .'invert'"),
    ({"origin": json.dumps({**json.loads(str(Origin(Path(), Path(), ""))), "threshold": 3})}, "its origin is damaged"),
    ({"origin": str(Origin(Path(), Path(), "")), "names": ["../../secret.png"] * 3}, "must be a name below its folder"),
    ({"origin": str(Origin(Path(), Path(), "")), "names": ["/etc/secret.png"] * 3}, "must be a name below its folder"),
    ({"texts": ["a"]}, "1 texts"),
    ({"texts": [1, 2, 3]}, "texts must be texts"),
]


@pytest.mark.parametrize(("columns", "message"), DAMAGES)
def test_a_damaged_or_foreign_index_says_what_is_wrong(tmp_path, columns, message):
    path = tmp_path / "x.index"
    with path.open("wb") as file:
        np.savez(file, **{"embeddings": np.eye(3), "names": np.array(["a", "b", "c"]), **columns})
    with pytest.raises(ValueError, match=message):
        Index.load(path)


def test_what_is_no_index_at_all_says_what_would_be_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing does not exist: .*rankgrad embed"):
        Index.load(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="is a folder, and an index is a file"):
        Index.load(tmp_path)


# --------------------------------------------------------------------------------------------------------- embeddings


def test_embeddings_know_their_folder_and_model(photos, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    embed_folder(weights, Path(photos.name), tmp_path / "a.npz")
    found = Index.load(tmp_path / "a.npz")
    assert found.origin == Origin(photos, weights, sha256_of(weights), invert=False)
    assert len(found.names) == 20 and all((photos / name).is_file() for name in found.names)
    assert [*found.classes] == [name.split("/")[0] for name in found.names]


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_embeddings_have_length_one_in_every_format(photos, weights, tmp_path, ending):
    out = tmp_path / f"a{ending}"
    assert main(["embed", str(weights), str(photos), "-o", str(out)]) == 0
    columns = embedding_columns(out, "embeddings", "labels")
    np.testing.assert_allclose(np.linalg.norm(columns["embeddings"], axis=1), 1, atol=1e-6)
    assert main(["evaluate", str(out), "--clusters", "none", "--similarity", "inner product"]) == 0
    query = str(photos / "class 0" / "0.png")
    assert main(["search", query, "--index", str(out)]) == 0  # without rankgrad index


@pytest.mark.parametrize("ending", [".csv", ".txt", ".json", ".h5", ".npy", ".pt", ".html"])
def test_embeddings_are_not_written_under_the_name_of_another_format(photos, weights, tmp_path, capsys, ending):
    assert main(["embed", str(weights), str(photos), "-o", str(tmp_path / f"a{ending}")]) == 2
    assert f"a{ending} ends in {ending}; give a name that ends in .npz or .parquet or .index" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_files_are_embedded_as_the_folder_was(photos, weights, tmp_path):
    embed_folder(weights, photos, tmp_path / "a.npz", batch_size=3)
    found = Index.load(tmp_path / "a.npz")
    again = Embedder.load(weights)([photos / name for name in found.names])
    torch.testing.assert_close(again, found.embeddings, atol=1e-5, rtol=0)


def test_without_a_name_embeddings_are_called_after_the_folder_and_replace_nothing(
    photos, weights, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["embed", str(weights), str(photos)]) == 0
    assert f"wrote {photos.name}.npz: 20 images" in capsys.readouterr().out
    before = Path(f"{photos.name}.npz").read_bytes()
    assert main(["embed", str(weights), str(photos)]) == 2
    assert f"{photos.name}.npz exists; name the file with -o" in capsys.readouterr().err
    assert Path(f"{photos.name}.npz").read_bytes() == before


TWO = {"embeddings": np.ones((2, 3)), "names": np.array(["a", "b"])}
FROM = {"origin": str(Origin(Path("/photos"), Path("/runs/a/model.pt"), "0" * 64))}
BAD_EMBEDDINGS = [
    ({"names": np.array(["a"])}, "must hold 'embeddings' and 'names'; it has names"),
    ({"embeddings": np.zeros((2, 3))}, "must hold 'embeddings' and 'names'; it has embeddings"),
    ({"embeddings": np.zeros((2, 3)), "names": np.array(["a"])}, "2 embeddings, 1 names, 2 labels"),
    ({**TWO, "labels": np.zeros(3, int)}, "2 embeddings, 2 names, 3 labels"),
    ({**TWO, "labels": np.array([0.0, 1.0])}, r"labels must be integers or texts, one per row; got float64 \(2,\)"),
    ({**TWO, "labels": np.array([True, False])}, "labels must be integers or texts, one per row; got bool"),
    ({**TWO, "labels": np.zeros((2, 2), int)}, "labels must be integers or texts, one per row"),
    (
        {**TWO, "labels": np.array([0, 9]), "class_names": np.array(["x"])},
        "no name for class 9 in 1 class_names",
    ),
    ({**TWO, "labels": np.array([-1, 0]), "class_names": np.array(["x"])}, "no name for class -1"),
    (
        {**TWO, "labels": np.array(["x", "y"]), "class_names": np.array(["x"])},
        "labels must be integers or texts, one per row; got <U1",
    ),
    ({**TWO, "labels": np.array([None, {}])}, "does not unpickle them"),
    ({**TWO, "names": np.array([0.5, 1])}, r"names must be texts \[row\]; got float64"),
    ({**TWO, "names": np.array(["a", "../b"]), **FROM}, "'../b' must be a name below its folder"),
    (
        {"embeddings": np.zeros(2), "names": np.array(["a", "b"])},
        r"must be float \[row, dim\]; got torch.float64 \(2,\)",
    ),
    ({"embeddings": np.zeros((0, 3)), "names": np.array([])}, r"must be float \[row, dim\]"),
    ({"embeddings": np.zeros((2, 0)), "names": np.array(["a", "b"])}, r"must be float \[row, dim\]"),
    (
        {"embeddings": np.zeros((1, 3)), "names": np.array(["a"]), "ref_embeddings": np.zeros((1, 3))},
        "separate queries and a gallery",
    ),
]


@pytest.mark.parametrize(("columns", "message"), BAD_EMBEDDINGS)
def test_embeddings_that_cannot_be_indexed_say_why(tmp_path, columns, message):
    np.savez(tmp_path / "a.npz", **columns)
    with pytest.raises(ValueError, match=message):
        Index.load(tmp_path / "a.npz")


LABELS: list[tuple[Any, list[str]]] = [
    ([10**9, -5, 10**9], ["1000000000", "-5", "1000000000"]),
    (np.array([2**63, 1, 2**63], np.uint64), [str(2**63), "1", str(2**63)]),
    (np.array([-(2**63), 2**63 - 1, 0]), [str(-(2**63)), str(2**63 - 1), "0"]),
    (["blue tit", "wren", "blue tit"], ["blue tit", "wren", "blue tit"]),
    (np.array([3, 250, 3], np.uint8), ["3", "250", "3"]),
]


@pytest.mark.parametrize(("labels", "shown"), LABELS)
def test_any_integers_and_texts_are_labels(tmp_path, labels, shown):
    np.savez(tmp_path / "a.npz", embeddings=np.eye(3), names=np.array(["a", "b", "c"]), labels=np.array(labels))
    index = Index.load(Index.load(tmp_path / "a.npz").save(tmp_path / "x"))
    assert [*index.classes] == shown


def _cut_npz(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def _flip_npz(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[200] ^= 1  # inside the numbers
    path.write_bytes(bytes(content))


def _lie(path: Path) -> None:
    """A header that claims much more than there is."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**4)})
    with ZipFile(path, "w") as archive:
        archive.writestr("embeddings.npy", content.getvalue())
        archive.writestr("names.npy", content.getvalue())


@pytest.mark.parametrize("damage", [_cut_npz, _flip_npz, _lie])
def test_damaged_embeddings_are_named(tmp_path, damage):
    path = tmp_path / "a.npz"
    np.savez(path, embeddings=np.eye(30), names=np.array(list(map(str, range(30)))))
    damage(path)
    with pytest.raises(ValueError, match=r"a\.npz is (damaged \(|not an npz file)") as error:
        Index.load(path)
    assert "\n" not in str(error.value)


def test_embeddings_that_are_not_there_say_how_to_make_them(tmp_path):
    with pytest.raises(FileNotFoundError, match="rankgrad embed RUN DIR -o"):
        Index.load(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_text("no zip")
    with pytest.raises(ValueError, match="not an npz file: .*numpy.savez"):
        Index.load(tmp_path / "a.npz")


def test_embeddings_of_ones_own_can_be_asked_with_vectors_but_not_with_pictures(tmp_path, capsys, photos):
    np.savez(tmp_path / "a.npz", embeddings=np.eye(3), names=np.array(["a", "b", "c"]), labels=np.array([4, 4, 2]))
    assert main(["index", str(tmp_path / "a.npz")]) == 0
    assert "can be searched from Python with vectors, but not with images" in capsys.readouterr().out
    index = Index.load(tmp_path / "a.index")
    assert index.topk(torch.eye(3), 1)[1].tolist() == [[0], [1], [2]] and index.path(1) == Path("b")
    assert index.classes == ("4", "4", "2")
    with pytest.raises(ValueError, match="the index names no model"):
        find([photos / "class 0" / "0.png"], index)


# ---------------------------------------------------------------------------------------------- asking with pictures


def test_a_picture_finds_its_class_and_not_itself(photos, made):
    index = Index.load(made)
    queries = [photos / f"class {number}" / "0.png" for number in range(4)]
    for query, answer in zip(queries, find(queries, index, k=6), strict=True):
        assert answer.query == query and [hit.rank for hit in answer.hits] == [1, 2, 3, 4, 5, 6]
        assert query not in [hit.path for hit in answer.hits]
        scores = [hit.score for hit in answer.hits]
        assert scores == sorted(scores, reverse=True) and scores[0] <= 1 + 1e-5
        assert answer.hits[0].class_name == query.parent.name
        assert all(hit.path == photos / hit.name and hit.name.startswith(hit.class_name) for hit in answer.hits)


def test_a_copy_of_a_picture_is_found(photos, made, tmp_path):
    copy = Path(shutil.copy(photos / "class 2" / "3.png", tmp_path))
    best = find([copy], Index.load(made), k=1)[0].hits[0]
    assert best.path == photos / "class 2" / "3.png" and best.score == pytest.approx(1, abs=1e-5)


def test_scores_are_cosines_of_the_embeddings(photos, made, weights):
    query = photos / "class 1" / "2.png"
    embedder = Embedder.load(weights)
    for hit in find([query], Index.load(made), k=3, embedder=embedder)[0].hits:
        one, other = unit_rows(embedder([query, hit.path]))
        assert hit.score == pytest.approx(float(one @ other), abs=1e-5)


def test_another_model_is_refused_and_a_moved_one_is_found(photos, made, weights, tmp_path):
    index, query = Index.load(made), [photos / "class 0" / "0.png"]
    torch.manual_seed(1)
    other = build_model("convnet", in_channels=3, widths=(8, 8, 8, 8), embedding_size=8)
    save_weights(tmp_path / "other.pt", other, {})
    with pytest.raises(ValueError, match="is not the model that made this index"):
        index.embedder(tmp_path / "other.pt")
    moved = Path(shutil.copy(weights, tmp_path / "moved.pt"))
    assert find(query, index, embedder=index.embedder(moved)) == find(query, index)
    gone = replace(index, origin=Origin(photos, tmp_path / "gone.pt", ""))
    with pytest.raises(FileNotFoundError, match="gone.pt .*--model RUN"):
        gone.embedder()


def test_files_and_folders_can_be_asked_with_and_others_say_why_not(photos, tmp_path):
    assert len(query_files([photos / "class 0", photos / "class 1" / "0.png"])) == 6
    (tmp_path / "bad.png").write_bytes(b"x")
    assert query_files([tmp_path / "bad.png"])  # a single file is read when it is embedded
    for given, error, message in (
        (photos / "none.png", FileNotFoundError, "no image or folder at"),
        (tmp_path, ValueError, "no readable image below .*\\nskipped 1 file"),
    ):
        with pytest.raises(error, match=message):
            query_files([given])


def test_the_sheet_is_written_although_nobody_reads_the_table(photos, made, tmp_path, monkeypatch):
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    sheet = tmp_path / "sheet.html"
    with suppress(BrokenPipeError):
        main(["search", str(photos / "class 3" / "1.png"), "--index", str(made), "--html", str(sheet)])
    assert sheet.is_file()


def test_the_command_prints_a_table_or_json_and_writes_a_sheet(photos, made, tmp_path, capsys):
    query = str(photos / "class 3" / "1.png")
    assert main(["search", query, "--index", str(made), "-k", "3", "--html", str(tmp_path / "sheet.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == query and lines[1].split() == ["rank", "score", "class", "path"]
    assert lines[2].split()[0] == "1" and str(photos) in lines[2] and lines[-1] == f"wrote {tmp_path / 'sheet.html'}"
    assert main(["search", query, "--index", str(made), "-k", "3", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["query"] == query and [hit["rank"] for hit in record["hits"]] == [1, 2, 3]
    assert set(record["hits"][0]) == {"rank", "score", "class", "path", "like", "name", "text"}


def test_a_gallery_that_moved_is_found_with_images(photos, made, tmp_path, capsys):
    moved = Path(shutil.copytree(photos, tmp_path / "moved"))
    words = ["search", str(moved / "class 0" / "0.png"), "--index", str(made), "--images", str(moved), "--json"]
    assert main(words) == 0
    hits = json.loads(capsys.readouterr().out)[0]["hits"]
    assert len(hits) == 10 and all(Path(hit["path"]).is_file() and str(moved) in hit["path"] for hit in hits)


def test_the_command_says_what_it_needs(photos, made, tmp_path, capsys):
    query = str(photos / "class 0" / "0.png")
    for words, message in (
        (["search", query, "--index", str(tmp_path / "none")], "none does not exist"),
        (["search", query, "--index", str(made), "-k", "0"], "an integer >= 1; got 0"),
        (["search", str(tmp_path / "none.png"), "--index", str(made)], "no image or folder at"),
        (["search", query, "--index", str(made), "--html", str(tmp_path / "no" / "a.html")], "to write a.html into"),
        (["index", str(tmp_path / "none.npz")], "give an npz or parquet of rankgrad embed"),
        (["search", query, "--index", str(made), "--html", str(tmp_path / "a.pdf")], "ends in .pdf"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err.strip().splitlines()[-1]


# -------------------------------------------------------------------------------------------------------------- page


def test_links_to_the_query_are_no_results(weights, tmp_path):
    photos = make_photos(tmp_path / "photos", classes=4)
    query = photos / "class 0" / "0.png"
    (photos / "class 1" / "link.png").symlink_to(query)
    embed_folder(weights, photos, tmp_path / "x.npz")
    (answer,) = find([query], Index.load(tmp_path / "x.npz"), 24)
    assert [hit.rank for hit in answer.hits] == [*range(1, 20)]
    assert not any(hit.path.samefile(query) for hit in answer.hits)


def test_a_gallery_that_is_not_there_is_named(photos, made, tmp_path, capsys):
    query = str(photos / "class 0" / "0.png")
    assert main(["search", query, "--index", str(made), "--images", str(tmp_path / "missing")]) == 2
    assert "missing does not exist" in capsys.readouterr().err
    moved = Index.load(made).at("/nowhere").save(tmp_path / "moved")
    assert main(["search", query, "--index", str(moved), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)
    assert output.err == ("/nowhere does not exist; were the images moved? --images DIR\n")
    assert main(["search", query, "--index", str(moved), "--images", str(photos), "--json"]) == 0
    assert not capsys.readouterr().err


def test_a_page_needs_nothing_but_itself_and_holds_each_picture_once(photos, made, tmp_path):
    queries = [photos / "class 0" / "0.png", photos / "class 0" / "1.png"]
    answers = find(queries, Index.load(made), k=4)
    page = write_answers(tmp_path / "page.html", answers, facts={"index": made}).read_text()
    shown = {path.resolve() for answer in answers for path in (answer.query, *(hit.path for hit in answer.hits))}
    assert page.count("{background-image:url(data:image/") == len(shown)
    assert len(re.findall(r'<span class="pic i\d+"', page)) == 2 * 5
    assert "<script" not in page and "prefers-color-scheme" in page and "script-src" not in page
    assert "style-src &#39;sha256-" in page and "unsafe-inline" not in page and 'style="' not in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)[^"']*""", page)
    assert all(f"{hit.score:.3f}" in page for answer in answers for hit in answer.hits)


def test_a_page_survives_lost_pictures_and_odd_names(tmp_path):
    Image.new("RGB", (300, 20), "red").save(tmp_path / "a&<b>.png")
    lost = Hit(1, 0.5, "<i>", "x/lost.png", tmp_path / "lost.png")
    (tmp_path / "broken.png").write_bytes(b"x")
    broken = Hit(2, -0.1, "", "broken.png", tmp_path / "broken.png")
    answers = [Answer(tmp_path / "a&<b>.png", (lost, broken)), Answer(tmp_path / "a&<b>.png", ())]
    page = write_answers(tmp_path / "page.html", answers).read_text()
    assert page.count('class="pic gone"') == 2 and "<b>.png" not in page and "<i>" not in page
    assert page.count("{background-image:") == 1 and "no items" in page
    with pytest.raises(FileNotFoundError, match="/no"):
        write_answers(tmp_path / "no" / "s.html", answers)


def test_a_page_says_of_what_it_is(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos / "class 0")
    hit = Hit(1, 0.5, "a", "0.png", photos / "class 0" / "0.png")
    images = write_answers(tmp_path / "page.html", [Answer(Path("0.png"), (hit,))]).read_text()
    assert "its nearest images with rank, similarity, class and file" in images
    assert '<span class="muted"></span>' in images  # no dot for the folder in which one is
    sentence = Hit(1, 0.5, "a", "line 3", Path("line 3"), "my card is lost")
    texts = write_answers(tmp_path / "page.html", [Answer("where is my card", (sentence,))]).read_text()
    assert "its nearest texts with rank, similarity, class and line" in texts


def test_names_do_nothing_to_a_terminal():
    evil = "a\x1b]0;title\x07\n  rank"
    table = as_text([Answer(Path(evil), (Hit(1, 0.5, evil, evil, Path(evil)),))])
    assert all(line.isprintable() for line in table.split("\n")) and len(table.split("\n")) == 3
    assert r"a\x1b]0;title\x07\n  rank" in table


def test_a_table_of_nothing_says_so():
    assert "no results: the index holds nothing else" in as_text([Answer(Path("a.png"), ())])


# ----------------------------------------------------------------------------------------------------- dark on bright


def test_paper_is_inverted_on_demand_where_bright_ink_was_learned(tmp_path):
    torch.manual_seed(0)
    model = build_model("convnet", in_channels=1, widths=(8, 8, 8, 8), embedding_size=8)
    data = plain(compose(["data=glyphs"]).data)
    weights = save_weights(tmp_path / "model.pt", model, {"data": data})
    for ground, folder in ((0, "ink"), (255, "paper")):
        (tmp_path / folder / "k").mkdir(parents=True)
        for number in range(3):
            drawing = Image.new("L", (28, 28), ground)
            drawing.paste(255 - ground, (4 + 5 * number, 3, 8 + 5 * number, 25))
            drawing.save(tmp_path / folder / "k" / f"{number}.png")
    embed_folder(weights, tmp_path / "ink", tmp_path / "ink.npz")
    assert main(["embed", str(weights), str(tmp_path / "paper"), "-o", str(tmp_path / "ok.npz"), "--invert"]) == 0
    ink, mended = (Index.load(tmp_path / f"{name}.npz") for name in ("ink", "ok"))
    torch.testing.assert_close(ink.embeddings, mended.embeddings, atol=1e-6, rtol=0)
    index = Index.load(mended.save(tmp_path / "x"))  # and queries are inverted like the gallery
    best = find([tmp_path / "paper" / "k" / "1.png"], index.at(tmp_path), k=1)[0].hits[0]
    assert index.embedder().invert and best.name == "k/1.png" and best.score == pytest.approx(1, abs=1e-5)
