// nvidia-smi: what scripts ask of it, told of simulated GPUs. It stands first in the PATH of a
// program that runs on them.
//
//   nvidia-smi                                                      a table
//   nvidia-smi -L                                                   GPU 0: Tesla T4 (UUID: GPU-...)
//   nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits [-i 0,1]     0, 424
//   nvidia-smi -q -d MEMORY                                         Free                : 14669 MiB
//
// It is a process of its own, so what is used is what the others of the program have.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
struct nvml_memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct nvml_utilization {
  unsigned gpu;
  unsigned memory;
};
int nvmlInit_v2();
int nvmlDeviceGetCount_v2(unsigned* count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle);
int nvmlDeviceGetName(const void* handle, char* name, unsigned length);
int nvmlDeviceGetUUID(const void* handle, char* text, unsigned length);
int nvmlDeviceGetMemoryInfo(const void* handle, nvml_memory* memory);
int nvmlDeviceGetCudaComputeCapability(const void* handle, int* major, int* minor);
int nvmlDeviceGetUtilizationRates(const void* handle, nvml_utilization* percent);
int nvmlDeviceGetTemperature(const void* handle, int sensor, unsigned* celsius);
int nvmlDeviceGetPowerUsage(const void* handle, unsigned* milliwatts);
int nvmlSystemGetDriverVersion(char* text, unsigned length);
}

namespace {

constexpr int kBadInput = 2;  // as nvidia-smi itself ends
constexpr int kNotFound = 6;
constexpr unsigned long long kMebibyte = 1 << 20;

struct Value {
  std::string text;
  const char* unit = "";
};

struct Gpu {
  unsigned index = 0;
  std::string name;
  std::string uuid;
  nvml_memory memory{};
  nvml_utilization percent{};
  unsigned celsius = 0;
  unsigned milliwatts = 0;
  int major = 0;
  int minor = 0;
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    words.push_back(word);
  }
  return words;
}

std::vector<Gpu> installed() {
  unsigned count = 0;
  nvmlInit_v2();
  nvmlDeviceGetCount_v2(&count);
  std::vector<Gpu> gpus(count);
  for (unsigned i = 0; i < count; ++i) {
    void* handle = nullptr;
    char text[96] = {};
    nvmlDeviceGetHandleByIndex_v2(i, &handle);
    gpus[i].index = i;
    nvmlDeviceGetName(handle, text, sizeof text);
    gpus[i].name = text;
    nvmlDeviceGetUUID(handle, text, sizeof text);
    gpus[i].uuid = text;
    nvmlDeviceGetMemoryInfo(handle, &gpus[i].memory);
    nvmlDeviceGetUtilizationRates(handle, &gpus[i].percent);
    nvmlDeviceGetTemperature(handle, 0, &gpus[i].celsius);
    nvmlDeviceGetPowerUsage(handle, &gpus[i].milliwatts);
    nvmlDeviceGetCudaComputeCapability(handle, &gpus[i].major, &gpus[i].minor);
  }
  return gpus;
}

std::string driver_version() {
  char text[96] = {};
  nvmlSystemGetDriverVersion(text, sizeof text);
  return text;
}

// What no simulated GPU has is "[N/A]", as where a card lacks it.
std::optional<Value> value_of(const Gpu& gpu, std::size_t count, const std::string& field) {
  const auto mebibytes = [](unsigned long long bytes) {
    return Value{std::to_string(bytes / kMebibyte), " MiB"};
  };
  if (field == "index") return Value{std::to_string(gpu.index)};
  if (field == "count") return Value{std::to_string(count)};
  if (field == "name" || field == "gpu_name") return Value{gpu.name};
  if (field == "uuid" || field == "gpu_uuid") return Value{gpu.uuid};
  if (field == "memory.total") return mebibytes(gpu.memory.total);
  if (field == "memory.used") return mebibytes(gpu.memory.used);
  if (field == "memory.free") return mebibytes(gpu.memory.free);
  if (field == "memory.reserved") return mebibytes(0);
  if (field == "utilization.gpu") return Value{std::to_string(gpu.percent.gpu), " %"};
  if (field == "utilization.memory") return Value{std::to_string(gpu.percent.memory), " %"};
  if (field == "temperature.gpu") return Value{std::to_string(gpu.celsius)};
  if (field == "power.draw") return Value{std::to_string(gpu.milliwatts / 1000) + ".00", " W"};
  if (field == "driver_version") return Value{driver_version()};
  if (field == "compute_cap") {
    return Value{std::to_string(gpu.major) + "." + std::to_string(gpu.minor)};
  }
  if (field == "display_active" || field == "display_mode") return Value{"Disabled"};
  for (const char* const known : {"power.limit",
                                  "power.max_limit",
                                  "enforced.power.limit",
                                  "fan.speed",
                                  "pstate",
                                  "serial",
                                  "gpu_serial",
                                  "vbios_version",
                                  "timestamp",
                                  "persistence_mode",
                                  "mig.mode.current",
                                  "clocks.sm",
                                  "clocks.mem",
                                  "clocks.gr",
                                  "clocks.max.sm",
                                  "pcie.link.gen.current",
                                  "temperature.memory",
                                  "ecc.mode.current",
                                  "compute_mode",
                                  "accounting.mode"}) {
    if (field == known) return Value{"[N/A]"};
  }
  return {};
}

