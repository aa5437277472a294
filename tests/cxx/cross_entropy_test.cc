// The loss kernels, run as PTX on the simulated GPU, against the formula of their header in
// float64: over types, shapes, strides and options; and what other implementations got wrong.
#include "kernels/cross_entropy.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cxx/on_device.h"

namespace {

using testing::Each;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr int kType = GAPLESS_FLOAT32;
template <>
constexpr int kType<__half> = GAPLESS_FLOAT16;
template <>
constexpr int kType<__nv_bfloat16> = GAPLESS_BFLOAT16;

// Half the distance to the next number of the type, relative.
template <class T>
constexpr double kRounding = 6e-8;
template <>
constexpr double kRounding<__half> = 4.9e-4;
template <>
constexpr double kRounding<__nv_bfloat16> = 3.9e-3;

struct Case {
  std::int64_t rows = 3;
  std::int64_t classes = 100;
  std::int64_t gap = 0;  // elements between rows
  std::int64_t class_stride = 1;
  std::int64_t start = 0;  // elements before the first row
  double spread = 4;       // of the logits
  double offset = 0;
  float label_smoothing = 0;
  float z_loss = 0;
  float soft_cap = 0;
  bool has_weights = false;
  bool in_place = false;
  bool divides = false;
};

struct Expected {
  std::vector<double> losses;
  std::vector<double> weights;
  std::vector<std::vector<double>> gradients;
  std::vector<std::vector<double>> terms;  // the sum of what a gradient is the difference of
};

constexpr std::int64_t kIgnored = -100;

// The formula of cross_entropy.h.
Expected reference(const Case& of, const std::vector<std::vector<double>>& logits,
                   const std::vector<std::int64_t>& labels, const std::vector<float>& weights,
                   const std::vector<float>& outer, double divisor) {
  Expected made;
  double all = 0;
  for (const float weight : weights) all += weight;
  const auto count = static_cast<double>(weights.size());
  for (std::size_t row = 0; row < logits.size(); ++row) {
    std::vector<double> x = logits[row];
    if (of.soft_cap != 0) {
      for (double& value : x) value = of.soft_cap * std::tanh(value / of.soft_cap);
    }
    std::vector<double> gradient(x.size());
    std::vector<double> terms(x.size());
    if (labels[row] == kIgnored) {
      made.losses.push_back(0);
      made.weights.push_back(0);
      made.gradients.push_back(gradient);
      made.terms.push_back(terms);
      continue;
    }
    const auto label = static_cast<std::size_t>(labels[row]);
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double value : x) sum += std::exp(value - largest);
    const double lse = largest + std::log(sum);
    const double weight = weights[label];
    const double smoothing = of.label_smoothing;
    double loss = (1 - smoothing) * weight * (lse - x[label]) + of.z_loss * lse * lse;
    for (std::size_t c = 0; c < x.size(); ++c) {
      if (smoothing != 0) loss += smoothing / count * weights[c] * (lse - x[c]);
    }
    for (std::size_t c = 0; c < x.size(); ++c) {
      double others = 0;  // 1 - p, or p
      if (c == label) {
        for (std::size_t d = 0; d < x.size(); ++d) {
          if (d != label) others += std::exp(x[d] - lse);
        }
      }
      const double p = std::exp(x[c] - lse);
      const double for_all = smoothing / count * all + 2 * of.z_loss * lse;
      gradient[c] = p * for_all - smoothing / count * weights[c];
      terms[c] = (std::abs(p * for_all) + smoothing / count * weights[c]) * outer[row] / divisor;
      gradient[c] += c == label ? -(1 - smoothing) * weight * others : (1 - smoothing) * weight * p;
      if (of.soft_cap != 0) gradient[c] *= 1 - std::pow(x[c] / of.soft_cap, 2);
      gradient[c] *= outer[row] / divisor;
    }
    made.losses.push_back(loss);
    made.weights.push_back(weight);
    made.gradients.push_back(gradient);
    made.terms.push_back(terms);
  }
  return made;
}

