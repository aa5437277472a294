"""PyTorch's own list of operators with examples of each (its OpInfos), on the GPU against the same on the CPU.

    python every_operator.py [EXAMPLES, of each operator and type]

Each is called with numbers that are known, all or every second of what lies in memory, or negated or conjugated only
when they are read; and with some of them or all forgotten: what is known of the results then has to be so whatever the
forgotten numbers are. Prints a line for each operator that something is wrong with, then how many were called and how many results
were known.
"""
import ctypes
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

warnings.filterwarnings("ignore")
EXAMPLES = int(sys.argv[1]) if len(sys.argv) > 1 else 2
TYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
ALL_KNOWN = 2  # simgpu/torch/device_tensor.h
simgpu = ctypes.CDLL(None)
simgpu.simgpu_knowledge.argtypes = simgpu.simgpu_forget_values.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
simgpu.simgpu_knows_any.argtypes, simgpu.simgpu_knows_any.restype = [ctypes.c_uint64, ctypes.c_size_t], ctypes.c_bool

# What differs between the CPU's operator and the GPU's in PyTorch, or has no numbers to compare.
NOT_COMPARED = {
    "_native_batch_norm_legit": "other sizes of what is kept for the backward pass",
    "_batch_norm_with_update": "the same",
    "native_batch_norm": "the same",
    "linalg.lstsq": "drivers that are the CPU's alone",
    "linalg.lstsq.grad_oriented": "the same",
    "linalg.ldl_solve": "hermitian matrices on the CPU alone",
    "sparse.mm.reduce": "the CPU's alone",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "the CPU's alone",
    "tensor_split": "places that have to be on the CPU",
    "as_strided.partial_views": "what lies beside the tensor", "as_strided_scatter": "the same",
    "mode": "asserts on what it reads for itself of more than 2,048 numbers",
    "nn.functional.max_pool1d": "the CPU's takes what is negated when it is read for what it is in memory",
    "new_full": "an example that compares on the CPU", "new_ones": "the same", "new_zeros": "the same",
    "full_like": "the same", "ones_like": "the same", "zeros_like": "the same",
    "empty": "no numbers", "empty_like": "no numbers", "empty_strided": "no numbers", "empty_permuted": "no numbers",
    "new_empty": "no numbers", "new_empty_strided": "no numbers",
}
# Called with numbers that nobody knows, these read them; or on the CPU, with others, they corrupt memory; or they say
# what could not be factored, and anything is taken to be.
NOT_FORGOTTEN = {
    "linspace.tensor_overload", "logspace.tensor_overload", "_segment_reduce.lengths", "item", "equal", "allclose", "narrow",
    "linalg.lu_solve", "lu_solve",
    "lu", "linalg.cholesky_ex", "linalg.inv_ex", "linalg.ldl_factor_ex", "linalg.lu_factor_ex", "linalg.solve_ex",
}


def in_steps(x):
    """Every second number of a larger tensor."""
    larger = torch.zeros(*x.shape, 2, dtype=x.dtype, device=x.device)
    larger[..., 0] = x
    return larger[..., 0]


def negated_when_read(x):
    if x.dtype == torch.float32:
        return torch._neg_view(-x)
    return x.conj().resolve_conj().conj()


def expanded(x):
    """The first row in place of all."""
    return x[:1].expand_as(x) if x.shape[0] else x.clone()


LAYOUTS = {"as they are": lambda x: x.clone(), "in steps": in_steps, "negated when read": negated_when_read,
           "expanded": expanded}
