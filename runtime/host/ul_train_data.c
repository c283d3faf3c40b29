/*
 * Files of samples: .npy files whose first dimension counts the samples. They are untrusted: types,
 * shapes and lengths are checked when they are opened, labels before a step sees them. A batch is
 * read sample by sample, with one read for those that follow each other in the file.
 */
#define _XOPEN_SOURCE 700 /* pread */
#include "ul_train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 4096 /* of labels that are converted; a multiple of every element */

static const struct ul_rt_tensor *input_of(const struct ul_training_run *run,
                                           const struct ul_column *column)
{
    return &run->session->model->inputs[column->input];
}

static bool is_integer(enum ul_rt_type type)
{
    char kind = ul_type_find(type)->kind;
    return kind == 'i' || kind == 'u';
}

/* The type of the file's elements, where it serves: the input's, or of labels any integer type. */
static bool find_type(const struct ul_training_run *run, const struct ul_npy *header,
                      struct ul_column *column)
{
    static const enum ul_rt_type integers[] = {UL_TYPE_I64, UL_TYPE_I32, UL_TYPE_I16, UL_TYPE_I8,
                                               UL_TYPE_U64, UL_TYPE_U32, UL_TYPE_U16, UL_TYPE_U8};
    enum ul_rt_type wanted = input_of(run, column)->type;
    column->type = wanted;
    if (ul_npy_holds(header, wanted))
        return true;
    bool converts = column->input == run->training->labels && is_integer(wanted);
    for (size_t i = 0; converts && i < sizeof integers / sizeof *integers; i++) {
        column->type = integers[i];
        if (ul_npy_holds(header, integers[i]))
            return true;
    }
    return false;
}

static int check_shape(const struct ul_training_run *run, const struct ul_column *column,
                       const struct ul_npy *header)
{
    const struct ul_session *s = run->session;
    const struct ul_rt_tensor *tensor = input_of(run, column);
    char file[UL_SHOWN_BYTES], name[UL_SHOWN_BYTES];
    char want[UL_SHAPE_TEXT_BYTES], got[UL_SHAPE_TEXT_BYTES];
    bool same = header->rank == tensor->rank && tensor->rank > 0;
    for (uint32_t i = 1; same && i < tensor->rank; i++)
        same = header->dims[i] == tensor->dims[i];
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

/* Length against shape; the reader is behind the header. */
static int check_length(const struct ul_training_run *run, struct ul_column *column,
                        const struct ul_npy *header)
{
    char shown[UL_SHOWN_BYTES];
    const struct ul_rt_tensor *tensor = input_of(run, column);
    uint64_t left_bytes = column->reader.left_bytes;
    uint32_t element_bytes = ul_type_find(column->type)->bytes;
    column->sample_count = (uint64_t)header->dims[0];
    column->sample_bytes = tensor->size_bytes / ul_type_find(tensor->type)->bytes * element_bytes /
                           (uint64_t)tensor->dims[0];
    if (column->sample_bytes != 0 && column->sample_count > left_bytes / column->sample_bytes)
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s: is cut short: it has room for %" PRIu64 " samples of %" PRIu64
                        " bytes, its header says %" PRIu64,
                        ul_shown(shown, column->reader.name), left_bytes / column->sample_bytes,
                        column->sample_bytes, column->sample_count);
    return UL_EXIT_OK;
}

static int read_head(const struct ul_training_run *run, struct ul_column *column)
{
    const struct ul_session *s = run->session;
    const struct ul_rt_tensor *tensor = input_of(run, column);
    char file[UL_SHOWN_BYTES], name[UL_SHOWN_BYTES], type[UL_SHOWN_BYTES];
    struct ul_npy header;
    uint64_t total_bytes = column->reader.left_bytes;
    if (total_bytes == UINT64_MAX)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "%s: samples are read from any place, so they need a regular file",
                        ul_shown(file, column->reader.name));
    int status = ul_npy_read_header(s, &column->reader, &header);
    if (status != UL_EXIT_OK)
        return status;
    if (!find_type(run, &header, column))
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: input '%s' needs %s, this file holds %s; save it with "
                        "numpy.save(file, a.astype('%s'))",
                        ul_shown(file, column->reader.name), ul_shown(name, tensor->name),
                        ul_type_find(tensor->type)->name, ul_npy_type_name(&header, type),
                        ul_type_find(tensor->type)->name);
    column->offset_bytes = total_bytes - column->reader.left_bytes;
    column->swapped = ul_npy_is_swapped(&header);
    status = check_shape(run, column, &header);
    return status == UL_EXIT_OK ? check_length(run, column, &header) : status;
}

