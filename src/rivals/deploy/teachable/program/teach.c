/* Learning, forgetting, answering and saving; see teach.h. */
#include "teach.h"

#include <string.h>

extern const uint32_t network_id;

const char *teach_message(teach_status status) {
    static const char *const messages[] = {
        "Done.",
        "There is no room for another class; forget one, or supply a larger array.",
        "The class has as many images as it can have; forget it and learn it anew.",
        "There is no such task or class.",
        "Nothing is learned yet; learn a class first.",
        "A name has 1 to 63 bytes; use a shorter one.",
        "The image does not have the size that the network looks at.",
        "Nothing is saved here.",
        "What is saved here is damaged.",
        "What is saved here was learned with another network.",
        "The flash is too small for the state; forget a class, or give it more pages.",
        "The flash did not keep what was written; the state before is still there.",
    };
    const size_t number = (size_t)status;
    return number < sizeof messages / sizeof messages[0] ? messages[number] : "Unknown status.";
}

/* Names ------------------------------------------------------------------------------------------ */

/* A name filled with zeros, or 0 where it is none. */
static int take_name(char to[TEACH_NAME], const char *name) {
    size_t length = 0;
    if (name == NULL) {
        return 0;
    }
    while (length < TEACH_NAME && name[length] != '\0') {
        ++length;
    }
    if (length == 0 || length == TEACH_NAME) {
        return 0;
    }
    memset(to, 0, TEACH_NAME);
    memcpy(to, name, length);
    return 1;
}

static int same(const char one[TEACH_NAME], const char other[TEACH_NAME]) {
    return memcmp(one, other, TEACH_NAME) == 0;
}

/* Whether bytes are a name that take_name has made. */
static int is_name(const char name[TEACH_NAME]) {
    char again[TEACH_NAME];
    return take_name(again, name) && same(again, name);
}

/* Learning --------------------------------------------------------------------------------------- */

teach_status teach_start(teach_state *state, teach_class *room, uint32_t capacity) {
    if (capacity < teach_initial_count) {
        return TEACH_FULL;
    }
    memset(room, 0, (size_t)capacity * sizeof *room);
    if (teach_initial_count > 0) {
        memcpy(room, teach_initial, teach_initial_count * sizeof *room);
    }
    state->classes = room;
    state->capacity = capacity;
    state->count = teach_initial_count;
    return TEACH_OK;
}

teach_status teach_learn(teach_state *state, const uint8_t *image, size_t bytes, const char *task,
                         const char *name) {
    static int16_t features[TEACH_FEATURES];
    char own_task[TEACH_NAME], own_name[TEACH_NAME];
    uint32_t place = 0;
    teach_class *into;
    if (bytes != TEACH_PIXELS) {
        return TEACH_WRONG_SIZE;
    }
    if (!take_name(own_task, task) || !take_name(own_name, name)) {
        return TEACH_BAD_NAME;
    }
    while (place < state->count && !(same(state->classes[place].task, own_task) &&
                                     same(state->classes[place].name, own_name))) {
        ++place;
    }
    if (place == state->capacity) {
        return TEACH_FULL;
    }
    into = state->classes + place;
    if (place < state->count && into->count >= TEACH_MOST) {
        return TEACH_CLASS_FULL;
    }
    teach_features(image, features);
    if (place == state->count) {
        memset(into, 0, sizeof *into);
        memcpy(into->task, own_task, TEACH_NAME);
        memcpy(into->name, own_name, TEACH_NAME);
        ++state->count;
    }
    for (int i = 0; i < TEACH_FEATURES; ++i) {
        into->sums[i] += features[i];
    }
    ++into->count;
    return TEACH_OK;
}

teach_status teach_forget(teach_state *state, const char *task, const char *name) {
    char own_task[TEACH_NAME], own_name[TEACH_NAME];
    uint32_t left = 0;
    if (!take_name(own_task, task) || (name != NULL && !take_name(own_name, name))) {
        return TEACH_BAD_NAME;
    }
    for (uint32_t i = 0; i < state->count; ++i) {
        const teach_class *each = state->classes + i;
        if (same(each->task, own_task) && (name == NULL || same(each->name, own_name))) {
            continue;
        }
        if (left != i) {
            memcpy(state->classes + left, each, sizeof *each);
        }
        ++left;
    }
    if (left == state->count) {
        return TEACH_UNKNOWN;
    }
    memset(state->classes + left, 0, (state->count - left) * sizeof *state->classes);
    state->count = left;
    return TEACH_OK;
}

/* Answering -------------------------------------------------------------------------------------- */

/* Half away from zero, as everywhere. */
static int32_t mean(int32_t sum, int32_t count) {
    return sum < 0 ? -((count / 2 - sum) / count) : (sum + count / 2) / count;
}

