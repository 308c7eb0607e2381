"""What the laboratory adds to what users can name stays as it is unless its file is changed with it."""

from __future__ import annotations

import json

from inventory import ADDED, added


def test_every_name_that_the_laboratory_adds_is_as_it_was():
    assert added("rankgrad-papers") == json.loads(ADDED["rankgrad-papers"].read_text(encoding="utf-8")), (
        "if it is meant: python tests/inventory.py --write"
    )
