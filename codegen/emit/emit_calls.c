/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a library in model.c: the constant tables that runtime/lib/ul_library.h describes, and
 * the steps that run them. */
#include "codegen/emit/emit_internal.h"

#include "codegen/program/calls_internal.h"
#include "codegen/program/target.h"
#include "ir/view.h"
#include "runtime/lib/ul_nbits.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- tables ---- */

static void put_ints(struct ul_text *text, const char *field, const int64_t *values, uint32_t count)
{
    ul_text_printf(text, ".%s = {", field);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, "%s%" PRId64, i == 0 ? "" : ", ", values[i]);
    ul_text_put(text, "}");
}

static const char *type_name(enum ul_call_type type)
{
    static const char *const names[] = {[UL_CALL_F32] = "UL_CALL_F32",
                                        [UL_CALL_F16] = "UL_CALL_F16",
                                        [UL_CALL_BF16] = "UL_CALL_BF16",
                                        [UL_CALL_U8] = "UL_CALL_U8",
                                        [UL_CALL_I8] = "UL_CALL_I8",
                                        [UL_CALL_I32] = "UL_CALL_I32",
                                        [UL_CALL_F8E4M3FN] = "UL_CALL_F8E4M3FN",
                                        [UL_CALL_F8E5M2] = "UL_CALL_F8E5M2",
                                        [UL_CALL_F4E2M1] = "UL_CALL_F4E2M1"};
    return names[type];
}

static void put_tensor(struct ul_text *text, const char *field, const struct ul_call_tensor *tensor)
{
    if (tensor->rank == 0)
        return;
    ul_text_printf(text, "     .%s = {.rank = %u, ", field, tensor->rank);
    if (tensor->type != UL_CALL_F32)
        ul_text_printf(text, ".type = %s, ", type_name(tensor->type));
    put_ints(text, "dims", tensor->dims, tensor->rank);
    ul_text_put(text, ", ");
    put_ints(text, "strides", tensor->strides, tensor->rank);
    ul_text_put(text, "},\n");
}

/* The tables of sums after the tiles. */
static void put_sums(struct ul_text *text, const struct ul_pack *pack)
{
    if (pack->sum_flags == 0)
        return;
    ul_text_put(text, ", ");
    put_ints(text, "sum_strides", pack->sum_strides, pack->rank);
    ul_text_printf(text,
                   ", .sum_count = %" PRId64 ", .sum_factors = {%" PRId32 ", %" PRId32
                   "}, .sums_offset_bytes = %" PRIu64 ", .sum_flags = %u",
                   pack->sum_count, pack->sum_factors[0], pack->sum_factors[1],
                   pack->sums_offset_bytes, pack->sum_flags);
}

static void put_layout(struct ul_text *text, const struct ul_pack *pack)
{
    ul_text_printf(text, "{.rank = %u, ", pack->rank);
    put_ints(text, "dims", pack->dims, pack->rank);
    ul_text_put(text, ", ");
    put_ints(text, "strides", pack->strides, pack->rank);
    if (pack->block_count > 0) {
        ul_text_printf(text, ", .block_count = %u, .block_dims = {", pack->block_count);
        for (uint32_t b = 0; b < pack->block_count; b++)
            ul_text_printf(text, "%s%u", b == 0 ? "" : ", ", pack->block_dims[b]);
        ul_text_put(text, "}, ");
        put_ints(text, "blocks", pack->blocks, pack->block_count);
    }
    ul_text_printf(text, ", .size_bytes = %" PRIu64 ", .element_bytes = %u%s", pack->size_bytes,
                   pack->element_bytes, pack->winograd != 0 ? ", .winograd = 1" : "");
    put_sums(text, pack);
    ul_text_put(text, "}");
}

static void put_float(struct ul_text *text, const char *field, float number)
{
    if (number == 0)
        return;
    if (isinf(number))
        ul_text_printf(text, ", .%s = %sINFINITY", field, number < 0 ? "-" : "");
    else
        ul_text_printf(text, ", .%s = %.9ef", field, (double)number);
}

