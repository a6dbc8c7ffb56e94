/* What a microkernel compiled for target sim and the simulator's runtime know of each other. */

#ifndef ELFKILN_KERNEL_INTERFACE_H
#define ELFKILN_KERNEL_INTERFACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ELFKILN_READ = 1, ELFKILN_WRITE = 2, ELFKILN_MOST_ARGUMENTS = 8 };

/* What a microkernel does with one argument: ELFKILN_READ | ELFKILN_WRITE, and the bytes it touches (0: a scalar). */
typedef struct {
    uint32_t mode;
    uint32_t bytes;
} elfkiln_access;

/* What a microkernel entry NAME declares of its arguments, under the symbol elfkiln_declaration_NAME. */
typedef struct {
    uint32_t count;
    elfkiln_access arguments[ELFKILN_MOST_ARGUMENTS];
} elfkiln_declaration;

/* The control registers of a core that vector operations obey; they keep their values between calls. */
typedef struct {
    uint32_t rounding;
    uint32_t saturation;
} elfkiln_modes;

/* The registers of the core that runs now. */
extern elfkiln_modes *elfkiln_modes_now;

/* Ends the kernel that runs now: it did what the array would have answered with a wrong result. */
__attribute__((noreturn)) void elfkiln_violation(const char *what);

#ifdef __cplusplus
}
#endif

#endif
