"""What dry runs add to watch_torch.py, whose names it has: how much of the data was fed, and with SIMGPU_WORST_CASE
the longest items that the data has.

    DataLoader        asks its sampler which items are next     [7, 2] [9, 4] [1, 3] [0, 8] ...
    with the longest  every third batch is made of those        [5, 6] [9, 4] [1, 3] [5, 6] ...

So the longest come first, and after others (an allocator whose cache is in pieces by then may fail where it did not
before). Where the loader's order is fixed, the longest of its own batches is fed. What cannot be done is told: nobody
knows what comes out of an IterableDataset.
"""
import collections
import itertools
import os
import random
import sys
import time
import weakref

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

WORST_CASE = bool(os.environ.get("SIMGPU_WORST_CASE"))
EVERY = 3
LOOK_SECONDS = 60 if WORST_CASE else 0.5
MOST_BATCHES = 100_000  # of a sampler whose order is fixed

# --- how long items are -------------------------------------------------------------------------------------


class _NotKnown(Exception):
    """Of an object whose size nothing tells, by the name of its type."""


_SCALARS = {"builtins", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid"}  # modules of what has no size


def _length(value, depth=0) -> int | None:
    """Of a text its characters, of a sequence of numbers or texts its elements, of what has several dimensions all of its
    numbers, of an image too; of what has parts those of all together."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if value is None or isinstance(value, (bool, int, float, complex)):
        return None
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return None if not shape else shape[0] if len(shape) == 1 else int(torch.Size(shape).numel())
    if hasattr(value, "getbands"):  # an image of PIL's
        return value.width * value.height * len(value.getbands())
    if _is_flat(value):
        return len(value)
    parts = _parts(value)
    if parts is None or depth == 4:
        if type(value).__module__ in _SCALARS:
            return None
        raise _NotKnown(type(value).__name__)
    lengths = [_length(part, depth + 1) for part in parts]
    return None if all(length is None for length in lengths) else sum(length or 0 for length in lengths)


def _is_flat(value) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, (str, bool, int, float)) for one in value)


def _parts(value) -> list | None:
    """What an object consists of; None where nothing says so."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if hasattr(value, "keys") and hasattr(value, "items"):
        return [part for _, part in value.items()]
    if isinstance(value, (type, torch.nn.Module)) or hasattr(value, "__code__"):
        return None
    return list(getattr(value, "__dict__", {}).values()) or None


def _fields(item) -> dict:
    """Of an item, or of a batch; one without fields is one itself."""
    if hasattr(item, "keys") and hasattr(item, "items"):
        return {str(name): value for name, value in item.items()}
    if isinstance(item, (list, tuple)) and not all(isinstance(value, (int, float)) for value in item):
        return {f"[{place}]": value for place, value in enumerate(item)}
    return {"": item}


def _lengths(item, not_known: dict, of_parts: set) -> dict[str, int]:
    """Of each field that has one; `not_known` gets the types of those of which nothing tells it, `of_parts` those whose
    length is of all their parts: what a batch has by that name may count otherwise."""
    found = {}
    for name, value in _fields(item).items():
        try:
            length = _length(value)
        except _NotKnown as error:
            not_known[name] = str(error)
            continue
        if length is not None:
            found[name] = length
            if not (isinstance(value, (str, bytes)) or _is_flat(value) or isinstance(getattr(value, "shape", None), tuple)):
                of_parts.add(name)
    return found


def _of_batch(index) -> bool:
    """Whether a sampler gives several items at a time: a list, or an array."""
    return isinstance(index, (list, tuple)) or bool(getattr(index, "ndim", 0))


_NO_ITEM = object()  # what no dataset has


def _items(batch) -> list:
    """Of a batch as a sampler gives it; where texts are packed it has bins of them, [[7, 2], [9, 4, 1]]. A tuple in it is one
    item, (7, 224)."""
    batch = batch.tolist() if getattr(batch, "ndim", 0) else batch
    found = []
    for index in batch if isinstance(batch, (list, tuple)) else [batch]:
        if isinstance(index, list) or getattr(index, "ndim", 0):
            found += _items(index)
        else:
            index = index.item() if hasattr(index, "item") else index
            try:
                hash(index)
                found.append(index)
            except TypeError:
                found.append(_NO_ITEM)
    return found


def _of_types(not_known: dict) -> str:
    return f" ({', '.join(f'{field} {kind}'.strip() for field, kind in sorted(not_known.items()))})" if not_known else ""


class _SavedChance:
    """What looking at items draws from the generators of random numbers is put back."""

    def __enter__(self):
        self.numpy = sys.modules.get("numpy")
        self.states = random.getstate(), torch.get_rng_state(), self.numpy and self.numpy.random.get_state()

    def __exit__(self, *_):
        random.setstate(self.states[0])
        torch.set_rng_state(self.states[1])
        if self.numpy:
            self.numpy.random.set_state(self.states[2])


class _Lengths:
    """Of a dataset's items, as far as there was time to look."""

    def __init__(self, dataset):
        self.of = {}  # index -> lengths by field
        self.size = len(dataset)
        self.why_not = None
        self.not_known, self.of_parts = {}, set()  # fields, the first with their types
        until = time.monotonic() + LOOK_SECONDS
        try:
            with _SavedChance():
                for index in range(self.size):
                    self.of[index] = _lengths(dataset[index], self.not_known, self.of_parts)
                    if time.monotonic() > until:
                        break
        except Exception as error:
            self.why_not = f"its items cannot be looked at ({type(error).__name__})"
        if not self.why_not and not any(self.of.values()):
            self.why_not = "its items have no lengths that could be told" + _of_types(self.not_known)
        self.fields = sorted({field for lengths in self.of.values() for field in lengths})

    def longest(self, field, indices=None) -> int:
        return max((self.of[index].get(field, 0) for index in (self.of if indices is None else indices)
                    if index in self.of), default=0)

    def is_even(self) -> bool:
        """Whether all items looked at are as long as each other."""
        return not self.not_known and all(lengths == next(iter(self.of.values())) for lengths in self.of.values())

    def uneven(self) -> list[str]:
        return [field for field in self.fields if len({lengths.get(field) for lengths in self.of.values()}) > 1]

    def total(self, index) -> int:
        return sum(self.of.get(index, {}).values())

    def longest_batches(self, size) -> list[list[int]]:
        """Of so many items: with the longest of each field, for what is padded to it; and the longest in all."""
        by_total = sorted(self.of, key=self.total, reverse=True)
        tops = list(dict.fromkeys(max(self.of, key=lambda index, field=field: self.of[index].get(field, 0))
                                  for field in self.fields))
        mixed = list(dict.fromkeys(tops + by_total))[:size]
        batches = [mixed, by_total[:size]] if size >= len(tops) else [by_total[:size]] + [
            list(dict.fromkeys([top] + by_total))[:size] for top in tops]
        return [batch for i, batch in enumerate(batches) if sorted(batch) not in map(sorted, batches[:i])]

    def could_meet(self, field, size) -> int:
        """What so many items have of a field, when those that have most come together."""
        return sum(sorted((lengths.get(field, 0) for lengths in self.of.values()), reverse=True)[:size])

    def weight(self, batch) -> int:
        """What a batch of these takes when each field is padded to its longest; a bin has all of its items."""
        bins = [_items([one]) for one in batch]
        return len(bins) * sum(max(sum(self.longest(field, [index]) for index in one) for one in bins)
                               for field in self.fields)


# --- which are fed ------------------------------------------------------------------------------------------

def _any_order(sampler) -> bool:
    """Whether any items may come together in a batch: the data is shuffled."""
    for _ in range(8):
        if isinstance(sampler, RandomSampler):
            return True
        if isinstance(sampler, DistributedSampler):
            return sampler.shuffle
        own = getattr(sampler, "batch_sampler", None)
        if own is None and type(sampler) is BatchSampler:
            own = sampler.sampler
        if own is None:
            return False
        sampler = own
    return False


class _Loader:
    """What is told of one DataLoader."""

    def __init__(self, loader):
        self.name = type(loader.dataset).__name__
        self.stream = isinstance(loader.dataset, IterableDataset)
        self.lengths = None
        self.why_not = None
        if self.stream:
            self.why_not = "it is a stream (IterableDataset), and nobody knows what comes out of it"
        self.worst = None  # batches of the longest items, in turn
        self.asked = 0  # batches of the sampler, of which workers may have some ready that nobody took
        self.batches, self.fed = 0, {}
        self.missed = False  # some were drawn before anybody watched
        self.any_order = False
        self.packed = False  # a batch is of bins, of which each has several items
        self.items = 0  # in the batch that had most
        self.largest = {}  # by field, in one batch as the program got it
        self.padded = set()  # fields
        try:
            self.of_batches = len(loader)
        except TypeError:
            self.of_batches = None

    def look(self, dataset):
        if self.lengths is None and not self.why_not:
            try:
                self.lengths = _Lengths(dataset)
                self.why_not = self.lengths.why_not
            except TypeError:
                self.why_not = "how many items it has is not told"

    def find_worst(self, loader, sampler, example):
        """Once, when the first batch is drawn: `example`."""
        self.look(loader.dataset)
        if self.why_not:
            self.worst = []
            return
        batched = _of_batch(example)
        if _any_order(sampler):
            batches = self.lengths.longest_batches(len(example) if batched else 1)
        elif iter(sampler) is sampler:
            self.why_not, batches = "its sampler can be asked only once", []
        else:
            with _SavedChance():
                known = [batch if batched else [batch] for batch in itertools.islice(iter(sampler), MOST_BATCHES)]
            batches = [max(known, key=self.lengths.weight)] if known else []
        self.worst = [batch if batched else batch[0] for batch in batches]

    def draw(self, batch, loader, sampler):
        if self.worst is None:
            if WORST_CASE:
                _quietly(self.find_worst)(loader, sampler, batch)
            else:  # now, for at the end it may be gone
                _quietly(self.look)(loader.dataset)
            self.worst = self.worst or []
        if self.worst and self.asked % EVERY == 0:
            batch = self.worst[self.asked // EVERY % len(self.worst)]
            batch = list(batch) if isinstance(batch, (list, tuple)) else batch
        self.asked += 1
        return batch

    def feed(self, batch, sampler):
        self.batches += 1
        if self.stream or batch is None or len(self.fed) >= MOST_BATCHES:
            return
        items = _items(batch)
        self.fed.update(dict.fromkeys(items))
        self.items = max(self.items, len(items))
        self.any_order = self.any_order or _any_order(sampler)
        self.packed = self.packed or _of_batch(batch) and any(
            _of_batch(one) and not isinstance(one, tuple) for one in batch)

    def got(self, batch):
        """What is padded, or cut, to one length has the items for its first dimension; what is joined has not."""
        for field, value in _fields(batch).items():
            shape = getattr(value, "shape", ())
            length = _length(value) if shape else None
            if length is not None and (len(shape) == 1 or shape[0] > self.items):
                self.largest[field] = max(self.largest.get(field, 0), length)
            elif length is not None:
                self.padded.add(field)

    def unseen(self) -> bool:
        """Whether items differ in what no batch has by that name: it may be padded, or joined."""
        if not self.any_order or self.worst or self.items < 2:
            return False
        seen = (self.largest.keys() | self.padded) - self.lengths.of_parts
        return any(field not in seen for field in self.lengths.uneven())

    def could_meet(self) -> dict:
        """Of fields of joined items, as graphs are, that could be longer in a batch if others met in it: how long they
        were, and could be."""
        if not self.any_order or self.worst or self.missed:
            return {}
        could = {field: {"largest": largest, "could_be": self.lengths.could_meet(field, self.items)}
                 for field, largest in self.largest.items()
                 if field in self.lengths.fields and field not in self.lengths.of_parts}
        return {field: one for field, one in could.items() if one["largest"] < one["could_be"]}

    def report(self) -> dict:
        fields = {}
        even = self.lengths is not None and not self.why_not and self.lengths.is_even()
        if self.packed and not self.worst:
            self.why_not = self.why_not or "they are packed into bins (--worst-case feeds the batch with the fullest)"
        known = self.lengths is not None and not self.why_not and all(index in self.lengths.of for index in self.fed)
        if known:
            fields = {field: {"seen": self.lengths.longest(field, self.fed), "longest": self.lengths.longest(field)}
                      for field in self.lengths.fields}
        told = {"name": self.name, "batches": self.batches, "of_batches": self.of_batches, "lengths": fields,
                "one_size": bool(fields) and even,
                "looked_at": len(self.lengths.of) if self.lengths else 0,
                "items": self.lengths.size if self.lengths else None,
                "could_meet": self.could_meet() if fields and not even else {},
                "not_known": self.lengths.not_known if self.lengths else {}, "packed": self.packed, "missed": self.missed, "fed_longest": bool(self.worst), "why_not": self.why_not}
        larger = any(one["seen"] < one["longest"] for one in fields.values()) or bool(told["could_meet"])
        may_be = larger and not told["fed_longest"] if fields or told["fed_longest"] else None  # nobody knows
        if may_be is False and (told["not_known"] or fields and self.unseen()):
            may_be = None
        return {**told, "may_be_larger": may_be, "text": self.text(told)}

    @staticmethod
    def text(told) -> str:
        of = told["of_batches"]
        again = of is not None and told["batches"] > of
        text = f"{told['name']}: {told['batches']:,}{'' if of is None or again else f' of {of:,}'} batches were fed"
        if again:
            text += f", of {of:,} an epoch"
        partly = told["items"] is not None and told["looked_at"] < told["items"]
        within = f" of the {told['looked_at']:,} items looked at, of {told['items']:,}," if partly else ""
        shorter = {field: one for field, one in told["lengths"].items() if one["seen"] < one["longest"]}

        def sizes(fields, both):
            return ", ".join(f"{field} {one['seen']:,} of {one['longest']:,}".strip() if both else
                             f"{field} {one['longest']:,}".strip() for field, one in fields.items())
        if told["fed_longest"] and told["packed"]:
            text += "; every third was the one with the fullest bins"
        elif told["fed_longest"]:
            text += f"; every third was of the longest items{within} ({sizes(told['lengths'], False)})"
        elif told["why_not"]:
            text += f"; the longest were not looked for: {told['why_not']}"
        elif shorter:
            them = "those that came after a GPU was used" if told["missed"] else "them"
            text += f"; the longest{within} were not among {them}: {sizes(shorter, True)} (--worst-case feeds them)"
        elif partly and not told["lengths"]:
            text += (f"; whether the longest were among them is not known: of {told['items']:,} items {told['looked_at']:,} "
                     f"were looked at in {LOOK_SECONDS:g} s")
            text += "" if WORST_CASE else " (--worst-case looks longer, and feeds the longest)"
        elif told["one_size"]:
            text += f"; all items{within} are of one size"
        elif told["lengths"]:
            text += f", with the longest{within} among them ({sizes(told['lengths'], False)})"
            if told["could_meet"]:
                could = ", ".join(f"{field} {one['could_be']:,}, not {one['largest']:,}".strip()
                                  for field, one in told["could_meet"].items())
                text += f"; in another order a batch could have {could} (--worst-case feeds the longest together)"
        if told["not_known"] and not told["why_not"]:
            text += f"; how large other parts of its items are is not known{_of_types(told['not_known'])}"
        return text


class _WatchedSampler:
    def __init__(self, sampler, loader, told, ahead):
        self.sampler, self.loader, self.told = sampler, loader, told
        self.ahead = collections.deque([None] * ahead)  # asked for, and given to nobody yet

    def __iter__(self):
        self.ahead.clear()
        return self.goes_on(self.sampler)

    def goes_on(self, batches):
        for batch in batches:
            batch = self.told.draw(batch, self.loader, self.sampler)
            self.ahead.append(batch)
            yield batch

    def gave(self, batch):
        self.told.feed(self.ahead.popleft() if self.ahead else None, self.sampler)
        self.told.got(batch)

    def __len__(self):
        return len(self.sampler)


_loaders = weakref.WeakKeyDictionary()  # of each, the _Loader
_told = []  # in order


@_quietly
def _watch_loader(iterator, loader, begun=False):
    told = _loaders.get(loader)
    if told is None:
        told = _loaders[loader] = _Loader(loader)
        _told.append(told)
    asked = max(iterator._num_yielded, getattr(iterator, "_send_idx", 0))
    sampler = iterator._index_sampler = _WatchedSampler(iterator._index_sampler, loader, told,
                                                        asked - iterator._num_yielded)
    if begun:
        told.batches, told.asked, told.missed = iterator._num_yielded, asked, True
        iterator._sampler_iter = sampler.goes_on(iterator._sampler_iter)
    else:
        iterator._sampler_iter = iter(sampler)


class _GoneLoader:
    """Of one that had no name, "for batch in DataLoader(...)", only the iterator is left."""

    def __init__(self, iterator):
        self.dataset, self.sampler = iterator._dataset, iterator._index_sampler

    def __len__(self):
        return len(self.sampler)


def _watch_begun():
    """Loaders that gave a first batch before a GPU was used: until then nobody watches."""
    loaders, iterators = _alive(DataLoader, _BaseDataLoaderIter)
    for iterator in iterators:
        loader = next((one for one in loaders if one._index_sampler is iterator._index_sampler), None)
        _watch_loader(iterator, _GoneLoader(iterator) if loader is None else loader, True)


def _init(self, loader, *arguments, otherwise=_BaseDataLoaderIter.__init__, **words):
    otherwise(self, loader, *arguments, **words)
    _watch_loader(self, loader)


@_quietly
def _note_got(iterator, batch):
    sampler = iterator._index_sampler
    if isinstance(sampler, _WatchedSampler):
        sampler.gave(batch)


def _next(self, otherwise=_BaseDataLoaderIter.__next__):
    batch = otherwise(self)
    _note_got(self, batch)
    return batch


@_quietly
def _report():
    state["data"] = [told.report() for told in _told if told.batches]


_quietly(_watch_begun)()
_BaseDataLoaderIter.__init__ = _init
_BaseDataLoaderIter.__next__ = _next
at_end.append(_report)
