/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "golden_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

uint32_t golden_list(struct golden *golden, const char *path, const char *suffix,
                     const char ***names)
{
    uint32_t count = 0;
    uint32_t capacity = 0;
    DIR *dir = opendir(path);
    *names = NULL;
    if (dir == NULL)
        return 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length < strlen(suffix) ||
            strcmp(entry->d_name + length - strlen(suffix), suffix) != 0)
            continue;
        UL_GROW(&golden->arena, *names, count, capacity);
        (*names)[count++] = ul_arena_copy_string(&golden->arena, entry->d_name);
    }
    closedir(dir);
    if (count > 0)
        qsort(*names, count, sizeof **names, by_name);
    return count;
}

const char *golden_read(struct golden *golden, const char *path)
{
    struct ul_file file;
    struct ul_diag diag = {0};
    if (ul_file_map(&file, &golden->arena, path, &diag) != UL_OK)
        return NULL;
    char *text = ul_arena_alloc(&golden->arena, file.size_bytes + 1);
    if (file.size_bytes > 0)
        memcpy(text, file.data, (size_t)file.size_bytes);
    ul_file_unmap(&file);
    return text;
}

void golden_compare(struct golden *golden, const char *path, const char *got)
{
    struct ul_diag diag = {0};
    const char *wanted = golden_read(golden, path);
    golden->count++;
    if (wanted != NULL && strcmp(wanted, got) == 0)
        return;
    if (golden->update && ul_file_write(path, got, strlen(got), &diag) == UL_OK) {
        printf("updated %s\n", path);
        return;
    }
    golden->failed++;
    printf("%s differs; this came out:\n%s", path, got);
}

bool golden_init(struct golden *golden, int argc, char **argv)
{
    *golden = (struct golden){.update = argc > 2 && strcmp(argv[1], "--update") == 0};
    if (argc < 2) {
        fprintf(stderr, "usage: %s [--update] DIR\n", argv[0]);
        return false;
    }
    golden->root = argv[argc - 1];
    ul_arena_init(&golden->arena);
    return true;
}

int golden_done(struct golden *golden)
{
    printf("%u golden cases, %u failed\n", (unsigned)golden->count, (unsigned)golden->failed);
    ul_arena_done(&golden->arena);
    return golden->count == 0 || golden->failed > 0;
}