template <class T>
struct Rows {
  explicit Rows(const Case& given)
      : of(given), row_stride((given.classes - 1) * given.class_stride + 1 + given.gap), random(7) {
    std::normal_distribution<double> normal;
    std::vector<T> flat(static_cast<std::size_t>(of.start + of.rows * row_stride),
                        static_cast<T>(77.0F));
    for (std::int64_t row = 0; row < of.rows; ++row) {
      logits.emplace_back();
      for (std::int64_t c = 0; c < of.classes; ++c) {
        T& place =
            flat[static_cast<std::size_t>(of.start + row * row_stride + c * of.class_stride)];
        place = static_cast<T>(static_cast<float>(of.offset + of.spread * normal(random)));
        logits.back().push_back(static_cast<double>(static_cast<float>(place)));
      }
      const bool is_ignored = row % 4 == 1;
      labels.push_back(is_ignored ? kIgnored
                                  : static_cast<std::int64_t>(
                                        random() % static_cast<std::uint64_t>(of.classes)));
      outer.push_back(of.divides ? 0.25F * static_cast<float>(row + 1) : 1.0F);
    }
    weights.assign(static_cast<std::size_t>(of.classes), 1);
    float all = 0;
    for (float& weight : weights) {
      if (of.has_weights) weight = 0.5F + static_cast<float>(random() % 8) / 4;
      all += weight;
    }
    given_logits = std::make_unique<OnDevice<T>>(flat);
    given_labels = std::make_unique<OnDevice<std::int64_t>>(labels);
    given_weights = std::make_unique<OnDevice<float>>(weights);
    given_outer = std::make_unique<OnDevice<float>>(outer);
    numbers_ = std::make_unique<OnDevice<float>>(std::vector<float>{all, of.divides ? 3.0F : 1.0F});
    const auto rows = static_cast<std::size_t>(of.rows);
    results = std::make_unique<OnDevice<float>>(6 * rows);
    gradients = std::make_unique<OnDevice<T>>(
        of.in_place ? 0 : rows * static_cast<std::size_t>(of.classes));

    options.type = kType<T>;
    options.rows = of.rows;
    options.classes = of.classes;
    options.logits = given_logits->data() + of.start;
    options.row_stride = row_stride;
    options.class_stride = of.class_stride;
    options.labels = given_labels->data();
    options.label_stride = 1;
    options.ignore_index = kIgnored;
    if (of.has_weights) {
      options.class_weights = given_weights->data();
      options.class_weight_sum = numbers_->data();
    }
    options.label_smoothing = of.label_smoothing;
    options.z_loss = of.z_loss;
    options.soft_cap = of.soft_cap;
    float* result = results->data();
    for (float** place : {&options.largest, &options.others, &options.label_logit,
                          &options.weighted, &options.losses, &options.row_weights}) {
      *place = result;
      result += of.rows;
    }
    if (of.divides) {
      options.loss_gradients = given_outer->data();
      options.loss_gradient_stride = 1;
      options.divisor = numbers_->data() + 1;
    }
    options.gradients = of.in_place ? given_logits->data() + of.start : gradients->data();
    options.gradient_row_stride = of.in_place ? row_stride : of.classes;
    options.gradient_class_stride = of.in_place ? of.class_stride : 1;
  }

  [[nodiscard]] std::vector<float> result(int which) const {
    const std::vector<float> all = results->values();
    return {all.begin() + which * of.rows, all.begin() + (which + 1) * of.rows};
  }
  [[nodiscard]] std::vector<float> losses() const { return result(4); }
  [[nodiscard]] std::vector<std::vector<double>> found_gradients() const {
    const std::vector<T> flat = of.in_place ? given_logits->values() : gradients->values();
    std::vector<std::vector<double>> found;
    for (std::int64_t row = 0; row < of.rows; ++row) {
      found.emplace_back();
      for (std::int64_t c = 0; c < of.classes; ++c) {
        const std::int64_t at = (of.in_place ? of.start : 0) + row * options.gradient_row_stride +
                                c * options.gradient_class_stride;
        found.back().push_back(static_cast<float>(flat[static_cast<std::size_t>(at)]));
      }
    }
    return found;
  }

  Case of;
  std::int64_t row_stride;
  std::mt19937_64 random;
  std::vector<std::vector<double>> logits;
  std::vector<std::int64_t> labels;
  std::vector<float> weights;
  std::vector<float> outer;
  std::unique_ptr<OnDevice<T>> given_logits;
  std::unique_ptr<OnDevice<std::int64_t>> given_labels;
  std::unique_ptr<OnDevice<float>> given_weights, given_outer;
  std::unique_ptr<OnDevice<float>> results;
  std::unique_ptr<OnDevice<T>> gradients;
  gapless_cross_entropy options = GAPLESS_CROSS_ENTROPY_INIT;

 private:
  std::unique_ptr<OnDevice<float>> numbers_;
};

