// Microkernels that write the object they read: one says so, the other does not.

#include <stdint.h>

#include "kernel_entry.h"

ELFKILN_ENTRY(count_up, ELFKILN_UPDATES(1024), ELFKILN_WRITES(1024))
ELFKILN_ENTRY(scribble, ELFKILN_READS(1024), ELFKILN_WRITES(1024))

extern "C" {

void count_up(int8_t *from, int8_t *to) {
    for (unsigned i = 0; i < 1024; ++i)
        to[i] = ++from[i];
}

void scribble(int8_t *from, int8_t *to) {
    for (unsigned i = 0; i < 1024; ++i)
        to[i] = from[i];
    from[1023] = (int8_t)(from[1023] + 1);
}
}
