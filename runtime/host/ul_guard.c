/* SPDX-License-Identifier: 0BSD */
/*
 * --guard: proof by experiment that no step reads or writes outside of what the plan gives it.
 *
 * Reads: the model runs twice, with two different patterns in every byte that holds no live value.
 * A byte is filled again as soon as its live range ends. A step that reads a dead byte, or one that
 * nobody has written yet, gives different results in the two runs: the first step whose views hash
 * differently is the culprit.
 *
 * Writes: a shadow of the arena holds what must be in it: after each step the step's views and its
 * scratch are copied there, nothing else. When a range begins or ends, and at the end of all, arena
 * and shadow must agree; that costs a pass over each value instead of one over the arena at each
 * step. When they do not, a third run compares the whole arena after every step and so names the
 * first step that wrote elsewhere. Margins around the arena are part of the shadow.
 *
 * Live values of others: while a step runs, every live value that is none of its operands is
 * disguised, by another pattern in each of the two runs (its bits are exchanged, so the same again
 * gives it back), in the arena and in the shadow. A step that reads one gives other results in the
 * two runs; one that writes there is found as any write.
 *
 * What values are offloaded to has a shadow of its own, in which the bytes of saved values are, and
 * is filled where nothing lives as the arena is. Transfers are done as late as they may be, when
 * they are waited for, and belong to the step that waits: one that nobody waits for shows.
 *
 * On a device the arena is looked at through a mirror: what is compared, or copied to the shadow,
 * is fetched first; what is filled or disguised is so on the device. Its runs are launched step by
 * step.
 *
 *     step     0   1   2   3   4
 *     x        [=======)                copied to the shadow after step 0, compared and filled
 *     y                    [=======)    after step 1; compared when y begins at step 3
 */
#include "ul_internal.h"

#include "ul_library.h"

#include "ul_weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STEP_NONE UINT32_MAX
#define TEXT_BYTES (2 * UL_SHOWN_BYTES + 64)

struct mark {
    uint64_t hash; /* of the step's views */
    uint32_t step;
};

struct trace {
    struct mark *marks;
    size_t count;
    size_t room;
};

struct guard {
    const struct ul_session *s;
    const struct ul_model *model;
    unsigned char *shadow;         /* of the arena, with its margins */
    unsigned char *mirror;         /* the same for a device's arena; NULL: the host has the arena */
    unsigned char *offload;        /* the memory that values are offloaded to; NULL: none are */
    unsigned char *offload_shadow; /* its shadow */
    uint32_t *by_offset;           /* the ranges in the order of their offsets */
    bool *is_bare;                 /* per range: never disguised */
    bool *is_disguised;            /* per range: disguised now */
    struct trace traces[2];
    struct trace *trace; /* of this run; NULL in the third */
    unsigned char fill;
    bool every_step;     /* the third run */
    uint32_t begin, end; /* the run's steps are among these */
    uint32_t last;       /* the step that has just run */
    bool out_of_memory;
    int status; /* the device's */
    /* the first byte that nobody may have written */
    bool found_write;
    uint32_t write_step;
    uint64_t write_offset; /* in the block, margins included, or of what is offloaded to: */
    bool write_offloads;
    /* for the visitor of views */
    struct ul_hash hash;
    const struct ul_rt_view *view;
};

static bool is_live(const struct ul_range *range, uint32_t step)
{
    return range->live_begin <= step && step < range->live_end;
}

/* The bytes at an offset of the block, margins included, as they are now. */
static const unsigned char *look(struct guard *guard, uint64_t offset_bytes, uint64_t size_bytes)
{
    const struct ul_session *s = guard->s;
    if (guard->mirror == NULL)
        return s->block + offset_bytes;
    if (guard->status == UL_EXIT_OK)
        guard->status = ul_session_device_read(s, (int64_t)offset_bytes - (int64_t)s->margin_bytes,
                                               guard->mirror + offset_bytes, size_bytes);
    return guard->mirror + offset_bytes;
}

