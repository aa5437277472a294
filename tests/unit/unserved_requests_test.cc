#include "allocator/trace/unserved_requests.h"

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "tests/support/recording.h"

namespace gapless {
namespace {

using testing::Recording;

TEST(UnservedRequests, ARunThatGotEverythingHasNone) {
  Recording run("fine");
  run.free(run.alloc(GiB));
  const UnservedRequests failed = unserved_requests(run.trace());
  EXPECT_TRUE(failed.all.empty());
  EXPECT_FALSE(failed.ended());
  EXPECT_FALSE(failed.last_straw());
  EXPECT_FALSE(failed.most_missed());
}

TEST(UnservedRequests, OneThatNothingWasAllocatedAfterEndedTheRun) {
  Recording run("dies");
  const auto a = run.alloc(GiB);
  run.alloc(1000);
  run.oom(2 * GiB + 1).free(a);
  const UnservedRequests failed = unserved_requests(run.trace());
  ASSERT_TRUE(failed.ended());
  const UnservedRequest end = failed.last_straw().value();
  EXPECT_EQ(end.event, 2U);
  EXPECT_EQ(end.bytes, 2 * GiB + 1);
  EXPECT_EQ(end.live_bytes, GiB + 1024);
  EXPECT_EQ(end.needs_bytes, 3 * GiB + 1024 + 512);
  EXPECT_FALSE(failed.most_missed());
}

// Smaller requests were tried when it failed: with the least of them it would have gone on.
TEST(UnservedRequests, OfSeveralAtTheEndTheLeastCounts) {
  Recording run("retries");
  const auto a = run.alloc(4 * GiB);
  run.oom(4 * GiB).oom(2 * GiB).free(a).oom(7 * GiB);
  const UnservedRequests failed = unserved_requests(run.trace());
  EXPECT_EQ(failed.all.size(), 3U);
  EXPECT_EQ(failed.last_straw()->needs_bytes, 6 * GiB);
}

TEST(UnservedRequests, OneThatTheProgramWentOnAfterIsAFact) {
  Recording run("catches");
  run.alloc(4 * GiB);
  run.oom(4 * GiB).oom(GiB);
  run.alloc(MiB);
  const UnservedRequests failed = unserved_requests(run.trace());
  EXPECT_FALSE(failed.ended());
  EXPECT_EQ(failed.most_missed()->needs_bytes, 8 * GiB);
  run.oom(10 * GiB);
  EXPECT_EQ(unserved_requests(run.trace()).unanswered, 1U);
  EXPECT_EQ(unserved_requests(run.trace()).most_missed()->needs_bytes, 8 * GiB);
}

TEST(UnservedRequests, AnyNumberMayBeAskedFor) {
  Recording run("absurd");
  run.alloc(GiB);
  run.oom(UINT64_MAX);
  EXPECT_EQ(unserved_requests(run.trace()).last_straw()->needs_bytes, UINT64_MAX / 512 * 512);
}

TEST(UnservedRequests, ServedOneIsAnAllocation) {
  Recording run("dies");
  run.alloc(GiB);
  run.oom(2 * GiB);
  const UnservedRequests failed = unserved_requests(run.trace());
  const Trace served = with_request_served(run.trace(), *failed.last_straw());
  check_trace(served);
  EXPECT_EQ(served.events.size(), run.trace().events.size());
  EXPECT_EQ(peak_live_bytes(served), 3 * GiB);
  EXPECT_TRUE(unserved_requests(served).all.empty());
}

}  // namespace
}  // namespace gapless
