"""What the parts found, kept on disk from the first moment on.

    results.json   {"device": "NVIDIA H100 ...", "parts": {"driver": {"status": "differs", "steps": [...], ...}, ...}}

The file is written anew, as a whole, after every step: whatever ends the run leaves what was known by then.
"""
from __future__ import annotations

import json
import os
import pathlib
import time
from typing import Any

# From good to bad; what a part is called is its worst step.
STATUSES = ("ok", "skipped", "not run", "differs", "failed", "timed out", "crashed")


class Results:
    def __init__(self, folder: pathlib.Path, facts: dict[str, Any]):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.json"
        self.data: dict[str, Any] = {**facts, "parts": {}}
        self.save()

    def save(self) -> None:
        fresh = self.path.with_suffix(".tmp")
        fresh.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(fresh, self.path)

    def begin(self, part: str) -> Part:
        made = Part(self, {"status": "not run", "why": "it was begun, and did not end", "seconds": 0.0, "steps": []})
        self.data["parts"][part] = made.data
        self.save()
        return made

    @property
    def is_good(self) -> bool:
        return bool(self.data["parts"]) and all(part["status"] == "ok" for part in self.data["parts"].values())


class Part:
    def __init__(self, results: Results, data: dict[str, Any]):
        self.results, self.data = results, data
        self.since = time.monotonic()

    def step(self, name: str, status: str, why: str = "", seconds: float = 0.0, found: dict[str, Any] | None = None,
             ) -> None:
        """Keeps what a step came to; `found` is what it has to tell."""
        assert status in STATUSES, status
        self.data["steps"].append({"name": name, "status": status, "why": why, "seconds": round(seconds, 2),
                                   "found": found or {}})
        self.data["seconds"] = round(time.monotonic() - self.since, 2)
        self.results.save()

    def tell(self, summary: str, **found: Any) -> None:
        """A line for the table, and what belongs to the part as a whole."""
        self.data.update(found)
        self.data["summary"] = summary
        self.results.save()

    def end(self) -> None:
        """The part is what its worst step is; one of which nothing was done was skipped, or not run."""
        steps = self.data["steps"]
        done = [step for step in steps if step["status"] not in ("skipped", "not run")]
        worst = max(done or steps or [{"status": "not run", "why": "it has no steps"}],
                    key=lambda step: STATUSES.index(step["status"]))
        self.data["status"], self.data["why"] = worst["status"], worst["why"]
        if done and worst["status"] == "ok":
            self.data["why"] = ""
            if left := sum(step["status"] == "not run" for step in steps):
                self.data["why"] = f"{left} of {len(steps)} steps were not run: {steps[-1]['why']}"
        self.data["seconds"] = round(time.monotonic() - self.since, 2)
        self.results.save()
