"""Finds a file of weights, and which of its tensors belongs to which weight of a network if the names differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from .state_dicts import sample

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
COUNTER = "num_batches_tracked"  # of batch norm; older files lack it, and nothing here uses it


def matched(
    expected: Mapping[str, Tensor], given: Mapping[str, Tensor], unused: Sequence[str] = ()
) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file under the names of a network, and one line that says how they were found.

    Names are taken as they are. If they do not fit, the file's names may have one prefix more (`module.`, `encoder.`);
    or all names may differ, if tensor by tensor, in the order of the file, shapes and last parts of the names (weight,
    bias, running_mean ...) are equal. Only what is surplus at the end may then be left out.

    Args:
        expected: state dict of the network.
        given: state dict of the file.
        unused: first parts of the names that are left out: the classifier.

    Returns:
        The state dict to load. If nothing fits, it is what the file has under its own names, and the line is empty.

    >>> import torch
    >>> net = {"a.weight": torch.zeros(2), "b.weight": torch.zeros(3)}
    >>> file = {"module.a.weight": torch.ones(2), "module.b.weight": torch.ones(3), "module.fc.bias": torch.ones(1)}
    >>> state, line = matched(net, file, unused=["fc"])
    >>> [*state], line
    (['a.weight', 'b.weight'], '2 tensors loaded, names without the prefix module.; left out: module.fc.bias')
    """
    wanted = {key: value.shape for key, value in expected.items() if not key.endswith(COUNTER)}

    def result(names: Mapping[str, str], how: str) -> tuple[dict[str, Tensor], str]:
        """names: of the network -> of the file."""
        surplus = [key for key in given if key not in names.values() and not key.endswith(COUNTER)]
        rest = f"; left out: {sample(surplus)}" if surplus else ""
        counters = {key: value for key, value in expected.items() if key.endswith(COUNTER)}
        state = {**counters, **{key: given[name] for key, name in names.items()}}
        return {key: state[key] for key in expected}, f"{len(names)} tensors loaded{how}{rest}"

    def allowed(key: str) -> bool:
        return key.endswith(COUNTER) or key.startswith(tuple(f"{name}." for name in unused))

    first = next(iter(wanted))
    prefixes = [key.removesuffix(first) for key in given if key.endswith(first)]
    for prefix in sorted(prefixes, key=len):
        names = {key: f"{prefix}{key}" for key in wanted}
        others = [key.removeprefix(prefix) for key in given if key not in names.values()]
        fits = all(name in given and given[name].shape == wanted[key] for key, name in names.items())
        # without a prefix every surplus tensor is an error; below a prefix the file may hold other networks, too
        if fits and (prefix or all(map(allowed, others))):
            return result(names, f", names without the prefix {prefix}" if prefix else "")
    there = [key for key in given if not key.endswith(COUNTER)]
    pairs = list(zip(wanted, there, strict=False))
    alike = all(wanted[a] == given[b].shape and _last(a) == _last(b) for a, b in pairs)
    if alike and len(pairs) == len(wanted) and len(there) - len(pairs) <= 2 and not set(wanted) & set(there):
        return result(dict(pairs), ", by their order, as all names differ")
    return {key: value for key, value in given.items() if not allowed(key) or key in expected}, ""


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def weights_file(path: Path) -> Path:
    """The file of weights: `path`, or the one in the folder `path`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the folder has several.
    """
    for suffix in SUFFIXES if path.is_dir() else ():
        found = sorted(path.glob(f"*{suffix}"))
        if len(found) > 1:
            raise ValueError(f"{path} has several files of weights: {sample(f.name for f in found)}. Name one of them")
        if found:
            return found[0]
    if not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}: a {', '.join(SUFFIXES)} file is needed, or its folder")
    return path
