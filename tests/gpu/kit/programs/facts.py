"""facts.py driver|torch: what is there, without changing anything."""
import pathlib
import sys

from tell import tell

# CUdevice_attribute, those that gapless or a reader of the results may ask for.
ATTRIBUTES = {
    16: "multiprocessors", 13: "clock_khz", 36: "memory_clock_khz", 37: "memory_bus_bits", 38: "l2_bytes",
    40: "async_engines", 41: "unified_addressing", 75: "compute_major", 76: "compute_minor",
    102: "virtual_memory_management", 103: "share_fd", 110: "rdma_with_vmm", 111: "virtual_addresses_linux",
    115: "memory_pools", 128: "share_fabric", 134: "host_numa_id", 141: "host_numa_vmm",
}


def driver() -> None:
    from cuda_driver import Driver
    try:
        gpu = Driver()
    except OSError as error:
        raise SystemExit(f"there is no CUDA driver: {error}") from error
    tell(cuda=f"{gpu.version() // 1000}.{gpu.version() % 1000 // 10}", devices=gpu.devices())
    version = pathlib.Path("/proc/driver/nvidia/version")
    if version.exists():
        words = version.read_text().splitlines()[0].split()
        tell(driver=next((word for word in words if word[0].isdigit() and "." in word), ""))
    tell(name=gpu.name(), total_bytes=gpu.total_bytes(),
         attributes={name: gpu.attribute(number) for number, name in ATTRIBUTES.items()},
         all_attributes=[gpu.attribute(number) for number in range(1, 160)])
    gpu.use()
    free, total = gpu.memory()
    tell(granularity=gpu.granularity(False), granularity_recommended=gpu.granularity(True),
         memory_total=total, taken_by_context_and_others=total - free)


def with_torch() -> None:
    import torch
    tell(torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
    free_before = torch.cuda.mem_get_info()[0]
    a = torch.ones(256, 256, device="cuda")
    (a @ a).sum().item()
    properties = torch.cuda.get_device_properties(0)
    tell(device=properties.name, total_memory=properties.total_memory,
         multiprocessors=properties.multi_processor_count, architectures=torch.cuda.get_arch_list(),
         backend=torch.cuda.get_allocator_backend(),
         taken_by_a_product=free_before - torch.cuda.mem_get_info()[0], cublas_workspaces=torch.cuda.memory_allocated())


if __name__ == "__main__":
    {"driver": driver, "torch": with_torch}[sys.argv[1]]()
