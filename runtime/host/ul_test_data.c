/* SPDX-License-Identifier: 0BSD */
/*
 * --test-data: ONNX's layout of recorded runs. A folder holds input_0.pb ... and output_0.pb ...;
 * a folder of test_data_set_* folders is run one by one.
 *
 * Files are matched to inputs and outputs by the name in the tensor. Where names do not match (some
 * published sets have none, or others), the numbers of the files count, if there are as many files
 * as inputs.
 *
 * Each float must satisfy |got - want| <= atol + rtol * |want|, with NaN equal to NaN and
 * infinities equal to themselves. Next to zero, where terms cancel, right programs miss that: two
 * orders of summing differ by the size of the terms, not of the sum. So with --norm an output is
 * also right when its norm error ||got - want|| / ||want|| is at most a limit, by what the program
 * stores, where that is f32 with no element further away than ten times that of the largest; NaN
 * and infinities must be in the same places all the same. Integers and bool must be equal, but
 * where a model quantizes: a sum in another order may lie on the other side of a rounding, which
 * makes a whole step. With --step-limit a share of integers of 8 and 16 bits may be that far away,
 * or --steps times as far where layers carry it on.
 */
#include "ul_internal.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define F32_LIMIT 1e-3
/* Room for sums in another order; and for what some dozens of roundings in a row to 11 or 8 bits
 * make. */
static double norm_limit(const struct ul_session *s, uint32_t output)
{
    const struct ul_model *model = s->model;
    const char *text = s->options->norm_limits;
    const char *comma = text == NULL ? NULL : strchr(text, ',');
    for (; output > 0 && comma != NULL; output--) {
        text = comma + 1;
        comma = strchr(text, ',');
    }
    if (text != NULL)
        return strtod(text, NULL);
    bool rounds = model->storage == UL_TYPE_F16 || model->tf32 != 0;
    return model->storage == UL_TYPE_BF16 ? 3e-2 : rounds ? 5e-3 : 1e-4;
}

struct totals {
    uint64_t set_count;
    uint64_t failed_count;
    uint64_t element_count;
    uint64_t outside_count;  /* elements beyond rtol and atol */
    uint64_t mismatch_count; /* those of outputs that are wrong by their norm as well */
    double max_abs;
    double max_rel;
    double max_norm;
};

enum verdict { WRONG, RIGHT, RIGHT_BY_NORM, RIGHT_BY_STEPS };

/* One output, compared with what it should be. */
struct comparison {
    uint64_t element_count;
    uint64_t outside_count;
    uint64_t first; /* the first of those */
    double max_abs;
    double max_rel;
    double max_want;
    double difference_squares;
    double want_squares;
    bool is_float;
    bool special_differs; /* a NaN or an infinity in only one of the two */
    enum verdict verdict;
};

/* What to do with one file: decode it as an input, or compare it as an output. */
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
    while (file_path(path, directory, kind, count))
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

