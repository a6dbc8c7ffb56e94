/* Moving bytes without a C library: the ELF needs nothing from the process that loads it. */

typedef uint8_t bytes32 __attribute__((vector_size(32), aligned(1)));

/* What the compiler calls for copies of its own making. `rep movsb` keeps it from calling them in their own bodies. */
__attribute__((visibility("hidden"))) void *memcpy(void *restrict to, const void *restrict from, size_t count) {
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(count) : : "memory");
    return to;
}

__attribute__((visibility("hidden"))) void *memset(void *to, int byte, size_t count) {
    void *at = to;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(byte) : "memory");
    return to;
}

/* Copies between places that do not overlap. */
static inline void copy_bytes(uint8_t *restrict to, const uint8_t *restrict from, uint64_t count) {
    if (count >= 32) {
        uint64_t at = 0;
        for (; at + 128 <= count; at += 128) {
            bytes32 a = *(const bytes32 *)(from + at), b = *(const bytes32 *)(from + at + 32);
            bytes32 c = *(const bytes32 *)(from + at + 64), d = *(const bytes32 *)(from + at + 96);
            *(bytes32 *)(to + at) = a;
            *(bytes32 *)(to + at + 32) = b;
            *(bytes32 *)(to + at + 64) = c;
            *(bytes32 *)(to + at + 96) = d;
        }
        for (; at + 32 <= count; at += 32)
            *(bytes32 *)(to + at) = *(const bytes32 *)(from + at);
        if (at < count)
            *(bytes32 *)(to + count - 32) = *(const bytes32 *)(from + count - 32);
        return;
    }
    while (count >= 8) {
        __builtin_memcpy_inline(to, from, 8);
        to += 8, from += 8, count -= 8;
    }
    while (count--)
        *to++ = *from++;
}
