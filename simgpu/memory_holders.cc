#include "simgpu/memory_holders.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace gapless::simgpu {
namespace {

using Kind = MemoryEvent::Kind;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Block {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  // events
  std::uint64_t end = kNever;
  std::uint32_t site = 0;
  std::uint32_t copy_of = kNone;
  std::uint16_t told = 0;        // a bit for each holder
  bool made_parameters = false;  // a parameter was copied from it
  std::uint8_t device = 0;
  Holder holder = Holder::unknown;  // at first what its thread was at
};

bool told(const Block& block, Holder holder) {
  return (block.told >> static_cast<unsigned>(holder) & 1U) != 0;
}
void tell(Block& block, Holder holder) {
  block.told = static_cast<std::uint16_t>(block.told | 1U << static_cast<unsigned>(holder));
}

// What is surer than that a loss has to do with it.
bool surely_another(const Block& block) {
  constexpr Holder kSurer[] = {Holder::parameters, Holder::gradients, Holder::optimizer_states,
                               Holder::buffers, Holder::workspaces};
  return std::any_of(std::begin(kSurer), std::end(kSurer),
                     [&](Holder holder) { return told(block, holder); });
}

class Blocks {
 public:
  Blocks(const std::vector<MemoryEvent>& events, const std::vector<MemorySite>& sites) {
    for (std::uint64_t i = 0; i < events.size(); ++i) take(events[i], i);
    spread_losses();
    spread_parameters();
    for (Block& block : all) block.holder = holder_of(block, sites);
    find_kept_copies();
    keep_by_life(sites);
  }

  std::vector<Block> all;
  std::vector<std::uint32_t> of_event;  // the block that is allocated or freed by it

 private:
  void take(const MemoryEvent& event, std::uint64_t at) {
    of_event.push_back(kNone);
    switch (event.kind) {
      case Kind::alloc: {
        // What lay there was freed by a way that is not told.
        if (const auto old = live_.find(event.address); old != live_.end()) end(old, at);
        Block block;
        block.address = event.address;
        block.bytes = event.bytes;
        block.begin = at;
        block.site = event.site;
        block.device = event.device;
        block.holder = event.holder;
        of_event.back() = static_cast<std::uint32_t>(all.size());
        live_[event.address] = of_event.back();
        all.push_back(block);
        break;
      }
      case Kind::free:
        if (const auto found = live_.find(event.address); found != live_.end()) {
          of_event.back() = found->second;
          end(found, at);
        }
        break;
      case Kind::holds:
        if (const std::uint32_t found = at_address(event.address); found != kNone) {
          if (static_cast<std::size_t>(event.holder) < kHolders) tell(all[found], event.holder);
        }
        break;
      case Kind::copied: {
        const std::uint32_t to = at_address(event.address);
        const std::uint32_t from = at_address(event.bytes);
        if (to != kNone && from != kNone && to != from) all[to].copy_of = from;
        break;
      }
      case Kind::step:
        steps_.push_back(at);
        break;
      default:
        break;
    }
  }

  void end(std::map<std::uint64_t, std::uint32_t>::iterator found, std::uint64_t at) {
    all[found->second].end = at;
    live_.erase(found);
  }

  [[nodiscard]] std::uint32_t at_address(std::uint64_t address) const {
    auto found = live_.upper_bound(address);
    if (found == live_.begin()) return kNone;
    --found;
    return address - found->first < all[found->second].bytes ? found->second : kNone;
  }

  // What a loss took was perhaps copied from what a model gave, and what it gave back is copied.
  void spread_losses() {
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (!told(all[i], Holder::loss) || surely_another(all[i])) continue;
      for (std::uint32_t from = all[i].copy_of;
           from != kNone && !told(all[from], Holder::loss) && !surely_another(all[from]);
           from = all[from].copy_of) {
        tell(all[from], Holder::loss);
      }
    }
    for (Block& block : all) {
      if (block.copy_of == kNone) continue;
      const Block& from = all[block.copy_of];
      const bool of_loss = told(from, Holder::loss) || from.holder == Holder::loss;
      if (of_loss && !surely_another(from)) tell(block, Holder::loss);
    }
  }

