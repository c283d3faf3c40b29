/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a device profile, written and read (codegen/README.md documents every key). */
#include "codegen/kernel/profile.h"

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

static const char *const kind_names[UL_WORK_KINDS] = {
    [UL_WORK_MATMUL_F32] = "matmul_f32",   [UL_WORK_MATMUL_TF32] = "matmul_tf32",
    [UL_WORK_MATMUL_F64] = "matmul_f64",   [UL_WORK_MATMUL_F16] = "matmul_f16",
    [UL_WORK_MATMUL_INT8] = "matmul_int8", [UL_WORK_WINDOW] = "window",
    [UL_WORK_VECTOR] = "vector",           [UL_WORK_SPECIAL] = "special",
    [UL_WORK_SCALAR] = "scalar",
};

const char *ul_work_kind_name(enum ul_work_kind kind)
{
    UL_ASSERT(kind < UL_WORK_KINDS);
    return kind_names[kind];
}

/* Bytes of processes, by key. */
static const struct {
    const char *key;
    size_t offset;
    bool may_miss; /* if missing it is 0 */
} process_keys[] = {
    {"code_bytes", offsetof(struct ul_profile_process, code_bytes), false},
    {"threads_code_bytes", offsetof(struct ul_profile_process, threads_code_bytes), false},
    {"library_code_bytes", offsetof(struct ul_profile_process, calls.code_bytes), false},
    {"windows_code_bytes", offsetof(struct ul_profile_process, calls.windows_code_bytes), false},
    {"runtime_bytes", offsetof(struct ul_profile_process, runtime_bytes), false},
    {"library_runtime_bytes", offsetof(struct ul_profile_process, calls.runtime_bytes), false},
    {"stack_bytes", offsetof(struct ul_profile_process, stack_bytes), false},
    {"library_load_bytes", offsetof(struct ul_profile_process, calls.load_bytes), false},
    {"library_idle_bytes", offsetof(struct ul_profile_process, calls.idle_bytes), false},
    {"library_making_bytes", offsetof(struct ul_profile_process, calls.making_bytes), false},
    {"last_code_bytes", offsetof(struct ul_profile_process, last_code_bytes), true},
};
enum { PROCESS_KEYS = sizeof process_keys / sizeof *process_keys };

/* How fast bytes move out of the device's memory, by key. */
static const struct {
    const char *key;
    size_t offset;
} transfer_keys[] = {
    {"host_gigabytes_per_second", offsetof(struct ul_profile, host_rate)},
    {"file_gigabytes_per_second", offsetof(struct ul_profile, file_rate)},
};
enum { TRANSFER_KEYS = sizeof transfer_keys / sizeof *transfer_keys };

/* The device, and what a process takes of it, by key. */
static const struct {
    const char *key;
    size_t offset;
} device_keys[] = {
    {"max_shared_bytes", offsetof(struct ul_profile_device, max_shared_bytes)},
    {"compute_capability", offsetof(struct ul_profile_device, capability)},
    {"context_bytes", offsetof(struct ul_profile_device, context_bytes)},
    {"cublaslt_bytes", offsetof(struct ul_profile_device, cublaslt_bytes)},
    {"cudnn_bytes", offsetof(struct ul_profile_device, cudnn_bytes)},
};
enum { DEVICE_KEYS = sizeof device_keys / sizeof *device_keys };

/* ---- writing ---- */

static void put_device(struct ul_text *text, const struct ul_profile_device *device,
                       const char *line)
{
    if (device->processors == 0)
        return;
    ul_text_printf(text, ",%s\"device\": {\"processors\": %" PRIu32 ", \"launch_cycles\": %" PRIu32,
                   line, device->processors, device->launch_cycles);
    for (uint32_t i = 0; i < DEVICE_KEYS; i++) {
        uint64_t bytes;
        memcpy(&bytes, (const char *)device + device_keys[i].offset, sizeof bytes);
        if (bytes > 0)
            ul_text_printf(text, ", \"%s\": %" PRIu64, device_keys[i].key, bytes);
    }
    ul_text_put(text, "}");
}

