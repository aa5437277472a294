"""Operators on the GPU against the same on the CPU: whatever follows from what the host gave is right.

Prints "name: ok", or what was found in place of what was wanted.
"""
import torch

generator = torch.Generator().manual_seed(1)
ids = torch.randint(0, 9, (4, 7), generator=generator)
mask = torch.rand(4, 7, generator=generator) > 0.4
flags = torch.tensor([True, False, True, True])
x = torch.randn(4, 7, generator=generator)
y = torch.randn(4, 7, generator=generator).sort(dim=1).values
lengths = torch.tensor([3, 1, 4, 2])
order = torch.tensor([2, 0, 3, 1])
boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [21, 21, 30, 30]])


def written(tensor, place, value):
    made = tensor.clone()
    made[place] = value
    return made


def filled(*places):
    """What is written at these places of memory in which nothing was: row numbers."""
    made = torch.empty_like(ids)
    for i, place in enumerate(places):
        made[place] = i
    return made


def packed(lengths):
    """Text of those lengths, as torch.nn.LSTM reads it, and back."""
    rows = torch.nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    return torch.nn.utils.rnn.pad_packed_sequence(rows, batch_first=True)


def sparse(indices=None):
    """A matrix with some places twice."""
    return torch.sparse_coo_tensor(ids[:2] if indices is None else indices, x[0], (9, 9), check_invariants=False)


def parts(matrix):
    return matrix.indices(), matrix.values()


def places(matrix):
    """What is computed of the values is another matter."""
    return matrix._nnz(), matrix.coalesce().indices()


def after_a_product(matrix):
    _ = matrix @ torch.ones(9, 2, device=x.device), matrix.to_dense()
    return parts(matrix.coalesce())


def gradient_of_rows():
    table = torch.zeros(9, 3, device=ids.device, requires_grad=True)
    torch.nn.functional.embedding(ids, table, sparse=True).sum().backward()
    return places(table.grad.coalesce())