/* Makes what the arena holds there what it must hold. */
static void accept(struct guard *guard, uint64_t offset_bytes, uint64_t size_bytes)
{
    memcpy(guard->shadow + offset_bytes, look(guard, offset_bytes, size_bytes), (size_t)size_bytes);
}

/* Compares `size_bytes` at an offset of the block with the shadow. */
static void compare(struct guard *guard, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (guard->found_write || size_bytes == 0)
        return;
    const unsigned char *block = look(guard, offset_bytes, size_bytes) - offset_bytes;
    if (memcmp(block + offset_bytes, guard->shadow + offset_bytes, (size_t)size_bytes) == 0)
        return;
    while (block[offset_bytes] == guard->shadow[offset_bytes])
        offset_bytes++;
    guard->found_write = true;
    guard->write_step = guard->last;
    guard->write_offset = offset_bytes;
}

/* The same for the memory that values are offloaded to. */
static void compare_offload(struct guard *guard, uint64_t offset_bytes, uint64_t size_bytes)
{
    const unsigned char *offload = guard->offload, *shadow = guard->offload_shadow;
    if (guard->found_write || size_bytes == 0 ||
        memcmp(offload + offset_bytes, shadow + offset_bytes, (size_t)size_bytes) == 0)
        return;
    while (offload[offset_bytes] == shadow[offset_bytes])
        offset_bytes++;
    guard->found_write = true;
    guard->write_offloads = true;
    guard->write_step = guard->last;
    guard->write_offset = offset_bytes;
}

/* The place of a view of the arena has been fetched before, all of it at once. */
static void visit_view(void *context, uint64_t offset_bytes, uint64_t size_bytes)
{
    struct guard *guard = context;
    const struct ul_session *s = guard->s;
    uint32_t index = guard->view->index;
    const unsigned char *block = guard->mirror != NULL ? guard->mirror : s->block;
    const unsigned char *bytes = NULL;
    switch (guard->view->space) {
    case UL_SPACE_ARENA:
        bytes = block + s->margin_bytes;
        memcpy(guard->shadow + s->margin_bytes + offset_bytes, bytes + offset_bytes,
               (size_t)size_bytes);
        break;
    case UL_SPACE_INPUT:
        bytes = s->inputs[index];
        break;
    case UL_SPACE_OUTPUT:
        bytes = s->outputs[index];
        break;
    case UL_SPACE_PART: /* the rest may not have been written yet: its readers will tell */
        memcpy(guard->shadow + s->margin_bytes + offset_bytes,
               block + s->margin_bytes + offset_bytes, (size_t)size_bytes);
        return;
    case UL_SPACE_OFFLOAD:
        bytes = guard->offload;
        memcpy(guard->offload_shadow + offset_bytes, bytes + offset_bytes, (size_t)size_bytes);
        break;
    case UL_SPACE_ROM:
        return;
    }
    ul_hash_add(&guard->hash, bytes + offset_bytes, (size_t)size_bytes);
}

/* Fetches a view from a device as one piece, with what is between, since it may be many small
 * pieces. */
static void fetch_view(struct guard *guard, const struct ul_rt_view *view)
{
    uint64_t begin, end;
    const struct ul_session *s = guard->s;
    ul_view_extent(guard->model, view, &begin, &end);
    if (begin == end)
        return;
    if (view->space == UL_SPACE_ARENA || view->space == UL_SPACE_PART)
        (void)look(guard, s->margin_bytes + begin, end - begin);
    else if (view->space == UL_SPACE_OUTPUT && guard->status == UL_EXIT_OK)
        guard->status = ul_session_device_fetch(s, view->index);
}

static void add_mark(struct guard *guard, uint32_t step, uint64_t hash)
{
    struct trace *trace = guard->trace;
    if (trace == NULL || guard->out_of_memory)
        return;
    if (trace->count == trace->room) {
        size_t room = trace->room * 2 + 256;
        struct mark *grown = realloc(trace->marks, room * sizeof *grown);
        if (grown == NULL) {
            guard->out_of_memory = true;
            return;
        }
        trace->marks = grown;
        trace->room = room;
    }
    trace->marks[trace->count].hash = hash;
    trace->marks[trace->count++].step = step;
}

