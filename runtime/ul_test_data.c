/*
 * --test-data: ONNX's layout of recorded runs. A folder holds input_0.pb ... and output_0.pb ...;
 * a folder of test_data_set_* folders is run one by one.
 *
 * Files are matched to inputs and outputs by the name in the tensor. Where names do not match (some
 * published sets have none, or others), the numbers of the files count, if there are as many files
 * as inputs. Floats must satisfy |got - want| <= atol + rtol * |want|, with NaN equal to NaN;
 * integers and bool must be equal.
 */
#include "ul_internal.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT 100000

struct totals {
    uint64_t set_count;
    uint64_t failed_count;
    uint64_t element_count;
    uint64_t mismatch_count;
    double max_abs;
    double max_rel;
};

/* What is done with one file: decode it as an input, or compare it as an output. */
typedef int use_file(struct ul_session *s, const char *path, const struct ul_pb *pb, uint32_t index,
                     struct totals *totals);

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool file_path(char path[UL_PATH_BYTES], const char *directory, const char *kind,
                      uint32_t number)
{
    struct stat status;
    return snprintf(path, UL_PATH_BYTES, "%s/%s_%" PRIu32 ".pb", directory, kind, number) <
               UL_PATH_BYTES &&
           stat(path, &status) == 0;
}

static uint32_t count_files(const char *directory, const char *kind)
{
    char path[UL_PATH_BYTES];
    uint32_t count = 0;
    while (count < FILE_LIMIT && file_path(path, directory, kind, count))
        count++;
    return count;
}

static int load(const struct ul_session *s, const char *path, unsigned char **bytes,
                struct ul_pb *pb)
{
    struct ul_reader reader;
    uint64_t size_bytes;
    int status = ul_reader_open(s, &reader, path);
    *bytes = NULL;
    if (status != UL_EXIT_OK)
        return status;
    status = ul_reader_all(s, &reader, bytes, &size_bytes);
    if (status == UL_EXIT_OK)
        status = ul_pb_parse(s, path, *bytes, size_bytes, pb);
    ul_reader_close(&reader);
    return status;
}

static bool find_name(const struct ul_pb *pb, const struct ul_tensor *tensors, uint32_t count,
                      uint32_t *index)
{
    for (uint32_t i = 0; i < count; i++)
        if (strlen(tensors[i].name) == pb->name_bytes && pb->name_bytes != 0 &&
            memcmp(tensors[i].name, pb->name, (size_t)pb->name_bytes) == 0) {
            *index = i;
            return true;
        }
    return false;
}

/* Uses every file of a kind, by name or by number; *used_count of them found their tensor. */
static int use_files(struct ul_session *s, const char *directory, const char *kind, bool by_name,
                     use_file *use, struct totals *totals, uint32_t *used_count)
{
    bool inputs = strcmp(kind, "input") == 0;
    const struct ul_tensor *tensors = inputs ? s->model->inputs : s->model->outputs;
    uint32_t count = inputs ? s->model->input_count : s->model->output_count;
    char path[UL_PATH_BYTES];
    int status = UL_EXIT_OK;
    *used_count = 0;
    for (uint32_t i = 0; status == UL_EXIT_OK && file_path(path, directory, kind, i); i++) {
        unsigned char *bytes;
        struct ul_pb pb;
        uint32_t index = i;
        status = load(s, path, &bytes, &pb);
        bool found = status == UL_EXIT_OK &&
                     (by_name ? find_name(&pb, tensors, count, &index) : index < count);
        if (found) {
            status = use(s, path, &pb, index, totals);
            ++*used_count;
        }
        free(bytes);
    }
    return status;
}

static int count_only(struct ul_session *s, const char *path, const struct ul_pb *pb,
                      uint32_t index, struct totals *totals)
{
    (void)s, (void)path, (void)pb, (void)index, (void)totals;
    return UL_EXIT_OK;
}

static int decode_input(struct ul_session *s, const char *path, const struct ul_pb *pb,
                        uint32_t index, struct totals *totals)
{
    (void)totals;
    return ul_pb_decode(s, path, pb, "input", &s->model->inputs[index], ul_session_input(s, index));
}