static const char *post_name(enum ul_post_kind kind)
{
    static const char *const names[] = {
        [UL_POST_RELU] = "UL_POST_RELU",         [UL_POST_CLIP] = "UL_POST_CLIP",
        [UL_POST_GELU_ERF] = "UL_POST_GELU_ERF", [UL_POST_GELU_TANH] = "UL_POST_GELU_TANH",
        [UL_POST_SWISH] = "UL_POST_SWISH",       [UL_POST_HARD_SWISH] = "UL_POST_HARD_SWISH",
        [UL_POST_LOGISTIC] = "UL_POST_LOGISTIC", [UL_POST_TANH] = "UL_POST_TANH",
        [UL_POST_ELU] = "UL_POST_ELU",           [UL_POST_LINEAR] = "UL_POST_LINEAR",
        [UL_POST_ROUND] = "UL_POST_ROUND",       [UL_POST_SUM] = "UL_POST_SUM",
        [UL_POST_ADD] = "UL_POST_ADD",           [UL_POST_SUB] = "UL_POST_SUB",
        [UL_POST_MUL] = "UL_POST_MUL",           [UL_POST_DIV] = "UL_POST_DIV",
        [UL_POST_MAX] = "UL_POST_MAX",           [UL_POST_MIN] = "UL_POST_MIN"};
    return names[kind];
}

static void put_posts(struct ul_text *text, const struct ul_call *call)
{
    if (call->post_count == 0)
        return;
    ul_text_printf(text, "     .post_count = %u,\n", call->post_count);
    if (call->tail_count > 0)
        ul_text_printf(text, "     .tail_count = %u,\n", call->tail_count);
    ul_text_put(text, "     .posts = {\n");
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_post *post = &call->posts[i];
        ul_text_printf(text, "     {.kind = %s", post_name(post->kind));
        put_float(text, "alpha", post->alpha);
        put_float(text, "beta", post->beta);
        ul_text_put(text, ",\n");
        put_tensor(text, "tensor", &post->tensor);
        ul_text_put(text, "     },\n");
    }
    ul_text_put(text, "     },\n");
}

static const char *kind_name(enum ul_call_kind kind)
{
    static const char *const names[] = {[UL_CALL_CONVOLUTION] = "UL_CALL_CONVOLUTION",
                                        [UL_CALL_DECONVOLUTION] = "UL_CALL_DECONVOLUTION",
                                        [UL_CALL_WEIGHT_GRADIENT] = "UL_CALL_WEIGHT_GRADIENT",
                                        [UL_CALL_ATTENTION] = "UL_CALL_ATTENTION",
                                        [UL_CALL_ATTENTION_GRADIENT] = "UL_CALL_ATTENTION_GRADIENT",
                                        [UL_CALL_MATMUL] = "UL_CALL_MATMUL",
                                        [UL_CALL_NBITS] = "UL_CALL_NBITS",
                                        [UL_CALL_MEAN_POOL] = "UL_CALL_MEAN_POOL",
                                        [UL_CALL_PADDED_MEAN_POOL] = "UL_CALL_PADDED_MEAN_POOL"};
    return names[kind];
}

static bool is_attention(const struct ul_call *call)
{
    return call->kind == UL_CALL_ATTENTION || call->kind == UL_CALL_ATTENTION_GRADIENT;
}

static void put_window(struct ul_text *text, const struct ul_call *call)
{
    uint32_t axes = call->src.rank - 2;
    bool is_matrix = call->kind == UL_CALL_NBITS && !ul_nbits_is_window(call);
    if (call->kind == UL_CALL_MATMUL || is_matrix || is_attention(call))
        return;
    if (call->group_count > 0)
        ul_text_printf(text, "     .group_count = %u,", call->group_count);
    ul_text_put(text, "     ");
    put_ints(text, "window", call->window, axes);
    ul_text_put(text, ", ");
    put_ints(text, "steps", call->steps, axes);
    ul_text_put(text, ", ");
    put_ints(text, "dilations", call->dilations, axes);
    ul_text_put(text, ", ");
    put_ints(text, "pads", call->pads, 2 * axes);
    ul_text_put(text, ",\n");
}

/* Where the scales are, one for each channel. */
static void put_scales(struct ul_emitter *emitter, const struct ul_call *call)
{
    const struct ul_graph *graph = emitter->program->graph;
    ul_value_id value = call->scales_value - 1;
    if (call->scale_count == 0)
        return;
    UL_ASSERT(value < graph->value_count);
    const struct ul_view *view = &graph->values[value].view;
    struct ul_emit_place place = ul_emit_value_place(emitter, view->base, 0);
    uint64_t offset = place.offset_bytes + (uint64_t)view->offset_bytes;
    ul_text_printf(emitter->text, ",\n     .scale_count = %" PRId64, call->scale_count);
    if (place.space == UL_EMIT_ROM)
        ul_text_printf(emitter->text, ", .scales = %s_rom + %" PRIu64, emitter->options->prefix,
                       offset);
    else
        ul_text_printf(emitter->text, ", .scales_offset_bytes = %" PRIu64, offset);
    UL_ASSERT(place.space == UL_EMIT_ARENA || place.space == UL_EMIT_ROM);
}