CASES = {
    "mask": lambda: x[mask],
    "rows by a mask": lambda: x[flags].shape,
    "mask of rows": lambda: x[flags],
    "written by a mask": lambda: written(x, mask, 0.5),
    "rows written by a mask": lambda: written(ids, flags, -1),
    "by indices": lambda: x[order, 2:5],
    "written by indices": lambda: written(x, order, y),
    "written over nothing, by masks": lambda: filled(mask, ~mask),
    "written over nothing, by rows": lambda: filled(flags, 1),
    "written over nothing, by indices": lambda: filled(order[:2], order[2:]),
    "scattered over nothing": lambda: torch.empty_like(order).scatter_(0, order, lengths),
    "copied over nothing": lambda: torch.empty_like(x).index_copy_(0, order, y),
    "filled over nothing": lambda: torch.empty_like(x).masked_fill_(mask, 1.0).masked_fill_(~mask, 2.0),
    "masked_scatter over nothing": lambda: torch.empty_like(ids).masked_scatter_(mask | ~mask, ids.flip(0)),
    "a packed sequence": lambda: packed(lengths),
    "sparse, coalesced": lambda: parts(sparse().coalesce()),
    "sparse, after a product": lambda: after_a_product(sparse()),
    "sparse, transposed": lambda: places(sparse().coalesce().t()),
    "sparse, times 2": lambda: places(sparse().coalesce() * 2),
    "sparse, added": lambda: places((sparse() + sparse(ids[2:])).coalesce()),
    "sparse, summed": lambda: places(torch.sparse.sum(sparse(), 0)),
    "sparse, by rows": lambda: sparse().coalesce().to_sparse_csr().crow_indices(),
    "sparse, a gradient": gradient_of_rows,
    "conjugated when it is read": lambda: torch.fft.ihfft(x),
    "negated when it is read": lambda: torch.complex(x, y).conj().imag,
    "back from its spectrum": lambda: torch.fft.ifft(torch.fft.fft(ids)).real.round().long(),
    "accumulated": lambda: torch.zeros_like(x).index_put((ids % 4, ids % 7), x, accumulate=True),
    "masked_select": lambda: torch.masked_select(ids, mask),
    "masked_scatter": lambda: ids.masked_scatter(mask, ids.flip(0)),
    "masked_fill": lambda: x.masked_fill(mask, -1.0),
    "nonzero": lambda: mask.nonzero(),
    "nonzero as_tuple": lambda: mask.nonzero(as_tuple=True),
    "where of one": lambda: torch.where(ids > 4),
    "where of three": lambda: torch.where(ids > 4, x, 0.25),
    "argwhere": lambda: torch.argwhere(ids == 3),
    "count_nonzero": lambda: torch.count_nonzero(ids, dim=1),
    "arange": lambda: torch.arange(3, 20, 4, device=mask.device),
    "arange of floats": lambda: torch.arange(5, device=mask.device) / 4,
    "linspace": lambda: torch.linspace(0, 1, 5, device=mask.device),
    "eye": lambda: torch.eye(3, device=mask.device),
    "tril": lambda: torch.ones(4, 4, device=mask.device).tril(-1),
    "sort": lambda: x.sort(dim=1),
    "sort of ids": lambda: ids.sort(dim=0, descending=True, stable=True),
    "argsort": lambda: lengths.argsort(descending=True),
    "topk": lambda: x.topk(3, dim=1),
    "kthvalue": lambda: x.kthvalue(2, dim=1),
    "argmax": lambda: x.argmax(dim=1),
    "argmin of all": lambda: x.argmin(),
    "max along": lambda: x.max(dim=0),
    "min along": lambda: x.min(dim=1),
    "aminmax": lambda: x.aminmax(),
    "median": lambda: x.median(),
    "mode": lambda: ids.mode(dim=1).values,
    "unique": lambda: ids.unique(),
    "unique with all": lambda: torch.unique(ids, return_inverse=True, return_counts=True),
    "unique rows": lambda: torch.unique(torch.cat([ids, ids]), dim=0, return_counts=True),
    "unique_consecutive": lambda: torch.unique_consecutive(ids.flatten().sort().values, return_counts=True),
    "repeat_interleave": lambda: torch.repeat_interleave(order, lengths),
    "repeat_interleave of rows": lambda: ids.repeat_interleave(lengths, dim=0),
    "cumsum": lambda: lengths.cumsum(0),
    "cumprod": lambda: lengths.cumprod(0),
    "cummax": lambda: x.cummax(dim=1),
    "diff": lambda: lengths.diff(),
    "bincount": lambda: torch.bincount(ids.flatten()),
    "bincount with weights": lambda: torch.bincount(lengths, weights=lengths.double(), minlength=9),
    "histc": lambda: torch.histc(x, 5, -2, 2),
    "searchsorted": lambda: torch.searchsorted(y, x),
    "bucketize": lambda: torch.bucketize(x, y[0].contiguous()),
    "cat": lambda: torch.cat([ids, ids[:2] + 1], dim=0),
    "stack": lambda: torch.stack([lengths, order], dim=1),
    "split": lambda: torch.split(ids, lengths.tolist()[1:2] + [3], dim=0),
    "gather": lambda: x.gather(1, ids % 7),
    "scatter": lambda: torch.zeros_like(x).scatter(1, ids % 7, 1.0).sum(1),
    "scatter_add": lambda: torch.zeros_like(ids).scatter_add(1, ids % 7, ids),
    "scatter_reduce": lambda: torch.zeros(4, 7).to(x).scatter_reduce(1, ids % 7, x, "amax"),
    "index_add": lambda: torch.zeros_like(ids).index_add(0, order, ids),
    "index_select": lambda: ids.index_select(1, order),
    "index_copy": lambda: ids.index_copy(0, order, ids),
    "take_along_dim": lambda: torch.take_along_dim(x, x.argsort(1), 1),
    "one_hot": lambda: torch.nn.functional.one_hot(ids),
    "pad_sequence": lambda: torch.nn.utils.rnn.pad_sequence([ids[0], ids[1, :3]], batch_first=True),
    "embedding": lambda: torch.nn.functional.embedding(ids, torch.arange(18.0).view(9, 2).to(x)),
    "comparisons": lambda: [ids == 3, ids != 3, ids < 3, ids <= 3, ids > x, ids >= order[:, None]],
    "isin": lambda: torch.isin(ids, order),
    "logical": lambda: [mask.logical_not(), ids.logical_not(), mask & (ids > 3), mask | flags[:, None], mask ^ True, ~mask],
    "isnan and its like": lambda: [(x / 0).isnan(), (x / 0).isinf(), (x / 0).isfinite()],
    "any and all": lambda: [mask.any(), mask.all(), mask.any(1), mask.all(0), (ids < 9).all()],
    "equal": lambda: [torch.equal(ids, ids.clone()), torch.equal(ids, ids + 1), torch.allclose(x, x + 1e-9)],
    "casts": lambda: [ids.int(), ids.bool(), x.long(), x.half().float(), x.bfloat16().double(), ids.to(torch.uint8)],
    "arithmetic": lambda: [ids + 1, 7 - ids, ids * x, ids // 2, ids % 4, ids.float() / 3, ids**2, -ids, ids.clamp(2, 5)],
    "in place": lambda: ids.clone().mul_(3).add_(ids).clamp_(max=20),
    "floats": lambda: [x.exp(), x.abs(), x.sqrt().nan_to_num(), x.round(), x.floor(), x.softmax(-1), x.sigmoid()],
    "reductions": lambda: [ids.sum(), ids.sum(1), x.mean(), x.std(), x.var(0), x.prod(1), x.amax(1), ids.max(), x.logsumexp(1)],
    "norms": lambda: [x.norm(), x.norm(dim=1), torch.linalg.vector_norm(x, 1), torch.cdist(x, y)],
    "min of a selection": lambda: x[mask].min(),
    "views": lambda: [ids.t(), ids[:, ::2], ids.view(7, 4), ids.flip(1), ids.roll(1, 0), ids.unfold(1, 3, 2), ids.expand(2, 4, 7)],
    "column written": lambda: written(ids, (slice(None), 1), lengths),
    "transposed written": lambda: written(ids.t(), 0, 5),
    "outer": lambda: [lengths[:, None] * order, torch.outer(lengths, order), torch.cartesian_prod(lengths, order)],
    "products": lambda: [x @ y.t(), torch.einsum("ij,kj->ik", x, y), torch.bmm(x[None], y.t()[None])],
    "padded": lambda: torch.nn.functional.pad(ids, (1, 2), value=-1),
    "item": lambda: [ids.max().item(), mask.sum().item(), x[0, 0].item(), bool(mask.any())],
    "a loop's end": lambda: sum(1 for row in ids if (row > 7).any()),
    "cross entropy": lambda: torch.nn.functional.cross_entropy(x, lengths, ignore_index=4),
    "many": lambda: (torch.arange(1 << 19, device=mask.device) % 3 == 0).sum(),
}


def plain(value):
    """Numbers, rounded as far as two processors agree, and sizes."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist()) + [list(value.shape)] if value.dim() else plain(value.item())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


on_host = {name: str(plain(case())) for name, case in CASES.items()}
inputs = ("ids", "mask", "flags", "x", "y", "lengths", "order", "boxes")
globals().update({name: globals()[name].cuda() for name in inputs})
for name, case in CASES.items():
    try:
        found = str(plain(case()))
    except Exception as error:
        found = repr(error)[:300]
    print(f"{name}: {'ok' if found == on_host[name] else f'{found}, not {on_host[name]}'}")

# Random ones: what every draw has.
permutation = torch.randperm(50, device="cuda")
of_seed = [torch.randperm(50, device="cuda", generator=torch.Generator("cuda").manual_seed(3)).tolist() for _ in "12"]
draws = torch.rand(1000, device="cuda")
integers = torch.randint(5, 9, (1000,), device="cuda")
samples = torch.multinomial(torch.tensor([0.0, 1, 0, 3]).cuda(), 200, replacement=True)
HOLDS = {
    "randperm": sorted(permutation.tolist()) == list(range(50)) and permutation.tolist() != list(range(50)),
    "randperm of a seed": of_seed[0] == of_seed[1],
    "rand": 0.3 < draws.mean().item() < 0.7 and draws.min().item() >= 0 and draws.max().item() < 1,
    "randint": sorted(integers.unique().tolist()) == [5, 6, 7, 8],
    "randn": 0.8 < torch.randn(2000, device="cuda").std().item() < 1.2,
    "bernoulli": 100 < torch.bernoulli(torch.full((1000,), 0.3).cuda()).sum().item() < 500,
    "multinomial": sorted(samples.unique().tolist()) == [1, 3],
}

# Gradients of a few numbers, in autograd's own threads.
weight = torch.tensor([1.0, 2.0, 3.0]).cuda().requires_grad_()
(weight * weight)[torch.tensor([True, False, True]).cuda()].sum().backward()
HOLDS["gradients"] = weight.grad.tolist() == [2.0, 0.0, 6.0]

# The host's own random numbers are as they would be.
torch.manual_seed(5)
wanted = torch.rand(3).tolist()
torch.manual_seed(5)
torch.nn.functional.dropout(torch.ones(8).cuda())
torch.randperm(5, device="cuda")
HOLDS["the host's generator"] = torch.rand(3).tolist() == wanted

# What nobody knows any more: memory that was free in between, graphs that were launched, unknown operands.
big = torch.empty(1 << 16, device="cuda")
was = torch.full((64,), 7, dtype=torch.int64).cuda()
del was
HOLDS["memory is new"] = not any(torch.empty(64, dtype=torch.int64, device="cuda").tolist())
mixed = torch.ones(1 << 16, device="cuda")
mixed[:8] = torch.arange(8.0).cuda()
HOLDS["a part"] = mixed[:8].tolist() == list(range(8))
mixed[2:4].add_(big[:2])
HOLDS["a part of a part"] = mixed[:2].tolist() == [0, 1] and mixed[4:8].tolist() == [4, 5, 6, 7]
chosen = torch.where(torch.tensor([True, False]).cuda(), torch.tensor([3.0, 3.0]).cuda(), big[:2])
HOLDS["chosen of what is known"] = chosen[0].item() == 3
count = torch.zeros(1, dtype=torch.int64, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    count += 1
count.fill_(5)
HOLDS["before a graph"] = count.item() == 5
graph.replay()
HOLDS["a graph's numbers are not taken for known"] = count.item() != 5

# Numbers in general position: checks pass, and comparisons with extremes are as they would be.
loss = (big @ big).view(())
HOLDS["finite"] = bool(torch.isfinite(loss)) and not bool(torch.isnan(loss)) and not bool(loss.isinf())
HOLDS["above the least"] = bool(loss > -1e9) and bool(loss < float("inf"))
scores = torch.empty(6, 1000, device="cuda")
HOLDS["sampled"] = list(torch.multinomial(scores.softmax(-1), 1).shape) == [6, 1]
experts = torch.empty(1024, 8, device="cuda").topk(2, dim=-1).indices
HOLDS["balanced"] = torch.bincount(experts.flatten(), minlength=8).tolist() == [256] * 8
HOLDS["different ones"] = bool((experts[:, 0] != experts[:, 1]).all())
for name, holds in HOLDS.items():
    print(f"{name}: {'ok' if holds else 'wrong'}")

try:
    import torchvision
    print("nms:", "ok" if torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7, 0.6]).cuda(), 0.5).tolist() == [0, 2] else "wrong")
except ImportError:
    pass
