/* elfkiln.h: what an engine links to resolve, verify and open the kernel ELFs that elfkiln installed.
 *
 * Copyright 2026 the elfkiln authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance with
 * the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0. Unless required by
 * applicable law or agreed to in writing, software distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific language
 * governing permissions and limitations under the License.
 *
 * One header, C11 or C++17, POSIX, nothing to link. In exactly one file, before any other include:
 *
 *     #define ELFKILN_IMPLEMENTATION
 *     #include "elfkiln.h"
 *
 * and everywhere else the include alone. Then:
 *
 *     elfkiln_options options = {0};
 *     options.model_dir = "models/bonsai2-27b";
 *     options.target = "npu2";
 *     elfkiln_error error;
 *     elfkiln_set *set;
 *     if (elfkiln_open(&options, &set, &error) != ELFKILN_OK) { puts(error.text); exit(1); }
 *     elfkiln_artifact elf;
 *     if (elfkiln_get(set, "full_i8_D_K17408_N5120_b8.elf", &elf, &error) != ELFKILN_OK) { puts(error.text); exit(1); }
 *     ... elf.bytes, elf.size, elf.digest ...
 *     elfkiln_release(&elf);
 *     elfkiln_close(set);
 *
 * There is no fallback: a name is answered with the bytes that kernels.lock.json lists, from the file the engine itself
 * would open, or with an error. docs/client.md of elfkiln has the whole contract: files, threads, errors, signatures,
 * and what is not checked.
 */
#ifndef ELFKILN_H
#define ELFKILN_H

#if defined(ELFKILN_IMPLEMENTATION)
/* mmap's MAP_ANONYMOUS is not in plain POSIX; a strict -std=c11 needs it asked for before the first system header. */
#if !defined(_DEFAULT_SOURCE)
#if defined(ELFKILN_IMPLEMENTATION) && defined(_FEATURES_H) && !defined(_GNU_SOURCE) && !defined(_BSD_SOURCE)
/* A header before this one settled what the C library shows, and asked for plain C only. */
#error "elfkiln.h: include it with ELFKILN_IMPLEMENTATION before any other header, or define _DEFAULT_SOURCE"
#endif
#define _DEFAULT_SOURCE 1
#endif
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#endif

#include <stddef.h>
#include <stdint.h>

#define ELFKILN_NAME_BYTES 64    /* a file name with its closing NUL: the engine's own buffer */
#define ELFKILN_DIGEST_BYTES 32  /* sha256 */
#define ELFKILN_TEXT_BYTES 4352  /* a path and the words around it */
#define ELFKILN_DETAIL_BYTES 1024

#ifdef __cplusplus
#define ELFKILN_NOEXCEPT noexcept
extern "C" {
#else
#define ELFKILN_NOEXCEPT
#endif

/* What came of a call. The numbers are part of the interface and never change their meaning. */
typedef enum elfkiln_status {
    ELFKILN_OK = 0,
    ELFKILN_MISSING = 1,       /* no file in any directory the engine looks in has the name and a byte */
    ELFKILN_NOT_A_FILE = 2,    /* the same, and a folder, pipe, device or dangling link has the name */
    ELFKILN_STUB = 3,          /* the file is smaller than any kernel ELF */
    ELFKILN_WRONG_BYTES = 4,   /* size or sha256 differ from kernels.lock.json */
    ELFKILN_SHADOWED = 5,      /* the same, and the right file lies in a later directory */
    ELFKILN_NOT_LISTED = 6,    /* kernels.lock.json has no digest for the name, or two */
    ELFKILN_BAD_NAME = 7,      /* not a file name, or one the plan does not ask for */
    ELFKILN_WRONG_TARGET = 8,  /* the installed set is another target's, or another model's */
    ELFKILN_BAD_LOCK = 9,      /* kernels.lock.json is absent or refused */
    ELFKILN_BAD_PLAN = 10,     /* plan.json or decision_config.json is absent or refused */
    ELFKILN_BAD_POLICY = 11,   /* the policy is absent or refused */
    ELFKILN_UNSIGNED = 12,     /* a policy was given, and there is no kernels.lock.intoto.jsonl */
    ELFKILN_UNTRUSTED = 13,    /* there is one, and it does not satisfy the policy */
    ELFKILN_BAD_OPTIONS = 14,  /* the call itself is wrong */
    ELFKILN_SYSTEM = 15        /* the operating system refused; `system` is its errno */
} elfkiln_status;

/* One line for a person (`text`) and, where there is more to say, a second one (`detail`). For whatever is wrong with
 * an ELF the first is the engine's own `missing full ELF <path>`, and the second begins with the word of the status.
 * Both are ended by NUL, fit a terminal (what does not print is escaped), and are empty after ELFKILN_OK. */
typedef struct elfkiln_error {
    elfkiln_status status;
    int system;
    char text[ELFKILN_TEXT_BYTES];
    char detail[ELFKILN_DETAIL_BYTES];
} elfkiln_error;

/* What to open. All strings are the caller's and may go away after elfkiln_open. Start from {0}. */
typedef struct elfkiln_options {
    const char *model_dir;   /* needed: the folder with kernels.lock.json, and plan.json beside it */
    const char *target;      /* needed: "npu2" or "sim", what the lock must have been installed for */
    const char *kernels_dir; /* the engine's --kernels directory; NULL: `kernels` in the model folder */
    const char *model;       /* NULL, or the model that one of the lock's sets must be of */
    int without_plan;        /* 1: the folder has no plan.json, and the engine's probes decide where it looks */
    const char *policy_path; /* NULL, or a policy file: kernels.lock.json must then be signed as it says */
    const void *policy;      /* NULL, or the same as bytes, for an engine that carries its policy */
    size_t policy_size;
    int64_t now;             /* 0, or seconds since 1970 to compare expiry dates with in place of the clock */
    int portable_sha256;     /* 1: do not use the processor's SHA extensions */
} elfkiln_options;

/* One file the engine will ask for. `rows` is M: 128, 16 for a decode twin, 0 for a sealed ELF (whose role is "").
 * `launches` counts the projections of the plan that run it; without a plan, role "" and zeros. */
typedef struct elfkiln_name {
    char name[ELFKILN_NAME_BYTES];
    char role[8];
    int32_t K, N, rows;
    uint32_t launches;
} elfkiln_name;

/* A verified ELF. `bytes` are a private copy in pages of its own, read-only, and stay as they are whatever happens to
 * the file. `folder` and `name` say where it was found and belong to the set. */
typedef struct elfkiln_artifact {
    const unsigned char *bytes;
    size_t size;
    unsigned char digest[ELFKILN_DIGEST_BYTES];
    const char *folder;
    const char *name;
} elfkiln_artifact;

typedef struct elfkiln_set elfkiln_set; /* an opened model folder; constant once opened */

/* Read kernels.lock.json and plan.json (and the policy and the signatures, if asked for). On ELFKILN_OK `*set` is to be
 * closed with elfkiln_close, else it is NULL. `error` may be NULL. No ELF is opened. */
elfkiln_status elfkiln_open(const elfkiln_options *options, elfkiln_set **set,
                            elfkiln_error *error) ELFKILN_NOEXCEPT;
/* Free a set; NULL is let be. Artifacts keep their bytes, but their `folder` and `name` end. */
void elfkiln_close(elfkiln_set *set) ELFKILN_NOEXCEPT;

/* The names the plan asks for, in its order: prefill set, twins, sealed ELF. Without a plan: those of the lock. */
size_t elfkiln_count(const elfkiln_set *set) ELFKILN_NOEXCEPT;
/* The name at a position below elfkiln_count, NULL beyond. */
const elfkiln_name *elfkiln_at(const elfkiln_set *set, size_t position) ELFKILN_NOEXCEPT;

/* Find the file the engine would open for a name, map it, hash it, compare, and hand it out. On anything but ELFKILN_OK
 * `*artifact` is empty. `error` may be NULL. Any number of threads may call it on one set at once. */
elfkiln_status elfkiln_get(const elfkiln_set *set, const char *name, elfkiln_artifact *artifact,
                           elfkiln_error *error) ELFKILN_NOEXCEPT;
/* Unmap an artifact's bytes and empty it; an empty one is let be. */
void elfkiln_release(elfkiln_artifact *artifact) ELFKILN_NOEXCEPT;

/* The name of a status for logs and JSON: "missing", "wrong bytes", ... */
const char *elfkiln_word(elfkiln_status status) ELFKILN_NOEXCEPT;
/* Write a digest as 64 hex digits and a NUL. */
void elfkiln_hex(const unsigned char digest[ELFKILN_DIGEST_BYTES], char text[65]) ELFKILN_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */

/* The same for C++17: owners that move and do not copy. Nothing is thrown and no library is needed, so that it serves
 * engines built without exceptions as well; a failed call leaves an object that is false. */
namespace elfkiln {

using Options = elfkiln_options;
using Error = elfkiln_error;
using Name = elfkiln_name;

class Artifact {
public:
    Artifact() noexcept = default;
    Artifact(Artifact &&other) noexcept : held_(other.held_) { other.held_ = elfkiln_artifact{}; }
    Artifact &operator=(Artifact &&other) noexcept {
        if (this != &other) {
            elfkiln_release(&held_);
            held_ = other.held_;
            other.held_ = elfkiln_artifact{};
        }
        return *this;
    }
    Artifact(const Artifact &) = delete;
    Artifact &operator=(const Artifact &) = delete;
    ~Artifact() { elfkiln_release(&held_); }

    explicit operator bool() const noexcept { return held_.bytes != nullptr; }
    const unsigned char *data() const noexcept { return held_.bytes; }
    size_t size() const noexcept { return held_.size; }
    const unsigned char *begin() const noexcept { return held_.bytes; }
    const unsigned char *end() const noexcept { return held_.bytes + held_.size; }
    const unsigned char *digest() const noexcept { return held_.digest; }
    const char *folder() const noexcept { return held_.folder; }
    const char *name() const noexcept { return held_.name; }

private:
    friend class Set;
    elfkiln_artifact held_{};
};

class Set {
public:
    Set() noexcept = default;
    explicit Set(const Options &options, Error *error = nullptr) noexcept { elfkiln_open(&options, &held_, error); }
    Set(Set &&other) noexcept : held_(other.held_) { other.held_ = nullptr; }
    Set &operator=(Set &&other) noexcept {
        if (this != &other) {
            elfkiln_close(held_);
            held_ = other.held_;
            other.held_ = nullptr;
        }
        return *this;
    }
    Set(const Set &) = delete;
    Set &operator=(const Set &) = delete;
    ~Set() { elfkiln_close(held_); }

    explicit operator bool() const noexcept { return held_ != nullptr; }
    size_t size() const noexcept { return elfkiln_count(held_); }
    const Name &operator[](size_t position) const noexcept { return *elfkiln_at(held_, position); }
    [[nodiscard]] Artifact get(const char *name, Error *error = nullptr) const noexcept {
        Artifact artifact;
        elfkiln_get(held_, name, &artifact.held_, error);
        return artifact;
    }

private:
    elfkiln_set *held_ = nullptr;
};

} /* namespace elfkiln */
#endif /* __cplusplus */
#endif /* ELFKILN_H */

#if defined(ELFKILN_IMPLEMENTATION) && !defined(ELFKILN_IMPLEMENTED)
#define ELFKILN_IMPLEMENTED

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Memory for elfkiln_open; elfkiln_get takes none. Define both or none. */
#if !defined(ELFKILN_MALLOC)
#define ELFKILN_MALLOC(size) malloc(size)
#define ELFKILN_FREE(memory) free(memory)
#endif

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define EK_SHA_NI 1
#include <cpuid.h>
#include <immintrin.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EK_FILE_BYTES = 1 << 20,       /* of a plan, a decision or a policy */
    EK_LOCK_BYTES = 1 << 24,       /* of kernels.lock.json, and of its signatures */
    EK_ELF_BYTES = 1 << 28,        /* of an ELF */
    EK_LEAST_ELF_BYTES = 4096,     /* stubs of 59 bytes under geometry names were a real fault */
    EK_PATH_BYTES = 4096,
    EK_DEPTH = 64,                 /* nesting of JSON */
    EK_INT_DIGITS = 4300,          /* of a JSON whole number: Python reads no longer one */
    EK_LAYERS = 64,                /* Q4NX_MAX_LAYERS */
    EK_DESIGNS = 12,               /* Q4NX_MAX_DESIGNS */
    EK_DIRECTORIES = 64,           /* of decode.dirs */
    EK_KEYS = 32,                  /* of a policy: one bit each */
    EK_RULES = 32,
    EK_ENVELOPES = 64,             /* of a signature file */
    EK_SIGNATURES = 8              /* of an envelope */
};

static const char ek_lock_name[] = "kernels.lock.json";
static const char ek_bundle_name[] = "kernels.lock.intoto.jsonl";
static const char ek_plan_name[] = "plan.json";
static const char ek_decision_name[] = "decision_config.json";

/* ---- text: what goes into an error, escaped and cut to the buffer ------------------------------------------------ */

typedef struct ek_text {
    char *at;
    size_t room; /* bytes left, the closing NUL among them */
} ek_text;

static void ek_char(ek_text *text, char c)
{
    if (text->room > 1) {
        *text->at++ = c;
        text->room -= 1;
        *text->at = '\0';
    }
}

static void ek_say(ek_text *text, const char *words)
{
    while (*words) {
        ek_char(text, *words++);
    }
}

static void ek_say_number(ek_text *text, uint64_t number)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count) {
        ek_char(text, digits[--count]);
    }
}

/* The length of the UTF-8 sequence that begins at `s`, 0 where none does. Surrogates, overlong forms and
 * numbers beyond U+10FFFF are none. */
static size_t ek_utf8(const unsigned char *s, size_t size)
{
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    size_t i;
    if (length == 0 || length > size) {
        return 0;
    }
    for (i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f)) {
        return 0;
    }
    return length;
}

/* Whether a sequence would move the cursor or break the line of a terminal: C1 controls, and U+2028 and U+2029. */
static int ek_is_control(const unsigned char *s, size_t length)
{
    return length == 1 ? s[0] < 0x20 || s[0] == 0x7f
                       : (length == 2 && s[0] == 0xc2 && s[1] < 0xa0) ||
                             (length == 3 && s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9));
}

/* Bytes from outside: at most `limit` of them, what does not print as \xNN. */
static void ek_show(ek_text *text, const char *bytes, size_t size, size_t limit)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)bytes;
    size_t i = 0;
    while (i < size && i < limit) {
        size_t length = ek_utf8(s + i, size - i), step;
        if (length > 0 && !ek_is_control(s + i, length)) {
            for (step = 0; step < length; step++) {
                ek_char(text, (char)s[i + step]);
            }
            i += length;
        } else {
            ek_say(text, "\\x");
            ek_char(text, hex[s[i] >> 4]);
            ek_char(text, hex[s[i] & 15]);
            i += 1;
        }
    }
    if (i < size) {
        ek_say(text, "...");
    }
}

static void ek_show_path(ek_text *text, const char *path)
{
    ek_show(text, path, strlen(path), EK_PATH_BYTES);
}

static void ek_clear(elfkiln_error *error)
{
    error->status = ELFKILN_OK;
    error->system = 0;
    error->text[0] = '\0';
    error->detail[0] = '\0';
}

static ek_text ek_begin(elfkiln_error *error, elfkiln_status status)
{
    ek_text text;
    error->status = status;
    text.at = error->text;
    text.room = sizeof error->text;
    error->text[0] = '\0';
    return text;
}

static ek_text ek_begin_detail(elfkiln_error *error)
{
    ek_text text;
    text.at = error->detail;
    text.room = sizeof error->detail;
    error->detail[0] = '\0';
    return text;
}

/* strerror is not safe in every libc with threads, and strerror_r has two forms: the number says it. */
static elfkiln_status ek_system(elfkiln_error *error, const char *path, int number)
{
    ek_text text = ek_begin(error, ELFKILN_SYSTEM);
    error->system = number;
    ek_show_path(&text, path);
    ek_say(&text, ": the operating system refused it, errno ");
    ek_say_number(&text, (uint64_t)(number < 0 ? 0 : number));
    return ELFKILN_SYSTEM;
}

static elfkiln_status ek_plain(elfkiln_error *error, elfkiln_status status, const char *subject, const char *words)
{
    ek_text text = ek_begin(error, status);
    ek_show_path(&text, subject);
    ek_say(&text, words);
    return status;
}

/* ---- sha256 and sha512 (FIPS 180-4) ------------------------------------------------------------------------------ */

static const uint32_t ek_k256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static const uint64_t ek_k512[80] = {
    UINT64_C(0x428a2f98d728ae22), UINT64_C(0x7137449123ef65cd), UINT64_C(0xb5c0fbcfec4d3b2f),
    UINT64_C(0xe9b5dba58189dbbc), UINT64_C(0x3956c25bf348b538), UINT64_C(0x59f111f1b605d019),
    UINT64_C(0x923f82a4af194f9b), UINT64_C(0xab1c5ed5da6d8118), UINT64_C(0xd807aa98a3030242),
    UINT64_C(0x12835b0145706fbe), UINT64_C(0x243185be4ee4b28c), UINT64_C(0x550c7dc3d5ffb4e2),
    UINT64_C(0x72be5d74f27b896f), UINT64_C(0x80deb1fe3b1696b1), UINT64_C(0x9bdc06a725c71235),
    UINT64_C(0xc19bf174cf692694), UINT64_C(0xe49b69c19ef14ad2), UINT64_C(0xefbe4786384f25e3),
    UINT64_C(0x0fc19dc68b8cd5b5), UINT64_C(0x240ca1cc77ac9c65), UINT64_C(0x2de92c6f592b0275),
    UINT64_C(0x4a7484aa6ea6e483), UINT64_C(0x5cb0a9dcbd41fbd4), UINT64_C(0x76f988da831153b5),
    UINT64_C(0x983e5152ee66dfab), UINT64_C(0xa831c66d2db43210), UINT64_C(0xb00327c898fb213f),
    UINT64_C(0xbf597fc7beef0ee4), UINT64_C(0xc6e00bf33da88fc2), UINT64_C(0xd5a79147930aa725),
    UINT64_C(0x06ca6351e003826f), UINT64_C(0x142929670a0e6e70), UINT64_C(0x27b70a8546d22ffc),
    UINT64_C(0x2e1b21385c26c926), UINT64_C(0x4d2c6dfc5ac42aed), UINT64_C(0x53380d139d95b3df),
    UINT64_C(0x650a73548baf63de), UINT64_C(0x766a0abb3c77b2a8), UINT64_C(0x81c2c92e47edaee6),
    UINT64_C(0x92722c851482353b), UINT64_C(0xa2bfe8a14cf10364), UINT64_C(0xa81a664bbc423001),
    UINT64_C(0xc24b8b70d0f89791), UINT64_C(0xc76c51a30654be30), UINT64_C(0xd192e819d6ef5218),
    UINT64_C(0xd69906245565a910), UINT64_C(0xf40e35855771202a), UINT64_C(0x106aa07032bbd1b8),
    UINT64_C(0x19a4c116b8d2d0c8), UINT64_C(0x1e376c085141ab53), UINT64_C(0x2748774cdf8eeb99),
    UINT64_C(0x34b0bcb5e19b48a8), UINT64_C(0x391c0cb3c5c95a63), UINT64_C(0x4ed8aa4ae3418acb),
    UINT64_C(0x5b9cca4f7763e373), UINT64_C(0x682e6ff3d6b2b8a3), UINT64_C(0x748f82ee5defb2fc),
    UINT64_C(0x78a5636f43172f60), UINT64_C(0x84c87814a1f0ab72), UINT64_C(0x8cc702081a6439ec),
    UINT64_C(0x90befffa23631e28), UINT64_C(0xa4506cebde82bde9), UINT64_C(0xbef9a3f7b2c67915),
    UINT64_C(0xc67178f2e372532b), UINT64_C(0xca273eceea26619c), UINT64_C(0xd186b8c721c0c207),
    UINT64_C(0xeada7dd6cde0eb1e), UINT64_C(0xf57d4f7fee6ed178), UINT64_C(0x06f067aa72176fba),
    UINT64_C(0x0a637dc5a2c898a6), UINT64_C(0x113f9804bef90dae), UINT64_C(0x1b710b35131c471b),
    UINT64_C(0x28db77f523047d84), UINT64_C(0x32caab7b40c72493), UINT64_C(0x3c9ebe0a15c9bebc),
    UINT64_C(0x431d67c49c100d4c), UINT64_C(0x4cc5d4becb3e42b6), UINT64_C(0x597f299cfc657e2a),
    UINT64_C(0x5fcb6fab3ad6faec), UINT64_C(0x6c44198c4a475817)
};

