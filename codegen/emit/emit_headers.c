/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the headers of the runtime that a generated source includes: those whose words its code
 * has.
 *
 *     text        k0(...) { ... ul_block_f32(t_sums, ...); }
 *     row         "ul_contract.h"  ul_block_ ...
 *     included    #include "ul_contract.h"
 *
 * A part of the runtime that some programs do not need is a header with a row here; headers that
 * all programs include do not include it. Headers that these include are found when they are copied
 * (emit_files.c). */
#include "codegen/emit/emit_internal.h"

#include <ctype.h>
#include <string.h>

/* `words`, separated by blanks, are the beginnings of the header's names, including all its
 * functions (tests/tidy/headers.py). Headers are included in this order. */
static const struct row {
    const char *header, *words;
    enum { OF_ALL, OF_HOST, OF_DEVICE } whose; /* sources: in C, in CUDA C++ */
} rows[] = {
    {"ul_threads.h", "UL_PARALLEL ul_share ul_team ul_thread", OF_HOST},
    {"ul_kernel.h", "UL_KERNEL UL_STEP UL_AT ul_index ul_bound ul_count ul_fault_note", OF_HOST},
    {"ul_team.cuh", "ul_", OF_DEVICE}, /* used by all kernels */
    {"ul_contract.h",
     "ul_run( ul_clip_run ul_tile_ ul_block_ ul_pack_ ul_add_rows_ ul_add_four_ ul_taps_ ul_dot_ "
     "ul_dots_ ul_four_dots_",
     OF_HOST},
    {"ul_contract_int.h",
     "ul_block_u8 ul_block_i8 ul_block_i16 ul_add_rows_u8 ul_add_rows_i8 ul_dot_u8 ul_dot_i8 "
     "ul_dots_u8 ul_dots_i8 ul_taps_u8 ul_taps_i8 ul_pack_u8 ul_pack_line ul_pack_int_ "
     "ul_pack_even_u8 ul_pack_across_u8 ul_pack_inside_ ul_copy_u8 ul_weave_ ul_unpack_ "
     "ul_close_rows_ ul_int_ ul_iv_",
     OF_HOST},
    {"ul_lookup.h", "ul_lookup_", OF_HOST},
    {"ul_integer.h",
     "ul_few_ ul_add_i ul_add_u ul_sub_ ul_mul_ ul_min_i ul_min_u ul_max_i ul_max_u ul_ipow_ "
     "ul_neg_ ul_abs_ ul_div_ ul_fmod_ ul_mod_i ul_mod_u ul_floor_div_ ul_pow_ ul_shl_ ul_shr_ "
     "ul_f32_to_i ul_f32_to_u ul_f32_to_bool ul_f64_to_i ul_f64_to_u ul_f64_to_bool ul_quantize_",
     OF_ALL},
    {"ul_small_float.h",
     "ul_f64_to_f ul_f64_to_bf16 ul_f32_to_f ul_f32_to_bf16 ul_f16_ ul_bf16_ ul_f8 ul_f4 ul_f6e",
     OF_ALL},
    {"ul_random.h", "ul_random_", OF_ALL},
    {"ul_attention.cuh", "ul_attend_", OF_DEVICE},
    {"ul_attention_gradient.cuh", "ul_gradient_", OF_DEVICE},
    {"ul_contract_bytes.cuh",
     "ul_byte ul_reading_bytes ul_words_ ul_contract_words ul_contract_tile_bytes "
     "ul_contract_dot_bytes ul_contract_team_bytes ul_contract_mma_words ul_contract_mma_bytes "
     "ul_mma_bytes",
     OF_DEVICE},
    {"ul_last.cuh", "ul_arrive ul_is_last ul_item_of_group", OF_DEVICE},
    {"ul_together.cuh", "ul_acquire ul_release ul_meet ul_hold ul_held", OF_DEVICE},
    {"ul_cuda_library.h", "ul_cublas_ ul_cudnn_", OF_DEVICE},
    {"ul_call.h", "ul_call ul_library_adds_exactly ul_library_refuses ul_post_is_ours", OF_HOST},
    {"ul_library.h",
     "ul_library_init ul_library_done ul_library_ready ul_library_run ul_library_implementation "
     "ul_library_heap_bytes",
     OF_HOST},
    {"ul_nbits.h", "ul_nbits_", OF_HOST},
    {"ul_winograd.h", "ul_winograd_", OF_HOST},
    {"ul_posts.h", "ul_post_apply ul_posts_", OF_HOST},
    {"ul_pack.h", "ul_packer_", OF_HOST},
    {"ul_winograd_pack.h", "ul_winograd_packer_", OF_HOST},
    {"ul_offload.h", "ul_offload_", OF_HOST},
    {"ul_weights.h",
     "ul_hash_ ul_weights_gap ul_weights_read ul_weights_find ul_weights_next ul_weights_pass "
     "ul_weights_copy ul_weights_pack ul_weights_offload ul_weights_place ul_weights_section "
     "ul_weights_load ul_weights_fill",
     OF_HOST},
    {"ul_run.h",
     "ul_run_ ul_bank ul_at UL_ISA_COMPILED ul_size_has ul_sizes_ ul_layout_ ul_model_at "
     "ul_tensor_set_dims",
     OF_HOST},
    {"ul_device.h", "ul_device ul_cuda_functions", OF_HOST},
    {"ul_train.h", "ul_train_", OF_HOST},
    {"ul_train_device.h", "ul_train_device_", OF_HOST},
    {"ul_binding.h",
     "ul_fault_text ul_failure_ ul_isa_ ul_inside ul_binding_release ul_binding_read "
     "ul_binding_check ul_binding_offload_bytes ul_binding_has_room",
     OF_HOST},
    {"ul_binding_train.h",
     "ul_binding_file ul_binding_write ul_binding_fetch ul_binding_save "
     "ul_binding_load ul_binding_parameter",
     OF_HOST},
};