/* Scale and zeros of a product of integers. */
static void put_numbers(struct ul_emitter *emitter, const struct ul_call *call)
{
    struct ul_text *text = emitter->text;
    static const char *const kinds[] = {[UL_ZERO_IS_0] = "UL_ZERO_IS_0",
                                        [UL_ZERO_FIXED] = "UL_ZERO_FIXED",
                                        [UL_ZERO_PADDING] = "UL_ZERO_PADDING",
                                        [UL_ZERO_ARG] = "UL_ZERO_ARG"};
    if (!ul_call_is_integer(call))
        return;
    ul_text_printf(text, "     .src_zero_kind = %s, .src_zero = %" PRId32 ", .dst_zero = %" PRId32,
                   kinds[call->src_zero_kind], call->src_zero, call->dst_zero);
    put_float(text, "scale", call->scale);
    put_scales(emitter, call);
    ul_text_put(text, ",\n");
}

static void put_nbits(struct ul_text *text, const struct ul_call_nbits *nbits)
{
    static const char *const zeros[] = {[UL_NBITS_FIXED] = "UL_NBITS_FIXED",
                                        [UL_NBITS_PACKED] = "UL_NBITS_PACKED",
                                        [UL_NBITS_FLOATS] = "UL_NBITS_FLOATS"};
    if (nbits->bits == 0)
        return;
    ul_text_printf(text,
                   "     .nbits = {.bits = %u, .code_type = %s, .block = %" PRId64
                   ", .zero = %u, .zeros = %s, .scale_type = %s, .by_bytes = %u"
                   ", .turned = %u",
                   nbits->bits, type_name(nbits->code_type), nbits->block, nbits->zero,
                   zeros[nbits->zeros], type_name(nbits->scale_type), nbits->by_bytes,
                   nbits->turned);
    put_float(text, "scale", nbits->scale);
    ul_text_put(text, "},\n");
}

static void put_attention(struct ul_text *text, const struct ul_call *call)
{
    const struct ul_call_attention *attention = &call->attention;
    if (!is_attention(call))
        return;
    ul_text_put(text, "     .attention = {\n");
    put_tensor(text, "values", &attention->values);
    if (attention->mask_count > 0)
        put_tensor(text, "masks[0]", &attention->masks[0]);
    if (attention->mask_count > 1)
        put_tensor(text, "masks[1]", &attention->masks[1]);
    put_tensor(text, "norms", &attention->norms);
    put_tensor(text, "result", &attention->result);
    put_tensor(text, "gradient", &attention->gradient);
    put_tensor(text, "key_gradient", &attention->key_gradient);
    put_tensor(text, "value_gradient", &attention->value_gradient);
    ul_text_printf(text, "     .mask_count = %u, .is_causal = %u", attention->mask_count,
                   attention->is_causal);
    put_float(text, "scale", attention->scale);
    ul_text_put(text, "},\n");
}

