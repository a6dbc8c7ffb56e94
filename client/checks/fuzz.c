/* Feeds elfkiln.h damaged files until a count is reached: what a hostile kernels.lock.json, plan.json, policy or
 * signature file would bring.
 *
 * Copyright 2026 the elfkiln authors
 * SPDX-License-Identifier: Apache-2.0
 *
 *     fuzz INPUTS [SEED [ONE]]     ONE: the number of the single input to run again
 *
 * Build it with -fsanitize=undefined (client/checks/client_checks.py does). Memory is its own guard here: every block
 * ends at a page that cannot be touched and is filled with rubbish when it is freed, so that a read or write past an
 * end, and most uses after a free, end the program; the number of the input is printed then. A fraction of the inputs
 * also meets a failing malloc. Inputs follow from the seed alone.
 */
static void *guarded(unsigned long size);
static void guarded_free(void *memory);
#define ELFKILN_MALLOC(size) guarded(size)
#define ELFKILN_FREE(memory) guarded_free(memory)
#define ELFKILN_IMPLEMENTATION
#include "../elfkiln.h"

#include <signal.h>
#include <stdio.h>

/* ---- memory ---- */

enum { SLOTS = 160, SLOT = 1 << 20, PAGE = 4096 };

static unsigned char *memory_base;
static unsigned long slot_size[SLOTS]; /* 0: free */
static unsigned slots_used;
static long allocations_left; /* until one fails; negative: none does */

static void *guarded(unsigned long size)
{
    unsigned slot = 0;
    unsigned char *end;
    if (allocations_left == 0) {
        allocations_left = -1;
        return NULL;
    }
    allocations_left -= allocations_left > 0;
    while (slot < SLOTS && slot_size[slot]) {
        slot += 1;
    }
    /* Alignment of what may be structures; odd sizes are text, which ends at the guard itself. */
    if (size % 2 == 0) {
        size = (size + 15) / 16 * 16;
    }
    if (slot == SLOTS || size + PAGE > SLOT) {
        abort();
    }
    slot_size[slot] = size ? size : 1;
    slots_used += 1;
    end = memory_base + (unsigned long)(slot + 1) * SLOT - PAGE;
    memset(end - slot_size[slot], 0xa5, slot_size[slot]);
    return end - slot_size[slot];
}

static void guarded_free(void *memory)
{
    unsigned long slot;
    if (!memory) {
        return;
    }
    slot = (unsigned long)((unsigned char *)memory - memory_base) / SLOT;
    if (!slot_size[slot] || memory_base + (slot + 1) * SLOT - PAGE - slot_size[slot] != (unsigned char *)memory) {
        abort(); /* freed twice, or never given out */
    }
    memset(memory, 0x5a, slot_size[slot]);
    slot_size[slot] = 0;
    slots_used -= 1;
}

static void make_memory(void)
{
    unsigned slot;
    void *map = mmap(NULL, (size_t)SLOTS * SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        abort();
    }
    memory_base = (unsigned char *)map;
    for (slot = 0; slot < SLOTS; slot++) {
        if (mprotect(memory_base + (unsigned long)(slot + 1) * SLOT - PAGE, PAGE, PROT_NONE) != 0) {
            abort();
        }
    }
}

/* ---- inputs ---- */

static uint64_t state;

static uint64_t next(void)
{
    /* splitmix64: every seed gives a full sequence. */
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(size_t bound)
{
    return (size_t)(next() % bound);
}

static const char lock_text[] =
    "{\"schema\":\"elfkiln-kernels-lock/1\",\"target\":\"npu2\",\"sets\":[{\"model\":\"m\",\"layout\":\"b8\"}],"
    "\"artifacts\":{\"kernels/full_i8_D_K64_N256_b8.elf\":{\"elf\":\"sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"recipe\":\"sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":5000},"
    "\"kernels-m16/full_i8_D_K64_N256_b8_m16.elf\":{\"elf\":\"sha256:"
    "ffff456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"recipe\":\"sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":6000},"
    "\"kernels/full_i8_D_K64_N256_b8_m16.elf\":{\"elf\":\"sha256:"
    "ffff456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"recipe\":\"sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":6000},"
    "\"pb16i_sealed.elf\":{\"elf\":\"sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdee\",\"recipe\":\"sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":4096}}}";
