// What is read of call stacks: whose frames they are, the line of the program that asked, one tree
// for all of them.
#include "allocator/trace/call_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/trace/compact_format.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/snapshot.h"
#include "tests/unit/pickle_writer.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::PickleWriter;

TEST(Frames, AreToldApartByTheirText) {
  const std::pair<const char*, FrameKind> frames[] = {
      {"/home/me/train.py:41 train_step", FrameKind::own},
      {"train.py:41 <module>", FrameKind::own},
      {"C:\\work\\train.py:3 main", FrameKind::own},
      {"/home/a b/my: file.py:12 f", FrameKind::own},
      {"/tmp/ipykernel_4711/2894.py:1 <module>", FrameKind::own},
      {"<ipython-input-3-5d1b>:1 <module>", FrameKind::own},
      {"<stdin>:1 <module>", FrameKind::own},
      {"/usr/lib/python3.11/site-packages/torch/nn/functional.py:10 gelu", FrameKind::library},
      {"/opt/env/lib/python3.12/site-packages/flax/linen.py:7 call", FrameKind::library},
      {"/usr/lib/python3/dist-packages/numpy/core.py:7 call", FrameKind::library},
      {"C:\\Python312\\Lib\\site-packages\\torch\\nn\\linear.py:7 forward", FrameKind::library},
      {"C:\\Python312\\Lib\\runpy.py:88 _run_code", FrameKind::library},
      {"/usr/lib/python3.11/threading.py:975 run", FrameKind::library},
      {"<frozen runpy>:198 _run_module_as_main", FrameKind::library},
      {"<eval_with_key>.3:5 forward", FrameKind::library},
      {"/tmp/torchinductor_me/ab/cabc.py:88 call", FrameKind::library},
      {"/src/pytorch/torch/nn/modules/linear.py:134 forward", FrameKind::library},
      {"??:0 at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)", FrameKind::native},
      {"??:0 torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)",
       FrameKind::native},
      {"??:0 torch::unwind::unwind()", FrameKind::machinery},
      {"??:0 _PyEval_EvalFrameDefault", FrameKind::machinery},
      {"./Python/ceval.c:3000 work", FrameKind::machinery},
      {"??:0 __libc_start_main", FrameKind::machinery},
      {"??:0 c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**)",
       FrameKind::machinery},
      {"/opt/gapless/lib/simgpu/python/watch_memory.py:334 kernel", FrameKind::machinery},
      {"/home/me/simgpu/python/examples/train.py:3 main", FrameKind::own},
      {"", FrameKind::machinery},
  };
  for (const auto& [frame, kind] : frames) EXPECT_EQ(frame_kind(frame), kind) << frame;
}

TEST(CallSite, IsTheInnermostLineOfTheProgram) {
  EXPECT_EQ(call_site({"??:0 at::_ops::mul_Tensor::call(at::Tensor const&)",
                       "/usr/lib/python3/dist-packages/torch/nn/functional.py:10 gelu",
                       "train.py:41 step", "train.py:80 <module>"}),
            "train.py:41 step");
  EXPECT_EQ(
      call_site({"??:0 at::_ops::mul_Tensor::call(at::Tensor const&)",
                 "/opt/lib/simgpu/python/watch_memory.py:334 kernel",
                 "/usr/lib/python3/dist-packages/torch/utils/_device.py:10 __torch_function__",
                 "train.py:41 step", "train.py:80 <module>"}),
      "train.py:41 step");
  EXPECT_EQ(call_site({"??:0 at::native::add(at::Tensor)", "/x/site-packages/a.py:1 f",
                       "/x/site-packages/b.py:2 g"}),
            "b.py:2 g");
  EXPECT_EQ(call_site({"??:0 at::_ops::mm::call(at::Tensor const&)",
                       "??:0 torch::autograd::generated::MmBackward0::apply(std::vector<int>&&)",
                       "??:0 torch::autograd::Engine::thread_main(int)", "??:0 clone"}),
            "MmBackward0 (backward pass)");
  EXPECT_EQ(call_site({"??:0 at::native::(anonymous namespace)::f(int)", "??:0 main"}),
            "at::native::(anonymous namespace)::f");
  EXPECT_EQ(call_site({"??:0 _PyEval_Vector"}), "??:0 _PyEval_Vector");
  EXPECT_EQ(call_site({}), "");
}

