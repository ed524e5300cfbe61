// See driver.h.
#include "driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "../session.h"

namespace lingon {
namespace {

Driver load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Failure("the driver of the card cannot be loaded: " + std::string(dlerror()));
  const auto find = [&](auto& function, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) throw Failure("the driver of the card, " + std::string(path) + ", has no " + name);
    function = reinterpret_cast<std::decay_t<decltype(function)>>(found);
  };
  Driver made{};
  find(made.error_name, "cuGetErrorName");
  find(made.current_context, "cuCtxGetCurrent");
  find(made.load_module, "cuModuleLoadData");
  find(made.find_function, "cuModuleGetFunction");
  find(made.set_attribute, "cuFuncSetAttribute");
  find(made.launch, "cuLaunchKernel");
  return made;
}

}  // namespace

const Driver& driver() {
  static std::mutex mutex;
  static std::map<std::string, Driver> by_path;  // a test may name another driver later
  const char* named = std::getenv("LINGON_CUDA_DRIVER");
  const std::string path = named && *named ? named : "libcuda.so.1";
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = by_path.find(path);
  return found != by_path.end() ? found->second : by_path.emplace(path, load(path.c_str())).first->second;
}

void check_driver(const Driver& driver, int error, const char* doing, const char* kernel) {
  if (error == 0) return;
  const char* name = nullptr;
  if (driver.error_name(error, &name) != 0 || name == nullptr) name = "unknown";
  throw Failure("the driver said " + std::to_string(error) + " (" + name + ") when " + doing + " " + kernel);
}

}  // namespace lingon