static int open_column(struct ul_training_run *run, uint32_t input, const char *path)
{
    struct ul_column *column = &run->columns[run->column_count];
    memset(column, 0, sizeof *column);
    column->input = input;
    int status = ul_reader_open(run->session, &column->reader, path);
    if (status != UL_EXIT_OK)
        return status;
    run->column_count++;
    status = read_head(run, column);
    if (status != UL_EXIT_OK || column->sample_count == run->columns[0].sample_count)
        return status;
    char a[UL_SHOWN_BYTES], b[UL_SHOWN_BYTES];
    return ul_error(run->session, UL_EXIT_INVALID,
                    "%s holds %" PRIu64 " samples and %s holds %" PRIu64 "; they must be as many",
                    ul_shown(a, run->columns[0].reader.name), run->columns[0].sample_count,
                    ul_shown(b, path), column->sample_count);
}

static const char *find_path(const struct ul_training_run *run, uint32_t input)
{
    const struct ul_run_options *options = run->session->options;
    if (input == run->training->data)
        return options->train.data;
    if (input == run->training->labels)
        return options->train.labels;
    for (uint32_t i = 0; i < options->input_count; i++)
        if (options->inputs[i].tensor == input)
            return options->inputs[i].file;
    return NULL;
}

/* --input is for the other ones. */
static int check_given(const struct ul_training_run *run)
{
    const struct ul_session *s = run->session;
    for (uint32_t i = 0; i < s->options->input_count; i++) {
        uint32_t input = s->options->inputs[i].tensor;
        char shown[UL_SHOWN_BYTES];
        const char *remedy = input == run->training->data     ? "give it by --data"
                             : input == run->training->labels ? "give it by --labels"
                             : input == run->training->step   ? "training makes it"
                                                              : NULL;
        if (remedy != NULL)
            return ul_error(s, UL_EXIT_USAGE, "--input %s: %s",
                            ul_shown(shown, s->model->inputs[input].name), remedy);
    }
    return UL_EXIT_OK;
}

int ul_columns_open(struct ul_training_run *run)
{
    const struct ul_model *model = run->session->model;
    char shown[UL_SHOWN_BYTES];
    int status = check_given(run);
    uint32_t batch = run->training->sample_count;
    run->columns = calloc(model->input_count + 1, sizeof *run->columns);
    run->samples = calloc(batch + 1, sizeof *run->samples);
    if (run->columns == NULL || run->samples == NULL)
        return ul_out_of_memory(run->session, (model->input_count + 1) * sizeof *run->columns +
                                                  (batch + 1) * sizeof *run->samples);
    if (status == UL_EXIT_OK) /* first: it says how many samples there are */
        status = open_column(run, run->training->data, run->session->options->train.data);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < model->input_count; i++) {
        if (i == run->training->data || i == run->training->step)
            continue;
        const char *path = find_path(run, i);
        if (path == NULL)
            return ul_error(run->session, UL_EXIT_USAGE,
                            "the input '%s' has no samples: give --input %s=FILE.npy",
                            ul_shown(shown, model->inputs[i].name), shown);
        status = open_column(run, i, path);
    }
    run->sample_count = run->columns[0].sample_count;
    if (status == UL_EXIT_OK && run->sample_count < run->batch_samples)
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s holds %" PRIu64 " samples, fewer than the %" PRIu64 " of one batch",
                        ul_shown(shown, run->columns[0].reader.name), run->sample_count,
                        run->batch_samples);
    return status;
}

void ul_columns_close(struct ul_training_run *run)
{
    for (uint32_t i = 0; i < run->column_count; i++)
        ul_reader_close(&run->columns[i].reader);
    free(run->columns);
    free(run->samples);
    run->columns = NULL;
    run->samples = NULL;
    run->column_count = 0;
}

static int read_at(const struct ul_training_run *run, const struct ul_column *column,
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
            return ul_error(run->session, UL_EXIT_IO, "cannot read %s: %s",
                            ul_shown(shown, column->reader.name),
                            got < 0 ? strerror(errno) : "it became shorter");
        bytes += got;
        offset_bytes += (uint64_t)got;
        size_bytes -= (uint64_t)got;
    }
    return UL_EXIT_OK;
}

static int bad_label(const struct ul_training_run *run, const struct ul_column *column,
                     uint64_t sample, int64_t label)
{
    char shown[UL_SHOWN_BYTES];
    uint32_t count = run->training->class_count;
    ul_shown(shown, column->reader.name);
    if (count == 0)
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s: the label %" PRId64 " of sample %" PRIu64 " is no %s", shown, label,
                        sample, ul_type_find(input_of(run, column)->type)->name);
    return ul_error(run->session, UL_EXIT_INVALID,
                    "%s: the label %" PRId64 " of sample %" PRIu64 " is no class: valid are 0 to "
                    "%" PRIu32 ", and %" PRId64 " for what is ignored",
                    shown, label, sample, count - 1, run->training->ignore_index);
}