/* Makes what `step` was allowed to write what the arena must hold. */
static void accept_writes(struct guard *guard, uint32_t step)
{
    const struct ul_model *model = guard->model;
    const struct ul_step *row = &model->steps[step];
    uint64_t margin = guard->s->margin_bytes;
    ul_hash_init(&guard->hash);
    for (uint32_t i = 0; i < row->view_count; i++) {
        guard->view = &model->views[row->view_begin + i];
        if (guard->mirror != NULL)
            fetch_view(guard, guard->view);
        ul_view_visit(model, guard->view, visit_view, guard);
    }
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        if (range->row == UL_ROW_SCRATCH && is_live(range, step))
            accept(guard, margin + range->offset_bytes, range->size_bytes);
    }
    add_mark(guard, step, ul_hash_get(&guard->hash));
}

static void fill(struct guard *guard, uint64_t begin, uint64_t end)
{
    if (begin >= end)
        return;
    if (guard->mirror == NULL)
        memset(guard->s->arena + begin, guard->fill, (size_t)(end - begin));
    else if (guard->status == UL_EXIT_OK)
        guard->status = ul_session_device_fill(guard->s, (int64_t)begin, guard->fill, end - begin);
    memset(guard->shadow + guard->s->margin_bytes + begin, guard->fill, (size_t)(end - begin));
}

/* Fills the bytes of [begin, end) that no range live at `step` holds. */
static void fill_dead(struct guard *guard, uint64_t begin, uint64_t end, uint32_t step)
{
    const struct ul_model *model = guard->model;
    for (uint32_t i = 0; i < model->range_count && begin < end; i++) {
        const struct ul_range *range = &model->ranges[guard->by_offset[i]];
        uint64_t range_end = range->offset_bytes + range->size_bytes;
        if (!is_live(range, step) || range_end <= begin || range->size_bytes == 0)
            continue;
        if (range->offset_bytes >= end)
            break;
        fill(guard, begin, range->offset_bytes);
        begin = range_end;
    }
    fill(guard, begin, end);
}

/* ---- what values are offloaded to ---- */

/* Fills the bytes of [begin, end) that no value holds at `step`. */
static void fill_offload(struct guard *guard, uint64_t begin, uint64_t end, uint32_t step)
{
    const struct ul_model *model = guard->model;
    while (begin < end) {
        uint64_t next = end, behind = end; /* the first value there, and its end */
        for (uint32_t i = 0; i < model->offload_range_count; i++) {
            const struct ul_range *range = &model->offload_ranges[i];
            uint64_t range_end = range->offset_bytes + range->size_bytes;
            if (!is_live(range, step) || range_end <= begin || range->offset_bytes >= next)
                continue;
            next = range->offset_bytes > begin ? range->offset_bytes : begin;
            behind = range_end;
        }
        memset(guard->offload + begin, guard->fill, (size_t)(next - begin));
        memset(guard->offload_shadow + begin, guard->fill, (size_t)(next - begin));
        begin = next < end ? behind : end;
    }
}

/* Compares the values that end or begin between two steps; where some end, fills their place. */
static void change_offload(struct guard *guard, uint32_t from, uint32_t to)
{
    const struct ul_model *model = guard->model;
    for (uint32_t i = 0; i < model->offload_range_count; i++) {
        const struct ul_range *range = &model->offload_ranges[i];
        if (is_live(range, from) != is_live(range, to))
            compare_offload(guard, range->offset_bytes, range->size_bytes);
    }
    for (uint32_t i = 0; i < model->offload_range_count; i++) {
        const struct ul_range *range = &model->offload_ranges[i];
        if (is_live(range, from) && !is_live(range, to))
            fill_offload(guard, range->offset_bytes, range->offset_bytes + range->size_bytes, to);
    }
}

/* What is offloaded between runs is there before the first step. */
static void begin_offload(struct guard *guard)
{
    if (guard->offload == NULL)
        return;
    memcpy(guard->offload_shadow, guard->offload, (size_t)guard->model->offload_bytes);
    fill_offload(guard, 0, guard->model->offload_bytes, 0);
}