static const char plan_text[] =
    "{\"format\":\"1bit-npu-plan/1\",\"generated_by\":\"t\",\"model\":{\"hidden\":256,\"layers\":2,\"arch\":\"q\"},"
    "\"container\":{\"layout\":\"pb16i\",\"chunk_kind\":\"pb16i\",\"pb16i\":true,\"tile_order\":\"engine-1\"},"
    "\"fusion\":{\"gate_up\":\"split\"},\"prefill\":{\"M\":128},\"decode\":{\"M\":16,\"enabled\":true,\"dirs\":["
    "{\"root\":\"model\",\"path\":\"kernels-m16\"},{\"root\":\"kernels\",\"path\":\".\"},{\"root\":\"model\","
    "\"path\":\"a//b/./c/\"}],\"sealed_elf\":\"pb16i_sealed.elf\"},\"kernels\":{\"tag\":\"_pb16i\"},"
    "\"attention\":{\"mode\":\"causal\"},\"kv\":{\"key\":\"f16\",\"value\":\"f16\",\"hadamard\":{\"block\":64,"
    "\"signs\":\"s.bin\"}},\"moe\":{\"batched_expert_gu\":{\"enabled\":true,\"K\":256,\"N\":1024}},\"layers\":["
    "{\"index\":0,\"role\":\"gdn\",\"qkv\":{\"K\":256,\"N\":1024,\"fused\":true},\"attn_gate\":{\"K\":256,\"N\":512},"
    "\"gate_up\":{\"K\":256,\"N\":768},\"down\":{\"K\":768,\"N\":256},\"ple_gate\":"
    "{\"K\":256,\"N\":256},\"ple_proj\":{\"K\":256,\"N\":256}},"
    "{\"index\":1,\"role\":\"full\",\"qkv\":{\"K\":256,\"N\":1280},\"o\":{\"K\":512,\"N\":256},"
    "\"gate_up\":{\"K\":256,\"N\":1536},\"down\":{\"K\":768,\"N\":256}}]}";
static const char policy_text[] =
    "{\"schema\":\"elfkiln-policy/1\",\"keys\":[{\"name\":\"one\",\"ed25519\":"
    "\"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\",\"roles\":[\"builder\",\"tester\"],"
    "\"expires\":\"2030-01-31T00:00:00Z\"},{\"name\":\"two\",\"ed25519\":"
    "\"PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\",\"roles\":[\"tester\"],\"expires\":\"2028-02-29T23:59:59Z\"}],"
    "\"rules\":[{\"target\":\"npu2\",\"predicate\":\"https://slsa.dev/verification_summary/v1\",\"role\":\"tester\","
    "\"threshold\":2}]}";
