"""gapless.nn against torch's own losses in float64, and how much memory it takes: prints "name: ok", or what was found.

    python losses.py cpu|cuda
"""
import itertools
import sys
import traceback

import torch
import torch.nn.functional as F

from gapless.nn import CrossEntropyLoss, LinearCrossEntropyLoss
from gapless.nn import functional as G

DEVICE = sys.argv[1]
HALVES = (torch.bfloat16, torch.float16)
torch.manual_seed(1)


def close(found, wanted, dtype=torch.float32, scale=1.0):
    rounding = {torch.bfloat16: 8e-3, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    torch.testing.assert_close(found.detach().double().cpu(), wanted.detach().double().cpu(), rtol=rounding,
                               atol=rounding / 50 * scale, equal_nan=True)


def reference(logits, labels, weight=None, reduction="mean", label_smoothing=0.0, z_loss=0.0, soft_cap=0.0, ignore_index=-100):
    x = soft_cap * torch.tanh(logits / soft_cap) if soft_cap else logits
    losses = F.cross_entropy(x, labels, weight, reduction="none", label_smoothing=label_smoothing, ignore_index=ignore_index)
    valid = labels != ignore_index
    losses = losses + z_loss * torch.where(valid, torch.logsumexp(x, 1) ** 2, 0)
    if reduction == "none":
        return losses
    divisor = valid.double() if weight is None else torch.where(valid, weight[labels.clamp(min=0)], 0)
    return losses.sum() / (divisor.sum() if reduction == "mean" else 1)


def of_any_shape():
    for dtype, shape, reduction, options in itertools.product(
            (torch.float32, torch.float64, *HALVES), ((7,), (5, 33), (2, 33, 3), (4, 1), (2, 5, 3, 2), (0, 4)),
            ("mean", "sum", "none"), ((False, 0.0), (True, 0.1), (True, 0.0), (False, 0.3))):
        classes = shape[0] if len(shape) == 1 else shape[1]
        logits = (3 * torch.randn(shape)).to(dtype)
        labels = torch.randint(0, classes, () if len(shape) == 1 else (shape[0], *shape[2:]))
        if labels.numel() > 1:
            labels.view(-1)[0] = -100
        weight = torch.rand(classes) + 0.5 if options[0] else None
        exact = logits.double().clone().requires_grad_()
        wanted = F.cross_entropy(exact, labels, None if weight is None else weight.double(), reduction=reduction,
                                 label_smoothing=options[1])
        wanted.backward(torch.full_like(wanted, 0.7))
        given = logits.clone().to(DEVICE).requires_grad_()
        loss = G.cross_entropy(given, labels.to(DEVICE), None if weight is None else weight.to(DEVICE), reduction=reduction,
                               label_smoothing=options[1])
        assert loss.dtype == (dtype if dtype == torch.float64 else torch.float32) and loss.shape == wanted.shape
        loss.backward(torch.full_like(loss, 0.7))
        close(loss, wanted)
        close(given.grad, exact.grad, dtype)


def with_z_loss_and_soft_cap():
    for dtype, z_loss, soft_cap, label_smoothing in itertools.product(
            (torch.float32, *HALVES), (0.0, 1e-2), (0.0, 4.0), (0.0, 0.1)):
        logits = (3 * torch.randn(6, 50)).to(dtype)
        labels = torch.tensor([3, 7, -100, 49, 0, 3])
        exact = logits.double().clone().requires_grad_()
        wanted = reference(exact, labels, label_smoothing=label_smoothing, z_loss=z_loss, soft_cap=soft_cap)
        wanted.backward()
        given = logits.to(DEVICE).requires_grad_()
        loss = CrossEntropyLoss(label_smoothing=label_smoothing, z_loss=z_loss, soft_cap=soft_cap)(given, labels.to(DEVICE))
        loss.backward()
        close(loss, wanted)
        close(given.grad, exact.grad, dtype)


def as_views_and_strides():
    whole = torch.randn(3, 9, 41)
    for cut in (lambda x: x[:, :-1].reshape(-1, 41), lambda x: x.transpose(0, 1)[2], lambda x: x[..., ::2].reshape(-1, 21),
                lambda x: x[0, :, 1:], lambda x: x.permute(0, 2, 1)[1].t(), lambda x: x[0].t().contiguous().t()):
        exact = whole.double().clone().requires_grad_()
        given = whole.clone().to(DEVICE).requires_grad_()
        labels = torch.randint(0, cut(whole).shape[1], (cut(whole).shape[0],))
        wanted = F.cross_entropy(cut(exact), labels)
        loss = G.cross_entropy(cut(given * 1), labels.to(DEVICE))
        wanted.backward()
        loss.backward()
        close(loss, wanted)
        close(given.grad, exact.grad)


def as_the_gradient_over_the_logits():
    labels = torch.randint(0, 200, (64,)).to(DEVICE)
    leaf = torch.randn(64, 200).to(DEVICE).requires_grad_()
    wanted = torch.autograd.grad(F.cross_entropy(leaf * 2, labels), leaf)[0]
    # Of what is needed again nothing is lost.
    for keeps in (False, True):
        logits = leaf * 2
        loss = G.cross_entropy(logits, labels)
        before = logits.detach().clone()
        if not keeps:
            del logits
        close(torch.autograd.grad(loss, leaf)[0], wanted)
        if keeps:
            assert torch.equal(before, logits)
    logits = leaf * 2
    loss = G.cross_entropy(logits, labels) + logits.exp().sum() * 0  # exp keeps its result, and mul what it is given
    squares = logits * logits
    del logits
    close(torch.autograd.grad(loss + squares.sum() * 0, leaf)[0], wanted)
    loss = G.cross_entropy(leaf * 2, labels)
    for _ in range(2):
        close(torch.autograd.grad(loss, leaf, retain_graph=True)[0], wanted)
    logits = leaf * 2
    alias = logits.detach()
    loss = G.cross_entropy(logits, labels)
    del logits
    before = alias.clone()
    loss.backward()
    assert torch.equal(before, alias)


def by_the_kernels():
    """The operators above are computed on the CPU, where all that they are given is known, on the simulated GPU."""
    from gapless.nn import _by_torch, _kernels
    if DEVICE == "cpu":
        return
    for dtype, shape, options in itertools.product(
            (torch.float32, *HALVES), ((1, 1), (3, 40), (4, 1001)),
            ((None, 0.0, 0.0, 0.0), (1, 0.1, 1e-2, 5.0), (1, 0.0, 0.0, 0.0), (None, 0.2, 0.0, 0.0))):
        logits = (3 * torch.randn(shape)).to(dtype)
        labels = torch.randint(0, shape[1], shape[:1])
        labels[-1] = -100
        weight = None if options[0] is None else torch.rand(shape[1]) + 0.5
        divisor = torch.tensor(2.5)
        outer = torch.rand(shape[0])
        made = {}
        for backend, device in ((_by_torch, "cpu"), (_kernels, "cuda")):
            on = [None if tensor is None else tensor.clone().to(device) for tensor in (logits, labels, weight, divisor, outer)]
            of = _kernels.Options(on[2], -100, *options[1:])
            losses, weights, statistics = backend.forward(on[0], on[1], of)
            gradients = torch.empty(shape[1], shape[0], dtype=dtype, device=device).t()
            backend.backward(on[4], on[0], on[1], statistics, of, gradients)
            of_one = backend.both(on[0], on[1], of, on[3])
            made[device] = [tensor.cpu() for tensor in (losses, weights, statistics, gradients, *of_one, on[0])]
        for found, wanted in zip(made["cuda"], made["cpu"]):
            close(found, wanted, found.dtype)


def of_ignored_rows():
    logits = torch.randn(4, 9).to(DEVICE)
    nothing = torch.full((4,), -100, device=DEVICE)
    given = logits.clone().requires_grad_()
    loss = G.cross_entropy(given, nothing)
    loss.backward()
    assert loss.isnan() and torch.equal(given.grad, torch.zeros_like(logits))  # torch's loss is nan as well
    given = logits.clone().requires_grad_()
    G.cross_entropy(given, nothing, reduction="sum").backward()
    assert torch.equal(given.grad, torch.zeros_like(logits))
    assert G.cross_entropy(logits, torch.tensor([1, 255, 2, 255], device=DEVICE), ignore_index=255, reduction="none")[1] == 0


def of_labels_that_are_wrong():
    logits = torch.randn(4, 9, device=DEVICE)
    for labels, error in ((torch.zeros(4), ValueError), (torch.zeros(5, dtype=torch.int64), ValueError)):
        try:
            G.cross_entropy(logits, labels.to(DEVICE), z_loss=1.0)
        except error:
            continue
        raise AssertionError(f"{labels}: no {error}")
    # Probabilities are torch's.
    target = torch.rand(4, 9, device=DEVICE).softmax(1)
    torch.testing.assert_close(G.cross_entropy(logits, target), F.cross_entropy(logits, target))


def of_a_linear_layer():
    if DEVICE == "cuda":
        return  # the simulated GPU multiplies no matrices: there is memory to be measured
    for dtype, pieces, reduction, bias, in_float32 in itertools.product(
            (torch.float32, torch.bfloat16), (None, 1, 3, 11), ("mean", "sum", "none"), (False, True), (False, True)):
        hidden, weight = torch.randn(2, 11, 16).to(dtype), torch.randn(37, 16).to(dtype)
        offsets = torch.randn(37).to(dtype) if bias else None
        labels = torch.randint(0, 37, (2, 11))
        labels[0, 3:5] = -100
        exact = [None if tensor is None else tensor.double().clone().requires_grad_() for tensor in (hidden, weight, offsets)]
        logits = F.linear(*exact)
        wanted = reference(logits.view(-1, 37), labels.view(-1), reduction=reduction, label_smoothing=0.1, z_loss=1e-3)
        outer = 0.5 + torch.rand_like(wanted)
        wanted.backward(outer)
        given = [None if tensor is None else tensor.clone().requires_grad_() for tensor in (hidden, weight, offsets)]
        loss = G.linear_cross_entropy(given[0], given[1], labels, linear_bias=given[2], reduction=reduction,
                                      label_smoothing=0.1, z_loss=1e-3, pieces=pieces, accumulate_in_float32=in_float32)
        loss.backward(outer.to(loss.dtype).view(loss.shape))
        close(loss.view(-1), wanted.view(-1), dtype, 50 if dtype == torch.float32 else 500)
        for found, right in zip(given, exact):
            if found is not None:
                assert found.grad.dtype == dtype
                close(found.grad, right.grad, dtype, 100 if reduction == "mean" else 2000)


def of_a_linear_layer_by_a_factor():
    """1 / 17 in bfloat16 is off by 0.2 %."""
    if DEVICE == "cuda":
        return
    hidden, weight = torch.randn(40, 16), torch.randn(30, 16)
    labels = torch.randint(0, 30, (40,))
    given = [tensor.bfloat16().requires_grad_() for tensor in (hidden, weight)]
    loss = G.linear_cross_entropy(*given, labels, reduction="sum")
    whole = torch.autograd.grad(loss, given, retain_graph=True)
    for _ in range(2):  # what is needed again is not written over
        parts = torch.autograd.grad(loss / 17, given, retain_graph=True)
        ratio = sum(part.double().norm() for part in parts) / sum(gradient.double().norm() for gradient in whole)
        assert abs(ratio * 17 - 1) < 5e-4, ratio * 17
    last = torch.autograd.grad(loss / 17, given)
    for one, other in zip(parts, last):
        assert torch.equal(one, other)


def of_a_linear_layer_in_little_memory():
    if DEVICE == "cpu":
        return
    rows, classes, features = 1024, 32768, 64
    hidden = torch.randn(rows, features, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    layer = LinearCrossEntropyLoss(features, classes, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(0, classes, (rows,), device="cuda")
    logits = rows * classes * 2

    def peak(loss):
        hidden.grad = layer.linear.weight.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss().backward()
        return (torch.cuda.max_memory_allocated() - before) / logits

    weight = layer.linear.weight
    theirs = peak(lambda: F.cross_entropy((hidden @ weight.t()).float(), labels))
    own = peak(lambda: G.cross_entropy(hidden @ weight.t(), labels))
    whole = peak(lambda: layer(hidden, labels))
    pieces = peak(lambda: G.linear_cross_entropy(hidden, weight, labels, pieces=8))
    assert theirs > 5.9 and own < 1.3 and whole < 1.3 and pieces < 0.4, (theirs, own, whole, pieces)

    # As many pieces as the memory at hand needs, and one where a row is all that fits.
    for room in (0.5, 0.1):
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        weights = 3 * classes * features * 2 + (96 << 20)  # their gradient, twice, and cuBLAS's workspace
        taken = torch.empty(max(0, free - weights - int(room * logits)), dtype=torch.uint8, device="cuda")
        assert peak(lambda: layer(hidden, labels)) < room + 1.7
        assert torch.cuda.memory_stats()["num_ooms"] == 0
        del taken


def under_autocast():
    hidden, weight = torch.randn(6, 8, device=DEVICE, requires_grad=True), torch.randn(20, 8, device=DEVICE, requires_grad=True)
    labels = torch.randint(0, 20, (6,), device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        logits = F.linear(hidden, weight)
        assert logits.dtype == torch.bfloat16
        loss = G.cross_entropy(logits, labels)
        assert loss.dtype == torch.float32
        linear = G.linear_cross_entropy(hidden, weight, labels)
        close(linear, loss, torch.bfloat16)
    (loss + linear).backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32


def as_operators():
    options = (None, -100, 0.1, 0.0, 0.0)
    logits = torch.randn(5, 12, device=DEVICE, requires_grad=True)
    labels = torch.randint(0, 12, (5,), device=DEVICE)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.gapless.cross_entropy, (logits, labels, *options), test_utils=checks)
    statistics = torch.ops.gapless.cross_entropy(logits, labels, *options)[2]
    gradients = torch.ones(5, device=DEVICE)
    torch.library.opcheck(torch.ops.gapless.cross_entropy_backward,
                          (gradients, logits.detach(), labels, statistics, *options), test_utils=checks)
    torch.library.opcheck(torch.ops.gapless.cross_entropy_backward_,
                          (gradients, logits.detach().clone(), labels, statistics, *options), test_utils=checks)
    hidden, weight = (torch.randn(n, 4, device=DEVICE, requires_grad=True) for n in (5, 12))
    torch.library.opcheck(torch.ops.gapless.linear_cross_entropy,
                          (hidden, weight, None, labels, *options, True, [True, True, False], False, 2), test_utils=checks)


def compiled():
    hidden, weight = (torch.randn(n, 8, device=DEVICE, requires_grad=True) for n in (6, 20))
    labels = torch.randint(0, 20, (6,), device=DEVICE)

    def step(hidden, weight):
        return G.cross_entropy(hidden @ weight.t(), labels) + G.linear_cross_entropy(hidden, weight, labels, pieces=2)

    wanted = torch.autograd.grad(step(hidden, weight), (hidden, weight))
    # Triton's kernels, which Inductor writes for GPUs, are not run on simulated ones.
    for backend in ("aot_eager", "inductor") if DEVICE == "cpu" else ("aot_eager",):
        torch._dynamo.reset()
        found = torch.autograd.grad(torch.compile(step, backend=backend, fullgraph=True)(hidden, weight), (hidden, weight))
        for one, other in zip(found, wanted):
            close(one, other)


def checkpointed():
    from torch.utils.checkpoint import checkpoint
    hidden, weight = (torch.randn(n, 8, device=DEVICE, requires_grad=True) for n in (6, 20))
    labels = torch.randint(0, 20, (6,), device=DEVICE)
    loss = checkpoint(lambda h: G.cross_entropy(h @ weight.t(), labels), hidden, use_reentrant=False)
    loss.backward()
    close(hidden.grad, torch.autograd.grad(F.cross_entropy(hidden @ weight.t(), labels), hidden)[0])


for name, check in list(globals().items()):
    if callable(check) and getattr(check, "__module__", "") == "__main__" and name not in ("close", "reference"):
        try:
            check()
            print(f"{name}: ok")
        except Exception:
            traceback.print_exc()
            print(f"{name}: {traceback.format_exc().splitlines()[-1][:300]}")
