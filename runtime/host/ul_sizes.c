/* SPDX-License-Identifier: 0BSD */
/* The sizes of a run of a model for a range of sizes: what inputs from files have, or what --size
 * says. */
#include "ul_internal.h"

#include "ul_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ul_sizes {
    const struct ul_model *largest; /* the description that was compiled */
    struct ul_model at;             /* the one at `sizes` */
    int64_t *sizes;
    const char **sayers; /* by size: the input or option that says it; NULL: nobody */
    bool is_settled;
    int64_t *numbers;
    struct ul_rt_tensor *tensors;
};

static void describe(struct ul_sizes *sizes)
{
    ul_model_at(sizes->largest, sizes->sizes, sizes->tensors, sizes->numbers, NULL, &sizes->at);
}

/* The values of a size: "1 to 8 by 1", or "1, 2, 4". */
static const char *range_text(char text[UL_SHOWN_BYTES], const struct ul_size *size)
{
    size_t used = 0;
    if (size->value_count == 0)
        snprintf(text, UL_SHOWN_BYTES, "%" PRId64 " to %" PRId64 " by %" PRId64, size->low,
                 size->high, size->step);
    for (uint32_t v = 0; v < size->value_count && used < UL_SHOWN_BYTES; v++)
        used += (size_t)snprintf(text + used, UL_SHOWN_BYTES - used, "%s%" PRId64,
                                 v == 0 ? "" : ", ", size->values[v]);
    return text;
}

/* `where`: the file, or the option; it need not last. */
static int say(const struct ul_session *s, uint32_t number, int64_t value, const char *where,
               const char *sayer)
{
    struct ul_sizes *sizes = s->sizes;
    const struct ul_size *size = &sizes->largest->sizes[number];
    char shown[UL_SHOWN_BYTES], name[UL_SHOWN_BYTES], other[UL_SHOWN_BYTES];
    char range[UL_SHOWN_BYTES];
    ul_shown(shown, where);
    ul_shown(name, size->name);
    if (!ul_size_has(size, value))
        return ul_error(s, UL_EXIT_INVALID, "%s: size %s is %" PRId64 ", and the program is for %s",
                        shown, name, value, range_text(range, size));
    if (sizes->sayers[number] != NULL && sizes->sizes[number] != value)
        return ul_error(s, UL_EXIT_INVALID, "%s: size %s is %" PRId64 ", but %" PRId64 " by %s",
                        shown, name, value, sizes->sizes[number],
                        ul_shown(other, sizes->sayers[number]));
    sizes->sayers[number] = sayer;
    sizes->sizes[number] = value;
    return UL_EXIT_OK;
}

/* Takes "NAME=N" from an option. */
static int say_option(const struct ul_session *s, const char *text)
{
    const struct ul_model *model = s->sizes->largest;
    const char *equals = strrchr(text, '=');
    char shown[UL_SHOWN_BYTES], *end = NULL;
    errno = 0;
    long long value = equals != NULL ? strtoll(equals + 1, &end, 10) : 0;
    if (equals == NULL || end == equals + 1 || *end != '\0' || errno != 0)
        return ul_error(s, UL_EXIT_USAGE, "--size takes NAME=N, not '%s'", ul_shown(shown, text));
    for (uint32_t i = 0; i < model->size_count; i++)
        if (strncmp(model->sizes[i].name, text, (size_t)(equals - text)) == 0 &&
            model->sizes[i].name[equals - text] == '\0')
            return say(s, i, value, "--size", "--size");
    return ul_error(s, UL_EXIT_USAGE, "--size %s: the program has no size of that name",
                    ul_shown(shown, text));
}

static int say_options(const struct ul_session *s)
{
    int status = UL_EXIT_OK;
    for (uint32_t i = 0; status == UL_EXIT_OK && i < s->options->size_count; i++)
        status = say_option(s, s->options->sizes[i]);
    return status;
}