static const char statement_text[] =
    "{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":[{\"name\":\"kernels.lock.json\",\"digest\":"
    "{\"sha256\":\"0000000000000000000000000000000000000000000000000000000000000000\"}}],\"predicateType\":"
    "\"https://slsa.dev/verification_summary/v1\",\"predicate\":{\"verificationResult\":\"PASSED\"}}";
static const char envelope_text[] =
    "{\"payloadType\":\"application/vnd.in-toto+json\",\"payload\":\"eyJfdHlwZSI6ICJ4In0=\",\"signatures\":[{\"keyid\":"
    "\"one\",\"sig\":\"5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==\"},"
    "{\"sig\":\"AAECAw==\"}]}";

static const char *const tokens[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "\\ud83d\\ude00", "\\ud83d", "\\u0061", "\\n", "\\\"", "null",
    "true", "false", "NaN", "-Infinity", "0", "-0", "1", "-1", "16", "128", "256", "2147483647", "2147483648",
    "4294967296", "18446744073709551616", "1e308", "1e309", "0.0", "1.5e-400", "\"\"", "\"..\"", "\"/\"", "\"a/../b\"",
    "\".\"", "\"K\"", "\"N\"", "\"fused\"", "\"index\"", "\"o\"", "\"ssm_out\"", "\"elf\"", "\"size\"", "\"name\"",
    "\"roles\"", "\"sig\"", "\"payload\"", "\"subject\"", "\"digest\"", "\"sha256\"", "[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]", "{\"a\":{\"a\":{\"a\":", "\xef\xbb\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3\xa9",
    "\xe2\x80\xa8", "\xff", "=", "==", "AAAA", "-_-_", "full_i8_D_K64_N256_b8.elf", "9999-12-31T23:59:59Z", " ", "\n",
    "\t", "\r"};

static const char *const numbers[] = {
    "0", "1", "-1", "2", "16", "64", "128", "256", "65536", "2147483647", "2147483648", "4294967296",
    "9007199254740992", "9223372036854775807", "18446744073709551616", "99999999999999999999999", "1.5", "1e400"};

enum { LONGEST = 1 << 14 };

/* Change one thing; returns the new size, at most LONGEST. */
static size_t change(unsigned char *text, size_t size)
{
    size_t at = below(size + 1), other = below(size + 1), length, room = LONGEST - size;
    const char *token = tokens[below(sizeof tokens / sizeof tokens[0])];
    switch (below(9)) {
    case 0: /* one bit */
        if (at < size) {
            text[at] = (unsigned char)(text[at] ^ 1u << below(8));
        }
        return size;
    case 1: /* one byte */
        if (at < size) {
            text[at] = (unsigned char)next();
        }
        return size;
    case 2: /* cut a part out */
        length = below(size - at < 40 ? size - at + 1 : 40);
        memmove(text + at, text + at + length, size - at - length);
        return size - length;
    case 3: /* end here */
        return at;
    case 4: /* put a part in twice */
        length = below(size - at + 1);
        length = length < room ? length : room;
        memmove(text + at + length, text + at, size - at);
        return size + length;
    case 5: /* copy a part over another */
        length = size - (at > other ? at : other);
        memmove(text + at, text + other, below(length + 1));
        return size;
    case 6: /* another number for the next one */
        at += strcspn((const char *)text + at, "0123456789");
        length = strspn((const char *)text + at, "0123456789");
        memmove(text + at, text + at + length, size - at - length);
        size -= length;
        token = numbers[below(sizeof numbers / sizeof numbers[0])];
        length = strlen(token);
        if (length <= LONGEST - size) {
            memmove(text + at + length, text + at, size - at);
            memcpy(text + at, token, length);
            size += length;
        }
        return size;
    default: /* put a token in, or over what is there */
        length = strlen(token);
        if (next() & 1) {
            if (length > room) {
                return size;
            }
            memmove(text + at + length, text + at, size - at);
            size += length;
        }
        memcpy(text + at, token, length < size - at ? length : size - at);
        return size;
    }
}

/* ---- what is fed ---- */

static unsigned long number; /* of the input, for whom it kills */

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_error(const elfkiln_error *error, int failed)
{
    require((error->status != ELFKILN_OK) == failed);
    require(memchr(error->text, '\0', sizeof error->text) && memchr(error->detail, '\0', sizeof error->detail));
    require((error->text[0] != '\0') == failed);
    require(!strpbrk(error->text, "\n\r\t\x1b") && !strpbrk(error->detail, "\n\r\t\x1b"));
}

static void check_names(const elfkiln_set *set)
{
    size_t i;
    for (i = 0; i < set->count; i++) {
        const ek_entry *entry = set->entries + i;
        require(ek_is_elf_name(entry->name.name, strlen(entry->name.name)));
        require(ek_find(set, entry->name.name) != NULL);
    }
}

static elfkiln_status feed_lock(ek_document *document, elfkiln_error *error)
{
    ek_reader reader = {document, "kernels.lock.json", ELFKILN_BAD_LOCK, error};
    elfkiln_set *set;
    elfkiln_status status = ek_parse(document, reader.where, reader.bad, error);
    if (status != ELFKILN_OK) {
        return status;
    }
    if (!ek_check_lock(&reader, "npu2", "m")) {
        return error->status;
    }
    set = (elfkiln_set *)guarded(sizeof *set);
    if (!set) {
        return ek_system(error, reader.where, ENOMEM);
    }
    memset(set, 0, sizeof *set);
    status = ek_names_of_lock(set, document, reader.where, error);
    if (status == ELFKILN_OK) {
        status = ek_set_folders(set, "m", NULL, NULL, 0, error);
    }
    if (status == ELFKILN_OK) {
        ek_take_listing(set, document);
        check_names(set);
    }
    elfkiln_close(set);
    return status;
}

static elfkiln_status feed_plan(ek_document *document, elfkiln_error *error)
{
    static ek_plan plan;
    ek_reader reader = {document, "plan.json", ELFKILN_BAD_PLAN, error};
    elfkiln_set *set;
    elfkiln_status status = ek_parse(document, reader.where, reader.bad, error);
    if (status != ELFKILN_OK) {
        return status;
    }
    if (!ek_read_plan(&reader, &plan)) {
        return error->status;
    }
    set = (elfkiln_set *)guarded(sizeof *set);
    if (!set) {
        return ek_system(error, reader.where, ENOMEM);
    }
    memset(set, 0, sizeof *set);
    status = ek_names_of_plan(set, &plan, reader.where, error);
    if (status == ELFKILN_OK) {
        check_names(set);
        status = ek_set_folders(set, "/models/m", "k", document, plan.dirs, error);
    }
    elfkiln_close(set);
    return status;
}

static ek_policy policy; /* of the sound text, read once */

static elfkiln_status feed_policy(ek_document *document, elfkiln_error *error)
{
    static ek_policy own;
    ek_reader reader = {document, "policy.json", ELFKILN_BAD_POLICY, error};
    elfkiln_status status = ek_parse(document, reader.where, reader.bad, error);
    return status != ELFKILN_OK || ek_read_policy(&reader, "npu2", &own) ? status : error->status;
}

static elfkiln_status feed_statement(ek_document *document, elfkiln_error *error)
{
    static const unsigned char digest[ELFKILN_DIGEST_BYTES];
    ek_seen seen;
    memset(&seen, 0, sizeof seen);
    return ek_take_statement(document, "signatures", 1, &policy, 0, digest, &seen, error);
}

static elfkiln_status feed_envelope(ek_document *document, elfkiln_error *error)
{
    static const unsigned char digest[ELFKILN_DIGEST_BYTES];
    ek_seen seen;
    memset(&seen, 0, sizeof seen);
    return ek_take_envelope(document->text, document->size, "signatures", &policy, 0, digest, &seen, error);
}

typedef struct target {
    const char *text;
    elfkiln_status (*feed)(ek_document *document, elfkiln_error *error);
    unsigned share; /* of 64 inputs; an envelope costs curve arithmetic */
    unsigned long inputs, accepted;
    const char *name;
} target;

static target targets[] = {{lock_text, feed_lock, 20, 0, 0, "kernels.lock.json"},
                           {plan_text, feed_plan, 24, 0, 0, "plan.json"},
                           {policy_text, feed_policy, 7, 0, 0, "policy"},
                           {statement_text, feed_statement, 12, 0, 0, "statement"},
                           {envelope_text, feed_envelope, 1, 0, 0, "envelope"}};

static void run_one(uint64_t seed)
{
    static unsigned char text[LONGEST + 1]; /* ended by a NUL for the searches here */
    elfkiln_error error;
    ek_document document;
    target *chosen = targets;
    size_t size, changes, i;
    unsigned share;
    elfkiln_status status;
    state = seed ^ (uint64_t)number * UINT64_C(0xd1342543de82ef95);
    for (share = (unsigned)below(64); share >= chosen->share; chosen++) {
        share -= chosen->share;
    }
    size = strlen(chosen->text);
    memcpy(text, chosen->text, size);
    changes = below(7);
    for (i = 0; i < changes; i++) {
        text[size] = '\0';
        size = change(text, size);
    }
    allocations_left = below(16) ? -1 : (long)below(8);
    ek_clear(&error);
    memset(&document, 0, sizeof document);
    /* The input ends at the guard page: the parser may not look at the byte after it. */
    document.text = (char *)memory_base + (size_t)SLOTS * SLOT - PAGE - size;
    memcpy(document.text, text, size);
    document.size = size;
    status = chosen->feed(&document, &error);
    ELFKILN_FREE(document.nodes);
    require(slots_used == 0);
    require(status == error.status);
    check_error(&error, status != ELFKILN_OK);
    chosen->inputs += 1;
    chosen->accepted += status == ELFKILN_OK;
}

static void tell(int sign)
{
    char line[64] = "fuzz: died at input ";
    size_t used = strlen(line), count = 0;
    char digits[20];
    unsigned long left = number;
    do {
        digits[count++] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    while (count) {
        line[used++] = digits[--count];
    }
    line[used++] = '\n';
    if (write(2, line, used) < 0) {
        _exit(3);
    }
    signal(sign, SIG_DFL);
    raise(sign);
}

int main(int count, char **words)
{
    unsigned long inputs = count > 1 ? strtoul(words[1], NULL, 10) : 0, total = 0;
    uint64_t seed = count > 2 ? strtoull(words[2], NULL, 10) : 1;
    ek_document document;
    elfkiln_error error;
    ek_reader reader = {&document, "policy.json", ELFKILN_BAD_POLICY, &error};
    size_t i;
    if (!inputs) {
        fprintf(stderr, "usage: fuzz INPUTS [SEED [ONE]]\n");
        return 2;
    }
    signal(SIGILL, tell);
    signal(SIGSEGV, tell);
    signal(SIGBUS, tell);
    signal(SIGABRT, tell);
    signal(SIGTRAP, tell);
    make_memory();
    allocations_left = -1;
    memset(&document, 0, sizeof document);
    document.size = sizeof policy_text - 1;
    document.text = (char *)malloc(sizeof policy_text);
    require(document.text != NULL);
    memcpy(document.text, policy_text, sizeof policy_text);
    require(ek_parse(&document, "policy.json", ELFKILN_BAD_POLICY, &error) == ELFKILN_OK);
    require(ek_read_policy(&reader, "npu2", &policy));
    guarded_free(document.nodes);
    if (count > 3) {
        number = strtoul(words[3], NULL, 10);
        run_one(seed);
        return 0;
    }
    for (number = 0; number < inputs; number++) {
        run_one(seed);
    }
    for (i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        printf("%-18s %9lu inputs, %8lu accepted\n", targets[i].name, targets[i].inputs, targets[i].accepted);
        total += targets[i].inputs;
    }
    printf("%lu inputs of seed %llu, none did harm\n", total, (unsigned long long)seed);
    return 0;
}