static uint64_t distance(const teach_class *each, const int16_t features[TEACH_FEATURES]) {
    uint64_t squares = 0;
    for (int i = 0; i < TEACH_FEATURES; ++i) {
        const int64_t apart = features[i] - mean(each->sums[i], (int32_t)each->count);
        squares += (uint64_t)(apart * apart);
    }
    return squares;
}

teach_status teach_predict(const teach_state *state, const uint8_t *image, size_t bytes,
                           const char *task, teach_answer *answer) {
    static int16_t features[TEACH_FEATURES];
    char own_task[TEACH_NAME];
    uint64_t nearest = UINT64_MAX, next = UINT64_MAX, likelier;
    uint32_t asked = 0;
    if (bytes != TEACH_PIXELS) {
        return TEACH_WRONG_SIZE;
    }
    if (state->count == 0) {
        return TEACH_EMPTY;
    }
    if (task != NULL) {
        if (!take_name(own_task, task)) {
            return TEACH_BAD_NAME;
        }
        for (uint32_t i = 0; i < state->count; ++i) {
            asked += (uint32_t)same(state->classes[i].task, own_task);
        }
        if (asked == 0) {
            return TEACH_UNKNOWN;
        }
    }
    teach_features(image, features);
    answer->found = NULL;
    for (uint32_t i = 0; i < state->count; ++i) {
        const teach_class *each = state->classes + i;
        uint64_t apart;
        if (task != NULL && !same(each->task, own_task)) {
            continue;
        }
        apart = distance(each, features);
        if (apart < nearest) {
            next = nearest;
            nearest = apart;
            answer->found = each;
        } else if (apart < next) {
            next = apart;
        }
    }
    /* Half the difference of squared distances in deviations, times 256. */
    likelier = (next - nearest) / (2 * TEACH_UNIT);
    answer->margin = likelier < INT32_MAX ? (int32_t)likelier : INT32_MAX;
    return TEACH_OK;
}

/* Saving -----------------------------------------------------------------------------------------

   magic, version, network, sequence, classes | task, name, count, sums of each | CRC-32 of all that
   Numbers have 32 bits, the lowest byte first. The rest of the last page is zero. */

#define MAGIC 0x54564952u /* RIVT */
#define VERSION 1u
#define HEADER 20u
#define ENTRY (2u * TEACH_NAME + 4u + 4u * TEACH_FEATURES)

uint32_t teach_saved_bytes(uint32_t classes) {
    const uint32_t bytes = HEADER + classes * ENTRY + 4u;
    return (bytes + TEACH_PAGE - 1) / TEACH_PAGE * TEACH_PAGE;
}

/* A slot from its start to its end, page by page; reading or writing. */
typedef struct {
    const teach_flash *flash;
    int slot;
    uint32_t offset; /* of the next byte */
    uint32_t crc;
    int failed;
    uint8_t page[TEACH_PAGE];
} tape;

static void rewind_tape(tape *on, const teach_flash *flash, int slot) {
    on->flash = flash;
    on->slot = slot;
    on->offset = 0;
    on->crc = 0xFFFFFFFFu;
    on->failed = 0;
}

static void count_in(tape *on, uint8_t byte) {
    on->crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
        on->crc = (on->crc >> 1) ^ (on->crc & 1u ? 0xEDB88320u : 0u);
    }
}

static uint8_t get_byte(tape *on) {
    const uint32_t place = on->offset % TEACH_PAGE;
    if (place == 0 && !on->failed) {
        on->failed = on->offset + TEACH_PAGE > on->flash->bytes ||
                     on->flash->read(on->flash->context, on->slot, on->offset, on->page,
                                     TEACH_PAGE) != 0;
    }
    ++on->offset;
    if (on->failed) {
        return 0;
    }
    count_in(on, on->page[place]);
    return on->page[place];
}

static void put_byte(tape *on, uint8_t byte) {
    const uint32_t place = on->offset % TEACH_PAGE;
    on->page[place] = byte;
    count_in(on, byte);
    ++on->offset;
    if (place == TEACH_PAGE - 1 && !on->failed) {
        on->failed = on->flash->write(on->flash->context, on->slot,
                                      on->offset - TEACH_PAGE, on->page, TEACH_PAGE) != 0;
    }
}

static uint32_t get(tape *on) {
    uint32_t number = 0;
    for (int i = 0; i < 4; ++i) {
        number |= (uint32_t)get_byte(on) << (8 * i);
    }
    return number;
}

static void put(tape *on, uint32_t number) {
    for (int i = 0; i < 4; ++i) {
        put_byte(on, (uint8_t)(number >> (8 * i)));
    }
}

/* A number of two's complement, without leaving the types of C. */
static int32_t signed_of(uint32_t number) {
    return number <= INT32_MAX ? (int32_t)number : -(int32_t)(UINT32_MAX - number) - 1;
}