static bool find_name(const struct ul_pb *pb, const struct ul_rt_tensor *tensors, uint32_t count,
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
    const struct ul_rt_tensor *tensors = inputs ? s->model->inputs : s->model->outputs;
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

static int learn_input(struct ul_session *s, const char *path, const struct ul_pb *pb,
                       uint32_t index, struct totals *totals)
{
    (void)totals;
    return ul_pb_decode(s, path, pb, "input", &s->model->inputs[index], NULL);
}

/* Compares one element. Returns whether it is within tolerance. */
static bool compare_float(const struct ul_run_options *options, double got, double want,
                          struct comparison *c)
{
    if (isfinite(want)) {
        c->want_squares += want * want;
        c->max_want = fmax(c->max_want, fabs(want));
    }
    if (got == want || (isnan(got) && isnan(want)))
        return true;
    if (!isfinite(got) || !isfinite(want)) {
        c->special_differs = true;
        c->max_abs = c->max_rel = HUGE_VAL;
        return false;
    }
    double difference = fabs(got - want);
    c->difference_squares += difference * difference;
    c->max_abs = fmax(c->max_abs, difference);
    if (want != 0.0)
        c->max_rel = fmax(c->max_rel, difference / fabs(want));
    return difference <= options->atol + options->rtol * fabs(want);
}

static bool compare_exactly(const struct ul_rt_tensor *tensor, const void *got, const void *want,
                            uint64_t element, struct comparison *c)
{
    char a[UL_SHOWN_BYTES], b[UL_SHOWN_BYTES];
    double x = ul_element_get(tensor->type, got, element);
    double y = ul_element_get(tensor->type, want, element);
    c->max_abs = fmax(c->max_abs, fabs(x - y));
    return strcmp(ul_element_text(a, tensor->type, got, element),
                  ul_element_text(b, tensor->type, want, element)) == 0;
}

static double norm_error(const struct comparison *c)
{
    if (c->special_differs)
        return HUGE_VAL;
    if (c->difference_squares == 0.0)
        return 0.0;
    return c->want_squares > 0.0 ? sqrt(c->difference_squares) / sqrt(c->want_squares) : HUGE_VAL;
}

/* Integers that stand for what was quantized; an index has more bits. */
static bool is_quantized(const struct ul_type_info *type)
{
    return (type->kind == 'i' || type->kind == 'u') && type->bytes <= 2;
}

/* Checks single elements and the norm together: the norm of many elements forgives one that is
   far away. Limits above F32_LIMIT are for fewer bits, where rounding to integers may make whole
   steps. */
static bool is_right_by_norm(const struct ul_session *s, uint32_t output,
                             const struct comparison *c)
{
    double limit = norm_limit(s, output);
    return norm_error(c) <= limit && (limit > F32_LIMIT || c->max_abs <= 10 * limit * c->max_want);
}

/* Some elements of the output are outside. */
static enum verdict judge(const struct ul_session *s, uint32_t output, const struct comparison *c)
{
    const struct ul_run_options *options = s->options;
    const struct ul_type_info *type = ul_type_find(s->model->outputs[output].type);
    double share = (double)c->outside_count / (double)c->element_count;
    if (c->is_float && options->norm && is_right_by_norm(s, output, c))
        return RIGHT_BY_NORM;
    bool is_near = c->max_abs <= (double)options->steps && share <= options->step_limit;
    return is_quantized(type) && is_near ? RIGHT_BY_STEPS : WRONG;
}

static struct comparison compare(const struct ul_session *s, uint32_t output, const void *got,
                                 const void *want)
{
    const struct ul_run_options *options = s->options;
    const struct ul_rt_tensor *tensor = &s->model->outputs[output];
    struct comparison c = {0};
    c.element_count = ul_element_count(tensor->rank, tensor->dims);
    c.is_float = ul_type_find(tensor->type)->kind == 'f';
    bool same = memcmp(got, want, (size_t)tensor->size_bytes) == 0;
    for (uint64_t i = 0; !same && i < c.element_count; i++) {
        bool good = c.is_float ? compare_float(options, ul_element_get(tensor->type, got, i),
                                               ul_element_get(tensor->type, want, i), &c)
                               : compare_exactly(tensor, got, want, i, &c);
        if (!good && c.outside_count++ == 0)
            c.first = i;
    }
    c.verdict = c.outside_count == 0 ? RIGHT : judge(s, output, &c);
    return c;
}

/* With all digits, so that two numbers that differ look different. */
static const char *element_digits(char buffer[UL_SHOWN_BYTES], enum ul_rt_type type,
                                  const void *data, uint64_t element)
{
    if (ul_type_find(type)->kind != 'f')
        return ul_element_text(buffer, type, data, element);
    snprintf(buffer, UL_SHOWN_BYTES, "%.*g", type == UL_TYPE_F64 ? 17 : 9,
             ul_element_get(type, data, element));
    return buffer;
}

static void report_difference(FILE *out, const struct ul_rt_tensor *tensor,
                              const struct comparison *c)
{
    const struct ul_type_info *type = ul_type_find(tensor->type);
    char name[UL_SHOWN_BYTES];
    fprintf(out, "  %s: ", ul_shown(name, tensor->name));
    if (is_quantized(type))
        fprintf(out, "largest difference %g step%s of %u", c->max_abs, c->max_abs == 1.0 ? "" : "s",
                (1u << type->bits) - 1);
    else
        fprintf(out, "max abs error %g", c->max_abs);
    if (c->is_float)
        fprintf(out, ", max rel error %g, norm error %g", c->max_rel, norm_error(c));
}

static void report_compared(const struct ul_session *s, const struct ul_rt_tensor *tensor,
                            const struct comparison *c, const void *got, const void *want)
{
    char a[UL_SHOWN_BYTES], b[UL_SHOWN_BYTES];
    bool json_alone = s->options->json != NULL && strcmp(s->options->json, "-") == 0;
    FILE *out = json_alone ? stderr : stdout;
    report_difference(out, tensor, c);
    if (c->verdict == RIGHT) {
        fputs(": ok\n", out);
        return;
    }
    const char *before = c->verdict == WRONG           ? "MISMATCH in "
                         : c->verdict == RIGHT_BY_NORM ? "ok by norm; "
                                                       : "ok by steps; ";
    const char *after = c->verdict == WRONG           ? ""
                        : c->verdict == RIGHT_BY_NORM ? " beyond rtol and atol"
                        : c->max_abs <= 1.0           ? " one step away"
                                                      : " steps away";
    fprintf(out, ": %s%" PRIu64 " of %" PRIu64 " elements%s", before, c->outside_count,
            c->element_count, after);
    fprintf(out, ", first [%" PRIu64 "]: got %s, want %s\n", c->first,
            element_digits(a, tensor->type, got, c->first),
            element_digits(b, tensor->type, want, c->first));
}

static int compare_output(struct ul_session *s, const char *path, const struct ul_pb *pb,
                          uint32_t index, struct totals *totals)
{
    const struct ul_rt_tensor *tensor = &s->model->outputs[index];
    const void *got = ul_session_output(s, index);
    void *want = malloc((size_t)tensor->size_bytes + 1);
    if (want == NULL)
        return ul_out_of_memory(s, tensor->size_bytes);
    int status = ul_pb_decode(s, path, pb, "output", tensor, want);
    if (status == UL_EXIT_OK) {
        struct comparison c = compare(s, index, got, want);
        report_compared(s, tensor, &c, got, want);
        totals->element_count += c.element_count;
        totals->outside_count += c.outside_count;
        totals->mismatch_count += c.verdict == WRONG ? c.outside_count : 0;
        totals->max_abs = fmax(totals->max_abs, c.max_abs);
        totals->max_rel = fmax(totals->max_rel, c.max_rel);
        totals->max_norm = fmax(totals->max_norm, c.is_float ? norm_error(&c) : 0.0);
    }
    free(want);
    return status == UL_EXIT_INVALID ? UL_EXIT_VERIFY : status;
}

/* Whether the names in the files cover all tensors of the kind. A model may list an output twice,
 * and have a file for each. */
static int names_match(struct ul_session *s, const char *directory, const char *kind,
                       uint32_t wanted, bool *match)
{
    uint32_t found;
    int status = use_files(s, directory, kind, true, count_only, NULL, &found);
    uint32_t files = count_files(directory, kind);
    char shown[UL_SHOWN_BYTES];
    bool is_twice = found > wanted && found == files && strcmp(kind, "output") == 0;
    *match = found == wanted || is_twice;
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
    int status = totals->set_count > 0 ? ul_session_renew(s) : UL_EXIT_OK;
    ul_sizes_forget(s);
    if (status == UL_EXIT_OK)
        status = names_match(s, directory, "input", s->model->input_count, &by_name);
    if (status == UL_EXIT_OK && s->sizes != NULL)
        status = use_files(s, directory, "input", by_name, learn_input, totals, &used);
    ul_sizes_settle(s);
    if (status == UL_EXIT_OK)
        status = use_files(s, directory, "input", by_name, decode_input, totals, &used);
    if (status == UL_EXIT_OK)
        status = ul_session_set_up(s);
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
    ul_json_count(json, "elements_beyond_tolerance", totals->outside_count);
    ul_json_count(json, "mismatches", totals->mismatch_count);
    ul_json_number(json, "max_abs_error", totals->max_abs);
    ul_json_number(json, "max_rel_error", totals->max_rel);
    ul_json_number(json, "max_norm_error", totals->max_norm);
}

int ul_test_data(struct ul_session *s)
{
    struct totals totals = {0};
    const char *directory = s->options->test_data;
    char norm[256] = "";
    bool single = count_files(directory, "output") != 0 || count_files(directory, "input") != 0;
    int status = single ? run_named(s, directory, &totals) : run_sets(s, directory, &totals);
    if (status == UL_EXIT_OK && s->options->json != NULL)
        status = ul_json_write(s, s->options->json, write_json, &totals);
    if (status != UL_EXIT_OK || totals.failed_count == 0)
        return status;
    if (s->options->norm_limits != NULL)
        snprintf(norm, sizeof norm, "; norm error %s", s->options->norm_limits);
    else if (s->options->norm)
        snprintf(norm, sizeof norm, "; norm error %g", norm_limit(s, 0));
    return ul_error(
        s, UL_EXIT_VERIFY, "%" PRIu64 " of %" PRIu64 " test data sets differ (rtol %g, atol %g%s)",
        totals.failed_count, totals.set_count, s->options->rtol, s->options->atol, norm);
}
