"""python mistakes.py MISTAKE   one mistake in the use of GPU memory, made by a kernel of the program's own."""
import ctypes
import sys

import torch

# What nvcc -ptx -arch=compute_75 makes of
#   extern "C" __global__ void poke(unsigned char* memory, long long offset, long long count) {
#     for (long long i = threadIdx.x; i < count; i += blockDim.x) memory[offset + i] = 0x55;
#   }
POKE = b"""
.version 9.0
.target sm_75
.address_size 64

.visible .entry poke(.param .u64 poke_param_0, .param .u64 poke_param_1, .param .u64 poke_param_2)
{
  .reg .pred %p<3>;
  .reg .b16 %rs<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<12>;

  ld.param.u64 %rd6, [poke_param_0];
  ld.param.u64 %rd7, [poke_param_1];
  ld.param.u64 %rd8, [poke_param_2];
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %rd11, %r1;
  setp.ge.s64 %p1, %rd11, %rd8;
  @%p1 bra $done;
  mov.u32 %r2, %ntid.x;
  cvt.u64.u32 %rd2, %r2;
  cvta.to.global.u64 %rd3, %rd6;
$next:
  add.s64 %rd9, %rd11, %rd7;
  add.s64 %rd10, %rd3, %rd9;
  mov.u16 %rs1, 85;
  st.global.u8 [%rd10], %rs1;
  add.s64 %rd11, %rd11, %rd2;
  setp.lt.s64 %p2, %rd11, %rd8;
  @%p2 bra $next;
$done:
  ret;
}
"""

driver = ctypes.CDLL("libcuda.so.1")


def check(status: int) -> None:
    if status:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        raise RuntimeError((name.value or b"").decode())


def load() -> ctypes.c_void_p:
    torch.zeros(1, device="cuda")  # makes the context
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), POKE + b"\0"))
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"poke"))
    return function


def poke(address: int, offset: int, count: int) -> None:
    """Writes 0x55 to `count` bytes from address + offset on."""
    arguments = [ctypes.c_uint64(address), ctypes.c_int64(offset), ctypes.c_int64(count)]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(argument) for argument in arguments))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    check(driver.cuLaunchKernel(FUNCTION, 1, 1, 1, 32, 1, 1, 0, stream, pointers, None))


def good() -> None:
    """A few steps of training, and memory of every size; the kernel keeps to its bounds."""
    model = torch.nn.Sequential(torch.nn.Linear(300, 1000), torch.nn.GELU(), torch.nn.Linear(1000, 7)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    for step in range(5):
        data = torch.randn(64 + step, 300, device="cuda")
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        bytes_ = torch.zeros(1000 * step + 1, dtype=torch.uint8, device="cuda")
        poke(bytes_.data_ptr(), 0, bytes_.numel())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            bytes_.sum()
        bytes_.record_stream(side)
    labels = torch.tensor([3, 1, 2]).cuda()
    print(f"sorted: {labels.sort()[0].tolist()}")
    torch.cuda.synchronize()


def behind() -> None:
    bytes_ = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    poke(bytes_.data_ptr(), 1000, 4)
    del bytes_


def before() -> None:
    bytes_ = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    poke(bytes_.data_ptr(), -16, 16)
    del bytes_


def on_demand() -> None:
    import gapless
    bytes_ = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    print(f"before: {len(gapless.check_memory())}")
    poke(bytes_.data_ptr(), 1003, 1)
    found = gapless.check_memory()
    print(f"kind: {found[0]['kind']}")
    print(f"first offset: {found[0]['first_offset']}")
    print(f"call site: {found[0]['call_site']}")


def after_free() -> None:
    bytes_ = torch.zeros(5000, dtype=torch.uint8, device="cuda")
    address = bytes_.data_ptr()
    del bytes_
    poke(address, 100, 8)
    again = torch.empty(5000, dtype=torch.uint8, device="cuda")
    print(f"the same: {again.data_ptr() == address}")


def large_after_free() -> None:
    """As much as is looked through on the device (adapter/memory_kernels.h)."""
    bytes_ = torch.zeros(5 << 20, dtype=torch.uint8, device="cuda")
    address = bytes_.data_ptr()
    del bytes_
    poke(address, (4 << 20) + 3, 8)
    again = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    print(f"the same: {again.data_ptr() == address}")


def never_written() -> None:
    numbers = torch.empty(4, device="cuda")
    halves = torch.empty(4, device="cuda", dtype=torch.bfloat16)
    print(f"nan: {bool(numbers.isnan().all())} {bool(halves.isnan().all())}")


def read_after_free() -> None:
    """A view that outlives its memory: what it reads is no number."""
    numbers = torch.ones(1000, device="cuda")
    address = numbers.data_ptr()
    del numbers
    word = ctypes.c_uint32()
    check(driver.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(address), ctypes.c_size_t(4)))
    print(f"word: {word.value:#x}")


def far_behind() -> None:
    bytes_ = torch.zeros(5000, dtype=torch.uint8, device="cuda")
    poke(bytes_.data_ptr(), 5000, 3000)
    torch.cuda.synchronize()


def long_after() -> None:
    bytes_ = torch.zeros(5000, dtype=torch.uint8, device="cuda")
    address = bytes_.data_ptr()
    print(f"address: {address}")
    del bytes_
    others = [torch.zeros(5000, dtype=torch.uint8, device="cuda") for _ in range(3)]
    try:
        poke(address, 0, 1)
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"error: {str(error).splitlines()[0]}")
        import gapless
        gapless.dump(sys.argv[2])
    del others


FUNCTION = load()
globals()[sys.argv[1]]()