/* ---- disguise ---- */

static void exchange_bits(unsigned char *bytes, uint64_t size_bytes, unsigned char pattern)
{
    for (uint64_t i = 0; i < size_bytes; i++)
        bytes[i] = (unsigned char)(bytes[i] ^ pattern);
}

static void set_disguise(struct guard *guard, uint32_t index, bool disguise)
{
    const struct ul_range *range = &guard->model->ranges[index];
    if (guard->is_disguised[index] == disguise)
        return;
    guard->is_disguised[index] = disguise;
    if (guard->mirror == NULL)
        exchange_bits(guard->s->arena + range->offset_bytes, range->size_bytes, guard->fill);
    else if (guard->status == UL_EXIT_OK)
        guard->status = ul_session_device_exchange(guard->s, (int64_t)range->offset_bytes,
                                                   guard->fill, range->size_bytes);
    exchange_bits(guard->shadow + guard->s->margin_bytes + range->offset_bytes, range->size_bytes,
                  guard->fill);
}

static bool is_operand(const struct ul_model *model, uint32_t step, uint32_t index)
{
    const struct ul_step *row = &model->steps[step];
    for (uint32_t i = 0; i < row->operand_count; i++)
        if (model->operands[row->operand_begin + i] == index)
            return true;
    return false;
}

/* Whether the range begins at the step, or its bytes pass to one that does. */
static bool changes_hands(const struct ul_model *model, uint32_t step, uint32_t index)
{
    if (model->ranges[index].live_begin == step)
        return true;
    for (uint32_t i = 0; model->ranges[index].live_end == step + 1 && i < model->range_count; i++)
        if (model->ranges[i].alias == index && model->ranges[i].live_begin == step)
            return true;
    return false;
}

/* Before a step: what it may read is shown, all else that lives is disguised. With the end of the
   run for the step, everything is shown. */
static void disguise_for(struct guard *guard, uint32_t step)
{
    const struct ul_model *model = guard->model;
    bool ends = step >= guard->end;
    for (uint32_t i = 0; i < model->range_count; i++)
        set_disguise(guard, i,
                     !ends && !guard->is_bare[i] && is_live(&model->ranges[i], step) &&
                         !is_operand(model, step, i) && !changes_hands(model, step, i));
}

/* What ends before the step is shown first: its bytes may belong to another range from now on. */
static void show_ended(struct guard *guard, uint32_t step)
{
    for (uint32_t i = 0; i < guard->model->range_count; i++)
        if (!is_live(&guard->model->ranges[i], step))
            set_disguise(guard, i, false);
}

/* Scratch, where the library's state is too, is no value; conditions are read between steps. */
static void find_bare(struct guard *guard)
{
    const struct ul_model *model = guard->model;
    for (uint32_t i = 0; i < model->range_count; i++)
        guard->is_bare[i] = model->ranges[i].row == UL_ROW_SCRATCH || model->operand_count == 0;
    for (uint32_t i = model->bare_begin; i < model->operand_count; i++)
        guard->is_bare[model->operands[i]] = true;
}

/* ---- the watch ---- */

/* Compares the ranges that end or begin between two steps; fills those that end. */
static void change_ranges(struct guard *guard, uint32_t from, uint32_t to)
{
    const struct ul_model *model = guard->model;
    uint64_t margin = guard->s->margin_bytes;
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        if (is_live(range, from) != is_live(range, to))
            compare(guard, margin + range->offset_bytes, range->size_bytes);
    }
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        if (is_live(range, from) && !is_live(range, to))
            fill_dead(guard, range->offset_bytes, range->offset_bytes + range->size_bytes, to);
    }
}

static uint64_t block_bytes(const struct ul_session *s)
{
    return s->model->arena_bytes + 2 * s->margin_bytes;
}

