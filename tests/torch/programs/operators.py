"""Every family of operators once, on one simulated GPU: prints "name: ok" or "name: the error".

What is checked is that each runs, forward and backward, through the library it needs (cuDNN,
cuBLAS, cuSOLVER, cuFFT, cuSPARSE, NVRTC); numbers mean nothing here.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def randn(*shape, **options):
    return torch.randn(*shape, device="cuda", **options)


def back(module, *inputs):
    result = module.cuda()(*inputs)
    (result[0] if isinstance(result, tuple) else result).sum().backward()


# --- cuDNN -----------------------------------------------------------------------------------------

def convolve(dtype=torch.float32, layout=torch.contiguous_format):
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                          nn.Conv2d(16, 32, 3, stride=2), nn.ConvTranspose2d(32, 8, 2), nn.MaxPool2d(2))
    back(model.to(dtype=dtype, memory_format=layout),
         randn(4, 3, 32, 32, dtype=dtype).to(memory_format=layout))


case(convolve)


@case
def convolve_half():
    convolve(torch.float16)


@case
def convolve_channels_last():
    convolve(torch.bfloat16, torch.channels_last)


@case
def convolve_benchmarked():
    torch.backends.cudnn.benchmark = True
    convolve()
    torch.backends.cudnn.benchmark = False


@case
def convolve_1d_3d_depthwise():
    back(nn.Conv1d(4, 8, 3), randn(2, 4, 10))
    back(nn.Conv3d(4, 8, 3), randn(2, 4, 10, 10, 10))
    back(nn.Conv2d(8, 8, 3, groups=8), randn(2, 8, 10, 10))


def recur(kind, **options):
    model = kind(16, 32, 2, **options).cuda()
    output, _ = model(randn(10, 4, 16, requires_grad=True))
    assert output.shape[:2] == (10, 4)
    output.sum().backward()
    model.flatten_parameters()


@case
def lstm():
    recur(nn.LSTM)
    recur(nn.LSTM, bidirectional=True, dropout=0.1)
    recur(nn.LSTM, proj_size=8)
    recur(nn.LSTM, bias=False)


@case
def gru_rnn():
    recur(nn.GRU, bidirectional=True)
    recur(nn.RNN)


@case
def lstm_packed():
    rows = nn.utils.rnn.pack_padded_sequence(randn(10, 4, 16), torch.tensor([10, 8, 5, 2]))
    nn.LSTM(16, 32).cuda()(rows)[0].data.sum().backward()


@case
def ctc_loss():
    logits = randn(50, 4, 20).log_softmax(2).requires_grad_()
    lengths = torch.full((4,), 50, dtype=torch.int32), torch.full((4,), 30, dtype=torch.int32)
    F.ctc_loss(logits, torch.randint(1, 20, (4, 30), dtype=torch.int32), *lengths).backward()


@case
def grid_sample():
    F.grid_sample(randn(1, 3, 8, 8, requires_grad=True), torch.rand(1, 8, 8, 2, device="cuda")).sum().backward()


def attend(backend, dtype=torch.bfloat16):
    with sdpa_kernel(backend):
        q = randn(2, 4, 128, 64, dtype=dtype, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()


@case
def attention_math():
    attend(SDPBackend.MATH, torch.float32)


@case
def attention_flash():
    attend(SDPBackend.FLASH_ATTENTION)


@case
def attention_efficient():
    attend(SDPBackend.EFFICIENT_ATTENTION)


@case
def attention_cudnn():
    attend(SDPBackend.CUDNN_ATTENTION)


# --- linear algebra ---------------------------------------------------------------------------------

@case
def linalg_small():
    a = randn(2, 8, 8)
    torch.linalg.cholesky(a @ a.mT + torch.eye(8, device="cuda"))
    for function in (torch.linalg.inv, torch.linalg.qr, torch.linalg.svd, torch.linalg.eigh,
                     torch.linalg.lu_factor, torch.linalg.ldl_factor, torch.linalg.det, torch.linalg.pinv):
        function(a)
    torch.linalg.solve(a, a)
    torch.linalg.lstsq(a, a)
    torch.cholesky_solve(a, a)
    torch.ormqr(a, a[:, 0], a)
    hermitian = torch.eye(8, dtype=torch.complex64, device="cuda")
    torch.linalg.ldl_factor(hermitian, hermitian=True)  # by MAGMA


@case
def linalg_large():
    torch.linalg.svd(randn(300, 200))
    torch.linalg.svd(randn(300, 200), driver="gesvda")
    torch.linalg.eigh(randn(600, 600))
    torch.linalg.inv(randn(600, 600, dtype=torch.complex64))
    torch.linalg.qr(randn(600, 300, dtype=torch.float64))


@case
def int8_matmul():
    torch._int_mm(torch.zeros(32, 32, dtype=torch.int8, device="cuda"),
                  torch.zeros(32, 32, dtype=torch.int8, device="cuda"))


@case
def fourier():
    torch.fft.fft(randn(4, 100))
    torch.fft.rfft2(randn(4, 64, 64))
    torch.fft.irfft(randn(4, 33, dtype=torch.complex64))
    torch.stft(randn(2, 4000), 256, window=torch.hann_window(256, device="cuda"), return_complex=True)


@case
def sparse():
    places = torch.tensor([[0, 1, 2], [2, 0, 1]])
    rows = torch.sparse_csr_tensor(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2]), torch.ones(3), (3, 3)).cuda()
    dense = randn(3, 4)
    torch.sparse_coo_tensor(places, torch.ones(3), (3, 3)).cuda() @ dense
    rows @ dense
    rows @ dense[:, 0]
    rows @ rows
    rows + rows
    torch.sparse.sampled_addmm(rows, dense, dense.mT)
    torch.triangular_solve(randn(3, 2), rows)


# --- kernels made at run time, and the rest ---------------------------------------------------------

@case
def compiled_at_run_time():
    torch.special.bessel_j0(torch.rand(5, device="cuda"))
    torch.polygamma(2, torch.rand(5, device="cuda"))
    same = torch.cuda.jiterator._create_jit_fn("template <typename T> T same(T x) { return x; }")
    same(torch.rand(4, device="cuda"))


@case
def random_numbers():
    torch.bernoulli(torch.rand(5, device="cuda"))
    torch.multinomial(torch.rand(5, device="cuda"), 2)
    torch.randperm(100, device="cuda")


@case
def sizes_from_the_device():
    # How many there are is computed on the device: no random number is 0.
    assert torch.nonzero(randn(50)).shape == (50, 1)
    randn(5000).sort()
    randn(50).topk(3)
    torch.unique(torch.randint(0, 5, (40,), device="cuda"))


@case
def tensors_begin_empty():
    # Memory handed out again holds nothing of what it held before.
    for _ in range(10):
        torch.full((64,), 7, dtype=torch.int64).cuda()
        assert torch.empty((64,), dtype=torch.int64, device="cuda").sum().item() == 0
        assert torch.empty((64,), dtype=torch.int64, device="cuda").tolist() == [0] * 64


@case
def gradient_scaler():
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):  # the first scale is too large for float16: that step is left out
        with torch.autocast("cuda", torch.float16):
            loss = model(randn(2, 4)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert len(optimizer.state) == 2


@case
def profiler():
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA], profile_memory=True) as profile:
        randn(4, 4) @ randn(4, 4)
    assert "aten::mm" in profile.key_averages().table()
    assert any(event.name() == "[memory]" for event in profile.profiler.kineto_results.events())


@case
def graph_of_convolutions():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).cuda()
    images = randn(2, 3, 8, 8)
    with torch.cuda.stream(torch.cuda.Stream()):
        model(images).sum().backward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(images)
    graph.replay()
    torch.cuda.make_graphed_callables(nn.Linear(4, 4).cuda(), (randn(2, 4),))(randn(2, 4)).sum().backward()


@case
def memory_pool():
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        torch.zeros(10, device="cuda")


@case
def data_loader():
    from torch.utils.data import DataLoader, TensorDataset
    rows = torch.arange(32).view(32, 1)
    for i, (batch,) in enumerate(DataLoader(TensorDataset(rows), 8, num_workers=2, pin_memory=True)):
        assert batch.cuda(non_blocking=True)[0].item() == 8 * i


if __name__ == "__main__":
    for name, run in CASES.items():
        torch.manual_seed(0)  # a gradient scaler's steps depend on the numbers, and PyTorch's own seed differs from run to run
        try:
            run()
            torch.cuda.synchronize()
            print(f"{name}: ok", flush=True)
        except Exception as error:  # told, and on to the next
            print(f"{name}: {type(error).__name__} {str(error).splitlines()[:1]}", flush=True)
