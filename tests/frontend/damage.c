/* SPDX-License-Identifier: Apache-2.0 */
/* Damages models and loads them: cut after every byte, and with every bit of every byte flipped.
 * The frontend must come back with some status each time; a sanitizer or a signal says otherwise.
 *
 * usage: frontend_damage FOLDER|FILE...      models above 2 KiB are damaged in steps; those in a
 *        folder that are called bomb_* are not, since each load of one takes a second
 */
#define _POSIX_C_SOURCE 200809L
#include "frontend/frontend.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVERY_BYTE_BELOW = 2048, MAX_ALLOCATIONS = 1000 };

static enum ul_status load(const unsigned char *data, uint64_t size_bytes)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_onnx_model model;
    struct ul_diag diag = {0};
    ul_arena_init(&arena);
    enum ul_status status =
        ul_frontend_load_bytes(&graph, &arena, data, size_bytes, NULL, NULL, &model, &diag);
    if (status != UL_OK && (diag.status != status || diag.text[0] == '\0')) {
        fprintf(stderr, "status %d came without a message\n", (int)status);
        abort();
    }
    if (status == UL_OK && ul_graph_verify(&graph, &diag) != UL_OK) {
        fprintf(stderr, "accepted, but %s\n", diag.text);
        abort();
    }
    ul_model_done(&model);
    ul_arena_done(&arena);
    return status;
}

/* The bytes are copied to a block of exactly their size, so that reads beyond are seen. */
static void damage(const struct ul_file *file, const char *name)
{
    uint64_t size = file->size_bytes;
    uint64_t step = 1 + size / EVERY_BYTE_BELOW;
    uint64_t accepted = 0;
    uint64_t tried = 0;
    for (uint64_t cut = 0; cut < size; cut += step) {
        unsigned char *copy = malloc(cut == 0 ? 1 : (size_t)cut);
        if (copy == NULL)
            exit(UL_INTERNAL);
        memcpy(copy, file->data, (size_t)cut);
        accepted += load(copy, cut) == UL_OK;
        tried++;
        free(copy);
    }
    unsigned char *copy = malloc(size == 0 ? 1 : (size_t)size);
    if (copy == NULL)
        exit(UL_INTERNAL);
    if (size > 0)
        memcpy(copy, file->data, (size_t)size);
    for (uint64_t at = 0; at < size; at += step) {
        for (unsigned bit = 0; bit < 8; bit++) {
            copy[at] ^= (unsigned char)(1u << bit);
            accepted += load(copy, size) == UL_OK;
            tried++;
            copy[at] ^= (unsigned char)(1u << bit);
        }
    }
    free(copy);
    printf("%s: %llu damaged, %llu still load\n", name, (unsigned long long)tried,
           (unsigned long long)accepted);
}

/* The n-th block that an arena asks for fails, until there is no n-th: the process ends with its
 * message and code. */
static int fail_allocations(const struct ul_file *file, const char *name)
{
    for (uint64_t nth = 1; nth <= MAX_ALLOCATIONS; nth++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL)
                _exit(UL_IO);
            ul_arena_fail_after(nth);
            (void)!load(file->data, file->size_bytes);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            break;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != UL_NO_FIT) {
            printf("%s: allocation %u failing ends in status %d\n", name, (unsigned)nth, status);
            return UL_MISMATCH;
        }
    }
    return UL_OK;
}

static int one(const char *path)
{
    struct ul_arena arena;
    struct ul_file file;
    struct ul_diag diag = {0};
    ul_arena_init(&arena);
    if (ul_file_map(&file, &arena, path, &diag) != UL_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return UL_IO;
    }
    damage(&file, path);
    int result = fail_allocations(&file, path);
    ul_file_unmap(&file);
    ul_arena_done(&arena);
    return result;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int folder(const char *path)
{
    enum { MAX = 4096 };
    DIR *stream = opendir(path);
    if (stream == NULL)
        return one(path);
    struct ul_arena arena;
    ul_arena_init(&arena);
    const char **names = UL_NEW_ARRAY(&arena, const char *, MAX);
    size_t count = 0;
    for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ".onnx") == 0 && strncmp(entry->d_name, "bomb_", 5) != 0 &&
            count < MAX)
            names[count++] = ul_arena_printf(&arena, "%s/%s", path, entry->d_name);
    }
    closedir(stream);
    qsort(names, count, sizeof *names, compare_names);
    int result = UL_OK;
    for (size_t i = 0; i < count; i++) {
        int status = one(names[i]);
        result = status != UL_OK ? status : result;
    }
    ul_arena_done(&arena);
    return result;
}

int main(int argc, char **argv)
{
    int result = argc < 2 ? UL_USAGE : UL_OK;
    for (int i = 1; i < argc; i++) {
        int status = folder(argv[i]);
        result = status != UL_OK ? status : result;
    }
    return result;
}