static void put_process(struct ul_text *text, const struct ul_profile *profile, const char *line)
{
    if (profile->process.code_bytes == 0)
        return;
    ul_text_printf(text, ",%s\"process\": {", line);
    for (uint32_t i = 0; i < PROCESS_KEYS; i++) {
        uint64_t bytes;
        memcpy(&bytes, (const char *)&profile->process + process_keys[i].offset, sizeof bytes);
        ul_text_printf(text, "%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", process_keys[i].key, bytes);
    }
    ul_text_put(text, "}");
}

static void put_rates(struct ul_text *text, const struct ul_profile *profile, const char *line)
{
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++)
        ul_text_printf(text, "%s%s\"%s\": %.9g", kind == 0 ? "" : ",", line, kind_names[kind],
                       profile->rates[kind]);
}

static void put_levels(struct ul_text *text, const struct ul_profile *profile, const char *line)
{
    for (uint32_t i = 0; i < profile->level_count; i++) {
        const struct ul_profile_level *level = &profile->levels[i];
        ul_text_printf(text, "%s%s{\"up_to_bytes\": ", i == 0 ? "" : ",", line);
        if (level->capacity_bytes == UINT64_MAX)
            ul_text_put(text, "null");
        else
            ul_text_printf(text, "%llu", (unsigned long long)level->capacity_bytes);
        ul_text_printf(text, ", \"gigabytes_per_second\": %.9g}", level->rate);
    }
}

void ul_profile_put_json(struct ul_text *text, const struct ul_profile *profile, bool compact)
{
    const char *line = compact ? " " : "\n  ";
    const char *inner = compact ? " " : "\n    ";
    ul_text_printf(text, "{%s\"format\": \"ullage-profile\",%s\"version\": 1,%s\"name\": ",
                   compact ? "" : "\n  ", line, line);
    ul_text_put_json(text, profile->name);
    ul_text_printf(text, ",%s\"source\": ", line);
    ul_text_put_json(text, profile->source);
    ul_text_printf(text, ",%s\"overhead_nanoseconds\": %.9g,%s\"memory_bytes\": %llu", line,
                   profile->overhead_ns, line, (unsigned long long)profile->memory_bytes);
    if (profile->weights_rate > 0)
        ul_text_printf(text, ",%s\"weights_gigabytes_per_second\": %.9g", line,
                       profile->weights_rate);
    if (profile->held_weight_bytes > 0)
        ul_text_printf(text, ",%s\"held_weight_bytes\": %llu", line,
                       (unsigned long long)profile->held_weight_bytes);
    for (uint32_t i = 0; i < TRANSFER_KEYS; i++) {
        double rate;
        memcpy(&rate, (const char *)profile + transfer_keys[i].offset, sizeof rate);
        if (rate > 0)
            ul_text_printf(text, ",%s\"%s\": %.9g", line, transfer_keys[i].key, rate);
    }
    put_device(text, &profile->device, line);
    put_process(text, profile, line);
    ul_text_printf(text, ",%s\"giga_operations_per_second\": {", line);
    put_rates(text, profile, inner);
    ul_text_printf(text, "%s},%s\"memory_levels\": [", compact ? "" : "\n  ", line);
    put_levels(text, profile, inner);
    ul_text_put(text, compact ? "]}" : "\n  ]\n}\n");
}

/* ---- reading ---- */

struct reader {
    struct ul_arena *arena;
    struct ul_diag *diag;
    const json_t *root;
    struct ul_profile *profile;
};

static enum ul_status read_string(struct reader *reader, const char *key, const char **out)
{
    const char *value = json_string_value(json_object_get(reader->root, key));
    if (value == NULL)
        return ul_diag_set(reader->diag, UL_INVALID, "\"%s\" is missing or no string", key);
    *out = ul_arena_copy_string(reader->arena, value);
    return UL_OK;
}

