/* Gets an ELF, then spoils its file in every way, and looks whether the bytes are still those that were verified. */
#define ELFKILN_IMPLEMENTATION
#include "elfkiln.h"

#include <stdio.h>

int main(int count, char **words)
{
    elfkiln_options options = {0};
    elfkiln_error error;
    elfkiln_artifact elf;
    elfkiln_set *set;
    unsigned char digest[ELFKILN_DIGEST_BYTES];
    char path[4096];
    int file;
    if (count != 4) {
        return 2;
    }
    options.model_dir = words[1];
    options.target = words[2];
    if (elfkiln_open(&options, &set, &error) || elfkiln_get(set, words[3], &elf, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    snprintf(path, sizeof path, "%s/%s", elf.folder, elf.name);
    file = open(path, O_RDWR);
    if (file < 0 || pwrite(file, "spoiled", 7, 0) != 7 || ftruncate(file, 1) != 0 || close(file) != 0) {
        return 1;
    }
    ek_digest(elf.bytes, elf.size, 0, digest);
    if (memcmp(digest, elf.digest, sizeof digest) != 0) {
        return 1;
    }
    /* The file as it is now is another. */
    {
        elfkiln_artifact again;
        if (elfkiln_get(set, words[3], &again, &error) != ELFKILN_STUB || again.bytes) {
            return 1;
        }
    }
    elfkiln_close(set);
    ek_digest(elf.bytes, elf.size, 0, digest);
    printf(memcmp(digest, elf.digest, sizeof digest) == 0 ? "kept\n" : "lost\n");
    elfkiln_release(&elf);
    return 0;
}
