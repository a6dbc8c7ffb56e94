/* Walking access patterns: gathering bytes from one, scattering bytes to one, marking which bytes were written. */

static void cursor_start(sim_cursor *cursor, uint8_t *base, const sim_pattern *pattern) {
    cursor->base = base;
    cursor->pattern = pattern;
    cursor->in_run = 0;
    cursor->at = pattern->offset;
    for (uint32_t d = 0; d < pattern->dims; ++d)
        cursor->index[d] = 0;
}

/* Steps the loops that end with loop `d` by one turn of it. */
static inline void cursor_carry(sim_cursor *cursor, uint32_t d) {
    const sim_pattern *pattern = cursor->pattern;
    while (d--) {
        cursor->at += pattern->dim[d].stride;
        if (++cursor->index[d] < pattern->dim[d].size)
            return;
        cursor->at -= pattern->dim[d].stride * (int64_t)pattern->dim[d].size;
        cursor->index[d] = 0;
    }
}

/* Bytes from here to the end of the run. */
static inline uint64_t cursor_run(const sim_cursor *cursor) {
    return cursor->pattern->run - cursor->in_run;
}

static inline uint8_t *cursor_here(const sim_cursor *cursor) {
    return cursor->base + cursor->at + (int64_t)cursor->in_run;
}

/* Moves on by `count` bytes of the run. */
static inline void cursor_skip(sim_cursor *cursor, uint64_t count) {
    cursor->in_run += count;
    if (cursor->in_run == cursor->pattern->run) {
        cursor->in_run = 0;
        cursor_carry(cursor, cursor->pattern->dims);
    }
}

/* Whole runs that lie `*stride` apart, at most `most` bytes of them; the cursor moves on past them. */
static inline uint64_t cursor_runs(sim_cursor *cursor, uint64_t most, int64_t *stride) {
    const sim_pattern *pattern = cursor->pattern;
    uint32_t last = pattern->dims - 1;
    uint64_t count = pattern->dim[last].size - cursor->index[last];
    if (count > most / pattern->run)
        count = most / pattern->run;
    *stride = pattern->dim[last].stride;
    cursor->index[last] += count;
    cursor->at += *stride * (int64_t)count;
    if (cursor->index[last] == pattern->dim[last].size) {
        cursor->at -= *stride * (int64_t)pattern->dim[last].size;
        cursor->index[last] = 0;
        cursor_carry(cursor, last);
    }
    return count;
}

/* Copies `count` runs of `run` bytes; both sides step by their own stride. */
static __attribute__((noinline)) void copy_runs(uint8_t *to, int64_t to_stride, const uint8_t *from, int64_t from_stride, uint64_t run_bytes,
                             uint64_t count) {
#define RUNS_OF(n)                                                                                                     \
    case n:                                                                                                            \
        for (; count; --count, to += to_stride, from += from_stride)                                                   \
            __builtin_memcpy_inline(to, from, n);                                                                      \
        return
    switch (run_bytes) {
        RUNS_OF(4);
        RUNS_OF(8);
        RUNS_OF(16);
        RUNS_OF(32);
        RUNS_OF(64);
    }
#undef RUNS_OF
    for (; count; --count, to += to_stride, from += from_stride)
        copy_bytes(to, from, run_bytes);
}

typedef int64_t words4 __attribute__((vector_size(32), aligned(1)));

/*
 * Gathers runs of 8 bytes whose second innermost loop steps by 8: `rows` rows of memory, read across and stored column
 * by column. This is how a row-major matrix becomes blocks, and 4 x 4 words at a time it costs little more than a copy.
 * `ahead` is what to add to an address to get one that is read soon.
 */
static void gather_columns(uint8_t *to, const uint8_t *from, uint64_t rows, int64_t stride, uint64_t columns,
                           int64_t ahead) {
    for (uint64_t j = 0; j < columns; j += 4)
        for (uint64_t i = 0; i < rows; i += 4) {
            const uint8_t *at = from + (int64_t)i * stride + (int64_t)j * 8;
            words4 r0 = *(const words4 *)at, r1 = *(const words4 *)(at + stride);
            words4 r2 = *(const words4 *)(at + 2 * stride), r3 = *(const words4 *)(at + 3 * stride);
            for (int64_t r = 0; r < 4; ++r)
                __builtin_prefetch(at + r * stride + ahead);
            words4 a = __builtin_shufflevector(r0, r1, 0, 4, 2, 6), b = __builtin_shufflevector(r0, r1, 1, 5, 3, 7);
            words4 c = __builtin_shufflevector(r2, r3, 0, 4, 2, 6), d = __builtin_shufflevector(r2, r3, 1, 5, 3, 7);
            uint8_t *into = to + (j * rows + i) * 8;
            *(words4 *)into = __builtin_shufflevector(a, c, 0, 1, 4, 5);
            *(words4 *)(into + rows * 8) = __builtin_shufflevector(b, d, 0, 1, 4, 5);
            *(words4 *)(into + rows * 16) = __builtin_shufflevector(a, c, 2, 3, 6, 7);
            *(words4 *)(into + rows * 24) = __builtin_shufflevector(b, d, 2, 3, 6, 7);
        }
}

/* How many turns of the third innermost loop lie between a read and the prefetch of it. */
enum { TURNS_AHEAD = 4 };

