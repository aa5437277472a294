"""A device's memory, told to people."""
from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._call_sites import size
from ._library import GaplessError

if TYPE_CHECKING:
    from ._replay_picture import Picture


class Report:
    """What gapless.report() gives: print it, or show it in a notebook.

    `device`: a device of `gapless_describe`'s JSON; `failure`: of `gapless_explain`'s, or None;
    `call_sites`: where live blocks were allocated, the most bytes first, as far as was recorded.
    `recording`: gives the file of the program's requests so far, in a folder that is there for it; None where
    there is none.
    """

    def __init__(self, device: dict[str, Any], failure: dict[str, Any] | None, call_sites: list[dict[str, Any]],
                 recording: Callable[[str], str | None] | None = None):
        self._device, self.failure, self.call_sites = device, failure, call_sites
        self._recording = recording
        self._shown: Picture | None = None

    def picture(self) -> str | None:
        """What `gapless replay --plot` draws of the program so far, as SVG: what is reserved over time, by gapless
        and by PyTorch's allocators, above what is allocated. Drawn when it is first asked for, from the recording
        that gapless.record() makes or made last, or else from PyTorch's history; None where there is neither.
        Raises GaplessError where it cannot be drawn."""
        shown = self._picture()
        if shown is not None and shown.why_not:
            raise GaplessError(shown.why_not)
        return None if shown is None else shown.svg

    def _picture(self) -> Picture | None:
        if self._shown is None and self._recording is not None:
            from ._replay_picture import draw
            self._shown = draw(self._recording)
        return self._shown

    def as_dict(self) -> dict[str, Any]:
        """Everything: every block of the home and of the windows, statistics, counters, the failure."""
        return {**self._device, "failure": self.failure, "call_sites": self.call_sites}

    def rows(self) -> list[tuple[str, str]]:
        """The figures that matter, by name."""
        device = self._device
        blocks = [b for b in device["home"] if b["kind"] == "live"] + \
            [b for b in device["window_blocks"] if not b["held"]]
        holes = [b for b in device["home"] if b["kind"] == "hole"]
        allocated = sum(b["bytes"] for b in blocks)
        reserved = device["statistics"]["reserved_bytes"]["all"]["current"]
        free = sum(b["bytes"] for b in holes)
        rows = [("allocated", f"{size(allocated)} in {len(blocks)} blocks"),
                ("reserved", f"{size(reserved)}" + (f", {100 * (reserved - allocated) / allocated:.2f} % more than allocated"
                                                    if allocated else "")),
                ("free, in whole pages", f"{size(device['free_page_bytes'])}, which any request can have in one piece"),
                ("free, in parts of pages", f"{size(free - device['free_page_bytes'])} in {len(holes)} holes"),
                ("windows", f"{device['windows']}, {size(device['window_mapped_bytes'])} mapped, "
                            f"{size(device['window_address_bytes'])} of addresses")]
        pools: dict[tuple[int, int], int] = {}
        for block in blocks:
            first, second = block["pool"]
            if (first, second) != (0, 0):
                pools[first, second] = pools.get((first, second), 0) + block["bytes"]
        rows += [(f"pool {pool}", f"{size(taken)} allocated") for pool, taken in sorted(pools.items())]
        if spilled := device["spilled_bytes"]:
            rows.append(("in host memory", size(spilled)))
        rows += [(f"at {site['file']}:{site['line']}", f"{size(site['bytes'])} in {site['blocks']} blocks, {site['function']}")
                 for site in self.call_sites[:5]]
        if self.failure:
            rows.append(("last failure", f"{size(self.failure['asked_bytes'])} asked"))
            rows += [("would help", advice) for advice in self.failure["advice"]]
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        title = f"{self._device['device_name']}, device {self._device['device']}, {size(self._device['total_bytes'])}"
        return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows)])

    def __repr__(self) -> str:
        return f"<gapless.Report of device {self._device['device']}>"

    def _repr_html_(self) -> str:
        """For notebooks: the table, a bar of what the reserved memory is used for, and picture(), where it can be had."""
        from ._replay_picture import as_html
        device = self._device
        allocated = sum(b["bytes"] for b in device["home"] if b["kind"] == "live") + \
            sum(b["bytes"] for b in device["window_blocks"])
        total = max(1, device["total_bytes"])
        parts = [("allocated", allocated, "#4c78a8"),
                 ("reserved", max(0, device["statistics"]["reserved_bytes"]["all"]["current"] - allocated), "#f58518")]
        bar = "".join(f'<div title="{name} {size(bytes_)}" style="width:{100 * bytes_ / total:.2f}%;'
                      f'background:{colour}"></div>' for name, bytes_, colour in parts)
        table = "".join(f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
                        f"<td style='text-align:left'>{html.escape(value)}</td></tr>" for name, value in self.rows())
        title = html.escape(f"{device['device_name']}, device {device['device']}, {size(device['total_bytes'])}")
        return (f"<div><b>{title}</b><div style='display:flex;height:12px;width:480px;background:#ddd'>{bar}</div>"
                f"<table>{table}</table>{as_html(self._picture())}</div>")