TEST(CallSite, IsTheOperatorWhereAutogradAsksBetweenItsNodes) {
  const std::string_view kernel =
      "sum.cu:0 void at::native::gpu_reduce_kernel<c10::Half, 4, at::f<float, (bool)0> >(int)";
  EXPECT_EQ(call_site({kernel, "??:0 gapless::simgpu::ValueKernel::operator()(int)",
                       "??:0 at::_ops::sum_dim_IntList::redispatch(int)",
                       "??:0 torch::autograd::InputMetadata::reduce_grad(at::Tensor&) const",
                       "??:0 torch::autograd::Engine::evaluate_function(int)", "??:0 clone3"}),
            "aten::sum_dim.IntList (backward pass)");
  EXPECT_EQ(call_site({kernel, "??:0 at::_ops::sum_dim_IntList::redispatch(int)"}),
            "aten::sum_dim.IntList");
  EXPECT_EQ(call_site({kernel}), "at::native::gpu_reduce_kernel");
}

TEST(CallSite, IsTheLineOfCppThatIsNotOfPyTorch) {
  const std::string_view op = "??:0 at::_ops::relu::call(at::Tensor const&)";
  const std::string_view torch = "nn.h:7 torch::nn::ReLUImpl::forward(at::Tensor const&)";
  EXPECT_EQ(call_site({op, torch, "src/train.cpp:42 at::Tensor Net<float>::forward<2>(at::Tensor)",
                       "src/train.cpp:80 main"}),
            "src/train.cpp:42 Net::forward");
  EXPECT_EQ(call_site({op, torch, "src/train.cpp:80 main"}), "src/train.cpp:80 main");
  EXPECT_EQ(call_site({op, torch, "??:0 main"}), "aten::relu");
  EXPECT_EQ(call_site({"??:0 at::native::empty(int)", "??:0 vision::ops::nms(at::Tensor const&)",
                       "??:0 torch::autograd::Engine::thread_main(int)"}),
            "vision::ops::nms");
}

TEST(CallSite, IsOfTheCommandsPackageWhereAnInstalledCommandIsTheProgram) {
  const std::string_view op = "??:0 at::_ops::mul_Tensor::call(at::Tensor const&)";
  const std::string_view torch = "/x/site-packages/torch/nn/functional.py:10 gelu";
  const std::vector<std::string_view> frames = {op,
                                                torch,
                                                "/x/site-packages/transformers/loss.py:7 loss",
                                                torch,
                                                "/x/site-packages/factory/sft.py:30 run",
                                                "/x/site-packages/transformers/trainer.py:9 train",
                                                "/x/site-packages/factory/cli.py:12 main",
                                                "/x/bin/factory:8 <module>"};
  EXPECT_EQ(call_site(frames), "factory/sft.py:30 run");
  EXPECT_EQ(library_line(frames), "transformers/loss.py:7");
  EXPECT_EQ(called_there(frames), "aten::mul.Tensor");
  EXPECT_EQ(call_site({op, torch, "/usr/lib/python3.11/threading.py:975 run"}), torch);
}

TEST(CallSite, SaysWhatLineOfALibraryItLedTo) {
  const std::string_view op = "??:0 at::_ops::mul_Tensor::call(at::Tensor const&)";
  const std::string_view torch = "/x/site-packages/torch/nn/functional.py:10 gelu";
  const std::string_view model = "/x/site-packages/transformers/models/gpt2.py:7 forward";
  const std::string_view trainer = "/x/site-packages/transformers/trainer.py:99 train";
  EXPECT_EQ(library_line({op, torch, model, torch, trainer, "train.py:41 <module>"}),
            "transformers/models/gpt2.py:7");
  EXPECT_EQ(library_line({op, torch, "model.py:3 forward", model, trainer, "train.py:41 f"}), "");
  EXPECT_EQ(library_line({op, torch, "train.py:41 <module>"}), "");
  EXPECT_EQ(library_line({op, torch}), "");  // nobody's line led to it
  EXPECT_EQ(library_line({"/usr/lib/python3/dist-packages/apex/a.py:1", "train.py:4"}),
            "apex/a.py:1");
  EXPECT_EQ(library_line({"/usr/lib/python3.11/threading.py:975 run", "train.py:4"}), "");
}