void succeed(int error) {
  ASSERT_EQ(error, 0) << gapless_kernels_last_error();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

template <class T>
void compare(const Rows<T>& rows, const std::string& how) {
  const Case& of = rows.of;
  const Expected expected =
      reference(of, rows.logits, rows.labels, rows.weights, rows.outer, of.divides ? 3.0 : 1.0);
  const std::vector<float> losses = rows.losses();
  const std::vector<float> weights = rows.result(5);
  const auto gradients = rows.found_gradients();
  for (std::size_t row = 0; row < rows.logits.size(); ++row) {
    EXPECT_NEAR(losses[row], expected.losses[row],
                3e-6 * std::max(1.0, std::abs(expected.losses[row]) + std::abs(of.offset) / 8))
        << how << ", row " << row;
    EXPECT_EQ(weights[row], static_cast<float>(expected.weights[row])) << how << ", row " << row;
    for (std::size_t c = 0; c < gradients[row].size(); ++c) {
      const double wanted = expected.gradients[row][c];
      // A number so small has fewer digits in half precision.
      const double least = kType<T> == GAPLESS_FLOAT16 ? 3e-8 : 1e-12;
      ASSERT_NEAR(gradients[row][c], wanted,
                  std::abs(wanted) * (kRounding<T> + 1e-5) + 1e-6 * expected.terms[row][c] + least)
          << how << ", row " << row << ", class " << c << ", label " << rows.labels[row];
    }
  }
}

template <class T>
void try_both_ways(const Case& of, const std::string& name) {
  {
    Rows<T> rows(of);
    succeed(gapless_cross_entropy_forward(&rows.options, nullptr));
    succeed(gapless_cross_entropy_losses(&rows.options, nullptr));
    succeed(gapless_cross_entropy_backward(&rows.options, nullptr));
    compare(rows, name + ", one after the other");
  }
  Rows<T> rows(of);
  succeed(gapless_cross_entropy_both(&rows.options, nullptr));
  compare(rows, name + ", in one");
}

struct Shape {
  std::int64_t rows, classes, row_stride;
};

// In one pass, the gradient over the logits; results: five for each row, of which the losses are
// the fourth.
template <class T>
gapless_cross_entropy over_the_logits(T* logits, const Shape& shape,
                                      const OnDevice<std::int64_t>& labels,
                                      const OnDevice<float>& results) {
  gapless_cross_entropy made = GAPLESS_CROSS_ENTROPY_INIT;
  made.type = kType<T>;
  made.rows = shape.rows;
  made.classes = shape.classes;
  made.logits = made.gradients = logits;
  made.row_stride = made.gradient_row_stride = shape.row_stride;
  made.class_stride = made.gradient_class_stride = 1;
  made.labels = labels.data();
  made.label_stride = 1;
  made.ignore_index = kIgnored;
  float* result = results.data();
  for (float** place :
       {&made.largest, &made.others, &made.label_logit, &made.losses, &made.row_weights}) {
    *place = result;
    result += shape.rows;
  }
  return made;
}

template <class T>
class CrossEntropy : public ::testing::Test {};
using Types = ::testing::Types<float, __half, __nv_bfloat16>;
TYPED_TEST_SUITE(CrossEntropy, Types);

TYPED_TEST(CrossEntropy, OfAnyShapeAndStride) {
  for (const std::int64_t classes : {1, 2, 7, 8, 31, 512, 4096 + 5, 9001}) {
    for (const std::int64_t gap : {0, 3}) {
      Case of;
      of.classes = classes;
      of.gap = gap;
      of.start = gap;
      of.in_place = classes % 2 == 0;
      try_both_ways<TypeParam>(of,
                               std::to_string(classes) + " classes, gap " + std::to_string(gap));
    }
  }
  Case of;
  of.class_stride = 3;
  try_both_ways<TypeParam>(of, "classes 3 elements apart");
  of.rows = 70;
  of.classes = 5;
  try_both_ways<TypeParam>(of, "many rows");
}

TYPED_TEST(CrossEntropy, WithEveryOption) {
  for (int which = 0; which < 32; ++which) {
    Case of;
    of.rows = 2;
    of.classes = 333;
    of.has_weights = (which & 1) != 0;
    of.label_smoothing = (which & 2) != 0 ? 0.1F : 0;
    of.z_loss = (which & 4) != 0 ? 1e-3F : 0;
    of.soft_cap = (which & 8) != 0 ? 5.0F : 0;
    of.divides = (which & 16) != 0;
    of.in_place = which % 3 == 0;
    try_both_ways<TypeParam>(of, "options " + std::to_string(which));
  }
}

// What is exact in a large offset has the gradient of what has none.
TYPED_TEST(CrossEntropy, WithALargeOffset) {
  Case of;
  of.offset = kType<TypeParam> == GAPLESS_FLOAT16 ? 3000 : 8192;
  of.spread = 40;
  try_both_ways<TypeParam>(of, "offset");
  of.offset = -of.offset;
  try_both_ways<TypeParam>(of, "offset below zero");
}

TYPED_TEST(CrossEntropy, OfALabelThatIsAllButCertain) {
  // p = 0.999: log(0.999 / (0.001 / 999)) above the others.
  constexpr std::int64_t kClasses = 1000;
  std::vector<TypeParam> row(kClasses, static_cast<TypeParam>(0.0F));
  row[17] = static_cast<TypeParam>(13.8F);
  const OnDevice<TypeParam> logits(row);
  const OnDevice<std::int64_t> labels(std::vector<std::int64_t>{17});
  const OnDevice<float> results(6);
  const gapless_cross_entropy options =
      over_the_logits(logits.data(), {1, kClasses, kClasses}, labels, results);
  succeed(gapless_cross_entropy_both(&options, nullptr));
  const double ratio = (kClasses - 1) * std::exp(-static_cast<double>(static_cast<float>(row[17])));
  const double others = ratio / (1 + ratio);
  const double found = static_cast<float>(logits.values()[17]);
  EXPECT_NEAR(found, -others, others * (kRounding<TypeParam> + 1e-4));
  EXPECT_NEAR(results.values()[3], std::log1p(ratio), 1e-4 * others);
}

TYPED_TEST(CrossEntropy, OfInfinitiesAndNaN) {
  const auto losses_of = [](std::vector<float> values, std::int64_t label) {
    std::vector<TypeParam> row;
    for (const float value : values) row.push_back(static_cast<TypeParam>(value));
    const OnDevice<TypeParam> logits(row);
    const OnDevice<std::int64_t> labels(std::vector<std::int64_t>{label});
    const OnDevice<float> results(6);
    const auto classes = static_cast<std::int64_t>(row.size());
    const gapless_cross_entropy options =
        over_the_logits(logits.data(), {1, classes, classes}, labels, results);
    succeed(gapless_cross_entropy_both(&options, nullptr));
    std::vector<float> found{results.values()[3]};
    for (const TypeParam value : logits.values()) found.push_back(static_cast<float>(value));
    return found;
  };
  const auto is_nan = testing::Truly([](float value) { return std::isnan(value); });
  constexpr auto kInf = std::numeric_limits<float>::infinity();
  // As torch has it: of classes that are not to be chosen the gradient is 0.
  const std::vector<float> masked = losses_of({-kInf, 1, 1, -kInf}, 1);
  EXPECT_NEAR(masked[0], std::log(2), 1e-6);
  EXPECT_EQ(std::vector<float>(masked.begin() + 1, masked.end()),
            (std::vector<float>{0, -0.5F, 0.5F, 0}));
  EXPECT_EQ(losses_of({-kInf, 1, 1}, 0)[0], kInf);
  EXPECT_THAT(losses_of({-kInf, -kInf}, 0), Each(is_nan));
  EXPECT_THAT(losses_of({kInf, 1}, 1), Each(is_nan));
  EXPECT_THAT(losses_of({kInf, 1}, 0), Each(is_nan));
  EXPECT_THAT(losses_of({NAN, 1, 2}, 1), Each(is_nan));
  EXPECT_THAT(losses_of({-kInf, NAN, -kInf}, 0), Each(is_nan));
  EXPECT_THAT(losses_of({NAN, kInf}, kIgnored), Each(0.0F));
  const float most = kType<TypeParam> == GAPLESS_FLOAT16 ? 65504 : 3e38F;
  EXPECT_EQ(losses_of({most, -most / 2, 0}, 0), (std::vector<float>{0, 0, 0, 0}));
}

TYPED_TEST(CrossEntropy, OfAVocabularyInShards) {
  Case of;
  of.rows = 6;
  of.classes = 500;
  of.has_weights = true;
  of.label_smoothing = 0.1F;
  of.z_loss = 1e-3F;
  of.soft_cap = 8;
  Rows<TypeParam> rows(of);
  struct Shard {
    std::int64_t first, classes;
  };
  const std::vector<Shard> shards{{0, 200}, {200, 0}, {200, 37}, {237, 263}};
  std::vector<std::vector<float>> parts;
  const auto part_of = [&](const Shard& shard) {
    gapless_cross_entropy part = rows.options;
    part.first_class = shard.first;
    part.classes = shard.classes;
    part.total_classes = of.classes;
    part.logits = rows.given_logits->data() + shard.first;
    return part;
  };
  for (const Shard& shard : shards) {
    const gapless_cross_entropy part = part_of(shard);
    succeed(gapless_cross_entropy_forward(&part, nullptr));
    parts.push_back(rows.results->values());
  }
  EXPECT_THAT(std::vector<float>(parts[1].begin(), parts[1].begin() + 6), Each(-kInfinity));
  std::vector<float> gathered;
  for (const auto& part : parts) gathered.insert(gathered.end(), part.begin(), part.begin() + 24);
  const OnDevice<float> all(gathered);
  succeed(gapless_cross_entropy_combine(&rows.options, all.data(), 4, 24, nullptr));
  for (const Shard& shard : shards) {
    gapless_cross_entropy part = part_of(shard);
    part.gradients = rows.gradients->data() + shard.first;
    succeed(gapless_cross_entropy_losses(&part, nullptr));
    succeed(gapless_cross_entropy_backward(&part, nullptr));
    EXPECT_NE(gapless_cross_entropy_both(&part, nullptr), 0);
    EXPECT_THAT(gapless_kernels_last_error(), HasSubstr("shard"));
  }
  compare(rows, "shards");
}

// The first row of these lies 2^32 elements before the last.
TYPED_TEST(CrossEntropy, BeyondTheReachOf32Bits) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 8;
  const auto bytes = static_cast<std::size_t>(2 * kStride + 64) * sizeof(TypeParam);
  TypeParam* logits = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&logits), bytes));
  std::vector<TypeParam> row(64, static_cast<TypeParam>(0.0F));
  row[40] = static_cast<TypeParam>(2.0F);
  for (int i = 0; i < 3; ++i) {
    check(cudaMemcpy(logits + i * kStride, row.data(), 64 * sizeof(TypeParam),
                     cudaMemcpyHostToDevice));
  }
  const OnDevice<std::int64_t> labels(std::vector<std::int64_t>{40, 40, 40});
  const OnDevice<float> results(15);
  const gapless_cross_entropy options = over_the_logits(logits, {3, 64, kStride}, labels, results);
  succeed(gapless_cross_entropy_both(&options, nullptr));
  const double sum = 63 * std::exp(-2.0) + 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(results.values()[static_cast<std::size_t>(9 + i)], std::log(sum), 1e-5);
    TypeParam found;
    check(cudaMemcpy(&found, logits + i * kStride + 40, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT_NEAR(static_cast<float>(found), 1 / sum - 1, kRounding<TypeParam> + 1e-6);
  }
  check(cudaFree(logits));
}

