"""Tells of the PTX that a Triton kernel's machine code was made of, as the code is loaded, so that what the kernel only
reads is known (simgpu/ptx/only_read.h); watch_torch.py's names are here.

    CompiledKernel._init_handles()  asm["ptx"] is told, then asm["cubin"] is loaded

torch.compile's are loaded from files, and have their PTX beside them.
"""


def _tells_of_ptx(module) -> None:
    kernel = getattr(module, "CompiledKernel", None)
    load = getattr(kernel, "_init_handles", None)
    if load is None:
        return

    def _init_handles(self):
        if self.module is None:
            _quietly(_tell)(self)
        try:
            return load(self)
        finally:
            library.simgpu_next_module_is_made_of(None)

    def _tell(compiled):
        library.simgpu_next_module_is_made_of(str(compiled.asm["ptx"]).encode())

    kernel._init_handles = _init_handles


_when_imported("triton.compiler.compiler", _tells_of_ptx)
