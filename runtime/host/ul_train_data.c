/* SPDX-License-Identifier: 0BSD */
/*
 * Files of samples: .npy files whose first dimension counts the samples. They are untrusted: types,
 * shapes and lengths are checked when they are opened, labels before a step sees them. A batch is
 * read sample by sample, with one read for samples that follow each other in the file. */
#define _XOPEN_SOURCE 700 /* pread */
#include "ul_train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 4096 /* for labels that are converted; a multiple of every element's size */

static const struct ul_rt_tensor *input_of(const struct ul_dataset *set,
                                           const struct ul_column *column)
{
    return &set->session->model->inputs[column->input];
}

static bool is_integer(enum ul_rt_type type)
{
    char kind = ul_type_find(type)->kind;
    return kind == 'i' || kind == 'u';
}

/* The type of the file's elements, where it can be used: the input's; for labels any integer type
   and bool. */
static bool find_type(const struct ul_dataset *set, const struct ul_npy *header,
                      struct ul_column *column)
{
    static const enum ul_rt_type integers[] = {UL_TYPE_I64, UL_TYPE_I32, UL_TYPE_I16,
                                               UL_TYPE_I8,  UL_TYPE_U64, UL_TYPE_U32,
                                               UL_TYPE_U16, UL_TYPE_U8,  UL_TYPE_BOOL};
    enum ul_rt_type wanted = input_of(set, column)->type;
    column->type = wanted;
    if (ul_npy_holds(header, wanted))
        return true;
    for (size_t i = 0; column->is_labels && i < sizeof integers / sizeof *integers; i++) {
        column->type = integers[i];
        if (ul_npy_holds(header, integers[i]))
            return true;
    }
    return false;
}

/* How many elements of the input belong to one sample. */
static uint64_t elements_of_sample(const struct ul_dataset *set, const struct ul_rt_tensor *tensor)
{
    return ul_element_count(tensor->rank, tensor->dims) / set->batch_count;
}

/* Whether a run takes as many samples of this input as of the others. Labels may have other first
   dimensions than samples, as for outputs that are [samples x places, classes]. */
static int check_batch(const struct ul_dataset *set, const struct ul_column *column)
{
    const struct ul_rt_tensor *tensor = input_of(set, column);
    char name[UL_SHOWN_BYTES], shape[UL_SHAPE_TEXT_BYTES];
    if (tensor->rank > 0 && (tensor->dims[0] == (int64_t)set->batch_count ||
                             (column->is_labels && tensor->dims[0] % set->batch_count == 0)))
        return UL_EXIT_OK;
    return ul_error(set->session, UL_EXIT_UNSUPPORTED,
                    "input '%s' is %s: its first dimension does not count the %" PRIu32
                    " samples of a batch; compile the model with --const for what is equal in all",
                    ul_shown(name, tensor->name),
                    ul_shape_text(shape, tensor->type, tensor->rank, tensor->dims),
                    set->batch_count);
}

/* Samples one after the other have the input's shape; labels with as many elements are taken in
   their order. */
static int check_shape(const struct ul_dataset *set, const struct ul_column *column,
                       const struct ul_npy *header)
{
    const struct ul_session *s = set->session;
    const struct ul_rt_tensor *tensor = input_of(set, column);
    char file[UL_SHOWN_BYTES], name[UL_SHOWN_BYTES];
    char want[UL_SHAPE_TEXT_BYTES], got[UL_SHAPE_TEXT_BYTES];
    bool same = header->rank == tensor->rank;
    for (uint32_t i = 1; same && i < tensor->rank; i++)
        same = header->dims[i] == tensor->dims[i];
    if (column->is_labels)
        same = header->rank > 0 && ul_element_count(header->rank - 1, header->dims + 1) ==
                                       elements_of_sample(set, tensor);
    if (!same)
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: batches of input '%s' are %s, this file holds %s; all dimensions but "
                        "the first must be equal",
                        ul_shown(file, column->reader.name), ul_shown(name, tensor->name),
                        ul_shape_text(want, tensor->type, tensor->rank, tensor->dims),
                        ul_shape_text(got, column->type, header->rank, header->dims));
    if (header->fortran && header->rank > 1)
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: is in Fortran order, which scatters each sample over the file; save "
                        "it with numpy.save(file, numpy.ascontiguousarray(a))",
                        ul_shown(file, column->reader.name));
    return UL_EXIT_OK;
}

