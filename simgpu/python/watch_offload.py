"""Parameters that accelerate keeps on the host because a GPU has no room for them; watch_torch.py's names are here.

    from_pretrained(..., device_map="auto")   on 24 GiB: all on the GPU     on 16 GiB: 6 layers on the host, copied in each pass

Both run to their end; whoever asks whether a program fits wants to be told of the second.
"""


def _tells_of_parameters(init_hook):
    @functools.wraps(init_hook)
    def told(self, module):
        if self.offload and str(self.execution_device) not in ("cpu", "meta", "None"):
            _quietly(_count)(module.named_parameters(recurse=self.place_submodules))
        return init_hook(self, module)
    return told


def _count(parameters) -> None:
    state["offloaded_bytes"] += sum(one.numel() * one.element_size() for _, one in parameters)


def _watch_hooks(module) -> None:
    module.AlignDevicesHook.init_hook = _tells_of_parameters(module.AlignDevicesHook.init_hook)


_when_imported("accelerate.hooks", _watch_hooks)
