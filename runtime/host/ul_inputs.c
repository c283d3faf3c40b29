/* SPDX-License-Identifier: 0BSD */
/* Inputs from files or at random, read straight into the place from which the model takes them. */
#define _XOPEN_SOURCE 700 /* pread */
#include "ul_internal.h"

#include "ul_train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC_BYTES 6

static bool file_exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

/* "FILE.npz:KEY" -> path and key; a file whose name has a colon is taken as it is. */
static int split_key(const struct ul_session *s, const char *text, char path[UL_PATH_BYTES],
                     const char **key)
{
    const char *colon = strrchr(text, ':');
    char shown[UL_SHOWN_BYTES];
    size_t length = strlen(text);
    *key = NULL;
    if (length >= UL_PATH_BYTES)
        return ul_error(s, UL_EXIT_IO, "%s: the path is too long", ul_shown(shown, text));
    memcpy(path, text, length + 1);
    if (colon != NULL && !file_exists(text)) {
        path[colon - text] = '\0';
        *key = colon + 1;
    }
    return UL_EXIT_OK;
}

static int read_pb(const struct ul_session *s, struct ul_reader *reader,
                   const struct ul_rt_tensor *tensor, void *data)
{
    unsigned char *bytes = NULL;
    uint64_t size_bytes;
    struct ul_pb pb;
    int status = ul_reader_all(s, reader, &bytes, &size_bytes);
    if (status == UL_EXIT_OK)
        status = ul_pb_parse(s, reader->name, bytes, size_bytes, &pb);
    if (status == UL_EXIT_OK)
        status = ul_pb_decode(s, reader->name, &pb, "input", tensor, data);
    free(bytes);
    return status;
}

/* The first bytes tell the format; a TensorProto has no magic. A pipe cannot be looked at and then
   read again, so it carries .npy. */
static int read_any(const struct ul_session *s, struct ul_reader *reader, const char *key,
                    const struct ul_rt_tensor *tensor, void *data)
{
    unsigned char magic[MAGIC_BYTES] = {0};
    char shown[UL_SHOWN_BYTES];
    if (reader->left_bytes == UINT64_MAX)
        return ul_npy_read(s, reader, "input", tensor, data);
    uint64_t magic_bytes = reader->left_bytes < MAGIC_BYTES ? reader->left_bytes : MAGIC_BYTES;
    if (!ul_reader_get(reader, magic, magic_bytes) || !ul_reader_seek(reader, 0))
        return ul_error(s, UL_EXIT_IO, "%s: cannot read", ul_shown(shown, reader->name));
    if (memcmp(magic, "PK", 2) == 0)
        return ul_npz_read(s, reader, key, "input", tensor, data);
    if (key != NULL)
        return ul_error(s, UL_EXIT_INVALID, "%s: only a .npz file has entries (asked for '%s')",
                        ul_shown(shown, reader->name), key);
    if (memcmp(magic, "\x93NUMPY", 6) == 0)
        return ul_npy_read(s, reader, "input", tensor, data);
    return read_pb(s, reader, tensor, data);
}

