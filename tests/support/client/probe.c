/* What the tests ask of elfkiln.h: opens folders and ELFs as told, and runs its inner functions on what stdin brings.
 * It compiles as C11 and as C++17.
 *
 *   probe open KEY=VALUE ... [NAME ...]   rows: name, artifact or error, tab-separated
 *   probe json | lock | plan | sha256 | sha256-portable | sha512 | ed25519 | key | base64 | time
 *
 * The second form answers each frame of stdin with one line. A frame is a length in four bytes, lowest first, and as
 * many bytes.
 */
static unsigned long allocations;
static void *counted(unsigned long size);
#define ELFKILN_MALLOC(size) counted(size)
#define ELFKILN_FREE(memory) free(memory)
#define ELFKILN_IMPLEMENTATION
#include "elfkiln.h"

#include <stdio.h>

static void *counted(unsigned long size)
{
    allocations += 1;
    return malloc(size);
}

static void print_error(const elfkiln_error *error)
{
    printf("error\t%d\t%s\t%s\t%s\n", (int)error->status, elfkiln_word(error->status), error->text, error->detail);
}

static int value_of(const char *word, const char *key, const char **value)
{
    size_t length = strlen(key);
    if (strncmp(word, key, length) != 0 || word[length] != '=') {
        return 0;
    }
    *value = word + length + 1;
    return 1;
}

static int open_and_get(int count, char **words)
{
    elfkiln_options options;
    elfkiln_error error;
    elfkiln_set *set;
    const char *text;
    int i;
    size_t j;
    memset(&options, 0, sizeof options);
    for (i = 0; i < count && strchr(words[i], '='); i++) {
        if (value_of(words[i], "now", &text)) {
            options.now = strtoll(text, NULL, 10);
        } else if (value_of(words[i], "without_plan", &text)) {
            options.without_plan = 1;
        } else if (value_of(words[i], "portable", &text)) {
            options.portable_sha256 = 1;
        } else if (value_of(words[i], "policy_bytes", &text)) {
            options.policy = text;
            options.policy_size = strlen(text);
        } else if (!value_of(words[i], "dir", &options.model_dir) && !value_of(words[i], "target", &options.target) &&
                   !value_of(words[i], "kernels", &options.kernels_dir) &&
                   !value_of(words[i], "model", &options.model) &&
                   !value_of(words[i], "policy", &options.policy_path)) {
            fprintf(stderr, "probe: %s?\n", words[i]);
            return 2;
        }
    }
    if (elfkiln_open(&options, &set, &error) != ELFKILN_OK) {
        print_error(&error);
        return set != NULL;
    }
    for (j = 0; j < elfkiln_count(set); j++) {
        const elfkiln_name *name = elfkiln_at(set, j);
        printf("name\t%s\t%s\t%d\t%d\t%d\t%u\n", name->name, name->role, (int)name->K, (int)name->N, (int)name->rows,
               (unsigned)name->launches);
    }
    for (; i < count; i++) {
        elfkiln_artifact artifact;
        unsigned long before = allocations;
        if (elfkiln_get(set, words[i], &artifact, &error) == ELFKILN_OK) {
            unsigned char digest[ELFKILN_DIGEST_BYTES];
            char hex[65];
            /* The bytes that are handed out, not those that the call hashed. */
            ek_digest(artifact.bytes, artifact.size, 0, digest);
            elfkiln_hex(artifact.digest, hex);
            printf("artifact\t%s\t%s\t%zu\t%s\t%d\n", artifact.name, artifact.folder, artifact.size, hex,
                   memcmp(digest, artifact.digest, sizeof digest) == 0);
        } else {
            if (artifact.bytes || artifact.size || artifact.folder) {
                return 3;
            }
            print_error(&error);
        }
        elfkiln_release(&artifact);
        elfkiln_release(&artifact);
        if (allocations != before) {
            printf("allocated\n");
        }
    }
    elfkiln_close(set);
    return 0;
}

/* Read one frame into memory of exactly its size (a reader past its end is then one past the heap's block). */
static unsigned char *frame(size_t *size)
{
    unsigned char head[4], *bytes;
    if (fread(head, 1, 4, stdin) != 4) {
        return NULL;
    }
    *size = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    bytes = (unsigned char *)malloc(*size ? *size : 1);
    if (!bytes || fread(bytes, 1, *size, stdin) != *size) {
        abort();
    }
    return bytes;
}

static void print_hex(const unsigned char *bytes, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
}

static void print_json(unsigned char *bytes, size_t size)
{
    elfkiln_error error;
    ek_document document;
    memset(&document, 0, sizeof document);
    document.text = (char *)bytes;
    document.size = size;
    printf("%d\n", (int)ek_parse(&document, "t", ELFKILN_BAD_LOCK, &error));
    ELFKILN_FREE(document.nodes);
}

