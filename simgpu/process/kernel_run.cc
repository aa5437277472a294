#include "simgpu/process/kernel_run.h"

#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "simgpu/abi/runtime_abi.h"
#include "simgpu/process/values.h"

namespace gapless::simgpu {
namespace {

// Of warps: what takes some seconds. A kernel that needs more counts as one of which nothing is
// known, and is not tried again.
constexpr std::uint64_t kMostInstructions = 20'000'000;

// With the lock.
std::set<const ptx::Kernel*>& too_long() {
  static auto* const kernels = new std::set<const ptx::Kernel*>;
  return *kernels;
}

struct ReadsUnknown {};

// Device memory as a kernel sees it, which notes what it learns and where it writes.
class KnownMemory final : public ptx::GlobalMemory {
 public:
  explicit KnownMemory(DeviceMemory& memory) : memory_(memory) {}

  bool read(std::uint64_t address, void* target, std::uint64_t bytes) override {
    if (!is_memory(address, bytes)) return false;
    const Knowledge knowledge = memory_.knowledge(address, bytes);
    if (knowledge == Knowledge::none) throw ReadsUnknown();
    least_ = std::min(least_, knowledge);
    return memory_.read(target, address, bytes);
  }
  bool write(std::uint64_t address, const void* source, std::uint64_t bytes) override {
    if (!is_memory(address, bytes)) return false;
    written_.set(address, bytes, Knowledge::known);
    return memory_.write(address, source, bytes);
  }
  [[nodiscard]] std::string describe(std::uint64_t address) const override {
    const auto span = memory_.find(address);
    if (!span) return "no memory of a device is there";
    return "of " + std::to_string(span->bytes) + " B of memory " +
           std::to_string(address - span->begin) + " B behind their start";
  }

  /// What was written followed from no more than likely numbers, or is not known at all.
  void settle(bool is_known) {
    if (is_known && least_ == Knowledge::known) return;
    written_.each([&](std::uint64_t begin, std::uint64_t end) {
      if (is_known) {
        memory_.weaken(begin, end - begin, least_);
      } else {
        memory_.forget(begin, end - begin);
      }
    });
  }

 private:
  bool is_memory(std::uint64_t address, std::uint64_t bytes) {
    if (address >= span_.begin && address + bytes <= span_.begin + span_.bytes) return true;
    const auto found = memory_.find(address);
    if (!found || address + bytes > found->begin + found->bytes) return false;
    span_ = *found;
    return true;
  }

  DeviceMemory& memory_;
  DeviceMemory::Span span_;
  KnownRanges written_;
  Knowledge least_ = Knowledge::known;
};

// Each sentence once: a kernel is launched again and again.
void tell(const std::string& text) {
  static auto* const told = new std::set<std::string>;
  if (told->size() < 100 && told->insert(text).second) {
    std::fprintf(stderr, "gapless: %s\n", text.c_str());
  }
}

int error_of(const ptx::LaunchResult& result) {
  for (const ptx::Finding& finding : result.findings) {
    if (finding.kind == ptx::Finding::Kind::outside) return abi::illegal_address;
    if (finding.kind == ptx::Finding::Kind::misaligned) return abi::misaligned_address;
    if (finding.kind == ptx::Finding::Kind::trap) return abi::assertion;
    if (finding.kind == ptx::Finding::Kind::stuck) return abi::launch_timeout;
  }
  return abi::success;
}

void run(Process& process, const ptx::Kernel& kernel, const ptx::LaunchSettings& settings,
         const std::vector<unsigned char>& parameters, const std::function<void()>& forgets) {
  KnownMemory memory(process.memory);
  bool is_known = false;
  try {
    const ptx::LaunchResult result = ptx::launch(kernel, settings, parameters, memory);
    for (const ptx::Finding& finding : result.findings) tell(text_of(finding));
    is_known = result.completed;
    if (result.ran_out_of_instructions) {
      too_long().insert(&kernel);
      tell("kernel " + kernel.name + " is not run on the simulated GPU: it takes too long there");
    }
    if (const int error = error_of(result); error != abi::success) process.kernel_error = error;
  } catch (const ReadsUnknown&) {
    is_known = false;
  }
  memory.settle(is_known);
  if (!is_known && forgets) forgets();
}

}  // namespace

void start_variable(DeviceMemory& memory, const ptx::Variable& variable, DeviceAddress address) {
  if (variable.bytes == 0 || memory.knows_any_of(address, variable.bytes)) return;
  std::vector<unsigned char> bytes = variable.initial;
  bytes.resize(variable.bytes);
  memory.write(address, bytes.data(), bytes.size());
}

bool has_shared_memory(const Process& process, const KernelShape& shape) {
  return shape.dynamic_shared_bytes <= process.gpu(Process::current()).shared_per_block_optin_bytes;
}

bool may_have_attribute(const Process& process, int attribute, int value) {
  constexpr int kMostDynamicSharedBytes = 8;
  return attribute != kMostDynamicSharedBytes || value <= 0 ||
         static_cast<std::uint64_t>(value) <=
             process.gpu(Process::current()).shared_per_block_optin_bytes;
}

std::function<void()> kernel_work(Process& process, DeviceCode& code,
                                  const std::string& mangled_name, const KernelShape& shape,
                                  void** arguments) {
  if (simgpu_operator()->operators != 0) return {};
  std::function<void()> forgets = forgets_what_it_writes(
      process.memory, code.only_read(mangled_name), code.parameters(mangled_name), arguments);
  const ptx::Kernel* const kernel = code.kernel(mangled_name);
  if (kernel == nullptr || arguments == nullptr || too_long().count(kernel) != 0) return forgets;
  if (!kernel->error.empty()) {
    tell("kernel " + mangled_name + " is not run on the simulated GPU: " + kernel->error);
    return forgets;
  }
  std::vector<unsigned char> parameters(kernel->parameter_bytes);
  for (std::size_t i = 0; i < kernel->parameters.size(); ++i) {
    const ptx::Parameter& parameter = kernel->parameters[i];
    std::memcpy(parameters.data() + parameter.offset, arguments[i], parameter.bytes);
  }
  ptx::LaunchSettings settings;
  settings.grid = shape.grid;
  settings.block = shape.block;
  settings.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  settings.most_instructions = kMostInstructions;
  return [&process, kernel, settings, parameters, forgets] {
    run(process, *kernel, settings, parameters, forgets);
  };
}

}  // namespace gapless::simgpu