/* Checks the length against the shape; the reader is after the header. */
static int check_length(const struct ul_dataset *set, struct ul_column *column,
                        const struct ul_npy *header)
{
    char shown[UL_SHOWN_BYTES];
    const struct ul_rt_tensor *tensor = input_of(set, column);
    uint64_t left_bytes = column->reader.left_bytes;
    uint32_t element_bytes = ul_type_find(column->type)->bytes;
    column->sample_count = (uint64_t)header->dims[0];
    column->sample_bytes = elements_of_sample(set, tensor) * element_bytes;
    if (column->sample_bytes != 0 && column->sample_count > left_bytes / column->sample_bytes)
        return ul_error(set->session, UL_EXIT_INVALID,
                        "%s: is cut short: it has room for %" PRIu64 " samples of %" PRIu64
                        " bytes, its header says %" PRIu64,
                        ul_shown(shown, column->reader.name), left_bytes / column->sample_bytes,
                        column->sample_bytes, column->sample_count);
    return UL_EXIT_OK;
}

static int read_head(const struct ul_dataset *set, struct ul_column *column)
{
    const struct ul_session *s = set->session;
    const struct ul_rt_tensor *tensor = input_of(set, column);
    char file[UL_SHOWN_BYTES], name[UL_SHOWN_BYTES], type[UL_SHOWN_BYTES];
    struct ul_npy header;
    uint64_t total_bytes = column->reader.left_bytes;
    int status = check_batch(set, column);
    if (status != UL_EXIT_OK)
        return status;
    if (total_bytes == UINT64_MAX)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "%s: samples are read from any place, so they need a regular file",
                        ul_shown(file, column->reader.name));
    status = ul_npy_read_header(s, &column->reader, &header);
    if (status != UL_EXIT_OK)
        return status;
    if (!find_type(set, &header, column))
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: input '%s' needs %s, this file holds %s; save it with "
                        "numpy.save(file, a.astype('%s'))",
                        ul_shown(file, column->reader.name), ul_shown(name, tensor->name),
                        ul_type_find(tensor->type)->name, ul_npy_type_name(&header, type),
                        ul_type_find(tensor->type)->name);
    column->offset_bytes = total_bytes - column->reader.left_bytes;
    column->swapped = ul_npy_is_swapped(&header);
    status = check_shape(set, column, &header);
    return status == UL_EXIT_OK ? check_length(set, column, &header) : status;
}

/* One more file, checked against its input and the files before it. */
static int add_column(struct ul_dataset *set, uint32_t input, const char *path, bool is_labels)
{
    struct ul_column *column = &set->columns[set->column_count];
    memset(column, 0, sizeof *column);
    column->input = input;
    column->is_labels = is_labels;
    int status = ul_reader_open(set->session, &column->reader, path);
    if (status != UL_EXIT_OK)
        return status;
    set->column_count++;
    status = read_head(set, column);
    set->sample_count = set->columns[0].sample_count;
    if (status != UL_EXIT_OK || column->sample_count == set->sample_count)
        return status;
    char a[UL_SHOWN_BYTES], b[UL_SHOWN_BYTES];
    return ul_error(set->session, UL_EXIT_INVALID,
                    "%s holds %" PRIu64 " samples and %s holds %" PRIu64 "; they must be as many",
                    ul_shown(a, set->columns[0].reader.name), set->sample_count, ul_shown(b, path),
                    column->sample_count);
}

/* The option for other inputs must not name the data or the labels. */
static int check_sources(const struct ul_dataset *set, const struct ul_sources *sources)
{
    const struct ul_session *s = set->session;
    const struct ul_rt_training *training = s->model->training;
    for (uint32_t i = 0; i < sources->input_count; i++) {
        uint32_t input = sources->inputs[i].tensor;
        char shown[UL_SHOWN_BYTES];
        const char *option = input == training->data     ? sources->data_option
                             : input == training->labels ? sources->labels_option
                                                         : NULL;
        ul_shown(shown, s->model->inputs[input].name);
        if (option != NULL)
            return ul_error(s, UL_EXIT_USAGE, "%s %s: give it by %s", sources->input_option, shown,
                            option);
        if (input == training->step)
            return ul_error(s, UL_EXIT_USAGE, "%s %s: training makes it", sources->input_option,
                            shown);
    }
    return UL_EXIT_OK;
}

static const char *find_path(const struct ul_dataset *set, const struct ul_sources *sources,
                             uint32_t input)
{
    if (input == set->session->model->training->labels)
        return sources->labels;
    for (uint32_t i = 0; i < sources->input_count; i++)
        if (sources->inputs[i].tensor == input)
            return sources->inputs[i].file;
    return NULL;
}

