/* Many threads on one set: every one gets every name again and again, and names that are not there.
 *
 * Copyright 2026 the elfkiln authors
 * SPDX-License-Identifier: Apache-2.0
 *
 *     threads MODEL_DIR TARGET [ROUNDS]     the folder's set must be whole
 *
 * Build it with -fsanitize=thread (client/checks/client_checks.py does) to see data races; without, it still compares
 * what each thread was given.
 */
#define ELFKILN_IMPLEMENTATION
#include "elfkiln.h"

#include <pthread.h>
#include <stdio.h>

enum { THREADS = 8 };

static const elfkiln_set *set;
static unsigned long rounds = 20;

/* Return NULL when all went well, else what went wrong. */
static void *work(void *start)
{
    size_t count = elfkiln_count(set), i;
    unsigned long round;
    for (round = 0; round < rounds; round++) {
        for (i = 0; i < count; i++) {
            elfkiln_artifact one, other;
            elfkiln_error error;
            const char *name = elfkiln_at(set, (i + *(const size_t *)start) % count)->name;
            if (elfkiln_get(set, name, &one, &error) || elfkiln_get(set, name, &other, NULL)) {
                return (void *)"a name was not there";
            }
            if (one.bytes == other.bytes || one.size != other.size || memcmp(one.bytes, other.bytes, one.size) != 0) {
                return (void *)"two copies of one ELF differ or are the same";
            }
            elfkiln_release(&one);
            elfkiln_release(&other);
            if (elfkiln_get(set, "full_i8_D_K1_N1.elf", &one, &error) == ELFKILN_OK || !error.text[0]) {
                return (void *)"a name was there that cannot be";
            }
        }
    }
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    size_t starts[THREADS], i;
    elfkiln_options options = {0};
    elfkiln_error error;
    elfkiln_set *opened;
    void *wrong;
    int code = 0;
    if (count < 3) {
        fprintf(stderr, "usage: threads MODEL_DIR TARGET [ROUNDS]\n");
        return 2;
    }
    options.model_dir = words[1];
    options.target = words[2];
    rounds = count > 3 ? strtoul(words[3], NULL, 10) : rounds;
    if (elfkiln_open(&options, &opened, &error) != ELFKILN_OK) {
        fprintf(stderr, "threads: %s\n", error.text);
        return 2;
    }
    set = opened;
    for (i = 0; i < THREADS; i++) {
        starts[i] = i;
        if (pthread_create(&threads[i], NULL, work, &starts[i]) != 0) {
            fprintf(stderr, "threads: no thread\n");
            return 2;
        }
    }
    for (i = 0; i < THREADS; i++) {
        if (pthread_join(threads[i], &wrong) != 0 || wrong) {
            fprintf(stderr, "threads: %s\n", wrong ? (const char *)wrong : "no join");
            code = 1;
        }
    }
    printf("%d threads, %lu rounds over %zu names\n", (int)THREADS, rounds, elfkiln_count(set));
    elfkiln_close(opened);
    return code;
}
