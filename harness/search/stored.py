"""A failing program as one file that needs torch alone: it prints what differs and exits 1 while something does."""

from __future__ import annotations

from assay.harness.backends.registry import FLAGS, OWN, OWN_BACKWARD, WHOLE_BACKWARD

TOLERANCE = 1e-3
CHECK = '''

BACKEND, SETTINGS, MODE, TOLERANCE = {backend!r}, {settings!r}, {mode!r}, {tolerance!r}
IS_WHOLE, IS_OWN = (SETTINGS.pop(name, False) for name in ("compiled_autograd", "own_backward"))


def resolved(name):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute) if attribute else name


def whole_backward():
    if IS_OWN:
        return importlib.import_module("assay").compiled_autograd(SETTINGS.get("options", {{}}))
    if not IS_WHOLE:
        return contextlib.nullcontext()
    from torch._dynamo import compiled_autograd

    return compiled_autograd._enable(torch.compile(backend=resolved(BACKEND), **SETTINGS))


def tensors(value, path):
    if isinstance(value, torch.Tensor):
        return {{path: value}}
    items = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, (list, tuple)) else ())
    return {{k: v for key, item in items for k, v in tensors(item, f"{{path}}[{{key!r}}]").items()}}


def facts(tensor, names):
    try:
        history = (tensor.is_leaf, tensor.grad_fn is not None)
    except RuntimeError:
        history = "refused"
    base = None if tensor._base is None else names.get(id(tensor._base), "a view")
    shown = (tuple(tensor.shape), tensor.dtype, tensor.stride(), tensor.storage_offset())
    return (*shown, tensor.requires_grad, history, base, tensor.is_conj(), tensor.is_neg())


def numbers(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg().clone()
    return torch.view_as_real(plain) if plain.is_complex() else plain


def leaves(args):
    found = {{}}
    for index, tensor in enumerate(args):
        root = tensor if tensor._base is None else tensor._base
        if root.requires_grad and root.is_leaf:
            found[f"input[{{index}}].grad"] = root
        elif root.requires_grad:
            root.retain_grad()
            found[f"input[{{index}}].grad"] = root
    return found


def overlaps(named):
    """Which tensors share a storage, or are one object."""
    by_storage = {{}}
    for path, tensor in named.items():
        if tensor.numel():
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(path)
    by_object = {{}}
    for path, tensor in named.items():
        by_object.setdefault(id(tensor), []).append(path)
    return sorted(map(tuple, by_storage.values())), sorted(map(tuple, by_object.values()))


SCENARIO = globals().get("scenario", lambda program, *given: program(*given))
CALLS = globals().get("NUMBERS") or [()] * 3


def observed(function):
    """Everything seen of the calls: on the same inputs without gradients, each on fresh ones with."""
    torch.manual_seed(0)
    seen, args = {{}}, inputs()
    for step, given in enumerate(CALLS):
        args = inputs() if MODE == "train" else args
        named = {{f"input[{{index}}]": tensor for index, tensor in enumerate(args)}}
        versions = {{path: tensor._version for path, tensor in named.items()}}
        ends = leaves(args) if MODE == "train" else {{}}
        try:
            with torch.set_grad_enabled(MODE == "train"):
                result = SCENARIO(function, *args, *given)
                outputs = tensors(result, "output")
                names = {{id(tensor): path for path, tensor in reversed((named | outputs).items())}}
                structure = torch.utils._pytree.tree_structure(result)
                seen[step, "structure"], seen[step, "aliases"] = str(structure), overlaps(named | outputs)
                plain = [value for value in torch.utils._pytree.tree_leaves(result) if not torch.is_tensor(value)]
                seen[step, "plain values"] = repr(plain)
                seen.update({{(step, path, "facts"): facts(tensor, names) for path, tensor in outputs.items()}})
                seen.update({{(step, path, "values"): numbers(tensor) for path, tensor in outputs.items()}})
                roots = [tensor for tensor in outputs.values() if tensor.requires_grad]
                if roots and MODE == "train":
                    torch.autograd.backward(roots, [torch.full_like(root, 0.5) for root in roots])
        except Exception as error:
            seen[step, "error"] = error
        seen.update({{(step, path, "grown"): named[path]._version > version for path, version in versions.items()}})
        seen.update({{(step, path, "facts after"): facts(tensor, {{}}) for path, tensor in named.items()}})
        seen.update({{(step, path, "values after"): numbers(tensor) for path, tensor in named.items()}})
        seen.update({{(step, path): None if leaf.grad is None else numbers(leaf.grad) for path, leaf in ends.items()}})
        seen[step, "random"] = torch.get_rng_state()
    return seen


def same(one, other):
    if isinstance(one, BaseException) and isinstance(other, BaseException):
        return type(one) is type(other) or type(one).__name__ in str(other) + type(other).__name__
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if TOLERANCE and one.is_floating_point():
            return torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        equal = (one == other) | ((one != one) & (other != other))
        signs = torch.signbit(one) == torch.signbit(other) if one.is_floating_point() else True
        return bool((equal & (signs | (one != 0))).all())
    return type(one) is type(other) and one == other


def main():
    eager = observed(program)
    with whole_backward():
        ours = observed(torch.compile(program, backend=resolved(BACKEND), **SETTINGS))
    differing = [key for key in dict.fromkeys([*eager, *ours]) if not same(eager.get(key), ours.get(key))]
    told = f"{{len(differing)}} of {{len(eager)}} observations differ"
    print(f"torch {{torch.__version__}}, {{BACKEND}}, {{MODE}}: {{told}}")
    for key in differing[:20]:
        print(*key, f"\\n  eager: {{eager.get(key)!r}}\\n  ours:  {{ours.get(key)!r}}"[:2000])
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
'''


def stored(source: str, told: str, backend: str, mode: str, kind: str) -> str:
    """The file's text. `told` says what differs. Values are held to a tolerance where the kind of failure has none."""
    tolerance = 0.0 if "values" in kind or "target=aten" in backend else TOLERANCE
    bare, *settings = backend.split(",")
    options = dict(setting.split("=", 1) for setting in settings if "=" in setting)
    given = {name: True for name in settings if name in (*FLAGS, WHOLE_BACKWARD, OWN_BACKWARD)} | (
        {"options": options} if options else {}
    )
    check = CHECK.format(backend=OWN.get(bare, bare), settings=given, mode=mode, tolerance=tolerance)
    heading = "\n".join(f"# {line}".rstrip() for line in told.strip().splitlines())
    return f"{heading}\nimport contextlib\nimport importlib\nimport sys\n\n{source.rstrip()}\n{check}"