static void on_step(void *context, uint32_t step)
{
    struct guard *guard = context;
    bool ends = step >= guard->end;
    if (guard->last == STEP_NONE)
        accept(guard, 0, block_bytes(guard->s)); /* inputs are in their places */
    if (guard->last != STEP_NONE) {
        accept_writes(guard, guard->last);
        if (guard->every_step || ends) {
            compare(guard, 0, block_bytes(guard->s));
            compare_offload(guard, 0, guard->offload != NULL ? guard->model->offload_bytes : 0);
        }
        show_ended(guard, step);
        if (!ends) {
            change_ranges(guard, guard->last, step);
            change_offload(guard, guard->last, step);
        }
    }
    disguise_for(guard, step);
    guard->last = step;
}

/* Whether the value holds something before the first step. */
static bool is_initial(const struct guard *guard, const struct ul_range *range)
{
    const struct ul_model *model = guard->model;
    if (range->row == UL_ROW_INPUTS && range->live_begin == guard->begin)
        return true; /* of the root that runs */
    for (uint32_t i = 0; i < model->library_count; i++)
        if (range->offset_bytes == model->libraries[i].state_offset_bytes &&
            range->size_bytes == sizeof(void *))
            return true; /* a library's state */
    if (model->device != NULL && range->row == UL_ROW_SCRATCH && range->live_begin == 0 &&
        range->offset_bytes == model->device->state_offset_bytes)
        return true; /* the state of the run, which set-up clears */
    if (model->offload_bytes != 0 && range->row == UL_ROW_SCRATCH && range->live_begin == 0 &&
        range->offset_bytes == model->offload_state_offset_bytes)
        return true; /* the place of the memory that values are offloaded to */
    if (model->bank_count != 0 && range->row == UL_ROW_SCRATCH && range->live_begin == 0 &&
        range->offset_bytes == model->bank_state_offset_bytes)
        return true; /* where the banks are noted */
    return range->live_begin == 0 &&
           (range->row == UL_ROW_WEIGHTS || range->row == UL_ROW_OPTIMIZER ||
            range->row == UL_ROW_INPUTS);
}

/* Fills everything that set-up left behind outside of initial values. */
static void fill_at_start(struct guard *guard)
{
    const struct ul_model *model = guard->model;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[guard->by_offset[i]];
        uint64_t range_end = range->offset_bytes + range->size_bytes;
        if (!is_initial(guard, range) || range_end <= begin)
            continue;
        fill(guard, begin, range->offset_bytes);
        begin = range_end;
    }
    fill(guard, begin, model->arena_bytes);
}

static int run_watched(struct ul_session *s, struct guard *guard, const struct ul_saved *inputs)
{
    int status = ul_session_reload(s, guard->fill);
    if (status != UL_EXIT_OK)
        return status;
    fill_at_start(guard);
    begin_offload(guard);
    for (uint32_t i = 0; i < s->model->output_count; i++) {
        if (s->outputs[i] != NULL)
            memset(s->outputs[i], guard->fill, (size_t)s->model->outputs[i].size_bytes);
        if (s->model->device != NULL && guard->status == UL_EXIT_OK)
            guard->status = ul_session_device_store(s, i);
    }
    ul_inputs_restore(s, inputs, true);
    guard->last = STEP_NONE;
    if (guard->status == UL_EXIT_OK)
        status = ul_session_set_up(s);
    if (guard->status == UL_EXIT_OK && status == UL_EXIT_OK)
        status = ul_session_run(s, on_step, guard);
    if (status == UL_EXIT_OK)
        status = guard->status;
    return guard->out_of_memory ? ul_out_of_memory(s, sizeof(struct mark)) : status;
}

/* The steps whose results differ between the two runs; STEP_NONE when there is none. */
static uint32_t first_difference(const struct guard *guard)
{
    const struct trace *a = &guard->traces[0], *b = &guard->traces[1];
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (a->marks[i].step != b->marks[i].step || a->marks[i].hash != b->marks[i].hash)
            return a->marks[i].step;
    if (a->count == b->count)
        return STEP_NONE;
    return a->count < b->count ? b->marks[a->count].step : a->marks[b->count].step;
}

