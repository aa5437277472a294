#include "allocator/check/requested_checks.h"

#include <charconv>

#include "allocator/base/bytes.h"
#include "allocator/check/nvtx.h"

namespace gapless {
namespace {

constexpr char kJoint = '+';

// Calls take(word) for each word of "one+two"; false where it said so.
template <class Take>
bool each_word(std::string_view text, const Take& take) {
  for (;;) {
    const std::size_t joint = text.find(kJoint);
    if (!take(text.substr(0, joint))) return false;
    if (joint == std::string_view::npos) return true;
    text.remove_prefix(joint + 1);
  }
}

bool read_rate(std::string_view word, std::uint64_t& one_of) {
  if (!word.starts_with("1/")) return false;
  word.remove_prefix(2);
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, one_of);
  return error == std::errc{} && stop == end && one_of != 0;
}

// "4MiB-1GiB".
bool read_sizes(std::string_view word, FencedRequests& requests) {
  const std::size_t dash = word.find('-');
  if (dash == std::string_view::npos) return false;
  std::string cause;
  const auto from = read_bytes(word.substr(0, dash), cause);
  const auto to = read_bytes(word.substr(dash + 1), cause);
  if (!from || !to || *from > *to) return false;
  requests.from_bytes = *from;
  requests.to_bytes = *to;
  return true;
}

// "train.py:42": a name, and a number behind the last colon.
bool is_call_site(std::string_view word) {
  const std::size_t colon = word.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == word.size()) return false;
  return word.substr(colon + 1).find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string text_of(const RequestedChecks& checks) {
  std::string text;
  const auto add = [&](bool wanted, const char* word) {
    if (wanted) text += (text.empty() ? "" : "+") + std::string(word);
  };
  add(checks.poison, "poison");
  add(checks.redzones, "redzones");
  add(checks.fence, "fence");
  add(checks.nvtx, "nvtx");
  return text.empty() ? "none" : text;
}

bool read_checks(std::string_view text, RequestedChecks& checks, std::string& cause) {
  RequestedChecks found;
  const bool good = each_word(text, [&](std::string_view word) {
    found.poison |= word == "poison";
    found.redzones |= word == "redzones";
    found.fence |= word == "fence";
    found.nvtx |= word == "nvtx";
    return word == "poison" || word == "redzones" || word == "fence" || word == "nvtx" ||
           word == "none";
  });
  if (!good) {
    cause = "expected poison, redzones, fence, nvtx, or several joined by +, or none";
    return false;
  }
  if (found.nvtx && !nvtx::is_built()) {
    cause = "gapless was built without NVTX: its header nvtx3/nvToolsExtMem.h was not found";
    return false;
  }
  checks = found;
  return true;
}

std::string text_of(const FencedRequests& requests) {
  if (requests.one_of == 0) return "none";
  std::string text = "1/" + std::to_string(requests.one_of);
  if (requests.from_bytes != 0 || requests.to_bytes != UINT64_MAX) {
    text +=
        "+" + std::to_string(requests.from_bytes) + "B-" + std::to_string(requests.to_bytes) + "B";
  }
  if (!requests.call_site.empty()) text += "+" + requests.call_site;
  return text;
}

bool read_fenced(std::string_view text, FencedRequests& requests, std::string& cause) {
  FencedRequests found;
  if (text == "none") {
    requests = found;
    return true;
  }
  found.one_of = 1;
  const bool good = each_word(text, [&](std::string_view word) {
    if (read_rate(word, found.one_of) || read_sizes(word, found)) return true;
    if (!is_call_site(word)) return false;
    found.call_site = word;
    return true;
  });
  if (!good) {
    cause = "expected 1/1000, 4MiB-1GiB, train.py:42, or several joined by +, or none";
    return false;
  }
  requests = found;
  return true;
}

}  // namespace gapless
