// Scripts about memory: devices, physical memory, addresses, mappings, sharing, plain allocations,
// contents.
#include <array>

#include <unistd.h>

#include "allocator/base/bytes.h"
#include "tests/gpu/answers.h"
#include "tests/gpu/work.h"

namespace gapless::testing {
namespace {

using enum DriverCall;

void devices(Script& script) {
  Driver& gpu = script.gpu;
  std::int32_t count = -1;
  script.ask(device_count, "", [&] { return gpu.device_count(count); });
  for (const DeviceIndex device : {0, -1, 77}) {
    const std::string of = "device " + std::to_string(device);
    DeviceProperties properties;
    MemInfo info;
    EventHandle event = 0;
    StreamHandle stream = 0;
    script.ask(device_properties, of, [&] { return gpu.device_properties(device, properties); });
    script.ask(mem_info, of, [&] { return gpu.mem_info(device, info); });
    script.ask(event_create, of, [&] { return gpu.event_create(device, event); });
    script.ask(stream_create, of, [&] { return gpu.stream_create(device, stream); });
    script.ask(device_synchronize, of, [&] { return gpu.device_synchronize(device); });
  }
}

void creating(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const auto ask = [&](const std::string& with, DeviceIndex device, std::uint64_t bytes,
                       const MemKind& kind = {}) {
    MemHandle handle = 4711;
    const DriverStatus status =
        script.ask(mem_create, with, [&] { return gpu.mem_create(device, bytes, kind, handle); });
    if (status == DriverStatus::ok) {
      script.ask(mem_release, "of that", [&] { return gpu.mem_release(handle); });
    } else {
      script.note(mem_create, with + ": the handle is as it was", handle == 4711);
    }
  };
  ask("a page", 0, page);
  ask("0 bytes", 0, 0);
  ask("1 byte", 0, 1);
  ask("64 KiB", 0, 64 * KiB);
  ask("a page and a byte", 0, page + 1);
  ask("a page less a byte", 0, page - 1);
  ask("three pages", 0, 3 * page);
  ask("twice the device", 0, align_up(2 * script.properties.total_bytes, page));
  ask("2^62 bytes", 0, std::uint64_t{1} << 62);
  ask("a page after that", 0, page);
  ask("device -1", -1, page);
  ask("device 77", 77, page);
  if (script.properties.can_share_fd) ask("to be shared", 0, page, {.share = ShareType::fd});
  if (!script.properties.can_share_fabric)
    ask("for a fabric", 0, page, {.share = ShareType::fabric});
  if (script.properties.can_map_host) ask("in host memory", 0, page, {.on_host = true});
  const auto release = [&](const std::string& with, MemHandle handle) {
    script.ask(mem_release, with, [&] { return gpu.mem_release(handle); });
  };
  release("of nothing", 0);
  release("of a number that is no handle", 0x123456789);
}

void charging(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const std::uint64_t before = script.free_bytes();
  const auto taken = [&] { return std::to_string(before - script.free_bytes()) + " B"; };
  const MemHandle one = script.create();
  script.note(mem_info, "taken by a page", taken());
  const MemHandle many = script.create(33);
  script.note(mem_info, "and by 33 in one", taken());
  const DeviceAddress address = script.map({one});
  const DeviceAddress alias = script.map({one});
  script.ask(mem_release, "while mapped twice", [&] { return gpu.mem_release(one); });
  script.ask(mem_unmap, "one of them", [&] { return gpu.mem_unmap(address, page); });
  script.note(mem_info, "with one mapping left", taken());
  script.ask(mem_unmap, "the other", [&] { return gpu.mem_unmap(alias, page); });
  script.note(mem_info, "with none left", taken());
  script.ask(mem_release, "of 33 pages", [&] { return gpu.mem_release(many); });
  script.note(mem_info, "with nothing left", taken());
}

// To the last page that the device says it has.
void filling(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  std::vector<MemHandle> held;
  for (std::uint64_t bytes = GiB; bytes >= page; bytes /= 2) {
    MemHandle handle = 0;
    while (gpu.mem_create(0, align_up(bytes, page), handle) == DriverStatus::ok)
      held.push_back(handle);
  }
  MemHandle handle = 0;
  script.ask(mem_create, "a page on a full device",
             [&] { return gpu.mem_create(0, page, handle); });
  script.note(mem_info, "less than a page is left", script.free_bytes() < page);
  DeviceAddress address = 0;
  script.ask(mem_alloc, "twice a page on a full device",
             [&] { return gpu.mem_alloc(0, 2 * page, address); });
  script.ask(address_reserve, "on a full device",
             [&] { return gpu.address_reserve(page, 0, address); });
  script.ask(mem_map, "on a full device",
             [&] { return gpu.mem_map(address, align_up(GiB, page), held[0]); });
  script.ask(mem_release, "of the last page", [&] { return gpu.mem_release(held.back()); });
  script.ask(mem_create, "a page in its place",
             [&] { return gpu.mem_create(0, page, held.back()); });
  for (const MemHandle one : held) gpu.mem_release(one);
}

void reserving(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const auto ask = [&](const std::string& with, std::uint64_t bytes, std::uint64_t alignment) {
    DeviceAddress address = 4711;
    const DriverStatus status = script.ask(
        address_reserve, with, [&] { return gpu.address_reserve(bytes, alignment, address); });
    if (status != DriverStatus::ok) {
      script.note(address_reserve, with + ": the address is as it was", address == 4711);
      return;
    }
    script.note(address_reserve, with + ": aligned to a page", address % page == 0);
    if (alignment > page) {
      script.note(address_reserve, with + ": aligned as asked", address % alignment == 0);
    }
    script.ask(address_free, "of that", [&] { return gpu.address_free(address, bytes); });
  };
  ask("a page", page, 0);
  ask("0 bytes", 0, 0);
  ask("a page and a byte", page + 1, 0);
  ask("64 KiB", 64 * KiB, 0);
  ask("alignment 1", page, 1);
  ask("alignment 3", page, 3);
  ask("alignment 4 KiB", page, 4 * KiB);
  ask("alignment of a page", page, page);
  ask("alignment 1 GiB", page, GiB);
  for (const std::uint64_t tib : {1, 4, 16, 64, 128, 256}) {
    ask(std::to_string(tib) + " TiB", tib * 1024 * GiB, 0);
  }
  ask("2^62 bytes", std::uint64_t{1} << 62, 0);
  const DeviceAddress address = script.reserve(4);
  const auto free = [&](const std::string& with, DeviceAddress begin, std::uint64_t bytes) {
    script.ask(address_free, with, [&] { return gpu.address_free(begin, bytes); });
  };
  free("less than was reserved", address, page);
  free("more than was reserved", address, 5 * page);
  free("of its end", address + page, 3 * page);
  free("0 bytes", address, 0);
  const MemHandle handle = script.create();
  gpu.mem_map(address + page, page, handle);
  free("with memory mapped in it", address, 4 * page);
  script.ask(mem_unmap, "after that", [&] { return gpu.mem_unmap(address + page, page); });
  free("as a whole", address, 4 * page);
  free("again", address, 4 * page);
  free("of nothing", 0, page);
  gpu.mem_release(handle);
}

void mapping(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const DeviceAddress range = script.reserve(8);
  const MemHandle a = script.create();
  const MemHandle b = script.create();
  const MemHandle two = script.create(2);
  const auto map = [&](const std::string& with, DeviceAddress address, std::uint64_t bytes,
                       MemHandle handle) {
    return script.ask(mem_map, with, [&] { return gpu.mem_map(address, bytes, handle); });
  };
  map("a page", range, page, a);
  map("where memory is mapped", range, page, b);
  map("where the same memory is mapped", range, page, a);
  map("the same memory a second time", range + page, page, a);
  map("over the end of a mapping", range + page, 2 * page, two);
  map("half of the memory", range + 4 * page, page, two);
  map("more than the memory", range + 4 * page, 2 * page, b);
  map("0 bytes", range + 4 * page, 0, b);
  map("at half a page", range + 4 * page + page / 2, page, b);
  map("at 64 KiB of a page", range + 4 * page + 64 * KiB, page, b);
  map("where nothing is reserved", 0x1000 * page, page, b);
  map("over the end of the reservation", range + 7 * page, 2 * page, two);
  map("no handle", range + 4 * page, page, 0);
  map("a number that is no handle", range + 4 * page, page, 0x123456789);
  map("two pages", range + 2 * page, 2 * page, two);
  map("two pages a second time", range + 6 * page, 2 * page, two);
  // What failed changed nothing.
  script.ask(mem_set_access, "over all four",
             [&] { return gpu.mem_set_access(range, 4 * page, 0); });
  gpu.memset_d32(0, range, 11, page / 4, 0);
  script.note(mem_map, "both addresses are one memory", script.word(range + page) == 11);
  script.ask(mem_unmap, "all four", [&] { return gpu.mem_unmap(range, 4 * page); });
  script.ask(mem_unmap, "the others", [&] { return gpu.mem_unmap(range + 6 * page, 2 * page); });
  map("after unmapping", range, page, b);
  gpu.mem_unmap(range, page);
  gpu.mem_release(b);
  map("what was released", range, page, b);
  std::uint64_t mapped = 0;
  const DeviceAddress wide = script.reserve(64);
  while (mapped < 64 && gpu.mem_map(wide + mapped * page, page, a) == DriverStatus::ok) ++mapped;
  script.note(mem_map, "how often the same memory at 64 addresses", std::to_string(mapped));
  if (mapped != 0) gpu.mem_unmap(wide, mapped * page);
  gpu.address_free(wide, 64 * page);
  script.ask(address_free, "of all that", [&] { return gpu.address_free(range, 8 * page); });
  gpu.mem_release(a);
  gpu.mem_release(two);
}

void giving_access(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const DeviceAddress range = script.reserve(8);
  const MemHandle a = script.create();
  const MemHandle two = script.create(2);
  gpu.mem_map(range, page, a);
  gpu.mem_map(range + page, 2 * page, two);
  gpu.mem_map(range + 4 * page, page, a);
  const auto ask = [&](const std::string& with, DeviceAddress address, std::uint64_t bytes,
                       DeviceIndex device) {
    script.ask(mem_set_access, with, [&] { return gpu.mem_set_access(address, bytes, device); });
  };
  ask("over a gap", range, 5 * page, 0);
  ask("where nothing is mapped", range + 6 * page, page, 0);
  ask("where nothing is reserved", 0x1000 * page, page, 0);
  ask("0 bytes", range, 0, 0);
  ask("device -1", range, page, -1);
  ask("device 77", range, page, 77);
  ask("half of a mapping of two pages", range + page, page, 0);
  ask("its other half", range + 2 * page, page, 0);
  ask("half a page", range, page / 2, 0);
  ask("from half a page on", range + page / 2, page / 2, 0);
  ask("two mappings", range, 3 * page, 0);
  ask("again", range, 3 * page, 0);
  script.ask(mem_release, "of memory that is mapped", [&] { return gpu.mem_release(a); });
  ask("of released memory", range + 4 * page, page, 0);
  script.ask(memset_d32, "in released memory that is mapped",
             [&] { return gpu.memset_d32(0, range, 5, page / 4, 0); });
  script.note(memset_d32, "seen at its other address", script.word(range + 4 * page) == 5);
  script.ask(mem_unmap, "three pages", [&] { return gpu.mem_unmap(range, 3 * page); });
  script.ask(mem_unmap, "the other address", [&] { return gpu.mem_unmap(range + 4 * page, page); });
  gpu.address_free(range, 8 * page);
  gpu.mem_release(two);
}

void unmapping(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const DeviceAddress range = script.reserve(8);
  const MemHandle a = script.create();
  const MemHandle two = script.create(2);
  gpu.mem_map(range, page, a);
  gpu.mem_map(range + page, 2 * page, two);
  gpu.mem_map(range + 4 * page, page, a);
  const auto ask = [&](const std::string& with, DeviceAddress address, std::uint64_t bytes) {
    script.ask(mem_unmap, with, [&] { return gpu.mem_unmap(address, bytes); });
  };
  ask("half of a mapping of two pages", range + page, page);
  ask("its other half", range + 2 * page, page);
  ask("half a page", range, page / 2);
  ask("0 bytes", range, 0);
  ask("over a gap", range, 5 * page);
  ask("from a gap on", range + 3 * page, 2 * page);
  ask("over the end of a mapping", range + 4 * page, 2 * page);
  ask("where nothing is mapped", range + 6 * page, page);
  ask("where nothing is reserved", 0x1000 * page, page);
  ask("two mappings", range, 3 * page);
  ask("again", range, 3 * page);
  ask("the last", range + 4 * page, page);
  script.ask(address_free, "of all that", [&] { return gpu.address_free(range, 8 * page); });
  script.ask(mem_release, "of a page", [&] { return gpu.mem_release(a); });
  script.ask(mem_release, "of two pages", [&] { return gpu.mem_release(two); });
}

void plain(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t before = script.free_bytes();
  std::vector<DeviceAddress> kept;
  const auto ask = [&](const std::string& with, DeviceIndex device, std::uint64_t bytes) {
    DeviceAddress address = 4711;
    const DriverStatus status =
        script.ask(mem_alloc, with, [&] { return gpu.mem_alloc(device, bytes, address); });
    if (status == DriverStatus::ok) {
      script.note(mem_alloc, with + ": aligned to 512 B", address % 512 == 0);
      kept.push_back(address);
    } else {
      script.note(mem_alloc, with + ": the address is as it was", address == 4711);
    }
  };
  ask("0 bytes", 0, 0);
  ask("2 MiB", 0, 2 * MiB);
  ask("2 MiB and a byte", 0, 2 * MiB + 1);
  script.note(mem_info, "taken by these", std::to_string(before - script.free_bytes()) + " B");
  ask("a byte", 0, 1);
  ask("513 bytes", 0, 513);
  ask("twice the device", 0, 2 * script.properties.total_bytes);
  ask("device -1", -1, 512);
  const auto free = [&](const std::string& with, DeviceAddress address) {
    script.ask(mem_free, with, [&] { return gpu.mem_free(0, address); });
  };
  free("of nothing", 0);
  free("of an address that was not given", 0x1000);
  free("inside of a block", kept.front() + 512);
  script.ask(mem_unmap, "of what was not mapped",
             [&] { return gpu.mem_unmap(kept.front(), 2 * MiB); });
  const DeviceAddress last = kept.front();
  for (const DeviceAddress address : kept) free("of a block", address);
  free("again", last);
  const MemHandle handle = script.create();
  const DeviceAddress mapped = script.map({handle});
  free("of mapped memory", mapped);
  gpu.mem_unmap(mapped, script.page);
  gpu.address_free(mapped, script.page);
  gpu.mem_release(handle);
}

void sharing(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  if (!script.properties.can_share_fd) {
    script.note(mem_export, "by descriptor", std::string("not supported"));
    return;
  }
  const std::uint64_t before = script.free_bytes();
  const MemHandle plain = script.create();
  MemHandle own = 0;
  script.ask(mem_create, "to be shared",
             [&] { return gpu.mem_create(0, page, {.share = ShareType::fd}, own); });
  SharedHandle shared;
  const auto give = [&](const std::string& with, MemHandle handle, ShareType type) {
    return script.ask(mem_export, with, [&] { return gpu.mem_export(handle, type, shared); });
  };
  give("of what is not made for it", plain, ShareType::fd);
  give("by no way", own, ShareType::none);
  give("by fabric", own, ShareType::fabric);
  give("of nothing", 0, ShareType::fd);
  script.note(mem_export, "nothing was made", shared.fd == -1);
  give("by descriptor", own, ShareType::fd);
  const int file = shared.fd;
  give("again", own, ShareType::fd);
  script.note(mem_export, "the second descriptor is another", shared.fd != file);
  close(shared.fd);
  shared.fd = file;
  MemHandle other = 0;
  MemHandle third = 0;
  const auto take = [&](const std::string& with, DeviceIndex device, const SharedHandle& from,
                        MemHandle& handle) {
    script.ask(mem_import, with, [&] { return gpu.mem_import(device, from, handle); });
  };
  take("a descriptor", 0, shared, other);
  take("it again", 0, shared, third);
  MemHandle none = 0;
  take("for device 77", 77, shared, none);
  int pipe[2] = {-1, -1};
  if (::pipe(pipe) == 0)
    take("a descriptor of something else", 0, {.type = ShareType::fd, .fd = pipe[0], .fabric = {}},
         none);
  close(pipe[0]);
  close(pipe[1]);
  take("no descriptor", 0, {.type = ShareType::fd, .fd = -1, .fabric = {}}, none);
  close(file);
  script.note(mem_info, "taken by two pages and the imports",
              std::to_string(before - script.free_bytes()) + " B");
  const DeviceAddress here = script.map({own});
  const DeviceAddress there = script.map({other});
  gpu.memset_d32(0, here, 4711, page / 4, 0);
  script.note(mem_import, "it is the same memory", script.word(there) == 4711);
  script.ask(mem_unmap, "of the owner's", [&] { return gpu.mem_unmap(here, page); });
  script.ask(mem_release, "by the owner", [&] { return gpu.mem_release(own); });
  script.note(mem_import, "it outlives the owner's hold", script.word(there) == 4711);
  script.ask(mem_release, "of one import", [&] { return gpu.mem_release(third); });
  script.ask(mem_unmap, "of the import", [&] { return gpu.mem_unmap(there, page); });
  script.ask(mem_release, "of the last", [&] { return gpu.mem_release(other); });
  gpu.mem_release(plain);
  gpu.address_free(here, page);
  gpu.address_free(there, page);
  script.note(mem_info, "left of all that", std::to_string(before - script.free_bytes()) + " B");
}

void contents(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t page = script.page;
  const MemHandle a = script.create();
  const MemHandle b = script.create();
  const DeviceAddress at = script.map({a, b});
  script.note(mem_create, "new memory reads as zeros",
              script.word(at) == 0 && script.word(at + page) == 0);
  const auto fill = [&](const std::string& with, DeviceAddress address, std::uint64_t words) {
    script.ask(memset_d32, with, [&] { return gpu.memset_d32(0, address, 7, words, 0); });
  };
  fill("0 words", at, 0);
  fill("a word", at + 4, 1);
  script.note(memset_d32, "and nothing beside it",
              script.word(at) == 0 && script.word(at + 4) == 7 && script.word(at + 8) == 0);
  fill("at no multiple of 4", at + 2, 1);
  fill("over two mappings", at, 2 * page / 4);
  script.note(memset_d32, "to the end", script.word(at + 2 * page - 4) == 7);
  std::array<std::uint32_t, 4> words = {1, 2, 3, 4};
  const auto up = [&](const std::string& with, DeviceAddress address, std::uint64_t bytes) {
    script.ask(copy_to_device, with,
               [&] { return gpu.copy_to_device(0, address, words.data(), bytes, 0); });
  };
  const auto down = [&](const std::string& with, DeviceAddress address, std::uint64_t bytes) {
    script.ask(copy_to_host, with,
               [&] { return gpu.copy_to_host(0, words.data(), address, bytes, 0); });
  };
  up("0 bytes", at, 0);
  up("over a seam of two mappings", at + page - 8, 16);
  down("0 bytes", at, 0);
  words = {};
  down("over that seam", at + page - 8, 16);
  script.note(copy_to_host, "what was copied there",
              words == std::array<std::uint32_t, 4>{1, 2, 3, 4});
  // Mapped again in the other order.
  gpu.mem_unmap(at, 2 * page);
  gpu.mem_map(at, page, b);
  gpu.mem_map(at + page, page, a);
  gpu.mem_set_access(at, 2 * page, 0);
  script.note(mem_map, "contents go with the memory",
              script.word(at) == 3 && script.word(at + 2 * page - 4) == 2);
  gpu.mem_unmap(at, 2 * page);
  gpu.address_free(at, 2 * page);
  gpu.mem_release(a);
  gpu.mem_release(b);
}

// What a program must never do: it may cost the context, and is the last that is asked here.
void wild_access(Script& script, const std::string& where, DeviceAddress address) {
  Driver& gpu = script.gpu;
  std::uint32_t word = 0;
  script.ask(memset_d32, where, [&] { return gpu.memset_d32(0, address, 7, 1, 0); });
  script.ask(copy_to_device, where, [&] { return gpu.copy_to_device(0, address, &word, 4, 0); });
  script.ask(copy_to_host, where, [&] { return gpu.copy_to_host(0, &word, address, 4, 0); });
  script.ask(device_synchronize, "after that", [&] { return gpu.device_synchronize(0); });
  MemHandle handle = 0;
  script.ask(mem_create, "after that", [&] { return gpu.mem_create(0, script.page, handle); });
  EventHandle event = 0;
  script.ask(event_create, "after that", [&] { return gpu.event_create(0, event); });
}

void access_to_nothing(Script& script) {
  wild_access(script, "where nothing is mapped", script.reserve(1));
}

void access_not_given(Script& script) {
  const DeviceAddress address = script.reserve(1);
  script.gpu.mem_map(address, script.page, script.create());
  wild_access(script, "where no access was given", address);
}

void access_taken_away(Script& script) {
  const MemHandle handle = script.create();
  const DeviceAddress address = script.map({handle});
  script.gpu.memset_d32(0, address, 1, 1, 0);
  script.gpu.device_synchronize(0);
  script.gpu.mem_unmap(address, script.page);
  wild_access(script, "where memory was unmapped", address);
}

// A write that runs from mapped memory into none.
void access_past_the_end(Script& script) {
  const DeviceAddress address = script.reserve(2);
  script.gpu.mem_map(address, script.page, script.create());
  script.gpu.mem_set_access(address, script.page, 0);
  script.ask(memset_d32, "over the end of a mapping",
             [&] { return script.gpu.memset_d32(0, address + script.page - 4, 7, 2, 0); });
  script.ask(device_synchronize, "after that", [&] { return script.gpu.device_synchronize(0); });
}

// Work under way through an address that is unmapped meanwhile: gapless waits first.
void unmapping_under_work(Script& script) {
  Driver& gpu = script.gpu;
  const std::uint64_t bytes = 256 * script.page;
  const StreamHandle on = script.stream();
  const MemHandle handle = script.create(256);
  const DeviceAddress address = script.reserve(256);
  gpu.mem_map(address, bytes, handle);
  gpu.mem_set_access(address, bytes, 0);
  keep_busy(gpu, on, address, bytes);
  script.ask(mem_unmap, "under work that writes there",
             [&] { return gpu.mem_unmap(address, bytes); });
  script.ask(stream_synchronize, "of that work", [&] { return gpu.stream_synchronize(0, on); });
  MemHandle next = 0;
  script.ask(mem_create, "after that", [&] { return gpu.mem_create(0, script.page, next); });
}

constexpr NamedScript kMemoryScripts[] = {
    {"devices", devices},
    {"creating", creating},
    {"charging", charging},
    {"filling", filling},
    {"reserving", reserving},
    {"mapping", mapping},
    {"giving_access", giving_access},
    {"unmapping", unmapping},
    {"plain", plain},
    {"sharing", sharing},
    {"contents", contents},
    {"access_to_nothing", access_to_nothing, true},
    {"access_not_given", access_not_given, true},
    {"access_taken_away", access_taken_away, true},
    {"access_past_the_end", access_past_the_end, true},
    {"unmapping_under_work", unmapping_under_work, true},
};

}  // namespace

std::span<const NamedScript> memory_scripts() { return kMemoryScripts; }

}  // namespace gapless::testing
