"""From a folder to search: embeddings that know where they came from, an index of them, and asking it with pictures."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from forks import forked, wait
from PIL import Image
from small_runs import make_photos

from rankgrad import search
from rankgrad.common.files import temporary
from rankgrad.common.files.folders import LockedError, lock
from rankgrad.common.progress import steps
from rankgrad.models.build import build_model
from rankgrad.models.weights import save_weights
from rankgrad.ranks.normalize import unit_rows
from rankgrad.workbench.cli import main
from rankgrad.workbench.config import compose, plain
from rankgrad.workbench.index import builder, disk
from rankgrad.workbench.index import embedder as embedding
from rankgrad.workbench.index.builder import build, measure
from rankgrad.workbench.index.disk import HEAD
from rankgrad.workbench.index.embedder import Embedded, Embedder, GroundWarning, Origin
from rankgrad.workbench.index.folder import embed_folder
from rankgrad.workbench.index.gallery import Index
from rankgrad.workbench.index.page import write_answers
from rankgrad.workbench.index.query import Answer, Hit, as_text, find, query_files

faiss = pytest.importorskip("faiss", reason="an index needs faiss")


def some(rows: int = 200, dim: int = 12, seed: int = 0) -> Embedded:
    """Random embeddings of 7 classes, not normalised."""
    g = np.random.default_rng(seed)
    names = tuple(f"c{row % 7}/{row}.png" for row in range(rows))
    classes = tuple(f"c{number}" for number in range(7))
    return Embedded(g.normal(size=(rows, dim)).astype(np.float32), names, np.arange(rows) % 7, classes)


@pytest.fixture(scope="module")
def made(photos: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the photos."""
    folder = tmp_path_factory.mktemp("made")
    embed_folder(weights, photos, folder / "photos.npz")
    return build(Embedded.load(folder / "photos.npz")).save(folder / "photos.index")


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "index"))


# ------------------------------------------------------------------------------------------------------ what is found


@pytest.mark.parametrize("normalize", [True, False])
def test_an_exact_index_finds_what_exact_search_finds(normalize):
    gallery = some()
    queries = torch.randn(9, 12, generator=torch.Generator().manual_seed(1))
    rows, asked = torch.from_numpy(gallery.embeddings), queries
    if normalize:
        rows, asked = unit_rows(rows), unit_rows(asked)
    scores, items = build(gallery, normalize=normalize).topk(queries, 5)
    expected, expected_items = search.topk(asked, rows, 5)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(items, expected_items)


def test_of_level_rows_the_lower_one_comes_first_and_a_list_is_no_longer_than_the_gallery():
    gallery = Embedded(np.eye(2, dtype=np.float32)[[1, 0, 0]], ("a", "b", "c"), np.zeros(3, int), ("",))
    scores, items = build(gallery).topk(torch.tensor([[1.0, 0.0]]), 9)
    assert items.tolist() == [[1, 2, 0]] and scores.tolist() == [[1.0, 1.0, 0.0]]


def test_what_an_approximate_index_misses_is_measured_against_the_exact_one():
    kind = "hnsw"
    gallery = some(1200, 24)
    index = build(gallery, kind, effort=1)
    rows = unit_rows(torch.from_numpy(gallery.embeddings))
    found = index.measured
    _, exact = search.topk(rows, rows, 10, ids=range(1200), ref_ids=range(1200))
    _, mine = index.topk(rows, 11)
    asked = np.random.default_rng(0).choice(1200, 1000, replace=False).tolist()  # as `measure` draws them
    hits = [len(set(exact[row].tolist()) & (set(mine[row].tolist()) - {row})) / 10 for row in asked]
    assert found is not None and found.queries == 1000 and found.k == 10
    assert found.recall == pytest.approx(np.mean(hits), abs=0.01) and found.recall < 0.9
    better = build(gallery, kind, effort=2000).measured
    assert better is not None and better.recall > 0.99


