"""The steps of optimizers, and that a program is stopped after so many (SIMGPU_STEPS); watch_torch.py's names are here.

A step of training is one of each optimizer: a GAN has two, and one that steps in the backward pass hundreds. It ends
as one of them begins its next.

    critic  generator  critic | critic  generator | ...
    1                         | 2                 |
"""
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

LAST_STEP = int(os.environ.get("SIMGPU_STEPS") or 0)

_stepped, _ever_stepped, _stops = _Seen(), _Seen(), []
in_child.append(_stepped.clear)


def _tells_that_it_is_made(function):
    @functools.wraps(function)
    def wrapped(*arguments, **options):
        state["made_optimizer"] = True
        return function(*arguments, **options)
    return wrapped


def _about_to_step(optimizer, *_):
    """The steps that were asked for are made, and the pass for the next one, beside the states that they left."""
    if LAST_STEP and state["steps"] >= LAST_STEP and optimizer in _stepped:
        _stop()


def _step(optimizer, *_):
    if optimizer in _stepped:
        _stepped.clear()
    _stepped.add(optimizer)
    _ever_stepped.add(optimizer)
    if len(_stepped) == 1:
        state["steps"] += 1
        library.simgpu_report_step()
    if state["steps"] == 1:
        _count_states(optimizer)


@_quietly
def _count_states(optimizer):
    """Bytes on each GPU of what it has kept since its first step, which the pass before had no need to share with."""
    counted = state["states_of_first_step"]
    for kept in optimizer.state.values():
        for value in kept.values() if isinstance(kept, dict) else ():
            value = getattr(value, "_local_tensor", value)  # a DTensor's
            if isinstance(value, torch.Tensor) and value.is_cuda:
                index = str(value.device.index)
                counted[index] = counted.get(index, 0) + value.numel() * value.element_size()


def _without_step() -> int:
    """How many optimizers of what is on a GPU have made none. One that is around another leaves that to it, and has no
    hooks."""
    def is_due(one):
        return (one not in _ever_stepped and "_optimizer_step_post_hooks" in vars(one)
                and not any(isinstance(value, torch.optim.Optimizer) for value in vars(one).values())
                and any(parameter.is_cuda and parameter.requires_grad
                        for group in one.param_groups for parameter in group["params"]))
    return sum(map(is_due, _alive(torch.optim.Optimizer)[0]))


def _stop():
    """As the program was asked to (SIMGPU_STEPS). One that catches this goes on for a while."""
    _stops.append(None)
    if state["stopped_after_steps"] is None:
        state["stopped_after_steps"] = state["steps"]
        state["optimizers_without_step"] = _quietly(_without_step)() or 0
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            atexit.register(torch.distributed.destroy_process_group)
    elif len(_stops) > 3:
        os._exit(0)
    raise SystemExit(0)


torch.optim.Optimizer.__init__ = _tells_that_it_is_made(torch.optim.Optimizer.__init__)
register_optimizer_step_pre_hook(_about_to_step)
register_optimizer_step_post_hook(_step)