static const char *step_text(const struct guard *guard, uint32_t step, char buffer[TEXT_BYTES])
{
    char name[UL_SHOWN_BYTES], node[UL_SHOWN_BYTES];
    const struct ul_step *row = &guard->model->steps[step];
    snprintf(buffer, TEXT_BYTES, "step %" PRIu32 " %s (%s)", step, ul_shown(name, row->name),
             ul_shown(node, row->node));
    return buffer;
}

/* "byte 20 of 'h'" */
static const char *place_text(const struct guard *guard, char buffer[TEXT_BYTES])
{
    const struct ul_model *model = guard->model;
    uint64_t margin = guard->s->margin_bytes;
    uint64_t at = guard->write_offset - margin;
    char name[UL_SHOWN_BYTES];
    if (guard->write_offloads) {
        snprintf(buffer, TEXT_BYTES, "byte %" PRIu64 " of what values are offloaded to",
                 guard->write_offset);
        return buffer;
    }
    if (guard->write_offset < margin || at >= model->arena_bytes) {
        snprintf(buffer, TEXT_BYTES, "outside of the arena, %" PRIu64 " bytes %s",
                 guard->write_offset < margin ? margin - guard->write_offset
                                              : at - model->arena_bytes + 1,
                 guard->write_offset < margin ? "before it" : "behind its end");
        return buffer;
    }
    snprintf(buffer, TEXT_BYTES, "byte %" PRIu64 " of the arena, where nothing lives", at);
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        if (is_live(range, guard->write_step) && range->offset_bytes <= at &&
            at < range->offset_bytes + range->size_bytes)
            snprintf(buffer, TEXT_BYTES, "byte %" PRIu64 " of '%s' (byte %" PRIu64 " of the arena)",
                     at - range->offset_bytes, ul_shown(name, range->value), at);
    }
    return buffer;
}

struct verdict {
    const struct guard *guard;
    uint32_t read_step;
};

static void write_json(struct ul_json *json, const void *context)
{
    const struct verdict *verdict = context;
    const struct guard *guard = verdict->guard;
    ul_json_text(json, "model", guard->model->name);
    ul_json_count(json, "steps_run", guard->traces[0].count);
    ul_json_bool(json, "clean", !guard->found_write && verdict->read_step == STEP_NONE);
    if (guard->found_write) {
        ul_json_count(json, "write_step", guard->write_step);
        ul_json_text(json, "write_step_name", guard->model->steps[guard->write_step].name);
    }
    if (verdict->read_step != STEP_NONE) {
        ul_json_count(json, "read_step", verdict->read_step);
        ul_json_text(json, "read_step_name", guard->model->steps[verdict->read_step].name);
    }
}

/* The earlier step is the culprit: later differences follow from it. */
static int judge(const struct ul_session *s, const struct guard *guard)
{
    struct verdict verdict = {guard, first_difference(guard)};
    char step[TEXT_BYTES], place[TEXT_BYTES];
    const char *json = s->options->json;
    if (json != NULL) {
        int status = ul_json_write(s, json, write_json, &verdict);
        if (status != UL_EXIT_OK)
            return status;
    }
    if (guard->found_write)
        return ul_error(s, UL_EXIT_VERIFY, "%s wrote outside of its values: %s",
                        step_text(guard, guard->write_step, step), place_text(guard, place));
    if (verdict.read_step != STEP_NONE)
        return ul_error(s, UL_EXIT_VERIFY,
                        "%s read outside of its values: its results depend on bytes that hold none "
                        "of its operands",
                        step_text(guard, verdict.read_step, step));
    if (json == NULL || strcmp(json, "-") != 0)
        printf("guard: ran %zu step%s over each of two fill patterns; none reads or writes outside "
               "of its values\n",
               guard->traces[0].count, guard->traces[0].count == 1 ? "" : "s");
    return UL_EXIT_OK;
}

