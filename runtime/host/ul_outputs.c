/* SPDX-License-Identifier: 0BSD */
/* Outputs to files. Names of outputs are untrusted and become harmless file names. */
#include "ul_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* With ".npy" and the ending of a temporary file this stays below 255, the usual limit. */
#define NAME_BYTES 200

static void sanitise(const char *name, char buffer[UL_SHOWN_BYTES])
{
    size_t used = 0;
    for (; *name != '\0' && used < NAME_BYTES; name++) {
        bool plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
                     (*name >= '0' && *name <= '9') || *name == '-' || (*name == '.' && used != 0);
        buffer[used++] = plain ? *name : '_';
    }
    memcpy(buffer + used, used == 0 ? "_" : "", used == 0 ? 2 : 1);
}

/* Letter case is ignored, since some file systems do. */
static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        int low_a = *a >= 'A' && *a <= 'Z' ? *a + 32 : *a;
        int low_b = *b >= 'A' && *b <= 'Z' ? *b + 32 : *b;
        if (low_a != low_b)
            return false;
    }
    return *a == *b;
}

/* Two outputs whose names become the same get their number after a '+', which no other name has. */
static void output_name(const struct ul_session *s, uint32_t index, char buffer[UL_SHOWN_BYTES])
{
    char other[UL_SHOWN_BYTES];
    sanitise(s->model->outputs[index].name, buffer);
    for (uint32_t i = 0; i < s->model->output_count; i++) {
        if (i == index)
            continue;
        sanitise(s->model->outputs[i].name, other);
        if (same_name(buffer, other)) {
            size_t used = strlen(buffer);
            snprintf(buffer + used, UL_SHOWN_BYTES - used, "+%" PRIu32, index);
            return;
        }
    }
}

static int make_directory(const struct ul_session *s, const char *path)
{
    struct stat status;
    char shown[UL_SHOWN_BYTES];
    if (mkdir(path, 0777) == 0 || (stat(path, &status) == 0 && S_ISDIR(status.st_mode)))
        return UL_EXIT_OK;
    return ul_error(s, UL_EXIT_IO, "cannot make the directory %s: %s", ul_shown(shown, path),
                    strerror(errno));
}

static int write_directory(const struct ul_session *s, const char *directory)
{
    int status = make_directory(s, directory);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < s->model->output_count; i++) {
        char name[UL_SHOWN_BYTES], path[UL_PATH_BYTES];
        output_name(s, i, name);
        if (snprintf(path, sizeof path, "%s/%s.npy", directory, name) >= (int)sizeof path)
            return ul_error(s, UL_EXIT_IO, "the path of --output-dir is too long");
        status = ul_npy_write(s, path, &s->model->outputs[i], ul_session_output(s, i));
    }
    return status;
}

static int write_archive(const struct ul_session *s, const char *path)
{
    uint32_t count = s->model->output_count;
    struct ul_npz_member *members = calloc(count + 1, sizeof *members);
    if (members == NULL)
        return ul_out_of_memory(s, (count + 1) * sizeof *members);
    for (uint32_t i = 0; i < count; i++) {
        members[i].tensor = s->model->outputs[i];
        members[i].data = ul_session_output(s, i);
    }
    int status = ul_npz_write(s, path, members, count, false);
    free(members);
    return status;
}

int ul_outputs_write(const struct ul_session *s)
{
    const struct ul_run_options *options = s->options;
    int status = UL_EXIT_OK;
    if (options->output_dir != NULL)
        status = write_directory(s, options->output_dir);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < options->output_count; i++) {
        const struct ul_assignment *requested = &options->outputs[i];
        status = ul_npy_write(s, requested->file, &s->model->outputs[requested->tensor],
                              ul_session_output(s, requested->tensor));
    }
    if (status == UL_EXIT_OK && options->output_npz != NULL)
        status = write_archive(s, options->output_npz);
    return status;
}
