"""A query imports only what it needs, and a folder in the place of embeddings is answered with what to do."""

from __future__ import annotations

import subprocess
import sys

from rankgrad_workbench.cli import main

HEAVY = ("torchvision", "torch._dynamo", "sklearn", "lightning", "matplotlib", "pandas", "scipy")


def test_a_query_imports_no_library_that_it_does_not_need(photos, weights, tmp_path):
    assert main(["embed", str(weights), str(photos), "-o", str(tmp_path / "photos.npz")]) == 0
    assert main(["index", str(tmp_path / "photos.npz")]) == 0
    query = next(photos.rglob("*.png"))
    code = (
        "import sys; from rankgrad_workbench.cli import main; "
        f"code = main(['search', {str(query)!r}, '--index', {str(tmp_path / 'photos.index')!r}]); "
        f"print([name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_a_folder_is_no_embeddings_and_the_message_says_what_to_do(photos, tmp_path, capsys, monkeypatch):
    assert main(["index", str(photos)]) != 0
    said = capsys.readouterr().err
    assert "rankgrad embed RUN DIR" in said and "rankgrad index" in said
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    assert main(["index", str(tmp_path / "run")]) != 0
    assert "A run needs no index" in capsys.readouterr().err


def test_a_file_that_is_absent_still_says_so(tmp_path, capsys):
    assert main(["index", str(tmp_path / "none.npz")]) != 0
    assert "does not exist" in capsys.readouterr().err