/* One element. Returns whether it is within tolerance. */
static bool compare_element(const struct ul_options *options, double got, double want,
                            struct totals *totals)
{
    if (got == want || (isnan(got) && isnan(want)))
        return true;
    double difference = fabs(got - want);
    double relative = want != 0.0 ? difference / fabs(want) : HUGE_VAL;
    if (isnan(difference) || isinf(got) || isinf(want))
        difference = relative = HUGE_VAL;
    totals->max_abs = fmax(totals->max_abs, difference);
    if (want != 0.0)
        totals->max_rel = fmax(totals->max_rel, relative);
    return !isinf(difference) && difference <= options->atol + options->rtol * fabs(want);
}

/* Compares all elements; the number of those that differ too much, the first one's index. */
static uint64_t compare(const struct ul_options *options, const struct ul_tensor *tensor,
                        const void *got, const void *want, struct totals *totals, uint64_t *first)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    uint64_t count = ul_element_count(tensor->rank, tensor->dims);
    uint64_t mismatch_count = 0;
    bool same = memcmp(got, want, (size_t)tensor->size_bytes) == 0;
    for (uint64_t i = 0; !same && i < count; i++) {
        char a[UL_SHOWN_BYTES], b[UL_SHOWN_BYTES];
        double x = ul_element_get(tensor->type, got, i), y = ul_element_get(tensor->type, want, i);
        bool good = info->kind == 'f' ? compare_element(options, x, y, totals)
                                      : strcmp(ul_element_text(a, tensor->type, got, i),
                                               ul_element_text(b, tensor->type, want, i)) == 0;
        if (info->kind != 'f' && !good)
            totals->max_abs = fmax(totals->max_abs, fabs(x - y));
        if (!good && mismatch_count++ == 0)
            *first = i;
    }
    totals->element_count += count;
    totals->mismatch_count += mismatch_count;
    return mismatch_count;
}

static void say_compared(const struct ul_session *s, const struct ul_tensor *tensor,
                         const struct totals *one, const void *got, const void *want,
                         uint64_t first)
{
    char name[UL_SHOWN_BYTES], a[UL_SHOWN_BYTES], b[UL_SHOWN_BYTES];
    bool json_alone = s->options->json != NULL && strcmp(s->options->json, "-") == 0;
    FILE *out = json_alone ? stderr : stdout;
    fprintf(out, "  %s: max abs error %g, max rel error %g", ul_shown(name, tensor->name),
            one->max_abs, one->max_rel);
    if (one->mismatch_count == 0) {
        fputs(": ok\n", out);
        return;
    }
    fprintf(out,
            ": MISMATCH in %" PRIu64 " of %" PRIu64 " elements, first [%" PRIu64
            "]: got %s, want %s\n",
            one->mismatch_count, one->element_count, first,
            ul_element_text(a, tensor->type, got, first),
            ul_element_text(b, tensor->type, want, first));
}

static int compare_output(struct ul_session *s, const char *path, const struct ul_pb *pb,
                          uint32_t index, struct totals *totals)
{
    const struct ul_tensor *tensor = &s->model->outputs[index];
    const void *got = ul_session_output(s, index);
    struct totals one = {0};
    uint64_t first = 0;
    void *want = malloc((size_t)tensor->size_bytes + 1);
    if (want == NULL)
        return ul_out_of_memory(s, tensor->size_bytes);
    int status = ul_pb_decode(s, path, pb, "output", tensor, want);
    if (status == UL_EXIT_OK) {
        compare(s->options, tensor, got, want, &one, &first);
        say_compared(s, tensor, &one, got, want, first);
        totals->element_count += one.element_count;
        totals->mismatch_count += one.mismatch_count;
        totals->max_abs = fmax(totals->max_abs, one.max_abs);
        totals->max_rel = fmax(totals->max_rel, one.max_rel);
    }
    free(want);
    return status == UL_EXIT_INVALID ? UL_EXIT_VERIFY : status;
}

/* Do the names in the files cover all tensors of the kind? */
static int names_match(struct ul_session *s, const char *directory, const char *kind,
                       uint32_t wanted, bool *match)
{
    uint32_t found;
    int status = use_files(s, directory, kind, true, count_only, NULL, &found);
    uint32_t files = count_files(directory, kind);
    char shown[UL_SHOWN_BYTES];
    *match = found == wanted;
    if (status == UL_EXIT_OK && !*match && files != wanted)
        return ul_error(s, UL_EXIT_INVALID,
                        "%s has %" PRIu32 " files %s_*.pb, of which %" PRIu32
                        " bear a name of the model; it has %" PRIu32,
                        ul_shown(shown, directory), files, kind, found, wanted);
    return status;
}