def test_building_an_index_has_progress_bars(many, monkeypatch, capsys):
    pytest.importorskip("tqdm", reason="without tqdm only numbers are printed")
    monkeypatch.setattr(builder, "steps", lambda *given, delay=0.0: steps(*given, delay=0))  # as if it took long
    build(many)
    told = capsys.readouterr().err
    assert f"{len(many.names)}/{len(many.names)}" in told and "row/s" in told


@pytest.fixture(scope="module")
def many() -> Embedded:
    """Rows around 500 centres."""
    g = np.random.default_rng(0)
    centres, number = g.normal(size=(500, 16)), g.integers(0, 500, 10_000)
    rows = (centres[number] + 0.4 * g.normal(size=(10_000, 16))).astype(np.float32)
    return Embedded(rows, tuple(f"{row}.png" for row in range(10_000)), number, tuple(map(str, range(500))))


def test_an_index_of_an_npz_that_stays_in_its_file_is_that_of_the_same_in_memory(many, tmp_path, monkeypatch):
    np.savez(tmp_path / "many.npz", embeddings=many.embeddings, names=np.array(many.names))
    monkeypatch.setattr(builder, "BLOCK", 16 * 3000)
    gallery = Embedded.load(tmp_path / "many.npz", mapped=True)
    assert isinstance(gallery.embeddings.base, np.memmap) or isinstance(gallery.embeddings, np.memmap)
    queries = torch.from_numpy(many.embeddings[:20])
    assert torch.equal(build(gallery).topk(queries, 5)[1], build(many).topk(queries, 5)[1])
    broken = many.embeddings.copy()
    broken[[4000, 9000], 3] = np.nan
    with pytest.raises(ValueError, match=r"that of 4000.png is not \(first of 2\)"):
        build(replace(many, embeddings=broken))


def test_a_gallery_of_one_image_can_be_asked_and_measured():
    gallery = some(1)
    for kind in ("exact", "hnsw"):
        index = build(gallery, kind)
        assert index.topk(torch.randn(2, 12), 3)[1].tolist() == [[0], [0]]
    assert measure(index, gallery.embeddings).recall == 1


