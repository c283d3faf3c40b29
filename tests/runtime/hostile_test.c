/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of .npy, .npz and TensorProto on sound files, on every truncation of them, and on
   thousands of seeded mutations: they may refuse, they may not crash or touch what is not theirs
   (run this under the sanitizers). What they accept must have filled the tensor. */
#include "ul_internal.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT 4096
#define MUTATIONS 20000

struct sample {
    const char *name;
    unsigned char bytes[FILE_LIMIT];
    size_t size;
};

static const int64_t dims[] = {2, 3};
static const struct ul_rt_tensor tensor = {"x", UL_TYPE_F32, 2, dims, 24, UL_SPACE_ARENA, 0, 0};
static const float values[6] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
static const struct ul_model model = {
    .name = "sample", .arena_align = 64, .output_count = 1, .outputs = &tensor, .arena_bytes = 24};

static void append(struct sample *sample, const void *bytes, size_t size)
{
    if (sample->size + size > FILE_LIMIT)
        abort();
    memcpy(sample->bytes + sample->size, bytes, size);
    sample->size += size;
}

static void make_npy(struct sample *sample)
{
    char header[UL_NPY_HEADER_BYTES];
    sample->name = "sample.npy";
    append(sample, header, ul_npy_header(&tensor, header, sizeof header));
    append(sample, values, sizeof values);
}

static void make_npz(const struct ul_session *s, struct sample *sample, const char *path)
{
    struct ul_npz_member member = {.tensor = s->model->outputs[0], .data = ul_session_output(s, 0)};
    sample->name = "sample.npz";
    CHECK(ul_npz_write(s, path, &member, 1, false) == 0);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        abort();
    sample->size = fread(sample->bytes, 1, FILE_LIMIT, file);
    fclose(file);
}

/* packed: dims and float_data packed; else unpacked dims, and raw_data before them. */
static void make_pb(struct sample *sample, int packed)
{
    sample->name = packed ? "packed.pb" : "raw.pb";
    if (packed) {
        append(sample, "\x0a\x02\x02\x03\x10\x01\x42\x01x\x22\x18", 11);
        append(sample, values, sizeof values);
    } else {
        append(sample, "\x4a\x18", 2);
        append(sample, values, sizeof values);
        append(sample, "\x42\x01x\x08\x02\x08\x03\x10\x01", 9);
    }
}

static int read_pb(const struct ul_session *s, struct ul_reader *reader, void *data)
{
    unsigned char *bytes;
    uint64_t size_bytes;
    struct ul_pb pb;
    int status = ul_reader_all(s, reader, &bytes, &size_bytes);
    if (status != 0)
        return status;
    status = ul_pb_parse(s, reader->name, bytes, size_bytes, &pb);
    if (status == 0)
        status = ul_pb_decode(s, reader->name, &pb, "input", &tensor, data);
    free(bytes);
    return status;
}

static void store(const char *path, const struct sample *sample)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(sample->bytes, 1, sample->size, file) != sample->size)
        abort();
    fclose(file);
}

static int read_sample(const struct ul_session *s, const char *path, const struct sample *sample,
                       void *data)
{
    struct ul_reader reader;
    store(path, sample);
    int status = ul_reader_open(s, &reader, path);
    if (status != 0)
        return status;
    const char *end = strrchr(sample->name, '.');
    if (strcmp(end, ".npy") == 0)
        status = ul_npy_read(s, &reader, "input", &tensor, data);
    else if (strcmp(end, ".npz") == 0)
        status = ul_npz_read(s, &reader, NULL, "input", &tensor, data);
    else
        status = read_pb(s, &reader, data);
    ul_reader_close(&reader);
    return status;
}

static void test_sample(const struct ul_session *s, const char *path, const struct sample *sample)
{
    static const int allowed[] = {0, 2, 3, 5};
    float data[6];
    uint64_t state = 1;
    int accepted = 0;
    CHECK(read_sample(s, path, sample, data) == 0);
    CHECK(memcmp(data, values, sizeof values) == 0);
    for (size_t size = 0; size < sample->size; size++) {
        struct sample cut = *sample;
        cut.size = size;
        CHECK(read_sample(s, path, &cut, data) != 0);
    }
    for (int i = 0; i < MUTATIONS; i++) {
        struct sample changed = *sample;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        for (uint64_t left = state >> 60; left > 0; left = left / 2) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            changed.bytes[(state >> 33) % changed.size] =
                (state >> 20 & 3) == 0 ? 0xff : (unsigned char)(state >> 24);
        }
        int status = read_sample(s, path, &changed, data);
        int known = 0;
        for (size_t k = 0; k < sizeof allowed / sizeof allowed[0]; k++)
            known |= status == allowed[k];
        CHECK(known);
        accepted += status == 0;
    }
    printf("%s: %d of %d mutations accepted\n", sample->name, accepted, MUTATIONS);
}

int main(void)
{
    static struct sample samples[4];
    struct ul_session s;
    char path[] = "/dev/shm/hostile_XXXXXX"; /* thousands of files: in memory where that exists */
    float data[6];
    memset(&s, 0, sizeof s);
    memcpy(data, values, sizeof data);
    s.program = "hostile";
    s.model = &model;
    s.arena = (unsigned char *)data;
    int descriptor = mkstemp(path);
    if (descriptor < 0) {
        memcpy(path, "hostile_XXXXXX", sizeof "hostile_XXXXXX");
        descriptor = mkstemp(path);
    }
    if (descriptor < 0)
        return 1;
    close(descriptor);
    if (freopen("/dev/null", "w", stderr) == NULL)
        return 1;
    make_npy(&samples[0]);
    make_npz(&s, &samples[1], path);
    make_pb(&samples[2], 0);
    make_pb(&samples[3], 1);
    for (int i = 0; i < 4; i++)
        test_sample(&s, path, &samples[i]);
    remove(path);
    return TEST_RESULT();
}
