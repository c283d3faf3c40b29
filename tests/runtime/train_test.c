/* SPDX-License-Identifier: Apache-2.0 */
/* The library form of a model that trains: schedules, the order of samples, steps with and without
   micro-batches, saving and loading. */
#include "trainer/model.h"

#include "ul_train.h"

#include "test.h"

static unsigned char room[TRAINER_ARENA_BYTES + TRAINER_ARENA_ALIGN];
static unsigned char *arena;
static TRAINER_REAL images[4][TRAINER_SAMPLES * TRAINER_PIXELS];
static int64_t labels[4][TRAINER_SAMPLES];

static void make_data(void)
{
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < TRAINER_SAMPLES; i++) {
            labels[b][i] = (i * 7 + b) % TRAINER_CLASSES;
            for (int k = 0; k < TRAINER_PIXELS; k++)
                images[b][i * TRAINER_PIXELS + k] =
                    (TRAINER_REAL)(k % TRAINER_CLASSES == labels[b][i]) +
                    (TRAINER_REAL)((i * 31 + k * 17 + b) % 13) / 26;
        }
}

/* One batch, of the same micro-batches; returns the loss of the last one. */
static double train(struct ul_trainer *trainer, int batch)
{
    TRAINER_REAL loss = 0;
    int64_t correct = 0;
    const void *inputs[] = {images[batch], labels[batch], NULL};
    void *outputs[] = {&loss, &correct, NULL, NULL, NULL, NULL};
    for (int m = 0; m < TRAINER_MICRO; m++)
        CHECK(ul_train_step(&trainer_model, arena, trainer, inputs, outputs, NULL) == UL_OK);
    return (double)loss;
}

static void begin(struct ul_trainer *trainer)
{
    CHECK(ul_run_init(&trainer_model, arena, TRAINER_ARENA_BYTES, NULL, NULL) == UL_OK);
    ul_train_init(&trainer_model, trainer);
}

static void test_steps(void)
{
    struct ul_trainer trainer;
    begin(&trainer);
    double first = train(&trainer, 0), last = first;
    CHECK(fabs(first - log(TRAINER_CLASSES)) < 1e-6); /* of weights that are 0 */
    for (int i = 1; i < 100; i++)
        last = train(&trainer, i % 4);
    CHECK(last < 0.2 * first);
    CHECK(trainer.step == 100 && trainer.micro_batch == 0);
}

/* The loss of the next step, without one. */
static void test_eval(void)
{
    struct ul_trainer trainer;
    TRAINER_REAL loss = 0;
    int64_t correct = 0;
    const void *inputs[] = {images[2], labels[2], NULL};
    void *outputs[] = {&loss, &correct, NULL, NULL, NULL, NULL};
    begin(&trainer);
    for (int i = 0; i < 50; i++)
        train(&trainer, i % 4);
    CHECK(ul_train_eval(&trainer_model, arena, inputs, outputs, NULL) == UL_OK);
    CHECK((double)loss == train(&trainer, 2));
    CHECK(correct > 0 && trainer.step == 51);
}

/* A step on the same batch several times learns what one on the batch does. */
static void test_micro_batches(void)
{
    static const unsigned char zero[TRAINER_W_BYTES];
    struct ul_trainer trainer;
    TRAINER_REAL loss = 0;
    int64_t correct = 0;
    const void *inputs[] = {images[1], labels[1], NULL};
    void *outputs[] = {&loss, &correct, NULL, NULL, NULL, NULL};
    begin(&trainer);
    for (uint32_t m = 1; m < TRAINER_MICRO; m++) {
        uint32_t wanted = m == 1 ? UL_ENTRY_BEGIN : UL_ENTRY_ACCUMULATE;
        CHECK(ul_train_entry(trainer_model.training, &trainer) == wanted);
        CHECK(ul_train_step(&trainer_model, arena, &trainer, inputs, outputs, NULL) == UL_OK);
        CHECK(trainer.step == 0 && trainer.micro_batch == m);
        CHECK(memcmp(arena + TRAINER_W, zero, sizeof zero) == 0);
    }
    CHECK(ul_train_entry(trainer_model.training, &trainer) == UL_ENTRY_RUN);
    CHECK(ul_train_step(&trainer_model, arena, &trainer, inputs, outputs, NULL) == UL_OK);
    CHECK(trainer.step == 1 && trainer.micro_batch == 0);
    CHECK(memcmp(arena + TRAINER_W, zero, sizeof zero) != 0);
    CHECK(fabs((double)loss - log(TRAINER_CLASSES)) < 1e-6);
}

static double rate(const struct ul_rt_rate *rates, uint32_t count, uint64_t step)
{
    const struct ul_rt_training training = {
        .learning_rate = 0.5, .rates = rates, .rate_count = count};
    const struct ul_trainer trainer = {.step = step, .learning_rate = 0.5};
    return ul_train_rate(&training, &trainer);
}

