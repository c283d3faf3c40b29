/* SPDX-License-Identifier: Apache-2.0 */
/* Replays files: main of a fuzz target where it is no libFuzzer program. */
#define _POSIX_C_SOURCE 200809L
#include "base/base.h"

#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void fuzz_require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

#ifndef ULLAGE_FUZZ
static int replay(const char *path)
{
    struct ul_arena arena;
    struct ul_file file;
    struct ul_diag diag = {0};
    ul_arena_init(&arena);
    enum ul_status status = ul_file_map(&file, &arena, path, &diag);
    if (status == UL_OK) {
        (void)LLVMFuzzerTestOneInput(file.data, (size_t)file.size_bytes);
        ul_file_unmap(&file);
    } else {
        fprintf(stderr, "%s\n", diag.text);
    }
    ul_arena_done(&arena);
    return (int)status;
}

int main(int argc, char **argv)
{
    int result = UL_OK;
    unsigned count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            result |= replay(argv[i]);
            count++;
            continue;
        }
        for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            char path[UL_LIMIT_PATH_BYTES];
            struct stat info;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
                continue;
            result |= replay(path);
            count++;
        }
        closedir(folder);
    }
    printf("%u files replayed\n", count);
    return result;
}
#endif