TEST(CallSite, SaysWhatWasCalledThere) {
  EXPECT_EQ(called_there({"??:0 at::_ops::mul_Tensor::call(at::Tensor const&)",
                          "/x/site-packages/torch/nn/functional.py:10 gelu",
                          "/x/site-packages/torch/nn/module.py:20 forward", "train.py:41 step"}),
            "aten::mul.Tensor");
  EXPECT_EQ(called_there({"??:0 at::_ops::bmm::call(at::Tensor const&)", "train.py:41 step"}),
            "aten::bmm");
  EXPECT_EQ(called_there({"??:0 at::_ops::add_::call(at::Tensor&)", "train.py:41 step"}),
            "aten::add_");
  EXPECT_EQ(called_there({"/x/site-packages/a.py:1 inner", "/x/site-packages/b.py:2 outer",
                          "train.py:41 step"}),
            "outer");
  EXPECT_EQ(called_there({"train.py:41 step"}), "");
}

// --- read from snapshots -------------------------------------------------------------------------

struct Frame {
  const char* file;
  int line;
  const char* name;
};

void put_frames(PickleWriter& writer, const std::vector<Frame>& frames) {
  writer.text("frames").list().mark();
  for (const Frame& frame : frames) {
    writer.dict().mark().text("filename").text(frame.file).text("line").integer(frame.line);
    writer.text("name").text(frame.name).set_items();
  }
  writer.appends();
}

void put_event(PickleWriter& writer, const char* action, std::uint64_t address,
               const std::vector<Frame>& frames) {
  writer.dict().mark().text("action").text(action).text("addr");
  writer.integer(static_cast<std::int64_t>(address)).text("size").integer(512);
  put_frames(writer, frames);
  writer.set_items();
}

// Two events that have their outer frames in common, one of a library; a block that no event speaks
// of; a segment.
Trace with_stacks() {
  const Frame main{"train.py", 80, "<module>"};
  const Frame step{"train.py", 41, "step"};
  const Frame gelu{"/x/site-packages/torch/nn/functional.py", 10, "gelu"};
  PickleWriter writer;
  writer.dict().mark().text("segments").list();
  writer.dict().mark().text("address").integer(1 << 20).text("total_size").integer(2048);
  writer.text("segment_type").text("small").text("stream").integer(7).text("blocks").list().mark();
  writer.dict().mark().text("size").integer(1024).text("requested_size").integer(1000);
  writer.text("state").text("active_allocated");
  put_frames(writer, {{"load.py", 5, "load"}, main});
  writer.set_items().block(1024, "inactive").appends().set_items().append();
  writer.text("device_traces").list().list().mark();
  put_event(writer, "alloc", 512, {gelu, step, main});
  put_event(writer, "alloc", 1024, {step, main});
  put_event(writer, "free_completed", 512, {gelu, step, main});
  put_event(writer, "alloc", 4096, {});
  writer.appends().append().set_items();
  const PickleDocument document(writer.stop(), "stacks.pickle");
  return read_snapshot(document).traces.at(0);
}

TEST(Stacks, HoldWhatTheyHaveInCommonOnce) {
  const Trace trace = with_stacks();
  check_trace(trace);
  ASSERT_EQ(trace.events.size(), 5U);
  EXPECT_THAT(trace.frames_of(trace.events[1].site),
              ElementsAre("/x/site-packages/torch/nn/functional.py:10 gelu", "train.py:41 step",
                          "train.py:80 <module>"));
  EXPECT_THAT(trace.frames_of(trace.events[2].site),
              ElementsAre("train.py:41 step", "train.py:80 <module>"));
  EXPECT_EQ(trace.events[1].site, trace.events[3].site);
  EXPECT_NE(trace.events[1].site, trace.events[2].site);
  // Both are one line of the program, reached in two ways.
  EXPECT_EQ(trace.sites[trace.events[1].site], "train.py:41 step");
  EXPECT_EQ(trace.sites[trace.events[2].site], "train.py:41 step");
  EXPECT_EQ(trace.events[4].site, 0U);
  EXPECT_THAT(trace.frames_of(0), IsEmpty());
  EXPECT_EQ(trace.site_stacks.size(), trace.sites.size());
  EXPECT_EQ(trace.stacks->nodes.size(), 5U);  // none, main, load, step, gelu
  const std::vector<CallStacks::Node>& nodes = trace.stacks->nodes;
  EXPECT_EQ(nodes[trace.site_stacks[trace.events[1].site]].parent,
            trace.site_stacks[trace.events[2].site]);
}

