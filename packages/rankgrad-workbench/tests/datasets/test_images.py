"""The one reader of image files: what it takes, what it refuses, and how it names what it refuses."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import forked, wait
from PIL import Image

from rankgrad.common.text import shown
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import find_images, load_folder
from rankgrad_workbench.datasets import images as reader
from rankgrad_workbench.datasets.images import image_size, look, open_image, read_image
from rankgrad_workbench.files import inside

NOISE = np.random.RandomState(0).randint(0, 256, (10, 12, 3), dtype=np.uint8)


def save(path: Path, mode: str = "RGB", **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(NOISE).convert(mode).save(path, **options)
    return path


def bomb(path: Path, width: int = 30_000, height: int = 30_000) -> Path:
    """A PNG of some kilobytes that says it has 900 million pixels, and would have them."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = zlib.compress(b"\0" * (1 + width // 8 + 1) * 64, 9)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", row) + chunk(b"IEND", b""))
    return path


# ------------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize(("mode", "ending"), [("CMYK", "jpg"), ("P", "png"), ("L", "png"), ("LA", "png"), ("1", "tif")])
def test_every_kind_of_pixels_becomes_rgb_or_grey(tmp_path, mode, ending):
    path = save(tmp_path / f"a.{ending}", mode)
    for channels in (1, 3):
        pixels = read_image(path, channels)
        assert pixels.shape == (channels, 10, 12) and pixels.dtype == torch.uint8
        opened = np.asarray(open_image(path, channels)).reshape(10, 12, channels)
        assert np.array_equal(pixels.permute(1, 2, 0), opened)


def test_the_size_is_that_of_the_upright_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8
    path = save(tmp_path / "a.jpg", exif=exif)
    assert image_size(path) == (12, 10) and read_image(path, 3).shape == (3, 12, 10)
    assert open_image(path).size == (10, 12)


def test_a_format_that_would_start_another_program_is_not_opened_whatever_its_name(tmp_path):
    path = tmp_path / "a.png"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\nshowpage\n")
    with Image.open(path) as opened:
        assert opened.format == "EPS"  # Pillow would hand it to Ghostscript
    assert look(path)[0] == "not an image of a known format"
    with pytest.raises(OSError, match="cannot read image .*a.png"):
        read_image(path, 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.svg", "render it to PNG"),
        ("a.PDF", "export its pages"),
        ("a.mov", "export frames"),
        ("a.docx", "not an image by its name"),
        ("noending", "not an image by its name"),
    ],
)
def test_a_file_of_another_kind_is_counted_and_named_with_what_to_do(tmp_path, name, reason):
    save(tmp_path / "b.png")
    (tmp_path / name).write_bytes(b"something")
    paths, ((path, found),) = find_images(tmp_path)
    assert [entry.name for entry in paths] == ["b.png"]
    assert path == str(tmp_path / name) and reason in found


def test_heic_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.heic"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    monkeypatch.setattr(reader, "_formats", lambda: ("JPEG", "PNG"))
    assert look(path)[0] == "HEIC needs one more package: pip install pillow-heif"


