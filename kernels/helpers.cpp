#include "helpers.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace lingon {
namespace {

// How long a helper waits without sleep: longer than the host takes between two steps of a decoder.
constexpr std::chrono::microseconds kWait{50};
constexpr int kPauses = 32;  // between two looks at the clock

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// A thread that starts inside it gets no signal.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The work that is posted is one number, so that a thread takes a part of it in one exchange: how many works there have
// been, the parts of this one, and how many of them are taken.
struct Posted {
  static constexpr int kBits = 8;
  uint64_t number;

  size_t parts() const { return number >> kBits & 0xff; }
  size_t taken() const { return number & 0xff; }
  bool is_open() const { return taken() < parts(); }
  Posted next_work(size_t parts) const { return {((number >> 2 * kBits) + 1) << 2 * kBits | parts << kBits}; }
};

class Helpers {
 public:
  // Start threads until there are so many; fewer if the system has no more.
  void start(int count) {
    const std::lock_guard<std::mutex> lock(starting_);
    const WithoutSignals without;
    left_core_ = -1;
    try {
      for (; started_ < count; ++started_) {
        std::thread thread([this, index = started_] { help((size_t)index); });
        threads_[started_] = thread.native_handle();
        pthread_setname_np(threads_[started_], "lingon helper");
        thread.detach();
      }
    } catch (const std::exception&) {
    }
  }

  bool run(void (*body)(void*, size_t), size_t parts, void* data) {
    if (in_use_.exchange(true, std::memory_order_acquire)) return false;
    body_ = body, data_ = data;
    done_.store(0, std::memory_order_relaxed);
    // In one order with `asleep_`: either a helper that falls asleep sees this work, or this thread wakes it.
    posted_.store(Posted{posted_.load(std::memory_order_relaxed)}.next_work(parts).number);
    if (asleep_.load()) wake();
    size_t own = 0;
    for (size_t part; take(part); ++own) body(data, part);
    while (done_.load(std::memory_order_acquire) != parts - own) pause();
    in_use_.store(false, std::memory_order_release);
    return true;
  }

 private:
  // Take a part of the work that is posted; returns whether there was one left. The owner of a work waits for every
  // part that was taken, so that `body_` and `data_` are those of the work until the part is done.
  bool take(size_t& part) {
    Posted seen{posted_.load(std::memory_order_acquire)};
    while (seen.is_open())
      if (posted_.compare_exchange_weak(seen.number, seen.number + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        part = seen.taken();
        return true;
      }
    return false;
  }

  // What helper number `index` does until the process ends.
  void help(size_t index) {
    for (;;) {
      if (!wait(index)) sleep(index);
      for (size_t part; take(part); done_.fetch_add(1, std::memory_order_release)) body_(data_, part);
    }
  }

  // Whether there is a part for this helper: works of few parts are for the first helpers.
  bool has_part(size_t index) const {
    const Posted seen{posted_.load()};
    return seen.is_open() && index + 1 < seen.parts();
  }

  // Wait for a part without sleep; returns false if there was none for long.
  bool wait(size_t index) const {
    for (const auto end = std::chrono::steady_clock::now() + kWait; std::chrono::steady_clock::now() < end;)
      for (int each = 0; each < kPauses; ++each) {
        if (has_part(index)) return true;
        pause();
      }
    return false;
  }

  void sleep(size_t index) {
    std::unique_lock<std::mutex> lock(sleeping_);
    asleep_.store(true);
    if (has_part(index)) return;
    for (const uint64_t seen = wakes_; seen == wakes_;) woken_.wait(lock);
  }

  // The system likes to run a thread that wakes up where the thread runs that woke it. A helper would then take the
  // core from its owner, to wait there for a part. So helpers may run on all cores but that of the owner.
  void leave_core() {
    const std::lock_guard<std::mutex> lock(starting_);
    const int core = sched_getcpu();
    cpu_set_t cores;
    if (core == left_core_ || core < 0 || sched_getaffinity(0, sizeof cores, &cores) != 0) return;
    left_core_ = core;
    if (core < CPU_SETSIZE) CPU_CLR(core, &cores);
    if (CPU_COUNT(&cores) == 0) return;
    for (int each = 0; each < started_; ++each) pthread_setaffinity_np(threads_[each], sizeof cores, &cores);
  }

  void wake() {
    leave_core();
    {
      const std::lock_guard<std::mutex> lock(sleeping_);
      asleep_.store(false);
      ++wakes_;
    }
    woken_.notify_all();
  }

  alignas(64) std::atomic<uint64_t> posted_{0};
  alignas(64) std::atomic<size_t> done_{0};  // parts of this work that helpers have computed
  alignas(64) std::atomic<bool> in_use_{false};
  void (*body_)(void*, size_t) = nullptr;
  void* data_ = nullptr;

  alignas(64) std::atomic<bool> asleep_{false};  // whether a helper may be asleep
  uint64_t wakes_ = 0;
  std::mutex sleeping_, starting_;
  std::condition_variable woken_;
  pthread_t threads_[kMostHelpers];
  int started_ = 0, left_core_ = -1;
};

// Never destroyed: its threads use it until the process ends.
Helpers& all_helpers() {
  static Helpers* const made = new Helpers;
  return *made;
}

thread_local int own_helpers = 0;

}  // namespace

void use_helpers(int count) {
  count = std::clamp(count, 0, kMostHelpers);
  if (count > own_helpers) all_helpers().start(count);
  own_helpers = count;
}

int helpers_in_use() { return own_helpers; }

bool run_with_helpers(void (*body)(void*, size_t), size_t parts, void* data) {
  return all_helpers().run(body, parts, data);
}

}  // namespace lingon
