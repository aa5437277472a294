"""What PyTorch's viewer of memory snapshots (pytorch.org/memory_viz, "Allocator State History") cannot draw.

    segments at the end  <- undo the last event <- undo the one before <- ...      at each of them

It wants one segment that has all of what a segment_map brought, and one in which each live block begins; where there is
none it ends with an error and shows nothing. Segments that a segment_unmap took join their neighbours of the same stream.
"""
import bisect


class _Segments:
    def __init__(self, segments):
        self.at = sorted([one["address"], one["address"] + one["total_size"], one["stream"]] for one in segments)

    def holding(self, begin, end):
        place = bisect.bisect_right(self.at, begin, key=lambda segment: segment[0]) - 1
        return self.at[place] if place >= 0 and begin < self.at[place][1] and end <= self.at[place][1] else None

    def take(self, begin, end):
        segment = self.holding(begin, end)
        if segment is None:
            return False
        self.at.remove(segment)
        for rest in ([segment[0], begin, segment[2]], [end, segment[1], segment[2]]):
            if rest[0] < rest[1]:
                bisect.insort(self.at, rest)
        return True

    def give(self, begin, end, stream, joins):
        for neighbour in [one for one in self.at if joins and one[2] == stream and (one[1] == begin or one[0] == end)]:
            self.at.remove(neighbour)
            begin, end = min(begin, neighbour[0]), max(end, neighbour[1])
        bisect.insort(self.at, [begin, end, stream])


def cannot_be_drawn(snapshot, device=0) -> list[str]:
    own = [segment for segment in snapshot["segments"] if segment["device"] == device]
    segments = _Segments(own)
    live = {block["address"] for segment in own for block in segment["blocks"] if block["state"].startswith("active")}
    found = []
    events = snapshot["device_traces"][device]
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        action, begin = event["action"], event.get("addr", 0)
        end = begin + event["size"]
        if action in ("segment_map", "segment_alloc"):
            if not segments.take(begin, end):
                found.append(f"{place}: no segment has all of {action} {begin:#x}, {event['size']} bytes")
        elif action in ("segment_unmap", "segment_free"):
            segments.give(begin, end, event["stream"], joins=action == "segment_unmap")
        elif action in ("free", "free_completed"):
            live.add(begin)
        elif action == "alloc":
            live.discard(begin)
        found += [f"{place}: the block at {block:#x} is in no segment" for block in live if segments.holding(block, block) is None]
    return found