static int allocate(struct ul_session *s)
{
    const struct ul_model *model = s->model;
    uint32_t tensors = model->input_count + model->output_count;
    struct ul_sizes *sizes = calloc(1, sizeof *sizes);
    s->sizes = sizes;
    if (sizes == NULL)
        return ul_out_of_memory(s, sizeof *sizes);
    sizes->largest = model;
    sizes->sizes = calloc(model->size_count, sizeof *sizes->sizes);
    sizes->sayers = calloc(model->size_count, sizeof *sizes->sayers);
    sizes->numbers = calloc(model->edge_number_count + 1, sizeof *sizes->numbers);
    sizes->tensors = calloc(tensors + 1, sizeof *sizes->tensors);
    bool good = sizes->sizes != NULL && sizes->sayers != NULL && sizes->numbers != NULL &&
                sizes->tensors != NULL;
    return good ? UL_EXIT_OK : ul_out_of_memory(s, tensors * sizeof *sizes->tensors);
}

int ul_sizes_open(struct ul_session *s)
{
    if (s->model->size_count == 0)
        return UL_EXIT_OK;
    int status = allocate(s);
    if (status != UL_EXIT_OK)
        return status;
    for (uint32_t i = 0; i < s->model->size_count; i++)
        s->sizes->sizes[i] = s->model->sizes[i].high;
    s->model = &s->sizes->at;
    status = say_options(s);
    describe(s->sizes);
    return status;
}

void ul_sizes_close(struct ul_session *s)
{
    if (s->sizes == NULL)
        return;
    s->model = s->sizes->largest;
    free(s->sizes->sizes);
    free((void *)s->sizes->sayers);
    free(s->sizes->numbers);
    free(s->sizes->tensors);
    free(s->sizes);
    s->sizes = NULL;
}

const struct ul_model *ul_sizes_model(const struct ul_session *s)
{
    return s->sizes != NULL ? s->sizes->largest : s->model;
}

void ul_sizes_settle(struct ul_session *s)
{
    if (s->sizes != NULL)
        s->sizes->is_settled = true;
}

void ul_sizes_forget(struct ul_session *s)
{
    if (s->sizes != NULL)
        s->sizes->is_settled = false;
    for (uint32_t i = 0; s->sizes != NULL && i < s->sizes->largest->size_count; i++)
        s->sizes->sayers[i] = NULL;
    if (s->sizes != NULL)
        (void)say_options(s); /* which were right before */
}

bool ul_sizes_are_largest(const struct ul_session *s)
{
    for (uint32_t i = 0; s->sizes != NULL && i < s->sizes->largest->size_count; i++)
        if (s->sizes->sizes[i] != s->sizes->at.sizes[i].high)
            return false;
    return true;
}

/* The first dimension of an input among those of all inputs. */
static uint32_t first_dim(const struct ul_model *model, uint32_t input)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < input; i++)
        first += model->inputs[i].rank;
    return first;
}

int ul_sizes_learn(const struct ul_session *s, const char *file, const struct ul_rt_tensor *tensor,
                   uint32_t rank, const int64_t *dims)
{
    struct ul_sizes *sizes = s->sizes;
    int status = UL_EXIT_OK;
    uint32_t input = 0;
    while (sizes != NULL && input < sizes->largest->input_count && &sizes->tensors[input] != tensor)
        input++;
    if (sizes == NULL || input == sizes->largest->input_count || rank != tensor->rank)
        return UL_EXIT_OK;
    const uint32_t *numbers = sizes->largest->input_sizes + first_dim(sizes->largest, input);
    for (uint32_t d = 0; status == UL_EXIT_OK && d < rank; d++)
        if (numbers[d] != UL_SIZE_NONE)
            status = say(s, numbers[d], dims[d], file, tensor->name);
    uint32_t first_entry = sizes->at.first_entry;
    describe(sizes);
    if (status != UL_EXIT_OK || !sizes->is_settled || sizes->at.first_entry == first_entry)
        return status;
    char shown[UL_SHOWN_BYTES];
    return ul_error(s, UL_EXIT_USAGE,
                    "%s: sizes must be known before a pipe is read: give them by --size, or give a "
                    "file",
                    ul_shown(shown, file));
}
