/* Only for `make size`: a device with nothing but its classes, so that the linker keeps all of it. */
#include "teach.h"

static teach_class room[CLASSES];
static teach_state state;

int device(const uint8_t *image, const teach_flash *flash);

int device(const uint8_t *image, const teach_flash *flash) {
    teach_answer answer;
    return (int)teach_start(&state, room, CLASSES) |
           (int)teach_learn(&state, image, TEACH_PIXELS, "task", "name") |
           (int)teach_forget(&state, "task", "name") |
           (int)teach_predict(&state, image, TEACH_PIXELS, "task", &answer) |
           (int)teach_save(&state, flash) | (int)teach_restore(&state, flash) |
           teach_message(TEACH_OK)[0];
}