static uint32_t ek_load32(const unsigned char *s)
{
    return (uint32_t)s[0] << 24 | (uint32_t)s[1] << 16 | (uint32_t)s[2] << 8 | (uint32_t)s[3];
}

static void ek_store32(unsigned char *s, uint32_t v)
{
    s[0] = (unsigned char)(v >> 24);
    s[1] = (unsigned char)(v >> 16);
    s[2] = (unsigned char)(v >> 8);
    s[3] = (unsigned char)v;
}

static uint32_t ek_turn32(uint32_t v, int by)
{
    return v >> by | v << (32 - by);
}

static uint64_t ek_turn64(uint64_t v, int by)
{
    return v >> by | v << (64 - by);
}

/* One round, and eight of them: after eight every letter is in its place again, so that nothing is moved about. */
#define EK_ROUND(a, b, c, d, e, f, g, h, i)                                                                   \
    do {                                                                                                      \
        h += (ek_turn32(e, 6) ^ ek_turn32(e, 11) ^ ek_turn32(e, 25)) + ((e & (f ^ g)) ^ g) + ek_k256[i] + w[i]; \
        d += h;                                                                                               \
        h += (ek_turn32(a, 2) ^ ek_turn32(a, 13) ^ ek_turn32(a, 22)) + ((a & b) | (c & (a | b)));             \
    } while (0)

static void ek_sha256_portable(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    uint32_t w[64];
    for (; blocks; blocks--, data += 64) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        size_t i;
        for (i = 0; i < 16; i++) {
            w[i] = ek_load32(data + 4 * i);
        }
        for (; i < 64; i++) {
            uint32_t x = w[i - 15], y = w[i - 2];
            w[i] = w[i - 16] + (ek_turn32(x, 7) ^ ek_turn32(x, 18) ^ x >> 3) + w[i - 7] +
                   (ek_turn32(y, 17) ^ ek_turn32(y, 19) ^ y >> 10);
        }
        for (i = 0; i < 64; i += 8) {
            EK_ROUND(a, b, c, d, e, f, g, h, i);
            EK_ROUND(h, a, b, c, d, e, f, g, i + 1);
            EK_ROUND(g, h, a, b, c, d, e, f, i + 2);
            EK_ROUND(f, g, h, a, b, c, d, e, i + 3);
            EK_ROUND(e, f, g, h, a, b, c, d, i + 4);
            EK_ROUND(d, e, f, g, h, a, b, c, i + 5);
            EK_ROUND(c, d, e, f, g, h, a, b, i + 6);
            EK_ROUND(b, c, d, e, f, g, h, a, i + 7);
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}
#undef EK_ROUND

#if defined(EK_SHA_NI)
/* Four rounds: `w` holds their message words. The low half of `w + k` serves two rounds, the high half two more. */
#define EK_ROUNDS(w, i)                                                                                     \
    do {                                                                                                    \
        __m128i sum = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(const void *)(ek_k256 + 4 * (i)))); \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);                                                      \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));                             \
    } while (0)
/* The next four message words into `a`, from the sixteen before: a, b, c, d, oldest first. */
#define EK_SCHEDULE(a, b, c, d) \
    a = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4)), d)

__attribute__((target("sha,sse4.1,ssse3"))) static void ek_sha256_ni(uint32_t state[8], const unsigned char *data,
                                                                      size_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(abcd, efgh, 8), cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
    for (; blocks; blocks--, data += 64) {
        const __m128i *in = (const __m128i *)(const void *)data;
        __m128i before = abef, before2 = cdgh;
        __m128i a = _mm_shuffle_epi8(_mm_loadu_si128(in), swap), b = _mm_shuffle_epi8(_mm_loadu_si128(in + 1), swap);
        __m128i c = _mm_shuffle_epi8(_mm_loadu_si128(in + 2), swap);
        __m128i d = _mm_shuffle_epi8(_mm_loadu_si128(in + 3), swap);
        int i;
        EK_ROUNDS(a, 0);
        EK_ROUNDS(b, 1);
        EK_ROUNDS(c, 2);
        EK_ROUNDS(d, 3);
        for (i = 4; i < 16; i += 4) {
            EK_SCHEDULE(a, b, c, d);
            EK_ROUNDS(a, i);
            EK_SCHEDULE(b, c, d, a);
            EK_ROUNDS(b, i + 1);
            EK_SCHEDULE(c, d, a, b);
            EK_ROUNDS(c, i + 2);
            EK_SCHEDULE(d, a, b, c);
            EK_ROUNDS(d, i + 3);
        }
        abef = _mm_add_epi32(abef, before);
        cdgh = _mm_add_epi32(cdgh, before2);
    }
    abcd = _mm_shuffle_epi32(abef, 0x1b);
    efgh = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(abcd, efgh, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(efgh, abcd, 8));
}
#undef EK_ROUNDS
#undef EK_SCHEDULE
#endif

/* Whether this processor has the SHA extensions (and the SSSE3 and SSE4.1 that go with their use). */
static int ek_has_sha(void)
{
#if defined(EK_SHA_NI)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 9) || !(c & 1u << 19)) {
        return 0;
    }
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
#else
    return 0;
#endif
}

typedef struct ek_sha256 {
    uint32_t state[8];
    uint64_t total;
    unsigned char tail[64];
    int sha; /* use the SHA extensions */
} ek_sha256;

static void ek_sha256_begin(ek_sha256 *hash, int sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->total = 0;
    hash->sha = sha;
}

static void ek_sha256_blocks(ek_sha256 *hash, const unsigned char *data, size_t blocks)
{
#if defined(EK_SHA_NI)
    if (hash->sha) {
        ek_sha256_ni(hash->state, data, blocks);
        return;
    }
#endif
    ek_sha256_portable(hash->state, data, blocks);
}

static void ek_sha256_add(ek_sha256 *hash, const unsigned char *data, size_t size)
{
    size_t held = (size_t)(hash->total % 64);
    if (size == 0) {
        return;
    }
    hash->total += size;
    if (held) {
        size_t part = size < 64 - held ? size : 64 - held;
        memcpy(hash->tail + held, data, part);
        data += part;
        size -= part;
        if (held + part < 64) {
            return;
        }
        ek_sha256_blocks(hash, hash->tail, 1);
    }
    ek_sha256_blocks(hash, data, size / 64);
    memcpy(hash->tail, data + (size - size % 64), size % 64);
}

static void ek_sha256_end(ek_sha256 *hash, unsigned char digest[ELFKILN_DIGEST_BYTES])
{
    uint64_t bits = hash->total * 8;
    size_t held = (size_t)(hash->total % 64), i;
    unsigned char end[128];
    size_t size = held < 56 ? 64 : 128;
    memset(end, 0, sizeof end);
    memcpy(end, hash->tail, held);
    end[held] = 0x80;
    ek_store32(end + size - 8, (uint32_t)(bits >> 32));
    ek_store32(end + size - 4, (uint32_t)bits);
    ek_sha256_blocks(hash, end, size / 64);
    for (i = 0; i < 8; i++) {
        ek_store32(digest + 4 * i, hash->state[i]);
    }
}

static void ek_digest(const void *data, size_t size, int sha, unsigned char digest[ELFKILN_DIGEST_BYTES])
{
    ek_sha256 hash;
    ek_sha256_begin(&hash, sha);
    ek_sha256_add(&hash, (const unsigned char *)data, size);
    ek_sha256_end(&hash, digest);
}

typedef struct ek_sha512 {
    uint64_t state[8], total;
    unsigned char tail[128];
} ek_sha512;

static void ek_sha512_begin(ek_sha512 *hash)
{
    static const uint64_t start[8] = {UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b),
                                      UINT64_C(0x3c6ef372fe94f82b), UINT64_C(0xa54ff53a5f1d36f1),
                                      UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
                                      UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179)};
    memcpy(hash->state, start, sizeof start);
    hash->total = 0;
}

