"""What gapless does inside PyTorch beside handing out memory."""
import pytest

from conftest import PACKAGE


def test_message_is_pytorchs_line_for_line(simulate):
    program = """
        import torch
        keep = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(11 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            lines = str(error).split("\\n")
            print("first:", lines[0])
            print("more:", " ".join(lines[1:]))
        """
    native, gapless = simulate(program).values(), simulate(program, gapless=True).values()
    assert native["first"].startswith("CUDA out of memory. Tried to allocate 11.00 GiB. GPU 0 has a total capacity of")
    assert gapless["first"] == native["first"]
    assert gapless["more"].startswith("gapless: asked for 11.00 GiB")
    assert "live: 6.00 GiB in 1 blocks" in gapless["more"]


@pytest.mark.parametrize("gapless", [False, True], ids=["native", "gapless"])
def test_profiler_hears_of_memory(simulate, gapless):
    result = simulate("""
        import torch
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            tensor = torch.empty(1 << 20, device="cuda")
            del tensor
        found = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        print("bytes:", sorted(size for size in found if abs(size) >= 1 << 20))
        """, gapless=gapless)
    assert result.values()["bytes"] == str([-4 << 20, 4 << 20])


def test_snapshots_open_in_memory_viz(simulate, tmp_path):
    result = simulate(f"""
        import gapless, pickle, torch
        from torch.cuda import _memory_viz as viz
        gapless.install()
        with gapless.trace({str(tmp_path / "run.pickle")!r}) as events:
            tensors = [torch.empty(700000 * i + 1, device="cuda") for i in range(12)]
            del tensors[::2]
            large = torch.empty(8 << 20, device="cuda")     # in pieces: a window
            with torch.cuda.stream(torch.cuda.Stream()):
                other = torch.empty(1000, device="cuda")
            del large
        with open({str(tmp_path / "run.pickle")!r}, "rb") as file:
            snapshot = pickle.load(file)
        total = sum(s["total_size"] for s in snapshot["segments"])
        print("adds up:", total == torch.cuda.memory_reserved())
        print("tiles:", all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]))
        # Undone backwards, every block lies in memory that is mapped at that time.
        mapped = {{}}
        for segment in snapshot["segments"]:
            mapped[segment["address"]] = segment["total_size"]
        actions = [e["action"] for e in events[0]]
        print("events:", {{"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap"}} <= set(actions))
        print("trace:", len(viz.trace(snapshot)) > 1000)
        print("segsum:", "B" in viz.segsum(snapshot))
        print("plots:", len(viz.trace_plot(snapshot)) > 1000, len(viz.segment_plot(snapshot)) > 1000)
        script = {str(tmp_path / "flamegraph.pl")!r}
        with open(script, "w") as file:
            file.write("#!/bin/sh\\ncat\\n")
        import os
        os.chmod(script, 0o755)
        lines = viz.segments(snapshot, lambda text: text), viz.memory(snapshot, lambda text: text)
        print("flames:", all("stream" in text for text in lines))
        print("compared:", "only_before" in viz.compare(snapshot["segments"], snapshot["segments"][1:], lambda text: text))
        """, PYTHONPATH=str(PACKAGE))
    values = result.values()
    assert values["plots"] == "True True"
    assert {name for name, value in values.items() if value == "False"} == set()


def test_pool_sleeps_and_wakes(simulate):
    result = simulate("""
        import gapless, torch
        gapless.install()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            numbers = torch.tensor(list(range(1000))).cuda()
            weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        address, before = weights.data_ptr(), torch.cuda.mem_get_info()[0]
        gapless.sleep(pool, save=True)
        print("given back:", torch.cuda.mem_get_info()[0] - before >= 1 << 30)
        filler = torch.empty(torch.cuda.mem_get_info()[0] - (64 << 20), dtype=torch.uint8, device="cuda")
        try:
            gapless.wake(pool)
        except torch.OutOfMemoryError:
            print("no room: True")
        del filler
        gapless.trim()
        gapless.wake(pool)
        print("same:", weights.data_ptr() == address, numbers.tolist() == list(range(1000)))
        """, PYTHONPATH=str(PACKAGE), gpus="8GiB")
    assert result.values() == {"given back": "True", "no room": "True", "same": "True True"}


def test_peers_read_each_others_memory(simulate):
    result = simulate("""
        import torch
        here = torch.tensor(list(range(1000))).to("cuda:0")
        there = here.to("cuda:1")
        more = torch.empty(50 << 20, dtype=torch.uint8, device="cuda:0").to("cuda:1", non_blocking=True)
        print("numbers:", there.tolist() == list(range(1000)), torch.cuda.can_device_access_peer(0, 1))
        print("allocator:", torch.cuda.get_allocator_backend())
        """, gpus="4GiB,4GiB", gapless=True)
    assert result.values() == {"numbers": "True True", "allocator": "gapless"}


def test_report_reads_well(simulate):
    result = simulate("""
        import gapless, torch
        gapless.install()
        keep = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        report = gapless.report()
        print(report)
        print("html:", "<table>" in report._repr_html_() and "100.00 MiB" in report._repr_html_())
        print("live:", sum(b["bytes"] for b in report.as_dict()["home"] if b["kind"] == "live"))
        print("counters:", gapless.memory_stats()["gapless.home_growths"] >= 1)
        print("trimmed:", gapless.trim())
        """, PYTHONPATH=str(PACKAGE))
    assert "allocated                100.00 MiB in 1 blocks" in result.out
    values = result.values()
    assert values["html"] == values["counters"] == "True"
    assert int(values["live"]) == 100 << 20
