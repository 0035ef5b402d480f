"""What a compile depends on, as one text: equal fingerprints, equal compiles.

    fingerprint := sources of this compiler, versions of torch and Python, the C++ compiler
                 | options | ambient modes | each node of the graph | each input: role, layout, autograd, aliasing
                 | what is known of symbolic sizes

What has no text that says all of it (an operator of the user's own, a tensor or a module that the graph holds, a size
that depends on data) has no fingerprint: `Unkeyed`, with the reason. When in doubt there is none.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import torch
from torch import fx
from torch._functorch import predispatch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from assay.compiler import FOLDER, machine
from assay.compiler.capture.inputs import CallLeaf, held
from assay.compiler.errors import Unkeyed
from assay.compiler.ir.graph.target_names import target_text
from assay.compiler.ir.tensors.wrappers import is_wrapper
from assay.compiler.options import Options
from assay.compiler.toolchain.build import FLAGS, NAMES
from assay.compiler.toolchain.cache import device_features, machine_features

TEXTS = (torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Size, enum.Enum)
UNTOLD = ("debug", "dump", "cache", "warm")
"""The options that change no result."""


def fingerprint(gm: fx.GraphModule, leaves: Sequence[CallLeaf], options: Options, assumed: Iterable[str] = ()) -> str:
    """The digest of all that a compile of the graph for these inputs depends on; `assumed` is what is known of their
    symbolic sizes.

    Raises: Unkeyed where something has no text.
    """
    digest = hashlib.sha256()
    for part in (*_surroundings(options), *_ambient(), *_graph(gm), *_inputs(leaves), *assumed):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


# ---- the compiler and the machine


@functools.cache
def sources_digest() -> str:
    """The digest of the compiler's own files."""
    digest = hashlib.sha256()
    for path in sorted([*FOLDER.rglob("*.py"), *FOLDER.rglob("*.h"), *FOLDER.rglob("*.triton")]):
        digest.update(str(path.relative_to(FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache
def _cxx(name: str) -> str:
    """The C++ compiler as a file: a new one has another time or size. Cheaper than asking it for its version."""
    found = next((path for each in ((name,) if name else NAMES) if (path := shutil.which(each))), None)
    if found is None:
        return "none"
    facts = os.stat(found)
    return f"{os.path.realpath(found)} {facts.st_mtime_ns} {facts.st_size}"


def _overrides() -> frozenset[str]:
    """The operators of ATen that Python code implements, by dispatch key, but for those that torch itself brings when
    `vmap` is first called."""
    brought = predispatch.VMAP_DECOMPOSITIONS_LIB
    own = brought._op_impls if brought is not None else frozenset()
    return frozenset(key for key in torch.library._impls if key.startswith("aten/") and key not in own)


_OVERRIDES = _overrides()


@functools.cache
def _overrides_digest(count: int) -> str:
    """`count` is that of all implementations, none of which is ever changed.

    Raises: Unkeyed where some came after this compiler: only those of torch itself are known to be what they were.
    """
    found = _overrides()
    if found - _OVERRIDES:
        raise Unkeyed("operators of torch's own have been given other implementations")
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _surroundings(options: Options) -> Iterator[str]:
    yield sources_digest()
    yield _overrides_digest(len(torch.library._impls))
    yield f"torch {torch.__version__} {torch.version.git_version}"
    yield f"python {sys.version}"
    yield from (machine_features(), _cxx(options.cxx), *FLAGS, *_gpus())
    yield from (f"{name}={value}" for name, value in sorted(machine.stated().items()))
    for name in options.__slots__:
        if name not in UNTOLD:
            yield f"{name}={getattr(options, name)!r}"


def _gpus() -> Iterator[str]:
    """The devices of a process that uses some: the library's calls are chosen for them."""
    if torch.cuda.is_initialized():
        yield from map(device_features, range(torch.cuda.device_count()))


# ---- ambient state


def _ambient() -> Iterator[str]:
    """Raises: Unkeyed under modes that see each call of the recording, and could change any."""
    if _len_torch_function_stack() or _get_current_dispatch_mode_stack() or torch._C._are_functorch_transforms_active():
        raise Unkeyed("modes are active")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise Unkeyed("hooks on saved tensors are active")
    yield from (f"{read.__module__}.{read.__qualname__}={read()!r}" for read in READERS)
    for device in ("cpu", "cuda"):
        yield f"autocast {device} {torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}"
    yield from (f"{library} {read(torch.backends).fp32_precision}" for library, read in LIBRARIES.items())
    yield f"mkldnn {torch._C._get_mkldnn_enabled()} einsum {torch.backends.opt_einsum.enabled}"
    yield f"einsum {torch.backends.opt_einsum.strategy} engine {torch.backends.quantized.engine}"


LIBRARIES = {
    "products on a GPU": attrgetter("cuda.matmul"),
    "convolutions on a GPU": attrgetter("cudnn.conv"),
    "products on the CPU": attrgetter("mkldnn.matmul"),
    "convolutions on the CPU": attrgetter("mkldnn.conv"),
}
"""Each has a precision of its own: torch does not always say one of all."""
READERS = (
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.get_default_dtype,
    torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch.is_anomaly_enabled,
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.cudnn_sdp_enabled,
    torch.get_num_threads,
)


# ---- the graph


def _graph(gm: fx.GraphModule) -> Iterator[str]:
    """The text of each node; tensors that the graph holds are inputs of the call.

    Raises: Unkeyed for a node that refers to what the graph's text does not hold.
    """
    for node in gm.graph.nodes:
        if node.op == "call_module" or (node.op == "get_attr" and not isinstance(held(gm, node), torch.Tensor)):
            raise Unkeyed("the graph holds a module or an object of its own")
        if "custom" in node.meta or "recompute" in node.meta:
            raise Unkeyed("the graph is annotated")
        if node.target is torch.ops.higher_order.triton_kernel_wrapper_mutation:  # which knows kernels by their numbers
            raise Unkeyed("it launches a Triton kernel of the user's")
        yield f"{node.op} {node.name} {target_text(node.target)} {_text(node.args)} {_text(node.kwargs)}"


def _text(value: object) -> str:
    """An argument, told apart from all others. Raises: Unkeyed for one that has no such text."""
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if value is None or value is ... or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float:
        return value.hex() if value == value else f"nan {math.copysign(1.0, value)}"
    if type(value) is complex:
        return f"complex({_text(value.real)}, {_text(value.imag)})"
    if isinstance(value, TEXTS):
        return f"{type(value).__qualname__} {value!r}"
    return _text_of_several(value)


def _text_of_several(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if isinstance(value, tuple | list) and type(value).__name__ in ("tuple", "list", "immutable_list"):
        return f"{'(' if isinstance(value, tuple) else '['}{', '.join(map(_text, value))},)"
    if isinstance(value, torch._ops.OpOverload) or callable(value):
        return target_text(value)
    raise Unkeyed(f"the graph holds a {type(value).__name__}")


# ---- the inputs


def _inputs(leaves: Sequence[CallLeaf]) -> Iterator[str]:
    """Each input by its role and what the recording can see of it, and which inputs share memory.

    Raises: Unkeyed for sizes that depend on data.
    """
    storages: dict[int, int] = {}
    for position, leaf in enumerate(leaves):
        fake = leaf.fake
        if not isinstance(fake, torch.Tensor):
            yield f"{leaf.role!r} {_size(fake)}"
            continue
        if is_wrapper(fake):
            raise Unkeyed("an input is of a class with inner tensors")
        if isinstance(fake, FakeTensor) and fake.item_memo is not None:
            raise Unkeyed("a number is known by what Dynamo guards on")
        shared = storages.setdefault(fake.untyped_storage()._cdata, position)
        flags = (leaf.requires_grad, leaf.is_leaf, leaf.is_inference, fake.is_conj(), fake.is_neg(), fake._is_view())
        yield f"{leaf.role!r} {_layout(fake)} {flags} {shared} {_base(fake._base)}"


def _layout(fake: torch.Tensor) -> str:
    sizes = " ".join(map(_size, (*fake.shape, *fake.stride(), fake.storage_offset())))
    return f"{fake.dtype} {fake.device} {fake.layout} {fake.dim()} {sizes}"


def _size(size: int | torch.SymInt) -> str:
    """A symbolic size by its expression; what is assumed of it is told by guards."""
    if type(size) is int:
        return str(size)
    if not isinstance(size, torch.SymInt) or not size.node.has_hint():
        raise Unkeyed("a size depends on data")
    return f"symbolic {size.node.expr}"


def _base(base: torch.Tensor | None) -> str:
    return "" if base is None else f"view of {_layout(base)} {base.requires_grad} {base.is_leaf}"