static void ek_sha512_block(uint64_t state[8], const unsigned char *data)
{
    uint64_t w[80];
    uint64_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint64_t e = state[4], f = state[5], g = state[6], h = state[7];
    size_t i;
    for (i = 0; i < 16; i++) {
        w[i] = (uint64_t)ek_load32(data + 8 * i) << 32 | ek_load32(data + 8 * i + 4);
    }
    for (; i < 80; i++) {
        uint64_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (ek_turn64(x, 1) ^ ek_turn64(x, 8) ^ x >> 7) + w[i - 7] +
               (ek_turn64(y, 19) ^ ek_turn64(y, 61) ^ y >> 6);
    }
    for (i = 0; i < 80; i++) {
        uint64_t one = h + (ek_turn64(e, 14) ^ ek_turn64(e, 18) ^ ek_turn64(e, 41)) + ((e & f) ^ (~e & g)) +
                       ek_k512[i] + w[i];
        uint64_t two = (ek_turn64(a, 28) ^ ek_turn64(a, 34) ^ ek_turn64(a, 39)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

static void ek_sha512_add(ek_sha512 *hash, const unsigned char *data, size_t size)
{
    size_t held = (size_t)(hash->total % 128);
    hash->total += size;
    for (; size; size--) {
        hash->tail[held++] = *data++;
        if (held == 128) {
            ek_sha512_block(hash->state, hash->tail);
            held = 0;
        }
    }
}

static void ek_sha512_end(ek_sha512 *hash, unsigned char digest[64])
{
    uint64_t bits = hash->total * 8;
    size_t held = (size_t)(hash->total % 128), i;
    hash->tail[held++] = 0x80;
    if (held > 112) {
        memset(hash->tail + held, 0, 128 - held);
        ek_sha512_block(hash->state, hash->tail);
        held = 0;
    }
    memset(hash->tail + held, 0, 128 - held);
    ek_store32(hash->tail + 120, (uint32_t)(bits >> 32));
    ek_store32(hash->tail + 124, (uint32_t)bits);
    ek_sha512_block(hash->state, hash->tail);
    for (i = 0; i < 8; i++) {
        ek_store32(digest + 8 * i, (uint32_t)(hash->state[i] >> 32));
        ek_store32(digest + 8 * i + 4, (uint32_t)hash->state[i]);
    }
}

/* ---- ed25519 verification (RFC 8032) ----------------------------------------------------------------------------- */

/* A number modulo p = 2^255 - 19 in eight words, lowest first. Any value below 2^256 stands for its remainder: 2^256 is
 * 38 modulo p, so a carry out of the top comes back as 38 at the bottom. All inputs are public: nothing here hides the
 * time it takes. */
typedef struct ek_field {
    uint32_t v[8];
} ek_field;

static const ek_field ek_zero = {{0, 0, 0, 0, 0, 0, 0, 0}};
static const ek_field ek_one = {{1, 0, 0, 0, 0, 0, 0, 0}};
static const ek_field ek_d = { /* -121665/121666 */
    {0x135978a3, 0x75eb4dca, 0x4141d8ab, 0x00700a4d, 0x7779e898, 0x8cc74079, 0x2b6ffe73, 0x52036cee}};
static const ek_field ek_2d = {
    {0x26b2f159, 0xebd69b94, 0x8283b156, 0x00e0149a, 0xeef3d130, 0x198e80f2, 0x56dffce7, 0x2406d9dc}};
static const ek_field ek_root = {
    {0x4a0ea0b0, 0xc4ee1b27, 0xad2fe478, 0x2f431806, 0x3dfbd7a7, 0x2b4d0099, 0x4fc1df0b, 0x2b832480}}; /* of -1 */
static const uint32_t ek_p[8] = {0xffffffed, 0xffffffff, 0xffffffff, 0xffffffff,
                                 0xffffffff, 0xffffffff, 0xffffffff, 0x7fffffff};
static const uint32_t ek_order[8] = {0x5cf5d3ed, 0x5812631a, 0xa2f79cd6, 0x14def9de, 0, 0, 0, 0x10000000};

static void ek_words(uint32_t v[8], const unsigned char s[32])
{
    size_t i;
    for (i = 0; i < 8; i++) {
        v[i] = (uint32_t)s[4 * i] | (uint32_t)s[4 * i + 1] << 8 | (uint32_t)s[4 * i + 2] << 16 |
               (uint32_t)s[4 * i + 3] << 24;
    }
}

/* Whether a < b. */
static int ek_below(const uint32_t a[8], const uint32_t b[8])
{
    size_t i = 8;
    while (i--) {
        if (a[i] != b[i]) {
            return a[i] < b[i];
        }
    }
    return 0;
}

/* a -= b, and the borrow. */
static uint32_t ek_take(uint32_t a[8], const uint32_t b[8])
{
    uint64_t borrow = 0;
    size_t i;
    for (i = 0; i < 8; i++) {
        uint64_t rest = (uint64_t)a[i] - b[i] - borrow;
        a[i] = (uint32_t)rest;
        borrow = rest >> 63;
    }
    return (uint32_t)borrow;
}

/* a += small, and the carry. */
static uint32_t ek_give(uint32_t a[8], uint32_t small)
{
    uint64_t carry = small;
    size_t i;
    for (i = 0; i < 8; i++) {
        carry += a[i];
        a[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return (uint32_t)carry;
}

static ek_field ek_add(ek_field a, ek_field b)
{
    uint64_t carry = 0;
    size_t i;
    for (i = 0; i < 8; i++) {
        carry += (uint64_t)a.v[i] + b.v[i];
        a.v[i] = (uint32_t)carry;
        carry >>= 32;
    }
    /* A second carry leaves less than 38 in `a`, so that there is no third. */
    ek_give(a.v, 38 * ek_give(a.v, 38 * (uint32_t)carry));
    return a;
}

static ek_field ek_subtract(ek_field a, ek_field b)
{
    static const uint32_t fold[8] = {38, 0, 0, 0, 0, 0, 0, 0};
    if (ek_take(a.v, b.v) && ek_take(a.v, fold)) {
        ek_take(a.v, fold);
    }
    return a;
}

static ek_field ek_multiply(ek_field a, ek_field b)
{
    uint32_t t[16] = {0};
    uint64_t carry;
    size_t i, j;
    for (i = 0; i < 8; i++) {
        carry = 0;
        for (j = 0; j < 8; j++) {
            carry += (uint64_t)a.v[i] * b.v[j] + t[i + j]; /* at most 2^64 - 1 with the carry of 32 bits */
            t[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        t[i + 8] = (uint32_t)carry;
    }
    carry = 0;
    for (i = 0; i < 8; i++) {
        carry += (uint64_t)t[i + 8] * 38 + t[i];
        a.v[i] = (uint32_t)carry;
        carry >>= 32;
    }
    ek_give(a.v, 38 * ek_give(a.v, 38 * (uint32_t)carry));
    return a;
}

/* The one representative below p. */
static ek_field ek_reduce(ek_field a)
{
    uint32_t top = a.v[7] >> 31;
    a.v[7] &= 0x7fffffff;
    ek_give(a.v, 19 * top);
    if (!ek_below(a.v, ek_p)) {
        ek_take(a.v, ek_p);
    }
    return a;
}

static int ek_equal(ek_field a, ek_field b)
{
    a = ek_reduce(a);
    b = ek_reduce(b);
    return memcmp(a.v, b.v, sizeof a.v) == 0;
}

/* a to the power of 2^bits - less, less small: p - 2 = 2^255 - 21 inverts, (p - 5) / 8 = 2^252 - 3 helps to a root. */
static ek_field ek_power(ek_field a, int bits, uint32_t less)
{
    ek_field result = ek_one;
    int i;
    for (i = bits - 1; i >= 0; i--) {
        /* 2^bits - less in binary: ones above the low five bits, which are those of 32 - less. */
        result = ek_multiply(result, result);
        if (i >= 5 || (32 - less) >> i & 1) {
            result = ek_multiply(result, a);
        }
    }
    return result;
}

/* A point of the curve -x^2 + y^2 = 1 + d x^2 y^2 as X:Y:Z and T = XY/Z. */
typedef struct ek_point {
    ek_field x, y, z, t;
} ek_point;

/* The sum of any two points, equal ones too: the formula has no exceptions on this curve. */
static ek_point ek_sum(const ek_point *p, const ek_point *q)
{
    ek_field a = ek_multiply(ek_subtract(p->y, p->x), ek_subtract(q->y, q->x));
    ek_field b = ek_multiply(ek_add(p->y, p->x), ek_add(q->y, q->x));
    ek_field c = ek_multiply(ek_multiply(p->t, ek_2d), q->t);
    ek_field d = ek_multiply(ek_add(p->z, p->z), q->z);
    ek_field e = ek_subtract(b, a), f = ek_subtract(d, c), g = ek_add(d, c), h = ek_add(b, a);
    ek_point sum;
    sum.x = ek_multiply(e, f);
    sum.y = ek_multiply(g, h);
    sum.z = ek_multiply(f, g);
    sum.t = ek_multiply(e, h);
    return sum;
}

/* Read a point; 0 for bytes that are none, or not the one spelling of it. */
static int ek_read_point(ek_point *p, const unsigned char s[32])
{
    uint32_t sign = s[31] >> 7;
    ek_field square, u, v, v3, x;
    ek_words(p->y.v, s);
    p->y.v[7] &= 0x7fffffff;
    if (!ek_below(p->y.v, ek_p)) {
        return 0;
    }
    square = ek_multiply(p->y, p->y);
    u = ek_subtract(square, ek_one);
    v = ek_add(ek_multiply(square, ek_d), ek_one);
    v3 = ek_multiply(ek_multiply(v, v), v);
    x = ek_multiply(ek_multiply(u, v3), ek_power(ek_multiply(ek_multiply(ek_multiply(v3, v3), v), u), 252, 3));
    square = ek_multiply(v, ek_multiply(x, x));
    if (!ek_equal(square, u)) {
        if (!ek_equal(square, ek_subtract(ek_zero, u))) {
            return 0;
        }
        x = ek_multiply(x, ek_root);
    }
    x = ek_reduce(x);
    if (ek_equal(x, ek_zero) && sign) {
        return 0;
    }
    if ((x.v[0] & 1) != sign) {
        x = ek_subtract(ek_zero, x);
    }
    p->x = x;
    p->z = ek_one;
    p->t = ek_multiply(p->x, p->y);
    return 1;
}

static void ek_write_point(unsigned char s[32], const ek_point *p)
{
    ek_field inverse = ek_power(p->z, 255, 21);
    ek_field x = ek_reduce(ek_multiply(p->x, inverse)), y = ek_reduce(ek_multiply(p->y, inverse));
    size_t i;
    y.v[7] |= (x.v[0] & 1) << 31;
    for (i = 0; i < 32; i++) {
        s[i] = (unsigned char)(y.v[i / 4] >> 8 * (i % 4));
    }
}

/* Whether bytes are a public key to trust: a point in its one spelling whose order is not 1, 2, 4 or 8. A key of such
 * an order would accept one signature for many messages. */
static int ek_is_key(const unsigned char key[32])
{
    ek_point p;
    int i;
    if (!ek_read_point(&p, key)) {
        return 0;
    }
    for (i = 0; i < 3; i++) {
        p = ek_sum(&p, &p);
    }
    return !(ek_equal(p.x, ek_zero) && ek_equal(p.y, p.z));
}

/* A 512-bit number, lowest byte first, modulo the group's order. */
static void ek_modulo_order(uint32_t rest[8], const unsigned char s[64])
{
    int i;
    memset(rest, 0, 32);
    for (i = 511; i >= 0; i--) {
        /* The remainder is below 2^253, so that doubling it stays in the eight words. */
        size_t j = 8;
        while (--j) {
            rest[j] = rest[j] << 1 | rest[j - 1] >> 31;
        }
        rest[0] = rest[0] << 1 | (uint32_t)(s[i / 8] >> (i % 8) & 1);
        if (!ek_below(rest, ek_order)) {
            ek_take(rest, ek_order);
        }
    }
}

/* Whether `signature` is the key's on a message of two parts. The key has passed ek_is_key. Without cofactor: [S]B must
 * be R + [k]A itself, as OpenSSL and most libraries have it; S is below the group's order. */
static int ek_verify(const unsigned char key[32], const unsigned char signature[64], const unsigned char *head,
                     size_t head_size, const unsigned char *body, size_t body_size)
{
    static const ek_point base = {
        {{0x8f25d51a, 0xc9562d60, 0x9525a7b2, 0x692cc760, 0xfdd6dc5c, 0xc0a4e231, 0xcd6e53fe, 0x216936d3}},
        {{0x66666658, 0x66666666, 0x66666666, 0x66666666, 0x66666666, 0x66666666, 0x66666666, 0x66666666}},
        {{1, 0, 0, 0, 0, 0, 0, 0}},
        {{0xa5b7dda3, 0x6dde8ab3, 0x775152f5, 0x20f09f80, 0x64abe37d, 0x66ea4e8e, 0xd78b7665, 0x67875f0f}}};
    ek_point minus, both, sum;
    ek_sha512 hash;
    unsigned char digest[64], found[32];
    uint32_t s[8], k[8];
    int i;
    ek_words(s, signature + 32);
    if (!ek_below(s, ek_order) || !ek_read_point(&minus, key)) {
        return 0;
    }
    minus.x = ek_subtract(ek_zero, minus.x);
    minus.t = ek_subtract(ek_zero, minus.t);
    both = ek_sum(&base, &minus);
    ek_sha512_begin(&hash);
    ek_sha512_add(&hash, signature, 32);
    ek_sha512_add(&hash, key, 32);
    ek_sha512_add(&hash, head, head_size);
    ek_sha512_add(&hash, body, body_size);
    ek_sha512_end(&hash, digest);
    ek_modulo_order(k, digest);
    sum.x = sum.t = ek_zero;
    sum.y = sum.z = ek_one;
    for (i = 255; i >= 0; i--) {
        uint32_t of_base = s[i / 32] >> (i % 32) & 1, of_key = k[i / 32] >> (i % 32) & 1;
        sum = ek_sum(&sum, &sum);
        if (of_base || of_key) {
            sum = ek_sum(&sum, of_base && of_key ? &both : of_base ? &base : &minus);
        }
    }
    ek_write_point(found, &sum);
    return memcmp(found, signature, 32) == 0;
}

/* ---- JSON, strictly ---------------------------------------------------------------------------------------------- */

typedef enum ek_kind { EK_OBJECT, EK_LIST, EK_STRING, EK_WHOLE, EK_REAL, EK_TRUE, EK_FALSE, EK_NULL } ek_kind;

/* A value. The nodes of a document lie in the order of its text: the first member of a container is the node after it,
 * the one after a value is at its `end`. A key of an object is a string whose value is the next node. A string's bytes
 * are unescaped in place and ended by NUL; they are UTF-8 and hold no NUL of their own. */
typedef struct ek_node {
    ek_kind kind;
    uint32_t start, size; /* bytes of the text; members of a container */
    uint32_t end;
} ek_node;

typedef struct ek_document {
    char *text;
    size_t size;
    ek_node *nodes;
    uint32_t count;
} ek_document;

typedef struct ek_key {
    const char *bytes;
    uint32_t size;
} ek_key;

typedef struct ek_scan {
    char *text;
    uint32_t at, size;
    ek_node *nodes; /* NULL in the first pass, which changes nothing and counts */
    ek_key *keys;
    uint32_t count, most; /* nodes; members of the largest container */
} ek_scan;

static int ek_peek(const ek_scan *scan)
{
    return scan->at < scan->size ? (int)(unsigned char)scan->text[scan->at] : -1;
}

static void ek_skip_space(ek_scan *scan)
{
    int c = ek_peek(scan);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        scan->at += 1;
        c = ek_peek(scan);
    }
}

static uint32_t ek_new_node(ek_scan *scan, ek_kind kind, uint32_t start, uint32_t size)
{
    if (scan->nodes) {
        ek_node *node = scan->nodes + scan->count;
        node->kind = kind;
        node->start = start;
        node->size = size;
        node->end = scan->count + 1;
    }
    return scan->count++;
}

static int ek_hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Four hex digits at `at`, -1 where they are not. */
static int32_t ek_four_digits(const ek_scan *scan, uint32_t at)
{
    int32_t value = 0;
    uint32_t i;
    if (scan->size - at < 4) {
        return -1;
    }
    for (i = at; i < at + 4; i++) {
        int digit = ek_hex_digit((unsigned char)scan->text[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Write a code point as UTF-8 and return its length. */
static uint32_t ek_put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Read a string whose opening quote has been read. */
static const char *ek_string(ek_scan *scan)
{
    uint32_t start = scan->at, to = start; /* unescaped text is never longer than its escapes */
    for (;;) {
        int c = ek_peek(scan);
        if (c < 0) {
            return "a string without an end";
        }
        if (c < 0x20) {
            return "a control character in a string";
        }
        if (c == '"') {
            break;
        }
        if (c == '\\') {
            static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
            const char *found;
            scan->at += 1;
            c = ek_peek(scan);
            if (c == 'u') {
                int32_t code = ek_four_digits(scan, scan->at + 1);
                char bytes[4];
                uint32_t length;
                if (code < 0) {
                    return "an escape without four hex digits";
                }
                scan->at += 5;
                if (code >= 0xd800 && code < 0xdc00 && scan->size - scan->at >= 6 && scan->text[scan->at] == '\\' &&
                    scan->text[scan->at + 1] == 'u') {
                    int32_t low = ek_four_digits(scan, scan->at + 2);
                    if (low >= 0xdc00 && low < 0xe000) {
                        code = 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
                        scan->at += 6;
                    }
                }
                if (code == 0 || (code >= 0xd800 && code < 0xe000)) {
                    return "a NUL or half of a surrogate pair, which no file name can hold";
                }
                length = ek_put_utf8(bytes, (uint32_t)code);
                if (scan->nodes) {
                    memcpy(scan->text + to, bytes, length);
                }
                to += length;
                continue;
            }
            found = c > 0 ? strchr(plain, c) : NULL;
            if (!found) {
                return "an escape that JSON does not have";
            }
            if (scan->nodes) {
                scan->text[to] = meant[found - plain];
            }
            to += 1;
            scan->at += 1;
        } else {
            uint32_t length = (uint32_t)ek_utf8((const unsigned char *)scan->text + scan->at, scan->size - scan->at);
            if (length == 0) {
                return "a byte that is not UTF-8";
            }
            if (scan->nodes) {
                memmove(scan->text + to, scan->text + scan->at, length);
            }
            to += length;
            scan->at += length;
        }
    }
    ek_new_node(scan, EK_STRING, start, to - start);
    if (scan->nodes) {
        scan->text[to] = '\0'; /* at the closing quote or before it */
    }
    scan->at += 1;
    return NULL;
}

static uint32_t ek_digits(ek_scan *scan)
{
    uint32_t start = scan->at;
    int c = ek_peek(scan);
    while (c >= '0' && c <= '9') {
        scan->at += 1;
        c = ek_peek(scan);
    }
    return scan->at - start;
}

/* 2^1024 - 2^970, the least number that rounds to more than a double holds. */
static const char ek_too_large[] =
    "1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070"
    "9633028641669288791094655554785194040263065748867150582068190890200070838367627385484581771153176447"
    "5730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904"
    "174497792";

/* Whether the digits of that number from a position on are not all 0. */
static int ek_has_rest(uint32_t digits)
{
    return ek_too_large[digits + strspn(ek_too_large + digits, "0")] != '\0';
}

/* Whether a number's text (valid, its sign left out) is beyond the range of a double. Worked out on the digits: strtod
 * would ask the locale what a decimal point is. */
static int ek_is_too_large(const char *text, uint32_t size)
{
    int64_t before = 0, exponent = 0, points = 0; /* digits before the point, from the first that is not 0 */
    uint32_t i, digits = 0;
    int order = 0, minus = 0;
    for (i = 0; i < size && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            points = 1;
        } else if (digits || text[i] != '0') {
            if (digits < sizeof ek_too_large - 1 && order == 0) {
                order = text[i] - ek_too_large[digits];
            }
            digits += 1;
            before += !points;
        } else {
            before -= points; /* 0.001 begins two places below the point */
        }
    }
    if (digits == 0) {
        return 0;
    }
    for (; i < size; i++) {
        minus |= text[i] == '-';
        if (text[i] >= '0' && text[i] <= '9' && exponent < 1000000000) {
            exponent = exponent * 10 + (text[i] - '0');
        }
    }
    before += minus ? -exponent : exponent;
    if (before != (int64_t)sizeof ek_too_large - 1) {
        return before > (int64_t)sizeof ek_too_large - 1;
    }
    /* Equal so far: what is left of the shorter one counts as zeros. */
    return order > 0 || (order == 0 && (digits >= sizeof ek_too_large - 1 || !ek_has_rest(digits)));
}

static const char *ek_json_number(ek_scan *scan)
{
    static const char fault[] = "a number that JSON does not have";
    uint32_t start = scan->at, digits, minus;
    ek_kind kind = EK_WHOLE;
    int c = ek_peek(scan);
    if (c == '-') {
        scan->at += 1;
        c = ek_peek(scan);
    }
    digits = ek_digits(scan);
    if (digits == 0 || (digits > 1 && c == '0')) {
        return fault;
    }
    if (ek_peek(scan) == '.') {
        kind = EK_REAL;
        scan->at += 1;
        if (ek_digits(scan) == 0) {
            return fault;
        }
    }
    c = ek_peek(scan);
    if (c == 'e' || c == 'E') {
        kind = EK_REAL;
        scan->at += 1;
        c = ek_peek(scan);
        if (c == '+' || c == '-') {
            scan->at += 1;
        }
        if (ek_digits(scan) == 0) {
            return fault;
        }
    }
    if (kind == EK_WHOLE && digits > EK_INT_DIGITS) {
        return "a whole number of more than 4300 digits";
    }
    minus = scan->text[start] == '-';
    if (kind == EK_REAL && ek_is_too_large(scan->text + start + minus, scan->at - start - minus)) {
        return "a number beyond the range of a double";
    }
    ek_new_node(scan, kind, start, scan->at - start);
    return NULL;
}

static int ek_literal(ek_scan *scan, const char *word, ek_kind kind)
{
    size_t length = strlen(word);
    if (scan->size - scan->at < length || memcmp(scan->text + scan->at, word, length) != 0) {
        return 0;
    }
    ek_new_node(scan, kind, scan->at, (uint32_t)length);
    scan->at += (uint32_t)length;
    return 1;
}

/* Read a key and its colon. */
static const char *ek_member(ek_scan *scan)
{
    const char *fault;
    ek_skip_space(scan);
    if (ek_peek(scan) != '"') {
        return "no key where one is due";
    }
    scan->at += 1;
    fault = ek_string(scan);
    if (fault) {
        return fault;
    }
    ek_skip_space(scan);
    if (ek_peek(scan) != ':') {
        return "no colon after a key";
    }
    scan->at += 1;
    return NULL;
}

static int ek_compare_keys(const void *one, const void *other)
{
    const ek_key *a = (const ek_key *)one, *b = (const ek_key *)other;
    return a->size != b->size ? (a->size < b->size ? -1 : 1) : memcmp(a->bytes, b->bytes, a->size);
}

static int ek_has_twin(ek_scan *scan, uint32_t object)
{
    uint32_t members = scan->nodes[object].size, at = object + 1, i;
    for (i = 0; i < members; i++) {
        scan->keys[i].bytes = scan->text + scan->nodes[at].start;
        scan->keys[i].size = scan->nodes[at].size;
        at = scan->nodes[at + 1].end;
    }
    if (members > 1) {
        qsort(scan->keys, members, sizeof *scan->keys, ek_compare_keys);
    }
    for (i = 1; i < members; i++) {
        if (ek_compare_keys(scan->keys + i - 1, scan->keys + i) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Read a whole document; NULL, or what is wrong at scan->at. Containers are kept on a stack of our own, so that no
 * input can exhaust the thread's. */
static const char *ek_walk(ek_scan *scan)
{
    struct {
        uint32_t node, members;
        int object;
    } level[EK_DEPTH];
    int depth = 0, c;
    const char *fault;
    scan->at = scan->count = 0;
    for (;;) {
        ek_skip_space(scan);
        c = ek_peek(scan);
        fault = NULL;
        if (c == '{' || c == '[') {
            if (depth == EK_DEPTH) {
                return "more than 64 levels of nesting";
            }
            level[depth].object = c == '{';
            level[depth].members = 0;
            level[depth].node = ek_new_node(scan, c == '{' ? EK_OBJECT : EK_LIST, scan->at, 0);
            depth += 1;
            scan->at += 1;
            ek_skip_space(scan);
            if (ek_peek(scan) != (c == '{' ? '}' : ']')) {
                fault = c == '{' ? ek_member(scan) : NULL;
                if (fault) {
                    return fault;
                }
                continue;
            }
        } else {
            if (c == '"') {
                scan->at += 1;
                fault = ek_string(scan);
            } else if (c == '-' || (c >= '0' && c <= '9')) {
                fault = ek_json_number(scan);
            } else if (!ek_literal(scan, "true", EK_TRUE) && !ek_literal(scan, "false", EK_FALSE) &&
                       !ek_literal(scan, "null", EK_NULL)) {
                fault = c < 0 ? "the end where a value is due" : "no value where one is due";
            }
            if (fault) {
                return fault;
            }
            if (depth) {
                level[depth - 1].members += 1;
            }
        }
        /* A value has ended, or a container is about to. */
        for (;;) {
            if (depth == 0) {
                ek_skip_space(scan);
                return scan->at == scan->size ? NULL : "more after the value";
            }
            ek_skip_space(scan);
            c = ek_peek(scan);
            if (c == ',') {
                scan->at += 1;
                fault = level[depth - 1].object ? ek_member(scan) : NULL;
                if (fault) {
                    return fault;
                }
                break;
            }
            if (c != (level[depth - 1].object ? '}' : ']')) {
                return c < 0 ? "the end within an object or a list" : "no comma or bracket after a value";
            }
            scan->at += 1;
            depth -= 1;
            scan->most = level[depth].members > scan->most ? level[depth].members : scan->most;
            if (scan->nodes) {
                ek_node *node = scan->nodes + level[depth].node;
                node->size = level[depth].members;
                node->end = scan->count;
                if (node->kind == EK_OBJECT && ek_has_twin(scan, level[depth].node)) {
                    return "a key that stands twice in one object";
                }
            }
            if (depth) {
                level[depth - 1].members += 1;
            }
        }
    }
}

static void ek_free_document(ek_document *document)
{
    ELFKILN_FREE(document->text);
    ELFKILN_FREE(document->nodes);
    memset(document, 0, sizeof *document);
}

/* Parse document->text, of at most EK_LOCK_BYTES. `where` names it in the error. */
static elfkiln_status ek_parse(ek_document *document, const char *where, elfkiln_status bad, elfkiln_error *error)
{
    ek_scan scan;
    const char *fault;
    memset(&scan, 0, sizeof scan);
    scan.text = document->text;
    scan.size = (uint32_t)document->size;
    fault = ek_walk(&scan);
    if (!fault) {
        size_t nodes = (size_t)scan.count * sizeof(ek_node), keys = (size_t)(scan.most + 1) * sizeof(ek_key);
        document->nodes = (ek_node *)ELFKILN_MALLOC(nodes);
        scan.keys = (ek_key *)ELFKILN_MALLOC(keys);
        if (!document->nodes || !scan.keys) {
            ELFKILN_FREE(scan.keys);
            return ek_system(error, where, ENOMEM);
        }
        document->count = scan.count;
        scan.nodes = document->nodes;
        fault = ek_walk(&scan);
        ELFKILN_FREE(scan.keys);
    }
    if (fault) {
        ek_text text = ek_begin(error, bad);
        ek_show_path(&text, where);
        ek_say(&text, ": expected JSON with each key once, found ");
        if (scan.size >= 3 && memcmp(scan.text, "\xef\xbb\xbf", 3) == 0) {
            ek_say(&text, "a byte order mark before it; remove it");
        } else {
            ek_say(&text, fault);
            ek_say(&text, " at byte ");
            ek_say_number(&text, scan.at);
        }
        return bad;
    }
    return ELFKILN_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef enum ek_found { EK_FILE, EK_ABSENT, EK_OTHER_KIND, EK_FAILED } ek_found;

/* Open the file at a path if it is a regular one, links followed; never wait for a writer of a pipe. EK_ABSENT is
 * what fopen would not open either: nothing there, a dangling or endless link, no permission, a name too long. A fault
 * of the system is EK_FAILED with its errno, so that it never passes for an absent file. */
static ek_found ek_open_file(const char *path, int *descriptor, uint64_t *size, int *number)
{
    struct stat state;
    int fd;
    *descriptor = -1;
    if (stat(path, &state) == 0) {
        if (!S_ISREG(state.st_mode)) {
            return EK_OTHER_KIND;
        }
        do {
            fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        } while (fd < 0 && errno == EINTR);
        if (fd >= 0) {
            if (fstat(fd, &state) != 0) {
                *number = errno;
                close(fd);
                return EK_FAILED;
            }
            if (!S_ISREG(state.st_mode) || state.st_size < 0) {
                close(fd);
                return EK_OTHER_KIND;
            }
            *descriptor = fd;
            *size = (uint64_t)state.st_size;
            return EK_FILE;
        }
    }
    *number = errno;
    return errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == EPERM || errno == ELOOP ||
                   errno == ENAMETOOLONG
               ? EK_ABSENT
               : EK_FAILED;
}

/* Read `size` bytes, or what there is; -1 with errno on failure. */
static ptrdiff_t ek_read(int descriptor, unsigned char *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t part = read(descriptor, to + done, size - done);
        if (part < 0 && errno != EINTR) {
            return -1;
        }
        if (part == 0) {
            break;
        }
        done += part > 0 ? (size_t)part : 0;
    }
    return (ptrdiff_t)done;
}

/* Read a whole file of at most `most` bytes into document->text, ended by NUL. An absent one is `absent` (which may be
 * ELFKILN_OK: document->text is NULL then). */
static elfkiln_status ek_read_file(ek_document *document, const char *path, size_t most, elfkiln_status absent,
                                   elfkiln_status bad, elfkiln_error *error)
{
    struct stat state;
    int descriptor, number = 0;
    uint64_t listed = 0;
    ptrdiff_t size;
    memset(document, 0, sizeof *document);
    switch (ek_open_file(path, &descriptor, &listed, &number)) {
    case EK_ABSENT:
        if (lstat(path, &state) == 0 && S_ISLNK(state.st_mode) && number != EACCES) {
            return ek_plain(error, bad, path, ": expected a file, found a symbolic link that leads nowhere");
        }
        if (number != ENOENT && number != ENOTDIR) {
            return ek_system(error, path, number);
        }
        return absent == ELFKILN_OK ? ELFKILN_OK : ek_plain(error, absent, path, ": missing");
    case EK_OTHER_KIND:
        return ek_plain(error, bad, path, ": expected a file, found something else");
    case EK_FAILED:
        return ek_system(error, path, number);
    case EK_FILE:
        break;
    }
    if (listed > most) {
        ek_text text = ek_begin(error, bad);
        close(descriptor);
        ek_show_path(&text, path);
        ek_say(&text, ": expected at most ");
        ek_say_number(&text, most);
        ek_say(&text, " bytes, found a longer file");
        return bad;
    }
    document->text = (char *)ELFKILN_MALLOC((size_t)listed + 1);
    if (!document->text) {
        close(descriptor);
        return ek_system(error, path, ENOMEM);
    }
    /* One byte more than there should be, to see a file that grows. */
    size = ek_read(descriptor, (unsigned char *)document->text, (size_t)listed + 1);
    number = errno;
    close(descriptor);
    if (size < 0 || (uint64_t)size != listed) {
        ek_free_document(document);
        return size < 0 ? ek_system(error, path, number)
                        : ek_plain(error, bad, path, ": expected a file at rest, found one that changes");
    }
    document->text[size] = '\0';
    document->size = (size_t)size;
    return ELFKILN_OK;
}

/* ---- reading fields ---------------------------------------------------------------------------------------------- */

/* One document being read: its name for messages, the status of what does not fit, and the error to fill. */
typedef struct ek_reader {
    const ek_document *document;
    const char *where;
    elfkiln_status bad;
    elfkiln_error *error;
} ek_reader;

static const char *ek_bytes(const ek_document *document, uint32_t node)
{
    return document->text + document->nodes[node].start;
}

static int ek_kind_is(const ek_document *document, uint32_t node, ek_kind kind)
{
    return node != UINT32_MAX && document->nodes[node].kind == kind;
}

/* Whether a node is this string. */
static int ek_is(const ek_document *document, uint32_t node, const char *words)
{
    size_t length = strlen(words);
    return ek_kind_is(document, node, EK_STRING) && document->nodes[node].size == length &&
           memcmp(ek_bytes(document, node), words, length) == 0;
}

/* The value of a key, UINT32_MAX where the object has it not or is no object. */
static uint32_t ek_member_of(const ek_document *document, uint32_t object, const char *key)
{
    uint32_t at, i;
    if (!ek_kind_is(document, object, EK_OBJECT)) {
        return UINT32_MAX;
    }
    at = object + 1;
    for (i = 0; i < document->nodes[object].size; i++) {
        if (ek_is(document, at, key)) {
            return at + 1;
        }
        at = document->nodes[at + 1].end;
    }
    return UINT32_MAX;
}

static void ek_show_value(ek_text *text, const ek_document *document, uint32_t node)
{
    static const char *const words[] = {"an object", "a list", "", "", "", "true", "false", "null"};
    ek_kind kind;
    if (node == UINT32_MAX) {
        ek_say(text, "nothing");
        return;
    }
    kind = document->nodes[node].kind;
    if (kind == EK_STRING || kind == EK_WHOLE || kind == EK_REAL) {
        ek_say(text, kind == EK_STRING ? "'" : "");
        ek_show(text, ek_bytes(document, node), document->nodes[node].size, 120);
        ek_say(text, kind == EK_STRING ? "'" : "");
    } else {
        ek_say(text, words[kind]);
    }
}

/* `<file>: <field>: expected <words>, found <value>`. The field is `outer[index].inner`, or `outer.inner` with an index
 * of UINT32_MAX; `inner` may be empty. */
static int ek_refuse(const ek_reader *reader, const char *outer, uint32_t index, const char *inner,
                     const char *expected, uint32_t found)
{
    ek_text text = ek_begin(reader->error, reader->bad);
    ek_show_path(&text, reader->where);
    ek_say(&text, ": ");
    if (*outer || *inner) {
        ek_say(&text, outer);
        if (index != UINT32_MAX) {
            ek_say(&text, "[");
            ek_say_number(&text, index);
            ek_say(&text, "]");
        }
        ek_say(&text, *outer && *inner ? "." : "");
        ek_say(&text, inner);
        ek_say(&text, ": ");
    }
    ek_say(&text, "expected ");
    ek_say(&text, expected);
    ek_say(&text, ", found ");
    ek_show_value(&text, reader->document, found);
    return 0;
}

/* The same for a field of a section: `section.key`. */
static int ek_refuse_field(const ek_reader *reader, const char *section, const char *key, const char *expected,
                           uint32_t found)
{
    return ek_refuse(reader, section, UINT32_MAX, key, expected, found);
}

/* A whole number within least..most; 0 when it is none. `most` is at most 2^53. */
static int ek_number(const ek_document *document, uint32_t node, int64_t least, int64_t most, int64_t *value)
{
    const char *digits;
    uint32_t size, i;
    int64_t sum = 0;
    int minus;
    if (!ek_kind_is(document, node, EK_WHOLE)) {
        return 0;
    }
    digits = ek_bytes(document, node);
    size = document->nodes[node].size;
    minus = digits[0] == '-';
    for (i = (uint32_t)minus; i < size; i++) {
        sum = sum * 10 + (digits[i] - '0');
        if (sum > most) {
            return 0;
        }
    }
    sum = minus ? -sum : sum;
    if (sum < least) {
        return 0;
    }
    *value = sum;
    return 1;
}

/* The same for what the engine reads into an int: within least..2^31 - 1. */
static int ek_whole(const ek_document *document, uint32_t node, int32_t least, int32_t *value)
{
    int64_t number = 0;
    if (!ek_number(document, node, least, INT32_MAX, &number)) {
        return 0;
    }
    *value = (int32_t)number;
    return 1;
}

/* Whether an object has no field but those `allowed` (ended with NULL). What
 * is not understood is refused: a misspelt field must not weaken anything. */
static int ek_only(const ek_reader *reader, const char *outer, uint32_t index, uint32_t object,
                   const char *const *allowed)
{
    uint32_t at = object + 1, i;
    size_t j;
    if (!ek_kind_is(reader->document, object, EK_OBJECT)) {
        return ek_refuse(reader, outer, index, "", "an object", object);
    }
    for (i = 0; i < reader->document->nodes[object].size; i++) {
        for (j = 0; allowed[j] && !ek_is(reader->document, at, allowed[j]); j++) {
        }
        if (!allowed[j]) {
            return ek_refuse(reader, outer, index, "", "only fields that its schema has", at);
        }
        at = reader->document->nodes[at + 1].end;
    }
    return 1;
}

/* ---- names and paths --------------------------------------------------------------------------------------------- */

static int ek_is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Whether bytes are a bare file name ending in .elf that the engine's buffer holds. */
static int ek_is_elf_name(const char *name, size_t size)
{
    size_t i;
    if (size < 5 || size >= ELFKILN_NAME_BYTES || !ek_is_alnum(name[0]) || memcmp(name + size - 4, ".elf", 4) != 0) {
        return 0;
    }
    for (i = 0; i < size; i++) {
        if (!ek_is_alnum(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-') {
            return 0;
        }
    }
    return 1;
}

/* Whether bytes are a relative path that stays in its folder and prints: no step upwards, no backslash, no control
 * character. */
static int ek_is_inner_path(const char *path, size_t size)
{
    const unsigned char *s = (const unsigned char *)path;
    size_t i = 0, step = 0;
    if (size == 0 || path[0] == '/') {
        return 0;
    }
    while (i < size) {
        size_t length = ek_utf8(s + i, size - i);
        if (length == 0 || ek_is_control(s + i, length) || s[i] == '\\') {
            return 0; /* a lone surrogate is no UTF-8 */
        }
        if (s[i] == '/') {
            step = i + 1;
        } else if (s[i] == '.' && i == step + 1 && s[step] == '.' && (i + 1 == size || s[i + 1] == '/')) {
            return 0;
        }
        i += length;
    }
    return 1;
}

/* Whether a path of kernels.lock.json is one: every step a name, and the last that of an ELF. */
static int ek_is_lock_path(const char *path, size_t size)
{
    size_t at = 0, part = 0;
    if (!ek_is_inner_path(path, size)) {
        return 0;
    }
    for (; at < size; at += part + 1) {
        part = strcspn(path + at, "/");
        if (part == 0 || (part == 1 && path[at] == '.') || at + part + 1 == size) {
            return 0;
        }
    }
    return ek_is_elf_name(path + size - part, part);
}

/* Whether a model's name can be a folder's: lower-case letters, digits and . _ -, at most 64 of them, no two points. */
static int ek_is_model_name(const char *name, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++) {
        char c = name[i];
        if (!ek_is_alnum(c) ? i == 0 || (c != '.' && c != '_' && c != '-') : c >= 'A' && c <= 'Z') {
            return 0;
        }
    }
    return size > 0 && size <= 64 && !strstr(name, "..");
}

/* Whether a path of decode.dirs is one: with no `..` anywhere, in at most 32 steps of at most 255 bytes. */
static int ek_is_plan_path(const char *path)
{
    size_t at = 0, steps = 0, part;
    if (!ek_is_inner_path(path, strlen(path)) || strstr(path, "..")) {
        return 0;
    }
    while (path[at]) {
        part = strcspn(path + at, "/");
        if (part > 255) {
            return 0;
        }
        steps += part > 1 || (part == 1 && path[at] != '.');
        at += part + (path[at + part] == '/');
    }
    return steps <= 32;
}

/* Write `base`, then `/` and `path` if there is any, with empty steps and steps of one dot left out. `to` holds
 * strlen(base) + 1 + size + 1 bytes. */
static void ek_join(char *to, const char *base, const char *path, size_t size)
{
    size_t part, used = 0;
    int turn;
    if (base[0] == '/') {
        to[used++] = '/';
    }
    for (turn = 0; turn < 2; turn++) {
        const char *from = turn ? path : base;
        size_t left = turn ? size : strlen(base);
        while (left) {
            for (part = 0; part < left && from[part] != '/'; part++) {
            }
            if (part > 1 || (part == 1 && from[0] != '.')) {
                if (used && to[used - 1] != '/') {
                    to[used++] = '/';
                }
                memcpy(to + used, from, part);
                used += part;
            }
            part += part < left;
            from += part;
            left -= part;
        }
    }
    if (used == 0) {
        to[used++] = '.';
    }
    to[used] = '\0';
}

static char *ek_joined(const char *base, const char *path)
{
    size_t size = strlen(path);
    char *joined = (char *)ELFKILN_MALLOC(strlen(base) + size + 3);
    if (joined) {
        ek_join(joined, base, path, size);
    }
    return joined;
}

/* ---- the set ----------------------------------------------------------------------------------------------------- */

typedef enum ek_listing { EK_UNLISTED, EK_LISTED, EK_LISTED_TWICE } ek_listing;

/* One name: what the engine knows of it, what the lock says, and the folders it is looked up in (first and count of
 * set->folders). */
typedef struct ek_entry {
    elfkiln_name name;
    ek_listing listing;
    uint64_t size;
    unsigned char digest[ELFKILN_DIGEST_BYTES];
    uint32_t first, folders;
} ek_entry;

struct elfkiln_set {
    ek_entry *entries; /* in the order of elfkiln_at */
    uint32_t *sorted;  /* their positions, by name */
    size_t count;
    char **folders; /* the M=128 folder, then those of twins, then that of the sealed ELF */
    uint32_t twins; /* how many folders of twins */
    int planned;    /* the names are a plan's */
    int sha;        /* use the SHA extensions */
};

/* ---- kernels.lock.json ------------------------------------------------------------------------------------------- */

static int ek_read_hex(const char *text, size_t size, unsigned char *to)
{
    size_t i;
    for (i = 0; i < size; i += 2) {
        /* Lower case only: one spelling of a digest. */
        int high = text[i] >= 'A' && text[i] <= 'F' ? -1 : ek_hex_digit((unsigned char)text[i]);
        int low = text[i + 1] >= 'A' && text[i + 1] <= 'F' ? -1 : ek_hex_digit((unsigned char)text[i + 1]);
        if (high < 0 || low < 0) {
            return 0;
        }
        to[i / 2] = (unsigned char)(high << 4 | low);
    }
    return 1;
}

/* Read `sha256:<64 hex digits>`. */
static int ek_read_digest(const ek_document *document, uint32_t node, unsigned char *digest)
{
    return ek_kind_is(document, node, EK_STRING) && document->nodes[node].size == 7 + 64 &&
           memcmp(ek_bytes(document, node), "sha256:", 7) == 0 &&
           ek_read_hex(ek_bytes(document, node) + 7, 64, digest);
}

/* Where the file name of a path begins. */
static const char *ek_base_name(const char *path, size_t size)
{
    const char *at = path + size;
    while (at > path && at[-1] != '/') {
        at -= 1;
    }
    return at;
}

static int ek_is_layout(const ek_document *document, uint32_t node)
{
    return ek_is(document, node, "rm") || ek_is(document, node, "b8") || ek_is(document, node, "pb16i") ||
           ek_is(document, node, "t2s");
}

/* Check the lock's form, as elfkiln's own reader does; 0 with the error filled. `model` may be NULL. */
static int ek_check_lock(ek_reader *reader, const char *target, const char *model)
{
    static const char *const fields[] = {"schema", "target", "sets", "artifacts", NULL};
    static const char *const set_fields[] = {"model", "layout", NULL};
    static const char *const row_fields[] = {"elf", "size", "recipe", NULL};
    const ek_document *document = reader->document;
    uint32_t artifacts, sets, at, i, found;
    int ours = 0;
    if (!ek_only(reader, "", UINT32_MAX, 0, fields)) {
        return 0;
    }
    found = ek_member_of(document, 0, "schema");
    if (!ek_is(document, found, "elfkiln-kernels-lock/1")) {
        return ek_refuse_field(reader, "schema", "", "elfkiln-kernels-lock/1", found);
    }
    found = ek_member_of(document, 0, "target");
    if (!ek_kind_is(document, found, EK_STRING) || document->nodes[found].size == 0) {
        return ek_refuse_field(reader, "target", "", "a string that is not empty", found);
    }
    sets = ek_member_of(document, 0, "sets");
    if (!ek_kind_is(document, sets, EK_LIST)) {
        return ek_refuse_field(reader, "sets", "", "a list", sets);
    }
    at = sets + 1;
    for (i = 0; i < document->nodes[sets].size; i++) {
        uint32_t name = ek_member_of(document, at, "model"), layout = ek_member_of(document, at, "layout");
        if (!ek_only(reader, "sets", i, at, set_fields)) {
            return 0;
        }
        if (!ek_kind_is(document, name, EK_STRING) ||
            !ek_is_model_name(ek_bytes(document, name), document->nodes[name].size)) {
            return ek_refuse(reader, "sets", i, "model", "a model's name", name);
        }
        if (!ek_is_layout(document, layout)) {
            return ek_refuse(reader, "sets", i, "layout", "one of rm, b8, pb16i, t2s", layout);
        }
        ours |= model && ek_is(document, name, model);
        at = document->nodes[at].end;
    }
    artifacts = ek_member_of(document, 0, "artifacts");
    if (!ek_kind_is(document, artifacts, EK_OBJECT)) {
        return ek_refuse_field(reader, "artifacts", "", "an object", artifacts);
    }
    at = artifacts + 1;
    for (i = 0; i < document->nodes[artifacts].size; i++) {
        const char *path = ek_bytes(document, at);
        unsigned char digest[ELFKILN_DIGEST_BYTES];
        int64_t bytes;
        uint32_t row = at + 1, elf = ek_member_of(document, row, "elf"), size = ek_member_of(document, row, "size");
        uint32_t recipe = ek_member_of(document, row, "recipe");
        if (!ek_is_lock_path(path, document->nodes[at].size)) {
            return ek_refuse_field(reader, "artifacts", "", "a path below the folder, of a file ending in .elf", at);
        }
        if (!ek_only(reader, "artifacts", UINT32_MAX, row, row_fields)) {
            return 0;
        }
        if (!ek_read_digest(document, elf, digest)) {
            return ek_refuse_field(reader, "artifacts", path, "elf: sha256:<64 lower-case hex digits>", elf);
        }
        if (!ek_read_digest(document, recipe, digest)) {
            return ek_refuse_field(reader, "artifacts", path, "recipe: sha256:<64 lower-case hex digits>", recipe);
        }
        if (!ek_number(document, size, 1, INT64_C(1) << 53, &bytes)) {
            return ek_refuse_field(reader, "artifacts", path, "size: a whole number of bytes", size);
        }
        at = document->nodes[row].end;
    }
    /* Whose it is comes last: only of a sound file can that be said. */
    if (!ek_is(document, ek_member_of(document, 0, "target"), target)) {
        reader->bad = ELFKILN_WRONG_TARGET;
        return ek_refuse_field(reader, "target", "", target, ek_member_of(document, 0, "target"));
    }
    if (model && !ours) {
        reader->bad = ELFKILN_WRONG_TARGET;
        return ek_refuse_field(reader, "sets", "", "one of the model asked for", sets);
    }
    return 1;
}

static int ek_compare_entries(const void *one, const void *other)
{
    return strcmp(((const ek_entry *)one)->name.name, ((const ek_entry *)other)->name.name);
}

/* Put the positions in the order of the names. By insertion: a plan has 25 names at most, and those of a lock come
 * sorted. */
static void ek_sort(elfkiln_set *set)
{
    uint32_t i, at;
    for (i = 0; i < set->count; i++) {
        for (at = i; at && ek_compare_entries(set->entries + i, set->entries + set->sorted[at - 1]) < 0; at--) {
            set->sorted[at] = set->sorted[at - 1];
        }
        set->sorted[at] = i;
    }
}

static ek_entry *ek_find(const elfkiln_set *set, const char *name)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        ek_entry *entry = set->entries + set->sorted[middle];
        int order = strcmp(name, entry->name.name);
        if (order == 0) {
            return entry;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

/* Take over what the lock says of the set's names. A name under two paths with one digest is listed once. */
static void ek_take_listing(elfkiln_set *set, const ek_document *lock)
{
    uint32_t artifacts = ek_member_of(lock, 0, "artifacts"), at = artifacts + 1, i;
    for (i = 0; i < lock->nodes[artifacts].size; i++) {
        const char *path = ek_bytes(lock, at);
        ek_entry *entry = ek_find(set, ek_base_name(path, lock->nodes[at].size));
        if (entry) {
            unsigned char digest[ELFKILN_DIGEST_BYTES];
            int64_t size = 0;
            ek_read_digest(lock, ek_member_of(lock, at + 1, "elf"), digest);
            ek_number(lock, ek_member_of(lock, at + 1, "size"), 1, INT64_C(1) << 53, &size);
            if (entry->listing == EK_UNLISTED) {
                entry->listing = EK_LISTED;
                entry->size = (uint64_t)size;
                memcpy(entry->digest, digest, sizeof digest);
            } else if (entry->size != (uint64_t)size || memcmp(entry->digest, digest, sizeof digest) != 0) {
                entry->listing = EK_LISTED_TWICE;
            }
        }
        at = lock->nodes[at + 1].end;
    }
}

static int ek_ends_with(const char *name, const char *end)
{
    size_t size = strlen(name), length = strlen(end);
    return size >= length && memcmp(name + size - length, end, length) == 0;
}

/* Where a name is looked up: a GEMM in the --kernels directory, its twin in those of twins, another ELF (the sealed
 * one) in the model folder. */
static void ek_assign_folders(const elfkiln_set *set, ek_entry *entry)
{
    int gemm = strncmp(entry->name.name, "full_i8_", 8) == 0;
    int twin = gemm && ek_ends_with(entry->name.name, "_m16.elf");
    entry->first = twin ? 1 : gemm ? 0 : 1 + set->twins;
    entry->folders = twin ? set->twins : 1;
}

static int ek_allot(elfkiln_set *set, size_t count)
{
    set->entries = (ek_entry *)ELFKILN_MALLOC((count + 1) * sizeof *set->entries);
    set->sorted = (uint32_t *)ELFKILN_MALLOC((count + 1) * sizeof *set->sorted);
    if (!set->entries || !set->sorted) {
        return 0;
    }
    memset(set->entries, 0, (count + 1) * sizeof *set->entries);
    return 1;
}

/* Without a plan: every file name of the lock, each once, sorted. */
static elfkiln_status ek_names_of_lock(elfkiln_set *set, const ek_document *lock, const char *where,
                                       elfkiln_error *error)
{
    uint32_t artifacts = ek_member_of(lock, 0, "artifacts"), at = artifacts + 1, i;
    uint32_t count = lock->nodes[artifacts].size;
    if (!ek_allot(set, count)) {
        return ek_system(error, where, ENOMEM);
    }
    for (i = 0; i < count; i++) {
        const char *base = ek_base_name(ek_bytes(lock, at), lock->nodes[at].size);
        memcpy(set->entries[i].name.name, base, strlen(base));
        at = lock->nodes[at + 1].end;
    }
    qsort(set->entries, count, sizeof *set->entries, ek_compare_entries);
    for (i = 0; i < count; i++) {
        if (i == 0 || ek_compare_entries(set->entries + i, set->entries + set->count - 1) != 0) {
            set->entries[set->count++] = set->entries[i];
        }
    }
    ek_sort(set);
    return ELFKILN_OK;
}

/* ---- plan.json (schema 1bit-npu-plan/1) -------------------------------------------------------------------------- */

typedef struct ek_family {
    const char *tag, *layout;
    int pb16i;
} ek_family;

static const ek_family ek_families[] = {
    {"", "rm", 0}, {"_b8", "b8", 0}, {"_pb16i", "pb16i", 1}, {"_t2s", "t2s", 1}, {"_t2s2", "t2s", 1}};

/* A projection key of a layer, the roles it asks for with gate and up split and fused, and whether K and N are the
 * model's hidden size. The order is that of the names asked for. */
typedef struct ek_projection {
    const char *key, *split[2], *fused[2];
    int input_hidden, output_hidden;
} ek_projection;

enum {
    EK_QKV,
    EK_ATTN_GATE,
    EK_Q_A,
    EK_Q_B,
    EK_KV_A,
    EK_O,
    EK_SSM_OUT,
    EK_GATE_UP,
    EK_DOWN,
    EK_DENSE_GATE_UP,
    EK_DENSE_DOWN,
    EK_PLE_GATE,
    EK_PLE_PROJ
};

static const ek_projection ek_projections[] = {
    {"qkv", {"QKV", NULL}, {"QKV", NULL}, 1, 0},
    {"attn_gate", {"Z", NULL}, {"Z", NULL}, 1, 0},
    {"q_a", {"QA", NULL}, {"QA", NULL}, 1, 0},
    {"q_b", {"QB", NULL}, {"QB", NULL}, 0, 0},
    {"kv_a", {"KVA", NULL}, {"KVA", NULL}, 1, 0},
    {"o", {"O", NULL}, {"O", NULL}, 0, 1},
    {"ssm_out", {"O", NULL}, {"O", NULL}, 0, 1},
    {"gate_up", {"G", "U"}, {"GU", NULL}, 1, 0},
    {"down", {"D", NULL}, {"D", NULL}, 0, 1},
    {"dense_gate_up", {"DG", "DU"}, {"DG", "DU"}, 1, 0},
    {"dense_down", {"DD", NULL}, {"DD", NULL}, 0, 1},
    {"ple_gate", {"PLEGATE", NULL}, {"PLEGATE", NULL}, 1, 0},
    {"ple_proj", {"PLEPROJ", NULL}, {"PLEPROJ", NULL}, 0, 1}};

enum { EK_PROJECTIONS = sizeof ek_projections / sizeof ek_projections[0] };

/* A projection, one that has to stand in the same layer, and whether the N of the first is the K of the second. */
static const struct {
    int key, other, feeds;
} ek_partners[] = {{EK_Q_A, EK_Q_B, 1},
                   {EK_Q_B, EK_Q_A, 0},
                   {EK_Q_A, EK_KV_A, 0},
                   {EK_KV_A, EK_Q_A, 0},
                   {EK_DOWN, EK_GATE_UP, 0},
                   {EK_DENSE_GATE_UP, EK_DENSE_DOWN, 1},
                   {EK_DENSE_DOWN, EK_DENSE_GATE_UP, 0},
                   {EK_PLE_GATE, EK_PLE_PROJ, 1},
                   {EK_PLE_PROJ, EK_PLE_GATE, 0}};

/* One projection of one layer: K is 0 where the layer has it not. */
typedef struct ek_geometry {
    int32_t K, N;
    int fused; /* -1 where it does not say */
} ek_geometry;

typedef struct ek_design {
    const char *role;
    int32_t K, N;
    uint32_t launches;
} ek_design;

typedef struct ek_plan {
    int32_t hidden;
    uint32_t layers;
    const ek_family *family;
    int fused; /* gate and up are one GEMM */
    int decode;
    char mode[32]; /* attention.mode */
    uint32_t dirs; /* node of decode.dirs */
    char sealed[ELFKILN_NAME_BYTES];
    ek_geometry geometry[EK_LAYERS][EK_PROJECTIONS];
    ek_design designs[EK_DESIGNS];
    uint32_t count;
} ek_plan;

/* A section of the plan, which must be an object; an absent one is UINT32_MAX where `needed` is 0. */
static int ek_section(const ek_reader *reader, uint32_t outer, const char *name, const char *shown, int needed,
                      uint32_t *section)
{
    *section = ek_member_of(reader->document, outer, name);
    if (*section == UINT32_MAX ? needed : !ek_kind_is(reader->document, *section, EK_OBJECT)) {
        return ek_refuse_field(reader, shown, "", "an object", *section);
    }
    return 1;
}

/* A string that may be absent (UINT32_MAX then). */
static int ek_optional_text(const ek_reader *reader, uint32_t section, const char *shown, const char *key,
                            uint32_t *node)
{
    *node = ek_member_of(reader->document, section, key);
    if (*node != UINT32_MAX && !ek_kind_is(reader->document, *node, EK_STRING)) {
        return ek_refuse_field(reader, shown, key, "a string", *node);
    }
    return 1;
}

/* true or false; `value` is left alone where the field is absent and not needed. */
static int ek_truth(const ek_reader *reader, uint32_t section, const char *shown, const char *key, int needed,
                    int *value)
{
    uint32_t node = ek_member_of(reader->document, section, key);
    if (node == UINT32_MAX && !needed) {
        return 1;
    }
    if (!ek_kind_is(reader->document, node, EK_TRUE) && !ek_kind_is(reader->document, node, EK_FALSE)) {
        return ek_refuse_field(reader, shown, key, "true or false", node);
    }
    *value = reader->document->nodes[node].kind == EK_TRUE;
    return 1;
}

/* One of two words (the second may be NULL), the first by default where the field may be absent. */
static int ek_choice(const ek_reader *reader, uint32_t section, const char *shown, const char *key, int needed,
                     const char *first, const char *second, const char *expected, int *is_second)
{
    uint32_t node = ek_member_of(reader->document, section, key);
    *is_second = second && ek_is(reader->document, node, second);
    if ((node == UINT32_MAX && !needed) || *is_second || ek_is(reader->document, node, first)) {
        return 1;
    }
    return ek_refuse_field(reader, shown, key, expected, node);
}

/* The one height that names stand for, or nothing. */
static int ek_height(const ek_reader *reader, uint32_t section, const char *shown, int32_t only, const char *expected)
{
    uint32_t node = ek_member_of(reader->document, section, "M");
    int32_t value = 0;
    if (node == UINT32_MAX || (ek_whole(reader->document, node, 1, &value) && value == only)) {
        return 1;
    }
    return ek_refuse_field(reader, shown, "M", expected, node);
}

/* Whether a name is one of a GEMM artifact, which a sealed ELF may not have. */
static int ek_is_artifact_name(const char *name)
{
    static const char *const roles[] = {"QKV", "QKV2", "O", "O2", "GU", "GU2", "G", "U", "D", "D2", "Z", "PLEGATE",
                                        "PLEPROJ", "QA", "QB", "KVA", "DG", "DU", "DD"};
    size_t i, length;
    int known = 0, letter;
    if (strncmp(name, "full_i8_", 8) != 0) {
        return 0;
    }
    name += 8;
    for (length = 0; name[length] && name[length] != '_'; length++) {
    }
    for (i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        known |= strlen(roles[i]) == length && memcmp(name, roles[i], length) == 0;
    }
    name += length;
    for (letter = 0; letter < 2; letter++) {
        if (name[0] != '_' || name[1] != (letter ? 'N' : 'K') || name[2] < '1' || name[2] > '9') {
            return 0;
        }
        for (name += 2; *name >= '0' && *name <= '9'; name++) {
        }
    }
    for (i = 0; i < sizeof ek_families / sizeof ek_families[0]; i++) {
        const char *rest = name;
        length = strlen(ek_families[i].tag);
        if (strncmp(rest, ek_families[i].tag, length) == 0) {
            rest += length;
            rest += strncmp(rest, "_m16", 4) == 0 ? 4 : 0;
            if (strcmp(rest, ".elf") == 0) {
                return known;
            }
        }
    }
    return 0;
}

static int ek_read_container(const ek_reader *reader, uint32_t top, ek_plan *plan)
{
    const ek_document *document = reader->document;
    uint32_t container, kernels, layout, tag, node;
    int pb16i = 0, unused;
    size_t i;
    if (!ek_section(reader, top, "container", "container", 1, &container)) {
        return 0;
    }
    layout = ek_member_of(document, container, "layout");
    if (!ek_is_layout(document, layout)) {
        return ek_refuse_field(reader, "container", "layout", "one of rm, b8, pb16i, t2s", layout);
    }
    if (!ek_truth(reader, container, "container", "pb16i", 0, &pb16i) ||
        !ek_optional_text(reader, container, "container", "chunk_kind", &node) ||
        !ek_choice(reader, container, "container", "tile_order", 0, "engine-1", NULL, "engine-1", &unused) ||
        !ek_section(reader, top, "kernels", "kernels", 1, &kernels)) {
        return 0;
    }
    tag = ek_member_of(document, kernels, "tag");
    for (i = 0; i < sizeof ek_families / sizeof ek_families[0]; i++) {
        if (ek_is(document, tag, ek_families[i].tag)) {
            plan->family = ek_families + i;
        }
    }
    if (!plan->family) {
        return ek_refuse_field(reader, "kernels", "tag", "one of '', _b8, _pb16i, _t2s, _t2s2", tag);
    }
    if (!ek_is(document, layout, plan->family->layout)) {
        return ek_refuse_field(reader, "kernels", "tag", "a tag of container.layout", tag);
    }
    if (pb16i != plan->family->pb16i) {
        return ek_refuse_field(reader, "container", "pb16i", "what kernels.tag asks for",
                               ek_member_of(document, container, "pb16i"));
    }
    return 1;
}

static int ek_read_decode(const ek_reader *reader, uint32_t top, ek_plan *plan)
{
    const ek_document *document = reader->document;
    uint32_t decode, sealed, at, i;
    if (!ek_section(reader, top, "decode", "decode", 1, &decode) ||
        !ek_truth(reader, decode, "decode", "enabled", 1, &plan->decode)) {
        return 0;
    }
    plan->dirs = ek_member_of(document, decode, "dirs");
    if (!ek_kind_is(document, plan->dirs, EK_LIST) || document->nodes[plan->dirs].size == 0) {
        return ek_refuse_field(reader, "decode", "dirs", "a list of directories that is not empty", plan->dirs);
    }
    if (document->nodes[plan->dirs].size > EK_DIRECTORIES) {
        return ek_refuse_field(reader, "decode", "dirs", "at most 64 directories", plan->dirs);
    }
    at = plan->dirs + 1;
    for (i = 0; i < document->nodes[plan->dirs].size; i++) {
        uint32_t root = ek_member_of(document, at, "root"), path = ek_member_of(document, at, "path");
        if (!ek_is(document, root, "model") && !ek_is(document, root, "kernels")) {
            return ek_refuse(reader, "decode.dirs", i, "root", "one of model, kernels", root);
        }
        if (!ek_kind_is(document, path, EK_STRING) || !ek_is_plan_path(ek_bytes(document, path))) {
            return ek_refuse(reader, "decode.dirs", i, "path", "a relative path with / that stays below its root",
                             path);
        }
        at = document->nodes[at].end;
    }
    if (!ek_optional_text(reader, decode, "decode", "sealed_elf", &sealed)) {
        return 0;
    }
    if (sealed != UINT32_MAX && document->nodes[sealed].size) {
        const char *name = ek_bytes(document, sealed);
        if (!plan->family->pb16i) {
            return ek_refuse_field(reader, "decode", "sealed_elf", "nothing, as the container is not pb16i", sealed);
        }
        if (!ek_is_elf_name(name, document->nodes[sealed].size)) {
            return ek_refuse_field(reader, "decode", "sealed_elf",
                                   "a bare file name ending in .elf, at most 63 characters", sealed);
        }
        if (plan->decode) {
            if (ek_is_artifact_name(name)) {
                return ek_refuse_field(reader, "decode", "sealed_elf", "a name of its own", sealed);
            }
            memcpy(plan->sealed, name, strlen(name) + 1);
        }
    } else if (plan->decode && strcmp(plan->family->tag, "_pb16i") == 0) {
        return ek_refuse_field(reader, "decode", "sealed_elf", "a file name, as decode of tag _pb16i needs one",
                               sealed);
    }
    return ek_height(reader, decode, "decode", 16, "16, the one height artifact names of twins stand for");
}

static int ek_read_cache(const ek_reader *reader, uint32_t top)
{
    static const char *const keys[] = {"key", "value"};
    uint32_t kv, hadamard, node, signs;
    int32_t block = 0;
    int int8 = 0, i;
    if (!ek_section(reader, top, "kv", "kv", 0, &kv)) {
        return 0;
    }
    for (i = 0; i < 2; i++) {
        if (!ek_choice(reader, kv, "kv", keys[i], 0, "f16", "int8", "f16 or int8", &int8)) {
            return 0;
        }
        if (int8) {
            return ek_refuse_field(reader, "kv", keys[i], "f16, as no target has int8_kv",
                                   ek_member_of(reader->document, kv, keys[i]));
        }
    }
    if (!ek_section(reader, kv, "hadamard", "kv.hadamard", 0, &hadamard)) {
        return 0;
    }
    node = ek_member_of(reader->document, hadamard, "block");
    if (node != UINT32_MAX && (!ek_whole(reader->document, node, 0, &block) || block == 1 || block > 65536 ||
                               (block & (block - 1)) != 0)) {
        return ek_refuse_field(reader, "kv.hadamard", "block", "0 or a power of two in 2..65536", node);
    }
    if (!ek_optional_text(reader, hadamard, "kv.hadamard", "signs", &signs)) {
        return 0;
    }
    if (signs != UINT32_MAX && reader->document->nodes[signs].size) {
        const char *name = ek_bytes(reader->document, signs);
        size_t size = reader->document->nodes[signs].size;
        if (!ek_is_inner_path(name, size) || memchr(name, '/', size) || strcmp(name, ".") == 0) {
            return ek_refuse_field(reader, "kv.hadamard", "signs", "a bare file name", signs);
        }
        if (!block) {
            return ek_refuse_field(reader, "kv.hadamard", "signs", "nothing, as kv.hadamard.block is 0", signs);
        }
    }
    return 1;
}

static int ek_read_layer(const ek_reader *reader, uint32_t index, uint32_t layer, ek_geometry *geometry)
{
    const ek_document *document = reader->document;
    uint32_t found;
    int32_t number = 0;
    size_t i;
    if (!ek_kind_is(document, layer, EK_OBJECT)) {
        return ek_refuse(reader, "layers", index, "", "an object", layer);
    }
    found = ek_member_of(document, layer, "index");
    if (!ek_whole(document, found, 0, &number) || (uint32_t)number != index) {
        return ek_refuse(reader, "layers", index, "index", "its position (contiguous, in order)", found);
    }
    found = ek_member_of(document, layer, "role");
    if (!ek_kind_is(document, found, EK_STRING)) {
        return ek_refuse(reader, "layers", index, "role", "a string", found);
    }
    for (i = 0; i < EK_PROJECTIONS; i++) {
        uint32_t entry = ek_member_of(document, layer, ek_projections[i].key), fused;
        geometry[i].K = geometry[i].N = 0;
        geometry[i].fused = -1;
        if (entry == UINT32_MAX) {
            continue;
        }
        if (!ek_kind_is(document, entry, EK_OBJECT)) {
            return ek_refuse(reader, "layers", index, ek_projections[i].key, "an object", entry);
        }
        fused = ek_member_of(document, entry, "fused");
        if (!ek_whole(document, ek_member_of(document, entry, "K"), 1, &geometry[i].K) ||
            !ek_whole(document, ek_member_of(document, entry, "N"), 1, &geometry[i].N)) {
            return ek_refuse(reader, "layers", index, ek_projections[i].key, "K and N, positive whole numbers", entry);
        }
        if (fused != UINT32_MAX) {
            if (!ek_kind_is(document, fused, EK_TRUE) && !ek_kind_is(document, fused, EK_FALSE)) {
                return ek_refuse(reader, "layers", index, ek_projections[i].key, "fused: true or false", fused);
            }
            geometry[i].fused = document->nodes[fused].kind == EK_TRUE;
        }
    }
    return 1;
}

/* What the projections of one layer say of each other and of the model; gate_up.N becomes the width of its GEMM. */
static int ek_check_layer(const ek_reader *reader, uint32_t index, const ek_plan *plan, ek_geometry *geometry)
{
    ek_geometry *gate = geometry + EK_ATTN_GATE, *up = geometry + EK_GATE_UP, *down = geometry + EK_DOWN;
    size_t i;
    for (i = 0; i < sizeof ek_partners / sizeof ek_partners[0]; i++) {
        const ek_geometry *one = geometry + ek_partners[i].key, *other = geometry + ek_partners[i].other;
        if (one->K && (!other->K || (ek_partners[i].feeds && one->N != other->K))) {
            return ek_refuse(reader, "layers", index, ek_projections[ek_partners[i].other].key,
                             "a partner of the projection before or after it, of its width", UINT32_MAX);
        }
    }
    for (i = 0; i < EK_PROJECTIONS; i++) {
        const ek_projection *row = ek_projections + i;
        if (geometry[i].K && ((row->input_hidden && geometry[i].K != plan->hidden) ||
                              (row->output_hidden && geometry[i].N != plan->hidden))) {
            return ek_refuse(reader, "layers", index, row->key, "a geometry that fits model.hidden", UINT32_MAX);
        }
    }
    if (geometry[EK_QKV].K && geometry[EK_QKV].fused == 0) {
        return ek_refuse(reader, "layers", index, "qkv.fused", "true: no name stands for separate q, k and v",
                         UINT32_MAX);
    }
    for (i = EK_O; i <= EK_SSM_OUT; i++) {
        if (geometry[i].K && gate->K && geometry[i].K != gate->N) {
            return ek_refuse(reader, "layers", index, ek_projections[i].key, "K: attn_gate.N", UINT32_MAX);
        }
    }
    if (up->K) {
        /* A plan may write gate_up.N as the width of the MLP or as its double; down.K is always the width. */
        if (!down->K || (up->N != down->K && up->N != (int64_t)2 * down->K)) {
            return ek_refuse(reader, "layers", index, "gate_up.N", "down.K or its double", UINT32_MAX);
        }
        if (up->fused != -1 && up->fused != plan->fused) {
            return ek_refuse(reader, "layers", index, "gate_up.fused", "what fusion.gate_up says", UINT32_MAX);
        }
        if (plan->fused && down->K > INT32_MAX / 2) {
            return ek_refuse(reader, "layers", index, "gate_up.N", "a width whose double is below 2^31", UINT32_MAX);
        }
        up->N = plan->fused ? 2 * down->K : down->K;
    }
    if (!geometry[EK_O].K && !geometry[EK_SSM_OUT].K) {
        if (gate->K) {
            geometry[EK_O].K = gate->N; /* the attention output that the plan leaves out */
            geometry[EK_O].N = plan->hidden;
        } else if (geometry[EK_QKV].K || geometry[EK_Q_B].K) {
            return ek_refuse(reader, "layers", index, "", "o, ssm_out or attn_gate, to tell the attention output",
                             UINT32_MAX);
        }
    }
    return 1;
}

/* The array columns that N allows, a bit each: those of 2..8 that divide N / 128. */
static unsigned ek_columns(int32_t N)
{
    unsigned columns = 0, count;
    for (count = 2; N % 128 == 0 && count <= 8; count++) {
        columns |= (unsigned)((uint32_t)N / 128 % count == 0) << count;
    }
    return columns;
}

/* Add a GEMM to the plan's designs, or one more launch to one that is there. */
static int ek_demand(const ek_reader *reader, ek_plan *plan, const char *role, int32_t K, int32_t N, uint32_t launches)
{
    uint32_t i;
    if (K % 64 != 0 || !ek_columns(N)) {
        return ek_refuse_field(reader, "layers", role,
                               "K a multiple of 64, N one of 128 whose N/128 has a divisor in 2..8", UINT32_MAX);
    }
    for (i = 0; i < plan->count; i++) {
        ek_design *design = plan->designs + i;
        if (strcmp(design->role, role) == 0 && design->K == K && design->N == N) {
            design->launches += launches;
            return 1;
        }
    }
    if (plan->count == EK_DESIGNS) {
        return ek_refuse_field(reader, "layers", "", "at most 12 designs (Q4NX_MAX_DESIGNS)", UINT32_MAX);
    }
    plan->designs[plan->count].role = role;
    plan->designs[plan->count].K = K;
    plan->designs[plan->count].N = N;
    plan->designs[plan->count].launches = launches;
    plan->count += 1;
    return 1;
}

static int ek_read_designs(const ek_reader *reader, uint32_t top, ek_plan *plan)
{
    uint32_t layers = ek_member_of(reader->document, top, "layers"), at, i, moe, batched, experts = 0;
    size_t row, turn;
    int enabled = 0;
    int32_t K = 0, N = 0;
    if (!ek_kind_is(reader->document, layers, EK_LIST) || reader->document->nodes[layers].size != plan->layers) {
        return ek_refuse_field(reader, "layers", "", "a list of model.layers layers", layers);
    }
    at = layers + 1;
    for (i = 0; i < plan->layers; i++) {
        if (!ek_read_layer(reader, i, at, plan->geometry[i])) {
            return 0;
        }
        at = reader->document->nodes[at].end;
    }
    for (i = 0; i < plan->layers; i++) {
        if (!ek_check_layer(reader, i, plan, plan->geometry[i])) {
            return 0;
        }
        experts += plan->geometry[i][EK_GATE_UP].K != 0;
    }
    for (row = 0; row < EK_PROJECTIONS; row++) {
        const char *const *roles = plan->fused ? ek_projections[row].fused : ek_projections[row].split;
        for (turn = 0; turn < 2 && roles[turn]; turn++) {
            for (i = 0; i < plan->layers; i++) {
                const ek_geometry *geometry = plan->geometry[i] + row;
                if (geometry->K && !ek_demand(reader, plan, roles[turn], geometry->K, geometry->N, 1)) {
                    return 0;
                }
            }
        }
    }
    if (!ek_section(reader, top, "moe", "moe", 0, &moe) ||
        !ek_section(reader, moe, "batched_expert_gu", "moe.batched_expert_gu", 0, &batched)) {
        return 0;
    }
    if (batched != UINT32_MAX) {
        uint32_t k = ek_member_of(reader->document, batched, "K"), n = ek_member_of(reader->document, batched, "N");
        if (!ek_truth(reader, batched, "moe.batched_expert_gu", "enabled", 1, &enabled)) {
            return 0;
        }
        if ((k != UINT32_MAX && !ek_whole(reader->document, k, 0, &K)) ||
            (n != UINT32_MAX && !ek_whole(reader->document, n, 0, &N)) || (enabled && (K < 1 || N < 1))) {
            return ek_refuse_field(reader, "moe.batched_expert_gu", "",
                                   "K and N, whole numbers, positive where enabled", batched);
        }
        if (enabled && K != plan->hidden) {
            return ek_refuse_field(reader, "moe.batched_expert_gu", "K", "model.hidden", k);
        }
        if (enabled && (!ek_demand(reader, plan, "G", K, N, experts) || !ek_demand(reader, plan, "U", K, N, experts))) {
            return 0;
        }
    }
    if (!plan->count) {
        return ek_refuse_field(reader, "layers", "", "at least one projection in any layer", UINT32_MAX);
    }
    if (plan->sealed[0]) {
        unsigned shared = ~0u;
        for (i = 0; i < plan->count; i++) {
            shared &= ek_columns(plan->designs[i].N);
        }
        if (!shared) {
            return ek_refuse_field(reader, "decode", "sealed_elf", "geometries that share a legal column count",
                                   UINT32_MAX);
        }
    }
    return 1;
}

/* Check a parsed plan as elfkiln's own loader does and fill `plan`; 0 with the error filled. */
static int ek_read_plan(const ek_reader *reader, ek_plan *plan)
{
    const ek_document *document = reader->document;
    uint32_t model, section, node;
    int32_t layers = 0;
    int is_second;
    memset(plan, 0, sizeof *plan);
    if (!ek_kind_is(document, 0, EK_OBJECT)) {
        return ek_refuse_field(reader, "", "", "an object", 0);
    }
    if (!ek_choice(reader, 0, "", "format", 1, "1bit-npu-plan/1", NULL, "1bit-npu-plan/1", &is_second) ||
        !ek_optional_text(reader, 0, "", "generated_by", &node) ||
        !ek_section(reader, 0, "model", "model", 1, &model)) {
        return 0;
    }
    node = ek_member_of(document, model, "hidden");
    if (!ek_whole(document, node, 1, &plan->hidden)) {
        return ek_refuse_field(reader, "model", "hidden", "a positive whole number", node);
    }
    node = ek_member_of(document, model, "layers");
    if (!ek_whole(document, node, 1, &layers) || layers > EK_LAYERS) {
        return ek_refuse_field(reader, "model", "layers", "a whole number in 1..64 (Q4NX_MAX_LAYERS)", node);
    }
    plan->layers = (uint32_t)layers;
    if (!ek_optional_text(reader, model, "model", "arch", &node) || !ek_read_container(reader, 0, plan) ||
        !ek_section(reader, 0, "fusion", "fusion", 1, &section) ||
        !ek_choice(reader, section, "fusion", "gate_up", 1, "split", "fused", "one of fused, split", &plan->fused) ||
        !ek_section(reader, 0, "attention", "attention", 1, &section) ||
        !ek_choice(reader, section, "attention", "mode", 1, "causal", "noncausal_full_attention",
                   "one of causal, noncausal_full_attention", &is_second)) {
        return 0;
    }
    strcpy(plan->mode, is_second ? "noncausal_full_attention" : "causal");
    return ek_section(reader, 0, "prefill", "prefill", 0, &section) &&
           ek_height(reader, section, "prefill", 128, "128, the one height artifact names stand for") &&
           ek_read_decode(reader, 0, plan) && ek_read_cache(reader, 0) && ek_read_designs(reader, 0, plan);
}

static void ek_put_number(char *to, size_t *used, int32_t number)
{
    char digits[12];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count) {
        to[(*used)++] = digits[--count];
    }
}

static void ek_put_words(char *to, size_t *used, const char *words)
{
    size_t length = strlen(words);
    memcpy(to + *used, words, length);
    *used += length;
}

/* Append `full_i8_<ROLE>_K<K>_N<N>[tag][_m16].elf`: 62 bytes at most. */
static void ek_add_name(elfkiln_set *set, const ek_design *design, const char *tag, int twin)
{
    elfkiln_name *name = &set->entries[set->count++].name;
    size_t used = 0;
    ek_put_words(name->name, &used, "full_i8_");
    ek_put_words(name->name, &used, design->role);
    ek_put_words(name->name, &used, "_K");
    ek_put_number(name->name, &used, design->K);
    ek_put_words(name->name, &used, "_N");
    ek_put_number(name->name, &used, design->N);
    ek_put_words(name->name, &used, tag);
    ek_put_words(name->name, &used, twin ? "_m16.elf" : ".elf");
    name->name[used] = '\0';
    strcpy(name->role, design->role);
    name->K = design->K;
    name->N = design->N;
    name->rows = twin ? 16 : 128;
    name->launches = design->launches;
}

/* Fill the set's names from the plan: prefill set, twins, sealed ELF. */
static elfkiln_status ek_names_of_plan(elfkiln_set *set, const ek_plan *plan, const char *where, elfkiln_error *error)
{
    uint32_t i, launches = 0;
    int twin;
    if (!ek_allot(set, 2 * (size_t)plan->count + 1)) {
        return ek_system(error, where, ENOMEM);
    }
    for (twin = 0; twin <= plan->decode; twin++) {
        for (i = 0; i < plan->count; i++) {
            ek_add_name(set, plan->designs + i, plan->family->tag, twin);
        }
    }
    if (plan->sealed[0]) {
        elfkiln_name *name = &set->entries[set->count++].name;
        for (i = 0; i < plan->count; i++) {
            launches += plan->designs[i].launches;
        }
        strcpy(name->name, plan->sealed);
        name->launches = launches;
    }
    ek_sort(set);
    return ELFKILN_OK;
}

/* decision_config.json beside the plan, if there is one, must name the same attention mode. */
static elfkiln_status ek_check_decision(const char *path, const ek_plan *plan, elfkiln_error *error)
{
    ek_document document;
    ek_reader reader;
    uint32_t mode;
    elfkiln_status status = ek_read_file(&document, path, EK_FILE_BYTES, ELFKILN_OK, ELFKILN_BAD_PLAN, error);
    if (status != ELFKILN_OK || !document.text) {
        return status;
    }
    status = ek_parse(&document, path, ELFKILN_BAD_PLAN, error);
    if (status == ELFKILN_OK) {
        reader.document = &document;
        reader.where = path;
        reader.bad = ELFKILN_BAD_PLAN;
        reader.error = error;
        mode = ek_member_of(&document, 0, "attention_mode");
        if (!ek_kind_is(&document, 0, EK_OBJECT)) {
            ek_refuse_field(&reader, "", "", "an object", 0);
            status = ELFKILN_BAD_PLAN;
        } else if (mode != UINT32_MAX && !ek_kind_is(&document, mode, EK_NULL) && !ek_is(&document, mode, plan->mode)) {
            ek_refuse_field(&reader, "attention_mode", "", plan->mode, mode);
            status = ELFKILN_BAD_PLAN;
        }
    }
    ek_free_document(&document);
    return status;
}

/* Compose the folders: the --kernels directory, those of twins (each once), the model folder. */
static elfkiln_status ek_set_folders(elfkiln_set *set, const char *model_dir, const char *kernels_dir,
                                     const ek_document *plan, uint32_t dirs, elfkiln_error *error)
{
    uint32_t count = plan ? plan->nodes[dirs].size : 3, at = plan ? dirs + 1 : 0, i, j, kept = 0;
    char *kernels;
    set->folders = (char **)ELFKILN_MALLOC((count + 3) * sizeof *set->folders);
    if (!set->folders) {
        return ek_system(error, model_dir, ENOMEM);
    }
    memset(set->folders, 0, (count + 3) * sizeof *set->folders); /* the list ends with a NULL */
    kernels = kernels_dir ? ek_joined(kernels_dir, "") : ek_joined(model_dir, "kernels");
    if (!kernels) {
        return ek_system(error, model_dir, ENOMEM);
    }
    set->folders[0] = kernels;
    for (i = 0; i < count; i++) {
        char *folder;
        if (plan) {
            int in_model = ek_is(plan, ek_member_of(plan, at, "root"), "model");
            folder = ek_joined(in_model ? model_dir : kernels, ek_bytes(plan, ek_member_of(plan, at, "path")));
            at = plan->nodes[at].end;
        } else {
            /* The engine's probes: --kernels, then both folders of the model. */
            folder = i == 0 ? ek_joined(kernels, "") : ek_joined(model_dir, i == 1 ? "kernels" : "kernels-m16");
        }
        if (!folder) {
            return ek_system(error, model_dir, ENOMEM);
        }
        for (j = 0; j < kept && strcmp(set->folders[1 + j], folder) != 0; j++) {
        }
        if (j < kept) {
            ELFKILN_FREE(folder);
        } else {
            set->folders[1 + kept++] = folder;
        }
    }
    set->twins = kept;
    set->folders[1 + kept] = ek_joined(model_dir, "");
    return set->folders[1 + kept] ? ELFKILN_OK : ek_system(error, model_dir, ENOMEM);
}

/* ---- signatures: a policy, and DSSE envelopes on in-toto statements about kernels.lock.json ---------------------- */

typedef struct ek_policy_key {
    unsigned char key[32];
    const char *name;
    uint32_t roles; /* node */
    int64_t expires;
} ek_policy_key;

typedef struct ek_rule {
    const char *target, *predicate, *role;
    int32_t threshold;
    uint32_t keys;   /* a bit for each key of its role */
    uint32_t voters; /* those that vouched */
} ek_rule;

typedef struct ek_policy {
    ek_policy_key keys[EK_KEYS];
    ek_rule rules[EK_RULES];
    uint32_t key_count, rule_count;
} ek_policy;

/* Decode base64 in place and return the size, -1 for what is none: padding is needed, the unused bits are zero, and
 * the letters are those of one alphabet, the plain one or the one for file names (DSSE allows both). */
static ptrdiff_t ek_base64(char *text, size_t size)
{
    size_t i, used = 0, held = 0;
    uint32_t bits = 0;
    int plain = 0, for_names = 0;
    if (size % 4 != 0) {
        return -1;
    }
    for (i = 0; i < size; i++) {
        char c = text[i];
        uint32_t value;
        if (c >= 'A' && c <= 'Z') {
            value = (uint32_t)(c - 'A');
        } else if (c >= 'a' && c <= 'z') {
            value = (uint32_t)(c - 'a') + 26;
        } else if (c >= '0' && c <= '9') {
            value = (uint32_t)(c - '0') + 52;
        } else if (c == '+' || c == '/') {
            value = c == '+' ? 62 : 63;
            plain = 1;
        } else if (c == '-' || c == '_') {
            value = c == '-' ? 62 : 63;
            for_names = 1;
        } else {
            break;
        }
        bits = bits << 6 | value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            text[used++] = (char)(bits >> held & 0xff);
        }
        bits &= 0xffff;
    }
    if (size - i > 2 || (plain && for_names) || (bits & ((1u << held) - 1)) != 0) {
        return -1;
    }
    for (; i < size; i++) {
        if (text[i] != '=') {
            return -1;
        }
    }
    return (ptrdiff_t)used;
}

/* Read `YYYY-MM-DDTHH:MM:SSZ` as seconds since 1970. */
static int ek_read_time(const char *text, size_t size, int64_t *seconds)
{
    static const char form[] = "0000-00-00T00:00:00Z";
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t field[6] = {0, 0, 0, 0, 0, 0}, year, month, day;
    size_t i, at = 0;
    int leap;
    if (size != sizeof form - 1) {
        return 0;
    }
    for (i = 0; i < size; i++) {
        if (form[i] == '0') {
            if (text[i] < '0' || text[i] > '9') {
                return 0;
            }
            field[at] = field[at] * 10 + (text[i] - '0');
        } else if (text[i] != form[i]) {
            return 0;
        } else {
            at += 1;
        }
    }
    year = field[0], month = field[1], day = field[2];
    leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days[month - 1] + (month == 2 && leap) ||
        field[3] > 23 || field[4] > 59 || field[5] > 59) {
        return 0;
    }
    /* Days since 1970: years begin with March here, so that a leap day is their last. */
    year -= month <= 2;
    month += month <= 2 ? 9 : -3;
    *seconds = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719468;
    *seconds = *seconds * 86400 + field[3] * 3600 + field[4] * 60 + field[5];
    return 1;
}

/* A string that is not empty; NULL with the error filled. */
static const char *ek_words_of(const ek_reader *reader, const char *outer, uint32_t index, uint32_t object,
                               const char *key)
{
    uint32_t node = ek_member_of(reader->document, object, key);
    if (!ek_kind_is(reader->document, node, EK_STRING) || reader->document->nodes[node].size == 0) {
        ek_refuse(reader, outer, index, key, "a string that is not empty", node);
        return NULL;
    }
    return ek_bytes(reader->document, node);
}

static int ek_read_policy_key(const ek_reader *reader, uint32_t index, uint32_t object, ek_policy_key *key)
{
    static const char *const allowed[] = {"name", "ed25519", "roles", "expires", NULL};
    const ek_document *document = reader->document;
    uint32_t node, at, i;
    if (!ek_only(reader, "keys", index, object, allowed)) {
        return 0;
    }
    key->name = ek_words_of(reader, "keys", index, object, "name");
    if (!key->name) {
        return 0;
    }
    node = ek_member_of(document, object, "ed25519");
    if (!ek_kind_is(document, node, EK_STRING) || document->nodes[node].size != 44) {
        return ek_refuse(reader, "keys", index, "ed25519", "a public key: base64 of 32 bytes", node);
    }
    /* The text is decoded in place; what is not base64 is refused without it. */
    if (strpbrk(ek_bytes(document, node), "-_") ||
        ek_base64(document->text + document->nodes[node].start, 44) != 32) {
        return ek_refuse(reader, "keys", index, "ed25519", "a public key: base64 of 32 bytes", UINT32_MAX);
    }
    memcpy(key->key, ek_bytes(document, node), 32);
    if (!ek_is_key(key->key)) {
        return ek_refuse(reader, "keys", index, "ed25519", "a point of the curve, of the full order", UINT32_MAX);
    }
    key->roles = ek_member_of(document, object, "roles");
    if (!ek_kind_is(document, key->roles, EK_LIST) || document->nodes[key->roles].size == 0) {
        return ek_refuse(reader, "keys", index, "roles", "a list of roles that is not empty", key->roles);
    }
    at = key->roles + 1;
    for (i = 0; i < document->nodes[key->roles].size; i++) {
        if (!ek_kind_is(document, at, EK_STRING)) {
            return ek_refuse(reader, "keys", index, "roles", "strings", at);
        }
        at = document->nodes[at].end;
    }
    node = ek_member_of(document, object, "expires");
    if (!ek_kind_is(document, node, EK_STRING) ||
        !ek_read_time(ek_bytes(document, node), document->nodes[node].size, &key->expires)) {
        return ek_refuse(reader, "keys", index, "expires", "a time as YYYY-MM-DDTHH:MM:SSZ", node);
    }
    return 1;
}

static uint32_t ek_bits(uint32_t mask)
{
    uint32_t count = 0;
    for (; mask; mask &= mask - 1) {
        count += 1;
    }
    return count;
}

static int ek_read_rule(const ek_reader *reader, uint32_t index, uint32_t object, ek_policy *policy, ek_rule *rule)
{
    static const char *const allowed[] = {"target", "predicate", "role", "threshold", NULL};
    const ek_document *document = reader->document;
    uint32_t node, i, j;
    if (!ek_only(reader, "rules", index, object, allowed)) {
        return 0;
    }
    rule->target = ek_words_of(reader, "rules", index, object, "target");
    rule->predicate = rule->target ? ek_words_of(reader, "rules", index, object, "predicate") : NULL;
    rule->role = rule->predicate ? ek_words_of(reader, "rules", index, object, "role") : NULL;
    if (!rule->role) {
        return 0;
    }
    rule->keys = rule->voters = 0;
    for (i = 0; i < policy->key_count; i++) {
        uint32_t at = policy->keys[i].roles + 1;
        for (j = 0; j < document->nodes[policy->keys[i].roles].size; j++) {
            rule->keys |= (uint32_t)ek_is(document, at, rule->role) << i;
            at = document->nodes[at].end;
        }
    }
    node = ek_member_of(document, object, "threshold");
    if (!ek_whole(document, node, 1, &rule->threshold) || (uint32_t)rule->threshold > ek_bits(rule->keys)) {
        return ek_refuse(reader, "rules", index, "threshold", "a whole number from 1 to the number of keys of its role",
                         node);
    }
    return 1;
}

/* Check a parsed policy and fill `policy`, whose strings belong to the document. */
static int ek_read_policy(const ek_reader *reader, const char *target, ek_policy *policy)
{
    static const char *const allowed[] = {"schema", "keys", "rules", NULL};
    const ek_document *document = reader->document;
    uint32_t keys, rules, node, at, i, j, ours = 0;
    memset(policy, 0, sizeof *policy);
    node = ek_member_of(document, 0, "identities");
    if (node != UINT32_MAX) {
        /* Leaving them out would lower what the policy asks for: a rule of theirs, a result of theirs that is bad. */
        return ek_refuse_field(reader, "identities", "",
                               "a policy of keys alone, as the client does not verify sigstore identities", node);
    }
    if (!ek_only(reader, "", UINT32_MAX, 0, allowed)) {
        return 0;
    }
    node = ek_member_of(document, 0, "schema");
    if (!ek_is(document, node, "elfkiln-policy/1")) {
        return ek_refuse_field(reader, "schema", "", "elfkiln-policy/1", node);
    }
    keys = ek_member_of(document, 0, "keys");
    rules = ek_member_of(document, 0, "rules");
    if (!ek_kind_is(document, keys, EK_LIST) || document->nodes[keys].size == 0 ||
        document->nodes[keys].size > EK_KEYS) {
        return ek_refuse_field(reader, "keys", "", "a list of 1 to 32 keys", keys);
    }
    if (!ek_kind_is(document, rules, EK_LIST) || document->nodes[rules].size == 0 ||
        document->nodes[rules].size > EK_RULES) {
        return ek_refuse_field(reader, "rules", "", "a list of 1 to 32 rules", rules);
    }
    at = keys + 1;
    for (i = 0; i < document->nodes[keys].size; i++) {
        if (!ek_read_policy_key(reader, i, at, policy->keys + i)) {
            return 0;
        }
        for (j = 0; j < i; j++) {
            if (memcmp(policy->keys[j].key, policy->keys[i].key, 32) == 0 ||
                strcmp(policy->keys[j].name, policy->keys[i].name) == 0) {
                return ek_refuse(reader, "keys", i, "", "a key and a name of its own", UINT32_MAX);
            }
        }
        at = document->nodes[at].end;
        policy->key_count = i + 1;
    }
    at = rules + 1;
    for (i = 0; i < document->nodes[rules].size; i++) {
        if (!ek_read_rule(reader, i, at, policy, policy->rules + i)) {
            return 0;
        }
        ours += strcmp(policy->rules[i].target, target) == 0;
        at = document->nodes[at].end;
        policy->rule_count = i + 1;
    }
    if (!ours) {
        ek_text text = ek_begin(reader->error, reader->bad);
        ek_show_path(&text, reader->where);
        ek_say(&text, ": rules: expected one for target ");
        ek_show(&text, target, strlen(target), 60);
        ek_say(&text, ", found none; what no rule speaks of is not trusted");
        return 0;
    }
    return 1;
}

/* What was seen in a signature file beside good signatures, for the words of a refusal. */
typedef struct ek_seen {
    uint32_t envelopes, unknown, other_subject, other_type, failed;
    uint32_t signers; /* keys of the policy that signed anything of this lock */
} ek_seen;

/* The keys of the policy that signed an envelope with this decoded payload, a bit each. Which key it may be is never
 * asked of the envelope's keyid: that is a hint that anybody can write. */
static uint32_t ek_signers(const ek_document *envelope, const ek_policy *policy, const char *payload, size_t size,
                           int *malformed)
{
    uint32_t signatures = ek_member_of(envelope, 0, "signatures"), at, i, j, signers = 0;
    char head[64]; /* what is signed: DSSEv1, length and text of the type, length and bytes of the payload */
    size_t used = 0;
    ek_put_words(head, &used, "DSSEv1 28 application/vnd.in-toto+json ");
    ek_put_number(head, &used, (int32_t)size);
    ek_put_words(head, &used, " ");
    *malformed = !ek_kind_is(envelope, signatures, EK_LIST) || envelope->nodes[signatures].size == 0 ||
                 envelope->nodes[signatures].size > EK_SIGNATURES;
    if (*malformed) {
        return 0;
    }
    at = signatures + 1;
    for (i = 0; i < envelope->nodes[signatures].size; i++) {
        uint32_t sig = ek_member_of(envelope, at, "sig");
        ptrdiff_t length = ek_kind_is(envelope, sig, EK_STRING)
                               ? ek_base64(envelope->text + envelope->nodes[sig].start, envelope->nodes[sig].size)
                               : -1;
        if (length < 0) {
            *malformed = 1;
            return 0;
        }
        for (j = 0; length == 64 && j < policy->key_count; j++) {
            if (!(signers >> j & 1) && ek_verify(policy->keys[j].key, (const unsigned char *)ek_bytes(envelope, sig),
                                                 (const unsigned char *)head, used, (const unsigned char *)payload,
                                                 size)) {
                signers |= UINT32_C(1) << j;
            }
        }
        at = envelope->nodes[at].end;
    }
    return signers;
}

/* Whether one of a statement's subjects has this sha256; a subject's name is for people. */
static int ek_is_subject(const ek_document *statement, const unsigned char *digest)
{
    uint32_t subjects = ek_member_of(statement, 0, "subject"), at = subjects + 1, i;
    if (!ek_kind_is(statement, subjects, EK_LIST)) {
        return 0;
    }
    for (i = 0; i < statement->nodes[subjects].size; i++) {
        uint32_t hex = ek_member_of(statement, ek_member_of(statement, at, "digest"), "sha256");
        unsigned char found[ELFKILN_DIGEST_BYTES];
        if (ek_kind_is(statement, hex, EK_STRING) && statement->nodes[hex].size == 64 &&
            ek_read_hex(ek_bytes(statement, hex), 64, found) && memcmp(found, digest, sizeof found) == 0) {
            return 1;
        }
        at = statement->nodes[at].end;
    }
    return 0;
}

/* Whether a statement says something good: the predicates that carry a result must say PASSED. */
static int ek_is_favourable(const ek_document *statement, uint32_t type)
{
    uint32_t predicate = ek_member_of(statement, 0, "predicate");
    if (ek_is(statement, type, "https://slsa.dev/verification_summary/v1")) {
        return ek_is(statement, ek_member_of(statement, predicate, "verificationResult"), "PASSED");
    }
    if (ek_is(statement, type, "https://in-toto.io/attestation/test-result/v0.1")) {
        return ek_is(statement, ek_member_of(statement, predicate, "result"), "PASSED");
    }
    return 1;
}

/* Read a statement whose signature has been verified and count its signers for the rules it speaks to. `expired` are
 * the keys whose time is over. */
static elfkiln_status ek_take_statement(ek_document *statement, const char *where, uint32_t signers, ek_policy *policy,
                                        uint32_t expired, const unsigned char *digest, ek_seen *seen,
                                        elfkiln_error *error)
{
    uint32_t type, i;
    elfkiln_status status = ek_parse(statement, where, ELFKILN_UNTRUSTED, error);
    if (status != ELFKILN_OK) {
        return status;
    }
    type = ek_member_of(statement, 0, "predicateType");
    if (!ek_is(statement, ek_member_of(statement, 0, "_type"), "https://in-toto.io/Statement/v1")) {
        seen->other_type += 1;
    } else if (!ek_is_subject(statement, digest)) {
        seen->other_subject += 1;
    } else if (!ek_is_favourable(statement, type)) {
        seen->failed += 1;
    } else {
        seen->signers |= signers;
        for (i = 0; i < policy->rule_count; i++) {
            ek_rule *rule = policy->rules + i;
            if (ek_is(statement, type, rule->predicate)) {
                rule->voters |= signers & rule->keys & ~expired;
            }
        }
    }
    return ELFKILN_OK;
}

/* Verify one envelope and take its statement. */
static elfkiln_status ek_take_envelope(char *line, size_t size, const char *where, ek_policy *policy, uint32_t expired,
                                       const unsigned char *digest, ek_seen *seen, elfkiln_error *error)
{
    ek_document envelope, statement;
    uint32_t payload, type, signers = 0;
    ptrdiff_t length;
    int malformed;
    elfkiln_status status;
    memset(&envelope, 0, sizeof envelope);
    memset(&statement, 0, sizeof statement);
    envelope.text = line;
    envelope.size = size;
    status = ek_parse(&envelope, where, ELFKILN_UNTRUSTED, error);
    if (status != ELFKILN_OK) {
        ELFKILN_FREE(envelope.nodes);
        return status;
    }
    seen->envelopes += 1;
    payload = ek_member_of(&envelope, 0, "payload");
    type = ek_member_of(&envelope, 0, "payloadType");
    malformed = !ek_kind_is(&envelope, payload, EK_STRING) || !ek_kind_is(&envelope, type, EK_STRING);
    if (!malformed && !ek_is(&envelope, type, "application/vnd.in-toto+json")) {
        seen->other_type += 1;
        ELFKILN_FREE(envelope.nodes);
        return ELFKILN_OK;
    }
    if (!malformed) {
        statement.text = envelope.text + envelope.nodes[payload].start;
        length = ek_base64(statement.text, envelope.nodes[payload].size);
        malformed = length < 0;
        if (!malformed) {
            statement.size = (size_t)length;
            signers = ek_signers(&envelope, policy, statement.text, statement.size, &malformed);
        }
    }
    ELFKILN_FREE(envelope.nodes);
    if (malformed) {
        return ek_plain(error, ELFKILN_UNTRUSTED, where,
                        ": expected DSSE envelopes, one a line: payloadType, payload and 1 to 8 signatures with sig, "
                        "both in base64; found another one");
    }
    if (!signers) {
        seen->unknown += 1; /* what nobody known has signed is not even read */
        return ELFKILN_OK;
    }
    status = ek_take_statement(&statement, where, signers, policy, expired, digest, seen, error);
    ELFKILN_FREE(statement.nodes);
    return status;
}

/* `; <count> <words>`, for a count that is not zero. */
static void ek_say_count(ek_text *text, uint32_t count, const char *words)
{
    if (count) {
        ek_say(text, text->room == ELFKILN_DETAIL_BYTES ? "" : "; ");
        ek_say_number(text, count);
        ek_say(text, words);
    }
}

static elfkiln_status ek_untrusted(const char *where, const ek_policy *policy, const ek_rule *rule, uint32_t expired,
                                   const ek_seen *seen, elfkiln_error *error)
{
    ek_text text = ek_begin(error, ELFKILN_UNTRUSTED), detail = ek_begin_detail(error);
    uint32_t i;
    ek_show_path(&text, where);
    ek_say(&text, ": expected ");
    ek_say_number(&text, (uint64_t)rule->threshold);
    ek_say(&text, " of role ");
    ek_show(&text, rule->role, strlen(rule->role), 60);
    ek_say(&text, " to vouch for kernels.lock.json with ");
    ek_show(&text, rule->predicate, strlen(rule->predicate), 200);
    ek_say(&text, ", found ");
    ek_say_number(&text, ek_bits(rule->voters));
    ek_say_count(&detail, seen->envelopes, " envelopes");
    ek_say_count(&detail, seen->unknown, " that no key of the policy signed");
    ek_say_count(&detail, seen->other_subject, " about another file");
    ek_say_count(&detail, seen->other_type, " that are no in-toto statement v1");
    ek_say_count(&detail, seen->failed, " whose result is not PASSED");
    for (i = 0; i < policy->key_count; i++) {
        uint32_t bit = UINT32_C(1) << i;
        const char *why = !(seen->signers & bit) || (rule->voters & bit) ? NULL
                          : !(rule->keys & bit)                        ? " is of another role"
                          : expired & bit                              ? " has expired"
                                                                       : " signed another predicate";
        if (why) {
            ek_say(&detail, "; key ");
            ek_show(&detail, policy->keys[i].name, strlen(policy->keys[i].name), 60);
            ek_say(&detail, why);
        }
    }
    return ELFKILN_UNTRUSTED;
}

/* Hold the signature file against the policy. `digest` is the sha256 of kernels.lock.json. */
static elfkiln_status ek_check_signatures(const char *path, ek_policy *policy, const char *target, int64_t now,
                                          const unsigned char *digest, elfkiln_error *error)
{
    ek_document bundle;
    ek_seen seen;
    uint32_t expired = 0, i;
    size_t at = 0;
    elfkiln_status status = ek_read_file(&bundle, path, EK_LOCK_BYTES, ELFKILN_UNSIGNED, ELFKILN_UNTRUSTED, error);
    if (status != ELFKILN_OK) {
        return status;
    }
    memset(&seen, 0, sizeof seen);
    for (i = 0; i < policy->key_count; i++) {
        expired |= (uint32_t)(now >= policy->keys[i].expires) << i;
    }
    while (status == ELFKILN_OK && at < bundle.size) {
        char *line = bundle.text + at, *end = (char *)memchr(line, '\n', bundle.size - at);
        size_t length = end ? (size_t)(end - line) : bundle.size - at;
        at += length + 1;
        if (length == 0) {
            continue;
        }
        if (seen.envelopes == EK_ENVELOPES) {
            status = ek_plain(error, ELFKILN_UNTRUSTED, path, ": expected at most 64 envelopes, found more");
        } else {
            status = ek_take_envelope(line, length, path, policy, expired, digest, &seen, error);
        }
    }
    for (i = 0; status == ELFKILN_OK && i < policy->rule_count; i++) {
        const ek_rule *rule = policy->rules + i;
        if (strcmp(rule->target, target) == 0 && ek_bits(rule->voters) < (uint32_t)rule->threshold) {
            status = ek_untrusted(path, policy, rule, expired, &seen, error);
        }
    }
    ek_free_document(&bundle);
    return status;
}

/* ---- opening a set ----------------------------------------------------------------------------------------------- */

static elfkiln_status ek_open_trust(const elfkiln_options *options, const char *bundle, const unsigned char *digest,
                                    elfkiln_error *error)
{
    const char *where = options->policy_path ? options->policy_path : "policy";
    ek_document document;
    ek_policy policy;
    ek_reader reader;
    elfkiln_status status;
    int64_t now = options->now ? options->now : (int64_t)time(NULL);
    if (options->policy_path) {
        status = ek_read_file(&document, where, EK_FILE_BYTES, ELFKILN_BAD_POLICY, ELFKILN_BAD_POLICY, error);
        if (status != ELFKILN_OK) {
            return status;
        }
    } else {
        memset(&document, 0, sizeof document);
        if (options->policy_size > EK_FILE_BYTES) {
            return ek_plain(error, ELFKILN_BAD_POLICY, where, ": expected at most 1048576 bytes, found more");
        }
        document.text = (char *)ELFKILN_MALLOC(options->policy_size + 1);
        if (!document.text) {
            return ek_system(error, where, ENOMEM);
        }
        memcpy(document.text, options->policy, options->policy_size);
        document.text[options->policy_size] = '\0';
        document.size = options->policy_size;
    }
    status = ek_parse(&document, where, ELFKILN_BAD_POLICY, error);
    if (status == ELFKILN_OK) {
        reader.document = &document;
        reader.where = where;
        reader.bad = ELFKILN_BAD_POLICY;
        reader.error = error;
        status = ek_read_policy(&reader, options->target, &policy)
                     ? ek_check_signatures(bundle, &policy, options->target, now, digest, error)
                     : ELFKILN_BAD_POLICY;
    }
    ek_free_document(&document);
    return status;
}

/* Fill the set's names and folders: from plan.json, or, without one, from the lock and the engine's probes. */
static elfkiln_status ek_open_plan(const elfkiln_options *options, const char *path, const char *decision,
                                   const ek_document *lock, elfkiln_set *set, elfkiln_error *error)
{
    ek_document document;
    ek_plan plan;
    ek_reader reader;
    elfkiln_status absent = options->without_plan ? ELFKILN_OK : ELFKILN_BAD_PLAN;
    elfkiln_status status = ek_read_file(&document, path, EK_FILE_BYTES, absent, ELFKILN_BAD_PLAN, error);
    if (status != ELFKILN_OK) {
        return status;
    }
    if (options->without_plan) {
        if (document.text) {
            ek_free_document(&document);
            return ek_plain(error, ELFKILN_BAD_PLAN, path,
                            ": expected none, as without_plan is set, found one; the engine would go by it");
        }
        status = ek_names_of_lock(set, lock, path, error);
        return status == ELFKILN_OK
                   ? ek_set_folders(set, options->model_dir, options->kernels_dir, NULL, 0, error)
                   : status;
    }
    status = ek_parse(&document, path, ELFKILN_BAD_PLAN, error);
    if (status == ELFKILN_OK) {
        reader.document = &document;
        reader.where = path;
        reader.bad = ELFKILN_BAD_PLAN;
        reader.error = error;
        status = ek_read_plan(&reader, &plan) ? ek_check_decision(decision, &plan, error) : ELFKILN_BAD_PLAN;
    }
    if (status == ELFKILN_OK) {
        set->planned = 1;
        status = ek_names_of_plan(set, &plan, path, error);
    }
    if (status == ELFKILN_OK) {
        status = ek_set_folders(set, options->model_dir, options->kernels_dir, &document, plan.dirs, error);
    }
    ek_free_document(&document);
    return status;
}

static elfkiln_status ek_open(const elfkiln_options *options, const char *const *paths, elfkiln_set *set,
                              elfkiln_error *error)
{
    ek_document lock;
    ek_reader reader;
    unsigned char digest[ELFKILN_DIGEST_BYTES];
    elfkiln_status status = ek_read_file(&lock, paths[0], EK_LOCK_BYTES, ELFKILN_BAD_LOCK, ELFKILN_BAD_LOCK, error);
    if (status != ELFKILN_OK) {
        return status;
    }
    ek_digest(lock.text, lock.size, set->sha, digest);
    /* Trust comes first: what is not signed as it should be is not read. */
    if (options->policy_path || options->policy) {
        status = ek_open_trust(options, paths[1], digest, error);
    }
    if (status == ELFKILN_OK) {
        status = ek_parse(&lock, paths[0], ELFKILN_BAD_LOCK, error);
    }
    if (status == ELFKILN_OK) {
        reader.document = &lock;
        reader.where = paths[0];
        reader.bad = ELFKILN_BAD_LOCK;
        reader.error = error;
        status = ek_check_lock(&reader, options->target, options->model) ? ELFKILN_OK : error->status;
    }
    if (status == ELFKILN_OK) {
        status = ek_open_plan(options, paths[2], paths[3], &lock, set, error);
    }
    if (status == ELFKILN_OK) {
        size_t i;
        for (i = 0; i < set->count; i++) {
            ek_assign_folders(set, set->entries + i);
        }
        ek_take_listing(set, &lock);
    }
    ek_free_document(&lock);
    return status;
}

elfkiln_status elfkiln_open(const elfkiln_options *options, elfkiln_set **set, elfkiln_error *error) ELFKILN_NOEXCEPT
{
    elfkiln_error own;
    const char *names[4] = {ek_lock_name, ek_bundle_name, ek_plan_name, ek_decision_name};
    char *paths[4] = {NULL, NULL, NULL, NULL};
    elfkiln_status status = ELFKILN_OK;
    elfkiln_set *made = NULL;
    size_t i;
    error = error ? error : &own;
    ek_clear(error);
    if (!set) {
        return ek_plain(error, ELFKILN_BAD_OPTIONS, "elfkiln_open", ": set is NULL");
    }
    *set = NULL;
    if (!options || !options->model_dir || !*options->model_dir || !options->target || !*options->target) {
        return ek_plain(error, ELFKILN_BAD_OPTIONS, "elfkiln_open", ": model_dir and target are needed");
    }
    if ((options->kernels_dir && !*options->kernels_dir) || (options->policy_path && options->policy)) {
        return ek_plain(error, ELFKILN_BAD_OPTIONS, "elfkiln_open",
                        ": kernels_dir may not be empty, and a policy is given once");
    }
    made = (elfkiln_set *)ELFKILN_MALLOC(sizeof *made);
    if (!made) {
        return ek_system(error, options->model_dir, ENOMEM);
    }
    memset(made, 0, sizeof *made);
    made->sha = !options->portable_sha256 && ek_has_sha();
    for (i = 0; i < 4; i++) {
        paths[i] = ek_joined(options->model_dir, names[i]);
        if (!paths[i]) {
            status = ek_system(error, options->model_dir, ENOMEM);
        }
    }
    if (status == ELFKILN_OK) {
        status = ek_open(options, (const char *const *)paths, made, error);
    }
    for (i = 0; i < 4; i++) {
        ELFKILN_FREE(paths[i]);
    }
    if (status != ELFKILN_OK) {
        elfkiln_close(made);
        return status;
    }
    *set = made;
    return ELFKILN_OK;
}

void elfkiln_close(elfkiln_set *set) ELFKILN_NOEXCEPT
{
    char **folder;
    if (!set) {
        return;
    }
    for (folder = set->folders; folder && *folder; folder++) {
        ELFKILN_FREE(*folder);
    }
    ELFKILN_FREE(set->folders);
    ELFKILN_FREE(set->entries);
    ELFKILN_FREE(set->sorted);
    ELFKILN_FREE(set);
}

size_t elfkiln_count(const elfkiln_set *set) ELFKILN_NOEXCEPT
{
    return set ? set->count : 0;
}

const elfkiln_name *elfkiln_at(const elfkiln_set *set, size_t position) ELFKILN_NOEXCEPT
{
    return set && position < set->count ? &set->entries[position].name : NULL;
}

/* ---- opening an ELF ---------------------------------------------------------------------------------------------- */

/* Write `folder/name`; 0 when it is longer than any path the system opens. */
static int ek_path(char path[EK_PATH_BYTES], const char *folder, const char *name)
{
    size_t size = strlen(folder), length = strlen(name);
    if (size + 1 + length + 1 > EK_PATH_BYTES) {
        return 0;
    }
    memcpy(path, folder, size);
    path[size] = '/';
    memcpy(path + size + (folder[size - 1] != '/'), name, length + 1);
    return 1;
}

/* Read and hash an open file that is to have `size` bytes, into `to` or, where that is NULL, through a small buffer.
 * 1 when it has the digest, 0 when not, -1 with errno. The bytes are read once: what was hashed is what is kept. */
static int ek_hash_file(int descriptor, unsigned char *to, uint64_t size, int sha, const unsigned char *expected,
                        unsigned char *found)
{
    enum { PART = 1 << 12, STEP = 1 << 18 };
    unsigned char part[PART];
    ek_sha256 hash;
    uint64_t done = 0;
    ek_sha256_begin(&hash, sha);
    while (done < size) {
        size_t most = to ? STEP : PART, wanted = size - done < most ? (size_t)(size - done) : most;
        unsigned char *place = to ? to + done : part;
        ptrdiff_t got = ek_read(descriptor, place, wanted);
        if (got < 0) {
            return -1;
        }
        ek_sha256_add(&hash, place, (size_t)got);
        done += (uint64_t)got;
        if ((size_t)got < wanted) {
            break;
        }
    }
    ek_sha256_end(&hash, found);
    if (done == size) {
        /* The file may have grown since its size was asked for. */
        ptrdiff_t more = ek_read(descriptor, part, 1);
        if (more < 0) {
            return -1;
        }
        return more == 0 && memcmp(found, expected, ELFKILN_DIGEST_BYTES) == 0;
    }
    return 0;
}

/* The folder, of those after `from`, in which the listed file lies; NULL where it lies in none. */
static const char *ek_later(const elfkiln_set *set, const ek_entry *entry, const char *name, uint32_t from)
{
    char path[EK_PATH_BYTES];
    unsigned char found[ELFKILN_DIGEST_BYTES];
    uint32_t i;
    for (i = from + 1; i < entry->folders; i++) {
        const char *folder = set->folders[entry->first + i];
        int descriptor, number, same;
        uint64_t size;
        if (!ek_path(path, folder, name) || ek_open_file(path, &descriptor, &size, &number) != EK_FILE) {
            continue;
        }
        same = size == entry->size && size <= EK_ELF_BYTES &&
               ek_hash_file(descriptor, NULL, size, set->sha, entry->digest, found) == 1;
        close(descriptor);
        if (same) {
            return folder;
        }
    }
    return NULL;
}

/* Map and fill; 1 with the artifact's bytes and size set, 0 when the digest is another (`found`), -1 with errno. */
static int ek_map(const elfkiln_set *set, const ek_entry *entry, int descriptor, unsigned char *found,
                  elfkiln_artifact *artifact)
{
    size_t size = (size_t)entry->size;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, outcome, number;
    void *map;
#if defined(MAP_POPULATE)
    flags |= MAP_POPULATE; /* one call in place of a fault per page */
#endif
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (map == MAP_FAILED) {
        return -1;
    }
    outcome = ek_hash_file(descriptor, (unsigned char *)map, entry->size, set->sha, entry->digest, found);
    if (outcome == 1 && mprotect(map, size, PROT_READ) != 0) {
        outcome = -1;
    }
    if (outcome != 1) {
        number = errno;
        munmap(map, size);
        errno = number;
        return outcome;
    }
    artifact->bytes = (const unsigned char *)map;
    artifact->size = size;
    return 1;
}

/* The two lines about a file: the engine's own words, and the kind of gap. The detail goes on. */
static ek_text ek_begin_gap(elfkiln_error *error, elfkiln_status status, const char *folder, const char *name)
{
    ek_text text = ek_begin(error, status), detail = ek_begin_detail(error);
    ek_say(&text, "missing full ELF ");
    ek_show_path(&text, folder);
    ek_say(&text, folder[strlen(folder) - 1] == '/' ? "" : "/");
    ek_say(&text, name);
    ek_say(&detail, elfkiln_word(status));
    ek_say(&detail, ": ");
    return detail;
}

/* Say what there is where the engine finds nothing to open. */
static elfkiln_status ek_missing(const elfkiln_set *set, const ek_entry *entry, const char *name, elfkiln_error *error)
{
    ek_text detail;
    char path[EK_PATH_BYTES];
    struct stat state;
    uint32_t i;
    for (i = 0; i < entry->folders; i++) {
        const char *folder = set->folders[entry->first + i];
        /* A link that leads nowhere, or round in a circle, is there and is not a file. */
        if (ek_path(path, folder, name) && lstat(path, &state) == 0 && !S_ISREG(state.st_mode) &&
            (!S_ISLNK(state.st_mode) || (stat(path, &state) != 0 ? errno != EACCES : !S_ISREG(state.st_mode)))) {
            detail = ek_begin_gap(error, ELFKILN_NOT_A_FILE, folder, name);
            ek_say(&detail, "expected a full ELF, found ");
            ek_say(&detail, S_ISDIR(state.st_mode)    ? "a folder"
                            : S_ISLNK(state.st_mode)  ? "a symbolic link that leads nowhere"
                            : S_ISFIFO(state.st_mode) ? "a pipe"
                            : S_ISSOCK(state.st_mode) ? "a socket"
                                                      : "a device");
            return ELFKILN_NOT_A_FILE;
        }
    }
    detail = ek_begin_gap(error, ELFKILN_MISSING, set->folders[entry->first + entry->folders - 1], name);
    ek_say(&detail, "looked in ");
    for (i = 0; i < entry->folders; i++) {
        ek_say(&detail, i ? ", " : "");
        ek_show_path(&detail, set->folders[entry->first + i]);
    }
    for (i = 0; i < entry->folders; i++) {
        const char *folder = set->folders[entry->first + i];
        if (ek_path(path, folder, name) && stat(path, &state) == 0) {
            ek_say(&detail, "; in ");
            ek_show_path(&detail, folder);
            ek_say(&detail, state.st_size ? " it cannot be read" : " it is empty");
        }
    }
    return ELFKILN_MISSING;
}

static void ek_say_digest(ek_text *text, const unsigned char *digest)
{
    char hex[65];
    elfkiln_hex(digest, hex);
    ek_say(text, "sha256:");
    ek_say(text, hex);
}

/* Say what is wrong with the file that the engine would open: the one in the folder at `index`. `found` is NULL where
 * the size alone shows it. */
static elfkiln_status ek_wrong(const elfkiln_set *set, const ek_entry *entry, const char *name, uint32_t index,
                               uint64_t size, const unsigned char *found, elfkiln_error *error)
{
    const char *folder = set->folders[entry->first + index];
    const char *later = entry->listing == EK_LISTED ? ek_later(set, entry, name, index) : NULL;
    ek_text detail;
    if (later) {
        detail = ek_begin_gap(error, ELFKILN_SHADOWED, folder, name);
        ek_say(&detail, "the listed file lies in ");
        ek_show_path(&detail, later);
        ek_say(&detail, ", but the engine opens this one first; remove it");
    } else if (size < EK_LEAST_ELF_BYTES) {
        detail = ek_begin_gap(error, ELFKILN_STUB, folder, name);
        ek_say(&detail, "expected a kernel ELF of at least 4096 bytes, found ");
        ek_say_number(&detail, size);
        ek_say(&detail, " bytes");
    } else if (entry->listing != EK_LISTED) {
        detail = ek_begin_gap(error, ELFKILN_NOT_LISTED, folder, name);
        ek_say(&detail, entry->listing == EK_UNLISTED
                            ? "kernels.lock.json does not have it; run elfkiln install"
                            : "kernels.lock.json has it under two paths with different bytes; install the set anew");
    } else {
        detail = ek_begin_gap(error, ELFKILN_WRONG_BYTES, folder, name);
        ek_say(&detail, "expected ");
        ek_say_number(&detail, entry->size);
        ek_say(&detail, " bytes with ");
        ek_say_digest(&detail, entry->digest);
        ek_say(&detail, ", found ");
        if (found) {
            ek_say_digest(&detail, found);
        } else if (size > EK_ELF_BYTES) {
            ek_say_number(&detail, size);
            ek_say(&detail, " bytes, which no kernel ELF has");
        } else {
            ek_say_number(&detail, size);
            ek_say(&detail, " bytes");
        }
    }
    return error->status;
}

/* Find, map, hash and compare the file of one name. */
static elfkiln_status ek_get(const elfkiln_set *set, const ek_entry *entry, const char *name,
                             elfkiln_artifact *artifact, elfkiln_error *error)
{
    char path[EK_PATH_BYTES];
    unsigned char found[ELFKILN_DIGEST_BYTES];
    uint32_t i;
    for (i = 0; i < entry->folders; i++) {
        const char *folder = set->folders[entry->first + i];
        int descriptor, number = 0, outcome = 0, hashed;
        uint64_t size = 0;
        ek_found kind = ek_path(path, folder, name) ? ek_open_file(path, &descriptor, &size, &number) : EK_ABSENT;
        if (kind == EK_FAILED) {
            return ek_system(error, path, number);
        }
        if (kind != EK_FILE) {
            continue;
        }
        if (size == 0) {
            close(descriptor);
            continue;
        }
        /* This is the file the engine opens: from here on it is right, or the call fails. A file of another size is
         * not read at all. */
        hashed = entry->listing == EK_LISTED && size == entry->size && size <= EK_ELF_BYTES;
        if (hashed) {
            outcome = ek_map(set, entry, descriptor, found, artifact);
            number = errno;
        }
        close(descriptor);
        if (outcome < 0) {
            return ek_system(error, path, number);
        }
        if (outcome == 0) {
            return ek_wrong(set, entry, name, i, size, hashed ? found : NULL, error);
        }
        memcpy(artifact->digest, entry->digest, sizeof artifact->digest);
        artifact->folder = folder;
        artifact->name = entry->name.name;
        return ELFKILN_OK;
    }
    return ek_missing(set, entry, name, error);
}

elfkiln_status elfkiln_get(const elfkiln_set *set, const char *name, elfkiln_artifact *artifact,
                           elfkiln_error *error) ELFKILN_NOEXCEPT
{
    elfkiln_error own;
    const ek_entry *entry;
    ek_entry stranger;
    error = error ? error : &own;
    ek_clear(error);
    if (!artifact) {
        return ek_plain(error, ELFKILN_BAD_OPTIONS, "elfkiln_get", ": artifact is NULL");
    }
    memset(artifact, 0, sizeof *artifact);
    if (!set) {
        return ek_plain(error, ELFKILN_BAD_OPTIONS, "elfkiln_get", ": set is NULL");
    }
    if (!name || !ek_is_elf_name(name, strnlen(name, ELFKILN_NAME_BYTES))) {
        return ek_plain(error, ELFKILN_BAD_NAME, "elfkiln_get",
                        ": expected the name of an ELF: letters, digits, . _ -, ending in .elf, at most 63 characters");
    }
    entry = ek_find(set, name);
    if (!entry && set->planned) {
        return ek_plain(error, ELFKILN_BAD_NAME, name, ": not a name that plan.json asks for");
    }
    if (!entry) {
        memset(&stranger, 0, sizeof stranger);
        strcpy(stranger.name.name, name);
        ek_assign_folders(set, &stranger);
        entry = &stranger; /* never handed out: what the lock does not list is an error */
    }
    return ek_get(set, entry, name, artifact, error);
}

void elfkiln_release(elfkiln_artifact *artifact) ELFKILN_NOEXCEPT
{
    if (artifact && artifact->bytes) {
        munmap((void *)(uintptr_t)artifact->bytes, artifact->size);
        memset(artifact, 0, sizeof *artifact);
    }
}

const char *elfkiln_word(elfkiln_status status) ELFKILN_NOEXCEPT
{
    static const char *const words[] = {
        "ok", "missing", "not a regular file", "stub", "wrong bytes", "shadowed",
        "not listed", "bad name", "wrong target", "bad lock", "bad plan", "bad policy",
        "unsigned", "untrusted", "bad options", "system error"};
    size_t index = (size_t)status;
    return index < sizeof words / sizeof words[0] ? words[index] : "unknown";
}

void elfkiln_hex(const unsigned char digest[ELFKILN_DIGEST_BYTES], char text[65]) ELFKILN_NOEXCEPT
{
    static const char hex[] = "0123456789abcdef";
    size_t i;
    for (i = 0; i < ELFKILN_DIGEST_BYTES; i++) {
        text[2 * i] = hex[digest[i] >> 4];
        text[2 * i + 1] = hex[digest[i] & 15];
    }
    text[64] = '\0';
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* ELFKILN_IMPLEMENTATION */