static void test_schedules(void)
{
    static const struct ul_rt_rate steps = {UL_RT_RATE_STEP, 10, 0.1};
    static const struct ul_rt_rate warmup = {UL_RT_RATE_WARMUP, 5, 0.0};
    static const struct ul_rt_rate both[] = {{UL_RT_RATE_COSINE, 20, 0.0},
                                             {UL_RT_RATE_WARMUP, 5, 0.0}};
    CHECK(rate(NULL, 0, 7) == 0.5);
    CHECK(rate(&steps, 1, 9) == 0.5 && fabs(rate(&steps, 1, 10) - 0.05) < 1e-15);
    CHECK(fabs(rate(&steps, 1, 29) - 0.005) < 1e-15);
    CHECK(fabs(rate(&warmup, 1, 0) - 0.1) < 1e-15 && rate(&warmup, 1, 4) == 0.5);
    CHECK(rate(&warmup, 1, 5) == 0.5);
    CHECK(fabs(rate(both, 2, 0) - 0.1) < 1e-15 && rate(both, 2, 5) == 0.5);
    CHECK(fabs(rate(both, 2, 15) - 0.25) < 1e-15 && rate(both, 2, 25) == 0.0);
    CHECK(rate(both, 2, 1000) == 0.0);
}

static void test_numbers(void)
{
    const struct ul_rt_training training = {
        .beta1 = 0.9, .beta2 = 0.999, .micro_batches = 4, .sample_count = 6};
    const struct ul_trainer trainer = {2, 3, 77, 0.25};
    double values[UL_RT_STEP_NUMBERS];
    ul_train_numbers(&training, &trainer, values);
    CHECK(values[0] == 0.25 && values[3] == 6.0 && values[4] == 77.0 && values[5] == 11.0);
    CHECK(values[1] == 1.0 - 0.9 * (0.9 * 0.9) && values[2] == 1.0 - 0.999 * (0.999 * 0.999));
    CHECK(values[6] == 0.0 && values[7] == 3.0);
    ul_train_eval_numbers(5, values);
    CHECK(values[0] == 0.0 && values[3] == 5.0 && values[6] != 0.0 && values[7] == 0.0);
}

static void test_power(void)
{
    static const double bases[] = {0.0, 0.1, 0.5, 0.9, 0.999, 0.9999999, 1.0};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        for (uint64_t count = 0; count < (uint64_t)1 << 40; count = count * 5 / 2 + 1) {
            double want = pow(bases[i], (double)count);
            double off = fabs(ul_train_power(bases[i], count) - want);
            CHECK(off <= (double)(count + 1) * 0x1p-53 * want + 0x1p-1022);
        }
    }
}

/* Every sample once; another order each epoch and seed; no sample has a place of its own. */
static void test_shuffle(void)
{
    static unsigned char seen[5000];
    for (uint64_t count = 1; count < sizeof seen; count = count * 3 / 2 + 1) {
        uint64_t fixed = 0, same = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = ul_train_shuffled(1, 2, count, i);
            CHECK(at < count && seen[at] == 0);
            seen[at < count ? at : 0] = 1;
            fixed += at == i;
            same += at == ul_train_shuffled(1, 3, count, i);
        }
        CHECK(count < 100 || (fixed < 10 && same < 10));
    }
    CHECK(ul_train_shuffled(1, 0, 1000000, 5) != ul_train_shuffled(2, 0, 1000000, 5));
    CHECK(ul_train_shuffled(1, 0, UINT64_MAX, 5) != 5);
}

static unsigned char file[64 + TRAINER_ARENA_BYTES];
static uint64_t file_limit;

static int write_file(void *context, uint64_t offset_bytes, const void *bytes, uint64_t size_bytes)
{
    (void)context;
    if (offset_bytes + size_bytes > file_limit)
        return 1;
    memcpy(file + offset_bytes, bytes, (size_t)size_bytes);
    return 0;
}

static int read_file(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    (void)context;
    if (offset_bytes + size_bytes > file_limit)
        return 1;
    memcpy(target, file + offset_bytes, (size_t)size_bytes);
    return 0;
}

