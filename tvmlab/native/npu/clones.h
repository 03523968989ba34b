// Loops that are compiled for several generations of processors. The one at hand is chosen when the
// library is loaded, which may be on another machine than the one that built it.
#ifndef TVMLAB_NPU_CLONES_H_
#define TVMLAB_NPU_CLONES_H_

// By what a processor has, not by its model: of "arch=..." GCC takes that model alone. Clang has
// another syntax, and sanitizers are not there yet when the choice is made.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TVMLAB_NPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TVMLAB_NPU_CLONES
#endif

// Part of the loop around it, whichever processor that is compiled for.
#define TVMLAB_NPU_INLINE [[gnu::always_inline]] inline

#endif  // TVMLAB_NPU_CLONES_H_
