// PickleWriter: plain data as a Python pickle of protocol 4, opcode by opcode.
//
//   dict, "a", integer 1, end   ->   } ( 'a' 1 u        {"a": 1}
//
// What stands in a file many times is written once, kept under a number, and named by it. Lists and
// dicts are filled a thousand elements at a time, as Python does: readers put as many on their
// stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gapless {

class PickleWriter {
 public:
  PickleWriter();

  void begin_list() { begin("]("); }
  /// Keys and values in turn follow.
  void begin_dict() { begin("}("); }
  void end();

  void text(std::string_view value);
  void integer(std::uint64_t value);
  void flag(bool value);
  void pair(std::int64_t first, std::int64_t second);
  /// A text that comes again: written once.
  void shared_text(std::string_view value);

  /// Keeps the value that was just written under the number that is returned.
  std::uint32_t keep();
  void kept(std::uint32_t number);

  /// The pickle, which is whole once all lists and dicts have their end.
  std::string take();

 private:
  struct Open {
    bool is_dict = false;
    std::uint32_t values = 0;  // since the last were put in
  };

  void begin(std::string_view opcodes);
  void before_value();
  void signed_integer(std::int64_t value);
  void number(std::uint64_t value, int bytes);

  std::string out_;
  std::vector<Open> open_;
  std::unordered_map<std::string, std::uint32_t> shared_;
  std::uint32_t kept_ = 0;
};

}  // namespace gapless