static int run_all(struct ul_session *s, struct guard *guard, const struct ul_saved *inputs)
{
    static const unsigned char fills[2] = {0xff, 0x55}; /* NaN and -1; 1.5e13 and a large number */
    int status = UL_EXIT_OK;
    for (int i = 0; status == UL_EXIT_OK && i < 2 && !guard->found_write; i++) {
        guard->fill = fills[i];
        guard->trace = &guard->traces[i];
        status = run_watched(s, guard, inputs);
    }
    if (status == UL_EXIT_OK && guard->found_write) {
        guard->found_write = false;
        guard->write_offloads = false;
        guard->every_step = true;
        guard->trace = NULL;
        status = run_watched(s, guard, inputs);
    }
    return status == UL_EXIT_OK ? judge(s, guard) : status;
}

/* Insertion by offset would be quadratic; ranges come from the model in any order. */
static void sort_ranges(struct guard *guard, uint32_t *spare)
{
    const struct ul_range *ranges = guard->model->ranges;
    uint32_t count = guard->model->range_count;
    uint32_t *from = guard->by_offset, *to = spare;
    for (uint32_t i = 0; i < count; i++)
        from[i] = i;
    for (uint64_t width = 1; width < count; width *= 2) {
        for (uint64_t begin = 0; begin < count; begin += 2 * width) {
            uint64_t middle = begin + width < count ? begin + width : count;
            uint64_t end = begin + 2 * width < count ? begin + 2 * width : count;
            uint64_t a = begin, b = middle;
            for (uint64_t k = begin; k < end; k++) {
                bool first = b == end || (a < middle && ranges[from[a]].offset_bytes <=
                                                            ranges[from[b]].offset_bytes);
                to[k] = first ? from[a++] : from[b++];
            }
        }
        memcpy(from, to, count * sizeof *from);
    }
}

int ul_guard(struct ul_session *s)
{
    struct guard guard = {0};
    size_t room = (size_t)s->model->range_count + 1;
    if (s->model->steps == NULL) /* there may be no ranges in the arena */
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "--guard needs the tables that -DUL_NO_TABLES "
                        "left out");
    int status = ul_inputs_fill(s, true);
    if (status == UL_EXIT_OK && !ul_sizes_are_largest(s))
        status = ul_error(s, UL_EXIT_UNSUPPORTED,
                          "--guard knows the values of the largest sizes alone, of each part where "
                          "the plan lists several: give inputs with these");
    if (status != UL_EXIT_OK)
        return status;
    struct ul_saved inputs;
    bool saved = ul_inputs_save(s, &inputs) == UL_EXIT_OK;
    uint32_t *spare = malloc(room * sizeof *spare);
    guard.s = s;
    guard.model = s->model;
    guard.begin = s->model->entries[s->model->first_entry + UL_ENTRY_RUN].step_begin;
    guard.end = s->model->entries[s->model->first_entry + UL_ENTRY_RUN].step_end;
    guard.shadow = malloc((size_t)block_bytes(s));
    if (s->model->device != NULL)
        guard.mirror = malloc((size_t)block_bytes(s));
    if (s->model->offload_bytes != 0) {
        guard.offload = s->model->device != NULL ? s->model->device->functions->offload(s->context)
                                                 : ul_store_memory(s);
        guard.offload_shadow = malloc((size_t)s->model->offload_bytes);
    }
    guard.by_offset = malloc(room * sizeof *guard.by_offset);
    guard.is_bare = malloc(room * sizeof *guard.is_bare);
    guard.is_disguised = calloc(room, sizeof *guard.is_disguised);
    if (!saved || guard.is_bare == NULL || guard.is_disguised == NULL || spare == NULL ||
        guard.shadow == NULL || guard.by_offset == NULL ||
        (s->model->offload_bytes != 0 && guard.offload_shadow == NULL) ||
        (s->model->device != NULL && guard.mirror == NULL)) {
        status = ul_out_of_memory(s, block_bytes(s));
    } else {
        sort_ranges(&guard, spare);
        find_bare(&guard);
        status = run_all(s, &guard, &inputs);
    }
    ul_inputs_forget(&inputs);
    free(spare);
    free(guard.shadow);
    free(guard.mirror);
    free(guard.offload_shadow);
    free(guard.by_offset);
    free(guard.is_bare);
    free(guard.is_disguised);
    free(guard.traces[0].marks);
    free(guard.traces[1].marks);
    return status;
}
