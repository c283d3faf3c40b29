/* SPDX-License-Identifier: 0BSD */
/* A short look at the outputs: small ones as a whole; for larger ones the range, and the largest
   values of each row, which are the answer of a classifier. */
#include "ul_internal.h"

#include <inttypes.h>
#include <math.h>

#define WHOLE_LIMIT 16 /* elements */
#define ROW_LIMIT 8
#define TOP_LIMIT 5

/* Position among `count` elements of the largest one that is smaller than (value, position) before,
   in an order that puts equal values by position. -1: there is none. */
static int64_t next_largest(enum ul_rt_type type, const void *data, uint64_t begin, uint64_t count,
                            double before, int64_t before_at)
{
    int64_t best = -1;
    double best_value = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        double value = ul_element_get(type, data, begin + i);
        bool open = before_at < 0 || value < before || (value == before && (int64_t)i > before_at);
        if (!isnan(value) && open && (best < 0 || value > best_value)) {
            best = (int64_t)i;
            best_value = value;
        }
    }
    return best;
}

static void print_row(FILE *out, const struct ul_rt_tensor *tensor, const void *data, uint64_t row,
                      uint64_t width)
{
    char text[UL_SHOWN_BYTES];
    int64_t at = -1;
    double value = 0.0;
    if (next_largest(tensor->type, data, row * width, width, value, at) < 0) {
        fprintf(out, "    row %" PRIu64 ": all NaN\n", row);
        return;
    }
    fprintf(out, "    row %" PRIu64 ", largest at:", row);
    for (int i = 0; i < TOP_LIMIT; i++) {
        at = next_largest(tensor->type, data, row * width, width, value, at);
        if (at < 0)
            break;
        value = ul_element_get(tensor->type, data, row * width + (uint64_t)at);
        fprintf(out, "%s %" PRId64 " (%s)", i == 0 ? "" : ",", at,
                ul_element_text(text, tensor->type, data, row * width + (uint64_t)at));
    }
    fputc('\n', out);
}

static void print_range(FILE *out, const struct ul_rt_tensor *tensor, const void *data,
                        uint64_t count)
{
    double low = HUGE_VAL, high = -HUGE_VAL, sum = 0.0;
    uint64_t odd_count = 0, nan_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        double value = ul_element_get(tensor->type, data, i);
        nan_count += isnan(value) != 0;
        if (!isfinite(value)) {
            odd_count++;
            continue;
        }
        low = value < low ? value : low;
        high = value > high ? value : high;
        sum += value;
    }
    if (odd_count < count)
        fprintf(out, "    min %g, max %g, mean %g\n", low, high, sum / (double)(count - odd_count));
    if (nan_count == count)
        fputs("    all NaN\n", out);
    else if (odd_count != 0)
        fprintf(out, "    %" PRIu64 " elements are NaN or infinite\n", odd_count);
}

static void print_output(FILE *out, const struct ul_rt_tensor *tensor, const void *data)
{
    char shown[UL_SHOWN_BYTES], shape[UL_SHAPE_TEXT_BYTES];
    uint64_t count = ul_element_count(tensor->rank, tensor->dims);
    fprintf(out, "%s  %s\n", ul_shown(shown, tensor->name),
            ul_shape_text(shape, tensor->type, tensor->rank, tensor->dims));
    if (count == 0)
        return;
    if (count <= WHOLE_LIMIT) {
        fputs("   ", out);
        for (uint64_t i = 0; i < count; i++)
            fprintf(out, " %s", ul_element_text(shown, tensor->type, data, i));
        fputc('\n', out);
        return;
    }
    print_range(out, tensor, data, count);
    uint64_t width = (uint64_t)tensor->dims[tensor->rank - 1];
    for (uint64_t row = 0; width > 1 && row < count / width && row < ROW_LIMIT; row++)
        print_row(out, tensor, data, row, width);
    if (width > 1 && count / width > ROW_LIMIT)
        fprintf(out, "    ... %" PRIu64 " rows more\n", count / width - ROW_LIMIT);
}

void ul_print_outputs(const struct ul_session *s, FILE *out)
{
    for (uint32_t i = 0; i < s->model->output_count; i++)
        print_output(out, &s->model->outputs[i], ul_session_output(s, i));
}
