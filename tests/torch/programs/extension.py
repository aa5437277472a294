"""Prints "name: [...]", what is known of two tensors after each kernel of extension.cu, given as a library: 2 known, 0 not;
and where it is known what the second holds."""
import ctypes
import sys

import torch

library = ctypes.CDLL(sys.argv[1])
simgpu = ctypes.CDLL(None)


def knowledge(tensor):
    return simgpu.simgpu_knowledge(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_uint64(tensor.nbytes))


def call(name, ids, counts):
    getattr(library, name)(ctypes.c_void_p(ids.data_ptr()), ctypes.c_void_p(counts.data_ptr()), len(ids),
                           ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


found = {}
ids = torch.tensor([1, 2, 2, 3]).cuda()
between = torch.zeros(64, dtype=torch.long, device="cuda")
for name in ("by_pointers", "by_structure", "by_plain_name"):
    given, counts = ids.clone(), torch.zeros(4, dtype=torch.long, device="cuda")
    assert knowledge(given) == knowledge(counts) == 2
    call(name, given, counts)
    found[name] = [knowledge(given), knowledge(counts)]
    if found[name][1] == 2:
        found[name].append(counts.tolist())

counts = torch.zeros(4, dtype=torch.long, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    call("by_pointers", ids, counts)
found["captured"] = [knowledge(ids), knowledge(counts)]
graph.replay()
found["replayed"] = [knowledge(ids), knowledge(counts)]
if found["replayed"][1] == 2:
    graph.replay()
    found["replayed"].append(counts.tolist())

# A kernel that reads what nobody knows: nor is what it writes known.
given = torch.empty(1 << 20, dtype=torch.long, device="cuda")
counts = torch.zeros(4, dtype=torch.long, device="cuda")
call("by_pointers", given[:4], counts)
found["unknown"] = [knowledge(given[:4]), knowledge(counts)]
assert knowledge(between) == 2
for name, values in found.items():
    print(f"{name}: {values}")