/* Whether a lock is one of target sim. */
static void print_lock(unsigned char *bytes, size_t size)
{
    elfkiln_error error;
    ek_document document;
    ek_reader reader;
    memset(&document, 0, sizeof document);
    document.text = (char *)bytes;
    document.size = size;
    reader.document = &document;
    reader.where = "kernels.lock.json";
    reader.bad = ELFKILN_BAD_LOCK;
    reader.error = &error;
    if (ek_parse(&document, reader.where, reader.bad, &error) == ELFKILN_OK && ek_check_lock(&reader, "sim", NULL)) {
        printf("taken\n");
    } else {
        printf("refused %s\n", error.text);
    }
    ELFKILN_FREE(document.nodes);
}

/* The names a plan asks for with their launches, or why it is refused, on one line. */
static void print_plan(unsigned char *bytes, size_t size)
{
    static ek_plan plan;
    elfkiln_error error;
    ek_document document;
    ek_reader reader;
    elfkiln_set set;
    size_t i;
    memset(&document, 0, sizeof document);
    memset(&set, 0, sizeof set);
    document.text = (char *)bytes;
    document.size = size;
    reader.document = &document;
    reader.where = "plan.json";
    reader.bad = ELFKILN_BAD_PLAN;
    reader.error = &error;
    if (ek_parse(&document, "plan.json", ELFKILN_BAD_PLAN, &error) != ELFKILN_OK || !ek_read_plan(&reader, &plan) ||
        ek_names_of_plan(&set, &plan, "plan.json", &error) != ELFKILN_OK) {
        printf("refused %s", error.text);
    }
    for (i = 0; i < set.count; i++) {
        printf("%s%s*%u", i ? " " : "", set.entries[i].name.name, (unsigned)set.entries[i].name.launches);
    }
    printf("\n");
    ELFKILN_FREE(set.entries);
    ELFKILN_FREE(set.sorted);
    ELFKILN_FREE(document.nodes);
}

static void print_sha256(const unsigned char *bytes, size_t size, int sha)
{
    unsigned char whole[32], parts[32];
    ek_sha256 hash;
    size_t at = 0, step = 1;
    ek_digest(bytes, size, sha, whole);
    ek_sha256_begin(&hash, sha);
    for (; at < size; step = step * 3 % 97 + 1) {
        size_t part = size - at < step ? size - at : step;
        ek_sha256_add(&hash, bytes + at, part);
        at += part;
    }
    ek_sha256_end(&hash, parts);
    if (memcmp(whole, parts, 32) != 0) {
        printf("in parts it differs: ");
    }
    print_hex(whole, 32);
}

static void print_sha512(const unsigned char *bytes, size_t size)
{
    unsigned char digest[64];
    ek_sha512 hash;
    ek_sha512_begin(&hash);
    ek_sha512_add(&hash, bytes, size / 3);
    ek_sha512_add(&hash, bytes + size / 3, size - size / 3);
    ek_sha512_end(&hash, digest);
    print_hex(digest, 64);
}

static int answer(const char *question)
{
    unsigned char *bytes;
    size_t size = 0;
    int64_t seconds;
    if (strcmp(question, "sha") == 0) {
        printf("%d\n", ek_has_sha());
        return 0;
    }
    while ((bytes = frame(&size)) != NULL) {
        if (strcmp(question, "json") == 0) {
            print_json(bytes, size);
        } else if (strcmp(question, "lock") == 0) {
            print_lock(bytes, size);
        } else if (strcmp(question, "plan") == 0) {
            print_plan(bytes, size);
        } else if (strcmp(question, "sha256") == 0) {
            print_sha256(bytes, size, ek_has_sha());
        } else if (strcmp(question, "sha256-portable") == 0) {
            print_sha256(bytes, size, 0);
        } else if (strcmp(question, "sha512") == 0) {
            print_sha512(bytes, size);
        } else if (strcmp(question, "ed25519") == 0 && size >= 96) {
            /* key, signature, message; the message in two parts */
            size_t head = (size - 96) / 2;
            printf("%d\n", ek_verify(bytes, bytes + 32, bytes + 96, head, bytes + 96 + head, size - 96 - head));
        } else if (strcmp(question, "key") == 0 && size == 32) {
            printf("%d\n", ek_is_key(bytes));
        } else if (strcmp(question, "base64") == 0) {
            ptrdiff_t length = ek_base64((char *)bytes, size);
            if (length < 0) {
                printf("none\n");
            } else {
                print_hex(bytes, (size_t)length);
            }
        } else if (strcmp(question, "time") == 0) {
            if (ek_read_time((const char *)bytes, size, &seconds)) {
                printf("%lld\n", (long long)seconds);
            } else {
                printf("none\n");
            }
        } else {
            return 2;
        }
        free(bytes);
    }
    return 0;
}

int main(int count, char **words)
{
    if (count < 2) {
        return 2;
    }
    return strcmp(words[1], "open") == 0 ? open_and_get(count - 2, words + 2) : answer(words[1]);
}
