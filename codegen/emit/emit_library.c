/* SPDX-License-Identifier: Apache-2.0 */
/* The functions by which a library describes itself, to callers in any language: a row for each
 * function, declared in model.h and defined in library.c. */
#include "codegen/emit/emit_internal.h"
#include "codegen/program/weights_file.h"

#include <inttypes.h>
#include <string.h>

/* Which programs have a row, and whether it belongs to a root or to the program; on the host, with
 * or without values that leave the arena. */
enum whose { OF_ALL, OF_ROOT, OF_SIZED, OF_TRAINING, OF_HOST, OF_OFFLOAD, OF_DEVICE };

/* fill() replaces words in braces. */
struct row {
    enum whose whose;
    const char *result, *name, *arguments;
    const char *body; /* statements */
    const char *comment;
};

static const struct row rows[] = {
    {OF_ALL, "const char *", "compiler", "void", "return {m}.compiler;",
     "/* ---- asked, and run by name: as a shared library, or from another language ----\n"
     " * library.c defines them. Strings, dims and weights are the library's; what has no such\n"
     " * number is NULL or 0. */\n\n"
     "/* Who made it, for what, from which bytes (SHA-256 in hex). */\n"},
    {OF_ALL, "const char *", "target", "void", "return {m}.target;", ""},
    {OF_ALL, "const char *", "model_sha256", "void", "return \"{model sha256}\";", ""},
    {OF_ALL, "const char *", "plan_sha256", "void", "return \"{plan sha256}\";", ""},
    {OF_ALL, "uint64_t", "arena_bytes", "void", "return {m}.arena_bytes;",
     "\n/* The arena, what {p}_begin wants beside it for values that leave it, the stack of a\n"
     " * call, the file of weights, how many threads the plan is for. Values that leave the arena\n"
     " * of a device lie in page-locked memory of the host, which {p}_begin takes itself. */\n"},
    {OF_ALL, "uint64_t", "arena_align", "void", "return {m}.arena_align;", ""},
    {OF_ALL, "uint64_t", "offload_bytes", "void", "return ul_binding_offload_bytes(&{m});", ""},
    {OF_ALL, "uint64_t", "page_locked_bytes", "void",
     "return {m}.device != NULL ? {m}.offload_bytes : 0;", ""},
    {OF_ALL, "uint64_t", "stack_bytes", "void", "return UINT64_C({stack bytes});", ""},
    {OF_ALL, "uint64_t", "weights_bytes", "void", "return UINT64_C({weights bytes});", ""},
    {OF_ALL, "uint32_t", "thread_count", "void",
     "return {m}.thread_count != 0 ? {m}.thread_count : 1;", ""},
    {OF_ROOT, "uint32_t", "input_count", "void", "return {m}.input_count;",
     "\n/* Inputs and outputs by number. A type is that of ONNX's TensorProto.DataType; a space "
     "is\n"
     " * an enum ul_space: where the bytes lie while it runs, at an offset of the arena, or in "
     "the\n"
     " * caller's buffer, which then may not be NULL. `donated` as in struct ul_rt_tensor. */\n"},
    {OF_ROOT, "uint32_t", "output_count", "void", "return {m}.output_count;", ""},
    {OF_SIZED, "uint32_t", "size_count", "void", "return {m}.size_count;",
     "\n/* The sizes that {p}_run takes, in the order of struct {p}_sizes. Dims and bytes of "
     "inputs\n"
     " * and outputs are those of the largest. */\n"},
    {OF_SIZED, "const char *", "size_name", "uint32_t number",
     "return number < {m}.size_count ? {m}.sizes[number].name : NULL;", ""},
    {OF_SIZED, "int64_t", "size_low", "uint32_t number",
     "return number < {m}.size_count ? {m}.sizes[number].low : 0;", ""},
    {OF_SIZED, "int64_t", "size_high", "uint32_t number",
     "return number < {m}.size_count ? {m}.sizes[number].high : 0;", ""},
    {OF_SIZED, "int64_t", "size_step", "uint32_t number",
     "return number < {m}.size_count ? {m}.sizes[number].step : 0;", ""},
    {OF_SIZED, "uint32_t", "size_value_count", "uint32_t number",
     "return number < {m}.size_count ? {m}.sizes[number].value_count : 0;",
     "/* The values of one that has a set of them; a range has none. */\n"},
    {OF_SIZED, "int64_t", "size_value", "uint32_t number, uint32_t value",
     "return number < {m}.size_count && value < {m}.sizes[number].value_count\n"
     "               ? {m}.sizes[number].values[value] : 0;",
     ""},
};

