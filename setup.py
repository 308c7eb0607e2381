"""What pyproject.toml can't say: the page on the package index is README.md with whole addresses as links."""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def found(pattern: str, file: str) -> str:
    """The first group of a pattern in a file."""
    match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"))
    assert match, f"{file} has no {pattern}"
    return match[1]


version = found(r'__version__ = "(.+)"', "src/rankgrad/_version.py")
home = found(r'Repository = "(.+)"', "pyproject.toml")


def whole(link: re.Match[str]) -> str:
    """A link inside the repository as an address: of the file as it is in this version."""
    return f"{link[1]}{home}/{'raw' if link[1].startswith('!') else 'blob'}/v{version}/"


readme = re.sub(r"(!?\[[^\]]*\]\()(?!\w+:|#)", whole, (ROOT / "README.md").read_text(encoding="utf-8"))
setup(long_description=readme, long_description_content_type="text/markdown")