/* Whether a name in the text begins with the word. */
static bool says_word(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        if (at == text || !ul_scan_in_name(at[-1]))
            return true;
    }
    return false;
}

static bool says(struct ul_arena *arena, const char *text, const char *words)
{
    while (*words != '\0') {
        size_t length = strcspn(words, " ");
        if (says_word(text, ul_arena_printf(arena, "%.*s", (int)length, words)))
            return true;
        words += length + (words[length] == ' ' ? 1 : 0);
    }
    return false;
}

/* The text without strings and comments, which have the model's own names. */
static const char *code_of(struct ul_arena *arena, const char *text)
{
    char *code = ul_arena_copy_string(arena, text);
    for (char *at = code; *at != '\0'; at++) {
        const char *end = *at == '"' ? "\"" : strncmp(at, "/*", 2) == 0 ? "*/" : NULL;
        if (end == NULL)
            continue;
        for (at += strlen(end); *at != '\0' && strncmp(at, end, strlen(end)) != 0; at++) {
            if (*end == '"' && *at == '\\' && at[1] != '\0')
                *at++ = ' ';
            *at = ' ';
        }
        UL_ASSERT(*at != '\0'); /* generated text ends both */
    }
    return code;
}

void ul_emit_includes(struct ul_emitter *emitter, const char *body, bool is_device)
{
    const char *code = code_of(emitter->arena, body);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].whose != (is_device ? OF_HOST : OF_DEVICE) &&
            says(emitter->arena, code, rows[i].words))
            ul_text_printf(emitter->text, "#include \"%s\"\n", rows[i].header);
    }
}

const char *ul_emit_body(struct ul_emitter *emitter, void (*put)(struct ul_emitter *))
{
    struct ul_text body, *text = emitter->text;
    ul_text_init(&body, emitter->arena);
    emitter->text = &body;
    put(emitter);
    emitter->text = text;
    return body.length > 0 ? body.data : "";
}
