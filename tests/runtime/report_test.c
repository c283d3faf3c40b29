/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a program says of every failure, with what each has beside it and without;
 * report.want is what that has to be. */
#include "ul_internal.h"

#include "ul_device.h"
#include "ul_library.h"

static const struct ul_call call = {.implementation = "brgemm"};
static const struct ul_library library = {
    .name = "oneDNN", .isa = "avx2", .thread_count = 4, .call_count = 1, .calls = &call};
static const struct ul_device device;

/* One failure; what names a file goes to standard error with its path. */
static void say(const struct ul_model *model, const struct ul_run_options *options,
                struct ul_weights_file *file, struct ul_failure failure)
{
    struct ul_session session = {.program = "p", .model = model, .options = options};
    int code = ul_report_failure(&session, file, &failure);
    fprintf(stderr, "  %d\n", code);
}

int main(void)
{
    static const struct ul_model host = {
        .library_count = 1, .libraries = &library, .thread_count = 2};
    static const struct ul_model remote = {
        .library_count = 1, .libraries = &library, .device = &device};
    static const struct ul_run_options options = {.tune = "a\ntune", .choices = "a\nfile"};
    static struct ul_weights_file file = {.path = "a\nweights"};
    static struct ul_weights_file broken = {.path = "weights", .error = 2};
    for (int result = 1; result <= (int)UL_DATA_FAULT; result++) {
        bool is_call = result >= (int)UL_LIBRARY_NEEDS_MORE && result <= (int)UL_LIBRARY_FAILED;
        struct ul_failure bare = {.result = (enum ul_result)result};
        struct ul_failure full = {.result = (enum ul_result)result,
                                  .needed_bytes = 13010,
                                  .available_bytes = 12020,
                                  .tensor = is_call ? 0 : 3,
                                  .detail = "some detail"};
        struct ul_failure enough = full;
        enough.available_bytes = 13020;
        fprintf(stderr, "result %d\n", result);
        say(&host, &options, NULL, bare);
        say(&host, &options, &file, full);
        say(&host, &options, &broken, enough);
        say(&remote, &options, NULL, bare);
        say(&remote, &options, NULL, full);
    }
    return 0;
}