/* The data come first: they say how many samples there are. */
static int add_columns(struct ul_dataset *set, const struct ul_sources *sources)
{
    const struct ul_session *s = set->session;
    const struct ul_rt_training *training = s->model->training;
    const struct ul_entry *entry = &s->model->entries[UL_ENTRY_RUN];
    char shown[UL_SHOWN_BYTES];
    int status = add_column(set, training->data, sources->data, false);
    for (uint32_t k = 0; status == UL_EXIT_OK && k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        const char *path = find_path(set, sources, i);
        if (i == training->data || i == training->step)
            continue;
        if (path == NULL)
            return ul_error(s, UL_EXIT_USAGE, "the input '%s' has no samples: give %s %s=FILE.npy",
                            ul_shown(shown, s->model->inputs[i].name), sources->input_option,
                            shown);
        status = add_column(set, i, path, i == training->labels);
    }
    return status;
}

int ul_dataset_open(struct ul_dataset *set, struct ul_session *session,
                    const struct ul_sources *sources)
{
    uint64_t columns = session->model->input_count + 1;
    memset(set, 0, sizeof *set);
    set->session = session;
    set->batch_count = session->model->training->sample_count;
    set->columns = calloc(columns, sizeof *set->columns);
    set->samples = calloc(set->batch_count + 1, sizeof *set->samples);
    if (set->columns == NULL || set->samples == NULL)
        return ul_out_of_memory(session, columns * sizeof *set->columns +
                                             (set->batch_count + 1) * sizeof *set->samples);
    int status = check_sources(set, sources);
    return status == UL_EXIT_OK ? add_columns(set, sources) : status;
}

void ul_dataset_close(struct ul_dataset *set)
{
    for (uint32_t i = 0; i < set->column_count; i++)
        ul_reader_close(&set->columns[i].reader);
    free(set->columns);
    free(set->samples);
    memset(set, 0, sizeof *set);
}