struct CsvFormat {
  bool header = true;
  bool units = true;
};

// Nothing, with what is wrong printed, where it asks for anything else.
std::optional<CsvFormat> read_format(const std::string& format) {
  CsvFormat read;
  bool is_csv = false;
  for (const std::string& word : words_of(format)) {
    if (word == "csv") is_csv = true;
    if (word == "noheader") read.header = false;
    if (word == "nounits") read.units = false;
  }
  if (is_csv) return read;
  std::puts("\"--format=\" switch is missing. A query is answered with --format=csv.");
  return {};
}

int not_a_field(const std::string& name) {
  std::printf("Field \"%s\" is not a valid field to query.\n", name.c_str());
  return kBadInput;
}

// Whose memory it is, no process of a container is told either: no more than the names of columns.
int query_processes(const std::string& fields, const std::string& format) {
  static const std::map<std::string, std::string> kNames = {{"timestamp", "timestamp"},
                                                            {"gpu_name", "gpu_name"},
                                                            {"gpu_bus_id", "gpu_bus_id"},
                                                            {"gpu_serial", "gpu_serial"},
                                                            {"gpu_uuid", "gpu_uuid"},
                                                            {"pid", "pid"},
                                                            {"process_name", "process_name"},
                                                            {"name", "process_name"},
                                                            {"used_gpu_memory", "used_gpu_memory"},
                                                            {"used_memory", "used_gpu_memory"}};
  const auto csv = read_format(format);
  if (!csv) return kBadInput;
  std::string header;
  for (const std::string& field : words_of(fields)) {
    const auto found = kNames.find(field);
    if (found == kNames.end()) return not_a_field(field);
    header += (header.empty() ? "" : ", ") + found->second;
    if (csv->units && found->second == "used_gpu_memory") header += " [MiB]";
  }
  if (csv->header) std::puts(header.c_str());
  return 0;
}

int query(const std::vector<Gpu>& gpus, std::size_t count, const std::string& fields,
          const std::string& format) {
  const auto csv = read_format(format);
  if (!csv) return kBadInput;
  const auto [header, units] = *csv;
  std::string text;
  const auto add = [&text](const std::string& word, bool first) {
    text += (first ? "" : ", ") + word;
  };
  const std::vector<std::string> names = words_of(fields);
  for (std::size_t i = 0; header && i < names.size(); ++i) {
    const auto value = gpus.empty() ? std::nullopt : value_of(gpus[0], count, names[i]);
    const bool has_unit = units && value && value->unit[0] != '\0';
    add(names[i] + (has_unit ? std::string(" [") + (value->unit + 1) + "]" : ""), i == 0);
  }
  if (header) text += "\n";
  for (const Gpu& gpu : gpus) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto value = value_of(gpu, count, names[i]);
      if (!value) return not_a_field(names[i]);
      add(value->text + (units ? value->unit : ""), i == 0);
    }
    text += "\n";
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

void table(const std::vector<Gpu>& gpus) {
  constexpr const char* kLine =
      "+-----------------------------------------------------------------------------+";
  std::printf("%s\n| NVIDIA-SMI of gapless: simulated GPUs%40s|\n%s\n", kLine, "", kLine);
  for (const Gpu& gpu : gpus) {
    const std::string used = std::to_string(gpu.memory.used / kMebibyte) + "MiB / " +
                             std::to_string(gpu.memory.total / kMebibyte) + "MiB";
    std::printf("| %3u  %-36.36s | %21s | %5s  |\n", gpu.index, gpu.name.c_str(), used.c_str(),
                (std::to_string(gpu.percent.gpu) + "%").c_str());
  }
  std::printf("%s\n", kLine);
}