static void test_save(void)
{
    static unsigned char want[TRAINER_IMAGES];
    const uint64_t bytes = UL_TRAIN_HEAD_BYTES + ul_train_bytes(&trainer_model);
    struct ul_trainer trainer, loaded;
    struct ul_failure failure;
    begin(&trainer);
    trainer.seed = 9;
    trainer.learning_rate = 0.03;
    for (int i = 0; i < 5; i++)
        train(&trainer, i % 4);
    file_limit = bytes;
    CHECK(ul_train_save(&trainer_model, arena, &trainer, write_file, NULL, NULL) == UL_OK);
    for (int i = 5; i < 9; i++)
        train(&trainer, i % 4);
    memcpy(want, arena, sizeof want);
    begin(&loaded);
    CHECK(ul_train_load(&trainer_model, arena, &loaded, read_file, NULL, &failure) == UL_OK);
    CHECK(loaded.step == 5 && loaded.seed == 9 && loaded.learning_rate == 0.03);
    for (int i = 5; i < 9; i++)
        train(&loaded, i % 4);
    CHECK(memcmp(arena, want, sizeof want) == 0);

    file_limit = bytes - 1;
    CHECK(ul_train_save(&trainer_model, arena, &trainer, write_file, NULL, &failure) ==
          UL_CHECKPOINT_UNWRITTEN);
    CHECK(ul_train_load(&trainer_model, arena, &loaded, read_file, NULL, &failure) ==
          UL_CHECKPOINT_UNREADABLE);
    file_limit = bytes;
    for (uint64_t at = 0; at < bytes; at += at < 64 ? 1 : 511) {
        file[at] ^= 4;
        CHECK(ul_train_load(&trainer_model, arena, &loaded, read_file, NULL, &failure) != UL_OK);
        file[at] ^= 4;
    }
    CHECK(memcmp(arena, want, sizeof want) == 0);
    struct ul_rt_training other = *trainer_model.training;
    struct ul_model model = trainer_model;
    other.optimizer = "adam";
    model.training = &other;
    CHECK(ul_train_load(&model, arena, &loaded, read_file, NULL, &failure) == UL_CHECKPOINT_OTHER);
    other = *trainer_model.training;
    other.lora_alpha = 4;
    CHECK(ul_train_load(&model, arena, &loaded, read_file, NULL, &failure) == UL_CHECKPOINT_OTHER);
    other = *trainer_model.training;
    other.quantize = "int4";
    CHECK(ul_train_load(&model, arena, &loaded, read_file, NULL, &failure) == UL_CHECKPOINT_OTHER);
    other = *trainer_model.training;
    other.parameter_count = 3;
    model.training = &other;
    CHECK(ul_train_load(&model, arena, &loaded, read_file, NULL, &failure) == UL_CHECKPOINT_OTHER);
}

/* Pieces of any size at any place of filters with channels innermost have the order of the model.
 */
static void test_filters(void)
{
    enum { FILTERS = 2, CHANNELS = 2000, PLACES = 6, COUNT = FILTERS * CHANNELS * PLACES };
    static const int64_t dims[] = {FILTERS, CHANNELS, 2, 3};
    static uint16_t plain[COUNT], lying[COUNT], seen[COUNT];
    const struct ul_rt_parameter parameter = {"w",
                                              UL_TYPE_F32,
                                              4,
                                              dims,
                                              sizeof plain,
                                              0,
                                              UL_SPACE_ARENA,
                                              UL_TYPE_BF16,
                                              UL_RT_PARAMETER_CHANNELS_LAST};
    static const uint64_t sizes[] = {COUNT, 1, 5, 2048, 4097};
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t k = i / (CHANNELS * PLACES), c = i / PLACES % CHANNELS;
        plain[i] = (uint16_t)(i * 7 + i / 65536);
        lying[(k * PLACES + i % PLACES) * CHANNELS + c] = plain[i];
    }
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        static uint16_t moved[COUNT];
        memset(moved, 0, sizeof moved);
        memset(seen, 0, sizeof seen);
        for (uint64_t at = 0; at < COUNT; at += sizes[n]) {
            uint64_t count = COUNT - at < sizes[n] ? COUNT - at : sizes[n];
            CHECK(ul_train_move(&trainer_model, moved, UL_OFFLOAD_SAVE, &parameter,
                                at * sizeof *plain, plain + at, count * sizeof *plain,
                                NULL) == UL_OK);
        }
        CHECK(memcmp(moved, lying, sizeof lying) == 0);
        for (uint64_t at = 0; at < COUNT; at += sizes[n]) {
            uint64_t count = COUNT - at < sizes[n] ? COUNT - at : sizes[n];
            CHECK(ul_train_move(&trainer_model, moved, UL_OFFLOAD_LOAD, &parameter,
                                at * sizeof *plain, seen + at, count * sizeof *plain,
                                NULL) == UL_OK);
        }
        CHECK(memcmp(seen, plain, sizeof plain) == 0);
    }
}

int main(void)
{
    arena = room + (TRAINER_ARENA_ALIGN - (uintptr_t)room % TRAINER_ARENA_ALIGN);
    make_data();
    test_steps();
    test_eval();
    test_micro_batches();
    test_schedules();
    test_numbers();
    test_power();
    test_shuffle();
    test_save();
    test_filters();
    return TEST_RESULT();
}