/* Numbers must not make a cost overflow or vanish. */
static enum ul_status read_number(struct reader *reader, const json_t *object, const char *key,
                                  double min, double *out)
{
    const json_t *value = json_object_get(object, key);
    *out = json_number_value(value);
    if (!json_is_number(value) || !(*out >= min) || *out > 1e15)
        return ul_diag_set(reader->diag, UL_INVALID,
                           "\"%s\" is missing, or no number from %g to 1e15", key, min);
    return UL_OK;
}

static enum ul_status read_count(struct reader *reader, const json_t *object, const char *key,
                                 uint32_t max, uint32_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > max)
        return ul_diag_set(reader->diag, UL_INVALID,
                           "\"%s\" is missing, or no whole number from 1 to %" PRIu32, key, max);
    *out = (uint32_t)json_integer_value(value);
    return UL_OK;
}

/* Reads a graphics processor; older files have none. The default for its shared memory is what all
 * of them have. */
static enum ul_status read_device(struct reader *reader)
{
    struct ul_profile_device *device = &reader->profile->device;
    const json_t *object = json_object_get(reader->root, "device");
    if (object == NULL)
        return UL_OK;
    UL_TRY(read_count(reader, object, "processors", 4096, &device->processors));
    UL_TRY(read_count(reader, object, "launch_cycles", 1000000, &device->launch_cycles));
    const struct ul_profile_device *other = &ul_profile_find(UL_PROFILE_DEFAULT_DEVICE)->device;
    device->shared_bytes = other->shared_bytes;
    device->max_shared_bytes = other->max_shared_bytes;
    for (uint32_t i = 0; i < DEVICE_KEYS; i++) {
        double number;
        if (json_object_get(object, device_keys[i].key) == NULL)
            continue;
        UL_TRY(read_number(reader, object, device_keys[i].key, 0, &number));
        uint64_t bytes = (uint64_t)number;
        memcpy((char *)device + device_keys[i].offset, &bytes, sizeof bytes);
    }
    return UL_OK;
}

/* Files without counts have none. */
static enum ul_status read_process(struct reader *reader)
{
    const json_t *object = json_object_get(reader->root, "process");
    for (uint32_t i = 0; object != NULL && i < PROCESS_KEYS; i++) {
        double number;
        if (process_keys[i].may_miss && json_object_get(object, process_keys[i].key) == NULL)
            continue;
        UL_TRY(read_number(reader, object, process_keys[i].key, i == 0 ? 1 : 0, &number));
        uint64_t bytes = (uint64_t)number;
        memcpy((char *)&reader->profile->process + process_keys[i].offset, &bytes, sizeof bytes);
    }
    return UL_OK;
}

static enum ul_status read_transfers(struct reader *reader)
{
    for (uint32_t i = 0; i < TRANSFER_KEYS; i++) {
        double rate;
        if (json_object_get(reader->root, transfer_keys[i].key) == NULL)
            continue;
        UL_TRY(read_number(reader, reader->root, transfer_keys[i].key, 1e-3, &rate));
        memcpy((char *)reader->profile + transfer_keys[i].offset, &rate, sizeof rate);
    }
    return UL_OK;
}

static enum ul_status read_level(struct reader *reader, const json_t *item, uint32_t index)
{
    struct ul_profile_level *level = &reader->profile->levels[index];
    bool last = index + 1 == reader->profile->level_count;
    const json_t *capacity = json_object_get(item, "up_to_bytes");
    UL_TRY(read_number(reader, item, "gigabytes_per_second", 1e-3, &level->rate));
    level->capacity_bytes = UINT64_MAX;
    if (last && json_is_null(capacity))
        return UL_OK;
    if (!last && json_is_integer(capacity) && json_integer_value(capacity) > 0) {
        level->capacity_bytes = (uint64_t)json_integer_value(capacity);
        if (index == 0 || level->capacity_bytes > level[-1].capacity_bytes)
            return UL_OK;
    }
    return ul_diag_set(reader->diag, UL_INVALID,
                       "\"memory_levels\" %u: \"up_to_bytes\" is a size, above the one before, and "
                       "null in the last level alone",
                       index);
}

