#include "allocator/live/live_page.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <new>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/futex.h"
#include "allocator/base/json_text.h"

namespace gapless {
namespace {

std::string error_text(const char* what) { return json_text(nlohmann::json{{"error", what}}); }

}  // namespace

std::unique_ptr<LivePage> LivePage::open(Answer answer, std::function<void()> on_signal) {
  const int descriptor = memfd_create(kLivePageName, MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (::ftruncate(descriptor, sizeof(LivePageLayout)) == 0) {
    memory =
        ::mmap(nullptr, sizeof(LivePageLayout), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (memory == MAP_FAILED) {
    ::close(descriptor);
    return nullptr;
  }
  (void)::fchmod(descriptor, S_IRUSR | S_IWUSR);
  // The memory is zeros already: only what is not is written, so that it stays small.
  auto* const page = static_cast<LivePageLayout*>(memory);
  page->version = LivePageLayout::kVersion;
  page->pid = static_cast<std::uint32_t>(::getpid());
  std::atomic_ref(page->magic).store(LivePageLayout::kMagic, std::memory_order_release);
  return std::unique_ptr<LivePage>(
      new LivePage(descriptor, page, std::move(answer), std::move(on_signal)));
}

LivePage::LivePage(int descriptor, LivePageLayout* page, Answer answer,
                   std::function<void()> on_signal)
    : descriptor_(descriptor),
      page_(page),
      answer_(std::move(answer)),
      on_signal_(std::move(on_signal)) {
  // The program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LivePage::~LivePage() {
  if (forgotten_) {
    thread_.detach();
    return;
  }
  ending_ = true;
  page_->requests.fetch_add(1);
  futex_wake(page_->requests);
  thread_.join();
  page_->magic = 0;
  (void)::munmap(page_, sizeof(LivePageLayout));
  ::close(descriptor_);
}

void LivePage::signal() {
  signalled_.store(true);
  page_->requests.fetch_add(1, std::memory_order_release);
  futex_wake(page_->requests);
}

void LivePage::serve() {
  std::uint32_t done = 0;
  while (true) {
    std::uint32_t number = page_->requests.load(std::memory_order_acquire);
    while (number == done) {
      futex_wait(page_->requests, done, kForeverMs);
      number = page_->requests.load(std::memory_order_acquire);
    }
    if (ending_) return;
    done = number;
    if (signalled_.exchange(false)) on_signal_();
    answer_request();
    // A request that came after that signal has been answered before it was counted: it is told so
    // the next time round.
    page_->answers.store(number, std::memory_order_release);
    futex_wake(page_->answers);
  }
}

void LivePage::answer_request() {
  // Whoever shares the page may write to it at any time: it is read once.
  const std::size_t count = std::min<std::size_t>(
      page_->request_bytes.exchange(0, std::memory_order_acquire), LivePageLayout::kRequestBytes);
  if (count == 0) return;
  const std::string request(page_->request, count);
  std::string text;
  try {
    text = answer_(request);
  } catch (const std::exception& failed) {
    text = error_text(failed.what());
  }
  if (text.size() > LivePageLayout::kAnswerBytes) text = error_text("the answer is too long");
  std::memcpy(page_->answer, text.data(), text.size());
  page_->answer_bytes = static_cast<std::uint32_t>(text.size());
}

}  // namespace gapless