  // What a parameter was cast or copied from: weights as they came from the host or from a file.
  void spread_parameters() {
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (!told(all[i], Holder::parameters)) continue;
      for (std::uint32_t from = all[i].copy_of;
           from != kNone && !all[from].made_parameters && !surely_another(all[from]);
           from = all[from].copy_of) {
        all[from].made_parameters = true;
      }
    }
  }

  [[nodiscard]] Holder holder_of(const Block& block, const std::vector<MemorySite>& sites) const {
    for (const Holder holder : {Holder::parameters, Holder::gradients, Holder::optimizer_states,
                                Holder::buffers, Holder::workspaces, Holder::loss}) {
      if (told(block, holder)) return holder;
    }
    const Holder at =
        block.site == 0 || block.site > sites.size() ? Holder::unknown : sites[block.site - 1].at;
    if (block.made_parameters) return Holder::parameter_copies;
    if (at == Holder::parameters || at == Holder::gradients) return at;
    if (told(block, Holder::inputs)) return Holder::inputs;
    if (block.copy_of != kNone && told(all[block.copy_of], Holder::parameters)) {
      return Holder::parameter_copies;
    }
    if (block.holder != Holder::unknown) return block.holder;
    return at;
  }

  // An average of the weights, or a model that another one is compared with, may come from the
  // host. No batch is as large as a parameter and is kept for steps.
  void find_kept_copies() {
    constexpr std::ptrdiff_t kSteps = 2;
    std::set<std::uint64_t> sizes;
    for (const Block& block : all) {
      if (block.holder == Holder::parameters) sizes.insert(block.bytes);
    }
    for (Block& block : all) {
      if (block.holder != Holder::inputs || sizes.count(block.bytes) == 0) continue;
      const auto first = std::lower_bound(steps_.begin(), steps_.end(), block.begin);
      const auto last = std::lower_bound(first, steps_.end(), block.end);
      if (last - first >= kSteps) block.holder = Holder::parameter_copies;
    }
  }

  // In a program without Python nobody tells of gradients and states. What the backward pass made
  // and an optimizer's step finds is a gradient; what a step made and the next backward pass finds,
  // or nobody frees, is a state.
  void keep_by_life(const std::vector<MemorySite>& sites) {
    const auto is_native = [&](const Block& block) {
      return block.site != 0 && block.site <= sites.size() && !sites[block.site - 1].native.empty();
    };
    std::vector<std::uint64_t> passes;  // when memory was had in one, in order
    std::vector<std::uint64_t> steps;
    for (const Block& block : all) {
      if (!is_native(block)) continue;
      if (block.holder == Holder::backward) passes.push_back(block.begin);
      if (block.holder == Holder::optimizer_step) steps.push_back(block.begin);
    }
    const auto sees_any = [](const Block& block, const std::vector<std::uint64_t>& moments) {
      const auto next = std::upper_bound(moments.begin(), moments.end(), block.begin);
      return next != moments.end() && *next < block.end;
    };
    for (Block& block : all) {
      if (!is_native(block)) continue;
      if (block.holder == Holder::backward && sees_any(block, steps)) {
        block.holder = Holder::gradients;
      } else if (block.holder == Holder::optimizer_step &&
                 (block.end == kNever || sees_any(block, passes))) {
        block.holder = Holder::optimizer_states;
      }
    }
  }

  std::map<std::uint64_t, std::uint32_t> live_;
  std::vector<std::uint64_t> steps_;  // events
};

// What a device holds while its events pass.
struct Now {
  std::array<std::uint64_t, kHolders> held_bytes{};
  std::uint64_t allocated_bytes = 0;
  std::uint64_t reserved_bytes = 0;

  void change(const Block& block, bool more) {
    auto& held = held_bytes[static_cast<std::size_t>(block.holder)];
    held = more ? held + block.bytes : held - block.bytes;
    allocated_bytes = more ? allocated_bytes + block.bytes : allocated_bytes - block.bytes;
  }
};

MemoryMoment moment_of(const Now& now, std::uint64_t event, std::uint64_t steps) {
  MemoryMoment moment;
  moment.event = event;
  moment.steps = steps;
  moment.held_bytes = now.held_bytes;
  moment.allocated_bytes = now.allocated_bytes;
  moment.reserved_bytes = now.reserved_bytes;
  return moment;
}