TYPED_TEST(CrossEntropy, HasTheSameBitsEachTime) {
  Case of;
  of.classes = 5000;
  of.label_smoothing = 0.1F;
  const Rows<TypeParam> once(of), again(of);
  succeed(gapless_cross_entropy_both(&once.options, nullptr));
  succeed(gapless_cross_entropy_both(&again.options, nullptr));
  EXPECT_EQ(once.results->values(), again.results->values());
  const auto one = once.gradients->values();
  const auto other = again.gradients->values();
  EXPECT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(TypeParam)), 0);
}

TEST(CrossEntropyErrors, AreToldInWords) {
  gapless_cross_entropy options = GAPLESS_CROSS_ENTROPY_INIT;
  const auto said = [&] {
    EXPECT_EQ(gapless_cross_entropy_both(&options, nullptr), 1);
    return std::string(gapless_kernels_last_error());
  };
  options.type = 9;
  EXPECT_THAT(said(), HasSubstr("type: 9"));
  options.type = GAPLESS_FLOAT32;
  EXPECT_THAT(said(), HasSubstr("labels: NULL"));
  options.rows = -1;
  EXPECT_THAT(said(), HasSubstr("below zero"));
}

TEST(CrossEntropyErrors, ALabelThatIsNoClassIsATrap) {
  Case of;
  Rows<float> rows(of);
  const std::vector<std::int64_t> labels{0, kIgnored, of.classes};
  check(cudaMemcpy(rows.given_labels->data(), labels.data(), 24, cudaMemcpyHostToDevice));
  EXPECT_NE(gapless_cross_entropy_both(&rows.options, nullptr), 0);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  check(cudaDeviceReset());
}

}  // namespace