/* For inputs, outputs and parameters, by number. */
static const struct field {
    const char *result, *name, *of, *otherwise;
    bool of_tensors, of_parameters;
} fields[] = {
    {"const char *", "name", "name", "NULL", true, true},
    {"int32_t", "type", "type", "0", true, true},
    {"uint32_t", "rank", "rank", "0", true, true},
    {"const int64_t *", "dims", "dims", "NULL", true, true},
    {"uint64_t", "bytes", "size_bytes", "0", true, true},
    {"int32_t", "space", "space", "0", true, true},
    {"uint64_t", "offset_bytes", "offset_bytes", "0", true, true},
    {"uint32_t", "donated", "donated", "0", true, false},
    {"int32_t", "storage", "storage", "0", false, true},
    {"uint32_t", "facts", "facts", "0", false, true},
};

#define BEGIN_ARGUMENTS                                                                            \
    "void **handle, void *arena, size_t arena_bytes, void *offload,\n"                             \
    "    size_t offload_bytes, const struct ul_weights_source *weights,\n"                         \
    "    struct ul_failure *failure"
#define BEGIN_COMMENT                                                                              \
    "\n/* Makes an arena ready, the same on every target: {p}_arena_bytes() at a multiple of\n"    \
    " * {p}_arena_align(), on a device memory there or NULL, which takes it there; `offload`:\n"   \
    " * {p}_offload_bytes() at a multiple of 64, the arena's until {p}_end. Weights NULL:\n"       \
    " * those of {p}_weights(). *handle is what all functions take in place of the arena or\n"     \
    " * context. UL_PROCESSOR_LACKS: compiled for another processor. */\n"
#define END_HOST "if (handle != NULL)\n        {p}_done(handle);"
#define END_COMMENT "/* Gives back what that took; once, for each that succeeded. */\n"
#define NO_STREAM "(void)handle;\n    return NULL;"
#define STREAM_COMMENT                                                                             \
    "/* On a device the stream of its runs, a cudaStream_t: they wait for what is enqueued there " \
    "in\n * front of them. NULL: there is none. */\n"