/* What can be read twice. */
static bool is_file(const char *path)
{
    struct stat status;
    return strcmp(path, "-") != 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static int read_input(const struct ul_session *s, const struct ul_assignment *given,
                      bool only_sizes)
{
    struct ul_reader reader;
    char path[UL_PATH_BYTES];
    const char *key;
    int status = split_key(s, given->file, path, &key);
    if (status != UL_EXIT_OK || (only_sizes && !is_file(path)))
        return status;
    status = ul_reader_open(s, &reader, path);
    if (status != UL_EXIT_OK)
        return status;
    status = read_any(s, &reader, key, &s->model->inputs[given->tensor],
                      only_sizes ? NULL : ul_session_input(s, given->tensor));
    ul_reader_close(&reader);
    return status;
}

static const struct ul_assignment *find_given(const struct ul_session *s, uint32_t input)
{
    for (uint32_t i = 0; i < s->options->input_count; i++)
        if (s->options->inputs[i].tensor == input)
            return &s->options->inputs[i];
    return NULL;
}

/* One line for each input that got no value. */
static int missing(const struct ul_session *s)
{
    char shown[UL_SHOWN_BYTES], shape[UL_SHAPE_TEXT_BYTES];
    ul_error(s, UL_EXIT_USAGE, "inputs without a value (--input NAME=FILE, or --random SEED):");
    for (uint32_t i = 0; i < s->model->input_count; i++) {
        const struct ul_rt_tensor *tensor = &s->model->inputs[i];
        bool is_step = s->model->training != NULL && s->model->training->step == i;
        if (find_given(s, i) == NULL && !is_step)
            fprintf(stderr, "    %s  %s\n", ul_shown(shown, tensor->name),
                    ul_shape_text(shape, tensor->type, tensor->rank, tensor->dims));
    }
    return UL_EXIT_USAGE;
}

/* Fills the inputs of a model that trains where nothing else is asked for: the numbers of its first
   step, and labels that are classes. */
static void fill_training(const struct ul_session *s, uint32_t input)
{
    const struct ul_rt_training *training = s->model->training;
    const struct ul_rt_tensor *tensor = &s->model->inputs[input];
    void *place = ul_session_input(s, input);
    char kind = ul_type_find(tensor->type)->kind;
    if (input == training->step) {
        struct ul_trainer trainer;
        double values[UL_RT_STEP_NUMBERS];
        ul_train_init(s->model, &trainer);
        ul_train_numbers(training, &trainer, values);
        memcpy(place, values, sizeof values);
    } else if (input == training->labels && training->class_count != 0 &&
               (kind == 'i' || kind == 'u')) {
        for (uint64_t i = 0; i < ul_element_count(tensor->rank, tensor->dims); i++) {
            int64_t label = 0;
            (void)ul_integer_get(tensor->type, place, i, &label);
            (void)ul_integer_put(tensor->type, place, i, label % training->class_count);
        }
    }
}

/* The sizes of a run decide where its inputs lie. */
static int learn_sizes(struct ul_session *s)
{
    int status = UL_EXIT_OK;
    for (uint32_t i = 0; s->sizes != NULL && i < s->options->input_count; i++)
        if (status == UL_EXIT_OK)
            status = read_input(s, &s->options->inputs[i], true);
    ul_sizes_settle(s);
    return status;
}

int ul_inputs_fill(struct ul_session *s, bool random_rest)
{
    const struct ul_run_options *options = s->options;
    int learnt = learn_sizes(s);
    if (learnt != UL_EXIT_OK)
        return learnt;
    for (uint32_t i = 0; i < s->model->input_count; i++) {
        const struct ul_assignment *given = find_given(s, i);
        bool is_step = s->model->training != NULL && s->model->training->step == i;
        int status = UL_EXIT_OK;
        if (given != NULL)
            status = read_input(s, given, false);
        else if (options->random || random_rest || is_step)
            ul_fill_random(&s->model->inputs[i], ul_session_input(s, i), options->seed, i);
        else
            status = missing(s);
        if (status != UL_EXIT_OK)
            return status;
        if (given == NULL && s->model->training != NULL)
            fill_training(s, i);
    }
    return UL_EXIT_OK;
}

/* ---- copies ---- */

#define SAVED_LIMIT_BYTES 65536 /* for copies that are held in memory */

static bool save_to_file(const struct ul_session *s, struct ul_saved *saved)
{
    saved->file = tmpfile();
    if (saved->file == NULL)
        return false;
    bool good = setvbuf(saved->file, NULL, _IONBF, 0) == 0;
    for (uint32_t i = 0; good && i < s->model->input_count; i++) {
        size_t size_bytes = (size_t)s->model->inputs[i].size_bytes;
        good = fwrite(ul_session_input(s, i), 1, size_bytes, saved->file) == size_bytes;
    }
    if (!good) {
        fclose(saved->file);
        saved->file = NULL;
    }
    return good;
}

int ul_inputs_save(const struct ul_session *s, struct ul_saved *saved)
{
    memset(saved, 0, sizeof *saved);
    for (uint32_t i = 0; i < s->model->input_count; i++)
        saved->size_bytes += s->model->inputs[i].size_bytes;
    if (saved->size_bytes > SAVED_LIMIT_BYTES && save_to_file(s, saved))
        return UL_EXIT_OK;
    saved->bytes = malloc((size_t)saved->size_bytes + 1);
    if (saved->bytes == NULL)
        return ul_out_of_memory(s, saved->size_bytes);
    unsigned char *at = saved->bytes;
    for (uint32_t i = 0; i < s->model->input_count; i++) {
        memcpy(at, ul_session_input(s, i), (size_t)s->model->inputs[i].size_bytes);
        at += s->model->inputs[i].size_bytes;
    }
    return UL_EXIT_OK;
}

/* Only a defect of the disk can keep a part of the file that was written from being read. */
static void restore_part(const struct ul_saved *saved, uint64_t at, void *target,
                         uint64_t size_bytes)
{
    unsigned char *bytes = target;
    while (size_bytes > 0) {
        size_t chunk = size_bytes < ((size_t)1 << 30) ? (size_t)size_bytes : (size_t)1 << 30;
        ssize_t got = pread(fileno(saved->file), bytes, chunk, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            fputs("the copies of the inputs cannot be read back\n", stderr);
            abort();
        }
        bytes += got;
        at += (uint64_t)got;
        size_bytes -= (uint64_t)got;
    }
}

void ul_inputs_restore(const struct ul_session *s, const struct ul_saved *saved, bool state)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->model->input_count; i++) {
        uint64_t size_bytes = s->model->inputs[i].size_bytes;
        bool restored = state || s->model->inputs[i].donated == 0;
        if (restored && saved->bytes != NULL)
            memcpy(ul_session_input(s, i), saved->bytes + at, (size_t)size_bytes);
        else if (restored)
            restore_part(saved, at, ul_session_input(s, i), size_bytes);
        at += size_bytes;
    }
}

void ul_inputs_forget(struct ul_saved *saved)
{
    if (saved->file != NULL)
        fclose(saved->file);
    free(saved->bytes);
    memset(saved, 0, sizeof *saved);
}
