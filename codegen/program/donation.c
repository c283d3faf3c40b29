/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that outputs may overwrite the inputs that are donated to them: nothing may read the old
 * elements once a new one may be written.
 *
 *      step      0    1    2    3
 *      reads n   x         x               step 2 may do both, where its lowering allows it;
 *      writes n            x               a reader at 3, or in a loop that writes, forbids it,
 *                                          but not in the other branch of an If, nor if it reads
 *                                          other bytes than those that step 2 writes */
#include "codegen/program/program_internal.h"
#include "ir/view.h"

struct donation {
    ul_value_id output, input; /* base values */
};

static ul_value_id base_at(const struct ul_graph *graph, const struct ul_program_step *step,
                           uint32_t arg)
{
    ul_value_id value = step->views[arg];
    return value == UL_NONE ? UL_NONE : graph->values[value].view.base;
}

static bool touches(const struct ul_graph *graph, const struct ul_program_step *step,
                    ul_value_id base, bool writes)
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        if (base_at(graph, step, i) == base && step->written[i] == writes)
            return true;
    }
    return step->own != NULL && touches(graph, step->own, base, writes);
}

/* The bytes of its base that hold a value: [*begin, *end). */
static void find_extent(const struct ul_graph *graph, ul_value_id id, int64_t *begin, int64_t *end)
{
    const struct ul_value *value = &graph->values[id];
    int64_t element_bytes = ul_value_element_bytes(graph, id);
    *begin = value->view.offset_bytes;
    *end = *begin + element_bytes;
    for (uint32_t d = 0; d < value->type.rank; d++) {
        int64_t reach = (value->type.dims[d] - 1) * value->view.strides[d] * element_bytes;
        *begin += reach < 0 ? reach : 0;
        *end += reach > 0 ? reach : 0;
    }
}

/* Whether one step's arguments in the input overlap the other's in the output. */
static bool args_overlap(const struct ul_graph *graph, const struct ul_program_step *reader,
                         const struct ul_program_step *writer, const struct donation *donation)
{
    int64_t read[2], written[2];
    for (uint32_t w = 0; w < writer->arg_count; w++) {
        if (base_at(graph, writer, w) != donation->output || !writer->written[w])
            continue;
        find_extent(graph, writer->views[w], &written[0], &written[1]);
        for (uint32_t r = 0; r < reader->arg_count; r++) {
            if (base_at(graph, reader, r) != donation->input || reader->written[r])
                continue;
            find_extent(graph, reader->views[r], &read[0], &read[1]);
            if (read[0] < written[1] && written[0] < read[1])
                return true;
        }
    }
    return false;
}

/* The same for the steps, and for the kernels that may run in their places. */
static bool overlap(const struct ul_graph *graph, const struct ul_program_step *reader,
                    const struct ul_program_step *writer, const struct donation *donation)
{
    for (const struct ul_program_step *w = writer; w != NULL; w = w->own)
        for (const struct ul_program_step *r = reader; r != NULL; r = r->own)
            if (args_overlap(graph, r, w, donation))
                return true;
    return false;
}

/* Whether the step reads everything of the input before it writes the output there. */
static bool is_in_place(const struct ul_program_step *step, const struct donation *donation)
{
    for (uint32_t i = 0; i < step->in_place_count; i++) {
        if (step->in_place[i].output == donation->output &&
            step->in_place[i].input == donation->input)
            return true;
    }
    return false;
}

/* The outermost loop around a region, or UL_PLAN_NONE. */
static uint32_t loop_around(const struct ul_program *program, uint32_t region)
{
    uint32_t loop = UL_PLAN_NONE;
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent)
        loop = program->regions[r].kind == UL_PLAN_LOOP ? r : loop;
    return loop;
}

/* Whether both regions are in different branches of one If. */
static bool exclude(const struct ul_program *program, uint32_t a, uint32_t b)
{
    const struct ul_program_region *regions = program->regions;
    for (uint32_t x = a; x != UL_PLAN_NONE; x = regions[x].parent) {
        for (uint32_t y = b; y != UL_PLAN_NONE; y = regions[y].parent) {
            if (x != y && regions[x].parent == regions[y].parent &&
                regions[x].kind == UL_PLAN_BRANCH && regions[y].kind == UL_PLAN_BRANCH)
                return true;
        }
    }
    return false;
}

/* Whether a step that reads the input may run when `writer` has written the output. A branch is
 * tested whether or not the other one ran. */
static bool forbids(const struct ul_program *program, uint32_t reader, uint32_t writer,
                    const struct donation *donation)
{
    const struct ul_program_step *reads = &program->steps[reader];
    const struct ul_program_step *writes = &program->steps[writer];
    bool tests = reads->kind == UL_STEP_TEST;
    uint32_t region = tests ? program->regions[reads->region].parent : reads->region;
    uint32_t loop = loop_around(program, writes->region);
    if (loop != UL_PLAN_NONE && loop_around(program, reads->region) == loop)
        return true;
    if (reader == writer)
        return !is_in_place(reads, donation);
    if (ul_graph_root_of(program->graph, reads->node) !=
        ul_graph_root_of(program->graph, writes->node))
        return false; /* one root reads what another leaves there */
    return reader > writer && !exclude(program, region, writes->region);
}

static enum ul_status check_writer(struct ul_program_builder *builder, uint32_t writer,
                                   const struct donation *donation)
{
    const struct ul_program *program = builder->program;
    const struct ul_graph *graph = builder->graph;
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (touches(graph, &program->steps[s], donation->input, false) &&
            forbids(program, s, writer, donation) &&
            overlap(graph, &program->steps[s], &program->steps[writer], donation))
            return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                               "%s cannot overwrite %s where it lies: %s still reads it; leave "
                               "out its --donate, or, where their names match, give --no-donate",
                               ul_quote(builder->arena, graph->values[donation->output].name),
                               ul_quote(builder->arena, graph->values[donation->input].name),
                               ul_node_describe(graph, program->steps[s].node, builder->arena));
    }
    return UL_OK;
}

static enum ul_status check_root(struct ul_program_builder *builder, ul_block_id id)
{
    const struct ul_program *program = builder->program;
    const struct ul_block *root = &builder->graph->blocks[id];
    for (uint32_t i = 0; i < root->output_count; i++) {
        const struct ul_value *output = &builder->graph->values[root->outputs[i]];
        struct donation donation = {.output = root->outputs[i], .input = output->donor};
        if (output->donor == UL_NONE)
            continue;
        UL_ASSERT(output->view.base == root->outputs[i]);
        if (builder->options->weights_rom &&
            builder->graph->values[donation.input].kind == UL_VALUE_WEIGHT)
            return ul_diag_set(
                builder->diag, UL_UNSUPPORTED,
                "%s cannot overwrite %s: --weights rom has read-only data of it; "
                "leave out that, or --donate, or, where their names match, give --no-donate",
                ul_quote(builder->arena, output->name),
                ul_quote(builder->arena, builder->graph->values[donation.input].name));
        for (uint32_t s = 0; s < program->step_count; s++) {
            if (touches(builder->graph, &program->steps[s], donation.output, true))
                UL_TRY(check_writer(builder, s, &donation));
        }
    }
    return UL_OK;
}

enum ul_status ul_donation_check(struct ul_program_builder *builder)
{
    for (uint32_t r = 0; r < builder->graph->root_count; r++)
        UL_TRY(check_root(builder, r));
    return UL_OK;
}
