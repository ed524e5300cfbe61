// The driver of the card: what the operators use of the CUDA driver API, found when the program runs, so that the
// library needs no CUDA to be built, and none to be loaded.
#pragma once

namespace lingon {

// Every function returns 0 or the number of an error.
struct Driver {
  int (*error_name)(int error, const char** name);
  int (*current_context)(void** context);
  int (*load_module)(void** module, const void* image);
  int (*find_function)(void** function, void* module, const char* name);
  int (*set_attribute)(void* function, int attribute, int value);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra);
};

// The driver of the machine, or the library that LINGON_CUDA_DRIVER names. Failure if it cannot be loaded.
const Driver& driver();

// Failure if a call of the driver failed; doing: such as "launching".
void check_driver(const Driver& driver, int error, const char* doing, const char* kernel);

}  // namespace lingon
