// Copies an object, but first says that it runs and waits for leave: a byte to one pipe, then a byte from another. The
// object begins with the two file descriptors. Linux on x86-64, by system call.

#include <stdint.h>

namespace {

long call(long number, long descriptor, char *byte) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(descriptor), "S"(byte), "d"(1L)
                     : "rcx", "r11", "memory");
    return result;
}

} // namespace

extern "C" void relay(int32_t *from, int32_t *to) {
    char byte = 1;
    call(1, from[0], &byte);
    call(0, from[1], &byte);
    for (unsigned i = 0; i < 16; ++i)
        to[i] = from[i];
}