static enum ul_status read_levels(struct reader *reader)
{
    const json_t *levels = json_object_get(reader->root, "memory_levels");
    size_t level_count = json_array_size(levels);
    if (level_count < 1 || level_count > UL_PROFILE_LEVELS)
        return ul_diag_set(reader->diag, UL_INVALID, "\"memory_levels\": expected 1 to %d of them",
                           UL_PROFILE_LEVELS);
    reader->profile->level_count = (uint32_t)level_count;
    for (uint32_t i = 0; i < level_count; i++)
        UL_TRY(read_level(reader, json_array_get(levels, i), i));
    return UL_OK;
}

/* Names appear in reports, on terminals too. */
static bool is_plain_name(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 60 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
                        "-_.,()@+/") == length;
}

static enum ul_status read_profile(struct reader *reader)
{
    struct ul_profile *profile = reader->profile;
    const json_t *rates = json_object_get(reader->root, "giga_operations_per_second");
    const char *format = json_string_value(json_object_get(reader->root, "format"));
    double memory = 0, held = 0;
    if (format == NULL || strcmp(format, "ullage-profile") != 0)
        return ul_diag_set(reader->diag, UL_INVALID, "\"format\" is not \"ullage-profile\"");
    if (json_integer_value(json_object_get(reader->root, "version")) != 1)
        return ul_diag_set(reader->diag, UL_UNSUPPORTED,
                           "\"version\" is not 1, the one that this ullage reads");
    UL_TRY(read_string(reader, "name", &profile->name));
    UL_TRY(read_string(reader, "source", &profile->source));
    if (!is_plain_name(profile->name))
        return ul_diag_set(
            reader->diag, UL_INVALID,
            "\"name\": expected 1 to 60 letters, digits, blanks or any of -_.,()@+/");
    UL_TRY(read_number(reader, reader->root, "overhead_nanoseconds", 0, &profile->overhead_ns));
    if (json_object_get(reader->root, "memory_bytes") != NULL)
        UL_TRY(read_number(reader, reader->root, "memory_bytes", 0, &memory));
    profile->memory_bytes = (uint64_t)memory;
    if (json_object_get(reader->root, "weights_gigabytes_per_second") != NULL)
        UL_TRY(read_number(reader, reader->root, "weights_gigabytes_per_second", 1e-3,
                           &profile->weights_rate));
    if (json_object_get(reader->root, "held_weight_bytes") != NULL)
        UL_TRY(read_number(reader, reader->root, "held_weight_bytes", 1, &held));
    profile->held_weight_bytes = (uint64_t)held;
    UL_TRY(read_transfers(reader));
    UL_TRY(read_device(reader));
    UL_TRY(read_process(reader));
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++)
        UL_TRY(read_number(reader, rates, kind_names[kind], 1e-3, &profile->rates[kind]));
    return read_levels(reader);
}

enum ul_status ul_profile_read_json(struct ul_arena *arena, const char *json, size_t length,
                                    struct ul_profile *profile, struct ul_diag *diag)
{
    json_error_t error;
    json_t *root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &error);
    struct reader reader = {.arena = arena, .diag = diag, .root = root, .profile = profile};
    *profile = (struct ul_profile){.name = NULL};
    if (root == NULL)
        return ul_diag_set(diag, UL_INVALID, "line %d: %s", error.line, error.text);
    enum ul_status status = read_profile(&reader);
    json_decref(root);
    return status;
}
