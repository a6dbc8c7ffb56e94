// What every microkernel starts with: the entry declaration and the loop hint.
//
// A microkernel is an extern "C" function over objects of FIFOs. ELFKILN_ENTRY says what it does with each argument, in
// order. The array has no use for that, so the macro is empty there; the simulator checks every call against it.

#ifndef ELFKILN_KERNEL_ENTRY_H
#define ELFKILN_KERNEL_ENTRY_H

#ifdef ELFKILN_SIM

#include "kernel_interface.h"

template <unsigned N>
constexpr elfkiln_declaration elfkiln_declare(const elfkiln_access (&accesses)[N]) {
    static_assert(N <= ELFKILN_MOST_ARGUMENTS, "a microkernel takes at most 8 arguments");
    elfkiln_declaration declaration = {N, {}};
    for (unsigned i = 0; i < N; ++i)
        declaration.arguments[i] = accesses[i];
    return declaration;
}

#define ELFKILN_READS(bytes) elfkiln_access{ELFKILN_READ, bytes}
#define ELFKILN_WRITES(bytes) elfkiln_access{ELFKILN_WRITE, bytes}
#define ELFKILN_UPDATES(bytes) elfkiln_access{ELFKILN_READ | ELFKILN_WRITE, bytes}
#define ELFKILN_SCALAR elfkiln_access{0, 0}
#define ELFKILN_ENTRY(name, ...)                                                                                       \
    extern "C" const elfkiln_declaration elfkiln_declaration_##name;                                                   \
    extern "C" constexpr elfkiln_declaration elfkiln_declaration_##name = elfkiln_declare({__VA_ARGS__});

#else

#define ELFKILN_ENTRY(name, ...)

#endif

// Peano unrolls a loop only so far by itself; the host's compiler needs no word.
#ifdef __AIECC__
#define ELFKILN_PRAGMA(text) _Pragma(#text)
#define ELFKILN_UNROLL(times) ELFKILN_PRAGMA(clang loop unroll_count(times))
#else
#define ELFKILN_UNROLL(times)
#endif

#endif