static const struct row calls[] = {
    {OF_ALL, "const char *", "result_text", "int result",
     "return ul_result_text((enum ul_result)result);",
     "\n/* What an enum ul_result means, and what a failure was, in one line of at most `bytes` "
     "with\n"
     " * its 0: the length of the whole, as snprintf. A failure takes {p}_failure_bytes(). */\n"},
    {OF_ALL, "size_t", "failure_bytes", "void", "return sizeof(struct ul_failure);", ""},
    {OF_ROOT, "int", "failure_text", "const struct ul_failure *failure, char *text, size_t bytes",
     "return ul_failure_text(text, bytes, &{m}, failure);", ""},
    {OF_ALL, "const struct ul_weights_source *", "weights", "void", "return {weights};",
     "\n/* The weights that lie in the library; NULL: none do. */\n"},
    {OF_HOST, "int", "begin", BEGIN_ARGUMENTS,
     "int result = (int)ul_binding_check(&{m}, handle, failure);\n"
     "    (void)offload;\n    (void)offload_bytes;\n"
     "    if (result == UL_OK)\n"
     "        result = {p}_init({buffers}, weights != NULL ? weights : {weights}, failure);\n"
     "    if (result == UL_OK)\n        *handle = arena;\n    return result;",
     BEGIN_COMMENT},
    {OF_OFFLOAD, "int", "begin", BEGIN_ARGUMENTS,
     "unsigned char *there = (unsigned char *)offload;\n"
     "    struct ul_offload *head = (struct ul_offload *)offload;\n"
     "    int result = (int)ul_binding_check(&{m}, handle, failure);\n"
     "    if (result == UL_OK)\n"
     "        result = (int)ul_binding_has_room(&{m}, offload, offload_bytes, failure);\n"
     "    if (result != UL_OK)\n        return result;\n"
     "    ul_offload_memory(head, there + UL_BINDING_HEAD_BYTES, {m}.offload_bytes);\n"
     "    result = {p}_init(arena, arena_bytes, head, weights != NULL ? weights : {weights}, "
     "failure);\n"
     "    if (result == UL_OK)\n        *handle = arena;\n    return result;",
     BEGIN_COMMENT},
    {OF_DEVICE, "int", "begin", BEGIN_ARGUMENTS,
     "struct ul_context *context = NULL;\n"
     "    int result = (int)ul_binding_check(&{m}, handle, failure);\n"
     "    (void)offload;\n    (void)offload_bytes;\n"
     "    if (result == UL_OK)\n"
     "        result = {p}_open(&context, arena, arena_bytes, NULL,\n"
     "                          weights != NULL ? weights : {weights}, failure);\n"
     "    *handle = context;\n    return result;",
     BEGIN_COMMENT},
    {OF_HOST, "void", "end", "void *handle", END_HOST, END_COMMENT},
    {OF_OFFLOAD, "void", "end", "void *handle", END_HOST, END_COMMENT},
    {OF_DEVICE, "void", "end", "void *handle", "{p}_close((struct ul_context *)handle);",
     END_COMMENT},
    {OF_HOST, "void *", "stream", "const void *handle", NO_STREAM, STREAM_COMMENT},
    {OF_OFFLOAD, "void *", "stream", "const void *handle", NO_STREAM, STREAM_COMMENT},
    {OF_DEVICE, "void *", "stream", "const void *handle",
     "const struct ul_device_functions *functions = {m}.device->functions;\n"
     "    return handle != NULL ? functions->stream((const struct ul_context *)handle) : NULL;",
     STREAM_COMMENT},
    {OF_TRAINING, "uint64_t", "checkpoint_bytes", "void",
     "return UL_TRAIN_HEAD_BYTES + ul_train_bytes(&{m});",
     "\n/* Training: {p}_save's file, struct ul_trainer; what is optimized and how; samples in a\n"
     " * run, runs in a step; numbers of inputs and outputs, UINT32_MAX: there is none. */\n"},
    {OF_TRAINING, "size_t", "trainer_bytes", "void", "return sizeof(struct ul_trainer);", ""},
    {OF_TRAINING, "const char *", "loss", "void", "return {m}.training->loss;", ""},
    {OF_TRAINING, "const char *", "optimizer", "void", "return {m}.training->optimizer;", ""},
    {OF_TRAINING, "double", "learning_rate", "void", "return {m}.training->learning_rate;", ""},
    {OF_TRAINING, "double", "lora_alpha", "void", "return {m}.training->lora_alpha;", ""},
    {OF_TRAINING, "const char *", "quantize", "void", "return {m}.training->quantize;", ""},
    {OF_TRAINING, "const char *", "frozen", "void", "return {m}.training->frozen;", ""},
    {OF_TRAINING, "uint32_t", "sample_count", "void", "return {m}.training->sample_count;", ""},
    {OF_TRAINING, "uint32_t", "micro_batches", "void", "return {m}.training->micro_batches;", ""},
    {OF_TRAINING, "uint32_t", "data_input", "void", "return {m}.training->data;", ""},
    {OF_TRAINING, "uint32_t", "labels_input", "void", "return {m}.training->labels;", ""},
    {OF_TRAINING, "uint32_t", "step_input", "void", "return {m}.training->step;", ""},
    {OF_TRAINING, "uint32_t", "loss_output", "void", "return {m}.training->loss_output;", ""},
    {OF_TRAINING, "uint32_t", "correct_output", "void", "return {m}.training->correct_output;", ""},
    {OF_TRAINING, "uint32_t", "class_count", "void", "return {m}.training->class_count;",
     "\n/* Labels are in [0, class_count) or the one that is ignored; 0: they are no classes. What "
     "a\n"
     " * label of a class weighs in a mean over several, 0 of none. */\n"},
    {OF_TRAINING, "int64_t", "ignore_index", "void", "return {m}.training->ignore_index;", ""},
    {OF_TRAINING, "double", "class_weight", "uint32_t number",
     "const double *weights = {m}.training->class_weights;\n"
     "    return number >= {m}.training->class_count ? 0 : weights != NULL ? weights[number] : 1;",
     ""},
    {OF_TRAINING, "uint64_t", "sample_at",
     "uint64_t seed, uint64_t epoch, uint64_t count,\n    uint64_t place",
     "return place < count ? ul_train_shuffled(seed, epoch, count, place) : count;",
     "\n/* Which of `count` samples comes at a place of an epoch, as trainers of the command line\n"
     " * shuffle them; count: there is no such place. */\n"},
    {OF_TRAINING, "uint32_t", "parameter_count", "void", "return {m}.training->parameter_count;",
     "\n/* What training changes, parameters and state, by number. `storage` is the type of its\n"
     " * elements where it lies, UL_TYPE_BF16 where f32 are kept so; `facts` are bits of enum\n"
     " * ul_rt_parameter_fact. */\n"},
};

