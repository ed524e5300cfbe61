// Functions of glibc in the versions that glibc 2.17 has, so that a library built on a new system loads on an old one.
//
// glibc 2.32 and 2.34 moved the functions below from libpthread and libdl into libc, and gave them a new version for
// that. Their older versions are the same functions, which every later glibc still has. The linker is asked to call
// __wrap_NAME in place of NAME (see WRAPPED in build.py), also in the C++ library that is linked in.
#include <features.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <cstddef>

// The first version of glibc for the processor, which all of these functions had from the start.
#if defined(__x86_64__)
#define LINGON_FIRST "GLIBC_2.2.5"
#define LINGON_AFFINITY "GLIBC_2.3.4"
#define LINGON_NAMES "GLIBC_2.12"
#else
#define LINGON_FIRST "GLIBC_2.17"
#define LINGON_AFFINITY LINGON_FIRST
#define LINGON_NAMES LINGON_FIRST
#endif

// Declare old_NAME, which is NAME in an old version, and define __wrap_NAME, which calls it.
#define LINGON_OLD(version, result, name, declared, passed)      \
  extern "C" result old_##name declared;                         \
  __asm__(".symver old_" #name "," #name "@" version);           \
  extern "C" result __wrap_##name declared { return old_##name passed; }

LINGON_OLD(LINGON_FIRST, int, pthread_create,
           (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument),
           (thread, attributes, start, argument))
LINGON_OLD(LINGON_FIRST, int, pthread_detach, (pthread_t thread), (thread))
LINGON_OLD(LINGON_FIRST, int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old))
LINGON_OLD(LINGON_AFFINITY, int, pthread_setaffinity_np, (pthread_t thread, size_t size, const cpu_set_t* set),
           (thread, size, set))
LINGON_OLD(LINGON_NAMES, int, pthread_setname_np, (pthread_t thread, const char* name), (thread, name))
LINGON_OLD(LINGON_FIRST, void*, dlopen, (const char* path, int mode), (path, mode))
LINGON_OLD(LINGON_FIRST, void*, dlsym, (void* library, const char* name), (library, name))
LINGON_OLD(LINGON_FIRST, char*, dlerror, (), ())

// Whether the process has one thread alone, by which libstdc++ 11 and later leave out atomic operations. It is in glibc
// 2.32 and later. False is always right, and true of a process that serves.
extern "C" char __libc_single_threaded;
char __libc_single_threaded = 0;

#endif