static int read_at(const struct ul_dataset *set, const struct ul_column *column,
                   uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    unsigned char *bytes = target;
    char shown[UL_SHOWN_BYTES];
    while (size_bytes > 0) {
        size_t chunk = size_bytes < ((size_t)1 << 30) ? (size_t)size_bytes : (size_t)1 << 30;
        ssize_t got = pread(fileno(column->reader.file), bytes, chunk, (off_t)offset_bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ul_error(set->session, UL_EXIT_IO, "cannot read %s: %s",
                            ul_shown(shown, column->reader.name),
                            got < 0 ? strerror(errno) : "it became shorter");
        bytes += got;
        offset_bytes += (uint64_t)got;
        size_bytes -= (uint64_t)got;
    }
    return UL_EXIT_OK;
}

static int bad_label(const struct ul_dataset *set, const struct ul_column *column, uint64_t sample,
                     int64_t label)
{
    char shown[UL_SHOWN_BYTES];
    uint32_t count = set->session->model->training->class_count;
    ul_shown(shown, column->reader.name);
    if (count == 0)
        return ul_error(set->session, UL_EXIT_INVALID,
                        "%s: the label %" PRId64 " of sample %" PRIu64 " is no %s", shown, label,
                        sample, ul_type_find(input_of(set, column)->type)->name);
    return ul_error(set->session, UL_EXIT_INVALID,
                    "%s: the label %" PRId64 " of sample %" PRIu64 " is no class: valid are 0 to "
                    "%" PRIu32 ", and %" PRId64 " for what is ignored",
                    shown, label, sample, count - 1, set->session->model->training->ignore_index);
}

/* Reads samples that follow each other in the file, as they are. */
static int read_plain(const struct ul_dataset *set, const struct ul_column *column, uint64_t sample,
                      uint64_t count, unsigned char *target)
{
    uint64_t size_bytes = count * column->sample_bytes;
    int status = read_at(set, column, column->offset_bytes + sample * column->sample_bytes, target,
                         size_bytes);
    if (status == UL_EXIT_OK && column->swapped)
        ul_run_swap(target, size_bytes, ul_type_find(column->type)->bytes);
    return status;
}

/* Reads one sample of labels of another type. */
static int read_converted(const struct ul_dataset *set, const struct ul_column *column,
                          uint64_t sample, unsigned char *target)
{
    unsigned char piece[PIECE_BYTES];
    enum ul_rt_type type = input_of(set, column)->type;
    uint32_t element_bytes = ul_type_find(column->type)->bytes;
    uint64_t begin = column->offset_bytes + sample * column->sample_bytes, done = 0;
    for (uint64_t at = 0; at < column->sample_bytes; at += sizeof piece) {
        uint64_t left = column->sample_bytes - at;
        uint64_t size = left < sizeof piece ? left : sizeof piece;
        int status = read_at(set, column, begin + at, piece, size);
        if (status != UL_EXIT_OK)
            return status;
        if (column->swapped)
            ul_run_swap(piece, size, element_bytes);
        for (uint64_t i = 0; i < size / element_bytes; i++) {
            int64_t label;
            if (!ul_integer_get(column->type, piece, i, &label) ||
                !ul_integer_put(type, target, done++, label))
                return bad_label(set, column, sample, label);
        }
    }
    return UL_EXIT_OK;
}

static int read_column(const struct ul_dataset *set, const struct ul_column *column)
{
    const struct ul_rt_tensor *tensor = input_of(set, column);
    unsigned char *target = ul_session_input(set->session, column->input);
    uint64_t planned_bytes = tensor->size_bytes / set->batch_count;
    uint64_t done = 0;
    int status = UL_EXIT_OK;
    while (status == UL_EXIT_OK && done < set->batch_count) {
        uint64_t sample = set->samples[done], follow = 1;
        if (column->type != tensor->type) {
            status = read_converted(set, column, sample, target + done * planned_bytes);
        } else {
            while (done + follow < set->batch_count &&
                   set->samples[done + follow] == sample + follow)
                follow++;
            status = read_plain(set, column, sample, follow, target + done * planned_bytes);
        }
        done += follow;
    }
    if (status == UL_EXIT_OK)
        ul_normalise(tensor, target);
    return status;
}

/* Labels of the first `count` samples must be classes; those of the others become ignored ones. */
static int check_labels(const struct ul_dataset *set, const struct ul_column *column,
                        uint32_t count, struct ul_outcome *outcome)
{
    const struct ul_rt_training *training = set->session->model->training;
    const struct ul_rt_tensor *tensor = input_of(set, column);
    void *labels = ul_session_input(set->session, column->input);
    uint64_t all = ul_element_count(tensor->rank, tensor->dims);
    uint64_t of_sample = elements_of_sample(set, tensor);
    for (uint64_t i = 0; i < all; i++) {
        int64_t label;
        bool fits = ul_integer_get(tensor->type, labels, i, &label);
        if (i >= count * of_sample) {
            (void)ul_integer_put(tensor->type, labels, i, training->ignore_index);
            continue;
        }
        if (fits && label == training->ignore_index)
            continue;
        if (!fits || label < 0 || label >= (int64_t)training->class_count)
            return bad_label(set, column, set->samples[i / of_sample], label);
        outcome->label_count++;
        outcome->weight += training->class_weights != NULL ? training->class_weights[label] : 1.0;
    }
    return UL_EXIT_OK;
}

bool ul_labels_are_classes(const struct ul_model *model, uint32_t input)
{
    return input != UL_TENSOR_NONE && model->training->class_count != 0 &&
           is_integer(model->inputs[input].type);
}

int ul_dataset_read(const struct ul_dataset *set, uint32_t count, struct ul_outcome *outcome)
{
    const struct ul_model *model = set->session->model;
    if (!ul_labels_are_classes(model, model->training->labels))
        outcome->weight += count;
    for (uint32_t i = 0; i < set->column_count; i++) {
        const struct ul_column *column = &set->columns[i];
        int status = read_column(set, column);
        if (status == UL_EXIT_OK && column->is_labels &&
            ul_labels_are_classes(model, column->input))
            status = check_labels(set, column, count, outcome);
        if (status != UL_EXIT_OK)
            return status;
    }
    outcome->sample_count += count;
    return UL_EXIT_OK;
}

/* The first of these samples that holds a number that is not finite; `count`: none does. */
static uint32_t find_bad(const struct ul_dataset *set, const struct ul_column *column,
                         uint32_t count)
{
    const struct ul_rt_tensor *tensor = input_of(set, column);
    const struct ul_type_info *info = ul_type_find(tensor->type);
    const unsigned char *bytes = ul_session_input(set->session, column->input);
    uint64_t elements = elements_of_sample(set, tensor);
    uint32_t bad = 0;
    if (info->kind != 'f')
        return count;
    while (bad < count &&
           ul_all_finite(tensor->type, bytes + bad * elements * info->bytes, elements))
        bad++;
    return bad;
}

int ul_dataset_blame(const struct ul_dataset *set, uint32_t count, char blame[UL_BLAME_BYTES])
{
    struct ul_outcome unused;
    char shown[UL_SHOWN_BYTES];
    memset(&unused, 0, sizeof unused);
    blame[0] = '\0';
    int status = ul_dataset_read(set, count, &unused);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < set->column_count; i++) {
        uint32_t bad = find_bad(set, &set->columns[i], count);
        if (bad == count)
            continue;
        snprintf(blame, UL_BLAME_BYTES, ", for sample %" PRIu64 " of %s is not finite",
                 set->samples[bad], ul_shown(shown, set->columns[i].reader.name));
        return UL_EXIT_OK;
    }
    return status;
}