TEST(Stacks, OfBlocksThatLivedBefore) {
  const Trace trace = with_stacks();
  ASSERT_EQ(trace.initial_events, 1U);
  EXPECT_EQ(trace.events[0].bytes, 1000U);
  EXPECT_EQ(trace.sites[trace.events[0].site], "load.py:5 load");
  EXPECT_THAT(trace.frames_of(trace.events[0].site),
              ElementsAre("load.py:5 load", "train.py:80 <module>"));
}

// As PyTorch wrote them until 2023.
TEST(Stacks, OfBlocksThatTellOfThemInTheirHistory) {
  PickleWriter writer;
  writer.list().dict().mark().text("address").integer(0).text("total_size").integer(512);
  writer.text("blocks").list().dict().mark().text("size").integer(512);
  writer.text("state").text("active_allocated").text("history").list().dict().mark();
  writer.text("real_size").integer(300);
  put_frames(writer, {{"train.py", 41, "step"}});
  writer.set_items().append().set_items().append().set_items().append();
  const PickleDocument document(writer.stop(), "old.pickle");
  const Snapshot snapshot = read_snapshot(document, true);
  EXPECT_EQ(snapshot.segments.at(0).blocks.at(0).requested_bytes, 300U);
  EXPECT_EQ(snapshot.segments[0].blocks[0].site, "train.py:41 step");
  const Trace& trace = snapshot.traces.at(0);
  EXPECT_EQ(trace.events.at(0).bytes, 300U);
  EXPECT_THAT(trace.frames_of(trace.events[0].site), ElementsAre("train.py:41 step"));
}

TEST(Stacks, AndSegmentsAreKeptByTheCompactFormat) {
  Trace trace = with_stacks();
  ASSERT_TRUE(trace.has_segments);
  EXPECT_THAT(trace.segments,
              ElementsAre(TraceSegment{1 << 20, 2048, trace.events[0].stream, 0, false, "small"}));
  EXPECT_EQ(trace.streams[trace.segments[0].stream], 7U);
  Trace without = trace;  // another device, of which no stacks were recorded
  without.device = 1;
  without.site_stacks.clear();
  without.stacks = nullptr;
  without.segments.clear();
  without.has_segments = false;
  const std::vector<Trace> read = read_compact(write_compact({trace, without}), "x");
  EXPECT_EQ(read[0].events, trace.events);
  EXPECT_EQ(read[0].sites, trace.sites);
  EXPECT_EQ(read[0].site_stacks, trace.site_stacks);
  EXPECT_EQ(*read[0].stacks, *trace.stacks);
  EXPECT_EQ(read[0].segments, trace.segments);
  EXPECT_TRUE(read[0].has_segments);
  EXPECT_EQ(read[1].stacks, nullptr);
  EXPECT_THAT(read[1].site_stacks, IsEmpty());
  EXPECT_FALSE(read[1].has_segments);
}

// A file has one tree: of another nothing is written, rather than something wrong.
TEST(Stacks, OfTwoTreesAreNotMixedUp) {
  const Trace first = with_stacks();
  Trace second = with_stacks();
  second.device = 1;
  const std::vector<Trace> read = read_compact(write_compact({first, second}), "x");
  EXPECT_EQ(read[0].frames_of(read[0].events[1].site), first.frames_of(first.events[1].site));
  for (const TraceEvent& event : read[1].events) {
    EXPECT_EQ(read[1].sites[event.site], second.sites[event.site]);
    const auto frames = read[1].frames_of(event.site);
    EXPECT_TRUE(frames.empty() || frames == second.frames_of(event.site));
  }
}

}  // namespace
}  // namespace gapless
