"""What ctypes opens of NVIDIA's libraries by its path is the simulated GPU's; watch_torch.py's names are here.

    torchvision.libs/libcudart.faf08d9a.so.13   a wheel's own, under a name of its own
    libcudart.so.13                             what stands in front of it: a program that asks by name gets that

The wheel's talks to the driver by tables that nobody has written down, and fails at its first call. vLLM opens the first
runtime that is loaded by its path.
"""
import ctypes
import os
import re

# "libcudart", "13" -> where it is
_OURS = {tuple(name.split(".so.")): os.path.join(os.path.dirname(_HERE), name)
         for name in os.listdir(os.path.dirname(_HERE)) if ".so." in name}
_NAME = re.compile(r"(lib[a-zA-Z_-]+?)(?:[.-][0-9a-f]{8,})?\.so(?:\.(\d+))?[.\d]*")


def _ours(name):
    """The path of the simulated GPU's library in place of `name`, which is a path."""
    folder, file = os.path.split(os.fsdecode(name))
    match = _NAME.fullmatch(file)
    if not folder or not match:
        return name
    return next((path for (library, version), path in _OURS.items()
                 if library == match[1] and match[2] in (None, version)), name)


def _turn(library):
    """One that was opened before anybody watched, with the functions that were asked of it."""
    ours = _ours(library._name) if library._name else library._name
    if ours == library._name:
        return
    there = ctypes.CDLL(ours)
    library._handle = there._handle
    for name, function in vars(library).items():
        if isinstance(function, library._FuncPtr) and hasattr(there, name):
            ctypes.c_void_p.from_buffer(function).value = ctypes.cast(there[name], ctypes.c_void_p).value


def _open(name, *arguments, otherwise=ctypes._dlopen):
    return otherwise(name if name is None else _ours(name), *arguments)


def _any_is_loaded() -> bool:
    """To look through all objects takes long."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n")[line.index("/"):] for line in maps if "/lib" in line}
    return any(_ours(path) != path for path in paths - set(_OURS.values()))


ctypes._dlopen = _open
for opened in _alive(ctypes.CDLL)[0] if _any_is_loaded() else ():
    _quietly(_turn)(opened)
