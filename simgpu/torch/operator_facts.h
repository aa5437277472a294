// What an operator's schema tells: which arguments it reads, which it writes, and what else has to
// be known of it before its numbers are computed on the CPU.
//
//   aten::sum.IntList_out(Tensor self, int[1]? dim, ..., *, Tensor(a!) out) -> Tensor(a!)
//                         reads                             writes only
//   aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)
//                     reads, writes    reads
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "simgpu/torch/index_checks.h"

namespace gapless::simgpu {

struct OperatorFacts {
  enum class Role { other, reads, reads_and_writes, writes };
  struct Argument {
    Role role = Role::other;      // `other`: no tensors
    bool resized = false;         // out=: it gets the result's sizes
    bool chooses = false;         // by its numbers, which others are carried, or where to
    bool tells_infinite = false;  // it stays what it is, for numbers are finite (guesses.h)
  };
  /// How some of its numbers are known where not all are (partly_known.h).
  enum class InPart {
    no,
    places,  // each is made of those that lie in the same place
    carries  // they are those of its arguments in other places, and sums of them
  };
  /// What is done where its numbers cannot be computed.
  enum class Guess {
    none,
    index,      // the places of the largest, or of samples: balanced (guesses.h)
    predicate,  // a comparison: what is likely of unknown numbers
    choice,     // torch.where: what is chosen of known numbers is known
    any,        // whether a flag is set: one is, where as many are taken to be as there can be
    count       // how many flags are set: all but one, in the same case
  };

  std::string name;  // "aten::sum.IntList_out"
  std::string base;  // "aten::sum"
  std::vector<Argument> arguments;
  std::vector<bool> fresh;  // for each result: whether it is memory of its own
  int failures = -1;        // the result that says what could not be factored or solved
  int generator = -1;       // the argument that is one
  int dim = -1;             // "dim"
  int told_size = -1;   // "minlength", "output_size": bins or rows that the program itself tells
  bool writes = false;  // any argument
  bool by_element = false;  // the same with each element of its lists (list_elements.h)
  bool computable = false;  // on the CPU, to the same result
  bool copies = false;      // aten::copy_, which may also copy bytes, or between host and device
  bool reads_back = false;  // aten::_local_scalar_dense
  bool for_ampere = false;  // attention that PyTorch has for compute capability 8.0 and newer
  bool for_ampere_in_bfloat16 = false;
  InPart in_part = InPart::no;
  Guess guess = Guess::none;
  /// The most there can be of what its size follows from.
  enum class Most { numbers, along_dim, unbounded } most = Most::numbers;
  bool one_at_least = false;          // of anything, as there is of what differs
  std::vector<std::size_t> sized_by;  // the arguments whose numbers its result's size follows from
  IndexCheck indices;

  static OperatorFacts of(const c10::OperatorHandle& op);
};

/// Whether the operator neither reads nor writes numbers: views, and memory without contents.
bool has_no_values(const c10::OperatorHandle& op);

}  // namespace gapless::simgpu
