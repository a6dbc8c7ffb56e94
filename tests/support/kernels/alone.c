/*
 * Microkernels without a design: calls one, or calls it in a plain loop over tiles. Linked with microkernel objects and
 * a table of them, `alone_kernels`.
 */

#include <stddef.h>
#include <stdint.h>

#include "kernel_interface.h"
#include "memory.c"

/* A microkernel called with pointers and scalars, as the generated table wraps it. */
typedef void alone_kernel(void *const *pointers, const int64_t *scalars);

extern alone_kernel *const alone_kernels[];

/* One pointer of a plain loop: in turn t it is base + t / every % count * step. */
typedef struct {
    uint8_t *base;
    uint64_t every;
    uint64_t count;
    uint64_t step;
} alone_tiles;

static elfkiln_modes modes;
elfkiln_modes *elfkiln_modes_now = &modes;

static void *violation_exit[5];
static const char *violation;

__attribute__((noreturn, visibility("hidden"))) void elfkiln_violation(const char *what) {
    violation = what;
    __builtin_longjmp(violation_exit, 1);
}

static __attribute__((noinline)) void run_alone(alone_kernel *kernel, void *const *pointers, const int64_t *scalars) {
    if (!__builtin_setjmp(violation_exit))
        kernel(pointers, scalars);
}

/* Puts the control registers in the state after a reset. */
__attribute__((visibility("default"))) void alone_reset(void) {
    modes = (elfkiln_modes){0, 0};
}

/* Calls microkernel `number` and returns the rule it broke, or NULL. */
__attribute__((visibility("default"))) const char *alone_call(uint32_t number, void *const *pointers,
                                                               const int64_t *scalars) {
    violation = NULL;
    run_alone(alone_kernels[number], pointers, scalars);
    return violation;
}

/* Calls microkernel `number` `turns` times over tiles and returns the rule it broke, or NULL. */
__attribute__((visibility("default"))) const char *alone_loop(uint32_t number, uint64_t turns, uint32_t arguments,
                                                               const alone_tiles *tiles) {
    violation = NULL;
    void *pointers[ELFKILN_MOST_ARGUMENTS];
    for (uint64_t turn = 0; turn < turns && !violation; ++turn) {
        for (uint32_t i = 0; i < arguments; ++i)
            pointers[i] = tiles[i].base + turn / tiles[i].every % tiles[i].count * tiles[i].step;
        run_alone(alone_kernels[number], pointers, NULL);
    }
    return violation;
}