FORGOTTEN = {"half of it": lambda x: x.numel() // 2, "all of it": lambda x: 0}  # the first that stay known
OTHERWISE = {"flipped": lambda x: x.flip(0), "zeros": torch.zeros_like, "ones": torch.ones_like,
             "negative": lambda x: ~x if x.dtype == torch.bool else -x}


def is_plain(x):
    return isinstance(x, torch.Tensor) and x.layout == torch.strided and not x.is_nested


def on_gpu(x):
    if isinstance(x, torch.device) or isinstance(x, str) and x == "cpu":
        return torch.device("cuda")
    return x.cuda() if isinstance(x, torch.Tensor) else x


def forget(x, keeps):
    x = on_gpu(x.clone(memory_format=torch.contiguous_format) if is_plain(x) else x)
    if is_plain(x) and x.numel():
        first = keeps(x) * x.element_size()
        simgpu.simgpu_forget_values(x.data_ptr() + first, x.numel() * x.element_size() - first)
    return x


def otherwise(x, keeps, change):
    if not is_plain(x) or not x.numel():
        return x
    x = x.clone(memory_format=torch.contiguous_format)
    rest = x.view(-1)[keeps(x):]
    rest.copy_(change(rest).clone())
    return x


def known_places(x):
    """True where all of it is known; else the places that are, of the flat tensor."""
    x = x.contiguous()  # without what lies between
    size, at = x.element_size(), x.data_ptr()
    if x.numel() == 0 or simgpu.simgpu_knowledge(at, x.numel() * size) == ALL_KNOWN:
        return True
    if not simgpu.simgpu_knows_any(at, x.numel() * size):
        return []
    return [i for i in range(x.numel()) if simgpu.simgpu_knowledge(at + i * size, size) == ALL_KNOWN]


def call(operator, arguments):
    """Its results, flat, or what it said."""
    torch.manual_seed(1)
    try:
        return tree_leaves(operator(arguments[0], *arguments[1], **arguments[2]))
    except Exception as error:
        return error


def is_same(ours, theirs):
    if not isinstance(theirs, torch.Tensor):
        return ours == theirs or isinstance(theirs, float) and abs(ours - theirs) < 1e-3
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if ours.dtype.is_floating_point or ours.dtype.is_complex:
        return torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3, equal_nan=True)
    return torch.equal(ours, theirs)


def compare(results, wanted, counts):
    """What is wrong with the results; those that nobody knows have the wanted one's size at least."""
    if isinstance(results, Exception):
        return f"{type(results).__name__}: {results}"[:200]
    for ours, theirs in zip(results, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            if not is_plain(theirs) or not theirs.is_cpu or not ours.is_cuda:
                continue
            places = known_places(ours)
            if places is not True:
                if ours.shape != theirs.shape:
                    return f"{list(ours.shape)} in place of {list(theirs.shape)}"
                if not places:
                    continue
                counts["in part"] += 1
                ours, theirs = ours.cpu().flatten()[places], theirs.flatten()[places]
            ours = ours.cpu()
        counts["known"] += 1
        if not is_same(ours, theirs):
            return f"{ours} in place of {theirs}"[:400]
    return None


def with_known(operator, arguments, counts, layouts):
    for name, layout in layouts.items():
        made = tree_map(lambda x: layout(x) if is_plain(x) and x.dim() else x, arguments)
        wanted = call(operator, made)
        if isinstance(wanted, Exception):
            continue
        made = tree_map(lambda x: layout(on_gpu(x)) if is_plain(x) and x.dim() else on_gpu(x), arguments)
        if (wrong := compare(call(operator, made), wanted, counts)) is not None:
            yield f"with numbers {name}: {wrong}"


def with_forgotten(operator, arguments, counts):
    for name, keeps in FORGOTTEN.items():
        wanted = [call(operator, arguments)]
        wanted += [call(operator, tree_map(lambda x: otherwise(x, keeps, change), arguments))
                   for change in OTHERWISE.values()]
        if any(isinstance(each, Exception) for each in wanted):
            continue
        results = call(operator, tree_map(lambda x: forget(x, keeps), arguments))
        if isinstance(results, Exception):
            yield f"with {name} forgotten: {type(results).__name__}: {results}"[:200]
            continue
        sizes = {tuple(each.shape if isinstance(each, torch.Tensor) else each for each in one) for one in wanted}
        if len(sizes) > 1:  # which is told
            continue
        for each in wanted:
            if (wrong := compare(results, each, counts)) is not None:
                yield f"with {name} forgotten: {wrong}"
                break


def main():
    counts = {"operators": 0, "known": 0, "in part": 0}
    for operator in op_db:
        if operator.name in NOT_COMPARED or operator.full_name in NOT_COMPARED:
            continue
        # The CPU's medians of one that is expanded read what lies beside it.
        layouts = {name: layout for name, layout in LAYOUTS.items() if name != "expanded" or "median" not in operator.name}
        for of_type in TYPES:
            if of_type not in operator.dtypes or of_type not in operator.dtypesIfCUDA:
                continue
            counts["operators"] += 1
            for i, sample in enumerate(operator.sample_inputs("cpu", of_type, requires_grad=False)):
                if i == EXAMPLES:
                    break
                arguments = (sample.input, sample.args, sample.kwargs)
                wrong = list(with_known(operator.op, arguments, counts, layouts))
                if operator.full_name not in NOT_FORGOTTEN:
                    wrong += with_forgotten(operator.op, arguments, counts)
                if wrong:
                    print(f"{operator.full_name} of {of_type}, example {i}: {wrong[0]}", flush=True)
                    break
    print(f"{counts['operators']} operators, {counts['known']} known results, {counts['in part']} of them in part")


main()
