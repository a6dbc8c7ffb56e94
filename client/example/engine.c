/* A small engine: opens a model's whole ELF set through elfkiln.h and prints what it would run.
 *
 * Copyright 2026 the elfkiln authors
 * SPDX-License-Identifier: Apache-2.0
 *
 *     zig cc -std=c11 -O2 -I client client/example/engine.c -o engine
 *     ./engine models/bonsai2-27b target=npu2 [kernels=DIR] [policy=FILE] [plan=none] [sha256=portable] [--json]
 *
 * It serves nothing before every name of the plan is there and right: one gap ends it, as it should an engine. Exit
 * codes are elfkiln's: 0 done, 1 an ELF is missing, differs or is not vouched for, 2 something else was refused.
 */
#define ELFKILN_IMPLEMENTATION
#include "elfkiln.h"

#include <stdio.h>

static int refuse(const elfkiln_error *error)
{
    fprintf(stderr, "engine: %s\n", error->text);
    if (error->detail[0]) {
        fprintf(stderr, "  %s\n", error->detail);
    }
    return (error->status >= ELFKILN_MISSING && error->status <= ELFKILN_NOT_LISTED) ||
                   error->status == ELFKILN_UNSIGNED || error->status == ELFKILN_UNTRUSTED
               ? 1
               : 2;
}

/* A string as JSON has it; folders may hold quotes and more. */
static void print_string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            printf("\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            printf("\\u%04x", (unsigned)*text);
        } else {
            putchar(*text);
        }
    }
    putchar('"');
}

static void print_row(const elfkiln_name *name, const elfkiln_artifact *elf, int json, int first)
{
    char digest[65];
    elfkiln_hex(elf->digest, digest);
    if (json) {
        printf("%s{\"name\": \"%s\", \"folder\": ", first ? "" : ", ", name->name);
        print_string(elf->folder);
        printf(", \"role\": \"%s\", \"K\": %d, \"N\": %d, \"M\": %d, \"launches\": %u, ", name->role, (int)name->K,
               (int)name->N, (int)name->rows, (unsigned)name->launches);
        printf("\"bytes\": %zu, \"sha256\": \"%s\"}", elf->size, digest);
    } else if (name->rows) {
        printf("%-7s M=%-3d K=%-6d N=%-6d %4u launches  sha256:%s  %s/%s\n", name->role, (int)name->rows, (int)name->K,
               (int)name->N, (unsigned)name->launches, digest, elf->folder, name->name);
    } else {
        printf("%-7s %33u launches  sha256:%s  %s/%s\n", name->role[0] ? name->role : "-", (unsigned)name->launches,
               digest, elf->folder, name->name);
    }
}

int main(int count, char **words)
{
    /* An engine keeps its artifacts: XRT is given their bytes, and the digests go into its log. */
    enum { MOST = 64 };
    elfkiln_artifact elfs[MOST];
    elfkiln_options options = {0};
    elfkiln_error error;
    elfkiln_set *set;
    size_t opened = 0, bytes = 0, i;
    int json = 0, code = 0, word;
    for (word = 1; word < count; word++) {
        const char *text = words[word];
        if (strncmp(text, "target=", 7) == 0) {
            options.target = text + 7;
        } else if (strncmp(text, "kernels=", 8) == 0) {
            options.kernels_dir = text + 8;
        } else if (strncmp(text, "policy=", 7) == 0) {
            options.policy_path = text + 7;
        } else if (strcmp(text, "plan=none") == 0) {
            options.without_plan = 1;
        } else if (strcmp(text, "sha256=portable") == 0) {
            options.portable_sha256 = 1;
        } else if (strcmp(text, "--json") == 0) {
            json = 1;
        } else if (!options.model_dir && text[0] != '-') {
            options.model_dir = text;
        } else {
            fprintf(stderr, "engine: unknown word %s\n", text);
            return 2;
        }
    }
    if (elfkiln_open(&options, &set, &error) != ELFKILN_OK) {
        return refuse(&error);
    }
    while (opened < elfkiln_count(set) && code == 0) {
        if (opened == MOST) {
            fprintf(stderr, "engine: more than %d names\n", (int)MOST);
            code = 2;
        } else if (elfkiln_get(set, elfkiln_at(set, opened)->name, &elfs[opened], &error) != ELFKILN_OK) {
            code = refuse(&error);
        } else {
            bytes += elfs[opened++].size;
        }
    }
    if (code == 0) {
        printf("%s", json ? "{\"elfs\": [" : "");
        for (i = 0; i < opened; i++) {
            print_row(elfkiln_at(set, i), &elfs[i], json, i == 0);
        }
        printf(json ? "], \"bytes\": %zu}\n" : "%zu bytes, all as kernels.lock.json lists them\n", bytes);
    }
    for (i = 0; i < opened; i++) {
        elfkiln_release(&elfs[i]);
    }
    elfkiln_close(set);
    return code;
}