// The sections of -q that tell of memory and of how busy a GPU is; those of which simulated GPUs
// have nothing are left out. Drivers since 510 have the line "Reserved", and so has this: a script
// that looks for what is free within four lines of a GPU finds it with neither.
void show_log(const std::vector<Gpu>& gpus, const std::string& sections) {
  const auto wants = [&](const char* section) {
    std::string wanted = sections;
    for (char& c : wanted) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const std::vector<std::string> words = words_of(wanted);
    return words.empty() || std::count(words.begin(), words.end(), section) != 0;
  };
  const auto line = [](int indent, const char* name, const std::string& value) {
    std::printf("%*s%-*s : %s\n", indent, "", 41 - indent, name, value.c_str());
  };
  const auto mebibytes = [](unsigned long long bytes) {
    return std::to_string(bytes / kMebibyte) + " MiB";
  };
  std::puts("\n==============NVSMI LOG==============\n");
  line(0, "Driver Version", driver_version());
  std::puts("");
  line(0, "Attached GPUs", std::to_string(gpus.size()));
  for (const Gpu& gpu : gpus) {
    std::printf("GPU 00000000:%02X:00.0\n", gpu.index + 1);
    if (sections.empty()) {
      line(4, "Product Name", gpu.name);
      line(4, "GPU UUID", gpu.uuid);
    }
    if (wants("MEMORY")) {
      std::puts("    FB Memory Usage");
      line(8, "Total", mebibytes(gpu.memory.total));
      line(8, "Reserved", mebibytes(0));
      line(8, "Used", mebibytes(gpu.memory.used));
      line(8, "Free", mebibytes(gpu.memory.free));
    }
    if (wants("UTILIZATION")) {
      std::puts("    Utilization");
      line(8, "GPU", std::to_string(gpu.percent.gpu) + " %");
      line(8, "Memory", std::to_string(gpu.percent.memory) + " %");
    }
  }
  std::puts("");
}

constexpr const char* kHelp =
    "nvidia-smi of gapless: simulated GPUs\n\n"
    "  nvidia-smi [-i IDS]                     a table\n"
    "  nvidia-smi -L [-i IDS]                  names and UUIDs\n"
    "  nvidia-smi -q [-d MEMORY,UTILIZATION] [-i IDS]\n"
    "  nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits] [-i IDS]\n"
    "  nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader]  no process is told";

}  // namespace

int main(int count, char** words) {
  std::map<std::string, std::string> options;
  std::string strange;  // the first word that nothing is known of
  for (int i = 1; i < count; ++i) {
    std::string word = words[i];
    std::string value;
    if (const std::size_t at = word.find('='); at != word.npos) {
      value = word.substr(at + 1);
      word.resize(at);
    } else if ((word == "-i" || word == "--id" || word == "--format" || word == "--query-gpu" ||
                word == "--query-compute-apps" || word == "-d" || word == "--display") &&
               i + 1 < count) {
      value = words[++i];
    }
    static const std::map<std::string, std::string> kShort = {{"--id", "-i"},
                                                              {"--list-gpus", "-L"},
                                                              {"--query", "-q"},
                                                              {"--display", "-d"},
                                                              {"--help", "-h"}};
    const auto known = kShort.find(word);
    const std::string option = known == kShort.end() ? word : known->second;
    options[option] = value;
    static const std::set<std::string> kAnswered = {
        "-i", "-L", "-q", "-d", "-h", "--format", "--query-gpu", "--query-compute-apps"};
    if (strange.empty() && !kAnswered.contains(option)) strange = word;
  }
  if (options.count("-h") != 0) {
    std::puts(kHelp);
    return 0;
  }
  const std::vector<Gpu> all = installed();
  std::vector<Gpu> gpus = all;
  if (const auto ids = options.extract("-i"); !ids.empty()) {
    const std::vector<std::string> wanted = words_of(ids.mapped());
    std::erase_if(gpus, [&wanted](const Gpu& gpu) {
      return std::count(wanted.begin(), wanted.end(), std::to_string(gpu.index)) == 0 &&
             std::count(wanted.begin(), wanted.end(), gpu.uuid) == 0;
    });
    if (gpus.empty()) {
      std::puts("No devices were found");
      return kNotFound;
    }
  }
  if (options.count("--query-gpu") != 0) {
    return query(gpus, all.size(), options["--query-gpu"], options["--format"]);
  }
  if (options.count("--query-compute-apps") != 0) {
    return query_processes(options["--query-compute-apps"], options["--format"]);
  }
  if (options.count("-L") != 0) {
    for (const Gpu& gpu : gpus) {
      std::printf("GPU %u: %s (UUID: %s)\n", gpu.index, gpu.name.c_str(), gpu.uuid.c_str());
    }
    return 0;
  }
  if (options.count("-q") != 0 && strange.empty()) {
    show_log(gpus, options["-d"]);
    return 0;
  }
  if (!options.empty()) {
    std::printf("Invalid combination of input arguments: simulated GPUs know no %s.\n%s\n",
                strange.empty() ? options.begin()->first.c_str() : strange.c_str(), kHelp);
    return kBadInput;
  }
  table(gpus);
  return 0;
}
