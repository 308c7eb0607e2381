"""Tensors that say they lie on another device: what a GPU would refuse is refused, and the CPU computes the rest.

A GPU refuses an operator between its own tensors and those of the CPU, and NumPy does not see its memory. Here that is
so without one: a tensor is wrapped by one that reports another device, a dispatch mode unwraps it for each operator,
and refuses what is mixed. The device is called "lazy", which autograd serves on the CPU, and counts as CUDA where the
library asks. Numbers are the CPU's own, so what differs is a way that is taken only there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

DEVICE = torch.device("lazy")
# Operators that make a program wait for the device: they return a number, or choose the size of what they return.
WAITING = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
)
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")  # by indices of the CPU, as CUDA allows
CROSSING = ("_to_copy", "copy_")


class Elsewhere(Tensor):
    """A tensor of the CPU, that says it lies on `DEVICE`."""

    held: Tensor
    is_cuda = True

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
            requires_grad=held.requires_grad,
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})

    def __repr__(self) -> str:
        return f"Elsewhere({self.held!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("NumPy can't see the memory of this device; take .cpu() first")

    def __array__(self, *_: Any) -> Any:
        return self.numpy()


class Generator(torch.Generator):
    """Random numbers; those of `DEVICE` are drawn on the CPU. That a GPU wants one of its own is not looked at."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, "cpu" if torch.device(device) == DEVICE else device)


waits: list[str] = []  # what has been waited for, in order


def called(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives, or the error of a GPU."""
    name = func._schema.name.removeprefix("aten::")
    flat, spec = tree_flatten((args, kwargs))
    tensors = [each for each in flat if isinstance(each, Tensor)]
    there = [each for each in tensors if isinstance(each, Elsewhere)]
    # a number may come from anywhere
    here = [each for each in tensors if not isinstance(each, Elsewhere) and each.ndim > 0]
    if there and here and name not in CROSSING and (name not in INDEXING or here[0] is args[0]):
        shapes = ", ".join(str(tuple(each.shape)) for each in here)
        raise RuntimeError(f"{name} wants all tensors on one device; of the CPU are those of shape {shapes}")
    wanted = kwargs.get("device")
    lands_there = isinstance(args[0], Elsewhere) if name == "copy_" else bool(there)
    if wanted is not None:
        lands_there = torch.device(wanted).type == DEVICE.type
    if there and (name in WAITING or (name in CROSSING and not lands_there)):
        waits.append(name)
    plain_args, plain_kwargs = tree_unflatten(
        [each.held if isinstance(each, Elsewhere) else each for each in flat], spec
    )
    if wanted is not None and lands_there:
        plain_kwargs = {**plain_kwargs, "device": torch.device("cpu")}
    result = func(*plain_args, **plain_kwargs)
    known = {id(each.held): each for each in there}  # of an operator in place: the tensor itself

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor) or not lands_there:
            return value
        return known[id(value)] if id(value) in known else Elsewhere(value)

    result = tree_map(wrapped, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if there and lands_there else result


class Mode(TorchDispatchMode):
    """Makes new tensors on `DEVICE` too, which no argument tells."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})


@contextlib.contextmanager
def pretended() -> Iterator[torch.device]:
    """Yield the device, which is there as long."""
    real = torch.autocast
    random = SimpleNamespace(
        device_count=lambda: 1, get_rng_state=lambda *_: torch.get_rng_state(), set_rng_state=lambda *_: None
    )

    def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:  # knows no such device
        return contextlib.nullcontext() if device_type == DEVICE.type else real(device_type, *args, **kwargs)

    def from_numbers(make: Any) -> Any:  # torch makes them on their device without asking a mode
        return lambda data, *args, device=None, **kwargs: make(data, *args, **kwargs).to(device=device)

    with pytest.MonkeyPatch.context() as patch, Mode():
        patch.setattr(torch, "autocast", autocast)
        patch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad())  # wraps no tensors of others
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(torch, DEVICE.type, random, raising=False)  # where torch.random.fork_rng looks
        patch.setattr(torch, "tensor", from_numbers(torch.tensor))
        patch.setattr(torch, "as_tensor", from_numbers(torch.as_tensor))
        yield DEVICE