void add_places(MemoryMoment& moment, const std::vector<Block>& blocks, int device) {
  std::map<std::pair<std::uint32_t, Holder>, MemoryMoment::Place> places;
  for (const Block& block : blocks) {
    if (block.device != device || block.begin > moment.event || block.end <= moment.event) continue;
    MemoryMoment::Place& place = places[{block.site, block.holder}];
    place.site = block.site;
    place.holder = block.holder;
    place.bytes += block.bytes;
    ++place.blocks;
  }
  for (const auto& [key, place] : places) moment.places.push_back(place);
  std::stable_sort(moment.places.begin(), moment.places.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

MemoryCourse course_of(int device, const std::vector<MemoryEvent>& events, const Blocks& blocks,
                       std::size_t most_samples) {
  MemoryCourse course;
  course.device = device;
  const std::size_t samples = std::min<std::size_t>(most_samples, events.size());
  course.samples.resize(samples);
  Now now;
  std::uint64_t steps = 0;
  std::size_t begun = 0;  // samples
  for (std::uint64_t i = 0; i < events.size(); ++i) {
    const MemoryEvent& event = events[i];
    const bool ours = event.device == device;
    const std::uint32_t block = blocks.of_event[i];
    if (event.kind == Kind::step) ++steps;
    if (event.kind == Kind::cut) course.cut = true;
    if (ours && (event.kind == Kind::alloc || event.kind == Kind::free)) {
      now.reserved_bytes = event.reserved_bytes;
      if (block != kNone) now.change(blocks.all[block], event.kind == Kind::alloc);
      if (now.allocated_bytes > course.peak.allocated_bytes) {
        course.peak = moment_of(now, i, steps);
      }
    }
    if (ours && event.kind == Kind::out_of_memory) {
      now.reserved_bytes = event.reserved_bytes;
      course.failed = moment_of(now, i, steps);
      course.failed_bytes = event.bytes;
      course.failed_site = event.site;
    }
    if (samples == 0) continue;
    const std::size_t at = i * samples / events.size();
    MemoryCourse::Sample& sample = course.samples[at];
    const bool is_new = at >= begun;
    if (is_new) {  // with what is left from before
      begun = at + 1;
      sample.steps = steps;
    }
    sample.reserved_bytes = std::max(sample.reserved_bytes, now.reserved_bytes);
    if (is_new || now.allocated_bytes > sample.allocated_bytes) {
      sample.allocated_bytes = now.allocated_bytes;
      sample.held_bytes = now.held_bytes;
    }
  }
  add_places(course.peak, blocks.all, device);
  if (course.failed) add_places(*course.failed, blocks.all, device);
  return course;
}

}  // namespace

std::string name_of(Holder holder) {
  switch (holder) {
    case Holder::parameters:
      return "parameters";
    case Holder::gradients:
      return "gradients";
    case Holder::optimizer_states:
      return "optimizer_states";
    case Holder::buffers:
      return "buffers";
    case Holder::inputs:
      return "inputs";
    case Holder::activations:
      return "activations";
    case Holder::loss:
      return "logits_and_loss";
    case Holder::backward:
      return "backward";
    case Holder::optimizer_step:
      return "optimizer_step";
    case Holder::workspaces:
      return "workspaces";
    case Holder::parameter_copies:
      return "parameter_copies";
    case Holder::unknown:
      break;
  }
  return "other";
}

std::vector<MemorySite> read_memory_sites(const std::string& path) {
  using nlohmann::json;
  std::vector<MemorySite> sites;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const json told = json::parse(line, nullptr, false);
    if (!told.is_object()) break;  // the last one, of a process that was killed meanwhile
    MemorySite site;
    const auto text = [&told](const char* name) {
      const auto found = told.find(name);
      return found != told.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const auto at = told.find("at");
    if (at != told.end() && at->is_number_unsigned() && at->get<std::uint64_t>() < kHolders) {
      site.at = static_cast<Holder>(at->get<std::uint8_t>());
    }
    site.line = text("line");
    site.library_line = text("library_line");
    site.called = text("called");
    site.part = text("part");
    const json frames = told.value("native", json::array());
    for (const json& frame : frames) {
      if (!frame.is_array() || frame.size() != 3 || !frame[0].is_string() ||
          !frame[1].is_number_unsigned() || !frame[2].is_string()) {
        continue;
      }
      site.native.push_back({frame[0].get<std::string>(), frame[1].get<std::uint64_t>(),
                             frame[2].get<std::string>()});
    }
    sites.push_back(std::move(site));
  }
  return sites;
}

std::vector<HeldBlock> held_blocks(const std::vector<MemoryEvent>& events,
                                   const std::vector<MemorySite>& sites) {
  std::vector<HeldBlock> held;
  for (const Block& block : Blocks(events, sites).all) {
    held.push_back({block.address, block.bytes, block.begin, block.end, block.site, block.device,
                    block.holder});
  }
  return held;
}

std::vector<MemoryCourse> memory_courses(const std::vector<MemoryEvent>& events,
                                         const std::vector<MemorySite>& sites,
                                         std::size_t most_samples) {
  const Blocks blocks(events, sites);
  std::vector<bool> used(256);
  for (const Block& block : blocks.all) used[block.device] = true;
  for (const MemoryEvent& event : events) {
    if (event.kind == Kind::out_of_memory) used[event.device] = true;
  }
  std::vector<MemoryCourse> courses;
  for (int device = 0; device < 256; ++device) {
    if (!used[static_cast<std::size_t>(device)]) continue;
    courses.push_back(course_of(device, events, blocks, most_samples));
  }
  return courses;
}

}  // namespace gapless::simgpu