WRONG = [
    (dict(kind="flat"), "unknown kind of index 'flat'; known: exact, hnsw"),
    (dict(kind="hnsw", effort=0), "an integer >= 1; got 0"),
    (dict(effort=3), "an exact index always searches everything"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_an_index_that_cannot_be_built_says_why(options, message):
    with pytest.raises(ValueError, match=message):
        build(some(), **options)


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_a_gallery_of_nothing_is_refused_before_faiss_ends_the_process(kind, shape):
    names = tuple(map(str, range(shape[0])))
    gallery = Embedded(np.zeros(shape, np.float32), names, np.zeros(shape[0], np.int64), ("",))
    with pytest.raises(ValueError, match=rf"\({shape[0]}, {shape[1]}\)"):
        build(gallery, kind)


def test_queries_may_be_arrays_and_lists():
    index = build(some())
    queries = torch.randn(3, 12)
    for given in (queries.numpy(), queries.tolist(), queries.double()):
        assert all(map(torch.equal, index.topk(given, np.int64(4)), index.topk(queries, 4)))


def test_an_index_says_what_it_can_be_asked_with():
    index = build(some())
    for queries, k, message in (
        (torch.zeros(2, 5), 1, r"holds 12-d embeddings and needs queries float \[query, 12\]; got .* \(2, 5\)"),
        (torch.zeros(12), 1, "needs queries float"),
        (torch.zeros(1, 12, dtype=torch.long), 1, "needs queries float"),
        (torch.full((1, 12), torch.nan), 1, "NaN or infinity"),
        (torch.zeros(1, 12), 0, "an integer >= 1; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            index.topk(queries, k)
    broken = some()
    broken.embeddings[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"that of c3/3.png is not \(first of 1\)"):
        build(broken)


# ------------------------------------------------------------------------------------------------------------ on disk


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_an_index_comes_back_from_its_folder(tmp_path, kind):
    gallery = some()
    origin = Origin(Path("/photos"), Path("/runs/a/model.pt"), "0" * 64, invert=True)
    written = build(Embedded(gallery.embeddings, gallery.names, gallery.labels, gallery.class_names, origin), kind)
    read = Index.load(written.save(tmp_path / "x"))
    queries = torch.randn(4, 12)
    assert torch.equal(read.topk(queries, 5)[1], written.topk(queries, 5)[1])
    for name in ("names", "class_names", "kind", "normalized", "origin", "measured", "dim"):
        assert getattr(read, name) == getattr(written, name)
    assert read.labels.tolist() == written.labels.tolist() and read.path(8) == Path("/photos/c1/8.png")


def test_a_second_index_replaces_the_first_and_leaves_no_file_of_it(tmp_path):
    build(some(seed=1)).save(tmp_path / "x")
    build(some(50, seed=2)).save(tmp_path / "x")
    assert len(Index.load(tmp_path / "x")) == 50
    assert sorted(path.suffix for path in (tmp_path / "x").iterdir()) == [".faiss", ".json"]


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_writer_that_dies_leaves_the_old_index(tmp_path, monkeypatch, writes):
    build(some(seed=1)).save(tmp_path / "x")
    replaced, real = [], os.replace

    def dying(one, other, **at):
        if len(replaced) == writes:
            raise KeyboardInterrupt
        replaced.append(other)
        real(one, other, **at)

    monkeypatch.setattr(os, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        build(some(50, seed=2)).save(tmp_path / "x")
    monkeypatch.undo()
    assert len(Index.load(tmp_path / "x")) == 200 and len([*(tmp_path / "x").iterdir()]) == 2
    build(some(50, seed=2)).save(tmp_path / "x")
    assert len(Index.load(tmp_path / "x")) == 50 and len([*(tmp_path / "x").iterdir()]) == 2


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_index_whose_first_writer_was_killed_can_be_written_again(tmp_path, monkeypatch, at, earlier):
    folder = build(some(seed=1)).save(tmp_path / "x") if earlier else tmp_path / "x"
    calls, real = [], os.replace

    def killed(one, other, **where):
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(other)
        real(one, other, **where)

    def write() -> None:
        monkeypatch.setattr(os, "replace", killed)
        build(some(50, seed=2)).save(folder)

    assert wait(forked(write)) == (-signal.SIGKILL if at < 3 else 0)  # at each rename; there are three
    if earlier:
        assert len(Index.load(folder)) == (200 if at < 3 else 50)
    build(some(30, seed=3)).save(folder)
    assert len(Index.load(folder)) == 30 and len(os.listdir(folder)) == 2


def test_one_process_at_a_time_writes_an_index(tmp_path):
    folder = build(some(seed=1)).save(tmp_path / "x")
    with lock(folder, "this index"), pytest.raises(LockedError, match=f"this index is in use: {folder} is locked by"):
        build(some(50, seed=2)).save(folder)
    assert len(Index.load(folder)) == 200 and len(os.listdir(folder)) == 2


@pytest.mark.parametrize("before", ["sha256_of", "_outside"])
def test_an_index_that_is_replaced_while_it_is_read_is_the_new_one(tmp_path, monkeypatch, before):
    folder, real = build(some(seed=1)).save(tmp_path / "x"), getattr(disk, before)

    def replacing(path):
        monkeypatch.undo()
        build(some(50, seed=2)).save(folder)
        return real(path)

    monkeypatch.setattr(disk, before, replacing)
    assert len(Index.load(folder)) == 50


def test_what_an_index_writes_takes_the_place_of_links(tmp_path):
    build(some(seed=1)).save(tmp_path / "x")
    (tmp_path / "rc").write_text("valued")
    for name in ("vectors.faiss", "index.json"):
        for link in (name, temporary(name)):
            (tmp_path / "x" / link).unlink(missing_ok=True)
            (tmp_path / "x" / link).symlink_to(tmp_path / "rc")
    build(some(50, seed=2)).save(tmp_path / "x")
    assert len(Index.load(tmp_path / "x")) == 50 and (tmp_path / "rc").read_text() == "valued"
    assert not any(path.is_symlink() for path in (tmp_path / "x").iterdir())


def test_vectors_whose_scores_are_distances_are_named_when_they_are_read(tmp_path):
    folder = build(some()).save(tmp_path / "x")
    (old,) = folder.glob("*.faiss")
    vectors = faiss.IndexFlatL2(12)
    vectors.add(some().embeddings)
    faiss.write_index(vectors, str(old))
    _agree(folder)
    with pytest.raises(ValueError, match=rf"{old} is"):
        Index.load(folder)


def _on_disk(folder: Path) -> Any:
    """Vectors whose cells are in a second file."""
    vectors = faiss.index_factory(12, "IVF4,Flat", faiss.METRIC_INNER_PRODUCT)
    vectors.train(some().embeddings)
    vectors.add(some().embeddings)
    lists = faiss.OnDiskInvertedLists(vectors.nlist, vectors.code_size, str(folder / "second"))
    for cell in range(vectors.nlist):
        size = vectors.invlists.list_size(cell)
        lists.add_entries(cell, size, vectors.invlists.get_ids(cell), vectors.invlists.get_codes(cell))
    vectors.replace_invlists(lists, True)
    lists.this.disown()  # it belongs to the index now
    return vectors


def _within(folder: Path) -> Any:
    """Vectors whose cells are found by an index with a second file."""
    vectors = faiss.IndexIVFFlat(_on_disk(folder), 12, 200, faiss.METRIC_INNER_PRODUCT)
    vectors.is_trained = True
    return vectors


def _around(folder: Path) -> Any:
    return faiss.IndexPreTransform(_on_disk(folder))


HELD: list[Any] = []  # what faiss uses but does not keep


def _below(folder: Path) -> Any:
    """A graph whose vectors are in an index with a second file."""
    vectors = build(some(), "hnsw").vectors
    HELD.append(_on_disk(folder))
    vectors.storage, vectors.own_fields = HELD[-1], False
    return vectors


@pytest.mark.parametrize("make", [_on_disk, _within, _around, _below])
def test_an_index_that_names_a_second_file_is_refused_before_faiss_opens_that_file(tmp_path, make):
    folder = build(some()).save(tmp_path / "x")
    (old,) = folder.glob("*.faiss")
    faiss.write_index(make(tmp_path), str(old))
    _agree(folder)
    (tmp_path / "second").unlink()  # faiss would say that it is not there
    with pytest.raises(ValueError, match=rf"{old} is refused: it"):
        Index.load(folder)


def test_an_index_takes_no_place_that_is_not_its_own(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to.txt").write_text("you")
    with pytest.raises(FileExistsError, match="exists and is not an index"):
        build(some()).save(tmp_path / "letters")
    with pytest.raises(FileExistsError, match="exists and is not an index"):
        build(some()).save(tmp_path / "letters" / "to.txt")
    with pytest.raises(FileNotFoundError, match="no folder"):
        build(some()).save(tmp_path / "missing" / "x")
    site = {"index.json": '{"title": "a site"}', "vectors-mine.faiss": "mine"}
    (tmp_path / "site").mkdir()
    for name, content in site.items():
        (tmp_path / "site" / name).write_text(content)
    with pytest.raises(FileExistsError, match="exists and is not an index"):
        build(some()).save(tmp_path / "site")
    assert {path.name: path.read_text() for path in (tmp_path / "site").iterdir()} == site


def _cut(folder: Path) -> None:
    vectors = next(folder.glob("*.faiss"))
    vectors.write_bytes(vectors.read_bytes()[:-8])


def _flip(folder: Path) -> None:
    """One bit of the numbers, which faiss reads without a word."""
    vectors = next(folder.glob("*.faiss"))
    content = bytearray(vectors.read_bytes())
    content[-9] ^= 64
    vectors.write_bytes(bytes(content))


def _agree(folder: Path, **changed: Any) -> None:
    """Let index.json say what is so of the vectors, and what else is given."""
    vectors = next(folder.glob("*.faiss"))
    head = json.loads((folder / HEAD).read_text())
    head["vectors"] |= {"bytes": vectors.stat().st_size, "sha256": embedding.sha256_of(vectors)}
    (folder / HEAD).write_text(json.dumps(head | changed))


def _scramble(folder: Path) -> None:
    vectors = next(folder.glob("*.faiss"))
    vectors.write_bytes(b"x" * vectors.stat().st_size)
    _agree(folder)


def _empty(folder: Path) -> None:
    """The head of an index, and no vectors."""
    vectors = next(folder.glob("*.faiss"))
    vectors.write_bytes(vectors.read_bytes()[:60])
    _agree(folder)


def _elsewhere(folder: Path) -> None:
    head = json.loads((folder / HEAD).read_text())
    head["vectors"]["file"] = "../index/" + head["vectors"]["file"]
    (folder / HEAD).write_text(json.dumps(head))


def _mix(folder: Path) -> None:
    other = build(some(30, 8)).save(folder.parent / "other")
    head = json.loads((folder / HEAD).read_text())
    vectors = next(other.glob("*.faiss"))
    (folder / vectors.name).write_bytes(vectors.read_bytes())
    head["vectors"] |= {"file": vectors.name, "bytes": vectors.stat().st_size, "sha256": embedding.sha256_of(vectors)}
    (folder / HEAD).write_text(json.dumps(head))


DAMAGES = [
    (lambda folder: (folder / HEAD).unlink(), "no index at .*: make one with rankgrad index EMB.npz -o"),
    (lambda folder: (folder / HEAD).write_text("{"), "is damaged: it is not json .*Write the index again"),
    (lambda folder: (folder / HEAD).write_bytes(b"\xff\xfe"), "is damaged"),
    (lambda folder: (folder / HEAD).write_text('{"format": "other"}'), "not written by this version"),
    (
        lambda folder: (folder / HEAD).write_text('{"format": "rankgrad-index-1"}'),
        "is damaged: it lacks vectors, images",
    ),
    (lambda folder: next(folder.glob("*.faiss")).unlink(), "lacks vectors-.*Copy the whole folder"),
    (_cut, "is damaged: it has .* bytes and should have"),
    (_flip, "is damaged: its SHA-256 is wrong"),
    (_elsewhere, "is damaged: vectors has a wrong type or value"),
    (lambda folder: _agree(folder, kind="hnsw"), "must be an index of the kind hnsw; got a IndexFlat"),
    (lambda folder: _agree(folder, kind="pq"), "is damaged: kind has a wrong type or value"),
    (lambda folder: _agree(folder, labels=[10**9] * 20), "is damaged: labels has a wrong type or value"),
    (lambda folder: _agree(folder, labels=[0]), "is damaged: labels has"),
    (lambda folder: _agree(folder, labels=[0.5] * 20), "is damaged: labels has"),
    (lambda folder: _agree(folder, names=3, dim="8"), "is damaged: images, dim; class_names, names has"),
    (lambda folder: _agree(folder, images=True), "is damaged: images, dim has"),
    (lambda folder: _agree(folder, measured={"recall": 1}), "missing 3 required"),
    (
        lambda folder: _agree(folder, origin={"root": 1, "model": "", "sha256": ""}),
        "root, model and sha256 must be texts",
    ),
    (
        lambda folder: _agree(folder, names=["../../secret.png"] * 20),
        "secret.png' must be a name below its folder",
    ),
    (
        lambda folder: _agree(folder, names=["/etc/secret.png"] * 20),
        "secret.png' must be a name below its folder",
    ),
    (lambda folder: (folder / HEAD).write_text("[" * 100000), "is damaged: it is not json"),
    (_scramble, "is refused: it is an unknown kind of index"),
    (_empty, "is damaged: faiss cannot read it"),
    (_mix, "do not belong together: index.json has 20 rows in 8 dimensions, .* has 30"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_or_foreign_index_says_what_is_wrong(index, damage, message):
    damage(index)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Index.load(index)


def test_what_is_no_index_at_all_says_what_would_be_one(tmp_path, made):
    with pytest.raises(FileNotFoundError, match="no index at .*missing: .*EMB.npz"):
        Index.load(tmp_path / "missing")
    with pytest.raises(ValueError, match="is a file .*rankgrad index"):
        Index.load(made.with_suffix(".npz"))


def test_without_faiss_an_error_says_what_to_install(monkeypatch, capsys, made, photos):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=r"faiss: pip install .*\[search\]"):
        build(some())
    assert main(["search", str(photos / "class 0" / "0.png"), "--index", str(made)]) == 2
    assert "this needs faiss" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- embeddings


def test_embeddings_know_their_folder_and_model(photos, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    embed_folder(weights, Path(photos.name), tmp_path / "a.npz")
    found = Embedded.load(tmp_path / "a.npz")
    assert found.origin == Origin(photos, weights, embedding.sha256_of(weights), invert=False)
    assert len(found.names) == 20 and all((photos / name).is_file() for name in found.names)
    assert [found.class_names[label] for label in found.labels] == [name.split("/")[0] for name in found.names]


def test_files_are_embedded_as_the_folder_was(photos, weights, tmp_path):
    embed_folder(weights, photos, tmp_path / "a.npz", batch_size=3)
    found = Embedded.load(tmp_path / "a.npz")
    again = Embedder.load(weights)([photos / name for name in found.names])
    np.testing.assert_allclose(again.numpy(), found.embeddings, atol=1e-5)


def test_without_a_name_embeddings_are_called_after_the_folder_and_replace_only_their_own(
    photos, weights, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["embed", str(weights), str(photos)]) == 0
    assert f"wrote {photos.name}.npz: 20 images" in capsys.readouterr().out
    assert main(["embed", str(weights), str(photos)]) == 0
    other = make_photos(tmp_path / "elsewhere" / photos.name, classes=2)
    assert main(["embed", str(weights), str(other)]) == 2
    refused = f"{photos.name}.npz exists, and does not hold embeddings of"
    assert f"{refused} {other}; choose another file with -o" in capsys.readouterr().err
    for foreign in (b"a page", b""):
        Path(f"{photos.name}.npz").write_bytes(foreign)
        assert main(["embed", str(weights), str(photos)]) == 2
        assert f"{refused} {photos}; choose another file with -o" in capsys.readouterr().err
        assert Path(f"{photos.name}.npz").read_bytes() == foreign


TWO = {"embeddings": np.ones((2, 3)), "names": np.array(["a", "b"])}
FROM = {"root": np.array("/photos"), "model": np.array("/runs/a/model.pt"), "sha256": np.array("0" * 64)}
BAD_EMBEDDINGS = [
    ({"names": np.array(["a"])}, "must hold 'embeddings' and 'names'; it has names"),
    ({"embeddings": np.zeros((2, 3))}, "must hold 'embeddings' and 'names'; it has embeddings"),
    ({"embeddings": np.zeros((2, 3)), "names": np.array(["a"])}, "2 embeddings, 1 names and 2 labels"),
    ({**TWO, "labels": np.zeros(3, int)}, "2 embeddings, 2 names and 3 labels"),
    ({**TWO, "labels": np.array([0.0, 1.0])}, r"labels must be integers or texts, one per row; got float64 \(2,\)"),
    ({**TWO, "labels": np.array([True, False])}, "labels must be integers or texts, one per row; got bool"),
    ({**TWO, "labels": np.zeros((2, 2), int)}, "labels must be integers or texts, one per row"),
    (
        {**TWO, "labels": np.array([0, 9]), "class_names": np.array(["x"])},
        "no name for class 9: 1 class_names were given",
    ),
    ({**TWO, "labels": np.array([-1, 0]), "class_names": np.array(["x"])}, "no name for class -1"),
    (
        {**TWO, "labels": np.array(["x", "y"]), "class_names": np.array(["x"])},
        "class_names .* need labels that are",
    ),
    ({**TWO, "labels": np.array([None, {}])}, "does not unpickle them"),
    ({**TWO, "names": np.array([0.5, 1])}, r"names in .* must be texts \[row\]; got float64"),
    ({**TWO, "names": np.array(["a", "../b"]), **FROM}, "'../b' must be a name below its folder"),
    ({**TWO, **FROM, "invert": np.array([1, 2])}, "root, model and sha256 must be texts, invert true or false"),
    ({"embeddings": np.zeros(2), "names": np.array(["a", "b"])}, r"must be float \[row, dim\]; got float64 \(2,\)"),
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
        Embedded.load(tmp_path / "a.npz")


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
    index = Index.load(build(Embedded.load(tmp_path / "a.npz")).save(tmp_path / "x"))
    assert [index.class_names[label] for label in index.labels] == shown and len(index.class_names) <= 3


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
        Embedded.load(path)
    assert "\n" not in str(error.value)


def test_embeddings_that_are_not_there_say_how_to_make_them(tmp_path):
    with pytest.raises(FileNotFoundError, match="rankgrad embed RUN DIR -o"):
        Embedded.load(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_text("no zip")
    with pytest.raises(ValueError, match="not an npz file: .*numpy.savez"):
        Embedded.load(tmp_path / "a.npz")


def test_embeddings_of_ones_own_can_be_asked_with_vectors_but_not_with_pictures(tmp_path, capsys, photos):
    np.savez(tmp_path / "a.npz", embeddings=np.eye(3), names=np.array(["a", "b", "c"]), labels=np.array([4, 4, 2]))
    assert main(["index", str(tmp_path / "a.npz")]) == 0
    assert "can be searched from Python with vectors, but not with images" in capsys.readouterr().out
    index = Index.load(tmp_path / "a.index")
    assert index.topk(torch.eye(3), 1)[1].tolist() == [[0], [1], [2]] and index.path(1) == Path("b")
    assert [index.class_names[label] for label in index.labels] == ["4", "4", "2"]
    with pytest.raises(ValueError, match="model of its embeddings"):
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
    gone = Index(
        index.vectors, index.names, index.labels, index.class_names, origin=Origin(photos, tmp_path / "gone.pt", "")
    )
    with pytest.raises(FileNotFoundError, match="gone.pt .*--model RUN"):
        gone.embedder()


def test_files_and_folders_can_be_asked_with_and_others_say_why_not(photos, tmp_path):
    assert len(query_files([photos / "class 0", photos / "class 1" / "0.png"])) == 6
    (tmp_path / "bad.png").write_bytes(b"x")
    for given, error, message in (
        (photos / "none.png", FileNotFoundError, "no image or folder at"),
        (tmp_path / "bad.png", ValueError, "cannot be a query: not an image of a known format"),
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
    assert set(record["hits"][0]) == {"rank", "score", "class", "path"}


def test_a_gallery_that_moved_is_found_with_images(photos, made, tmp_path, capsys):
    moved = Path(shutil.copytree(photos, tmp_path / "moved"))
    words = ["search", str(moved / "class 0" / "0.png"), "--index", str(made), "--images", str(moved), "--json"]
    assert main(words) == 0
    hits = json.loads(capsys.readouterr().out)[0]["hits"]
    assert len(hits) == 10 and all(Path(hit["path"]).is_file() and str(moved) in hit["path"] for hit in hits)


def test_the_command_says_what_it_needs(photos, made, tmp_path, capsys):
    query = str(photos / "class 0" / "0.png")
    for words, message in (
        (["search", query, "--index", str(tmp_path / "none")], "no index at"),
        (["search", query, "--index", str(made), "-k", "0"], "an integer >= 1; got 0"),
        (["search", str(tmp_path / "none.png"), "--index", str(made)], "no image or folder at"),
        (["search", query, "--index", str(made), "--html", str(tmp_path / "no" / "a.html")], "to write a.html into"),
        (["index", str(tmp_path / "none.npz")], "write it with rankgrad embed"),
        (["index", str(made.with_suffix(".npz")), "--effort", "3"], "an exact index always searches everything"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_the_command_measures_an_approximate_index(made, tmp_path, capsys):
    out = tmp_path / "hnsw.index"
    assert main(["index", str(made.with_suffix(".npz")), "-o", str(out), "--kind", "hnsw"]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"20 images, 8 dimensions, hnsw, 0\.0 MB\nfinds 100\.0 % of the 10 nearest \(20 rows as queries\)", shown
    )
    assert Index.load(out).kind == "hnsw"


# -------------------------------------------------------------------------------------------------------------- page


def test_links_to_the_query_leave_the_list_as_long_as_it_was_asked_for(weights, tmp_path):
    photos = make_photos(tmp_path / "photos", classes=4)
    query = photos / "class 0" / "0.png"
    for number in range(4):
        (photos / "class 1" / f"link {number}.png").symlink_to(query)
    embed_folder(weights, photos, tmp_path / "x.npz")
    index = build(Embedded.load(tmp_path / "x.npz"))
    for k in (1, 5, 19):
        (answer,) = find([query], index, k)
        assert [hit.rank for hit in answer.hits] == [*range(1, k + 1)]
        assert not any(hit.path.samefile(query) for hit in answer.hits)
    assert len(find([query], index, 24)[0].hits) == 19  # there are no more


def test_a_gallery_that_is_not_there_is_named(photos, made, tmp_path, capsys):
    query = str(photos / "class 0" / "0.png")
    for images in (tmp_path / "missing", Path(query)):
        assert main(["search", query, "--index", str(made), "--images", str(images)]) == 2
        assert f"--images is the folder of the gallery's images; {images} is no folder" in capsys.readouterr().err
    moved = shutil.copytree(made, tmp_path / "moved")
    head = json.loads((moved / HEAD).read_text())
    head["origin"]["root"] = "/nowhere"
    (moved / HEAD).write_text(json.dumps(head))
    assert main(["search", query, "--index", str(moved), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)
    assert output.err == (
        "/nowhere, the folder of the gallery's images, does not exist. If it was moved, give it with --images DIR\n"
    )
    assert main(["search", query, "--index", str(moved), "--images", str(photos), "--json"]) == 0
    assert not capsys.readouterr().err


def test_a_page_needs_nothing_but_itself_and_holds_each_picture_once(photos, made, tmp_path):
    queries = [photos / "class 0" / "0.png", photos / "class 0" / "1.png"]
    answers = find(queries, Index.load(made), k=4)
    page = write_answers(tmp_path / "page.html", answers, facts={"index": made}).read_text()
    shown = {path.resolve() for answer in answers for path in (answer.query, *(hit.path for hit in answer.hits))}
    assert page.count("{background-image:url(data:image/") == len(shown)
    assert len(re.findall(r'<span class="pic i\d+"', page)) == 2 * 5
    assert "<script" not in page and "prefers-color-scheme:dark" in page and "script-src" not in page
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
    with pytest.raises(FileNotFoundError, match="to write s.html into"):
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
    assert "no results: the index holds no other image" in as_text([Answer(Path("a.png"), ())])


# ----------------------------------------------------------------------------------------------------- dark on bright


def test_paper_is_noticed_where_bright_ink_was_learned_and_inverted_on_demand(tmp_path):
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
    with pytest.warns(GroundWarning, match="use --invert"):
        embed_folder(weights, tmp_path / "paper", tmp_path / "paper.npz")
    with pytest.warns(GroundWarning, match="leave out --invert"):
        embed_folder(weights, tmp_path / "ink", tmp_path / "wrong.npz", invert=True)
    assert main(["embed", str(weights), str(tmp_path / "paper"), "-o", str(tmp_path / "ok.npz"), "--invert"]) == 0
    ink, mended = (Embedded.load(tmp_path / f"{name}.npz") for name in ("ink", "ok"))
    np.testing.assert_allclose(ink.embeddings, mended.embeddings, atol=1e-6)
    index = Index.load(build(mended).save(tmp_path / "x"))  # and queries are inverted like the gallery
    best = find([tmp_path / "paper" / "k" / "1.png"], index.at(tmp_path), k=1)[0].hits[0]
    assert index.embedder().invert and best.name == "k/1.png" and best.score == pytest.approx(1, abs=1e-5)