static int run_set(struct ul_session *s, const char *directory, struct totals *totals)
{
    bool by_name;
    uint32_t used;
    int status = names_match(s, directory, "input", s->model->input_count, &by_name);
    if (status == UL_EXIT_OK)
        status = use_files(s, directory, "input", by_name, decode_input, totals, &used);
    if (status == UL_EXIT_OK)
        status = ul_session_run(s, NULL, NULL);
    if (status == UL_EXIT_OK)
        status = names_match(s, directory, "output", s->model->output_count, &by_name);
    if (status == UL_EXIT_OK)
        status = use_files(s, directory, "output", by_name, compare_output, totals, &used);
    return status;
}

/* A set that cannot be read ends everything; one that differs is counted. */
static int run_named(struct ul_session *s, const char *directory, struct totals *totals)
{
    char shown[UL_SHOWN_BYTES];
    bool json_alone = s->options->json != NULL && strcmp(s->options->json, "-") == 0;
    uint64_t mismatches = totals->mismatch_count;
    fprintf(json_alone ? stderr : stdout, "%s\n", ul_shown(shown, directory));
    int status = run_set(s, directory, totals);
    totals->set_count++;
    if (status == UL_EXIT_VERIFY || totals->mismatch_count != mismatches)
        totals->failed_count++;
    return status == UL_EXIT_VERIFY ? UL_EXIT_OK : status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The test_data_set_* folders of `directory`, sorted. The caller frees each and the list. */
static int list_sets(const struct ul_session *s, const char *directory, char ***names,
                     size_t *count)
{
    DIR *folder = opendir(directory);
    char shown[UL_SHOWN_BYTES];
    struct dirent *entry;
    size_t room = 0;
    if (folder == NULL)
        return ul_error(s, UL_EXIT_IO, "cannot open the directory %s", ul_shown(shown, directory));
    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, "test_data_set_", 14) != 0)
            continue;
        if (*count == room) {
            room = room * 2 + 16;
            char **grown = realloc(*names, room * sizeof **names);
            if (grown == NULL)
                break;
            *names = grown;
        }
        (*names)[*count] = strdup(entry->d_name);
        if ((*names)[*count] == NULL)
            break;
        ++*count;
    }
    closedir(folder);
    if (entry != NULL)
        return ul_out_of_memory(s, room * sizeof **names);
    if (*count != 0)
        qsort(*names, *count, sizeof **names, compare_names);
    return UL_EXIT_OK;
}

static int run_sets(struct ul_session *s, const char *directory, struct totals *totals)
{
    char **names = NULL;
    size_t count = 0;
    char path[UL_PATH_BYTES], shown[UL_SHOWN_BYTES];
    int status = list_sets(s, directory, &names, &count);
    if (status == UL_EXIT_OK && count == 0)
        status = ul_error(s, UL_EXIT_IO, "%s holds neither output_0.pb nor test_data_set_* folders",
                          ul_shown(shown, directory));
    for (size_t i = 0; i < count; i++) {
        bool fits = snprintf(path, sizeof path, "%s/%s", directory, names[i]) < (int)sizeof path;
        if (status == UL_EXIT_OK && fits && is_directory(path))
            status = run_named(s, path, totals);
        free(names[i]);
    }
    free(names);
    return status;
}

static void write_json(struct ul_json *json, const void *context)
{
    const struct totals *totals = context;
    ul_json_count(json, "sets", totals->set_count);
    ul_json_count(json, "failed_sets", totals->failed_count);
    ul_json_count(json, "elements", totals->element_count);
    ul_json_count(json, "mismatches", totals->mismatch_count);
    ul_json_number(json, "max_abs_error", totals->max_abs);
    ul_json_number(json, "max_rel_error", totals->max_rel);
}

int ul_test_data(struct ul_session *s)
{
    struct totals totals = {0};
    const char *directory = s->options->test_data;
    bool single = count_files(directory, "output") != 0 || count_files(directory, "input") != 0;
    int status = single ? run_named(s, directory, &totals) : run_sets(s, directory, &totals);
    if (status == UL_EXIT_OK && s->options->json != NULL)
        status = ul_json_write(s, s->options->json, write_json, &totals);
    if (status != UL_EXIT_OK || totals.failed_count == 0)
        return status;
    return ul_error(s, UL_EXIT_VERIFY,
                    "%" PRIu64 " of %" PRIu64 " test data sets differ (rtol %g, atol %g)",
                    totals.failed_count, totals.set_count, s->options->rtol, s->options->atol);
}