def test_heic_is_read_where_its_package_is_there(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif", reason="pip install pillow-heif")
    pillow_heif.register_heif_opener()
    Image.fromarray(NOISE).resize((64, 48)).save(tmp_path / "a.heic")
    assert look(tmp_path / "a.heic")[0] is None
    assert read_image(tmp_path / "a.heic", 3).shape == (3, 48, 64)


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_the_size_and_a_box_of_a_tiff_are_those_of_the_upright_image(tmp_path, turn, compression):
    Image.fromarray(NOISE).save(tmp_path / "a.tif", tiffinfo={274: turn}, compression=compression)
    size = (10, 12) if turn < 5 else (12, 10)
    whole = read_image(tmp_path / "a.tif", 3)
    assert image_size(tmp_path / "a.tif") == whole.shape[1:] == size
    corner = (size[1] - 4, size[0] - 3, size[1], size[0])
    assert read_image(tmp_path / "a.tif", 3, box=corner).equal(whole[:, -3:, -4:])


@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
def test_an_image_with_damaged_exif_data_is_read_as_it_lies(tmp_path, ending):
    path = save(tmp_path / f"a.{ending}", exif=b"Exif\0\0no such data")
    assert look(path)[0] is None
    assert image_size(path) == (10, 12) and read_image(path, 3).shape == (3, 10, 12)


@pytest.mark.parametrize("most", [1023, 65535])
def test_a_pgm_with_more_than_8_bits_keeps_its_upper_8(tmp_path, most):
    values = (NOISE[:, :, 0].astype(int) * ((most + 1) // 256)).astype(">u2")
    (tmp_path / "a.pgm").write_bytes(f"P5 12 10 {most}\n".encode() + values.tobytes())
    assert look(tmp_path / "a.pgm")[0] is None
    assert np.abs(read_image(tmp_path / "a.pgm", 1)[0].numpy().astype(int) - NOISE[:, :, 0]).max() <= 1


def test_avif_is_read_where_pillow_can(tmp_path):
    from PIL import features

    if not features.check("avif"):
        pytest.skip("this Pillow was built without AVIF")
    path = save(tmp_path / "a.avif")
    assert look(path)[0] is None and read_image(path, 3).shape == (3, 10, 12)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    assert look(tmp_path / "a.png")[0] == "not a regular file"


# ------------------------------------------------------------------------------------------------ what is too large


def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    path = bomb(tmp_path / "bomb.png")
    assert path.stat().st_size < 10_000
    loads = []
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: loads.append(self))
    reason = look(path)[0]
    assert reason is not None and "more than 178,956,970" in reason and "RANKGRAD_MAX_PIXELS" in reason
    for read in (lambda: read_image(path, 3), lambda: image_size(path), lambda: open_image(path)):
        with pytest.raises(OSError, match="bomb.png.*178,956,970"):
            read()
    assert not loads


def test_the_limit_is_a_number_for_all_commands_that_can_be_lowered_and_raised(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png")
    monkeypatch.setenv("RANKGRAD_MAX_PIXELS", "119")
    with pytest.raises(OSError, match="12 x 10 pixels .*119.*variable"):
        read_image(path, 3)
    monkeypatch.setenv("RANKGRAD_MAX_PIXELS", "120")
    assert read_image(path, 3).shape == (3, 10, 12)
    monkeypatch.setenv("RANKGRAD_MAX_PIXELS", "many")
    with pytest.raises(ValueError, match="an integer >= 1; got 'many'"):
        load_folder(tmp_path)


def test_a_raised_limit_holds_for_pillow_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)  # it warns from here on, and refuses twice that
    path = save(tmp_path / "a.png")
    with pytest.raises(OSError, match="more than"):
        read_image(path, 3)
    monkeypatch.setenv("RANKGRAD_MAX_PIXELS", "1000")
    assert read_image(path, 3).shape == (3, 10, 12)


def test_too_large_images_of_a_folder_are_named_and_the_rest_is_used(tmp_path):
    for name in "abcd":
        save(tmp_path / name / "0.png")
        save(tmp_path / name / "1.png")
    bomb(tmp_path / "a" / "bomb.png")
    table = load_folder(tmp_path)
    assert len(table) == 8 and [Path(path).name for path, _ in table.skipped] == ["bomb.png"]
    assert "bomb.png: its pixels are more than 178,956,970" in table.summary()


# ------------------------------------------------------------------------------------------------------ names of files


def test_what_no_terminal_should_get_is_escaped_and_letters_of_any_script_stay():
    assert shown("真 é \U0001f600 b\u200d.png") == "真 é \U0001f600 b\u200d.png"
    assert shown("a\x1b]0;title\x07\r\nb\x7f\x9b") == "a\\x1b]0;title\\x07\\r\\nb\\x7f\\x9b"
    assert shown("gpj.\u202eevil") == "gpj.\\u202eevil"
    assert shown(os.fsdecode(b"caf\xe9.png")) == "caf\\xe9.png"


@pytest.mark.parametrize("name", ["../a.png", "/etc/passwd", "a/../../b", ".."])
def test_a_name_that_leads_out_of_its_folder_is_refused(name):
    with pytest.raises(ValueError, match="must be a name below photos"):
        inside(Path("photos"), name)
    assert inside(Path("photos"), "a..b/c.png") == Path("photos/a..b/c.png")


@pytest.fixture
def odd_names(tmp_path) -> Path:
    """Classes and files whose names hold an escape, an end of line, and bytes that are no UTF-8."""
    root = tmp_path / "photos"
    for number, name in enumerate((b"caf\xe9", b"red\x1b[31m", b"two\nlines", b"plain")):
        folder = Path(os.fsdecode(os.fsencode(root) + b"/" + name))
        save(folder / f"{number}.png")
        save(Path(os.fsdecode(os.fsencode(folder) + b"/\xff\x1b[2J\n.png")))
    (root / "plain" / "\x1b[2J.obj").write_text("no image")
    return root


def test_odd_names_are_read_and_shown_without_harm(odd_names):
    if sys.platform == "darwin":
        pytest.skip("its file systems take UTF-8 alone")
    table = load_folder(odd_names)
    assert len(table) == 8 and all(path.is_file() for path in table.paths)
    assert table.class_names == ("caf\\xe9", "plain", "red\\x1b[31m", "two\\nlines")
    text = table.summary()
    assert "\x1b" not in text and "\\x1b[2J.obj: not an image by its name" in text
    "".join([text, *table.names, *table.class_names]).encode("utf-8")
    assert load_folder(odd_names, cache="disk", cache_dir=odd_names.parent / "kept").pixels is not None


def test_the_command_prints_odd_names_without_harm(odd_names, tmp_path):
    log = tmp_path / "log.txt"
    status = wait(forked(lambda: main(["datasets", "folder", "--root", str(odd_names)]), log))
    assert status == 0, log.read_text()
    assert b"\x1b" not in log.read_bytes() and b"skipped 1 file:" in log.read_bytes()


def test_a_broken_file_with_an_odd_name_is_named_without_harm(tmp_path):
    path = tmp_path / "\x1b[2J.png"
    path.write_bytes(b"no image")
    with pytest.raises(OSError, match=r"\\x1b\[2J.png: not an image") as caught:
        read_image(path, 3)
    assert "\x1b" not in str(caught.value)


# ------------------------------------------------------------------------------------- settings before files are read


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": 2}, "channels must be 1"),
        ({"shorter_side": -1}, "shorter_side is in pixels"),
        ({"cache": "memory"}, "cache .* got 'memory'"),
        ({"test_fraction": "half"}, "test_fraction and val_fraction .*got 'half'"),
        ({"val_fraction": 0.9}, "test_fraction and val_fraction"),
    ],
)
def test_settings_of_a_folder_are_checked_before_any_file_is_looked_at(settings, message):
    with pytest.raises(ValueError, match=message):
        load_folder("a folder that does not exist", **settings)


def test_a_cache_folder_that_is_a_file_is_named_before_any_file_is_looked_at(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="cache_dir .*file is a file"):
        load_folder("a folder that does not exist", cache="disk", cache_dir=tmp_path / "file")