/* Gathers with `gather_columns` what it can of the next `count` bytes and returns how many those were. */
static uint64_t gather_matrix(uint8_t *to, sim_cursor *cursor, uint64_t count) {
    const sim_pattern *pattern = cursor->pattern;
    uint32_t dims = pattern->dims;
    if (pattern->run != 8 || dims < 2 || pattern->dim[dims - 2].stride != 8 || pattern->dim[dims - 1].size % 4 ||
        cursor->in_run || cursor->index[dims - 1])
        return 0;
    uint64_t rows = pattern->dim[dims - 1].size;
    uint64_t columns = pattern->dim[dims - 2].size - cursor->index[dims - 2];
    if (columns > count / (rows * 8))
        columns = count / (rows * 8);
    columns -= columns % 4;
    if (!columns)
        return 0;
    int64_t ahead = dims > 2 ? TURNS_AHEAD * pattern->dim[dims - 3].stride : 8 * (int64_t)columns;
    gather_columns(to, cursor_here(cursor), rows, pattern->dim[dims - 1].stride, columns, ahead);
    cursor->index[dims - 2] += columns;
    cursor->at += 8 * (int64_t)columns;
    if (cursor->index[dims - 2] == pattern->dim[dims - 2].size) {
        cursor->at -= 8 * (int64_t)pattern->dim[dims - 2].size;
        cursor->index[dims - 2] = 0;
        cursor_carry(cursor, dims - 2);
    }
    return columns * rows * 8;
}

static __attribute__((noinline)) void gather(uint8_t *to, sim_cursor *cursor, uint64_t count) {
    uint64_t run_bytes = cursor->pattern->run;
    while (count) {
        uint64_t fast = gather_matrix(to, cursor, count);
        if (fast) {
            to += fast;
            count -= fast;
            continue;
        }
        if (!cursor->in_run && cursor->pattern->dims && count >= run_bytes) {
            const uint8_t *from = cursor_here(cursor);
            int64_t stride;
            uint64_t runs = cursor_runs(cursor, count, &stride);
            copy_runs(to, (int64_t)run_bytes, from, stride, run_bytes, runs);
            to += runs * run_bytes;
            count -= runs * run_bytes;
        } else {
            uint64_t part = cursor_run(cursor) < count ? cursor_run(cursor) : count;
            copy_bytes(to, cursor_here(cursor), part);
            cursor_skip(cursor, part);
            to += part;
            count -= part;
        }
    }
}

static __attribute__((noinline)) void scatter(sim_cursor *cursor, const uint8_t *from, uint64_t count) {
    uint64_t run_bytes = cursor->pattern->run;
    while (count) {
        if (!cursor->in_run && cursor->pattern->dims && count >= run_bytes) {
            uint8_t *to = cursor_here(cursor);
            int64_t stride;
            uint64_t runs = cursor_runs(cursor, count, &stride);
            copy_runs(to, stride, from, (int64_t)run_bytes, run_bytes, runs);
            from += runs * run_bytes;
            count -= runs * run_bytes;
        } else {
            uint64_t part = cursor_run(cursor) < count ? cursor_run(cursor) : count;
            copy_bytes(cursor_here(cursor), from, part);
            cursor_skip(cursor, part);
            from += part;
            count -= part;
        }
    }
}

/* Sets bits [from, from + count) and returns the first that was set already, or -1. */
static int64_t mark_bits(uint64_t *bits, uint64_t from, uint64_t count) {
    while (count) {
        uint64_t shift = from % 64;
        uint64_t part = 64 - shift < count ? 64 - shift : count;
        uint64_t mask = (part == 64 ? ~(uint64_t)0 : ((uint64_t)1 << part) - 1) << shift;
        uint64_t twice = bits[from / 64] & mask;
        if (twice)
            return (int64_t)(from - shift + (uint64_t)__builtin_ctzll(twice));
        bits[from / 64] |= mask;
        from += part;
        count -= part;
    }
    return -1;
}

/* Returns the first bit of [from, from + count) that is not set, or -1. */
static int64_t first_unset(const uint64_t *bits, uint64_t from, uint64_t count) {
    while (count) {
        uint64_t shift = from % 64;
        uint64_t part = 64 - shift < count ? 64 - shift : count;
        uint64_t mask = (part == 64 ? ~(uint64_t)0 : ((uint64_t)1 << part) - 1) << shift;
        uint64_t unset = ~bits[from / 64] & mask;
        if (unset)
            return (int64_t)(from - shift + (uint64_t)__builtin_ctzll(unset));
        from += part;
        count -= part;
    }
    return -1;
}

/* Applies `mark_bits` or `first_unset` to the next `count` bytes of a cursor over an argument of the host. */
static int64_t check_bits(sim_cursor cursor, uint64_t count, bool mark) {
    while (count) {
        uint64_t part = cursor_run(&cursor) < count ? cursor_run(&cursor) : count;
        uint64_t from = (uint64_t)(cursor_here(&cursor) - cursor.base);
        int64_t found = mark ? mark_bits(DESIGN->written, from, part) : first_unset(DESIGN->written, from, part);
        if (found >= 0)
            return found;
        cursor_skip(&cursor, part);
        count -= part;
    }
    return -1;
}