/* Read a slot: whether its checksum fits, and what it says. Its classes go to `room`, if any. */
static teach_status read_slot(const teach_flash *flash, int slot, teach_class *room,
                              uint32_t *sequence, uint32_t *count) {
    static tape on;
    static teach_class each;
    teach_status status = TEACH_OK;
    uint32_t network, crc;
    rewind_tape(&on, flash, slot);
    if (get(&on) != MAGIC || get(&on) != VERSION) {
        return on.failed ? TEACH_FLASH_FAILED : TEACH_NOTHING_SAVED;
    }
    network = get(&on);
    *sequence = get(&on);
    *count = get(&on);
    if (*count > flash->bytes / ENTRY || teach_saved_bytes(*count) > flash->bytes) {
        return TEACH_DAMAGED;
    }
    if (network != network_id) {
        return TEACH_OTHER_NETWORK;
    }
    for (uint32_t i = 0; i < *count; ++i) {
        for (size_t k = 0; k < TEACH_NAME; ++k) {
            each.task[k] = (char)get_byte(&on);
        }
        for (size_t k = 0; k < TEACH_NAME; ++k) {
            each.name[k] = (char)get_byte(&on);
        }
        each.count = get(&on);
        if (!is_name(each.task) || !is_name(each.name) || each.count < 1 ||
            each.count > TEACH_MOST) {
            status = TEACH_DAMAGED;
        }
        for (size_t k = 0; k < TEACH_FEATURES; ++k) {
            each.sums[k] = signed_of(get(&on));
            if (each.sums[k] > 32767 * (int64_t)each.count ||
                each.sums[k] < -32767 * (int64_t)each.count) {
                status = TEACH_DAMAGED;
            }
        }
        if (room != NULL) {
            room[i] = each;
        }
    }
    crc = on.crc ^ 0xFFFFFFFFu;
    if (get(&on) != crc) {
        status = TEACH_DAMAGED;
    }
    return on.failed ? TEACH_FLASH_FAILED : status;
}

/* The slot with the newest state whose checksum fits; -1 where there is none, and `why`. */
static int newest(const teach_flash *flash, uint32_t *sequence, uint32_t *count,
                  teach_status *why) {
    int found = -1;
    *why = TEACH_NOTHING_SAVED;
    for (int slot = 0; slot < 2; ++slot) {
        uint32_t its_sequence = 0, its_count = 0;
        const teach_status status = read_slot(flash, slot, NULL, &its_sequence, &its_count);
        if (status != TEACH_OK) {
            *why = status > *why ? status : *why;
            continue;
        }
        /* The later of two numbers that may have run over. */
        if (found < 0 || its_sequence - *sequence < 0x80000000u) {
            found = slot;
            *sequence = its_sequence;
            *count = its_count;
        }
    }
    return found;
}

teach_status teach_save(const teach_state *state, const teach_flash *flash) {
    static tape on;
    uint32_t sequence = 0, count = 0, written, again;
    teach_status why;
    const int known = newest(flash, &sequence, &count, &why);
    const int slot = known == 0 ? 1 : 0;
    if (teach_saved_bytes(state->count) > flash->bytes) {
        return TEACH_FLASH_FULL;
    }
    if (flash->erase(flash->context, slot) != 0) {
        return TEACH_FLASH_FAILED;
    }
    written = known < 0 ? 1u : sequence + 1u;
    rewind_tape(&on, flash, slot);
    put(&on, MAGIC);
    put(&on, VERSION);
    put(&on, network_id);
    put(&on, written);
    put(&on, state->count);
    for (uint32_t i = 0; i < state->count; ++i) {
        const teach_class *each = state->classes + i;
        for (size_t k = 0; k < TEACH_NAME; ++k) {
            put_byte(&on, (uint8_t)each->task[k]);
        }
        for (size_t k = 0; k < TEACH_NAME; ++k) {
            put_byte(&on, (uint8_t)each->name[k]);
        }
        put(&on, each->count);
        for (size_t k = 0; k < TEACH_FEATURES; ++k) {
            put(&on, (uint32_t)each->sums[k]);
        }
    }
    put(&on, on.crc ^ 0xFFFFFFFFu);
    while (on.offset % TEACH_PAGE != 0) {
        put_byte(&on, 0);
    }
    if (on.failed || read_slot(flash, slot, NULL, &again, &count) != TEACH_OK ||
        again != written) {
        return TEACH_FLASH_FAILED;
    }
    return TEACH_OK;
}

teach_status teach_restore(teach_state *state, const teach_flash *flash) {
    uint32_t sequence = 0, count = 0;
    teach_status why;
    const int slot = newest(flash, &sequence, &count, &why);
    if (slot < 0) {
        return why;
    }
    if (count > state->capacity) {
        return TEACH_FULL;
    }
    why = read_slot(flash, slot, state->classes, &sequence, &count);
    if (why != TEACH_OK) { /* the flash changed between two looks */
        memset(state->classes, 0, (size_t)state->capacity * sizeof *state->classes);
        state->count = 0;
        return why;
    }
    memset(state->classes + count, 0, (state->capacity - count) * sizeof *state->classes);
    state->count = count;
    return TEACH_OK;
}