static void put_call(struct ul_emitter *emitter, const struct ul_call *call)
{
    struct ul_text *text = emitter->text;
    ul_text_printf(text, "    {.kind = %s,\n", kind_name(call->kind));
    put_tensor(text, "src", &call->src);
    put_tensor(text, "weights", &call->weights);
    put_tensor(text, "bias", &call->bias);
    put_tensor(text, "dst", &call->dst);
    if (call->pack != NULL)
        ul_text_printf(text, "     .pack = &packs[%u],\n", ul_emit_pack_index(emitter, call->pack));
    if (call->pack != NULL || ul_call_layout_bytes(call) != 0) {
        ul_text_put(text, "     .layout = ");
        put_layout(text, &call->layout);
        ul_text_put(text, ",\n");
    }
    put_window(text, call);
    put_nbits(text, &call->nbits);
    put_attention(text, call);
    if (call->tile_begin[0] != 0 || call->tile_begin[1] != 0) {
        ul_text_put(text, "     ");
        put_ints(text, "tile_begin", call->tile_begin, 2);
        ul_text_put(text, ",\n");
    }
    put_numbers(emitter, call);
    put_posts(text, call);
    if (call->align_bytes != 0)
        ul_text_printf(text, "     .align_bytes = %u, .tf32 = %u,\n", call->align_bytes,
                       call->tf32);
    if (call->accumulates != 0)
        ul_text_put(text, "     .accumulates = 1,\n");
    if (call->sums_of != UL_SUMS_OF_NONE)
        ul_text_printf(text, "     .sums_of = %s,\n",
                       call->sums_of == UL_SUMS_OF_SRC ? "UL_SUMS_OF_SRC" : "UL_SUMS_OF_WEIGHTS");
    if (call->slopes_of != UL_SLOPES_OF_NONE)
        ul_text_printf(text, "     .slopes_of = %s,\n",
                       call->slopes_of == UL_SLOPES_OF_GELU ? "UL_SLOPES_OF_GELU"
                                                            : "UL_SLOPES_OF_RELU");
    ul_text_put(text, "     .implementation = ");
    ul_emit_string(text, call->implementation);
    ul_text_printf(text,
                   ",\n     .src_copy_bytes = %" PRIu64 ", .dst_copy_bytes = %" PRIu64
                   ", .scratch_bytes = %" PRIu64,
                   call->src_copy_bytes, call->dst_copy_bytes, call->scratch_bytes);
    if (call->weights_copy_bytes != 0)
        ul_text_printf(text, ", .weights_copy_bytes = %" PRIu64, call->weights_copy_bytes);
    ul_text_put(text, "},\n");
}

uint32_t ul_emit_pack_index(struct ul_emitter *emitter, const struct ul_pack *pack)
{
    for (uint32_t i = 0; i < emitter->pack_count; i++) {
        if (memcmp(emitter->packs[i], pack, sizeof *pack) == 0)
            return i;
    }
    UL_GROW(emitter->arena, emitter->packs, emitter->pack_count, emitter->pack_capacity);
    emitter->packs[emitter->pack_count] = pack;
    return emitter->pack_count++;
}

static void put_packs(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (emitter->call_numbers[i] != UL_NONE && program->calls[i].call->pack != NULL)
            (void)ul_emit_pack_index(emitter, program->calls[i].call->pack);
    }
    if (emitter->pack_count == 0)
        return;
    ul_text_put(emitter->text, "static const struct ul_pack packs[] = {\n");
    for (uint32_t i = 0; i < emitter->pack_count; i++) {
        ul_text_put(emitter->text, "    ");
        put_layout(emitter->text, emitter->packs[i]);
        ul_text_put(emitter->text, ",\n");
    }
    ul_text_put(emitter->text, "};\n");
}

/* ---- libraries ---- */

/* Whether some call of the library wants the file; NULL: whether there is any. */
static bool is_wanted(const struct ul_emitter *emitter, const struct ul_target_library *library,
                      const struct ul_library_file *file)
{
    bool found = false;
    for (uint32_t i = 0; i < emitter->program->call_count; i++) {
        const struct ul_program_call *call = &emitter->program->calls[i];
        found = found || (emitter->call_numbers[i] != UL_NONE && call->library == library &&
                          (file == NULL || file->is_wanted == NULL || file->is_wanted(call->call)));
    }
    return found;
}

bool ul_emit_uses(const struct ul_emitter *emitter, const struct ul_target_library *library)
{
    return is_wanted(emitter, library, NULL);
}

/* The library's file of that name, or NULL. */
static const struct ul_library_file *find_file(const struct ul_target_library *library,
                                               const char *name)
{
    const struct ul_library_file *file = library->files;
    while (file->name != NULL && strcmp(file->name, name) != 0)
        file++;
    return file->name != NULL ? file : NULL;
}

/* The target says whose a file is: a program may have no library open. */
bool ul_emit_takes_file(const struct ul_emitter *emitter, const char *name)
{
    const struct ul_program_options *options = &emitter->program->options;
    const struct ul_target_library *const *all = options->target->libraries;
    const struct ul_libraries *libraries = options->libraries;
    bool is_listed = false, is_taken = false;
    for (uint32_t i = 0; all != NULL && all[i] != NULL; i++)
        is_listed = is_listed || find_file(all[i], name) != NULL;
    for (uint32_t i = 0; is_listed && libraries != NULL && i < libraries->count; i++) {
        const struct ul_library_file *file = find_file(&libraries->rows[i], name);
        is_taken = is_taken || (file != NULL && is_wanted(emitter, &libraries->rows[i], file));
    }
    return is_taken || !is_listed;
}