/* Samples that follow each other in the file, as they are. */
static int read_plain(const struct ul_training_run *run, const struct ul_column *column,
                      uint64_t sample, uint64_t count, unsigned char *target)
{
    uint64_t size_bytes = count * column->sample_bytes;
    int status = read_at(run, column, column->offset_bytes + sample * column->sample_bytes, target,
                         size_bytes);
    if (status == UL_EXIT_OK && column->swapped)
        ul_run_swap(target, size_bytes, ul_type_find(column->type)->bytes);
    return status;
}

/* One sample of labels of another integer type. */
static int read_converted(const struct ul_training_run *run, const struct ul_column *column,
                          uint64_t sample, unsigned char *target)
{
    unsigned char piece[PIECE_BYTES];
    enum ul_rt_type type = input_of(run, column)->type;
    uint32_t element_bytes = ul_type_find(column->type)->bytes;
    uint64_t begin = column->offset_bytes + sample * column->sample_bytes, done = 0;
    for (uint64_t at = 0; at < column->sample_bytes; at += sizeof piece) {
        uint64_t left = column->sample_bytes - at;
        uint64_t size = left < sizeof piece ? left : sizeof piece;
        int status = read_at(run, column, begin + at, piece, size);
        if (status != UL_EXIT_OK)
            return status;
        if (column->swapped)
            ul_run_swap(piece, size, element_bytes);
        for (uint64_t i = 0; i < size / element_bytes; i++) {
            int64_t label;
            if (!ul_integer_get(column->type, piece, i, &label) ||
                !ul_integer_put(type, target, done++, label))
                return bad_label(run, column, sample, label);
        }
    }
    return UL_EXIT_OK;
}

static int read_column(const struct ul_training_run *run, const struct ul_column *column)
{
    const struct ul_rt_tensor *tensor = input_of(run, column);
    unsigned char *target = ul_session_input(run->session, column->input);
    uint64_t planned_bytes = tensor->size_bytes / (uint64_t)tensor->dims[0];
    uint64_t count = run->training->sample_count, done = 0;
    int status = UL_EXIT_OK;
    while (status == UL_EXIT_OK && done < count) {
        uint64_t sample = run->samples[done], follow = 1;
        if (column->type != tensor->type) {
            status = read_converted(run, column, sample, target + done * planned_bytes);
        } else {
            while (done + follow < count && run->samples[done + follow] == sample + follow)
                follow++;
            status = read_plain(run, column, sample, follow, target + done * planned_bytes);
        }
        done += follow;
    }
    if (status == UL_EXIT_OK)
        ul_normalise(tensor, target);
    return status;
}

static int check_labels(const struct ul_training_run *run, const struct ul_column *column,
                        uint64_t *label_count)
{
    const struct ul_rt_tensor *tensor = input_of(run, column);
    const void *labels = ul_session_input(run->session, column->input);
    uint64_t count = ul_element_count(tensor->rank, tensor->dims);
    for (uint64_t i = 0; i < count; i++) {
        int64_t label;
        bool fits = ul_integer_get(tensor->type, labels, i, &label);
        if (fits && label == run->training->ignore_index)
            continue;
        if (!fits || label < 0 || label >= (int64_t)run->training->class_count)
            return bad_label(run, column, run->samples[i / (count / (uint64_t)tensor->dims[0])],
                             label);
        ++*label_count;
    }
    return UL_EXIT_OK;
}

int ul_columns_read(const struct ul_training_run *run, uint64_t epoch, uint64_t first,
                    uint64_t *label_count)
{
    for (uint32_t i = 0; i < run->training->sample_count; i++)
        run->samples[i] = run->shuffles ? ul_train_shuffled(run->trainer.seed, epoch,
                                                            run->sample_count, first + i)
                                        : first + i;
    for (uint32_t i = 0; i < run->column_count; i++) {
        const struct ul_column *column = &run->columns[i];
        int status = read_column(run, column);
        bool classes = column->input == run->training->labels && run->training->class_count != 0 &&
                       is_integer(input_of(run, column)->type);
        if (status == UL_EXIT_OK && classes)
            status = check_labels(run, column, label_count);
        if (status != UL_EXIT_OK)
            return status;
    }
    return UL_EXIT_OK;
}