static const struct row training_calls[] = {
    {OF_TRAINING, "int", "parameter_get",
     "void *handle, uint32_t number, void *bytes,\n    struct ul_failure *failure",
     "return (int)ul_binding_parameter(&{m}, handle, UL_OFFLOAD_LOAD, number, bytes, failure);",
     "\n/* All bytes of one, as they are stored, between updates: from its place and to it. */\n"},
    {OF_TRAINING, "int", "parameter_set",
     "void *handle, uint32_t number, const void *bytes,\n    struct ul_failure *failure",
     "return (int)ul_binding_parameter(&{m}, handle, UL_OFFLOAD_SAVE, number,\n"
     "                                     (void *)(uintptr_t)bytes, failure);",
     ""},
    {OF_TRAINING, "int", "save_to",
     "void *handle, const struct ul_trainer *trainer, void *bytes,\n"
     "    size_t size_bytes, struct ul_failure *failure",
     "return (int)ul_binding_save(&{m}, handle, trainer, bytes, size_bytes, failure);",
     "\n/* {p}_save and {p}_load over {p}_checkpoint_bytes() of memory. */\n"},
    {OF_TRAINING, "int", "load_from",
     "void *handle, struct ul_trainer *trainer, const void *bytes,\n"
     "    size_t size_bytes, struct ul_failure *failure",
     "return (int)ul_binding_load(&{m}, handle, trainer, bytes, size_bytes, failure);", ""},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

bool ul_emit_has_weights_inside(const struct ul_emitter *emitter)
{
    const struct ul_emit_options *options = emitter->options;
    return !emitter->program->options.weights_rom && !options->weights_beside &&
           emitter->payload_bytes > 0;
}

/* The bytes of the file: payload and trailer. */
static uint64_t weights_bytes(const struct ul_emitter *emitter)
{
    bool loads = !emitter->program->options.weights_rom && emitter->payload_bytes > 0;
    return loads ? emitter->payload_bytes + UL_FILE_TRAILER_BYTES : 0;
}

/* The arguments of {p}_init for the arena. Several memories lie in one block here. */
static const char *buffers_of(const struct ul_emitter *emitter)
{
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    ul_text_put(&text, "arena, arena_bytes");
    for (uint32_t b = 1; b < emitter->plan->bank_count; b++) {
        uint64_t begin = emitter->plan->banks[b].begin_bytes;
        ul_text_printf(&text,
                       ",\n            arena != NULL ? (unsigned char *)arena + %" PRIu64
                       " : NULL, arena_bytes > %" PRIu64 " ? arena_bytes - %" PRIu64 " : 0",
                       begin, begin, begin);
    }
    return text.data;
}

/* The form with its words in braces replaced. */
static void fill(const struct ul_emitter *emitter, struct ul_text *text, const char *form)
{
    const struct ul_emit_options *options = emitter->options;
    struct ul_arena *arena = emitter->arena;
    uint64_t library_bytes;
    bool on_host = emitter->language->runs_on_host;
    uint64_t stack_bytes =
        on_host ? ul_program_stack_bytes(emitter->program, emitter->plan, &library_bytes) : 0;
    const char *const words[][2] = {
        {"p", options->prefix},
        {"m", ul_emit_root_model(emitter)},
        {"model sha256", options->model_sha256},
        {"plan sha256", options->plan_sha256},
        {"stack bytes", ul_arena_printf(arena, "%" PRIu64, stack_bytes)},
        {"buffers", buffers_of(emitter)},
        {"weights bytes", ul_arena_printf(arena, "%" PRIu64, weights_bytes(emitter))},
        {"weights", ul_emit_has_weights_inside(emitter) ? "&inside" : "NULL"}};
    while (*form != '\0') {
        size_t length = strcspn(form, "{");
        ul_text_printf(text, "%.*s", (int)length, form);
        form += length;
        if (*form == '\0')
            break;
        size_t word = 0, name = strcspn(form, "}") - 1;
        while (word < COUNT(words) &&
               (strlen(words[word][0]) != name || memcmp(words[word][0], form + 1, name) != 0))
            word++;
        UL_ASSERT(word < COUNT(words));
        ul_text_put(text, words[word][1]);
        form += name + 2;
    }
}

static bool is_of(const struct ul_emitter *emitter, enum whose whose)
{
    bool on_host = emitter->language->runs_on_host, offloads = emitter->transfer_count > 0;
    switch (whose) {
    case OF_ALL:
    case OF_ROOT:
        return true;
    case OF_SIZED:
        return emitter->program->sized != NULL;
    case OF_TRAINING:
        return emitter->program->options.training != NULL;
    case OF_HOST:
        return on_host && !offloads;
    case OF_OFFLOAD:
        return on_host && offloads;
    case OF_DEVICE:
        return !on_host;
    }
    return false;
}

static void put_function(const struct ul_emitter *emitter, struct ul_text *text,
                         const struct row *row, bool defines)
{
    bool is_of_root = row->whose == OF_ROOT || row->whose == OF_SIZED;
    const char *prefix = is_of_root ? ul_emit_root_prefix(emitter) : emitter->options->prefix;
    enum ul_emit_part part = is_of_root ? UL_EMIT_ROOT : UL_EMIT_PROGRAM;
    if (!is_of(emitter, row->whose) || (emitter->part & part) == 0)
        return;
    if (!defines)
        fill(emitter, text, row->comment);
    bool is_pointer = row->result[strlen(row->result) - 1] == '*';
    ul_text_printf(text, "%s%s%s%s_%s(%s)", defines ? "\n" : "", row->result, is_pointer ? "" : " ",
                   prefix, row->name, row->arguments);
    if (!defines) {
        ul_text_put(text, ";\n");
        return;
    }
    ul_text_put(text, "\n{\n    ");
    fill(emitter, text, row->body);
    ul_text_put(text, "\n}\n");
}

static void put_rows(const struct ul_emitter *emitter, struct ul_text *text, const struct row *list,
                     size_t count, bool defines)
{
    for (size_t i = 0; i < count; i++)
        put_function(emitter, text, &list[i], defines);
}

/* Functions for the entries of `array`, a field of the model or of its training. */
static void put_fields(const struct ul_emitter *emitter, struct ul_text *text, const char *kind,
                       const char *array, bool defines)
{
    bool is_parameter = strcmp(kind, "parameter") == 0;
    for (size_t i = 0; i < COUNT(fields); i++) {
        const struct field *field = &fields[i];
        bool is_type = strcmp(field->result, "int32_t") == 0;
        struct row row = {
            is_parameter ? OF_TRAINING : OF_ROOT,
            field->result,
            ul_arena_printf(emitter->arena, "%s_%s", kind, field->name),
            "uint32_t number",
            ul_arena_printf(emitter->arena,
                            "return number < {m}.%s_count ? %s{m}.%ss[number].%s : %s;", array,
                            is_type ? "(int32_t)" : "", array, field->of, field->otherwise),
            ""};
        if (is_parameter ? field->of_parameters : field->of_tensors)
            put_function(emitter, text, &row, defines);
    }
}

static void put_all(const struct ul_emitter *emitter, struct ul_text *text, bool defines)
{
    put_rows(emitter, text, rows, COUNT(rows), defines);
    put_fields(emitter, text, "input", "input", defines);
    put_fields(emitter, text, "output", "output", defines);
    put_rows(emitter, text, calls, COUNT(calls), defines);
    put_fields(emitter, text, "parameter", "training->parameter", defines);
    put_rows(emitter, text, training_calls, COUNT(training_calls), defines);
}

void ul_emit_header_end(struct ul_emitter *emitter)
{
    put_all(emitter, emitter->text, false);
    ul_text_put(emitter->text, "\n#if defined(__GNUC__)\n#pragma GCC visibility pop\n#endif\n"
                               "#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
}

static void put_root_answers(struct ul_emitter *emitter)
{
    put_all(emitter, emitter->text, true);
}

static void put_library_body(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    if (ul_emit_has_weights_inside(emitter))
        ul_text_printf(emitter->text,
                       "extern const struct ul_inside %s_inside; /* weights.S */\n\n"
                       "static const struct ul_weights_source inside = {\n"
                       "    .size_bytes = UINT64_C(%" PRIu64 "),\n    .read = ul_binding_read,\n"
                       "    .context = (void *)&%s_inside,\n};\n",
                       prefix, weights_bytes(emitter), prefix);
    if (ul_emit_model_count(emitter) == 1) {
        put_all(emitter, emitter->text, true);
        return;
    }
    emitter->part = UL_EMIT_PROGRAM;
    put_all(emitter, emitter->text, true);
    emitter->part = UL_EMIT_ROOT;
    ul_emit_each_model(emitter, put_root_answers);
    emitter->part = UL_EMIT_BOTH;
}

void ul_emit_library_c(struct ul_emitter *emitter)
{
    const char *body = ul_emit_body(emitter, put_library_body);
    ul_text_printf(emitter->text,
                   "/* Generated by ullage " UL_VERSION " from a model with SHA-256\n * %s.\n"
                   " * What the library answers, and how it begins and ends for callers in any "
                   "language.\n * " UL_EMIT_SPDX " */\n"
                   "#define _DEFAULT_SOURCE /* madvise */\n#include \"%s.h\"\n\n",
                   emitter->options->model_sha256, ul_emit_stem(emitter));
    ul_emit_includes(emitter, body, false);
    ul_text_printf(emitter->text, "\n%s", body);
}

void ul_emit_weights_s(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    ul_text_printf(
        emitter->text,
        "/* " UL_EMIT_SPDX "\n   The file of weights as read-only data of the library, and where "
        "it lies. On x86-64 it\n"
        "   is in a section for data of any size, where the assembler knows such; names have an\n"
        "   underscore in front where the platform wants one. */\n"
        "#if defined(__APPLE__)\n#define INSIDE _%s_inside\n.const\n"
        "#else\n#define INSIDE %s_inside\n"
        "#if defined(__x86_64__) && !defined(__clang__)\n"
        ".section .lrodata.ul_weights,\"al\",%%progbits\n"
        "#else\n.section .rodata.ul_weights,\"a\",%%progbits\n#endif\n#endif\n"
        ".balign 4096\nbegin:\n.incbin \"weights.bin\"\nend:\n"
        "#if defined(__APPLE__)\n.section __DATA,__const\n#else\n"
        ".section .data.rel.ro.ul_inside,\"aw\",%%progbits\n.hidden INSIDE\n#endif\n"
        ".balign 8\n.globl INSIDE\nINSIDE:\n"
        "#if __SIZEOF_POINTER__ == 8\n.quad begin, end\n#else\n.long begin, end\n#endif\n"
        "#if defined(__linux__) && defined(__ELF__)\n"
        ".section .note.GNU-stack,\"\",%%progbits\n#endif\n",
        prefix, prefix);
}
