// Microkernels without declarations, as somebody else's would be.

#include <stdint.h>

extern "C" {

void relay_i8(int8_t *from, int8_t *to) {
    for (unsigned i = 0; i < 1024; ++i)
        to[i] = from[i];
}

// Sums neighbours: three objects in, one out.
void sum_of_three(int8_t *first, int8_t *second, int8_t *third, int8_t *to) {
    for (unsigned i = 0; i < 64; ++i)
        to[i] = (int8_t)(first[i] + second[i] + third[i]);
}

// Writes a scalar all over an object.
void fill_i32(int32_t *to, int32_t value) {
    for (unsigned i = 0; i < 16; ++i)
        to[i] = value;
}

// Adds a table to an object.
void add_table(int32_t *table, int32_t *to) {
    for (unsigned i = 0; i < 16; ++i)
        to[i] = table[i] + 1;
}

void does_nothing(void) {}
}
