// See images.h.
#include "images.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "refuse.h"

namespace lingon {
namespace {

constexpr int kMostSharedWithoutAsking = 49152;  // bytes
constexpr int kMostSharedAttribute = 8;          // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

struct Image {
  std::string bytes, parameters;
  int warps, shared_bytes;
};

struct Store {
  std::mutex mutex;
  std::map<std::string, Image> images;
  std::map<std::pair<void*, std::string>, const Function*> loaded;  // by context and name
  std::deque<Function> functions;
};

Store& store() {
  static Store* const made = new Store;  // sessions that end after static variables still have functions of it
  return *made;
}

// The arguments that the operators pass, by the beginning of the name.
constexpr struct {
  const char *beginning, *parameters;
} kPassed[] = {
    {"linear_", "ppppppppiiifiii"},    {"norm_", "ppppiif"},
    {"step_attention_", "ppppppiif"},  {"cross_attention_", "pppppiiif"},
    {"self_attention_", "pppif"},      {"place_memory", "ppppiiiii"},
    {"embed", "pppppifi"},             {"choose_", "pppppppiiii"},
    {"merge_", "pppppii"},             {"greedy_step", "pppppppppiii"},
    {"beam_step_", "ppppppppppppiiiiii"}, {"advance_step", "ppi"},
};

const char* passed_to(const char* name) {
  for (const auto& each : kPassed)
    if (std::strncmp(name, each.beginning, std::strlen(each.beginning)) == 0) return each.parameters;
  refuse("has no operator that launches %s", name);
}

const Function* load_function(Store& store, void* context, const Driver& driver, const char* name) {
  const auto found = store.images.find(name);
  if (found == store.images.end()) refuse("has no kernel %s: the archive of kernels is not loaded", name);
  const Image& image = found->second;
  Function made{name, image.parameters, &driver, nullptr, (unsigned)image.warps * 32, (unsigned)image.shared_bytes};
  void* module = nullptr;
  check_driver(driver, driver.load_module(&module, image.bytes.c_str()), "loading", name);
  check_driver(driver, driver.find_function(&made.handle, module, name), "looking for", name);
  if (image.shared_bytes > kMostSharedWithoutAsking)
    check_driver(driver, driver.set_attribute(made.handle, kMostSharedAttribute, image.shared_bytes),
                 "reserving the shared memory of", name);
  store.functions.push_back(std::move(made));
  return store.loaded[{context, name}] = &store.functions.back();
}

}  // namespace

void add_image(const char* name, const void* image, size_t size, const char* parameters, int warps, int shared_bytes) {
  const char* passed = passed_to(name);
  if (std::strcmp(parameters, passed) != 0)
    refuse("passes %s to %s, whose image takes %s", passed, name, parameters);
  if (size == 0 || warps < 1 || warps > 32 || shared_bytes < 0)
    refuse("got an image of %s with %zu bytes, %d warps and %d bytes of shared memory", name, size, warps,
           shared_bytes);
  Store& held = store();
  const std::lock_guard<std::mutex> lock(held.mutex);
  held.images[name] = {std::string((const char*)image, size), parameters, warps, shared_bytes};
}

void forget_images() {
  Store& held = store();
  const std::lock_guard<std::mutex> lock(held.mutex);
  held.images.clear();
  held.loaded.clear();
}

void Functions::load(const char* name) {
  const Driver& found = driver();
  void* context = nullptr;
  check_driver(found, found.current_context(&context), "asking for the context of", name);
  if (context == nullptr) throw Failure(std::string("this thread has no CUDA context to load ") + name);
  Store& held = store();
  const std::lock_guard<std::mutex> lock(held.mutex);
  const auto known = held.loaded.find({context, name});
  loaded_.push_back(known != held.loaded.end() ? known->second : load_function(held, context, found, name));
}

const Function& Functions::operator[](const char* name) const {
  for (const Function* each : loaded_)
    if (each->name == name) return *each;
  refuse("did not load the kernel %s", name);
}

}  // namespace lingon