const char *ul_emit_library_files(const struct ul_emitter *emitter, bool native)
{
    const struct ul_libraries *libraries = emitter->program->options.libraries;
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    for (uint32_t i = 0; libraries != NULL && i < libraries->count; i++) {
        const struct ul_target_library *library = &libraries->rows[i];
        for (const struct ul_library_file *file = library->files; file->name != NULL; file++)
            if (file->is_native == native && is_wanted(emitter, library, file) &&
                strstr(text.data, file->name) == NULL)
                ul_text_printf(&text, " %s", file->name);
    }
    return text.data;
}

bool ul_emit_sets_up(const struct ul_emitter *emitter, const struct ul_target_library *library)
{
    return !library->is_own && ul_emit_uses(emitter, library);
}

uint32_t ul_emit_library_number(const struct ul_emitter *emitter,
                                const struct ul_target_library *library)
{
    const struct ul_libraries *libraries = emitter->program->options.libraries;
    uint32_t number = 0;
    for (uint32_t i = 0; libraries != NULL && i < libraries->count; i++) {
        if (&libraries->rows[i] == library)
            break;
        number += ul_emit_sets_up(emitter, &libraries->rows[i]);
    }
    return number;
}

const char *ul_emit_packer(const struct ul_emitter *emitter)
{
    const struct ul_libraries *libraries = emitter->program->options.libraries;
    const char *packer = NULL;
    for (uint32_t i = 0; libraries != NULL && i < libraries->count; i++) {
        const struct ul_target_library *library = &libraries->rows[i];
        if (library->packer == NULL || !ul_emit_uses(emitter, library))
            continue;
        UL_ASSERT(packer == NULL); /* each packs what is not its own as most do */
        packer = library->packer;
    }
    return packer != NULL ? packer : "ul_packer_take";
}

void ul_emit_calls(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    if (emitter->call_count == 0)
        return;
    put_packs(emitter);
    ul_text_put(emitter->text, "static const struct ul_call calls[] = {\n");
    for (uint32_t i = 0; i < emitter->call_count; i++)
        put_call(emitter, program->calls[emitter->calls[i]].call);
    ul_text_put(emitter->text, "};\n");
    emitter->language->put_libraries(emitter);
}

/* ---- steps ---- */

uint32_t ul_emit_call_number(const struct ul_emitter *emitter, const struct ul_program_step *step)
{
    UL_ASSERT(step->kind == UL_STEP_CALL && emitter->call_numbers[step->kernel] != UL_NONE);
    return emitter->call_numbers[step->kernel];
}

void ul_emit_find_functions(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    const struct ul_libraries *libraries = program->options.libraries;
    uint32_t *numbers = UL_NEW_ARRAY(emitter->arena, uint32_t, program->call_count);
    bool *runs = UL_NEW_ARRAY(emitter->arena, bool, program->call_count);
    emitter->runs_kernel = UL_NEW_ARRAY(emitter->arena, bool, program->kernel_count);
    ul_program_mark_run(program, emitter->plan, emitter->runs_kernel, runs);
    emitter->call_count = 0;
    emitter->call_numbers = numbers;
    emitter->calls = UL_NEW_ARRAY(emitter->arena, uint32_t, program->call_count);
    for (uint32_t i = 0; i < program->call_count; i++)
        numbers[i] = UL_NONE;
    for (uint32_t k = 0; libraries != NULL && k < libraries->count; k++) {
        for (uint32_t i = 0; i < program->call_count; i++) {
            if (!runs[i] || program->calls[i].library != &libraries->rows[k])
                continue;
            numbers[i] = emitter->call_count++;
            emitter->calls[numbers[i]] = i;
        }
    }
}

void ul_emit_call_args(struct ul_emitter *emitter, const struct ul_program_step *step,
                       uint32_t count, uint32_t position)
{
    ul_text_put(emitter->text, "const void *const args[] = {");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(emitter->text, i == 0 ? "" : ", ");
        if (step->args[i].place == UL_PLAN_NONE)
            ul_text_put(emitter->text, "NULL");
        else
            ul_emit_address(emitter, &step->args[i], position);
    }
    ul_text_put(emitter->text, "};\n");
}

void ul_emit_call_scratch(struct ul_emitter *emitter, const struct ul_program_step *step,
                          uint32_t position)
{
    if (emitter->program->calls[step->kernel].call->scratch_bytes > 0)
        ul_emit_scratch(emitter, position);
    else
        ul_text_put(emitter->text, "NULL");
}
