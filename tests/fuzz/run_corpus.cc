// Runs a fuzz target without libFuzzer: over the corpus, then over random changes of it, from a
// fixed seed. So every fuzz target is a test in every build, and a found case stays one.
//
//   pickle_fuzz corpus/pickle more.pickle [rounds]        folders and files
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

// A few random edits: flip, insert, delete, repeat a part.
std::string changed(std::string bytes, std::mt19937_64& random) {
  for (std::uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
    if (bytes.empty()) bytes += static_cast<char>(random());
    const std::size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      case 2:
        bytes.erase(at, 1 + random() % 16);
        break;
      default:
        bytes.insert(at, bytes.substr(at, 1 + random() % 64));
        break;
    }
  }
  return bytes;
}

std::string changed_by_target(std::string bytes, std::mt19937_64& random) {
  bytes.resize(mutator()(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size(), bytes.size(),
                         static_cast<unsigned int>(random())));
  return bytes;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* const text = std::getenv("GAPLESS_FUZZ_ROUNDS");
  int rounds = text != nullptr ? std::atoi(text) : 2000;
  std::vector<std::string> corpus = {""};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.find_first_not_of("0123456789") == std::string::npos) {
      rounds = std::atoi(argv[i]);
    } else if (std::filesystem::is_regular_file(word)) {
      corpus.push_back(bytes_of(word));
    } else {
      for (const auto& entry : std::filesystem::directory_iterator(word)) {
        corpus.push_back(bytes_of(entry.path()));
      }
    }
  }
  for (const std::string& bytes : corpus) run(bytes);
  std::mt19937_64 random(1);
  for (int i = 0; i < rounds; ++i) run(changed(corpus[random() % corpus.size()], random));
  const int by_target = mutator() != nullptr ? rounds : 0;
  for (int i = 0; i < by_target; ++i) {
    run(changed_by_target(corpus[1 + random() % (corpus.size() - 1)], random));
  }
  std::string noise;
  for (int i = 0; i < rounds; ++i) {
    noise.resize(random() % 400);
    for (char& c : noise) c = static_cast<char>(random());
    run(noise);
  }
  std::printf("%zu inputs of the corpus and %d others\n", corpus.size(), 2 * rounds + by_target);
  return 0;
}
