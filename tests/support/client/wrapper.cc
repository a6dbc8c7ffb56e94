// The C++17 face of elfkiln.h: owners that move, and errors without exceptions.
#define ELFKILN_IMPLEMENTATION
#include "elfkiln.h"

#include <stdio.h>

static_assert(!__is_constructible(elfkiln::Artifact, const elfkiln::Artifact &), "an artifact has one owner");
static_assert(!__is_constructible(elfkiln::Set, const elfkiln::Set &), "a set has one owner");

int main(int count, char **words)
{
    if (count != 4) {
        return 2;
    }
    elfkiln::Options options{};
    options.model_dir = words[1];
    options.target = words[2];
    elfkiln::Error error;
    elfkiln::Set set(options, &error);
    if (!set) {
        printf("%s\n", error.text);
        return 1;
    }
    printf("%zu names\n", set.size());
    elfkiln::Set other(static_cast<elfkiln::Set &&>(set));
    if (set || set.size() != 0 || !other || other[0].K != 256) {
        return 3;
    }
    set = static_cast<elfkiln::Set &&>(other);
    elfkiln::Artifact elf = set.get(words[3], &error);
    if (!elf || elf.size() != static_cast<size_t>(elf.end() - elf.begin()) || elf.data()[0] != 0x7f) {
        return 4;
    }
    printf("%s/%s\n", elf.folder(), elf.name());
    elfkiln::Artifact moved(static_cast<elfkiln::Artifact &&>(elf));
    elf = set.get(words[3]);
    if (!elf || elf.data() == moved.data() || elf.digest()[0] != moved.digest()[0]) {
        return 5;
    }
    elf = static_cast<elfkiln::Artifact &&>(moved);
    printf("%s\n", moved || !elf ? "kept" : "moved");
    if (set.get("full_i8_D_K1_N1.elf", &error) || error.status != ELFKILN_BAD_NAME) {
        return 6;
    }
    printf("%s\n", elfkiln_word(ELFKILN_MISSING));
    options.target = "npu2";
    set = elfkiln::Set(options, &error);
    printf("%s\n", set ? "opened" : elfkiln_word(error.status));
    return 0;
}
